# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def softmax_cross_entropy(X: Float[Array, "N V"], y: Int[Array, "N", "0:V"]):
#         loss = zeros(N)
#         for n in range(0, N):
#             m = -inf  # S1: the maximum of nothing
#             for v in range(0, V):
#                 m = max(m, X[n, v])  # S2: Aggregation over v
#             l = 0.0  # S3: an empty sum
#             for v in range(0, V):
#                 l = l + exp(X[n, v] - m)  # S4: Aggregation over v
#             loss[n] = m + log(l) - X[n, y[n]]  # S5: log-sum-exp minus the score of the label
#         return loss
#
# The steps from there to its backward pass, with what each leans on:
#   1. define every array once (storage: every read gets the value that was written last above it)
#   2. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   3. dm vanishes (algebra: dm = 0)
#   4. work P out from top and log_l: keep top = m[n] and log_l = log(l[n]) for each sum (algebra:
#      P[n, v] = exp(X[n, v] - m[n]) / l[n] = exp(X[n, v] - top[n] - log_l[n]))
#   5. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def softmax_cross_entropy_backward(
#         X: Float[Array, "N V"],
#         y: Int[Array, "N", "0:V"],
#         top: Float32[Array, "N"],
#         log_l: Float32[Array, "N"],
#         dloss: Float[Array, "N"]
#     ):
#         dX = zeros((N, V))
#         for n in range(0, N):
#             for v in range(0, V):
#                 P = exp(X[n, v] - top[n] - log_l[n])
#                 dX[n, v] = dloss[n] * (P - (1.0 if y[n] == v else 0.0))
#         return dX
#
# The steps from there to the forward kernels:
#   1. one pass instead of 2: m and l move together
#   2. guard the empty prefix: nothing moves before m does
#   3. run n in parallel, m, l and m_nv private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def softmax_cross_entropy(X: Float[Array, "N V"], y: Int[Array, "N", "0:V"]):
#         top = zeros(N, dtype=float32)
#         log_l = zeros(N, dtype=float32)
#         loss = zeros(N)
#         for n in parallel(0, N):
#             private: (m, l, m_nv)
#             m = -inf  # S1: the maximum of nothing
#             l = 0.0  # S3: an empty sum
#             for v in range(0, V):
#                 m_nv = max(m, X[n, v])  # S8
#                 l = l * exp(m - m_nv) + exp(X[n, v] - m_nv) if m_nv > -inf else l  # S4
#                 m = m_nv  # S2
#             top[n] = m if l > 0.0 else 0.0  # S6
#             log_l[n] = log(l) if l > 0.0 else inf  # S7
#             loss[n] = m + log(l) - X[n, y[n]]  # S5: log-sum-exp minus the score of the label
#         return loss, top, log_l
#
# The steps from there to the backward kernels:
#   1. run n and v in parallel, P private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def softmax_cross_entropy_backward(
#         X: Float[Array, "N V"],
#         y: Int[Array, "N", "0:V"],
#         top: Float32[Array, "N"],
#         log_l: Float32[Array, "N"],
#         dloss: Float[Array, "N"]
#     ):
#         dX = zeros((N, V))
#         for n in parallel(0, N):
#             private: P
#             for v in parallel(0, V):
#                 private: P
#                 P = exp(X[n, v] - top[n] - log_l[n])  # S1
#                 dX[n, v] = dloss[n] * (P - (1.0 if y[n] == v else 0.0))  # S2
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
def softmax_cross_entropy_kernel(
    X_ptr, y_ptr, top_ptr, log_l_ptr, loss_ptr,
    stride_X_n, stride_X_v,
    stride_y_n,
    stride_top_n,
    stride_log_l_n,
    stride_loss_n,
    N, V,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """A program does BLOCK_N iterations of n.

    Reads X (N, V), y (N,).
    Writes top (N,), log_l (N,), loss (N,).
    """
    pid = tl.program_id(0).to(INDEX)
    n = pid * BLOCK_N + tl.arange(0, BLOCK_N)

    m = tl.full([BLOCK_N], float("-inf"), tl.float32)  # S1
    l = tl.zeros([BLOCK_N], tl.float32)  # S3
    v_full = V // BLOCK_V * BLOCK_V  # blocks before this one are full
    # Full blocks.
    for v_first in range(0, v_full, BLOCK_V):
        v = (v_first + tl.arange(0, BLOCK_V)).to(INDEX)
        X_nv = tl.load(
            X_ptr + n[:, None] * stride_X_n + v[None, :] * stride_X_v,
            mask=n[:, None] < N,
            other=float("-inf")
        )  # S8
        m_nv = tl.maximum(m, tl.max(X_nv.to(tl.float32), axis=1))  # S8
        m_nv_finite = tl.where(m_nv > float("-inf"), m_nv, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_nv_finite) + tl.sum(
            tl.exp(X_nv.to(tl.float32) - m_nv_finite[:, None]), axis=1
        )  # S4
        m = m_nv  # S2
    # The last, partial block.
    for v_first in range(v_full, V, BLOCK_V):
        v = (v_first + tl.arange(0, BLOCK_V)).to(INDEX)
        X_nv = tl.load(
            X_ptr + n[:, None] * stride_X_n + v[None, :] * stride_X_v,
            mask=(n[:, None] < N) & (v[None, :] < V),
            other=float("-inf")
        )  # S8
        m_nv = tl.maximum(m, tl.max(X_nv.to(tl.float32), axis=1))  # S8
        m_nv_finite = tl.where(m_nv > float("-inf"), m_nv, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_nv_finite) + tl.sum(
            tl.exp(X_nv.to(tl.float32) - m_nv_finite[:, None]), axis=1
        )  # S4
        m = m_nv  # S2
    tl.store(top_ptr + n * stride_top_n, tl.where(l > 0.0, m, 0.0), mask=n < N)  # S6
    log_l_2 = tl.log(l)  # S7
    tl.store(
        log_l_ptr + n * stride_log_l_n, tl.where(l > 0.0, log_l_2, float("inf")), mask=n < N
    )  # S7
    y_n = tl.load(y_ptr + n * stride_y_n, mask=n < N, other=0)  # S5
    X_n = tl.load(X_ptr + n * stride_X_n + y_n.to(INDEX) * stride_X_v, mask=n < N, other=0.0)  # S5
    tl.store(loss_ptr + n * stride_loss_n, m + log_l_2 - X_n.to(tl.float32), mask=n < N)  # S5


def softmax_cross_entropy_kernel_config(BLOCK_N, BLOCK_V, num_warps, num_stages):
    blocks = {"BLOCK_N": BLOCK_N, "BLOCK_V": BLOCK_V}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
softmax_cross_entropy_kernel_default = softmax_cross_entropy_kernel_config(4, 512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
softmax_cross_entropy_kernel_tuned = _Tuned(
    softmax_cross_entropy_kernel,
    [
        softmax_cross_entropy_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["N", "V"],
)


@triton.jit
def softmax_cross_entropy_backward_kernel(
    X_ptr, y_ptr, top_ptr, log_l_ptr, dloss_ptr, dX_ptr,
    stride_X_n, stride_X_v,
    stride_y_n,
    stride_top_n,
    stride_log_l_n,
    stride_dloss_n,
    stride_dX_n, stride_dX_v,
    N, V,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """A program does BLOCK_N iterations of n by BLOCK_V iterations of v.

    Reads X (N, V), y (N,), top (N,), log_l (N,), dloss (N,).
    Writes dX (N, V).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_v = tl.cdiv(V, BLOCK_V)
    n = (pid // blocks_v) * BLOCK_N + tl.arange(0, BLOCK_N)
    v = (pid % blocks_v) * BLOCK_V + tl.arange(0, BLOCK_V)

    X_nv = tl.load(
        X_ptr + n[:, None] * stride_X_n + v[None, :] * stride_X_v,
        mask=(n[:, None] < N) & (v[None, :] < V),
        other=0.0
    )  # S1
    top_n = tl.load(top_ptr + n * stride_top_n, mask=n < N, other=0.0)  # S1
    log_l_n = tl.load(log_l_ptr + n * stride_log_l_n, mask=n < N, other=0.0)  # S1
    P = tl.exp(
        X_nv.to(tl.float32) - top_n.to(tl.float32)[:, None] - log_l_n.to(tl.float32)[:, None]
    )  # S1
    dloss_n = tl.load(dloss_ptr + n * stride_dloss_n, mask=n < N, other=0.0)  # S2
    y_n = tl.load(y_ptr + n * stride_y_n, mask=n < N, other=0)  # S2
    tl.store(
        dX_ptr + n[:, None] * stride_dX_n + v[None, :] * stride_dX_v,
        dloss_n.to(tl.float32)[:, None] * (P - tl.where(y_n[:, None] == v[None, :], 1.0, 0.0)),
        mask=(n[:, None] < N) & (v[None, :] < V)
    )  # S2


def softmax_cross_entropy_backward_kernel_config(BLOCK_N, BLOCK_V, num_warps, num_stages):
    blocks = {"BLOCK_N": BLOCK_N, "BLOCK_V": BLOCK_V}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
softmax_cross_entropy_backward_kernel_default = softmax_cross_entropy_backward_kernel_config(
    16, 128, 4, 1
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
softmax_cross_entropy_backward_kernel_tuned = _Tuned(
    softmax_cross_entropy_backward_kernel,
    [
        softmax_cross_entropy_backward_kernel_config(*row)
        for row in itertools.product((4, 16), (128, 256, 512), (4, 8), (1,))
    ],
    key=["N", "V"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(softmax_cross_entropy_kernel, triton.JITFunction)
_FLOAT = (torch.float16, torch.bfloat16, torch.float32)
_INT = (torch.int32, torch.int64)


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


def softmax_cross_entropy_forward(X, y, *, tune=True, check=False):
    """Run softmax_cross_entropy, and return what its gradients need besides.

    Args:
        X: (N, V), float16, bfloat16 or float32, any strides.
        y: (N,), int32 or int64, any strides; values from 0 up to, not including, V.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of y. It waits
            for the GPU; without it, they are trusted.

    Returns:
        loss (N,), top (N,) in float32, log_l (N,) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("X", X, 2, _FLOAT), ("y", y, 1, _INT))
    N, V = X.shape
    _check_shape("y", y, (N,), "(N,) with N = X.shape[0]")
    if check:
        if ((y < 0) | (y >= V)).any():
            raise ValueError(f"y should hold integers from 0 up to, not including, {V}")
    top = torch.empty((N,), dtype=torch.float32, device=X.device)
    log_l = torch.empty((N,), dtype=torch.float32, device=X.device)
    loss = torch.empty((N,), dtype=X.dtype, device=X.device)
    index = _index_type(X, y, top, log_l, loss)

    if _INTERPRETED or not tune:
        run = softmax_cross_entropy_kernel
        blocks = softmax_cross_entropy_kernel_default.all_kwargs()
    else:
        run = softmax_cross_entropy_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_N"]),)

    if N > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, y, top, log_l, loss,
                *X.stride(),
                *y.stride(),
                *top.stride(),
                *log_l.stride(),
                *loss.stride(),
                N, V,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return loss, top, log_l


def softmax_cross_entropy_backward(X, y, top, log_l, dloss, *, wanted=None, tune=True, check=False):
    """Return the gradients of softmax_cross_entropy.

    Args:
        X: (N, V), float16, bfloat16 or float32, any strides.
        y: (N,), int32 or int64, any strides; values from 0 up to, not including, V.
        top: (N,), float32, any strides.
        log_l: (N,), float32, any strides.
        dloss: (N,), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of y. It waits
            for the GPU; without it, they are trusted.

    Returns:
        dX (N, V).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("X", X, 2, _FLOAT), ("y", y, 1, _INT), ("top", top, 1, (torch.float32,)),
        ("log_l", log_l, 1, (torch.float32,)), ("dloss", dloss, 1, _FLOAT)
    )
    N, V = X.shape
    _check_shape("y", y, (N,), "(N,) with N = X.shape[0]")
    _check_shape("top", top, (N,), "(N,) with N = X.shape[0]")
    _check_shape("log_l", log_l, (N,), "(N,) with N = X.shape[0]")
    _check_shape("dloss", dloss, (N,), "(N,) with N = X.shape[0]")
    if check:
        if ((y < 0) | (y >= V)).any():
            raise ValueError(f"y should hold integers from 0 up to, not including, {V}")
    wanted = _wanted(wanted, ("dX",))
    dX = torch.empty((N, V), dtype=X.dtype, device=X.device)
    index = _index_type(X, y, top, log_l, dloss, dX)

    if _INTERPRETED or not tune:
        run = softmax_cross_entropy_backward_kernel
        blocks = softmax_cross_entropy_backward_kernel_default.all_kwargs()
    else:
        run = softmax_cross_entropy_backward_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_N"]) * triton.cdiv(V, meta["BLOCK_V"]),)

    if min(N, V) > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, y, top, log_l, dloss, dX,
                *X.stride(),
                *y.stride(),
                *top.stride(),
                *log_l.stride(),
                *dloss.stride(),
                *dX.stride(),
                N, V,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return (dX,)


@torch.library.custom_op(_free("softmax_cross_entropy_forward_8cb342ca"), mutates_args=())
def _softmax_cross_entropy_forward_operator(
    X: torch.Tensor, y: torch.Tensor, tune: bool, check: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return softmax_cross_entropy_forward(X, y, tune=tune, check=check)


@_softmax_cross_entropy_forward_operator.register_fake
def _(X, y, tune, check):
    N = X.shape[0]
    return (
        torch.empty((N,), dtype=X.dtype, device=X.device),
        torch.empty((N,), dtype=torch.float32, device=X.device),
        torch.empty((N,), dtype=torch.float32, device=X.device),
    )


@torch.library.custom_op(_free("softmax_cross_entropy_backward_8cb342ca"), mutates_args=())
def _softmax_cross_entropy_backward_operator(
    X: torch.Tensor, y: torch.Tensor, top: torch.Tensor, log_l: torch.Tensor, dloss: torch.Tensor,
    wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = softmax_cross_entropy_backward(
        X,
        y,
        top,
        log_l,
        dloss,
        wanted=[name for name, each in zip(("dX",), wanted) if each],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_softmax_cross_entropy_backward_operator.register_fake
def _(X, y, top, log_l, dloss, wanted, tune):
    N = X.shape[0]
    V = X.shape[1]
    found = (
        torch.empty((N, V), dtype=X.dtype, device=X.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _softmax_cross_entropy_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    X, y, tune, check = inputs
    loss, top, log_l = output
    ctx.save_for_backward(X, y, top, log_l)
    ctx.numbers = (tune,)
    ctx.like = (_like(loss),)
    ctx.mark_non_differentiable(top, log_l)
    ctx.set_materialize_grads(False)


def _softmax_cross_entropy_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dloss, _, _ = found
    X, y, top, log_l = ctx.saved_tensors
    (tune,) = ctx.numbers
    (loss_like,) = ctx.like
    if dloss is None:
        dloss = _zeros(*loss_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0]]
    found = iter(_softmax_cross_entropy_backward_operator(X, y, top, log_l, dloss, wanted, tune))
    (dX,) = (next(found) if each else None for each in wanted)
    return dX, None, None, None


def _softmax_cross_entropy_second(ctx, *found):
    raise RuntimeError(
        "softmax_cross_entropy has no second derivative: its backward pass is derived once. "
        "Call backward without create_graph=True"
    )


_softmax_cross_entropy_forward_operator.register_autograd(
    _softmax_cross_entropy_gradients, setup_context=_softmax_cross_entropy_keep
)
_softmax_cross_entropy_backward_operator.register_autograd(_softmax_cross_entropy_second)


def softmax_cross_entropy(X, y, *, tune=True, check=False):
    """The cross entropy of each row's softmax with an integer label, through log-sum-exp.
    Differentiable: gradients come from softmax_cross_entropy_backward.

    Args:
        X: (N, V), float16, bfloat16 or float32, any strides.
        y: (N,), int32 or int64, any strides; values from 0 up to, not including, V.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of y. It waits
            for the GPU; without it, they are trusted.

    Returns:
        loss (N,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    loss, _, _ = _softmax_cross_entropy_forward_operator(X, y, tune, check)
    return loss
