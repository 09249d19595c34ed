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
# The steps from there to its backward pass, with what each leans on:
#   1. define every array once (storage: every read gets the value that was written last above it)
#   2. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   3. dm vanishes (algebra: dm = 0)
#   4. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def softmax_backward(X: Float[Array, "M N"], Y: Float[Array, "M N"], dY: Float[Array, "M N"]):
#         dl_sum = zeros(M, dtype=float32)
#         dX = zeros((M, N))
#         for i in range(0, M):
#             for j in range(0, N):
#                 dl_sum[i] = dl_sum[i] + dY[i, j] * Y[i, j]
#         for i in range(0, M):
#             for j in range(0, N):
#                 dX[i, j] = Y[i, j] * (dY[i, j] - dl_sum[i])
#         return dX
#
# The steps from there to the forward kernels:
#   1. one pass instead of 2: m[i] and l[i] move together
#   2. guard the empty prefix: nothing moves before m[i] does
#   3. run i and j in parallel, m_ij private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
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
# The steps from there to the backward kernels:
#   1. fuse(i@S1, i@S2)
#   2. run i and j in parallel
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def softmax_backward(X: Float[Array, "M N"], Y: Float[Array, "M N"], dY: Float[Array, "M N"]):
#         dl_sum = zeros(M, dtype=float32)
#         dX = zeros((M, N))
#         for i in parallel(0, M):
#             for j in range(0, N):
#                 dl_sum[i] = dl_sum[i] + dY[i, j] * Y[i, j]  # S1
#             for j in parallel(0, N):
#                 dX[i, j] = Y[i, j] * (dY[i, j] - dl_sum[i])  # S2
#         return dX
#
# Notes:
#   - Two passes over j stay: S3 writes a value for each j from m[i], which is known only after the
#     last one, through S4 → S3: a second pass is needed
#   - Two passes over j stay: S2 writes a value for each j from dl_sum[i], which is known only after
#     the last one, through S1 → S2: a second pass is needed

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


