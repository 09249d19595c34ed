# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def linear_cross_entropy(
#         X: Float[Array, "N F"], W: Float[Array, "V F"], y: Int[Array, "N", "0:V"]
#     ):
#         assert F > 512
#         loss = zeros(N)
#         for n in range(0, N):
#             m = -inf  # S1: the maximum of nothing
#             l = 0.0  # S2: an empty sum
#             own = 0.0  # S3: an empty sum
#             for v in range(0, V):
#                 s = sum(X[n, f] * W[v, f] for f in range(0, F))  # S4: the logit of a label
#                 m_new = max(m, s)  # S5: the maximum so far
#                 l = l * exp(m - m_new) + exp(s - m_new)  # S6: Aggregation over v
#                 m = m_new  # S7: kept for the next one
#                 own = own + (s if v == y[n] else 0.0)  # S8: Aggregation over v
#             loss[n] = m + log(l) - own  # S9: log-sum-exp minus the logit of the label
#         return loss
#
# The steps from there to these kernels:
#   1. guard the empty prefix: nothing moves before m does
#   2. write the sum of S4 as a loop
#   3. run n in parallel, m, l, own, s and m_nv private to an iteration
#
# Where they end; the labels in the code are those of this nest:
#
#     def linear_cross_entropy(
#         X: Float[Array, "N F"], W: Float[Array, "V F"], y: Int[Array, "N", "0:V"]
#     ):
#         assert F > 512
#         loss = zeros(N)
#         for n in parallel(0, N):
#             private: (m, l, own, s, m_nv)
#             m = -inf  # S1: the maximum of nothing
#             l = 0.0  # S2: an empty sum
#             own = 0.0  # S3: an empty sum
#             for v in range(0, V):
#                 s = 0.0  # S10
#                 for f in range(0, F):
#                     s = s + X[n, f] * W[v, f]  # S4: the logit of a label
#                 m_nv = max(m, s)  # S7
#                 l = l * exp(m - m_nv) + exp(s - m_nv) if m_nv > -inf else l  # S6
#                 own = own + (s if v == y[n] else 0.0)  # S8
#                 m = m_nv  # S5
#             loss[n] = m + log(l) - own  # S9: log-sum-exp minus the logit of the label
#         return loss

