# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def matmul(A: Float[Array, "M K"], B: Float[Array, "K N"], bias: Float[Array, "N"]):
#         C = zeros((M, N))
#         for i in range(0, M):
#             for j in range(0, N):
#                 acc = 0.0  # S1: an empty sum
#                 for k in range(0, K):
#                     acc = acc + A[i, k] * B[k, j]  # S2: Aggregation over k
#                 C[i, j] = max(acc + bias[j], 0.0)  # S3: bias and activation
#         return C
#
# The steps from there to these kernels:
#   1. run i and j in parallel, acc private to an iteration
#
# Where they end; the labels in the code are those of this nest:
#
#     def matmul(A: Float[Array, "M K"], B: Float[Array, "K N"], bias: Float[Array, "N"]):
#         C = zeros((M, N))
#         for i in parallel(0, M):
#             private: acc
#             for j in parallel(0, N):
#                 private: acc
#                 acc = 0.0  # S1: an empty sum
#                 for k in range(0, K):
#                     acc = acc + A[i, k] * B[k, j]  # S2: Aggregation over k
#                 C[i, j] = max(acc + bias[j], 0.0)  # S3: bias and activation
#         return C

import itertools
from concurrent.futures import ThreadPoolExecutor

import torch
import triton
import triton.language as tl


class _Timed(triton.Config):
    """A configuration that is timed; Triton keeps times under this text, so for each GPU apart."""

    def __str__(self):
        return f"{super().__str__()}, on {torch.cuda.get_device_name()}"


class _Tuned:
    """A kernel in its fastest configuration, which is found once for sizes that are alike.

    Those are alike that have the same powers of two above them: so lengths may change at each call.
    """

    def __init__(self, kernel, configs, key, restored=(), fitting=None):
        self.kernel, self.restored, self.fitting = kernel, restored, fitting
        self.found, self.waiting, self.called = {}, (), None
        self.fastest = float("inf")
        self.tuner = triton.autotune(
            configs,
            key=key,
            restore_value=restored,
            prune_configs_by={"early_config_prune": self.pruned},
            do_bench=self.timed,
            cache_results=True,
        )(kernel)

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.run(grid, arguments, options)

    def run(self, grid, arguments, options):
        sizes = {**dict(zip(self.tuner.arg_names, arguments)), **options}
        like = (triton.next_power_of_2(sizes[key]) for key in self.tuner.keys)
        dtypes = (each.dtype for each in arguments if isinstance(each, torch.Tensor))
        like = (torch.cuda.current_device(), *like, *dtypes)
        if like in self.found:
            self.tuner.best_config = self.found[like]
            self.kernel[grid](*arguments, **options, **self.found[like].all_kwargs())
        else:
            # What is None is not put back between trials: Triton 3.6 would copy it.
            given = [name for name in self.restored if sizes[name] is not None]
            self.tuner.restore_value = given
            self.called = grid, arguments, options
            try:
                self.tuner[grid](*arguments, **options)
            finally:
                self.called, self.waiting = None, ()
            self.found[like] = self.tuner.best_config

    def pruned(self, configs, arguments, /, **sizes):
        """Return the configurations that fit, for Triton's autotuner."""
        if self.fitting is not None:
            configs = self.fitting(configs, sizes)
        self.waiting, self.fastest = configs, float("inf")
        return configs

    def timed(self, call, quantiles):
        """Return the times of a call; before the first one all are compiled, side by side."""
        if self.waiting:
            grid, arguments, options = self.called
            # What cannot be compiled is met again, and reported, where it is timed.
            with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
                for config in self.waiting:
                    self.kernel.warmup(*arguments, grid=grid, **options, **config.all_kwargs())
            self.waiting = ()
        benchmark = triton.runtime.driver.active.get_benchmarker()
        found = benchmark(call, warmup=5, rep=20, quantiles=quantiles)
        # What takes far longer than the fastest so far is not timed any further.
        if found[0] < 1.25 * self.fastest:
            found = benchmark(call, quantiles=quantiles)
            self.fastest = min(self.fastest, found[0])
        return found


