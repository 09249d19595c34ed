# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def logsumexp(X: Float[Array, "M N"]):
#         y = zeros(M)
#         for i in range(0, M):
#             m = -inf  # S1: the maximum of nothing
#             for j in range(0, N):
#                 m = max(m, X[i, j])  # S2: Aggregation over j
#             l = 0.0  # S3: an empty sum
#             for j in range(0, N):
#                 l = l + exp(X[i, j] - m)  # S4: Aggregation over j
#             y[i] = m + log(l)  # S5: the maximum comes back
#         return y
#
# The steps from there to its backward pass, with what each leans on:
#   1. define every array once (storage: every read gets the value that was written last above it)
#   2. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   3. dm vanishes (algebra: dm = 0)
#   4. work P out from top and log_l: keep top = m[i] and log_l = log(l[i]) for each sum (algebra:
#      P[i, j] = exp(X[i, j] - m[i]) / l[i] = exp(X[i, j] - top[i] - log_l[i]))
#   5. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def logsumexp_backward(
#         X: Float[Array, "M N"],
#         top: Float32[Array, "M"],
#         log_l: Float32[Array, "M"],
#         dy: Float[Array, "M"]
#     ):
#         dX = zeros((M, N))
#         for i in range(0, M):
#             for j in range(0, N):
#                 P = exp(X[i, j] - top[i] - log_l[i])
#                 dX[i, j] = P * dy[i]
#         return dX
#
# The steps from there to the forward kernels:
#   1. one pass instead of 2: m and l move together
#   2. guard the empty prefix: nothing moves before m does
#   3. run i in parallel, m, l and m_ij private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def logsumexp(X: Float[Array, "M N"]):
#         top = zeros(M, dtype=float32)
#         log_l = zeros(M, dtype=float32)
#         y = zeros(M)
#         for i in parallel(0, M):
#             private: (m, l, m_ij)
#             m = -inf  # S1: the maximum of nothing
#             l = 0.0  # S3: an empty sum
#             for j in range(0, N):
#                 m_ij = max(m, X[i, j])  # S8
#                 l = l * exp(m - m_ij) + exp(X[i, j] - m_ij) if m_ij > -inf else l  # S4
#                 m = m_ij  # S2
#             top[i] = m if l > 0.0 else 0.0  # S6
#             log_l[i] = log(l) if l > 0.0 else inf  # S7
#             y[i] = m + log(l)  # S5: the maximum comes back
#         return y, top, log_l
#
# The steps from there to the backward kernels:
#   1. run i and j in parallel, P private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def logsumexp_backward(
#         X: Float[Array, "M N"],
#         top: Float32[Array, "M"],
#         log_l: Float32[Array, "M"],
#         dy: Float[Array, "M"]
#     ):
#         dX = zeros((M, N))
#         for i in parallel(0, M):
#             private: P
#             for j in parallel(0, N):
#                 private: P
#                 P = exp(X[i, j] - top[i] - log_l[i])  # S1
#                 dX[i, j] = P * dy[i]  # S2
#         return dX

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
def logsumexp_kernel(
    X_ptr, top_ptr, log_l_ptr, y_ptr,
    stride_X_i, stride_X_j,
    stride_top_i,
    stride_log_l_i,
    stride_y_i,
    M, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads X (M, N).
    Writes top (M,), log_l (M,), y (M,).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)

    m = tl.full([BLOCK_I], float("-inf"), tl.float32)  # S1
    l = tl.zeros([BLOCK_I], tl.float32)  # S3
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=i[:, None] < M,
            other=float("-inf")
        )  # S8
        m_ij = tl.maximum(m, tl.max(X_ij.to(tl.float32), axis=1))  # S8
        m_ij_finite = tl.where(m_ij > float("-inf"), m_ij, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_ij_finite) + tl.sum(
            tl.exp(X_ij.to(tl.float32) - m_ij_finite[:, None]), axis=1
        )  # S4
        m = m_ij  # S2
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        X_ij = tl.load(
            X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
            mask=(i[:, None] < M) & (j[None, :] < N),
            other=float("-inf")
        )  # S8
        m_ij = tl.maximum(m, tl.max(X_ij.to(tl.float32), axis=1))  # S8
        m_ij_finite = tl.where(m_ij > float("-inf"), m_ij, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_ij_finite) + tl.sum(
            tl.exp(X_ij.to(tl.float32) - m_ij_finite[:, None]), axis=1
        )  # S4
        m = m_ij  # S2
    tl.store(top_ptr + i * stride_top_i, tl.where(l > 0.0, m, 0.0), mask=i < M)  # S6
    log_l_2 = tl.log(l)  # S7
    tl.store(
        log_l_ptr + i * stride_log_l_i, tl.where(l > 0.0, log_l_2, float("inf")), mask=i < M
    )  # S7
    tl.store(y_ptr + i * stride_y_i, m + log_l_2, mask=i < M)  # S5