# ruff: noqa: E741

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
def linear_cross_entropy_kernel(
    X_ptr, W_ptr, y_ptr, loss_ptr,
    stride_X_n, stride_X_f,
    stride_W_v, stride_W_f,
    stride_y_n,
    stride_loss_n,
    N, F, V,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_F: tl.constexpr,
):
    """A program does BLOCK_N iterations of n.

    Reads X (N, F), W (V, F), y (N,).
    Writes loss (N,).
    """
    pid = tl.program_id(0).to(INDEX)
    n = pid * BLOCK_N + tl.arange(0, BLOCK_N)

    m = tl.full([BLOCK_N], float("-inf"), tl.float32)  # S1
    l = tl.zeros([BLOCK_N], tl.float32)  # S2
    own = tl.zeros([BLOCK_N], tl.float32)  # S3
    v_full = V // BLOCK_V * BLOCK_V  # blocks before this one are full
    y_n = tl.load(y_ptr + n * stride_y_n, mask=n < N, other=0)  # S8
    # Full blocks.
    for v_first in range(0, v_full, BLOCK_V):
        v = (v_first + tl.arange(0, BLOCK_V)).to(INDEX)
        s = tl.zeros([BLOCK_N, BLOCK_V], tl.float32)  # S10
        f_full = tl.cast(F // BLOCK_F * BLOCK_F, INDEX)  # blocks before this one are full
        # What is read as it would be in a block that begins at 0.
        f_at = tl.arange(0, BLOCK_F).to(INDEX)
        W_at = W_ptr + v[:, None] * stride_W_v + f_at[None, :] * stride_W_f
        # Full blocks.
        for f_first in range(0, f_full, BLOCK_F):
            f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=n[:, None] < N,
                other=0.0
            )  # S4
            W_vf = tl.load(W_at + tl.cast(f_first, INDEX) * stride_W_f)  # S4
            s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S4
        # The last, partial block.
        for f_first in range(f_full, F, BLOCK_F):
            f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=(n[:, None] < N) & (f[None, :] < F),
                other=0.0
            )  # S4
            W_vf = tl.load(
                W_at + tl.cast(f_first, INDEX) * stride_W_f, mask=f[None, :] < F, other=0.0
            )  # S4
            s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S4
        m_nv = tl.maximum(m, tl.max(s, axis=1))  # S7
        m_nv_finite = tl.where(m_nv > float("-inf"), m_nv, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_nv_finite) + tl.sum(tl.exp(s - m_nv_finite[:, None]), axis=1)  # S6
        own = own + tl.sum(
            tl.where(tl.arange(0, BLOCK_V)[None, :] == y_n[:, None] - v_first, s, 0.0), axis=1
        )  # S8
        m = m_nv  # S5
    # The last, partial block.
    for v_first in range(v_full, V, BLOCK_V):
        v = (v_first + tl.arange(0, BLOCK_V)).to(INDEX)
        s = tl.zeros([BLOCK_N, BLOCK_V], tl.float32)  # S10
        f_full = tl.cast(F // BLOCK_F * BLOCK_F, INDEX)  # blocks before this one are full
        # What is read as it would be in a block that begins at 0.
        f_at = tl.arange(0, BLOCK_F).to(INDEX)
        W_at = W_ptr + v[:, None] * stride_W_v + f_at[None, :] * stride_W_f
        # Full blocks.
        for f_first in range(0, f_full, BLOCK_F):
            f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=n[:, None] < N,
                other=0.0
            )  # S4
            W_vf = tl.load(
                W_at + tl.cast(f_first, INDEX) * stride_W_f, mask=v[:, None] < V, other=0.0
            )  # S4
            s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S4
        # The last, partial block.
        for f_first in range(f_full, F, BLOCK_F):
            f = (f_first + tl.arange(0, BLOCK_F)).to(INDEX)
            X_nf = tl.load(
                X_ptr + n[:, None] * stride_X_n + f[None, :] * stride_X_f,
                mask=(n[:, None] < N) & (f[None, :] < F),
                other=0.0
            )  # S4
            W_vf = tl.load(
                W_at + tl.cast(f_first, INDEX) * stride_W_f,
                mask=(v[:, None] < V) & (f[None, :] < F),
                other=0.0
            )  # S4
            s = tl.dot(X_nf, tl.trans(W_vf), s, input_precision="ieee")  # S4
        s = tl.where(v[None, :] < V, s, float("-inf"))  # outside: the least there is
        m_nv = tl.maximum(m, tl.max(s, axis=1))  # S7
        m_nv_finite = tl.where(m_nv > float("-inf"), m_nv, 0.0)  # 0 as long as nothing was seen
        l = l * tl.exp(m - m_nv_finite) + tl.sum(tl.exp(s - m_nv_finite[:, None]), axis=1)  # S6
        own = own + tl.sum(
            tl.where(
                (v[None, :] < V) & (tl.arange(0, BLOCK_V)[None, :] == y_n[:, None] - v_first),
                s,
                0.0
            ),
            axis=1
        )  # S8
        m = m_nv  # S5
    tl.store(loss_ptr + n * stride_loss_n, m + tl.log(l) - own, mask=n < N)  # S9


def linear_cross_entropy_kernel_config(BLOCK_N, BLOCK_V, BLOCK_F, num_warps, num_stages):
    blocks = {"BLOCK_N": BLOCK_N, "BLOCK_V": BLOCK_V, "BLOCK_F": BLOCK_F}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def linear_cross_entropy_kernel_footprint(width, /, num_stages, BLOCK_N, BLOCK_F, BLOCK_V, **_):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * width * (BLOCK_N * BLOCK_F + BLOCK_V * BLOCK_F)
    held = BLOCK_N * BLOCK_V
    return shared, held


