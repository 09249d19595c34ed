# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def prefix_sum(x: Float[Array, "N"]):
#         P = zeros(N)
#         for i in range(0, N):
#             if i == 0:
#                 P[i] = x[i]  # S1: the first element starts the sum
#             else:
#                 P[i] = P[i - 1] + x[i]  # S2: every later one continues it
#         return P
#
# The steps from there to its backward pass, with what each leans on:
#   1. open the recurrences (storage: what an iteration reads of P is what it holds in the end)
#   2. define every array once (storage: every read gets the value that was written last above it)
#   3. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   4. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#   5. close the recurrences (order: what comes in for P is dP_before)
#
# Its backward pass:
#
#     def prefix_sum_backward(x: Float[Array, "N"], dP: Float[Array, "N"]):
#         dx = zeros(N)
#         dP_before = zeros(N, dtype=float32)
#         for n in range(N - 2, -1, -1):
#             dP_before[n] = dP[n + 1] + dP_before[n + 1]
#         for i in range(0, N):
#             dx[i] = dP[i] + dP_before[i]
#         return dx
#
# The steps from there to the forward kernels:
#   1. hand P on in a state: an iteration reads what the one before has set
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def prefix_sum(x: Float[Array, "N"]):
#         P = zeros(N)
#         P_state = 0.0  # S4
#         for i in range(0, N):
#             if i == 0:
#                 P_state = x[i]  # S1: the first element starts the sum
#                 P[i] = P_state  # S5
#             else:
#                 P_state = P_state + x[i]  # S2: every later one continues it
#                 P[i] = P_state  # S6
#         return P
#
# The steps from there to the backward kernels:
#   1. hand dP_before on in a state: an iteration reads what the one before has set
#   2. run i in parallel
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def prefix_sum_backward(x: Float[Array, "N"], dP: Float[Array, "N"]):
#         dx = zeros(N)
#         dP_before = zeros(N, dtype=float32)
#         dP_before_state = 0.0  # S4
#         for n in range(N - 2, -1, -1):
#             dP_before_state = dP[n + 1] + dP_before_state  # S1
#             dP_before[n] = dP_before_state  # S5
#         for i in parallel(0, N):
#             dx[i] = dP[i] + dP_before[i]  # S2
#         return dx

import itertools
from concurrent.futures import ThreadPoolExecutor

import torch
import triton
import triton.language as tl


@triton.jit
def _two_steps(factor, value, next_factor, next_value):
    after = tl.where(next_factor == 0, next_value, next_factor * value + next_value)
    return factor * next_factor, after