def _fitted(config, footprint, width, sizes, device, most=144):
    """Return a configuration with fewer stages, then smaller blocks, until it fits a GPU.

    It fits where a program has room for its blocks, by an estimate, and a thread holds at most so
    many of their numbers.
    """
    if _INTERPRETED:
        return config
    driver = triton.runtime.driver.active
    room = driver.utils.get_device_properties(device)["max_shared_mem"] - 4096
    most *= driver.get_current_target().warp_size * config.num_warps
    while True:
        shared, held = footprint(width, **{**sizes, **config.all_kwargs()})
        blocks, stages = dict(config.kwargs), config.num_stages
        largest = max(blocks, key=blocks.get)
        if shared <= room and held <= most:
            return config
        if held <= most and stages > 1:
            stages -= 1
        elif blocks[largest] > 16:
            blocks[largest] //= 2
        else:
            return config
        config = triton.Config(blocks, num_warps=config.num_warps, num_stages=stages)


def _fitting(footprint, width):
    """Return what leaves out the configurations that do not fit a GPU."""

    def fitting(configs, sizes):
        where = (footprint, width, sizes, torch.cuda.current_device())
        # What is timed may hold more than what is not: the times tell.
        kept = [config for config in configs if _fitted(config, *where, 192) is config]
        return kept or [_fitted(configs[0], *where)]

    return fitting


