# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def attention_causal(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         scale: float
#     ):
#         S = zeros((B, H, M, N))
#         m = full((B, H, M), -inf)
#         l = zeros((B, H, M))
#         O = zeros((B, H, M, D))
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for j in range(0, N):
#                         # S1: the scores of row i, masked
#                         S[b, h, i, j] = (
#                             scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                             if j <= i
#                             else -inf
#                         )
#                         m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
#                     for j in range(0, N):
#                         # S3: Aggregation over j
#                         l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])
#                     for j in range(0, N):
#                         for d in range(0, D):
#                             # S4: the weighted mean of the rows of V
#                             O[b, h, i, d] = O[b, h, i, d] + exp(
#                                 S[b, h, i, j] - m[b, h, i]
#                             ) / l[b, h, i] * V[b, h, j, d]
#         return O
#
# The steps from there to these kernels:
#   1. one pass instead of 3: m[b, h, i], l[b, h, i] and O[b, h, i, d] move together
#   2. change of state: the loop keeps O[b, h, i, d] * l[b, h, i], and one division stands behind
#      it; nothing moves before m[b, h, i] does
#   3. keep S in a scalar: nothing else reads it
#   4. run b, h, i and d in parallel, S_bhij and m_bhij private to an iteration
#
# Where they end; the labels in the code are those of this nest:
#
#     def attention_causal(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         scale: float
#     ):
#         m = full((B, H, M), -inf)
#         l = zeros((B, H, M))
#         O = zeros((B, H, M, D))
#         for b in parallel(0, B):
#             private: (S_bhij, m_bhij)
#             for h in parallel(0, H):
#                 private: (S_bhij, m_bhij)
#                 for i in parallel(0, M):
#                     private: (S_bhij, m_bhij)
#                     for j in range(0, N):
#                         # S1: the scores of row i, masked
#                         S_bhij = (
#                             scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                             if j <= i
#                             else -inf
#                         )
#                         m_bhij = max(m[b, h, i], S_bhij)  # S5
#                         # S6
#                         l[b, h, i] = (
#                             l[b, h, i] * exp(m[b, h, i] - m_bhij) + exp(S_bhij - m_bhij)
#                             if m_bhij > -inf
#                             else l[b, h, i]
#                         )
#                         for d in parallel(0, D):
#                             # S4
#                             O[b, h, i, d] = (
#                                 O[b, h, i, d] * exp(m[b, h, i] - m_bhij)
#                                 + V[b, h, j, d] * exp(S_bhij - m_bhij)
#                                 if m_bhij > -inf
#                                 else O[b, h, i, d]
#                             )
#                         m[b, h, i] = m_bhij  # S2
#                     for d in parallel(0, D):
#                         # S3
#                         O[b, h, i, d] = O[b, h, i, d] / l[b, h, i] if l[b, h, i] != 0.0 else 0.0
#         return O

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
def attention_causal_kernel(
    Q_ptr, K_ptr, V_ptr, O_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_O_b, stride_O_h, stride_O_i, stride_O_d,
    scale,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    SCALE_POSITIVE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    LATE: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D).
    Writes O (B, H, M, D).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    # The last blocks of i have most to do: they begin first.
    b = pid // blocks_i // H
    h = pid // blocks_i % H
    i_first = (blocks_i - 1 - pid % blocks_i) * BLOCK_I
    i_last = tl.minimum(i_first + BLOCK_I, M) - 1
    i = i_first + tl.arange(0, BLOCK_I)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    # What is the same throughout the program goes into the pointers.
    Q_ptr += b * stride_Q_b
    Q_ptr += h * stride_Q_h
    K_ptr += b * stride_K_b
    K_ptr += h * stride_K_h
    V_ptr += b * stride_V_b
    V_ptr += h * stride_V_h
    O_ptr += b * stride_O_b
    O_ptr += h * stride_O_h

    m = tl.full([BLOCK_I], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_I], tl.float32)
    O = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    j_stop = tl.minimum(N, i_last + 1)  # no row goes further
    # blocks before this one are full
    j_full = tl.maximum(tl.minimum(N, i_first + 1), 0) // BLOCK_J * BLOCK_J
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S1
    S_bhij_scale = scale * 1.4426950408889634  # in units of log2(e)
    S_bhij_inside = 1.0 if SCALE_POSITIVE else S_bhij_scale  # for elements
    S_bhij_outside = S_bhij_scale if SCALE_POSITIVE else 1.0  # for their maximum
    if LATE:
        exp_S_bhij_late = tl.zeros([BLOCK_I, BLOCK_J], V_ptr.dtype.element_ty)
        j_late = tl.full([BLOCK_J], -1, INDEX)  # no block yet
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j, mask=e_in[None, :], other=0.0
        )  # S1
        S_bhij = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee") * S_bhij_inside  # S1
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S4
            O = tl.dot(exp_S_bhij_late, V_jd, O, input_precision="ieee")  # S4: of the block before
        m_bhij = tl.maximum(m, tl.max(S_bhij, axis=1) * S_bhij_outside)  # S5
        # 0 as long as nothing was seen
        m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
        exp_m = tl.exp2(m - m_bhij_finite)  # S6
        exp_S_bhij = tl.exp2(S_bhij * S_bhij_outside - m_bhij_finite[:, None])  # S6
        l = l * exp_m + tl.sum(exp_S_bhij, axis=1)  # S6
        if LATE:
            O = O * exp_m[:, None]  # S4
            exp_S_bhij_late = exp_S_bhij.to(V_ptr.dtype.element_ty)
            j_late = j
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
            )  # S4
            O = tl.dot(
                exp_S_bhij.to(V_ptr.dtype.element_ty),
                V_jd,
                O * exp_m[:, None],
                input_precision="ieee"
            )  # S4
        m = m_bhij  # S2
    # Some rows have ended.
    for j_first in range(j_full, j_stop, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < j_stop) & e_in[None, :],
            other=0.0
        )  # S1
        S_bhij = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee") * S_bhij_inside  # S1
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S4
            O = tl.dot(exp_S_bhij_late, V_jd, O, input_precision="ieee")  # S4: of the block before
        # outside: the least there is
        S_bhij = tl.where(
            tl.arange(0, BLOCK_J)[None, :] < tl.minimum(j_stop, i + 1)[:, None] - j_first,
            S_bhij,
            float("-inf")
        )
        m_bhij = tl.maximum(m, tl.max(S_bhij, axis=1) * S_bhij_outside)  # S5
        # 0 as long as nothing was seen
        m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
        exp_m = tl.exp2(m - m_bhij_finite)  # S6
        exp_S_bhij = tl.exp2(S_bhij * S_bhij_outside - m_bhij_finite[:, None])  # S6
        l = l * exp_m + tl.sum(exp_S_bhij, axis=1)  # S6
        if LATE:
            O = O * exp_m[:, None]  # S4
            exp_S_bhij_late = exp_S_bhij.to(V_ptr.dtype.element_ty)
            j_late = tl.where(j < j_stop, j, -1)
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j,
                mask=(j[:, None] < j_stop) & d_in[None, :],
                other=0.0
            )  # S4
            O = tl.dot(
                exp_S_bhij.to(V_ptr.dtype.element_ty),
                V_jd,
                O * exp_m[:, None],
                input_precision="ieee"
            )  # S4
        m = m_bhij  # S2
    if LATE:
        V_jd = tl.load(
            V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
            mask=(j_late[:, None] >= 0) & d_in[None, :],
            other=0.0
        )  # S4
        O = tl.dot(exp_S_bhij_late, V_jd, O, input_precision="ieee")  # S4: of the block before
    O = tl.where(l[:, None] != 0.0, O / l[:, None], 0.0)  # S3
    tl.store(
        O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
        O,
        mask=(i[:, None] < M) & d_in[None, :]
    )  # S3


