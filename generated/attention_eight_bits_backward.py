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
# The steps from there to its backward pass, with what each leans on:
#   1. define every array once (storage: every read gets the value that was written last above it)
#   2. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   3. reassociate a contraction (algebra: sum(P[b, h, i, j] * V_scale[b, h, j] * dP_sum[b, h, i, j]
#      for j in range(0, N)) = sum(dO[b, h, i, d] * O[b, h, i, d] for d in range(0, D)))
#   4. do a sum term by term (algebra: -(sum(dP[b, h, i, j] * P[b, h, i, j] for j in range(0, N)) /
#      l[b, h, i]) = -(sum(dO[b, h, i, d] * O[b, h, i, d] for d in range(0, D)) / l[b, h, i]))
#   5. do a sum term by term (algebra: -sum(dP[b, h, i, j] * P[b, h, i, j] for j in range(0, N)) =
#      -delta[b, h, i])
#   6. dm vanishes (algebra: dm = 0)
#   7. work P out from lse: keep lse = m[b, h, i] + log(l[b, h, i]) for each sum (algebra: P[b, h,
#      i, j] = exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] = exp(S[b, h, i, j] - lse[b, h, i]))
#   8. take dlse into delta (algebra: dP + dlse[b, h, i] - delta[b, h, i] = dP - delta[b, h, i] with
#      delta[b, h, i] - dlse[b, h, i] for delta; rounding: dlse is added to the sum first)
#   9. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def attention_eight_bits_backward(
#         Q: Float[Array, "B H M E"],
#         K: Int8[Array, "B H N E"],
#         K_scale: Float[Array, "B H N"],
#         V: Int8[Array, "B H N D"],
#         V_scale: Float[Array, "B H N"],
#         scale: float,
#         lse: Float32[Array, "B H M"],
#         O: Float[Array, "B H M D"],
#         dO: Float[Array, "B H M D"],
#         dlse: Float32[Array, "B H M"]
#     ):
#         delta = zeros((B, H, M), dtype=float32)
#         dscale_part = zeros((B, H, M), dtype=float32)
#         dQ = zeros((B, H, M, E))
#         dK_scale = zeros((B, H, N))
#         dV_scale = zeros((B, H, N))
#         dscale = 0.0
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for d in range(0, D):
#                         delta[b, h, i] = delta[b, h, i] + dO[b, h, i, d] * O[b, h, i, d]
#                     delta[b, h, i] = delta[b, h, i] - dlse[b, h, i]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for j in range(0, N):
#                         S_sum = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                         S = scale * K_scale[b, h, j] * S_sum
#                         P = exp(S - lse[b, h, i]) if lse[b, h, i] > -inf else 0.0
#                         dP_sum = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))
#                         dP = V_scale[b, h, j] * dP_sum
#                         dS = P * (dP - delta[b, h, i])
#                         dS_sum = dS * scale * K_scale[b, h, j]
#                         dscale_part[b, h, i] = (
#                             dscale_part[b, h, i] + dS * S_sum * K_scale[b, h, j]
#                         )
#                         for e in range(0, E):
#                             dQ[b, h, i, e] = dQ[b, h, i, e] + dS_sum * K[b, h, j, e]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for j in range(0, N):
#                     for i in range(0, M):
#                         S_sum_2 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                         S_2 = scale * K_scale[b, h, j] * S_sum_2
#                         P_2 = exp(S_2 - lse[b, h, i]) if lse[b, h, i] > -inf else 0.0
#                         dP_sum_2 = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))
#                         dP_2 = V_scale[b, h, j] * dP_sum_2
#                         dS_2 = P_2 * (dP_2 - delta[b, h, i])
#                         dK_scale[b, h, j] = dK_scale[b, h, j] + dS_2 * S_sum_2 * scale
#                         dV_scale[b, h, j] = dV_scale[b, h, j] + P_2 * dP_sum_2
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     dscale = dscale + dscale_part[b, h, i]
#         return dQ, dK_scale, dV_scale, dscale
#
# The steps from there to the forward kernels:
#   1. one pass instead of 3: m, l and O[b, h, i, d] move together
#   2. change of state: the loop keeps O[b, h, i, d] * l, and one division stands behind it; nothing
#      moves before m does
#   3. keep S in a scalar: nothing else reads it
#   4. run b, h, i and d in parallel, m, l, S_bhij and m_bhij private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
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
#
# The steps from there to the backward kernels:
#   1. each iteration of b and h keeps what it adds to dscale, which is added up afterwards
#   2. run b, h, i, e and j in parallel, S_sum, S, P, dP_sum, dP, dS, dS_sum, S_sum_2, S_2, P_2,
#      dP_sum_2, dP_2 and dS_2 private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def attention_eight_bits_backward(
#         Q: Float[Array, "B H M E"],
#         K: Int8[Array, "B H N E"],
#         K_scale: Float[Array, "B H N"],
#         V: Int8[Array, "B H N D"],
#         V_scale: Float[Array, "B H N"],
#         scale: float,
#         lse: Float32[Array, "B H M"],
#         O: Float[Array, "B H M D"],
#         dO: Float[Array, "B H M D"],
#         dlse: Float32[Array, "B H M"]
#     ):
#         dscale_part1 = zeros(B * H)
#         delta = zeros((B, H, M), dtype=float32)
#         dscale_part = zeros((B, H, M), dtype=float32)
#         dQ = zeros((B, H, M, E))
#         dK_scale = zeros((B, H, N))
#         dV_scale = zeros((B, H, N))
#         dscale = 0.0  # S1
#         for b in parallel(0, B):
#             for h in parallel(0, H):
#                 for i in parallel(0, M):
#                     for d in range(0, D):
#                         delta[b, h, i] = delta[b, h, i] + dO[b, h, i, d] * O[b, h, i, d]  # S2
#                     delta[b, h, i] = delta[b, h, i] - dlse[b, h, i]  # S3
#         for b in parallel(0, B):
#             private: (S_sum, S, P, dP_sum, dP, dS, dS_sum)
#             for h in parallel(0, H):
#                 private: (S_sum, S, P, dP_sum, dP, dS, dS_sum)
#                 for i in parallel(0, M):
#                     private: (S_sum, S, P, dP_sum, dP, dS, dS_sum)
#                     for j in range(0, N):
#                         S_sum = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S4
#                         S = scale * K_scale[b, h, j] * S_sum  # S5
#                         P = exp(S - lse[b, h, i]) if lse[b, h, i] > -inf else 0.0  # S6
#                         dP_sum = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))  # S7
#                         dP = V_scale[b, h, j] * dP_sum  # S8
#                         dS = P * (dP - delta[b, h, i])  # S9
#                         dS_sum = dS * scale * K_scale[b, h, j]  # S10
#                         # S11
#                         dscale_part[b, h, i] = (
#                             dscale_part[b, h, i] + dS * S_sum * K_scale[b, h, j]
#                         )
#                         for e in parallel(0, E):
#                             dQ[b, h, i, e] = dQ[b, h, i, e] + dS_sum * K[b, h, j, e]  # S12
#         for b in parallel(0, B):
#             private: (S_sum_2, S_2, P_2, dP_sum_2, dP_2, dS_2)
#             for h in parallel(0, H):
#                 private: (S_sum_2, S_2, P_2, dP_sum_2, dP_2, dS_2)
#                 for j in parallel(0, N):
#                     private: (S_sum_2, S_2, P_2, dP_sum_2, dP_2, dS_2)
#                     for i in range(0, M):
#                         S_sum_2 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S13
#                         S_2 = scale * K_scale[b, h, j] * S_sum_2  # S14
#                         P_2 = exp(S_2 - lse[b, h, i]) if lse[b, h, i] > -inf else 0.0  # S15
#                         dP_sum_2 = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))  # S16
#                         dP_2 = V_scale[b, h, j] * dP_sum_2  # S17
#                         dS_2 = P_2 * (dP_2 - delta[b, h, i])  # S18
#                         dK_scale[b, h, j] = dK_scale[b, h, j] + dS_2 * S_sum_2 * scale  # S19
#                         dV_scale[b, h, j] = dV_scale[b, h, j] + P_2 * dP_sum_2  # S20
#         for b in parallel(0, B):
#             for h in parallel(0, H):
#                 for i in range(0, M):
#                     # S21
#                     dscale_part1[b * H + h] = dscale_part1[b * H + h] + dscale_part[b, h, i]
#         for n in range(0, B * H):
#             dscale = dscale + dscale_part1[n]  # S22
#         return dQ, dK_scale, dV_scale, dscale

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