@triton.jit
def matmul_kernel(
    A_ptr, B_ptr, bias_ptr, C_ptr,
    stride_A_i, stride_A_k,
    stride_B_k, stride_B_j,
    stride_bias_j,
    stride_C_i, stride_C_j,
    M, K, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_K: tl.constexpr,
):
    """A program does BLOCK_I iterations of i by BLOCK_J iterations of j.

    Reads A (M, K), B (K, N), bias (N,).
    Writes C (M, N).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    blocks_j = tl.cdiv(N, BLOCK_J)
    # Blocks in groups, so that neighbouring programs read the same rows and columns.
    block_i, block_j = tl.swizzle2d(pid // blocks_j, pid % blocks_j, blocks_i, blocks_j, 8)
    i = block_i * BLOCK_I + tl.arange(0, BLOCK_I)
    j = block_j * BLOCK_J + tl.arange(0, BLOCK_J)

    acc = tl.zeros([BLOCK_I, BLOCK_J], tl.float32)  # S1
    k_full = K // BLOCK_K * BLOCK_K  # blocks before this one are full
    # Full blocks.
    for k_first in range(0, k_full, BLOCK_K):
        k = (k_first + tl.arange(0, BLOCK_K)).to(INDEX)
        A_ik = tl.load(
            A_ptr + i[:, None] * stride_A_i + k[None, :] * stride_A_k,
            mask=i[:, None] < M,
            other=0.0
        )  # S2
        B_kj = tl.load(
            B_ptr + k[:, None] * stride_B_k + j[None, :] * stride_B_j,
            mask=j[None, :] < N,
            other=0.0
        )  # S2
        acc = tl.dot(A_ik, B_kj, acc, input_precision="ieee")  # S2
    # The last, partial block.
    for k_first in range(k_full, K, BLOCK_K):
        k = (k_first + tl.arange(0, BLOCK_K)).to(INDEX)
        A_ik = tl.load(
            A_ptr + i[:, None] * stride_A_i + k[None, :] * stride_A_k,
            mask=(i[:, None] < M) & (k[None, :] < K),
            other=0.0
        )  # S2
        B_kj = tl.load(
            B_ptr + k[:, None] * stride_B_k + j[None, :] * stride_B_j,
            mask=(j[None, :] < N) & (k[:, None] < K),
            other=0.0
        )  # S2
        acc = tl.dot(A_ik, B_kj, acc, input_precision="ieee")  # S2
    bias_j = tl.load(bias_ptr + j * stride_bias_j, mask=j < N, other=0.0)  # S3
    tl.store(
        C_ptr + i[:, None] * stride_C_i + j[None, :] * stride_C_j,
        tl.maximum(acc + bias_j.to(tl.float32)[None, :], 0.0),
        mask=(i[:, None] < M) & (j[None, :] < N)
    )  # S3


def matmul_kernel_config(BLOCK_I, BLOCK_J, BLOCK_K, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J, "BLOCK_K": BLOCK_K}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def matmul_kernel_footprint(width, /, num_stages, BLOCK_I, BLOCK_K, BLOCK_J, **_):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * width * (BLOCK_I * BLOCK_K + BLOCK_J * BLOCK_K)
    held = BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
matmul_kernel_default = {
    2: matmul_kernel_config(128, 128, 64, 8, 3),
    4: matmul_kernel_config(64, 64, 32, 4, 2),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
matmul_kernel_tuned = {
    2: _Tuned(
        matmul_kernel,
        [
            matmul_kernel_config(*row)
            for row in [
                (128, 128, 64, 8, 3), (64, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 64, 64, 4, 3),
                (64, 64, 64, 4, 4), (64, 128, 32, 4, 3), (64, 128, 32, 4, 4), (64, 128, 64, 4, 3),
                (64, 128, 64, 4, 4), (128, 64, 32, 4, 3), (128, 64, 32, 4, 4), (128, 64, 64, 4, 3),
                (128, 64, 64, 4, 4), (128, 128, 32, 8, 3), (128, 128, 32, 8, 4),
                (128, 128, 64, 8, 4), (128, 256, 32, 8, 3), (128, 256, 32, 8, 4),
                (128, 256, 64, 8, 3), (128, 256, 64, 8, 4),
            ]
        ],
        key=["M", "K", "N"],
        fitting=_fitting(matmul_kernel_footprint, 2),
    ),
    4: _Tuned(
        matmul_kernel,
        [
            matmul_kernel_config(*row)
            for row in itertools.product((64, 32), (64, 32), (32, 16), (4,), (2, 3))
        ],
        key=["M", "K", "N"],
        fitting=_fitting(matmul_kernel_footprint, 4),
    ),
}


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(matmul_kernel, triton.JITFunction)
_FLOAT = (torch.float16, torch.bfloat16, torch.float32)


def _check_tensors(*arguments):
    """Raise a ValueError unless every (name, tensor, dimensions, dtypes) is as it should be."""
    first, first_float = None, None
    for name, tensor, dimensions, dtypes in arguments:
        if not isinstance(tensor, torch.Tensor):
            kind = type(tensor).__name__
            raise ValueError(f"{name} should be a torch.Tensor, and is a {kind}")
        if tensor.ndim != dimensions:
            shape = tuple(tensor.shape)
            raise ValueError(f"{name} should have {dimensions} dimensions, and has shape {shape}")
        if tensor.dtype not in dtypes:
            allowed = " or ".join(str(dtype) for dtype in dtypes)
            raise ValueError(f"{name} should be {allowed}, and is {tensor.dtype}: convert it")
        if tensor.layout != torch.strided:
            raise ValueError(f"{name} should be dense, and is {tensor.layout}: call to_dense()")
        if tensor.is_neg():
            raise ValueError(f"{name} is a view of what it negates: call resolve_neg()")
        if _INTERPRETED and tensor.dtype == torch.bfloat16:
            raise ValueError(
                f"{name} is torch.bfloat16, which Triton's interpreter gets wrong: convert it"
            )
        first = first or (name, tensor.device)
        if tensor.device != first[1]:
            places = f"{first[0]} is on {first[1]}, {name} on {tensor.device}"
            raise ValueError(f"tensors should be on one device: {places}; move one of them")
        if len(dtypes) > 1 and tensor.is_floating_point():
            first_float = first_float or (name, tensor.dtype)
            if tensor.dtype != first_float[1]:
                types = f"{first_float[0]} is {first_float[1]}, {name} {tensor.dtype}"
                raise ValueError(f"float tensors should have one dtype: {types}; convert one")
    if first and first[1].type != "cuda" and not (_INTERPRETED and first[1].type == "cpu"):
        raise ValueError(
            f"{first[0]} is on {first[1]}, and kernels run on a GPU: move the tensors there, or set"
            " TRITON_INTERPRET=1 before triton is first imported to run on the CPU"
        )


def _check_shape(name, tensor, expected, text):
    """Raise a ValueError unless a tensor has the expected shape; None is any extent."""
    shape = tuple(tensor.shape)
    if any(want is not None and want != got for want, got in zip(expected, shape)):
        wanted = f"{expected}, that is {text}"
        raise ValueError(f"{name} should have the shape {wanted}; it has {shape}")


def _check_written(name, tensor):
    """Raise a ValueError where elements of a tensor that is written share their memory."""
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride())):
        raise ValueError(f"{name} is written, and is an expanded tensor: pass a contiguous one")


def _output(name, given, shape, dtype, device):
    """Return the tensor given for an output, or a new one where it is None.

    Raises:
        ValueError: The shape, dtype or device is not that of the output, or elements share memory.
    """
    if given is None:
        return torch.empty(shape, dtype=dtype, device=device)
    if not isinstance(given, torch.Tensor):
        kind = type(given).__name__
        raise ValueError(f"out for {name} should be a torch.Tensor, and is a {kind}")
    found = (tuple(given.shape), given.dtype, given.device)
    if found != (shape, dtype, device):
        raise ValueError(
            f"out for {name} should be {shape}, {dtype}, on {device}; it is {found[0]}, {found[1]},"
            f" on {found[2]}"
        )
    _check_written(f"out for {name}", given)
    return given


def _index_type(*arguments):
    """Return tl.int64 where an offset in a tensor, or a sum with a number, may not fit 32 bits."""
    for tensor in arguments:
        if isinstance(tensor, int):
            if abs(tensor) >= 2**30:
                return tl.int64
            continue
        pairs = zip(tensor.shape, tensor.stride())
        reach = sum((size - 1) * abs(stride) for size, stride in pairs)
        # The last block may reach beyond the end, masked, by its own size.
        if max(reach, tensor.numel()) >= 2**31 - 2**16:
            return tl.int64
    return tl.int32


def matmul(A, B, bias, *, out=None, tune=True):
    """Run the listing matmul on torch tensors.

    Args:
        A: (M, K), float16, bfloat16 or float32, any strides.
        B: (K, N), float16, bfloat16 or float32, any strides.
        bias: (N,), float16, bfloat16 or float32, any strides.
        out: What C is written to; a new tensor by default. It shares no memory with an
            argument.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        C (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("A", A, 2, _FLOAT), ("B", B, 2, _FLOAT), ("bias", bias, 1, _FLOAT))
    M, K = A.shape
    N = B.shape[1]
    _check_shape("B", B, (K, N), "(K, N) with K = A.shape[1]")
    _check_shape("bias", bias, (N,), "(N,) with N = B.shape[1]")
    C = _output("C", out, (M, N), A.dtype, A.device)
    index = _index_type(A, B, bias, C)
    width = A.element_size()

    if _INTERPRETED or not tune:
        run = matmul_kernel
        blocks = _fitted(
            matmul_kernel_default[width], matmul_kernel_footprint, width, {}, A.device.index
        ).all_kwargs()
    else:
        run = matmul_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]) * triton.cdiv(N, meta["BLOCK_J"]),)

    if min(M, N) > 0:
        with torch.cuda.device_of(A):
            run[grid](
                A, B, bias, C,
                *A.stride(),
                *B.stride(),
                *bias.stride(),
                *C.stride(),
                M, K, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return C
