# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def layernorm(X: Float[Array, "M N"], w: Float[Array, "N"], b: Float[Array, "N"], eps: float):
#         Y = zeros((M, N))
#         for i in range(0, M):
#             s = 0.0  # S1: an empty sum
#             for j in range(0, N):
#                 s = s + X[i, j]  # S2: Aggregation over j
#             mean = s / N  # S3: the mean of row i
#             t = 0.0  # S4: an empty sum
#             for j in range(0, N):
#                 t = t + (X[i, j] - mean) ** 2  # S5: Aggregation over j
#             r = 1.0 / sqrt(t / N + eps)  # S6: the reciprocal of the standard deviation
#             for j in range(0, N):
#                 Y[i, j] = (X[i, j] - mean) * r * w[j] + b[j]  # S7: no iteration needs another one
#         return Y
#
# The steps from there to these kernels:
#   1. run i and j in parallel, s, mean, t and r private to an iteration
#
# Where they end; the labels in the code are those of this nest:
#
#     def layernorm(X: Float[Array, "M N"], w: Float[Array, "N"], b: Float[Array, "N"], eps: float):
#         Y = zeros((M, N))
#         for i in parallel(0, M):
#             private: (s, mean, t, r)
#             s = 0.0  # S1: an empty sum
#             for j in range(0, N):
#                 s = s + X[i, j]  # S2: Aggregation over j
#             mean = s / N  # S3: the mean of row i
#             t = 0.0  # S4: an empty sum
#             for j in range(0, N):
#                 t = t + (X[i, j] - mean) ** 2  # S5: Aggregation over j
#             r = 1.0 / sqrt(t / N + eps)  # S6: the reciprocal of the standard deviation
#             for j in parallel(0, N):
#                 Y[i, j] = (X[i, j] - mean) * r * w[j] + b[j]  # S7: no iteration needs another one
#         return Y
#
# Notes:
#   - Two passes over j stay: the terms of t are not separable
#   - Two passes over j stay: S7 writes a value for each j from t, which is known only after the
#     last one, through S6 → S7: a second pass is needed

import itertools
from concurrent.futures import ThreadPoolExecutor

import torch
import triton
import triton.language as tl


@triton.jit
def _square(value):
    return value * value


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
def layernorm_kernel(
    X_ptr, w_ptr, b_ptr, Y_ptr,
    stride_X_i, stride_X_j,
    stride_w_j,
    stride_b_j,
    stride_Y_i, stride_Y_j,
    eps,
    M, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads X (M, N), w (N,), b (N,).
    Writes Y (M, N).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)

    s = tl.zeros([BLOCK_I], tl.float32)  # S1
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S2
        s = s + tl.sum(X_ij.to(tl.float32), axis=1)  # S2
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S2
        s = s + tl.sum(X_ij.to(tl.float32), axis=1)  # S2
    mean = s / tl.cast(N, tl.float32)  # S3
    t = tl.zeros([BLOCK_I], tl.float32)  # S4
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S5
        t = t + tl.sum(_square(X_ij.to(tl.float32) - mean[:, None]), axis=1)  # S5
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S5
        t = t + tl.sum(
            tl.where(j[None, :] < N, _square(X_ij.to(tl.float32) - mean[:, None]), 0.0), axis=1
        )  # S5
    r = 1.0 / tl.sqrt_rn(t / tl.cast(N, tl.float32) + eps)  # S6
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S7
        w_j = tl.load(w_ptr + j * stride_w_j)  # S7
        b_j = tl.load(b_ptr + j * stride_b_j)  # S7
        tl.store(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            (X_ij.to(tl.float32) - mean[:, None]) * r[:, None] * w_j.to(tl.float32)[None, :]
            + b_j.to(tl.float32)[None, :],
            mask=i[:, None] < M
        )  # S7
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S7
        w_j = tl.load(w_ptr + j * stride_w_j, mask=j < N, other=0.0)  # S7
        b_j = tl.load(b_ptr + j * stride_b_j, mask=j < N, other=0.0)  # S7
        tl.store(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            (X_ij.to(tl.float32) - mean[:, None]) * r[:, None] * w_j.to(tl.float32)[None, :]
            + b_j.to(tl.float32)[None, :],
            mask=(i[:, None] < M) & (j[None, :] < N)
        )  # S7


def layernorm_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
layernorm_kernel_default = layernorm_kernel_config(4, 512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
layernorm_kernel_tuned = _Tuned(
    layernorm_kernel,
    [
        layernorm_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["M", "N"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(layernorm_kernel, triton.JITFunction)
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


def _real(name, value):
    """Return a value as a float, or raise a ValueError where it is no real number."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} should be a real number, and is {value!r}") from None


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


def layernorm(X, w, b, eps, *, out=None, tune=True):
    """Run the listing layernorm on torch tensors.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        w: (N,), float16, bfloat16 or float32, any strides.
        b: (N,), float16, bfloat16 or float32, any strides.
        eps: A real number.
        out: What Y is written to; a new tensor by default. It shares no memory with an
            argument.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        Y (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("X", X, 2, _FLOAT), ("w", w, 1, _FLOAT), ("b", b, 1, _FLOAT))
    eps = _real("eps", eps)
    M, N = X.shape
    _check_shape("w", w, (N,), "(N,) with N = X.shape[1]")
    _check_shape("b", b, (N,), "(N,) with N = X.shape[1]")
    Y = _output("Y", out, (M, N), X.dtype, X.device)
    index = _index_type(X, w, b, Y)

    if _INTERPRETED or not tune:
        run = layernorm_kernel
        blocks = layernorm_kernel_default.all_kwargs()
    else:
        run = layernorm_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, w, b, Y,
                *X.stride(),
                *w.stride(),
                *b.stride(),
                *Y.stride(),
                eps,
                M, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return Y