@triton.jit
def softmax_backward_kernel(
    Y_ptr, dY_ptr, dX_ptr,
    stride_Y_i, stride_Y_j,
    stride_dY_i, stride_dY_j,
    stride_dX_i, stride_dX_j,
    M, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads Y (M, N), dY (M, N).
    Writes dX (M, N).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)

    dl_sum = tl.zeros([BLOCK_I], tl.float32)
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        dY_ij = tl.load(
            dY_ptr + i[:, None] * stride_dY_i + j[None, :] * stride_dY_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S1
        Y_ij = tl.load(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S1
        dl_sum = dl_sum + tl.sum(dY_ij.to(tl.float32) * Y_ij.to(tl.float32), axis=1)  # S1
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        dY_ij = tl.load(
            dY_ptr + i[:, None] * stride_dY_i + j[None, :] * stride_dY_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S1
        Y_ij = tl.load(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S1
        dl_sum = dl_sum + tl.sum(dY_ij.to(tl.float32) * Y_ij.to(tl.float32), axis=1)  # S1
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        Y_ij = tl.load(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S2
        dY_ij = tl.load(
            dY_ptr + i[:, None] * stride_dY_i + j[None, :] * stride_dY_j,
            mask=i[:, None] < M,
            other=0.0
        )  # S2
        tl.store(
            dX_ptr + i[:, None] * stride_dX_i + j[None, :] * stride_dX_j,
            Y_ij.to(tl.float32) * (dY_ij.to(tl.float32) - dl_sum[:, None]),
            mask=i[:, None] < M
        )  # S2
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        Y_ij = tl.load(
            Y_ptr + i[:, None] * stride_Y_i + j[None, :] * stride_Y_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S2
        dY_ij = tl.load(
            dY_ptr + i[:, None] * stride_dY_i + j[None, :] * stride_dY_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=0.0
        )  # S2
        tl.store(
            dX_ptr + i[:, None] * stride_dX_i + j[None, :] * stride_dX_j,
            Y_ij.to(tl.float32) * (dY_ij.to(tl.float32) - dl_sum[:, None]),
            mask=(i[:, None] < M) & (j[None, :] < N)
        )  # S2


def softmax_backward_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
softmax_backward_kernel_default = softmax_backward_kernel_config(4, 512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
softmax_backward_kernel_tuned = _Tuned(
    softmax_backward_kernel,
    [
        softmax_backward_kernel_config(*row)
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


def _check_shape(name, tensor, expected, text):
    """Raise a ValueError unless a tensor has the expected shape; None is any extent."""
    shape = tuple(tensor.shape)
    if any(want is not None and want != got for want, got in zip(expected, shape)):
        wanted = f"{expected}, that is {text}"
        raise ValueError(f"{name} should have the shape {wanted}; it has {shape}")


def _wanted(wanted, gradients):
    """Return the names of the gradients that are asked for as a set."""
    if wanted is None:
        return set(gradients)
    if isinstance(wanted, str) or not wanted or not set(wanted) <= set(gradients):
        raise ValueError(f"wanted should name some of {', '.join(gradients)}, and is {wanted!r}")
    return set(wanted)


def _free(name):
    """Return a name that no operator of torch has: a copy of this module may have been loaded."""
    found, copy = name, 1
    while hasattr(torch.ops.looptrans, found):
        copy += 1
        found = f"{name}_{copy}"
    return f"looptrans::{found}"


def _like(tensor):
    """Return what `_unread` and `_zeros` make a tensor of."""
    return tensor.shape, tensor.dtype, tensor.device


def _unread(shape, dtype, device):
    """Return a tensor whose contents nothing looks at, in the memory of one element."""
    return torch.empty((), dtype=dtype, device=device).expand(shape)


def _zeros(shape, dtype, device):
    """Return zeros in the memory of one element."""
    return torch.zeros((), dtype=dtype, device=device).expand(shape)


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


def softmax_forward(X, *, tune=True):
    """Run softmax, and return what its gradients need besides.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        Y (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("X", X, 2, _FLOAT))
    M, N = X.shape
    Y = torch.empty((M, N), dtype=X.dtype, device=X.device)
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
    return (Y,)


def softmax_backward(X, Y, dY, *, wanted=None, tune=True):
    """Return the gradients of softmax.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        Y: (M, N), float16, bfloat16 or float32, any strides.
        dY: (M, N), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dX (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("X", X, 2, _FLOAT), ("Y", Y, 2, _FLOAT), ("dY", dY, 2, _FLOAT))
    M, N = X.shape
    _check_shape("Y", Y, (M, N), "(M, N) with M = X.shape[0] and N = X.shape[1]")
    _check_shape("dY", dY, (M, N), "(M, N) with M = X.shape[0] and N = X.shape[1]")
    wanted = _wanted(wanted, ("dX",))
    dX = torch.empty((M, N), dtype=X.dtype, device=X.device)
    index = _index_type(X, Y, dY, dX)

    if _INTERPRETED or not tune:
        run = softmax_backward_kernel
        blocks = softmax_backward_kernel_default.all_kwargs()
    else:
        run = softmax_backward_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0:
        with torch.cuda.device_of(X):
            run[grid](
                Y, dY, dX,
                *Y.stride(),
                *dY.stride(),
                *dX.stride(),
                M, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return (dX,)


@torch.library.custom_op(_free("softmax_forward_6de20ade"), mutates_args=())
def _softmax_forward_operator(X: torch.Tensor, tune: bool) -> torch.Tensor:
    return softmax_forward(X, tune=tune)[0]


@_softmax_forward_operator.register_fake
def _(X, tune):
    M = X.shape[0]
    N = X.shape[1]
    return torch.empty((M, N), dtype=X.dtype, device=X.device)


@torch.library.custom_op(_free("softmax_backward_6de20ade"), mutates_args=())
def _softmax_backward_operator(
    X: torch.Tensor, Y: torch.Tensor, dY: torch.Tensor, wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = softmax_backward(
        X, Y, dY, wanted=[name for name, each in zip(("dX",), wanted) if each], tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_softmax_backward_operator.register_fake
def _(X, Y, dY, wanted, tune):
    M = X.shape[0]
    N = X.shape[1]
    found = (
        torch.empty((M, N), dtype=X.dtype, device=X.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _softmax_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    X, tune = inputs
    Y = output
    ctx.save_for_backward(Y)
    ctx.numbers = (tune,)
    ctx.like = _like(X), _like(Y)
    ctx.set_materialize_grads(False)


def _softmax_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    (dY,) = found
    (Y,) = ctx.saved_tensors
    (tune,) = ctx.numbers
    X_like, Y_like = ctx.like
    X = _unread(*X_like)
    if dY is None:
        dY = _zeros(*Y_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0]]
    found = iter(_softmax_backward_operator(X, Y, dY, wanted, tune))
    (dX,) = (next(found) if each else None for each in wanted)
    return dX, None


def _softmax_second(ctx, *found):
    raise RuntimeError(
        "softmax has no second derivative: its backward pass is derived once. Call backward "
        "without create_graph=True"
    )


_softmax_forward_operator.register_autograd(_softmax_gradients, setup_context=_softmax_keep)
_softmax_backward_operator.register_autograd(_softmax_second)


def softmax(X, *, tune=True):
    """The softmax of each row, in three passes. Differentiable: gradients come from
    softmax_backward.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        Y (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    return _softmax_forward_operator(X, tune)