@triton.jit
def _steps(factor, value, axis: tl.constexpr):
    """What y is after each step y = factor * y + value, which begins anew where a factor is 0."""
    factor = tl.broadcast_to(factor, value.shape)
    return tl.associative_scan((factor, value), axis, _two_steps)[1]


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
def prefix_sum_kernel(
    x_ptr, P_ptr,
    stride_x_i,
    stride_P_i,
    N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    """A program does everything.

    Reads x (N,).
    Writes P (N,).
    """
    P_state = tl.full([], 0.0, tl.float32)  # S4
    i_full = N // BLOCK_I * BLOCK_I  # blocks before this one are full
    # Full blocks.
    for i_first in range(0, i_full, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        P = tl.zeros([BLOCK_I], tl.float32)
        x_i = tl.load(x_ptr + i * stride_x_i)  # S4
        P_state_taken = x_i.to(tl.float32)
        P_state_factor = tl.where(i == 0, 0.0, 1.0)
        P_state_upto = _steps(
            P_state_factor,
            tl.where(
                i == i_first,
                tl.where(
                    P_state_factor == 0.0, P_state_taken, P_state_factor * P_state + P_state_taken
                ),
                P_state_taken
            ),
            0
        )
        P_state = tl.sum(tl.where(i == tl.max(i, axis=0), P_state_upto, 0.0), axis=0)  # S1
        P = tl.where(i == 0, P_state_upto, P)  # S5
        P = tl.where(i != 0, P_state_upto, P)  # S6
        tl.store(P_ptr + i * stride_P_i, P)  # S6
    # The last, partial block.
    for i_first in range(i_full, N, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        P = tl.zeros([BLOCK_I], tl.float32)
        x_i = tl.load(x_ptr + i * stride_x_i, mask=i < N, other=0.0)  # S6
        P_state_taken = tl.where(i < N, x_i.to(tl.float32), 0.0)  # outside: what changes nothing
        P_state_factor = tl.where((i < N) & (i == 0), 0.0, 1.0)  # outside: what changes nothing
        P_state_upto = _steps(
            P_state_factor,
            tl.where(
                i == i_first,
                tl.where(
                    P_state_factor == 0.0, P_state_taken, P_state_factor * P_state + P_state_taken
                ),
                P_state_taken
            ),
            0
        )
        P_state = tl.sum(tl.where(i == tl.max(i, axis=0), P_state_upto, 0.0), axis=0)  # S1
        P = tl.where(i == 0, P_state_upto, P)  # S5
        P = tl.where(i != 0, P_state_upto, P)  # S6
        tl.store(P_ptr + i * stride_P_i, P, mask=i < N)  # S6


def prefix_sum_kernel_config(BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
prefix_sum_kernel_default = prefix_sum_kernel_config(512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
prefix_sum_kernel_tuned = _Tuned(
    prefix_sum_kernel,
    [
        prefix_sum_kernel_config(*row)
        for row in itertools.product((128, 512, 1024), (4, 8), (2,))
    ],
    key=["N"],
)


@triton.jit
def prefix_sum_backward_dP_before_kernel(
    dP_ptr, dP_before_ptr,
    stride_dP_0,
    stride_dP_before_0,
    N,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """A program does everything.

    Reads dP (N,).
    Writes dP_before (N,).
    """
    dP_before_state = tl.full([], 0.0, tl.float32)  # S4
    n_stop = N - 1
    n_full = tl.maximum(n_stop, 0) // BLOCK_N * BLOCK_N  # blocks before this one are full
    # Full blocks.
    for n_first in range(0, n_full, BLOCK_N):
        n = (n_first + tl.arange(0, BLOCK_N)).to(INDEX)
        dP_n = tl.load(dP_ptr + (N - n - 1) * stride_dP_0)  # S4
        dP_before_state_taken = dP_n.to(tl.float32)
        dP_before_state_upto = dP_before_state + tl.cumsum(dP_before_state_taken, axis=0)
        dP_before_state = dP_before_state + tl.sum(dP_before_state_taken, axis=0)  # S1
        tl.store(dP_before_ptr + (N - n - 2) * stride_dP_before_0, dP_before_state_upto)  # S5
    # The last, partial block.
    for n_first in range(n_full, n_stop, BLOCK_N):
        n = (n_first + tl.arange(0, BLOCK_N)).to(INDEX)
        dP_n = tl.load(dP_ptr + (N - n - 1) * stride_dP_0, mask=n < n_stop, other=0.0)  # S5
        # outside: what changes nothing
        dP_before_state_taken = tl.where(n < n_stop, dP_n.to(tl.float32), 0.0)
        dP_before_state_upto = dP_before_state + tl.cumsum(dP_before_state_taken, axis=0)
        dP_before_state = dP_before_state + tl.sum(dP_before_state_taken, axis=0)  # S1
        tl.store(
            dP_before_ptr + (N - n - 2) * stride_dP_before_0, dP_before_state_upto, mask=n < n_stop
        )  # S5


def prefix_sum_backward_dP_before_kernel_config(BLOCK_N, num_warps, num_stages):
    blocks = {"BLOCK_N": BLOCK_N}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
prefix_sum_backward_dP_before_kernel_default = prefix_sum_backward_dP_before_kernel_config(
    512, 4, 2
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
prefix_sum_backward_dP_before_kernel_tuned = _Tuned(
    prefix_sum_backward_dP_before_kernel,
    [
        prefix_sum_backward_dP_before_kernel_config(*row)
        for row in itertools.product((128, 512, 1024), (4, 8), (2,))
    ],
    key=["N"],
)


@triton.jit
def prefix_sum_backward_dx_kernel(
    dP_ptr, dx_ptr, dP_before_ptr,
    stride_dP_i,
    stride_dx_i,
    stride_dP_before_i,
    N,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads dP (N,), dP_before (N,).
    Writes dx (N,).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)

    dP_i = tl.load(dP_ptr + i * stride_dP_i, mask=i < N, other=0.0)  # S2
    dP_before_i = tl.load(dP_before_ptr + i * stride_dP_before_i, mask=i < N, other=0.0)  # S2
    tl.store(
        dx_ptr + i * stride_dx_i, dP_i.to(tl.float32) + dP_before_i.to(tl.float32), mask=i < N
    )  # S2


def prefix_sum_backward_dx_kernel_config(BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
prefix_sum_backward_dx_kernel_default = prefix_sum_backward_dx_kernel_config(128, 4, 1)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
prefix_sum_backward_dx_kernel_tuned = _Tuned(
    prefix_sum_backward_dx_kernel,
    [
        prefix_sum_backward_dx_kernel_config(*row)
        for row in itertools.product((128, 256, 512), (4, 8), (1,))
    ],
    key=["N"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(prefix_sum_kernel, triton.JITFunction)
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


def prefix_sum_forward(x, *, tune=True):
    """Run prefix_sum, and return what its gradients need besides.

    Args:
        x: (N,), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        P (N,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("x", x, 1, _FLOAT))
    N = x.shape[0]
    P = torch.empty((N,), dtype=x.dtype, device=x.device)
    index = _index_type(x, P)

    if _INTERPRETED or not tune:
        run = prefix_sum_kernel
        blocks = prefix_sum_kernel_default.all_kwargs()
    else:
        run = prefix_sum_kernel_tuned
        blocks = {}
    with torch.cuda.device_of(x):
        run[(1,)](
            x, P,
            *x.stride(),
            *P.stride(),
            N,
            INDEX=index,
            **blocks, enable_fp_fusion=True,
        )
    return (P,)


def prefix_sum_backward(x, dP, *, wanted=None, tune=True):
    """Return the gradients of prefix_sum.

    Args:
        x: (N,), float16, bfloat16 or float32, any strides.
        dP: (N,), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dx (N,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("x", x, 1, _FLOAT), ("dP", dP, 1, _FLOAT))
    N = x.shape[0]
    _check_shape("dP", dP, (N,), "(N,) with N = x.shape[0]")
    wanted = _wanted(wanted, ("dx",))
    dx = torch.empty((N,), dtype=x.dtype, device=x.device)
    dP_before = torch.full((N,), 0.0, dtype=torch.float32, device=x.device)
    index = _index_type(x, dP, dx, dP_before)

    if _INTERPRETED or not tune:
        run = prefix_sum_backward_dP_before_kernel
        blocks = prefix_sum_backward_dP_before_kernel_default.all_kwargs()
    else:
        run = prefix_sum_backward_dP_before_kernel_tuned
        blocks = {}
    with torch.cuda.device_of(x):
        run[(1,)](
            dP, dP_before,
            *dP.stride(),
            *dP_before.stride(),
            N,
            INDEX=index,
            **blocks, enable_fp_fusion=True,
        )

    if _INTERPRETED or not tune:
        run = prefix_sum_backward_dx_kernel
        blocks = prefix_sum_backward_dx_kernel_default.all_kwargs()
    else:
        run = prefix_sum_backward_dx_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_I"]),)

    if N > 0:
        with torch.cuda.device_of(x):
            run[grid](
                dP, dx, dP_before,
                *dP.stride(),
                *dx.stride(),
                *dP_before.stride(),
                N,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return (dx,)


@torch.library.custom_op(_free("prefix_sum_forward_591c8105"), mutates_args=())
def _prefix_sum_forward_operator(x: torch.Tensor, tune: bool) -> torch.Tensor:
    return prefix_sum_forward(x, tune=tune)[0]


@_prefix_sum_forward_operator.register_fake
def _(x, tune):
    N = x.shape[0]
    return torch.empty((N,), dtype=x.dtype, device=x.device)


@torch.library.custom_op(_free("prefix_sum_backward_591c8105"), mutates_args=())
def _prefix_sum_backward_operator(
    x: torch.Tensor, dP: torch.Tensor, wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = prefix_sum_backward(
        x, dP, wanted=[name for name, each in zip(("dx",), wanted) if each], tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_prefix_sum_backward_operator.register_fake
def _(x, dP, wanted, tune):
    N = x.shape[0]
    found = (
        torch.empty((N,), dtype=x.dtype, device=x.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _prefix_sum_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    x, tune = inputs
    P = output
    ctx.save_for_backward()
    ctx.numbers = (tune,)
    ctx.like = _like(x), _like(P)
    ctx.set_materialize_grads(False)


def _prefix_sum_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    (dP,) = found
    (tune,) = ctx.numbers
    x_like, P_like = ctx.like
    x = _unread(*x_like)
    if dP is None:
        dP = _zeros(*P_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0]]
    found = iter(_prefix_sum_backward_operator(x, dP, wanted, tune))
    (dx,) = (next(found) if each else None for each in wanted)
    return dx, None


def _prefix_sum_second(ctx, *found):
    raise RuntimeError(
        "prefix_sum has no second derivative: its backward pass is derived once. Call backward "
        "without create_graph=True"
    )


_prefix_sum_forward_operator.register_autograd(
    _prefix_sum_gradients, setup_context=_prefix_sum_keep
)
_prefix_sum_backward_operator.register_autograd(_prefix_sum_second)


def prefix_sum(x, *, tune=True):
    """The inclusive prefix sum: P[i] = x[0] + ... + x[i]. Differentiable: gradients come from
    prefix_sum_backward.

    Args:
        x: (N,), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        P (N,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    return _prefix_sum_forward_operator(x, tune)
