# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def attention_prefix(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         prefix: Int[Array, "B", "0:N+1"]
#     ):
#         S = zeros((B, H, M, N))
#         O = zeros((B, H, M, D))
#         lse = full((B, H, M), -inf, dtype=float32)
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     m = -inf  # S1: the maximum of nothing
#                     for j in range(0, min(N, max(prefix[b], i + 1))):
#                         # S2: the scaled score
#                         S[b, h, i, j] = sum(
#                             Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)
#                         ) * (1.0 / sqrt(E))
#                         m = max(m, S[b, h, i, j])  # S3: Aggregation over j
#                     l = 0.0  # S4: an empty sum
#                     for j in range(0, min(N, max(prefix[b], i + 1))):
#                         l = l + exp(S[b, h, i, j] - m)  # S5: Aggregation over j
#                     for j in range(0, min(N, max(prefix[b], i + 1))):
#                         for d in range(0, D):
#                             # S6: the weighted mean of the rows of V
#                             O[b, h, i, d] = O[b, h, i, d] + exp(
#                                 S[b, h, i, j] - m
#                             ) / l * V[b, h, j, d]
#                     lse[b, h, i] = m + log(l)  # S7: the log-sum-exp of row i
#         return O, lse
#
# The steps from there to its backward pass, with what each leans on:
#   1. define every array once (storage: every read gets the value that was written last above it)
#   2. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   3. reassociate a contraction (algebra: sum(dP[b, h, i, j] * P[b, h, i, j] for j in range(0,
#      min(N, max(prefix[b], i + 1)))) = sum(dO[b, h, i, d] * O[b, h, i, d] for d in range(0, D)))
#   4. dm vanishes (algebra: dm = 0)
#   5. work P out from lse: keep lse = m[b, h, i] + log(l[b, h, i]) for each sum (algebra: P[b, h,
#      i, j] = exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] = exp(S[b, h, i, j] - lse[b, h, i]))
#   6. take dlse into delta (algebra: dP + dlse[b, h, i] - delta[b, h, i] = dP - delta[b, h, i] with
#      delta[b, h, i] - dlse[b, h, i] for delta; rounding: dlse is added to the sum first)
#   7. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def attention_prefix_backward(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         prefix: Int[Array, "B", "0:N+1"],
#         lse: Float32[Array, "B H M"],
#         O: Float[Array, "B H M D"],
#         dO: Float[Array, "B H M D"],
#         dlse: Float32[Array, "B H M"]
#     ):
#         delta = zeros((B, H, M), dtype=float32)
#         dQ = zeros((B, H, M, E))
#         dK = zeros((B, H, N, E))
#         dV = zeros((B, H, N, D))
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for d in range(0, D):
#                         delta[b, h, i] = delta[b, h, i] + dO[b, h, i, d] * O[b, h, i, d]
#                     delta[b, h, i] = delta[b, h, i] - dlse[b, h, i]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for j in range(0, min(N, max(prefix[b], i + 1))):
#                         S_sum = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                         S = S_sum * (1.0 / sqrt(E))
#                         P = exp(S - lse[b, h, i])
#                         dP = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))
#                         dS = P * (dP - delta[b, h, i])
#                         dS_sum = dS / sqrt(E)
#                         for e in range(0, E):
#                             dQ[b, h, i, e] = dQ[b, h, i, e] + dS_sum * K[b, h, j, e]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for j in range(0, N):
#                     for i in range(0, M):
#                         if j < max(prefix[b], i + 1):
#                             S_sum_2 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                             S_2 = S_sum_2 * (1.0 / sqrt(E))
#                             P_2 = exp(S_2 - lse[b, h, i])
#                             dP_2 = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))
#                             dS_2 = P_2 * (dP_2 - delta[b, h, i])
#                             dS_sum_2 = dS_2 / sqrt(E)
#                             for e in range(0, E):
#                                 dK[b, h, j, e] = dK[b, h, j, e] + dS_sum_2 * Q[b, h, i, e]
#                             for d in range(0, D):
#                                 dV[b, h, j, d] = dV[b, h, j, d] + dO[b, h, i, d] * P_2
#         return dQ, dK, dV
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
#     def attention_prefix(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         prefix: Int[Array, "B", "0:N+1"]
#     ):
#         O = zeros((B, H, M, D))
#         lse = full((B, H, M), -inf, dtype=float32)
#         for b in parallel(0, B):
#             private: (m, l, S_bhij, m_bhij)
#             for h in parallel(0, H):
#                 private: (m, l, S_bhij, m_bhij)
#                 for i in parallel(0, M):
#                     private: (m, l, S_bhij, m_bhij)
#                     m = -inf  # S1: the maximum of nothing
#                     l = 0.0  # S4: an empty sum
#                     for j in range(0, min(N, max(prefix[b], i + 1))):
#                         # S2: the scaled score
#                         S_bhij = sum(
#                             Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)
#                         ) * (1.0 / sqrt(E))
#                         m_bhij = max(m, S_bhij)  # S8
#                         # S9
#                         l = l * exp(m - m_bhij) + exp(S_bhij - m_bhij) if m_bhij > -inf else l
#                         for d in parallel(0, D):
#                             # S6
#                             O[b, h, i, d] = (
#                                 O[b, h, i, d] * exp(m - m_bhij)
#                                 + V[b, h, j, d] * exp(S_bhij - m_bhij)
#                                 if m_bhij > -inf
#                                 else O[b, h, i, d]
#                             )
#                         m = m_bhij  # S3
#                     for d in parallel(0, D):
#                         O[b, h, i, d] = O[b, h, i, d] / l if l != 0.0 else 0.0  # S5
#                     lse[b, h, i] = m + log(l)  # S7: the log-sum-exp of row i
#         return O, lse
#
# The steps from there to the backward kernels:
#   1. run b, h, i, e, j and d in parallel, S_sum, S, P, dP, dS, dS_sum, S_sum_2, S_2, P_2, dP_2,
#      dS_2 and dS_sum_2 private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def attention_prefix_backward(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         prefix: Int[Array, "B", "0:N+1"],
#         lse: Float32[Array, "B H M"],
#         O: Float[Array, "B H M D"],
#         dO: Float[Array, "B H M D"],
#         dlse: Float32[Array, "B H M"]
#     ):
#         delta = zeros((B, H, M), dtype=float32)
#         dQ = zeros((B, H, M, E))
#         dK = zeros((B, H, N, E))
#         dV = zeros((B, H, N, D))
#         for b in parallel(0, B):
#             for h in parallel(0, H):
#                 for i in parallel(0, M):
#                     for d in range(0, D):
#                         delta[b, h, i] = delta[b, h, i] + dO[b, h, i, d] * O[b, h, i, d]  # S1
#                     delta[b, h, i] = delta[b, h, i] - dlse[b, h, i]  # S2
#         for b in parallel(0, B):
#             private: (S_sum, S, P, dP, dS, dS_sum)
#             for h in parallel(0, H):
#                 private: (S_sum, S, P, dP, dS, dS_sum)
#                 for i in parallel(0, M):
#                     private: (S_sum, S, P, dP, dS, dS_sum)
#                     for j in range(0, min(N, max(prefix[b], i + 1))):
#                         S_sum = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S3
#                         S = S_sum * (1.0 / sqrt(E))  # S4
#                         P = exp(S - lse[b, h, i])  # S5
#                         dP = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))  # S6
#                         dS = P * (dP - delta[b, h, i])  # S7
#                         dS_sum = dS / sqrt(E)  # S8
#                         for e in parallel(0, E):
#                             dQ[b, h, i, e] = dQ[b, h, i, e] + dS_sum * K[b, h, j, e]  # S9
#         for b in parallel(0, B):
#             private: (S_sum_2, S_2, P_2, dP_2, dS_2, dS_sum_2)
#             for h in parallel(0, H):
#                 private: (S_sum_2, S_2, P_2, dP_2, dS_2, dS_sum_2)
#                 for j in parallel(0, N):
#                     private: (S_sum_2, S_2, P_2, dP_2, dS_2, dS_sum_2)
#                     for i in range(0, M):
#                         if j < max(prefix[b], i + 1):
#                             # S10
#                             S_sum_2 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                             S_2 = S_sum_2 * (1.0 / sqrt(E))  # S11
#                             P_2 = exp(S_2 - lse[b, h, i])  # S12
#                             dP_2 = sum(dO[b, h, i, d] * V[b, h, j, d] for d in range(0, D))  # S13
#                             dS_2 = P_2 * (dP_2 - delta[b, h, i])  # S14
#                             dS_sum_2 = dS_2 / sqrt(E)  # S15
#                             for e in parallel(0, E):
#                                 dK[b, h, j, e] = dK[b, h, j, e] + dS_sum_2 * Q[b, h, i, e]  # S16
#                             for d in parallel(0, D):
#                                 dV[b, h, j, d] = dV[b, h, j, d] + dO[b, h, i, d] * P_2  # S17
#         return dQ, dK, dV

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
def attention_prefix_kernel(
    Q_ptr, K_ptr, V_ptr, prefix_ptr, O_ptr, lse_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_prefix_b,
    stride_O_b, stride_O_h, stride_O_i, stride_O_d,
    stride_lse_b, stride_lse_h, stride_lse_i,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    LATE: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), prefix (B,).
    Writes O (B, H, M, D), lse (B, H, M).
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
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h

    O = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    m = tl.full([BLOCK_I], float("-inf"), tl.float32)  # S1
    l = tl.zeros([BLOCK_I], tl.float32)  # S4
    prefix_b = tl.load(prefix_ptr + b * stride_prefix_b)  # S4
    j_stop = tl.minimum(N, tl.maximum(prefix_b, i_last + 1))  # no row goes further
    # blocks before this one are full
    j_full = tl.maximum(tl.minimum(N, tl.maximum(prefix_b, i_first + 1)), 0) // BLOCK_J * BLOCK_J
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S2
    S_bhij_scale = 1.4426950408889634 / tl.sqrt_rn(tl.cast(E, tl.float32))  # in units of log2(e)
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
        )  # S2
        S_bhij = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S2
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S6
            O = tl.dot(exp_S_bhij_late, V_jd, O, input_precision="ieee")  # S6: of the block before
        m_bhij = tl.maximum(m, tl.max(S_bhij, axis=1) * S_bhij_scale)  # S8
        # 0 as long as nothing was seen
        m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
        exp_m = tl.exp2(m - m_bhij_finite)  # S9
        exp_S_bhij = tl.exp2(S_bhij * S_bhij_scale - m_bhij_finite[:, None])  # S9
        l = l * exp_m + tl.sum(exp_S_bhij, axis=1)  # S9
        if LATE:
            O = O * exp_m[:, None]  # S6
            exp_S_bhij_late = exp_S_bhij.to(V_ptr.dtype.element_ty)
            j_late = j
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
            )  # S6
            O = tl.dot(
                exp_S_bhij.to(V_ptr.dtype.element_ty),
                V_jd,
                O * exp_m[:, None],
                input_precision="ieee"
            )  # S6
        m = m_bhij  # S3
    # Some rows have ended.
    for j_first in range(j_full, j_stop, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < j_stop) & e_in[None, :],
            other=0.0
        )  # S2
        S_bhij = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S2
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S6
            O = tl.dot(exp_S_bhij_late, V_jd, O, input_precision="ieee")  # S6: of the block before
        # outside: the least there is
        S_bhij = tl.where(
            tl.arange(0, BLOCK_J)[None, :]
            < tl.minimum(j_stop, tl.maximum(prefix_b, i + 1))[:, None] - j_first,
            S_bhij,
            float("-inf")
        )
        m_bhij = tl.maximum(m, tl.max(S_bhij, axis=1) * S_bhij_scale)  # S8
        # 0 as long as nothing was seen
        m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
        exp_m = tl.exp2(m - m_bhij_finite)  # S9
        exp_S_bhij = tl.exp2(S_bhij * S_bhij_scale - m_bhij_finite[:, None])  # S9
        l = l * exp_m + tl.sum(exp_S_bhij, axis=1)  # S9
        if LATE:
            O = O * exp_m[:, None]  # S6
            exp_S_bhij_late = exp_S_bhij.to(V_ptr.dtype.element_ty)
            j_late = tl.where(j < j_stop, j, -1)
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j,
                mask=(j[:, None] < j_stop) & d_in[None, :],
                other=0.0
            )  # S6
            O = tl.dot(
                exp_S_bhij.to(V_ptr.dtype.element_ty),
                V_jd,
                O * exp_m[:, None],
                input_precision="ieee"
            )  # S6
        m = m_bhij  # S3
    if LATE:
        V_jd = tl.load(
            V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
            mask=(j_late[:, None] >= 0) & d_in[None, :],
            other=0.0
        )  # S6
        O = tl.dot(exp_S_bhij_late, V_jd, O, input_precision="ieee")  # S6: of the block before
    m = m * 0.6931471805599453  # back from units of log2(e)
    O = tl.where(l[:, None] != 0.0, O / l[:, None], 0.0)  # S5
    tl.store(lse_ptr + i * stride_lse_i, m + tl.log(l), mask=i < M)  # S7
    tl.store(
        O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
        O,
        mask=(i[:, None] < M) & d_in[None, :]
    )  # S5


