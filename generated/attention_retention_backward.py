# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def attention_retention(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         rate: Float[Array, "H"]
#     ):
#         O = zeros((B, H, M, D))
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for j in range(0, min(N, i + 1)):
#                         # S1: the scaled score
#                         s = sum(
#                             Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)
#                         ) * (1.0 / sqrt(E))
#                         P = s * exp(-rate[h] * (i - j))  # S2: decayed with the distance
#                         for d in range(0, D):
#                             # S3: the weighted sum of the rows of V
#                             O[b, h, i, d] = O[b, h, i, d] + P * V[b, h, j, d]
#         return O
#
# The steps from there to its backward pass, with what each leans on:
#   1. define every array once (storage: every read gets the value that was written last above it)
#   2. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   3. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def attention_retention_backward(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         rate: Float[Array, "H"],
#         dO: Float[Array, "B H M D"]
#     ):
#         drate_part = zeros((B, H, M), dtype=float32)
#         dQ = zeros((B, H, M, E))
#         dK = zeros((B, H, N, E))
#         dV = zeros((B, H, N, D))
#         drate = zeros(H)
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for j in range(0, min(N, i + 1)):
#                         s_sum = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                         s = s_sum * (1.0 / sqrt(E))
#                         ds_sum = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))
#                         ds = exp(-rate[h] * (i - j)) * ds_sum
#                         ds_sum_2 = ds / sqrt(E)
#                         drate_part[b, h, i] = drate_part[b, h, i] - s * exp(
#                             -rate[h] * (i - j)
#                         ) * (i - j) * ds_sum
#                         for e in range(0, E):
#                             dQ[b, h, i, e] = dQ[b, h, i, e] + ds_sum_2 * K[b, h, j, e]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for j in range(0, N):
#                     for i in range(0, M):
#                         if j < i + 1:
#                             ds_sum_3 = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))
#                             ds_2 = exp(-rate[h] * (i - j)) * ds_sum_3
#                             ds_sum_2_2 = ds_2 / sqrt(E)
#                             s_sum_2 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                             s_2 = s_sum_2 * (1.0 / sqrt(E))
#                             for e in range(0, E):
#                                 dK[b, h, j, e] = dK[b, h, j, e] + ds_sum_2_2 * Q[b, h, i, e]
#                             for d in range(0, D):
#                                 dV[b, h, j, d] = dV[b, h, j, d] + dO[b, h, i, d] * s_2 * exp(
#                                     -rate[h] * (i - j)
#                                 )
#         for h in range(0, H):
#             for b in range(0, B):
#                 for i in range(0, M):
#                     drate[h] = drate[h] + drate_part[b, h, i]
#         return dQ, dK, dV, drate
#
# The steps from there to the forward kernels:
#   1. run b, h, i and d in parallel, s and P private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def attention_retention(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         rate: Float[Array, "H"]
#     ):
#         O = zeros((B, H, M, D))
#         for b in parallel(0, B):
#             private: (s, P)
#             for h in parallel(0, H):
#                 private: (s, P)
#                 for i in parallel(0, M):
#                     private: (s, P)
#                     for j in range(0, min(N, i + 1)):
#                         # S1: the scaled score
#                         s = sum(
#                             Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)
#                         ) * (1.0 / sqrt(E))
#                         P = s * exp(-rate[h] * (i - j))  # S2: decayed with the distance
#                         for d in parallel(0, D):
#                             # S3: the weighted sum of the rows of V
#                             O[b, h, i, d] = O[b, h, i, d] + P * V[b, h, j, d]
#         return O
#
# The steps from there to the backward kernels:
#   1. run b, h, i, e, j and d in parallel, s_sum, s, ds_sum, ds, ds_sum_2, ds_sum_3, ds_2,
#      ds_sum_2_2, s_sum_2 and s_2 private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def attention_retention_backward(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         rate: Float[Array, "H"],
#         dO: Float[Array, "B H M D"]
#     ):
#         drate_part = zeros((B, H, M), dtype=float32)
#         dQ = zeros((B, H, M, E))
#         dK = zeros((B, H, N, E))
#         dV = zeros((B, H, N, D))
#         drate = zeros(H)
#         for b in parallel(0, B):
#             private: (s_sum, s, ds_sum, ds, ds_sum_2)
#             for h in parallel(0, H):
#                 private: (s_sum, s, ds_sum, ds, ds_sum_2)
#                 for i in parallel(0, M):
#                     private: (s_sum, s, ds_sum, ds, ds_sum_2)
#                     for j in range(0, min(N, i + 1)):
#                         s_sum = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S1
#                         s = s_sum * (1.0 / sqrt(E))  # S2
#                         ds_sum = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))  # S3
#                         ds = exp(-rate[h] * (i - j)) * ds_sum  # S4
#                         ds_sum_2 = ds / sqrt(E)  # S5
#                         # S6
#                         drate_part[b, h, i] = drate_part[b, h, i] - s * exp(
#                             -rate[h] * (i - j)
#                         ) * (i - j) * ds_sum
#                         for e in parallel(0, E):
#                             dQ[b, h, i, e] = dQ[b, h, i, e] + ds_sum_2 * K[b, h, j, e]  # S7
#         for b in parallel(0, B):
#             private: (ds_sum_3, ds_2, ds_sum_2_2, s_sum_2, s_2)
#             for h in parallel(0, H):
#                 private: (ds_sum_3, ds_2, ds_sum_2_2, s_sum_2, s_2)
#                 for j in parallel(0, N):
#                     private: (ds_sum_3, ds_2, ds_sum_2_2, s_sum_2, s_2)
#                     for i in range(0, M):
#                         if j < i + 1:
#                             # S8
#                             ds_sum_3 = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))
#                             ds_2 = exp(-rate[h] * (i - j)) * ds_sum_3  # S9
#                             ds_sum_2_2 = ds_2 / sqrt(E)  # S10
#                             # S11
#                             s_sum_2 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                             s_2 = s_sum_2 * (1.0 / sqrt(E))  # S12
#                             for e in parallel(0, E):
#                                 # S13
#                                 dK[b, h, j, e] = dK[b, h, j, e] + ds_sum_2_2 * Q[b, h, i, e]
#                             for d in parallel(0, D):
#                                 # S14
#                                 dV[b, h, j, d] = dV[b, h, j, d] + dO[b, h, i, d] * s_2 * exp(
#                                     -rate[h] * (i - j)
#                                 )
#         for h in parallel(0, H):
#             for b in range(0, B):
#                 for i in range(0, M):
#                     drate[h] = drate[h] + drate_part[b, h, i]  # S15
#         return dQ, dK, dV, drate
#
# Notes:
#   - the loop b runs one iteration at a time in each program: the loop i inside carries values of
#     the state

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
def attention_retention_kernel(
    Q_ptr, K_ptr, V_ptr, rate_ptr, O_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_rate_h,
    stride_O_b, stride_O_h, stride_O_i, stride_O_d,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    LATE: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), rate (H,).
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

    O = _hidden_zeros(BLOCK_I, BLOCK_D, 0, M)  # no constants, or ptxas lets each product wait
    j_stop = tl.minimum(N, i_last + 1)  # no row goes further
    # blocks before this one are full
    j_full = tl.maximum(tl.minimum(N, i_first + 1), 0) // BLOCK_J * BLOCK_J
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S1
    rate_h = tl.load(rate_ptr + h * stride_rate_h)  # S2
    if LATE:
        P_late = tl.zeros([BLOCK_I, BLOCK_J], tl.float32)
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
        s = tl.dot(
            Q_ie, tl.trans(K_je), input_precision="ieee"
        ) * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S1
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S3
            # S3: of the block before
            O = _dot_widened(P_late, V_jd.to(tl.float32), O, V_ptr.dtype.element_ty, "left")
        P = s * tl.exp2(
            -(
                (i[:, None] - j[None, :]).to(tl.float32)
                * (rate_h.to(tl.float32) * 1.4426950408889634)
            )
        )  # S2
        if LATE:
            P_late = P
            j_late = j
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
            )  # S3
            O = _dot_widened(P, V_jd.to(tl.float32), O, V_ptr.dtype.element_ty, "left")  # S3
    # Some rows have ended.
    for j_first in range(j_full, j_stop, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < j_stop) & e_in[None, :],
            other=0.0
        )  # S1
        s = tl.dot(
            Q_ie, tl.trans(K_je), input_precision="ieee"
        ) * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S1
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S3
            # S3: of the block before
            O = _dot_widened(P_late, V_jd.to(tl.float32), O, V_ptr.dtype.element_ty, "left")
        P = s * tl.exp2(
            -(
                (i[:, None] - j[None, :]).to(tl.float32)
                * (rate_h.to(tl.float32) * 1.4426950408889634)
            )
        )  # S2
        if LATE:
            P_late = tl.where(
                tl.arange(0, BLOCK_J)[None, :] < tl.minimum(j_stop, i + 1)[:, None] - j_first,
                P,
                0.0
            )
            j_late = tl.where(j < j_stop, j, -1)
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j,
                mask=(j[:, None] < j_stop) & d_in[None, :],
                other=0.0
            )  # S3
            O = _dot_widened(
                tl.where(
                    tl.arange(0, BLOCK_J)[None, :] < tl.minimum(j_stop, i + 1)[:, None] - j_first,
                    P,
                    0.0
                ),
                V_jd.to(tl.float32),
                O,
                V_ptr.dtype.element_ty,
                "left"
            )  # S3
    if LATE:
        V_jd = tl.load(
            V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
            mask=(j_late[:, None] >= 0) & d_in[None, :],
            other=0.0
        )  # S3
        # S3: of the block before
        O = _dot_widened(P_late, V_jd.to(tl.float32), O, V_ptr.dtype.element_ty, "left")
    tl.store(
        O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
        O,
        mask=(i[:, None] < M) & d_in[None, :]
    )  # S3