def logsumexp_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
logsumexp_kernel_default = logsumexp_kernel_config(4, 512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
logsumexp_kernel_tuned = _Tuned(
    logsumexp_kernel,
    [
        logsumexp_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["M", "N"],
)


@triton.jit
def logsumexp_backward_kernel(
    X_ptr, top_ptr, log_l_ptr, dy_ptr, dX_ptr,
    stride_X_i, stride_X_j,
    stride_top_i,
    stride_log_l_i,
    stride_dy_i,
    stride_dX_i, stride_dX_j,
    M, N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
):
    """A program does BLOCK_I iterations of i by BLOCK_J iterations of j.

    Reads X (M, N), top (M,), log_l (M,), dy (M,).
    Writes dX (M, N).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_j = tl.cdiv(N, BLOCK_J)
    i = (pid // blocks_j) * BLOCK_I + tl.arange(0, BLOCK_I)
    j = (pid % blocks_j) * BLOCK_J + tl.arange(0, BLOCK_J)

    X_ij = tl.load(
        X_ptr + i[:, None] * stride_X_i + j[None, :] * stride_X_j,
        mask=(i[:, None] < M) & (j[None, :] < N),
        other=0.0
    )  # S1
    top_i = tl.load(top_ptr + i * stride_top_i, mask=i < M, other=0.0)  # S1
    log_l_i = tl.load(log_l_ptr + i * stride_log_l_i, mask=i < M, other=0.0)  # S1
    P = tl.exp(
        X_ij.to(tl.float32) - top_i.to(tl.float32)[:, None] - log_l_i.to(tl.float32)[:, None]
    )  # S1
    dy_i = tl.load(dy_ptr + i * stride_dy_i, mask=i < M, other=0.0)  # S2
    tl.store(
        dX_ptr + i[:, None] * stride_dX_i + j[None, :] * stride_dX_j,
        P * dy_i.to(tl.float32)[:, None],
        mask=(i[:, None] < M) & (j[None, :] < N)
    )  # S2


def logsumexp_backward_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
logsumexp_backward_kernel_default = logsumexp_backward_kernel_config(16, 128, 4, 1)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
logsumexp_backward_kernel_tuned = _Tuned(
    logsumexp_backward_kernel,
    [
        logsumexp_backward_kernel_config(*row)
        for row in itertools.product((4, 16), (128, 256, 512), (4, 8), (1,))
    ],
    key=["M", "N"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(logsumexp_kernel, triton.JITFunction)
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


def logsumexp_forward(X, *, tune=True):
    """Run logsumexp, and return what its gradients need besides.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        y (M,), top (M,) in float32, log_l (M,) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("X", X, 2, _FLOAT))
    M, N = X.shape
    top = torch.empty((M,), dtype=torch.float32, device=X.device)
    log_l = torch.empty((M,), dtype=torch.float32, device=X.device)
    y = torch.empty((M,), dtype=X.dtype, device=X.device)
    index = _index_type(X, top, log_l, y)

    if _INTERPRETED or not tune:
        run = logsumexp_kernel
        blocks = logsumexp_kernel_default.all_kwargs()
    else:
        run = logsumexp_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, top, log_l, y,
                *X.stride(),
                *top.stride(),
                *log_l.stride(),
                *y.stride(),
                M, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return y, top, log_l


def logsumexp_backward(X, top, log_l, dy, *, wanted=None, tune=True):
    """Return the gradients of logsumexp.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        top: (M,), float32, any strides.
        log_l: (M,), float32, any strides.
        dy: (M,), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dX (M, N).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("X", X, 2, _FLOAT), ("top", top, 1, (torch.float32,)),
        ("log_l", log_l, 1, (torch.float32,)), ("dy", dy, 1, _FLOAT)
    )
    M, N = X.shape
    _check_shape("top", top, (M,), "(M,) with M = X.shape[0]")
    _check_shape("log_l", log_l, (M,), "(M,) with M = X.shape[0]")
    _check_shape("dy", dy, (M,), "(M,) with M = X.shape[0]")
    wanted = _wanted(wanted, ("dX",))
    dX = torch.empty((M, N), dtype=X.dtype, device=X.device)
    index = _index_type(X, top, log_l, dy, dX)

    if _INTERPRETED or not tune:
        run = logsumexp_backward_kernel
        blocks = logsumexp_backward_kernel_default.all_kwargs()
    else:
        run = logsumexp_backward_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]) * triton.cdiv(N, meta["BLOCK_J"]),)

    if min(M, N) > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, top, log_l, dy, dX,
                *X.stride(),
                *top.stride(),
                *log_l.stride(),
                *dy.stride(),
                *dX.stride(),
                M, N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return (dX,)


@torch.library.custom_op(_free("logsumexp_forward_e009c9ee"), mutates_args=())
def _logsumexp_forward_operator(
    X: torch.Tensor, tune: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return logsumexp_forward(X, tune=tune)


@_logsumexp_forward_operator.register_fake
def _(X, tune):
    M = X.shape[0]
    return (
        torch.empty((M,), dtype=X.dtype, device=X.device),
        torch.empty((M,), dtype=torch.float32, device=X.device),
        torch.empty((M,), dtype=torch.float32, device=X.device),
    )


@torch.library.custom_op(_free("logsumexp_backward_e009c9ee"), mutates_args=())
def _logsumexp_backward_operator(
    X: torch.Tensor, top: torch.Tensor, log_l: torch.Tensor, dy: torch.Tensor, wanted: list[bool],
    tune: bool
) -> list[torch.Tensor]:
    found = logsumexp_backward(
        X, top, log_l, dy, wanted=[name for name, each in zip(("dX",), wanted) if each], tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_logsumexp_backward_operator.register_fake
def _(X, top, log_l, dy, wanted, tune):
    M = X.shape[0]
    N = X.shape[1]
    found = (
        torch.empty((M, N), dtype=X.dtype, device=X.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _logsumexp_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    X, tune = inputs
    y, top, log_l = output
    ctx.save_for_backward(X, top, log_l)
    ctx.numbers = (tune,)
    ctx.like = (_like(y),)
    ctx.mark_non_differentiable(top, log_l)
    ctx.set_materialize_grads(False)


def _logsumexp_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dy, _, _ = found
    X, top, log_l = ctx.saved_tensors
    (tune,) = ctx.numbers
    (y_like,) = ctx.like
    if dy is None:
        dy = _zeros(*y_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0]]
    found = iter(_logsumexp_backward_operator(X, top, log_l, dy, wanted, tune))
    (dX,) = (next(found) if each else None for each in wanted)
    return dX, None


def _logsumexp_second(ctx, *found):
    raise RuntimeError(
        "logsumexp has no second derivative: its backward pass is derived once. Call backward "
        "without create_graph=True"
    )


_logsumexp_forward_operator.register_autograd(_logsumexp_gradients, setup_context=_logsumexp_keep)
_logsumexp_backward_operator.register_autograd(_logsumexp_second)


def logsumexp(X, *, tune=True):
    """The logarithm of the sum of exponentials of each row, without overflow. Differentiable:
    gradients come from logsumexp_backward.

    Args:
        X: (M, N), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        y (M,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    y, _, _ = _logsumexp_forward_operator(X, tune)
    return y