def attention_prefix_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J, "LATE": LATE}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_prefix_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_J, BLOCK_D, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * BLOCK_I * BLOCK_E + num_stages * width * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    )
    held = BLOCK_I * BLOCK_D + BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_prefix_kernel_default = {
    2: attention_prefix_kernel_config(128, 64, 0, 8, 3),
    4: attention_prefix_kernel_config(32, 32, 0, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_prefix_kernel_tuned = {
    2: _Tuned(
        attention_prefix_kernel,
        [
            attention_prefix_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((128, 8), (64, 4), (128, 4)), (64, 32, 128), (0, 1), (3, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_prefix_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_prefix_kernel,
        [
            attention_prefix_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (0,), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_prefix_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_prefix_backward_delta_kernel(
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
        )  # S1
        O_id = tl.load(
            O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
            mask=i[:, None] < M,
            other=0.0
        )  # S1
        delta = delta + tl.sum(dO_id.to(tl.float32) * O_id.to(tl.float32), axis=1)  # S1
    # The last, partial block.
    for d_first in range(d_full, D, BLOCK_D):
        d = (d_first + tl.arange(0, BLOCK_D)).to(INDEX)
        dO_id = tl.load(
            dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
            mask=(i[:, None] < M) & (d[None, :] < D),
            other=0.0
        )  # S1
        O_id = tl.load(
            O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
            mask=(i[:, None] < M) & (d[None, :] < D),
            other=0.0
        )  # S1
        delta = delta + tl.sum(dO_id.to(tl.float32) * O_id.to(tl.float32), axis=1)  # S1
    dlse_i = tl.load(dlse_ptr + i * stride_dlse_i, mask=i < M, other=0.0)  # S2
    delta = delta - dlse_i.to(tl.float32)  # S2
    tl.store(delta_ptr + i * stride_delta_i, delta, mask=i < M)  # S2


def attention_prefix_backward_delta_kernel_config(BLOCK_I, BLOCK_D, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_D": BLOCK_D}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_prefix_backward_delta_kernel_default = attention_prefix_backward_delta_kernel_config(
    4, 512, 4, 2
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_prefix_backward_delta_kernel_tuned = _Tuned(
    attention_prefix_backward_delta_kernel,
    [
        attention_prefix_backward_delta_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["H", "M", "D"],
)


@triton.jit
def attention_prefix_backward_dQ_kernel(
    Q_ptr, K_ptr, V_ptr, prefix_ptr, lse_ptr, dO_ptr, delta_ptr, dQ_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_prefix_b,
    stride_lse_b, stride_lse_h, stride_lse_i,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_delta_b, stride_delta_h, stride_delta_i,
    stride_dQ_b, stride_dQ_h, stride_dQ_i, stride_dQ_e,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), prefix (B,), lse (B, H, M), dO (B, H, M,
    D), delta (B, H, M).
    Writes dQ (B, H, M, E).
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
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    delta_ptr += b * stride_delta_b
    delta_ptr += h * stride_delta_h
    dQ_ptr += b * stride_dQ_b
    dQ_ptr += h * stride_dQ_h

    S_scale = 1.4426950408889634 / tl.sqrt_rn(tl.cast(E, tl.float32))  # in units of log2(e)
    dQ = tl.zeros([BLOCK_I, BLOCK_E], tl.float32)
    prefix_b = tl.load(prefix_ptr + b * stride_prefix_b)
    j_stop = tl.minimum(N, tl.maximum(prefix_b, i_last + 1))  # no row goes further
    # blocks before this one are full
    j_full = tl.maximum(tl.minimum(N, tl.maximum(prefix_b, i_first + 1)), 0) // BLOCK_J * BLOCK_J
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S3
    lse_i = tl.load(lse_ptr + i * stride_lse_i, mask=i < M, other=0.0)  # S5
    dO_id = tl.load(
        dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
        mask=(i[:, None] < M) & d_in[None, :],
        other=0.0
    )  # S6
    delta_i = tl.load(delta_ptr + i * stride_delta_i, mask=i < M, other=0.0)  # S7
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j, mask=e_in[None, :], other=0.0
        )  # S3
        S_sum = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S3
        P = tl.exp2(
            S_sum * S_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S4, S5
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
        )  # S6
        dP = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S6
        dS = P * (dP - delta_i.to(tl.float32)[:, None])  # S7
        dQ = tl.dot(dS.to(K_ptr.dtype.element_ty), K_je, dQ, input_precision="ieee")  # S9
    # Some rows have ended.
    for j_first in range(j_full, j_stop, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < j_stop) & e_in[None, :],
            other=0.0
        )  # S3
        S_sum = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S3
        P = tl.exp2(
            S_sum * S_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S4, S5
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j,
            mask=(j[:, None] < j_stop) & d_in[None, :],
            other=0.0
        )  # S6
        dP = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S6
        dS = P * (dP - delta_i.to(tl.float32)[:, None])  # S7
        dQ = tl.dot(
            tl.where(
                tl.arange(0, BLOCK_J)[None, :]
                < tl.minimum(j_stop, tl.maximum(prefix_b, i + 1))[:, None] - j_first,
                dS,
                0.0
            ).to(K_ptr.dtype.element_ty),
            K_je,
            dQ,
            input_precision="ieee"
        )  # S9
    dQ = dQ * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S8, S9
    tl.store(
        dQ_ptr + i[:, None] * stride_dQ_i + e[None, :] * stride_dQ_e,
        dQ,
        mask=(i[:, None] < M) & e_in[None, :]
    )  # S9


def attention_prefix_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_prefix_backward_dQ_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_D, BLOCK_J, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D
    ) + num_stages * width * (BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D)
    held = BLOCK_I * BLOCK_E + 2 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_prefix_backward_dQ_kernel_default = {
    2: attention_prefix_backward_dQ_kernel_config(128, 32, 8, 3),
    4: attention_prefix_backward_dQ_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_prefix_backward_dQ_kernel_tuned = {
    2: _Tuned(
        attention_prefix_backward_dQ_kernel,
        [
            attention_prefix_backward_dQ_kernel_config(*row)
            for row in itertools.product((128, 64), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_prefix_backward_dQ_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_prefix_backward_dQ_kernel,
        [
            attention_prefix_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_prefix_backward_dQ_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_prefix_backward_dK_dV_kernel(
    Q_ptr, K_ptr, V_ptr, prefix_ptr, lse_ptr, dO_ptr, delta_ptr, dK_ptr, dV_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_prefix_b,
    stride_lse_b, stride_lse_h, stride_lse_i,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_delta_b, stride_delta_h, stride_delta_i,
    stride_dK_b, stride_dK_h, stride_dK_j, stride_dK_e,
    stride_dV_b, stride_dV_h, stride_dV_j, stride_dV_d,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_J iterations of j, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), prefix (B,), lse (B, H, M), dO (B, H, M,
    D), delta (B, H, M).
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
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    delta_ptr += b * stride_delta_b
    delta_ptr += h * stride_delta_h
    if dK_ptr is not None:
        dK_ptr += b * stride_dK_b
        dK_ptr += h * stride_dK_h
    if dV_ptr is not None:
        dV_ptr += b * stride_dV_b
        dV_ptr += h * stride_dV_h

    S_2_scale = 1.4426950408889634 / tl.sqrt_rn(tl.cast(E, tl.float32))  # in units of log2(e)
    dK = tl.zeros([BLOCK_J, BLOCK_E], tl.float32)
    dV = tl.zeros([BLOCK_J, BLOCK_D], tl.float32)
    prefix_b = tl.load(prefix_ptr + b * stride_prefix_b)
    i_start = tl.maximum(0, tl.where(j_first < prefix_b, 0, j_first))  # no row begins earlier
    # all rows have begun
    i_begun = i_start + (
        tl.maximum(tl.maximum(0, tl.where(j_last < prefix_b, 0, j_last)) - i_start, 0) + BLOCK_I - 1
    ) // BLOCK_I * BLOCK_I
    # blocks before this one are full
    i_full = i_begun + tl.maximum(M - i_begun, 0) // BLOCK_I * BLOCK_I
    K_je = tl.load(
        K_ptr + j[:, None] * stride_K_j + e[None, :] * stride_K_e,
        mask=(j[:, None] < N) & e_in[None, :],
        other=0.0
    )  # S10
    V_jd = tl.load(
        V_ptr + j[:, None] * stride_V_j + d[None, :] * stride_V_d,
        mask=(j[:, None] < N) & d_in[None, :],
        other=0.0
    )  # S13
    # What is read as it would be in a block that begins at 0.
    i_at = tl.arange(0, BLOCK_I).to(INDEX)
    Q_at = Q_ptr + i_at[:, None] * stride_Q_i + e[None, :] * stride_Q_e
    lse_at = lse_ptr + i_at * stride_lse_i
    dO_at = dO_ptr + i_at[:, None] * stride_dO_i + d[None, :] * stride_dO_d
    delta_at = delta_ptr + i_at * stride_delta_i
    # Full blocks.
    for i_from in range(tl.cast(i_begun, tl.int64), tl.cast(i_full, tl.int64), BLOCK_I):
        i_first = tl.cast(i_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        Q_ie = tl.load(Q_at + i_first * stride_Q_i, mask=e_in[None, :], other=0.0)  # S10
        S_sum_2 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S10
        lse_i = tl.load(lse_at + i_first * stride_lse_i)  # S12
        P_2 = tl.exp2(
            S_sum_2 * S_2_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S11, S12
        dO_id = tl.load(dO_at + i_first * stride_dO_i, mask=d_in[None, :], other=0.0)  # S13
        dP_2 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S13
        delta_i = tl.load(delta_at + i_first * stride_delta_i)  # S14
        dS_2 = P_2 * (dP_2 - delta_i.to(tl.float32)[None, :])  # S14
        dK = tl.dot(dS_2.to(Q_ptr.dtype.element_ty), Q_ie, dK, input_precision="ieee")  # S16
        dV = tl.dot(P_2.to(dO_ptr.dtype.element_ty), dO_id, dV, input_precision="ieee")  # S17
    # Some rows have not begun, or have ended.
    for i_from in range(
        tl.cast(i_start, tl.int64), tl.cast(M - (i_full - i_begun), tl.int64), BLOCK_I
    ):
        i_first = tl.cast(
            i_from + tl.where(i_from < i_begun, 0, i_full - i_begun), INDEX
        )  # counted in 64 bits, or ptxas lets each product wait
        i = i_first + tl.arange(0, BLOCK_I)
        Q_ie = tl.load(
            Q_at + i_first * stride_Q_i, mask=(i[:, None] < M) & e_in[None, :], other=0.0
        )  # S10
        S_sum_2 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S10
        lse_i = tl.load(lse_at + i_first * stride_lse_i, mask=i < M, other=0.0)  # S12
        P_2 = tl.exp2(
            S_sum_2 * S_2_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S11, S12
        dO_id = tl.load(
            dO_at + i_first * stride_dO_i, mask=(i[:, None] < M) & d_in[None, :], other=0.0
        )  # S13
        dP_2 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S13
        delta_i = tl.load(delta_at + i_first * stride_delta_i, mask=i < M, other=0.0)  # S14
        dS_2 = P_2 * (dP_2 - delta_i.to(tl.float32)[None, :])  # S14
        dK = tl.dot(
            tl.where(
                (tl.arange(0, BLOCK_I)[None, :] >= tl.where(j < prefix_b, 0, j)[:, None] - i_first)
                & (i[None, :] < M),
                dS_2,
                0.0
            ).to(Q_ptr.dtype.element_ty),
            Q_ie,
            dK,
            input_precision="ieee"
        )  # S16
        dV = tl.dot(
            tl.where(
                (tl.arange(0, BLOCK_I)[None, :] >= tl.where(j < prefix_b, 0, j)[:, None] - i_first)
                & (i[None, :] < M),
                P_2,
                0.0
            ).to(dO_ptr.dtype.element_ty),
            dO_id,
            dV,
            input_precision="ieee"
        )  # S17
    dK = dK * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S15, S16
    if dK_ptr is not None:
        tl.store(
            dK_ptr + j[:, None] * stride_dK_j + e[None, :] * stride_dK_e,
            dK,
            mask=(j[:, None] < N) & e_in[None, :]
        )  # S16
    if dV_ptr is not None:
        tl.store(
            dV_ptr + j[:, None] * stride_dV_j + d[None, :] * stride_dV_d,
            dV,
            mask=(j[:, None] < N) & d_in[None, :]
        )  # S17


def attention_prefix_backward_dK_dV_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_prefix_backward_dK_dV_kernel_footprint(
    width, /, num_stages, BLOCK_J, BLOCK_E, BLOCK_D, BLOCK_I, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    ) + num_stages * width * (BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D)
    held = BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D + 2 * BLOCK_J * BLOCK_I
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_prefix_backward_dK_dV_kernel_default = {
    2: attention_prefix_backward_dK_dV_kernel_config(64, 32, 8, 3),
    4: attention_prefix_backward_dK_dV_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_prefix_backward_dK_dV_kernel_tuned = {
    2: _Tuned(
        attention_prefix_backward_dK_dV_kernel,
        [
            attention_prefix_backward_dK_dV_kernel_config(*row)
            for row in itertools.product((64, 128), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_prefix_backward_dK_dV_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_prefix_backward_dK_dV_kernel,
        [
            attention_prefix_backward_dK_dV_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages)
            for (BLOCK_J, num_warps), BLOCK_I, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_prefix_backward_dK_dV_kernel_footprint, 4),
    ),
}


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(attention_prefix_kernel, triton.JITFunction)
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


def attention_prefix_forward(Q, K, V, prefix, *, tune=True, check=False):
    """Run attention_prefix, and return what its gradients need besides.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        prefix: (B,), int32 or int64, any strides; values from 0 up to, not including, N + 1.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of prefix. It
            waits for the GPU; without it, they are trusted.

    Returns:
        O (B, H, M, D), lse (B, H, M) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 4, _FLOAT), ("K", K, 4, _FLOAT), ("V", V, 4, _FLOAT), ("prefix", prefix, 1, _INT)
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
    _check_shape("prefix", prefix, (B,), "(B,) with B = Q.shape[0]")
    if check:
        if ((prefix < 0) | (prefix >= N + 1)).any():
            raise ValueError(f"prefix should hold integers from 0 up to, not including, {N + 1}")
    O = torch.empty((B, H, M, D), dtype=Q.dtype, device=Q.device)
    lse = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    index = _index_type(Q, K, V, prefix, O, lse)
    width = Q.element_size()

    lanes = {
        "BLOCK_D": max(16, triton.next_power_of_2(D)), "BLOCK_E": max(16, triton.next_power_of_2(E))
    }
    if _INTERPRETED or not tune:
        run = attention_prefix_kernel
        blocks = _fitted(
            attention_prefix_kernel_default[width],
            attention_prefix_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_prefix_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, prefix, O, lse,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *prefix.stride(),
                *O.stride(),
                *lse.stride(),
                H, M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return O, lse


def attention_prefix_backward(
    Q, K, V, prefix, lse, O, dO, dlse, *, wanted=None, tune=True, check=False
):
    """Return the gradients of attention_prefix.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        prefix: (B,), int32 or int64, any strides; values from 0 up to, not including, N + 1.
        lse: (B, H, M), float32, any strides.
        O: (B, H, M, D), float16, bfloat16 or float32, any strides.
        dO: (B, H, M, D), float16, bfloat16 or float32, any strides.
        dlse: (B, H, M), float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of prefix. It
            waits for the GPU; without it, they are trusted.

    Returns:
        dQ (B, H, M, E), dK (B, H, N, E), dV (B, H, N, D).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 4, _FLOAT), ("K", K, 4, _FLOAT), ("V", V, 4, _FLOAT), ("prefix", prefix, 1, _INT),
        ("lse", lse, 3, (torch.float32,)), ("O", O, 4, _FLOAT), ("dO", dO, 4, _FLOAT),
        ("dlse", dlse, 3, (torch.float32,))
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
    _check_shape("prefix", prefix, (B,), "(B,) with B = Q.shape[0]")
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
    if check:
        if ((prefix < 0) | (prefix >= N + 1)).any():
            raise ValueError(f"prefix should hold integers from 0 up to, not including, {N + 1}")
    wanted = _wanted(wanted, ("dQ", "dK", "dV"))
    delta = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    dQ = None
    if "dQ" in wanted:
        dQ = torch.empty((B, H, M, E), dtype=Q.dtype, device=Q.device)
    dK = None
    if "dK" in wanted:
        dK = torch.empty((B, H, N, E), dtype=Q.dtype, device=Q.device)
    dV = None
    if "dV" in wanted:
        dV = torch.empty((B, H, N, D), dtype=Q.dtype, device=Q.device)
    index = _index_type(*_given(Q, K, V, prefix, lse, O, dO, dlse, delta, dQ, dK, dV))
    width = Q.element_size()

    if _INTERPRETED or not tune:
        run = attention_prefix_backward_delta_kernel
        blocks = attention_prefix_backward_delta_kernel_default.all_kwargs()
    else:
        run = attention_prefix_backward_delta_kernel_tuned
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
        run = attention_prefix_backward_dQ_kernel
        blocks = _fitted(
            attention_prefix_backward_dQ_kernel_default[width],
            attention_prefix_backward_dQ_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_prefix_backward_dQ_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0 and "dQ" in wanted:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, prefix, lse, dO, delta, dQ,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *prefix.stride(),
                *lse.stride(),
                *dO.stride(),
                *delta.stride(),
                *dQ.stride(),
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
        run = attention_prefix_backward_dK_dV_kernel
        blocks = _fitted(
            attention_prefix_backward_dK_dV_kernel_default[width],
            attention_prefix_backward_dK_dV_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_prefix_backward_dK_dV_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(N, meta["BLOCK_J"]),)

    if min(B, H, N) > 0 and wanted & {"dK", "dV"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, prefix, lse, dO, delta, dK, dV,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *prefix.stride(),
                *lse.stride(),
                *dO.stride(),
                *delta.stride(),
                *_strides(dK, 0, 1, 2, 3),
                *_strides(dV, 0, 1, 2, 3),
                H, M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return dQ, dK, dV


@torch.library.custom_op(_free("attention_prefix_forward_5a8f6edd"), mutates_args=())
def _attention_prefix_forward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, prefix: torch.Tensor, tune: bool,
    check: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return attention_prefix_forward(Q, K, V, prefix, tune=tune, check=check)


@_attention_prefix_forward_operator.register_fake
def _(Q, K, V, prefix, tune, check):
    B = Q.shape[0]
    H = Q.shape[1]
    M = Q.shape[2]
    D = V.shape[3]
    return (
        torch.empty((B, H, M, D), dtype=Q.dtype, device=Q.device),
        torch.empty((B, H, M), dtype=torch.float32, device=Q.device),
    )


@torch.library.custom_op(_free("attention_prefix_backward_5a8f6edd"), mutates_args=())
def _attention_prefix_backward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, prefix: torch.Tensor, lse: torch.Tensor,
    O: torch.Tensor, dO: torch.Tensor, dlse: torch.Tensor, wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = attention_prefix_backward(
        Q,
        K,
        V,
        prefix,
        lse,
        O,
        dO,
        dlse,
        wanted=[name for name, each in zip(("dQ", "dK", "dV"), wanted) if each],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_attention_prefix_backward_operator.register_fake
def _(Q, K, V, prefix, lse, O, dO, dlse, wanted, tune):
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
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _attention_prefix_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    Q, K, V, prefix, tune, check = inputs
    O, lse = output
    ctx.save_for_backward(Q, K, V, prefix, lse, O)
    ctx.numbers = (tune,)
    ctx.like = _like(O), _like(lse)
    ctx.set_materialize_grads(False)


def _attention_prefix_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dO, dlse = found
    Q, K, V, prefix, lse, O = ctx.saved_tensors
    (tune,) = ctx.numbers
    O_like, lse_like = ctx.like
    if dO is None:
        dO = _zeros(*O_like)
    if dlse is None:
        dlse = _zeros(*lse_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1], needed[2]]
    found = iter(
        _attention_prefix_backward_operator(Q, K, V, prefix, lse, O, dO, dlse, wanted, tune)
    )
    dQ, dK, dV = (next(found) if each else None for each in wanted)
    return dQ, dK, dV, None, None, None


def _attention_prefix_second(ctx, *found):
    raise RuntimeError(
        "attention_prefix has no second derivative: its backward pass is derived once. Call "
        "backward without create_graph=True"
    )


_attention_prefix_forward_operator.register_autograd(
    _attention_prefix_gradients, setup_context=_attention_prefix_keep
)
_attention_prefix_backward_operator.register_autograd(_attention_prefix_second)


def attention_prefix(Q, K, V, prefix, *, tune=True, check=False):
    """Softmax attention for a batch of heads. Differentiable: gradients come from
    attention_prefix_backward.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        prefix: (B,), int32 or int64, any strides; values from 0 up to, not including, N + 1.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: the declared range of prefix. It
            waits for the GPU; without it, they are trusted.

    Returns:
        O (B, H, M, D), lse (B, H, M) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    return _attention_prefix_forward_operator(Q, K, V, prefix, tune, check)