@triton.jit
def attention_eight_bits_backward_delta_kernel(
    O_ptr, dO_ptr, dlse_ptr, delta_ptr,
    stride_O_b, stride_O_h, stride_O_i, stride_O_d,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_dlse_b, stride_dlse_h, stride_dlse_i,
    stride_delta_b, stride_delta_h, stride_delta_i,
    H, M, D,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads O (B, H, M, D), dO (B, H, M, D), dlse (B, H, M).
    Writes delta (B, H, M).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    b = pid // blocks_i // H
    h = pid // blocks_i % H
    i = (pid % blocks_i) * BLOCK_I + tl.arange(0, BLOCK_I)
    # What is the same throughout the program goes into the pointers.
    O_ptr += b * stride_O_b
    O_ptr += h * stride_O_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    dlse_ptr += b * stride_dlse_b
    dlse_ptr += h * stride_dlse_h
    delta_ptr += b * stride_delta_b
    delta_ptr += h * stride_delta_h

    delta = tl.zeros([BLOCK_I], tl.float32)
    d_full = D // BLOCK_D * BLOCK_D  # blocks before this one are full
    # Full blocks.
    for d_first in range(0, d_full, BLOCK_D):
        d = (d_first + tl.arange(0, BLOCK_D)).to(INDEX)
        dO_id = tl.load(
            dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
            mask=i[:, None] < M,
            other=0.0
        )  # S2
        O_id = tl.load(
            O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
            mask=i[:, None] < M,
            other=0.0
        )  # S2
        delta = delta + tl.sum(dO_id.to(tl.float32) * O_id.to(tl.float32), axis=1)  # S2
    # The last, partial block.
    for d_first in range(d_full, D, BLOCK_D):
        d = (d_first + tl.arange(0, BLOCK_D)).to(INDEX)
        dO_id = tl.load(
            dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
            mask=(i[:, None] < M) & (d[None, :] < D),
            other=0.0
        )  # S2
        O_id = tl.load(
            O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
            mask=(i[:, None] < M) & (d[None, :] < D),
            other=0.0
        )  # S2
        delta = delta + tl.sum(dO_id.to(tl.float32) * O_id.to(tl.float32), axis=1)  # S2
    dlse_i = tl.load(dlse_ptr + i * stride_dlse_i, mask=i < M, other=0.0)  # S3
    delta = delta - dlse_i.to(tl.float32)  # S3
    tl.store(delta_ptr + i * stride_delta_i, delta, mask=i < M)  # S3


def attention_eight_bits_backward_delta_kernel_config(BLOCK_I, BLOCK_D, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_D": BLOCK_D}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_eight_bits_backward_delta_kernel_default = (
    attention_eight_bits_backward_delta_kernel_config(4, 512, 4, 2)
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_eight_bits_backward_delta_kernel_tuned = _Tuned(
    attention_eight_bits_backward_delta_kernel,
    [
        attention_eight_bits_backward_delta_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["H", "M", "D"],
)


@triton.jit
def attention_eight_bits_backward_dQ_kernel(
    Q_ptr, K_ptr, K_scale_ptr, V_ptr, V_scale_ptr, lse_ptr, dO_ptr, delta_ptr, dscale_part_ptr,
    dQ_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_K_scale_b, stride_K_scale_h, stride_K_scale_j,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_V_scale_b, stride_V_scale_h, stride_V_scale_j,
    stride_lse_b, stride_lse_h, stride_lse_i,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_delta_b, stride_delta_h, stride_delta_i,
    stride_dscale_part_b, stride_dscale_part_h, stride_dscale_part_i,
    stride_dQ_b, stride_dQ_h, stride_dQ_i, stride_dQ_e,
    scale,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), K_scale (B, H, N), V (B, H, N, D), V_scale (B, H, N),
    lse (B, H, M), dO (B, H, M, D), delta (B, H, M).
    Writes dscale_part (B, H, M), dQ (B, H, M, E).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    b = pid // blocks_i // H
    h = pid // blocks_i % H
    i = (pid % blocks_i) * BLOCK_I + tl.arange(0, BLOCK_I)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
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
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    delta_ptr += b * stride_delta_b
    delta_ptr += h * stride_delta_h
    if dscale_part_ptr is not None:
        dscale_part_ptr += b * stride_dscale_part_b
        dscale_part_ptr += h * stride_dscale_part_h
    if dQ_ptr is not None:
        dQ_ptr += b * stride_dQ_b
        dQ_ptr += h * stride_dQ_h

    S_scale = scale * 1.4426950408889634  # in units of log2(e)
    dscale_part = tl.zeros([BLOCK_I], tl.float32)
    dQ = _hidden_zeros(BLOCK_I, BLOCK_E, 0, M)  # no constants, or ptxas lets each product wait
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S4
    lse_i = tl.load(lse_ptr + i * stride_lse_i, mask=i < M, other=0.0)  # S6
    # inf where a row sees nothing
    lse_i_seen = tl.where(lse_i.to(tl.float32) > float("-inf"), lse_i.to(tl.float32), float("inf"))
    dO_id = tl.load(
        dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
        mask=(i[:, None] < M) & d_in[None, :],
        other=0.0
    )  # S7
    delta_i = tl.load(delta_ptr + i * stride_delta_i, mask=i < M, other=0.0)  # S9
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    K_scale_at = K_scale_ptr + j_at * stride_K_scale_j
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    V_scale_at = V_scale_ptr + j_at * stride_V_scale_j
    # Full blocks.
    for j_from in range(0, tl.cast(j_full, tl.int64), BLOCK_J):
        j_first = tl.cast(j_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        K_je = tl.load(K_at + j_first * stride_K_j, mask=e_in[None, :], other=0).to(tl.int32)  # S4
        S_sum = tl.dot(
            Q_ie, tl.trans(K_je.to(tl.float32).to(Q_ptr.dtype.element_ty)), input_precision="ieee"
        )  # S4
        K_scale_j = tl.load(K_scale_at + j_first * stride_K_scale_j)  # S5
        P = tl.exp2(
            K_scale_j.to(tl.float32)[None, :] * S_sum * S_scale
            - (lse_i_seen * 1.4426950408889634)[:, None]
        )  # S5, S6
        V_jd = tl.load(V_at + j_first * stride_V_j, mask=d_in[None, :], other=0).to(tl.int32)  # S7
        dP_sum = tl.dot(
            dO_id, tl.trans(V_jd.to(tl.float32).to(dO_ptr.dtype.element_ty)), input_precision="ieee"
        )  # S7
        V_scale_j = tl.load(V_scale_at + j_first * stride_V_scale_j)  # S8
        dP = V_scale_j.to(tl.float32)[None, :] * dP_sum  # S8
        dS = P * (dP - delta_i.to(tl.float32)[:, None])  # S9
        dscale_part = dscale_part + tl.sum(
            dS * S_sum * K_scale_j.to(tl.float32)[None, :], axis=1
        )  # S11
        dQ = tl.dot(
            (dS * K_scale_j.to(tl.float32)[None, :]).to(K_scale_ptr.dtype.element_ty),
            K_je.to(tl.float32).to(K_scale_ptr.dtype.element_ty),
            dQ,
            input_precision="ieee"
        )  # S12
    # The last, partial block.
    for j_from in range(tl.cast(j_full, tl.int64), tl.cast(N, tl.int64), BLOCK_J):
        j_first = tl.cast(j_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        j = j_first + tl.arange(0, BLOCK_J)
        K_je = tl.load(
            K_at + j_first * stride_K_j, mask=(j[:, None] < N) & e_in[None, :], other=0
        ).to(tl.int32)  # S4
        S_sum = tl.dot(
            Q_ie, tl.trans(K_je.to(tl.float32).to(Q_ptr.dtype.element_ty)), input_precision="ieee"
        )  # S4
        K_scale_j = tl.load(K_scale_at + j_first * stride_K_scale_j, mask=j < N, other=0.0)  # S5
        P = tl.exp2(
            K_scale_j.to(tl.float32)[None, :] * S_sum * S_scale
            - (lse_i_seen * 1.4426950408889634)[:, None]
        )  # S5, S6
        V_jd = tl.load(
            V_at + j_first * stride_V_j, mask=(j[:, None] < N) & d_in[None, :], other=0
        ).to(tl.int32)  # S7
        dP_sum = tl.dot(
            dO_id, tl.trans(V_jd.to(tl.float32).to(dO_ptr.dtype.element_ty)), input_precision="ieee"
        )  # S7
        V_scale_j = tl.load(V_scale_at + j_first * stride_V_scale_j, mask=j < N, other=0.0)  # S8
        dP = V_scale_j.to(tl.float32)[None, :] * dP_sum  # S8
        dS = P * (dP - delta_i.to(tl.float32)[:, None])  # S9
        dscale_part = dscale_part + tl.sum(
            tl.where(j[None, :] < N, dS * S_sum * K_scale_j.to(tl.float32)[None, :], 0.0), axis=1
        )  # S11
        dQ = tl.dot(
            tl.where(
                j[None, :] < N, dS * K_scale_j.to(tl.float32)[None, :], 0.0
            ).to(K_scale_ptr.dtype.element_ty),
            K_je.to(tl.float32).to(K_scale_ptr.dtype.element_ty),
            dQ,
            input_precision="ieee"
        )  # S12
    dQ = dQ * scale  # S10, S12
    if dscale_part_ptr is not None:
        tl.store(dscale_part_ptr + i * stride_dscale_part_i, dscale_part, mask=i < M)  # S11
    if dQ_ptr is not None:
        tl.store(
            dQ_ptr + i[:, None] * stride_dQ_i + e[None, :] * stride_dQ_e,
            dQ,
            mask=(i[:, None] < M) & e_in[None, :]
        )  # S12


def attention_eight_bits_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_eight_bits_backward_dQ_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_D, BLOCK_J, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D
    ) + num_stages * 8 * (BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D)
    held = BLOCK_I * BLOCK_E + 2 * BLOCK_I * BLOCK_J + BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_eight_bits_backward_dQ_kernel_default = {
    2: attention_eight_bits_backward_dQ_kernel_config(128, 32, 8, 2),
    4: attention_eight_bits_backward_dQ_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_eight_bits_backward_dQ_kernel_tuned = {
    2: _Tuned(
        attention_eight_bits_backward_dQ_kernel,
        [
            attention_eight_bits_backward_dQ_kernel_config(*row)
            for row in itertools.product((128, 64), (32, 64, 128), (8, 4), (2, 3))
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_eight_bits_backward_dQ_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_eight_bits_backward_dQ_kernel,
        [
            attention_eight_bits_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_eight_bits_backward_dQ_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_eight_bits_backward_dK_scale_dV_scale_kernel(
    Q_ptr, K_ptr, K_scale_ptr, V_ptr, V_scale_ptr, lse_ptr, dO_ptr, delta_ptr, dK_scale_ptr,
    dV_scale_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_K_scale_b, stride_K_scale_h, stride_K_scale_j,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_V_scale_b, stride_V_scale_h, stride_V_scale_j,
    stride_lse_b, stride_lse_h, stride_lse_i,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_delta_b, stride_delta_h, stride_delta_i,
    stride_dK_scale_b, stride_dK_scale_h, stride_dK_scale_j,
    stride_dV_scale_b, stride_dV_scale_h, stride_dV_scale_j,
    scale,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_J iterations of j, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), K_scale (B, H, N), V (B, H, N, D), V_scale (B, H, N),
    lse (B, H, M), dO (B, H, M, D), delta (B, H, M).
    Writes dK_scale (B, H, N), dV_scale (B, H, N).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_j = tl.cdiv(N, BLOCK_J)
    b = pid // blocks_j // H
    h = pid // blocks_j % H
    j = (pid % blocks_j) * BLOCK_J + tl.arange(0, BLOCK_J)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
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
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    delta_ptr += b * stride_delta_b
    delta_ptr += h * stride_delta_h
    if dK_scale_ptr is not None:
        dK_scale_ptr += b * stride_dK_scale_b
        dK_scale_ptr += h * stride_dK_scale_h
    if dV_scale_ptr is not None:
        dV_scale_ptr += b * stride_dV_scale_b
        dV_scale_ptr += h * stride_dV_scale_h

    S_2_scale = scale * 1.4426950408889634  # in units of log2(e)
    dK_scale = tl.zeros([BLOCK_J], tl.float32)
    dV_scale = tl.zeros([BLOCK_J], tl.float32)
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    K_je = tl.load(
        K_ptr + j[:, None] * stride_K_j + e[None, :] * stride_K_e,
        mask=(j[:, None] < N) & e_in[None, :],
        other=0
    ).to(tl.int32)  # S13
    K_scale_j = tl.load(K_scale_ptr + j * stride_K_scale_j, mask=j < N, other=0.0)  # S14
    V_jd = tl.load(
        V_ptr + j[:, None] * stride_V_j + d[None, :] * stride_V_d,
        mask=(j[:, None] < N) & d_in[None, :],
        other=0
    ).to(tl.int32)  # S16
    V_scale_j = tl.load(V_scale_ptr + j * stride_V_scale_j, mask=j < N, other=0.0)  # S17
    # What is read as it would be in a block that begins at 0.
    i_at = tl.arange(0, BLOCK_I).to(INDEX)
    Q_at = Q_ptr + i_at[:, None] * stride_Q_i + e[None, :] * stride_Q_e
    lse_at = lse_ptr + i_at * stride_lse_i
    dO_at = dO_ptr + i_at[:, None] * stride_dO_i + d[None, :] * stride_dO_d
    delta_at = delta_ptr + i_at * stride_delta_i
    # Full blocks.
    for i_first in range(0, i_full, BLOCK_I):
        Q_ie = tl.load(
            Q_at + tl.cast(i_first, INDEX) * stride_Q_i, mask=e_in[None, :], other=0.0
        )  # S13
        S_sum_2 = tl.dot(
            K_je.to(tl.float32).to(Q_ptr.dtype.element_ty), tl.trans(Q_ie), input_precision="ieee"
        )  # S13
        lse_i = tl.load(lse_at + tl.cast(i_first, INDEX) * stride_lse_i)  # S15
        # inf where a row sees nothing
        lse_i_seen = tl.where(
            lse_i.to(tl.float32) > float("-inf"), lse_i.to(tl.float32), float("inf")
        )
        P_2 = tl.exp2(
            K_scale_j.to(tl.float32)[:, None] * S_sum_2 * S_2_scale
            - (lse_i_seen * 1.4426950408889634)[None, :]
        )  # S14, S15
        dO_id = tl.load(
            dO_at + tl.cast(i_first, INDEX) * stride_dO_i, mask=d_in[None, :], other=0.0
        )  # S16
        dP_sum_2 = tl.dot(
            V_jd.to(tl.float32).to(dO_ptr.dtype.element_ty), tl.trans(dO_id), input_precision="ieee"
        )  # S16
        dP_2 = V_scale_j.to(tl.float32)[:, None] * dP_sum_2  # S17
        delta_i = tl.load(delta_at + tl.cast(i_first, INDEX) * stride_delta_i)  # S18
        dS_2 = P_2 * (dP_2 - delta_i.to(tl.float32)[None, :])  # S18
        dK_scale = dK_scale + tl.sum(dS_2 * S_sum_2, axis=1) * scale  # S19
        dV_scale = dV_scale + tl.sum(P_2 * dP_sum_2, axis=1)  # S20
    # The last, partial block.
    for i_first in range(i_full, M, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        Q_ie = tl.load(
            Q_at + tl.cast(i_first, INDEX) * stride_Q_i,
            mask=(i[:, None] < M) & e_in[None, :],
            other=0.0
        )  # S13
        S_sum_2 = tl.dot(
            K_je.to(tl.float32).to(Q_ptr.dtype.element_ty), tl.trans(Q_ie), input_precision="ieee"
        )  # S13
        lse_i = tl.load(
            lse_at + tl.cast(i_first, INDEX) * stride_lse_i, mask=i < M, other=0.0
        )  # S15
        # inf where a row sees nothing
        lse_i_seen = tl.where(
            lse_i.to(tl.float32) > float("-inf"), lse_i.to(tl.float32), float("inf")
        )
        P_2 = tl.exp2(
            K_scale_j.to(tl.float32)[:, None] * S_sum_2 * S_2_scale
            - (lse_i_seen * 1.4426950408889634)[None, :]
        )  # S14, S15
        dO_id = tl.load(
            dO_at + tl.cast(i_first, INDEX) * stride_dO_i,
            mask=(i[:, None] < M) & d_in[None, :],
            other=0.0
        )  # S16
        dP_sum_2 = tl.dot(
            V_jd.to(tl.float32).to(dO_ptr.dtype.element_ty), tl.trans(dO_id), input_precision="ieee"
        )  # S16
        dP_2 = V_scale_j.to(tl.float32)[:, None] * dP_sum_2  # S17
        delta_i = tl.load(
            delta_at + tl.cast(i_first, INDEX) * stride_delta_i, mask=i < M, other=0.0
        )  # S18
        dS_2 = P_2 * (dP_2 - delta_i.to(tl.float32)[None, :])  # S18
        dK_scale = dK_scale + tl.sum(
            tl.where(i[None, :] < M, dS_2 * S_sum_2, 0.0), axis=1
        ) * scale  # S19
        dV_scale = dV_scale + tl.sum(tl.where(i[None, :] < M, P_2 * dP_sum_2, 0.0), axis=1)  # S20
    if dK_scale_ptr is not None:
        tl.store(dK_scale_ptr + j * stride_dK_scale_j, dK_scale, mask=j < N)  # S19
    if dV_scale_ptr is not None:
        tl.store(dV_scale_ptr + j * stride_dV_scale_j, dV_scale, mask=j < N)  # S20


def attention_eight_bits_backward_dK_scale_dV_scale_kernel_config(
    BLOCK_J, BLOCK_I, num_warps, num_stages
):
    blocks = {"BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_eight_bits_backward_dK_scale_dV_scale_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_D, BLOCK_J, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = num_stages * width * (BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D)
    held = 2 * BLOCK_J * BLOCK_I
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_eight_bits_backward_dK_scale_dV_scale_kernel_default = {
    2: attention_eight_bits_backward_dK_scale_dV_scale_kernel_config(128, 64, 8, 3),
    4: attention_eight_bits_backward_dK_scale_dV_scale_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_eight_bits_backward_dK_scale_dV_scale_kernel_tuned = {
    2: _Tuned(
        attention_eight_bits_backward_dK_scale_dV_scale_kernel,
        [
            attention_eight_bits_backward_dK_scale_dV_scale_kernel_config(
                BLOCK_J, BLOCK_I, num_warps, num_stages
            )
            for (BLOCK_J, num_warps), BLOCK_I, num_stages in itertools.product(
                ((128, 8), (64, 4), (128, 4)), (64, 32, 128), (3, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_eight_bits_backward_dK_scale_dV_scale_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_eight_bits_backward_dK_scale_dV_scale_kernel,
        [
            attention_eight_bits_backward_dK_scale_dV_scale_kernel_config(
                BLOCK_J, BLOCK_I, num_warps, num_stages
            )
            for (BLOCK_J, num_warps), BLOCK_I, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_eight_bits_backward_dK_scale_dV_scale_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_eight_bits_backward_dscale_part1_kernel(
    dscale_part1_ptr, dscale_part_ptr,
    stride_dscale_part1_0,
    stride_dscale_part_b, stride_dscale_part_h, stride_dscale_part_i,
    H, M,
    INDEX: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_I: tl.constexpr,
):
    """A program does BLOCK_H iterations of h, for one b.

    Reads dscale_part (B, H, M).
    Writes dscale_part1 (B * H,).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_h = tl.cdiv(H, BLOCK_H)
    b = pid // blocks_h
    h = (pid % blocks_h) * BLOCK_H + tl.arange(0, BLOCK_H)
    # What is the same throughout the program goes into the pointers.
    dscale_part_ptr += b * stride_dscale_part_b

    dscale_part1 = tl.zeros([BLOCK_H], tl.float32)
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    # Full blocks.
    for i_first in range(0, i_full, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dscale_part_hi = tl.load(
            dscale_part_ptr + h[:, None] * stride_dscale_part_h + i[None, :] * stride_dscale_part_i,
            mask=h[:, None] < H,
            other=0.0
        )  # S21
        dscale_part1 = dscale_part1 + tl.sum(dscale_part_hi.to(tl.float32), axis=1)  # S21
    # The last, partial block.
    for i_first in range(i_full, M, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dscale_part_hi = tl.load(
            dscale_part_ptr + h[:, None] * stride_dscale_part_h + i[None, :] * stride_dscale_part_i,
            mask=(h[:, None] < H) & (i[None, :] < M),
            other=0.0
        )  # S21
        dscale_part1 = dscale_part1 + tl.sum(dscale_part_hi.to(tl.float32), axis=1)  # S21
    tl.store(
        dscale_part1_ptr + (b * H + h) * stride_dscale_part1_0, dscale_part1, mask=h < H
    )  # S21


def attention_eight_bits_backward_dscale_part1_kernel_config(
    BLOCK_H, BLOCK_I, num_warps, num_stages
):
    blocks = {"BLOCK_H": BLOCK_H, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_eight_bits_backward_dscale_part1_kernel_default = (
    attention_eight_bits_backward_dscale_part1_kernel_config(4, 512, 4, 2)
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_eight_bits_backward_dscale_part1_kernel_tuned = _Tuned(
    attention_eight_bits_backward_dscale_part1_kernel,
    [
        attention_eight_bits_backward_dscale_part1_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["H", "M"],
)


@triton.jit
def attention_eight_bits_backward_dscale_kernel(
    dscale_part1_ptr, dscale_ptr,
    stride_dscale_part1_n,
    B, H,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """A program does everything.

    Reads dscale_part1 (B * H,).
    Writes dscale (a number).
    """
    dscale = tl.full([], 0.0, tl.float32)  # S1
    n_stop = B * H
    n_full = tl.maximum(n_stop, 0) // BLOCK_N * BLOCK_N  # blocks before this one are full
    # Full blocks.
    for n_first in range(0, n_full, BLOCK_N):
        n = (n_first + tl.arange(0, BLOCK_N)).to(INDEX)
        dscale_part1_n = tl.load(dscale_part1_ptr + n * stride_dscale_part1_n)  # S22
        dscale = dscale + tl.sum(dscale_part1_n.to(tl.float32), axis=0)  # S22
    # The last, partial block.
    for n_first in range(n_full, n_stop, BLOCK_N):
        n = (n_first + tl.arange(0, BLOCK_N)).to(INDEX)
        dscale_part1_n = tl.load(
            dscale_part1_ptr + n * stride_dscale_part1_n, mask=n < n_stop, other=0.0
        )  # S22
        dscale = dscale + tl.sum(dscale_part1_n.to(tl.float32), axis=0)  # S22
    tl.store(dscale_ptr, dscale)  # S22


def attention_eight_bits_backward_dscale_kernel_config(BLOCK_N, num_warps, num_stages):
    blocks = {"BLOCK_N": BLOCK_N}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_eight_bits_backward_dscale_kernel_default = (
    attention_eight_bits_backward_dscale_kernel_config(512, 4, 2)
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_eight_bits_backward_dscale_kernel_tuned = _Tuned(
    attention_eight_bits_backward_dscale_kernel,
    [
        attention_eight_bits_backward_dscale_kernel_config(*row)
        for row in itertools.product((128, 512, 1024), (4, 8), (2,))
    ],
    key=["B", "H"],
)


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


def _number(name, value):
    """Return a number as a float, also where it is a tensor that asks for a gradient."""
    return _real(name, value.detach() if isinstance(value, torch.Tensor) else value)


def _handle(value):
    """Return a number that may receive a gradient; None where it is no tensor."""
    return value if isinstance(value, torch.Tensor) else None


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


def attention_eight_bits_forward(Q, K, K_scale, V, V_scale, scale, *, tune=True):
    """Run attention_eight_bits, and return what its gradients need besides.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), int8, any strides.
        K_scale: (B, H, N), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), int8, any strides.
        V_scale: (B, H, N), float16, bfloat16 or float32, any strides.
        scale: A real number.
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
    O = torch.empty((B, H, M, D), dtype=Q.dtype, device=Q.device)
    lse = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
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


def attention_eight_bits_backward(
    Q, K, K_scale, V, V_scale, scale, lse, O, dO, dlse, *, wanted=None, tune=True
):
    """Return the gradients of attention_eight_bits.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), int8, any strides.
        K_scale: (B, H, N), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), int8, any strides.
        V_scale: (B, H, N), float16, bfloat16 or float32, any strides.
        scale: A real number.
        lse: (B, H, M), float32, any strides.
        O: (B, H, M, D), float16, bfloat16 or float32, any strides.
        dO: (B, H, M, D), float16, bfloat16 or float32, any strides.
        dlse: (B, H, M), float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dQ (B, H, M, E), dK_scale (B, H, N), dV_scale (B, H, N), dscale (a number) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 4, _FLOAT), ("K", K, 4, (torch.int8,)), ("K_scale", K_scale, 3, _FLOAT),
        ("V", V, 4, (torch.int8,)), ("V_scale", V_scale, 3, _FLOAT),
        ("lse", lse, 3, (torch.float32,)), ("O", O, 4, _FLOAT), ("dO", dO, 4, _FLOAT),
        ("dlse", dlse, 3, (torch.float32,))
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
    _check_shape(
        "lse", lse, (B, H, M), "(B, H, M) with B = Q.shape[0], H = Q.shape[1] and M = Q.shape[2]"
    )
    _check_shape(
        "O",
        O,
        (B, H, M, D),
        "(B, H, M, D) with B = Q.shape[0], H = Q.shape[1], M = Q.shape[2] and D = V.shape[3]"
    )
    _check_shape(
        "dO",
        dO,
        (B, H, M, D),
        "(B, H, M, D) with B = Q.shape[0], H = Q.shape[1], M = Q.shape[2] and D = V.shape[3]"
    )
    _check_shape(
        "dlse", dlse, (B, H, M), "(B, H, M) with B = Q.shape[0], H = Q.shape[1] and M = Q.shape[2]"
    )
    wanted = _wanted(wanted, ("dQ", "dK_scale", "dV_scale", "dscale"))
    dscale_part1 = None
    if "dscale" in wanted:
        dscale_part1 = torch.empty((B * H,), dtype=torch.float32, device=Q.device)
    delta = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    dscale_part = None
    if "dscale" in wanted:
        dscale_part = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    dQ = None
    if "dQ" in wanted:
        dQ = torch.empty((B, H, M, E), dtype=Q.dtype, device=Q.device)
    dK_scale = None
    if "dK_scale" in wanted:
        dK_scale = torch.empty((B, H, N), dtype=Q.dtype, device=Q.device)
    dV_scale = None
    if "dV_scale" in wanted:
        dV_scale = torch.empty((B, H, N), dtype=Q.dtype, device=Q.device)
    dscale = None
    if "dscale" in wanted:
        dscale = torch.empty((), dtype=torch.float32, device=Q.device)
    index = _index_type(
        *_given(
            Q,
            K,
            K_scale,
            V,
            V_scale,
            lse,
            O,
            dO,
            dlse,
            dscale_part1,
            delta,
            dscale_part,
            dQ,
            dK_scale,
            dV_scale,
            dscale
        )
    )
    width = Q.element_size()

    if _INTERPRETED or not tune:
        run = attention_eight_bits_backward_delta_kernel
        blocks = attention_eight_bits_backward_delta_kernel_default.all_kwargs()
    else:
        run = attention_eight_bits_backward_delta_kernel_tuned
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                O, dO, dlse, delta,
                *O.stride(),
                *dO.stride(),
                *dlse.stride(),
                *delta.stride(),
                H, M, D,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    lanes = {
        "BLOCK_E": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = attention_eight_bits_backward_dQ_kernel
        blocks = _fitted(
            attention_eight_bits_backward_dQ_kernel_default[width],
            attention_eight_bits_backward_dQ_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_eight_bits_backward_dQ_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0 and wanted & {"dQ", "dscale"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, K_scale, V, V_scale, lse, dO, delta, dscale_part, dQ,
                *Q.stride(),
                *K.stride(),
                *K_scale.stride(),
                *V.stride(),
                *V_scale.stride(),
                *lse.stride(),
                *dO.stride(),
                *delta.stride(),
                *_strides(dscale_part, 0, 1, 2),
                *_strides(dQ, 0, 1, 2, 3),
                scale,
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
        run = attention_eight_bits_backward_dK_scale_dV_scale_kernel
        blocks = _fitted(
            attention_eight_bits_backward_dK_scale_dV_scale_kernel_default[width],
            attention_eight_bits_backward_dK_scale_dV_scale_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_eight_bits_backward_dK_scale_dV_scale_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(N, meta["BLOCK_J"]),)

    if min(B, H, N) > 0 and wanted & {"dK_scale", "dV_scale"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, K_scale, V, V_scale, lse, dO, delta, dK_scale, dV_scale,
                *Q.stride(),
                *K.stride(),
                *K_scale.stride(),
                *V.stride(),
                *V_scale.stride(),
                *lse.stride(),
                *dO.stride(),
                *delta.stride(),
                *_strides(dK_scale, 0, 1, 2),
                *_strides(dV_scale, 0, 1, 2),
                scale,
                H, M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = attention_eight_bits_backward_dscale_part1_kernel
        blocks = attention_eight_bits_backward_dscale_part1_kernel_default.all_kwargs()
    else:
        run = attention_eight_bits_backward_dscale_part1_kernel_tuned
        blocks = {}

    def grid(meta):
        return (B * triton.cdiv(H, meta["BLOCK_H"]),)

    if min(B, H) > 0 and "dscale" in wanted:
        with torch.cuda.device_of(Q):
            run[grid](
                dscale_part1, dscale_part,
                *dscale_part1.stride(),
                *dscale_part.stride(),
                H, M,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = attention_eight_bits_backward_dscale_kernel
        blocks = attention_eight_bits_backward_dscale_kernel_default.all_kwargs()
    else:
        run = attention_eight_bits_backward_dscale_kernel_tuned
        blocks = {}
    if "dscale" in wanted:
        with torch.cuda.device_of(Q):
            run[(1,)](
                dscale_part1, dscale,
                *dscale_part1.stride(),
                B, H,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return dQ, dK_scale, dV_scale, dscale


@torch.library.custom_op(_free("attention_eight_bits_forward_bd692309"), mutates_args=())
def _attention_eight_bits_forward_operator(
    Q: torch.Tensor, K: torch.Tensor, K_scale: torch.Tensor, V: torch.Tensor, V_scale: torch.Tensor,
    scale: float, scale_tensor: torch.Tensor | None, tune: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return attention_eight_bits_forward(Q, K, K_scale, V, V_scale, scale, tune=tune)


@_attention_eight_bits_forward_operator.register_fake
def _(Q, K, K_scale, V, V_scale, scale, scale_tensor, tune):
    B = Q.shape[0]
    H = Q.shape[1]
    M = Q.shape[2]
    D = V.shape[3]
    return (
        torch.empty((B, H, M, D), dtype=Q.dtype, device=Q.device),
        torch.empty((B, H, M), dtype=torch.float32, device=Q.device),
    )


@torch.library.custom_op(_free("attention_eight_bits_backward_bd692309"), mutates_args=())
def _attention_eight_bits_backward_operator(
    Q: torch.Tensor, K: torch.Tensor, K_scale: torch.Tensor, V: torch.Tensor, V_scale: torch.Tensor,
    scale: float, lse: torch.Tensor, O: torch.Tensor, dO: torch.Tensor, dlse: torch.Tensor,
    wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = attention_eight_bits_backward(
        Q,
        K,
        K_scale,
        V,
        V_scale,
        scale,
        lse,
        O,
        dO,
        dlse,
        wanted=[
            name
            for name, each in zip(("dQ", "dK_scale", "dV_scale", "dscale"), wanted)
            if each
        ],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_attention_eight_bits_backward_operator.register_fake
def _(Q, K, K_scale, V, V_scale, scale, lse, O, dO, dlse, wanted, tune):
    B = Q.shape[0]
    H = Q.shape[1]
    M = Q.shape[2]
    E = Q.shape[3]
    N = K.shape[2]
    found = (
        torch.empty((B, H, M, E), dtype=Q.dtype, device=Q.device),
        torch.empty((B, H, N), dtype=Q.dtype, device=Q.device),
        torch.empty((B, H, N), dtype=Q.dtype, device=Q.device),
        torch.empty((), dtype=torch.float32, device=Q.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _attention_eight_bits_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    Q, K, K_scale, V, V_scale, scale, scale_tensor, tune = inputs
    O, lse = output
    ctx.save_for_backward(Q, K, K_scale, V, V_scale, lse, O, scale_tensor)
    ctx.numbers = scale, tune
    ctx.like = _like(O), _like(lse)
    ctx.set_materialize_grads(False)


def _attention_eight_bits_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dO, dlse = found
    Q, K, K_scale, V, V_scale, lse, O, scale_tensor = ctx.saved_tensors
    scale, tune = ctx.numbers
    O_like, lse_like = ctx.like
    if dO is None:
        dO = _zeros(*O_like)
    if dlse is None:
        dlse = _zeros(*lse_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[2], needed[4], needed[6]]
    found = iter(
        _attention_eight_bits_backward_operator(
            Q, K, K_scale, V, V_scale, scale, lse, O, dO, dlse, wanted, tune
        )
    )
    dQ, dK_scale, dV_scale, dscale = (next(found) if each else None for each in wanted)
    if dscale is not None:
        dscale = dscale.to(scale_tensor).reshape(scale_tensor.shape)
    return dQ, None, dK_scale, None, dV_scale, None, dscale, None


def _attention_eight_bits_second(ctx, *found):
    raise RuntimeError(
        "attention_eight_bits has no second derivative: its backward pass is derived once. Call "
        "backward without create_graph=True"
    )


_attention_eight_bits_forward_operator.register_autograd(
    _attention_eight_bits_gradients, setup_context=_attention_eight_bits_keep
)
_attention_eight_bits_backward_operator.register_autograd(_attention_eight_bits_second)


def attention_eight_bits(Q, K, K_scale, V, V_scale, scale, *, tune=True):
    """Softmax attention whose keys and values are kept in eight bits, each row with a scale.
    Differentiable: gradients come from attention_eight_bits_backward.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), int8, any strides.
        K_scale: (B, H, N), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), int8, any strides.
        V_scale: (B, H, N), float16, bfloat16 or float32, any strides.
        scale: A real number.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (B, H, M, D), lse (B, H, M) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    return _attention_eight_bits_forward_operator(
        Q, K, K_scale, V, V_scale, _number("scale", scale), _handle(scale), tune
    )