def attention_causal_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J, "LATE": LATE}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_causal_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_J, BLOCK_D, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * BLOCK_I * BLOCK_E + num_stages * width * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    )
    held = BLOCK_I * BLOCK_D + BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_causal_kernel_default = {
    2: attention_causal_kernel_config(128, 64, 0, 8, 3),
    4: attention_causal_kernel_config(32, 32, 0, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_causal_kernel_tuned = {
    2: _Tuned(
        attention_causal_kernel,
        [
            attention_causal_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((128, 8), (64, 4), (128, 4)), (64, 32, 128), (0, 1), (3, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_causal_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_causal_kernel,
        [
            attention_causal_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (0,), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_causal_kernel_footprint, 4),
    ),
}


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(attention_causal_kernel, triton.JITFunction)
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


def attention_causal(Q, K, V, scale, *, out=None, tune=True):
    """Run the listing attention_causal on torch tensors.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        scale: A real number.
        out: What O is written to; a new tensor by default. It shares no memory with an
            argument.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (B, H, M, D).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("Q", Q, 4, _FLOAT), ("K", K, 4, _FLOAT), ("V", V, 4, _FLOAT))
    scale = _real("scale", scale)
    B, H, M, E = Q.shape
    N = K.shape[2]
    D = V.shape[3]
    _check_shape(
        "K", K, (B, H, N, E), "(B, H, N, E) with B = Q.shape[0], H = Q.shape[1] and E = Q.shape[3]"
    )
    _check_shape(
        "V", V, (B, H, N, D), "(B, H, N, D) with B = Q.shape[0], H = Q.shape[1] and N = K.shape[2]"
    )
    O = _output("O", out, (B, H, M, D), Q.dtype, Q.device)
    index = _index_type(Q, K, V, O)
    width = Q.element_size()

    lanes = {
        "BLOCK_D": max(16, triton.next_power_of_2(D)), "BLOCK_E": max(16, triton.next_power_of_2(E))
    }
    if _INTERPRETED or not tune:
        run = attention_causal_kernel
        blocks = _fitted(
            attention_causal_kernel_default[width],
            attention_causal_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_causal_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, O,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *O.stride(),
                scale,
                H, M, N,
                E=E, D=D,
                SCALE_POSITIVE=scale > 0,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return O