# Used where nothing is timed, by the bytes of an element.
linear_cross_entropy_kernel_default = {
    2: linear_cross_entropy_kernel_config(128, 64, 64, 8, 3),
    4: linear_cross_entropy_kernel_config(32, 32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
linear_cross_entropy_kernel_tuned = {
    2: _Tuned(
        linear_cross_entropy_kernel,
        [
            linear_cross_entropy_kernel_config(*row)
            for row in [
                (128, 64, 64, 8, 3), (128, 32, 32, 8, 2), (128, 32, 32, 8, 3), (128, 64, 64, 8, 2),
                (128, 128, 64, 8, 2), (128, 128, 64, 8, 3), (64, 32, 32, 4, 2), (64, 32, 32, 4, 3),
                (64, 64, 64, 4, 2), (64, 64, 64, 4, 3), (64, 128, 64, 4, 2), (64, 128, 64, 4, 3),
                (128, 32, 32, 4, 2), (128, 32, 32, 4, 3), (128, 64, 64, 4, 2), (128, 64, 64, 4, 3),
                (128, 128, 64, 4, 2), (128, 128, 64, 4, 3),
            ]
        ],
        key=["N", "F", "V"],
        fitting=_fitting(linear_cross_entropy_kernel_footprint, 2),
    ),
    4: _Tuned(
        linear_cross_entropy_kernel,
        [
            linear_cross_entropy_kernel_config(*row)
            for row in [
                (32, 32, 32, 8, 1), (32, 16, 16, 4, 1), (32, 16, 16, 4, 2), (32, 32, 32, 4, 1),
                (32, 32, 32, 4, 2), (32, 64, 64, 4, 1), (32, 64, 64, 4, 2), (32, 16, 16, 8, 1),
                (32, 16, 16, 8, 2), (32, 32, 32, 8, 2), (32, 64, 64, 8, 1), (32, 64, 64, 8, 2),
                (64, 16, 16, 8, 1), (64, 16, 16, 8, 2), (64, 32, 32, 8, 1), (64, 32, 32, 8, 2),
                (64, 64, 64, 8, 1), (64, 64, 64, 8, 2),
            ]
        ],
        key=["N", "F", "V"],
        fitting=_fitting(linear_cross_entropy_kernel_footprint, 4),
    ),
}


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(linear_cross_entropy_kernel, triton.JITFunction)
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


def linear_cross_entropy(X, W, y, *, out=None, tune=True, check=False):
    """Run the listing linear_cross_entropy on torch tensors.

    Args:
        X: (N, F), float16, bfloat16 or float32, any strides.
        W: (V, F), float16, bfloat16 or float32, any strides.
        y: (N,), int32 or int64, any strides; values from 0 up to, not including, V.
        out: What loss is written to; a new tensor by default. It shares no memory with an
            argument.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of y. It waits
            for the GPU; without it, they are trusted.

    Returns:
        loss (N,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("X", X, 2, _FLOAT), ("W", W, 2, _FLOAT), ("y", y, 1, _INT))
    N, F = X.shape
    V = W.shape[0]
    _check_shape("W", W, (V, F), "(V, F) with F = X.shape[1]")
    _check_shape("y", y, (N,), "(N,) with N = X.shape[0]")
    if F <= 512:
        raise ValueError(f"the listing assumes F > 512; here F = {F}")
    if check:
        if ((y < 0) | (y >= V)).any():
            raise ValueError(f"y should hold integers from 0 up to, not including, {V}")
    loss = _output("loss", out, (N,), X.dtype, X.device)
    index = _index_type(X, W, y, loss)
    width = X.element_size()

    if _INTERPRETED or not tune:
        run = linear_cross_entropy_kernel
        blocks = _fitted(
            linear_cross_entropy_kernel_default[width],
            linear_cross_entropy_kernel_footprint,
            width,
            {},
            X.device.index
        ).all_kwargs()
    else:
        run = linear_cross_entropy_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_N"]),)

    if N > 0:
        with torch.cuda.device_of(X):
            run[grid](
                X, W, y, loss,
                *X.stride(),
                *W.stride(),
                *y.stride(),
                *loss.stride(),
                N, F, V,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return loss