def attention_retention_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J, "LATE": LATE}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_retention_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_J, BLOCK_D, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * BLOCK_I * BLOCK_E + 4 * BLOCK_J * BLOCK_D + num_stages * width * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    )
    held = BLOCK_I * BLOCK_D + 2 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_retention_kernel_default = {
    2: attention_retention_kernel_config(128, 32, 0, 8, 3),
    4: attention_retention_kernel_config(32, 32, 0, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_retention_kernel_tuned = {
    2: _Tuned(
        attention_retention_kernel,
        [
            attention_retention_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((128, 8), (64, 4), (128, 4)), (32, 64, 128), (0, 1), (3, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_retention_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_retention_kernel,
        [
            attention_retention_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (0,), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_retention_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_retention_backward_dQ_kernel(
    Q_ptr, K_ptr, V_ptr, rate_ptr, dO_ptr, drate_part_ptr, dQ_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_rate_h,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_drate_part_b, stride_drate_part_h, stride_drate_part_i,
    stride_dQ_b, stride_dQ_h, stride_dQ_i, stride_dQ_e,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), rate (H,), dO (B, H, M, D).
    Writes drate_part (B, H, M), dQ (B, H, M, E).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    # The last blocks of i have most to do: they begin first.
    b = pid // blocks_i // H
    h = pid // blocks_i % H
    i_first = (blocks_i - 1 - pid % blocks_i) * BLOCK_I
    i_last = tl.minimum(i_first + BLOCK_I, M) - 1
    i = i_first + tl.arange(0, BLOCK_I)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
    # What is the same throughout the program goes into the pointers.
    Q_ptr += b * stride_Q_b
    Q_ptr += h * stride_Q_h
    K_ptr += b * stride_K_b
    K_ptr += h * stride_K_h
    V_ptr += b * stride_V_b
    V_ptr += h * stride_V_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    if drate_part_ptr is not None:
        drate_part_ptr += b * stride_drate_part_b
        drate_part_ptr += h * stride_drate_part_h
    if dQ_ptr is not None:
        dQ_ptr += b * stride_dQ_b
        dQ_ptr += h * stride_dQ_h

    drate_part = tl.zeros([BLOCK_I], tl.float32)
    dQ = _hidden_zeros(BLOCK_I, BLOCK_E, 0, M)  # no constants, or ptxas lets each product wait
    j_stop = tl.minimum(N, i_last + 1)  # no row goes further
    # blocks before this one are full
    j_full = tl.maximum(tl.minimum(N, i_first + 1), 0) // BLOCK_J * BLOCK_J
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S1
    dO_id = tl.load(
        dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
        mask=(i[:, None] < M) & d_in[None, :],
        other=0.0
    )  # S3
    rate_h = tl.load(rate_ptr + h * stride_rate_h)  # S4
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
        s_sum = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S1
        s = s_sum * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S2
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
        )  # S3
        ds_sum = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S3
        exp_rate_h = tl.exp2(
            -(
                (i[:, None] - j[None, :]).to(tl.float32)
                * (rate_h.to(tl.float32) * 1.4426950408889634)
            )
        )  # S4
        ds = exp_rate_h * ds_sum  # S4
        ds_sum_2 = ds * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S5
        drate_part = drate_part - tl.sum(
            s * exp_rate_h * (i[:, None] - j[None, :]).to(tl.float32) * ds_sum, axis=1
        )  # S6
        dQ = _dot_widened(ds_sum_2, K_je.to(tl.float32), dQ, K_ptr.dtype.element_ty, "left")  # S7
    # Some rows have ended.
    for j_first in range(j_full, j_stop, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < j_stop) & e_in[None, :],
            other=0.0
        )  # S1
        s_sum = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S1
        s = s_sum * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S2
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j,
            mask=(j[:, None] < j_stop) & d_in[None, :],
            other=0.0
        )  # S3
        ds_sum = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S3
        exp_rate_h = tl.exp2(
            -(
                (i[:, None] - j[None, :]).to(tl.float32)
                * (rate_h.to(tl.float32) * 1.4426950408889634)
            )
        )  # S4
        ds = exp_rate_h * ds_sum  # S4
        ds_sum_2 = ds * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S5
        drate_part = drate_part - tl.sum(
            tl.where(
                tl.arange(0, BLOCK_J)[None, :] < tl.minimum(j_stop, i + 1)[:, None] - j_first,
                s * exp_rate_h * (i[:, None] - j[None, :]).to(tl.float32) * ds_sum,
                0.0
            ),
            axis=1
        )  # S6
        dQ = _dot_widened(
            tl.where(
                tl.arange(0, BLOCK_J)[None, :] < tl.minimum(j_stop, i + 1)[:, None] - j_first,
                ds_sum_2,
                0.0
            ),
            K_je.to(tl.float32),
            dQ,
            K_ptr.dtype.element_ty,
            "left"
        )  # S7
    if drate_part_ptr is not None:
        tl.store(drate_part_ptr + i * stride_drate_part_i, drate_part, mask=i < M)  # S6
    if dQ_ptr is not None:
        tl.store(
            dQ_ptr + i[:, None] * stride_dQ_i + e[None, :] * stride_dQ_e,
            dQ,
            mask=(i[:, None] < M) & e_in[None, :]
        )  # S7


def attention_retention_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_retention_backward_dQ_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_D, BLOCK_J, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D
    ) + 4 * BLOCK_J * BLOCK_E + num_stages * width * (BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D)
    held = BLOCK_I * BLOCK_E + 3 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_retention_backward_dQ_kernel_default = {
    2: attention_retention_backward_dQ_kernel_config(128, 32, 8, 3),
    4: attention_retention_backward_dQ_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_retention_backward_dQ_kernel_tuned = {
    2: _Tuned(
        attention_retention_backward_dQ_kernel,
        [
            attention_retention_backward_dQ_kernel_config(*row)
            for row in itertools.product((128, 64), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_retention_backward_dQ_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_retention_backward_dQ_kernel,
        [
            attention_retention_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_retention_backward_dQ_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_retention_backward_dK_dV_kernel(
    Q_ptr, K_ptr, V_ptr, rate_ptr, dO_ptr, dK_ptr, dV_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_rate_h,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_dK_b, stride_dK_h, stride_dK_j, stride_dK_e,
    stride_dV_b, stride_dV_h, stride_dV_j, stride_dV_d,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_J iterations of j, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), rate (H,), dO (B, H, M, D).
    Writes dK (B, H, N, E), dV (B, H, N, D).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_j = tl.cdiv(N, BLOCK_J)
    b = pid // blocks_j // H
    h = pid // blocks_j % H
    j_first = (pid % blocks_j) * BLOCK_J
    j_last = tl.minimum(j_first + BLOCK_J, N) - 1
    j = j_first + tl.arange(0, BLOCK_J)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
    # What is the same throughout the program goes into the pointers.
    Q_ptr += b * stride_Q_b
    Q_ptr += h * stride_Q_h
    K_ptr += b * stride_K_b
    K_ptr += h * stride_K_h
    V_ptr += b * stride_V_b
    V_ptr += h * stride_V_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    if dK_ptr is not None:
        dK_ptr += b * stride_dK_b
        dK_ptr += h * stride_dK_h
    if dV_ptr is not None:
        dV_ptr += b * stride_dV_b
        dV_ptr += h * stride_dV_h

    dK = _hidden_zeros(BLOCK_J, BLOCK_E, 0, N)  # no constants, or ptxas lets each product wait
    dV = _hidden_zeros(BLOCK_J, BLOCK_D, 1, N)  # no constants, or ptxas lets each product wait
    i_start = tl.maximum(0, j_first)  # no row begins earlier
    # all rows have begun
    i_begun = i_start + (
        tl.maximum(tl.maximum(0, j_last) - i_start, 0) + BLOCK_I - 1
    ) // BLOCK_I * BLOCK_I
    # blocks before this one are full
    i_full = i_begun + tl.maximum(M - i_begun, 0) // BLOCK_I * BLOCK_I
    V_jd = tl.load(
        V_ptr + j[:, None] * stride_V_j + d[None, :] * stride_V_d,
        mask=(j[:, None] < N) & d_in[None, :],
        other=0.0
    )  # S8
    rate_h = tl.load(rate_ptr + h * stride_rate_h)  # S9
    K_je = tl.load(
        K_ptr + j[:, None] * stride_K_j + e[None, :] * stride_K_e,
        mask=(j[:, None] < N) & e_in[None, :],
        other=0.0
    )  # S11
    # What is read as it would be in a block that begins at 0.
    i_at = tl.arange(0, BLOCK_I).to(INDEX)
    dO_at = dO_ptr + i_at[:, None] * stride_dO_i + d[None, :] * stride_dO_d
    Q_at = Q_ptr + i_at[:, None] * stride_Q_i + e[None, :] * stride_Q_e
    # Full blocks.
    for i_first in range(i_begun, i_full, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dO_id = tl.load(
            dO_at + tl.cast(i_first, INDEX) * stride_dO_i, mask=d_in[None, :], other=0.0
        )  # S8
        ds_sum_3 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S8
        exp_rate_h = tl.exp2(
            -(
                (i[None, :] - j[:, None]).to(tl.float32)
                * (rate_h.to(tl.float32) * 1.4426950408889634)
            )
        )  # S9
        ds_2 = exp_rate_h * ds_sum_3  # S9
        ds_sum_2_2 = ds_2 * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S10
        Q_ie = tl.load(
            Q_at + tl.cast(i_first, INDEX) * stride_Q_i, mask=e_in[None, :], other=0.0
        )  # S11
        s_sum_2 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S11
        s_2 = s_sum_2 * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S12
        dK = _dot_widened(
            ds_sum_2_2, Q_ie.to(tl.float32), dK, Q_ptr.dtype.element_ty, "left"
        )  # S13
        dV = _dot_widened(
            s_2 * exp_rate_h, dO_id.to(tl.float32), dV, dO_ptr.dtype.element_ty, "left"
        )  # S14
    # Some rows have not begun, or have ended.
    for i_from in range(i_start, M - (i_full - i_begun), BLOCK_I):
        i_first = i_from + tl.where(i_from < i_begun, 0, i_full - i_begun)
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dO_id = tl.load(
            dO_at + tl.cast(i_first, INDEX) * stride_dO_i,
            mask=(i[:, None] < M) & d_in[None, :],
            other=0.0
        )  # S8
        ds_sum_3 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S8
        exp_rate_h = tl.exp2(
            -(
                (i[None, :] - j[:, None]).to(tl.float32)
                * (rate_h.to(tl.float32) * 1.4426950408889634)
            )
        )  # S9
        ds_2 = exp_rate_h * ds_sum_3  # S9
        ds_sum_2_2 = ds_2 * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S10
        Q_ie = tl.load(
            Q_at + tl.cast(i_first, INDEX) * stride_Q_i,
            mask=(i[:, None] < M) & e_in[None, :],
            other=0.0
        )  # S11
        s_sum_2 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S11
        s_2 = s_sum_2 * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S12
        dK = _dot_widened(
            tl.where(
                (tl.arange(0, BLOCK_I)[None, :] >= j[:, None] - i_first) & (i[None, :] < M),
                ds_sum_2_2,
                0.0
            ),
            Q_ie.to(tl.float32),
            dK,
            Q_ptr.dtype.element_ty,
            "left"
        )  # S13
        dV = _dot_widened(
            tl.where(
                (tl.arange(0, BLOCK_I)[None, :] >= j[:, None] - i_first) & (i[None, :] < M),
                s_2 * exp_rate_h,
                0.0
            ),
            dO_id.to(tl.float32),
            dV,
            dO_ptr.dtype.element_ty,
            "left"
        )  # S14
    if dK_ptr is not None:
        tl.store(
            dK_ptr + j[:, None] * stride_dK_j + e[None, :] * stride_dK_e,
            dK,
            mask=(j[:, None] < N) & e_in[None, :]
        )  # S13
    if dV_ptr is not None:
        tl.store(
            dV_ptr + j[:, None] * stride_dV_j + d[None, :] * stride_dV_d,
            dV,
            mask=(j[:, None] < N) & d_in[None, :]
        )  # S14


def attention_retention_backward_dK_dV_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_retention_backward_dK_dV_kernel_footprint(
    width, /, num_stages, BLOCK_J, BLOCK_D, BLOCK_E, BLOCK_I, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (BLOCK_J * BLOCK_D + BLOCK_J * BLOCK_E) + 4 * (
        BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D
    ) + num_stages * width * (BLOCK_I * BLOCK_D + BLOCK_I * BLOCK_E)
    held = BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D + 3 * BLOCK_J * BLOCK_I
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_retention_backward_dK_dV_kernel_default = {
    2: attention_retention_backward_dK_dV_kernel_config(64, 32, 8, 3),
    4: attention_retention_backward_dK_dV_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_retention_backward_dK_dV_kernel_tuned = {
    2: _Tuned(
        attention_retention_backward_dK_dV_kernel,
        [
            attention_retention_backward_dK_dV_kernel_config(*row)
            for row in itertools.product((64, 128), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_retention_backward_dK_dV_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_retention_backward_dK_dV_kernel,
        [
            attention_retention_backward_dK_dV_kernel_config(
                BLOCK_J, BLOCK_I, num_warps, num_stages
            )
            for (BLOCK_J, num_warps), BLOCK_I, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_retention_backward_dK_dV_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_retention_backward_drate_kernel(
    drate_part_ptr, drate_ptr,
    stride_drate_part_b, stride_drate_part_h, stride_drate_part_i,
    stride_drate_h,
    B, H, M,
    INDEX: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_I: tl.constexpr,
):
    """A program does BLOCK_H iterations of h.

    Reads drate_part (B, H, M).
    Writes drate (H,).
    """
    pid = tl.program_id(0).to(INDEX)
    h = pid * BLOCK_H + tl.arange(0, BLOCK_H)

    drate = tl.zeros([BLOCK_H], tl.float32)
    # The loop i inside carries values of the state.
    for b in range(tl.cast(0, INDEX), B):
        i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
        # Full blocks.
        for i_first in range(0, i_full, BLOCK_I):
            i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
            drate_part_hi = tl.load(
                drate_part_ptr
                + b * stride_drate_part_b
                + h[:, None] * stride_drate_part_h
                + i[None, :] * stride_drate_part_i,
                mask=h[:, None] < H,
                other=0.0
            )  # S15
            drate = drate + tl.sum(drate_part_hi.to(tl.float32), axis=1)  # S15
        # The last, partial block.
        for i_first in range(i_full, M, BLOCK_I):
            i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
            drate_part_hi = tl.load(
                drate_part_ptr
                + b * stride_drate_part_b
                + h[:, None] * stride_drate_part_h
                + i[None, :] * stride_drate_part_i,
                mask=(h[:, None] < H) & (i[None, :] < M),
                other=0.0
            )  # S15
            drate = drate + tl.sum(drate_part_hi.to(tl.float32), axis=1)  # S15
    tl.store(drate_ptr + h * stride_drate_h, drate, mask=h < H)  # S15


def attention_retention_backward_drate_kernel_config(BLOCK_H, BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_H": BLOCK_H, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_retention_backward_drate_kernel_default = (
    attention_retention_backward_drate_kernel_config(4, 512, 4, 2)
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_retention_backward_drate_kernel_tuned = _Tuned(
    attention_retention_backward_drate_kernel,
    [
        attention_retention_backward_drate_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["B", "H", "M"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(attention_retention_kernel, triton.JITFunction)
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


def _given(*tensors):
    """Return the tensors that are not None."""
    return [tensor for tensor in tensors if tensor is not None]


def _strides(tensor, *axes):
    """Return strides of a tensor; where it is None, zeros, which nothing looks at."""
    return [0 if tensor is None else tensor.stride(axis) for axis in axes]


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


def attention_retention_forward(Q, K, V, rate, *, tune=True):
    """Run attention_retention, and return what its gradients need besides.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        rate: (H,), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (B, H, M, D).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 4, _FLOAT), ("K", K, 4, _FLOAT), ("V", V, 4, _FLOAT), ("rate", rate, 1, _FLOAT)
    )
    B, H, M, E = Q.shape
    N = K.shape[2]
    D = V.shape[3]
    _check_shape(
        "K", K, (B, H, N, E), "(B, H, N, E) with B = Q.shape[0], H = Q.shape[1] and E = Q.shape[3]"
    )
    _check_shape(
        "V", V, (B, H, N, D), "(B, H, N, D) with B = Q.shape[0], H = Q.shape[1] and N = K.shape[2]"
    )
    _check_shape("rate", rate, (H,), "(H,) with H = Q.shape[1]")
    O = torch.empty((B, H, M, D), dtype=Q.dtype, device=Q.device)
    index = _index_type(Q, K, V, rate, O)
    width = Q.element_size()

    lanes = {
        "BLOCK_D": max(16, triton.next_power_of_2(D)), "BLOCK_E": max(16, triton.next_power_of_2(E))
    }
    if _INTERPRETED or not tune:
        run = attention_retention_kernel
        blocks = _fitted(
            attention_retention_kernel_default[width],
            attention_retention_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_retention_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, rate, O,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *rate.stride(),
                *O.stride(),
                H, M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return (O,)


def attention_retention_backward(Q, K, V, rate, dO, *, wanted=None, tune=True):
    """Return the gradients of attention_retention.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        rate: (H,), float16, bfloat16 or float32, any strides.
        dO: (B, H, M, D), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dQ (B, H, M, E), dK (B, H, N, E), dV (B, H, N, D), drate (H,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 4, _FLOAT), ("K", K, 4, _FLOAT), ("V", V, 4, _FLOAT), ("rate", rate, 1, _FLOAT),
        ("dO", dO, 4, _FLOAT)
    )
    B, H, M, E = Q.shape
    N = K.shape[2]
    D = V.shape[3]
    _check_shape(
        "K", K, (B, H, N, E), "(B, H, N, E) with B = Q.shape[0], H = Q.shape[1] and E = Q.shape[3]"
    )
    _check_shape(
        "V", V, (B, H, N, D), "(B, H, N, D) with B = Q.shape[0], H = Q.shape[1] and N = K.shape[2]"
    )
    _check_shape("rate", rate, (H,), "(H,) with H = Q.shape[1]")
    _check_shape(
        "dO",
        dO,
        (B, H, M, D),
        "(B, H, M, D) with B = Q.shape[0], H = Q.shape[1], M = Q.shape[2] and D = V.shape[3]"
    )
    wanted = _wanted(wanted, ("dQ", "dK", "dV", "drate"))
    drate_part = None
    if "drate" in wanted:
        drate_part = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    dQ = None
    if "dQ" in wanted:
        dQ = torch.empty((B, H, M, E), dtype=Q.dtype, device=Q.device)
    dK = None
    if "dK" in wanted:
        dK = torch.empty((B, H, N, E), dtype=Q.dtype, device=Q.device)
    dV = None
    if "dV" in wanted:
        dV = torch.empty((B, H, N, D), dtype=Q.dtype, device=Q.device)
    drate = None
    if "drate" in wanted:
        drate = torch.empty((H,), dtype=Q.dtype, device=Q.device)
    index = _index_type(*_given(Q, K, V, rate, dO, drate_part, dQ, dK, dV, drate))
    width = Q.element_size()

    lanes = {
        "BLOCK_E": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = attention_retention_backward_dQ_kernel
        blocks = _fitted(
            attention_retention_backward_dQ_kernel_default[width],
            attention_retention_backward_dQ_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_retention_backward_dQ_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0 and wanted & {"dQ", "drate"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, rate, dO, drate_part, dQ,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *rate.stride(),
                *dO.stride(),
                *_strides(drate_part, 0, 1, 2),
                *_strides(dQ, 0, 1, 2, 3),
                H, M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    lanes = {
        "BLOCK_E": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = attention_retention_backward_dK_dV_kernel
        blocks = _fitted(
            attention_retention_backward_dK_dV_kernel_default[width],
            attention_retention_backward_dK_dV_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_retention_backward_dK_dV_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(N, meta["BLOCK_J"]),)

    if min(B, H, N) > 0 and wanted & {"dK", "dV"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, rate, dO, dK, dV,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *rate.stride(),
                *dO.stride(),
                *_strides(dK, 0, 1, 2, 3),
                *_strides(dV, 0, 1, 2, 3),
                H, M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = attention_retention_backward_drate_kernel
        blocks = attention_retention_backward_drate_kernel_default.all_kwargs()
    else:
        run = attention_retention_backward_drate_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(H, meta["BLOCK_H"]),)

    if H > 0 and "drate" in wanted:
        with torch.cuda.device_of(Q):
            run[grid](
                drate_part, drate,
                *drate_part.stride(),
                *drate.stride(),
                B, H, M,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return dQ, dK, dV, drate


@torch.library.custom_op(_free("attention_retention_forward_28ff0d54"), mutates_args=())
def _attention_retention_forward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, rate: torch.Tensor, tune: bool
) -> torch.Tensor:
    return attention_retention_forward(Q, K, V, rate, tune=tune)[0]


@_attention_retention_forward_operator.register_fake
def _(Q, K, V, rate, tune):
    B = Q.shape[0]
    H = Q.shape[1]
    M = Q.shape[2]
    D = V.shape[3]
    return torch.empty((B, H, M, D), dtype=Q.dtype, device=Q.device)


@torch.library.custom_op(_free("attention_retention_backward_28ff0d54"), mutates_args=())
def _attention_retention_backward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, rate: torch.Tensor, dO: torch.Tensor,
    wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = attention_retention_backward(
        Q,
        K,
        V,
        rate,
        dO,
        wanted=[name for name, each in zip(("dQ", "dK", "dV", "drate"), wanted) if each],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_attention_retention_backward_operator.register_fake
def _(Q, K, V, rate, dO, wanted, tune):
    B = Q.shape[0]
    H = Q.shape[1]
    M = Q.shape[2]
    E = Q.shape[3]
    N = K.shape[2]
    D = V.shape[3]
    found = (
        torch.empty((B, H, M, E), dtype=Q.dtype, device=Q.device),
        torch.empty((B, H, N, E), dtype=Q.dtype, device=Q.device),
        torch.empty((B, H, N, D), dtype=Q.dtype, device=Q.device),
        torch.empty((H,), dtype=Q.dtype, device=Q.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _attention_retention_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    Q, K, V, rate, tune = inputs
    O = output
    ctx.save_for_backward(Q, K, V, rate)
    ctx.numbers = (tune,)
    ctx.like = (_like(O),)
    ctx.set_materialize_grads(False)


def _attention_retention_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    (dO,) = found
    Q, K, V, rate = ctx.saved_tensors
    (tune,) = ctx.numbers
    (O_like,) = ctx.like
    if dO is None:
        dO = _zeros(*O_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1], needed[2], needed[3]]
    found = iter(_attention_retention_backward_operator(Q, K, V, rate, dO, wanted, tune))
    dQ, dK, dV, drate = (next(found) if each else None for each in wanted)
    return dQ, dK, dV, drate, None


def _attention_retention_second(ctx, *found):
    raise RuntimeError(
        "attention_retention has no second derivative: its backward pass is derived once. Call "
        "backward without create_graph=True"
    )


_attention_retention_forward_operator.register_autograd(
    _attention_retention_gradients, setup_context=_attention_retention_keep
)
_attention_retention_backward_operator.register_autograd(_attention_retention_second)


def attention_retention(Q, K, V, rate, *, tune=True):
    """Retention for a batch of heads. Differentiable: gradients come from
    attention_retention_backward.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        rate: (H,), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (B, H, M, D).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    return _attention_retention_forward_operator(Q, K, V, rate, tune)
