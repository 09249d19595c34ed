# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def attention_eight_bits(
#         Q: Float[Array, "B H M E"],
#         K: Int8[Array, "B H N E"],
#         K_scale: Float[Array, "B H N"],
#         V: Int8[Array, "B H N D"],
#         V_scale: Float[Array, "B H N"],
#         scale: float
#     ):
#         S = zeros((B, H, M, N))
#         O = zeros((B, H, M, D))
#         lse = full((B, H, M), -inf, dtype=float32)
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     m = -inf  # S1: no key was seen
#                     l = 0.0  # S2: no weight was added
#                     for j in range(0, N):
#                         # S3: the score
#                         S[b, h, i, j] = scale * K_scale[b, h, j] * sum(
#                             Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)
#                         )
#                         m = max(m, S[b, h, i, j])  # S4: Aggregation over j
#                     for j in range(0, N):
#                         l = l + exp(S[b, h, i, j] - m)  # S5: Aggregation over j
#                     for j in range(0, N):
#                         for d in range(0, D):
#                             # S6: the weighted mean of the rows of V
#                             O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m) / l * (
#                                 V_scale[b, h, j] * V[b, h, j, d]
#                             )
#                     lse[b, h, i] = m + log(l)  # S7: the log-sum-exp of row i
#         return O, lse
#
# The steps from there to these kernels:
#   1. one pass instead of 3: m, l and O[b, h, i, d] move together
#   2. change of state: the loop keeps O[b, h, i, d] * l, and one division stands behind it; nothing
#      moves before m does
#   3. keep S in a scalar: nothing else reads it
#   4. run b, h, i and d in parallel, m, l, S_bhij and m_bhij private to an iteration
#
# Where they end; the labels in the code are those of this nest:
#
#     def attention_eight_bits(
#         Q: Float[Array, "B H M E"],
#         K: Int8[Array, "B H N E"],
#         K_scale: Float[Array, "B H N"],
#         V: Int8[Array, "B H N D"],
#         V_scale: Float[Array, "B H N"],
#         scale: float
#     ):
#         O = zeros((B, H, M, D))
#         lse = full((B, H, M), -inf, dtype=float32)
#         for b in parallel(0, B):
#             private: (m, l, S_bhij, m_bhij)
#             for h in parallel(0, H):
#                 private: (m, l, S_bhij, m_bhij)
#                 for i in parallel(0, M):
#                     private: (m, l, S_bhij, m_bhij)
#                     m = -inf  # S1: no key was seen
#                     l = 0.0  # S2: no weight was added
#                     for j in range(0, N):
#                         # S3: the score
#                         S_bhij = scale * K_scale[b, h, j] * sum(
#                             Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)
#                         )
#                         m_bhij = max(m, S_bhij)  # S8
#                         # S9
#                         l = l * exp(m - m_bhij) + exp(S_bhij - m_bhij) if m_bhij > -inf else l
#                         for d in parallel(0, D):
#                             # S6
#                             O[b, h, i, d] = (
#                                 O[b, h, i, d] * exp(m - m_bhij)
#                                 + V_scale[b, h, j] * V[b, h, j, d] * exp(S_bhij - m_bhij)
#                                 if m_bhij > -inf
#                                 else O[b, h, i, d]
#                             )
#                         m = m_bhij  # S4
#                     for d in parallel(0, D):
#                         O[b, h, i, d] = O[b, h, i, d] / l if l != 0.0 else 0.0  # S5
#                     lse[b, h, i] = m + log(l)  # S7: the log-sum-exp of row i
#         return O, lse

# ruff: noqa: E741

import itertools
from concurrent.futures import ThreadPoolExecutor

import torch
import triton
import triton.language as tl


