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
# The steps from there to these kernels:
#   1. hand P on in a state: an iteration reads what the one before has set
#
# Where they end; the labels in the code are those of this nest:
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


def prefix_sum(x, *, out=None, tune=True):
    """Run the listing prefix_sum on torch tensors.

    Args:
        x: (N,), float16, bfloat16 or float32, any strides.
        out: What P is written to; a new tensor by default. It shares no memory with an
            argument.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        P (N,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("x", x, 1, _FLOAT))
    N = x.shape[0]
    P = _output("P", out, (N,), x.dtype, x.device)
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
    return P
