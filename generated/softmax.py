# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def softmax(X: Float[Array, "M N"]):
#         m = full(M, -inf)
#         l = zeros(M)
#         Y = zeros((M, N))
#         for i in range(0, M):
#             for j in range(0, N):
#                 m[i] = max(m[i], X[i, j])  # S1: Aggregation over j
#             for j in range(0, N):
#                 l[i] = l[i] + exp(X[i, j] - m[i])  # S2: Aggregation over j
#             for j in range(0, N):
#                 Y[i, j] = exp(X[i, j] - m[i]) / l[i]  # S3: no iteration needs another one
#         return Y
#
# The steps from there to these kernels:
#   1. one pass instead of 2: m[i] and l[i] move together
#   2. guard the empty prefix: nothing moves before m[i] does
#   3. run i and j in parallel, m_ij private to an iteration
#
# Where they end; the labels in the code are those of this nest:
#
#     def softmax(X: Float[Array, "M N"]):
#         m = full(M, -inf)
#         l = zeros(M)
#         Y = zeros((M, N))
#         for i in parallel(0, M):
#             private: m_ij
#             for j in range(0, N):
#                 m_ij = max(m[i], X[i, j])  # S4
#                 # S2
#                 l[i] = l[i] * exp(m[i] - m_ij) + exp(X[i, j] - m_ij) if m_ij > -inf else l[i]
#                 m[i] = m_ij  # S1
#             for j in parallel(0, N):
#                 Y[i, j] = exp(X[i, j] - m[i]) / l[i]  # S3: no iteration needs another one
#         return Y
#
# Notes:
#   - Two passes over j stay: S3 writes a value for each j from m[i], which is known only after the
#     last one, through S4 → S3: a second pass is needed

# ruff: noqa: E741

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


@triton.jit
def softmax_kernel(
    X_ptr, Y_ptr,
    stride_X_i, stride_X_j,
    stride_Y_i, stride_Y_j,
    M, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads X (M, N).
    Writes Y (M, N).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)

    m = tl.full([BLOCK_I], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_I], tl.float32)
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=float("-inf")
        )  # S4
        m_ij = tl.maximum(m, tl.max(X_ij.to(tl.float32), axis=1))  # S4
        m_ij_finite = tl.where(m_ij > float("-inf"), m_ij, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_ij_finite) + tl.sum(
            tl.exp(X_ij.to(tl.float32) - m_ij_finite[:, None]), axis=1
        )  # S2
        m = m_ij  # S1
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=float("-inf")
        )  # S4
        m_ij = tl.maximum(m, tl.max(X_ij.to(tl.float32), axis=1))  # S4
        m_ij_finite = tl.where(m_ij > float("-inf"), m_ij, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_ij_finite) + tl.sum(
            tl.exp(X_ij.to(tl.float32) - m_ij_finite[:, None]), axis=1
        )  # S2
        m = m_ij  # S1
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S3
        tl.store(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            tl.exp(X_ij.to(tl.float32) - m[:, None]) / l[:, None],
            mask=i[:, None] < M
        )  # S3
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S3
        tl.store(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            tl.exp(X_ij.to(tl.float32) - m[:, None]) / l[:, None],
            mask=(i[:, None] < M) & (j[None, :] < N)
        )  # S3


def softmax_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
softmax_kernel_default = softmax_kernel_config(4, 512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
softmax_kernel_tuned = _Tuned(
    softmax_kernel,
    [
        softmax_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["M", "N"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(softmax_kernel, triton.JITFunction)
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


def softmax(X, *, out=None, tune=True):
    """Run the listing softmax on torch tensors.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        out: What Y is written to; a new tensor by default. It shares no memory with an
            argument.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        Y (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("X", X, 2, _FLOAT))
    M, N = X.shape
    Y = _output("Y", out, (M, N), X.dtype, X.device)
    index = _index_type(X, Y)

    if _INTERPRETED or not tune:
        run = softmax_kernel
        blocks = softmax_kernel_default.all_kwargs()
    else:
        run = softmax_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, Y,
                *X.stride(),
                *Y.stride(),
                M, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return Y