@triton.jit
def _dot_widened(left, right, total, kind: tl.constexpr, split: tl.constexpr):
    """A product in float32 of inputs that are widened to it, and of another operand.

    TF32, in which matrix units multiply float32, has 11 bits, all that float16 has: where inputs
    are float16 the other operand (left or right, the one that `split` names) is multiplied in two
    parts, with an error of 2**-22. Where they are bfloat16, which has 8 bits, one is enough.
    """
    if kind == tl.float32:
        return tl.dot(left, right, total, input_precision="ieee")
    elif kind == tl.bfloat16:
        return tl.dot(left, right, total)
    elif split == "left":
        high = (left.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
        # What is left of an infinity is nothing.
        low = tl.where(high == left, 0.0, left - high)
        return tl.dot(high, right, tl.dot(low, right, total))
    else:
        high = (right.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
        low = tl.where(high == right, 0.0, right - high)
        return tl.dot(left, high, tl.dot(left, low, total))


@triton.jit
def _hidden_zeros(rows: tl.constexpr, columns: tl.constexpr, number: tl.constexpr, size):
    """Zeros that are no constants to a compiler: it does not know that no size is negative.

    Nor that they are equal, and so one number: each has a place of its own, in steps of 16, which
    may be known to divide the size.
    """
    place = (number * rows + tl.arange(0, rows)[:, None]) * columns + tl.arange(0, columns)[None, :]
    return tl.where(place * 16 < -size, 1.0, 0.0)


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
def attention_eight_bits_kernel(
    Q_ptr, K_ptr, K_scale_ptr, V_ptr, V_scale_ptr, O_ptr, lse_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_K_scale_b, stride_K_scale_h, stride_K_scale_j,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_V_scale_b, stride_V_scale_h, stride_V_scale_j,
    stride_O_b, stride_O_h, stride_O_i, stride_O_d,
    stride_lse_b, stride_lse_h, stride_lse_i,
    scale,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    SCALE_POSITIVE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    LATE: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), K_scale (B, H, N), V (B, H, N, D), V_scale (B, H, N).
    Writes O (B, H, M, D), lse (B, H, M).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    b = pid // blocks_i // H
    h = pid // blocks_i % H
    i = (pid % blocks_i) * BLOCK_I + tl.arange(0, BLOCK_I)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    # What is the same throughout the program goes into the pointers.
    Q_ptr += b * stride_Q_b
    Q_ptr += h * stride_Q_h
    K_ptr += b * stride_K_b
    K_ptr += h * stride_K_h
    K_scale_ptr += b * stride_K_scale_b
    K_scale_ptr += h * stride_K_scale_h
    V_ptr += b * stride_V_b
    V_ptr += h * stride_V_h
    V_scale_ptr += b * stride_V_scale_b
    V_scale_ptr += h * stride_V_scale_h
    O_ptr += b * stride_O_b
    O_ptr += h * stride_O_h
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h

    O = _hidden_zeros(BLOCK_I, BLOCK_D, 0, M)  # no constants, or ptxas lets each product wait
    m = tl.full([BLOCK_I], float("-inf"), tl.float32)  # S1
    l = tl.zeros([BLOCK_I], tl.float32)  # S2
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S3
    S_bhij_scale = scale * 1.4426950408889634  # in units of log2(e)
    S_bhij_inside = 1.0 if SCALE_POSITIVE else S_bhij_scale  # for elements
    S_bhij_outside = S_bhij_scale if SCALE_POSITIVE else 1.0  # for their maximum
    if LATE:
        O_late = tl.zeros([BLOCK_I, BLOCK_J], tl.float32)
        j_late = tl.full([BLOCK_J], -1, INDEX)  # no block yet
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    K_scale_at = K_scale_ptr + j_at * stride_K_scale_j
    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    V_scale_at = V_scale_ptr + j_at * stride_V_scale_j
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    # Full blocks.
    for j_from in range(0, tl.cast(j_full, tl.int64), BLOCK_J):
        j_first = tl.cast(j_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        j = j_first + tl.arange(0, BLOCK_J)
        K_scale_j = tl.load(K_scale_at + j_first * stride_K_scale_j)  # S3
        K_je = tl.load(K_at + j_first * stride_K_j, mask=e_in[None, :], other=0).to(tl.int32)  # S3
        S_bhij = K_scale_j.to(tl.float32)[None, :] * tl.dot(
            Q_ie, tl.trans(K_je.to(tl.float32).to(Q_ptr.dtype.element_ty)), input_precision="ieee"
        ) * S_bhij_inside  # S3
        if LATE:
            V_jd = tl.cast(
                tl.load(
                    V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                    mask=(j_late[:, None] >= 0) & d_in[None, :],
                    other=0.0
                ).to(tl.int32),
                tl.int64
            )  # S6
            # S6: of the block before
            O = _dot_widened(O_late, V_jd.to(tl.float32), O, Q_ptr.dtype.element_ty, "left")
        m_bhij = tl.maximum(m, tl.max(S_bhij, axis=1) * S_bhij_outside)  # S8
        # 0 as long as nothing was seen
        m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
        exp_m = tl.exp2(m - m_bhij_finite)  # S9
        exp_S_bhij = tl.exp2(S_bhij * S_bhij_outside - m_bhij_finite[:, None])  # S9
        l = l * exp_m + tl.sum(exp_S_bhij, axis=1)  # S9
        V_scale_j = tl.load(V_scale_at + j_first * stride_V_scale_j)  # S6
        if LATE:
            O = O * exp_m[:, None]  # S6
            O_late = exp_S_bhij * V_scale_j.to(tl.float32)[None, :]
            j_late = j
        else:
            V_jd = tl.cast(
                tl.load(V_at + j_first * stride_V_j, mask=d_in[None, :], other=0).to(tl.int32),
                tl.int64
            )  # S6
            O = _dot_widened(
                exp_S_bhij * V_scale_j.to(tl.float32)[None, :],
                V_jd.to(tl.float32),
                O * exp_m[:, None],
                Q_ptr.dtype.element_ty,
                "left"
            )  # S6
        m = m_bhij  # S4
    # The last, partial block.
    for j_from in range(tl.cast(j_full, tl.int64), tl.cast(N, tl.int64), BLOCK_J):
        j_first = tl.cast(j_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        j = j_first + tl.arange(0, BLOCK_J)
        K_scale_j = tl.load(K_scale_at + j_first * stride_K_scale_j, mask=j < N, other=0.0)  # S3
        K_je = tl.load(
            K_at + j_first * stride_K_j, mask=(j[:, None] < N) & e_in[None, :], other=0
        ).to(tl.int32)  # S3
        S_bhij = K_scale_j.to(tl.float32)[None, :] * tl.dot(
            Q_ie, tl.trans(K_je.to(tl.float32).to(Q_ptr.dtype.element_ty)), input_precision="ieee"
        ) * S_bhij_inside  # S3
        if LATE:
            V_jd = tl.cast(
                tl.load(
                    V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                    mask=(j_late[:, None] >= 0) & d_in[None, :],
                    other=0.0
                ).to(tl.int32),
                tl.int64
            )  # S6
            # S6: of the block before
            O = _dot_widened(O_late, V_jd.to(tl.float32), O, Q_ptr.dtype.element_ty, "left")
        S_bhij = tl.where(j[None, :] < N, S_bhij, float("-inf"))  # outside: the least there is
        m_bhij = tl.maximum(m, tl.max(S_bhij, axis=1) * S_bhij_outside)  # S8
        # 0 as long as nothing was seen
        m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
        exp_m = tl.exp2(m - m_bhij_finite)  # S9
        exp_S_bhij = tl.exp2(S_bhij * S_bhij_outside - m_bhij_finite[:, None])  # S9
        l = l * exp_m + tl.sum(exp_S_bhij, axis=1)  # S9
        V_scale_j = tl.load(V_scale_at + j_first * stride_V_scale_j, mask=j < N, other=0.0)  # S6
        if LATE:
            O = O * exp_m[:, None]  # S6
            O_late = exp_S_bhij * V_scale_j.to(tl.float32)[None, :]
            j_late = tl.where(j < N, j, -1)
        else:
            V_jd = tl.cast(
                tl.load(
                    V_at + j_first * stride_V_j, mask=(j[:, None] < N) & d_in[None, :], other=0
                ).to(tl.int32),
                tl.int64
            )  # S6
            O = _dot_widened(
                exp_S_bhij * V_scale_j.to(tl.float32)[None, :],
                V_jd.to(tl.float32),
                O * exp_m[:, None],
                Q_ptr.dtype.element_ty,
                "left"
            )  # S6
        m = m_bhij  # S4
    if LATE:
        V_jd = tl.cast(
            tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            ).to(tl.int32),
            tl.int64
        )  # S6
        # S6: of the block before
        O = _dot_widened(O_late, V_jd.to(tl.float32), O, Q_ptr.dtype.element_ty, "left")
    m = m * 0.6931471805599453  # back from units of log2(e)
    O = tl.where(l[:, None] != 0.0, O / l[:, None], 0.0)  # S5
    tl.store(lse_ptr + i * stride_lse_i, m + tl.log(l), mask=i < M)  # S7
    tl.store(
        O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
        O,
        mask=(i[:, None] < M) & d_in[None, :]
    )  # S5


def attention_eight_bits_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J, "LATE": LATE}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_eight_bits_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_J, BLOCK_D, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * BLOCK_I * BLOCK_E + 4 * BLOCK_J * BLOCK_D + num_stages * 8 * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    )
    held = BLOCK_I * BLOCK_D + BLOCK_I * BLOCK_J + BLOCK_J * BLOCK_E
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_eight_bits_kernel_default = {
    2: attention_eight_bits_kernel_config(128, 32, 0, 8, 2),
    4: attention_eight_bits_kernel_config(32, 32, 0, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_eight_bits_kernel_tuned = {
    2: _Tuned(
        attention_eight_bits_kernel,
        [
            attention_eight_bits_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((128, 8), (64, 4), (128, 4)), (32, 64, 128), (0, 1), (2, 3)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_eight_bits_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_eight_bits_kernel,
        [
            attention_eight_bits_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (0,), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_eight_bits_kernel_footprint, 4),
    ),
}


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(attention_eight_bits_kernel, triton.JITFunction)
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


def _outputs(out, count):
    """Return the tensors given for the outputs, or as many times None."""
    if out is None:
        return (None,) * count
    if not isinstance(out, (tuple, list)) or len(out) != count:
        raise ValueError(f"out should be a tuple of {count} tensors")
    return tuple(out)


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


def attention_eight_bits(Q, K, K_scale, V, V_scale, scale, *, out=None, tune=True):
    """Run the listing attention_eight_bits on torch tensors.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), int8, any strides.
        K_scale: (B, H, N), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), int8, any strides.
        V_scale: (B, H, N), float16, bfloat16 or float32, any strides.
        scale: A real number.
        out: A tuple of what O, lse are written to; new by default. None shares memory with
            another one or with an argument.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (B, H, M, D), lse (B, H, M) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 4, _FLOAT), ("K", K, 4, (torch.int8,)), ("K_scale", K_scale, 3, _FLOAT),
        ("V", V, 4, (torch.int8,)), ("V_scale", V_scale, 3, _FLOAT)
    )
    scale = _real("scale", scale)
    B, H, M, E = Q.shape
    N = K.shape[2]
    D = V.shape[3]
    _check_shape(
        "K", K, (B, H, N, E), "(B, H, N, E) with B = Q.shape[0], H = Q.shape[1] and E = Q.shape[3]"
    )
    _check_shape(
        "K_scale",
        K_scale,
        (B, H, N),
        "(B, H, N) with B = Q.shape[0], H = Q.shape[1] and N = K.shape[2]"
    )
    _check_shape(
        "V", V, (B, H, N, D), "(B, H, N, D) with B = Q.shape[0], H = Q.shape[1] and N = K.shape[2]"
    )
    _check_shape(
        "V_scale",
        V_scale,
        (B, H, N),
        "(B, H, N) with B = Q.shape[0], H = Q.shape[1] and N = K.shape[2]"
    )
    O, lse = _outputs(out, 2)
    O = _output("O", O, (B, H, M, D), Q.dtype, Q.device)
    lse = _output("lse", lse, (B, H, M), torch.float32, Q.device)
    index = _index_type(Q, K, K_scale, V, V_scale, O, lse)
    width = Q.element_size()

    lanes = {
        "BLOCK_D": max(16, triton.next_power_of_2(D)), "BLOCK_E": max(16, triton.next_power_of_2(E))
    }
    if _INTERPRETED or not tune:
        run = attention_eight_bits_kernel
        blocks = _fitted(
            attention_eight_bits_kernel_default[width],
            attention_eight_bits_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_eight_bits_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, K_scale, V, V_scale, O, lse,
                *Q.stride(),
                *K.stride(),
                *K_scale.stride(),
                *V.stride(),
                *V_scale.stride(),
                *O.stride(),
                *lse.stride(),
                scale,
                H, M, N,
                E=E, D=D,
                SCALE_POSITIVE=scale > 0,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return O, lse
