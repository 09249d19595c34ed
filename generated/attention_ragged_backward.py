# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def attention_ragged(
#         Q: Float[Array, "T H E"],
#         K: Float[Array, "U H E"],
#         V: Float[Array, "U H D"],
#         cu_q: Int[Array, "B+1", "0:T+1"],
#         cu_k: Int[Array, "B+1", "0:U+1"],
#         scale: float
#     ):
#         assert all(cu_q[b] <= cu_q[b + 1] for b in range(0, B))
#         assert all(cu_k[b] <= cu_k[b + 1] for b in range(0, B))
#         O = zeros((T, H, D))
#         lse = full((T, H), -inf, dtype=float32)
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(cu_q[b], cu_q[b + 1]):
#                     m = -inf  # S1: nothing is seen yet
#                     for j in range(cu_k[b], cu_k[b + 1]):
#                         # S2: the scores of row i
#                         S = scale * sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))
#                         m = max(m, S)  # S3: Aggregation over j
#                     l = 0.0  # S4
#                     for j in range(cu_k[b], cu_k[b + 1]):
#                         # S5: the same scores again
#                         S = scale * sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))
#                         l = l + exp(S - m)  # S6: Aggregation over j
#                     for j in range(cu_k[b], cu_k[b + 1]):
#                         S = scale * sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))  # S7
#                         for d in range(0, D):
#                             # S8: the weighted mean of the rows of V
#                             O[i, h, d] = O[i, h, d] + exp(S - m) / l * V[j, h, d]
#                     lse[i, h] = m + log(l)  # S9: the log-sum-exp of row i
#         return O, lse
#
# The steps from there to its backward pass, with what each leans on:
#   1. see each row as one of its sequence (storage: every access to Q, K, V, O, lse is to a row of
#      the sequence around it, by cu_q and cu_k)
#   2. define every array once (storage: every read gets the value that was written last above it)
#   3. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   4. reassociate a contraction (algebra: sum(dP[b, h, i, j] * P[b, h, i, j] for j in
#      range(cu_k[b], cu_k[b + 1])) = sum(dO[b, h, i, d] * O[b, h, i, d] for d in range(0, D)))
#   5. dm vanishes (algebra: dm = 0)
#   6. work P out from lse: keep lse = m[b, h, i] + log(l[b, h, i]) for each sum (algebra: P[b, h,
#      i, j] = exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] = exp(S[b, h, i, j] - lse[b, h, i]))
#   7. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#   8. take rows as they are packed (algebra: sums over all rows are sums over those of the
#      sequence)
#
# Its backward pass:
#
#     def attention_ragged_backward(
#         Q: Float[Array, "T H E"],
#         K: Float[Array, "U H E"],
#         V: Float[Array, "U H D"],
#         cu_q: Int[Array, "B+1", "0:T+1"],
#         cu_k: Int[Array, "B+1", "0:U+1"],
#         scale: float,
#         lse: Float32[Array, "T H"],
#         O: Float[Array, "T H D"],
#         dO: Float[Array, "T H D"],
#         dlse: Float32[Array, "T H"]
#     ):
#         assert all(cu_q[b] <= cu_q[b + 1] for b in range(0, B))
#         assert all(cu_k[b] <= cu_k[b + 1] for b in range(0, B))
#         delta = zeros((H, T), dtype=float32)
#         dscale_part = zeros((H, T), dtype=float32)
#         dQ = zeros((T, H, E))
#         dK = zeros((U, H, E))
#         dV = zeros((U, H, D))
#         dscale = 0.0
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(cu_q[b], cu_q[b + 1]):
#                     for d in range(0, D):
#                         delta[h, i] = delta[h, i] + dO[i, h, d] * O[i, h, d]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(cu_q[b], cu_q[b + 1]):
#                     for j in range(cu_k[b], cu_k[b + 1]):
#                         S_sum = sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))
#                         S = scale * S_sum
#                         P = exp(S - lse[i, h])
#                         dP = sum(dO[i, h, d] * V[j, h, d] for d in range(0, D))
#                         dS = P * (dP + dlse[i, h] - delta[h, i])
#                         dS_sum = dS * scale
#                         dscale_part[h, i] = dscale_part[h, i] + dS * S_sum
#                         for e in range(0, E):
#                             dQ[i, h, e] = dQ[i, h, e] + dS_sum * K[j, h, e]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for j in range(cu_k[b], cu_k[b + 1]):
#                     for i in range(cu_q[b], cu_q[b + 1]):
#                         S_sum_2 = sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))
#                         S_2 = scale * S_sum_2
#                         P_2 = exp(S_2 - lse[i, h])
#                         dP_2 = sum(dO[i, h, d] * V[j, h, d] for d in range(0, D))
#                         dS_2 = P_2 * (dP_2 + dlse[i, h] - delta[h, i])
#                         dS_sum_2 = dS_2 * scale
#                         for e in range(0, E):
#                             dK[j, h, e] = dK[j, h, e] + dS_sum_2 * Q[i, h, e]
#                         for d in range(0, D):
#                             dV[j, h, d] = dV[j, h, d] + dO[i, h, d] * P_2
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(cu_q[b], cu_q[b + 1]):
#                     dscale = dscale + dscale_part[h, i]
#         return dQ, dK, dV, dscale
#
# The steps from there to the forward kernels:
#   1. one pass instead of 3: m, l and O[i, h, d] move together
#   2. change of state: the loop keeps O[i, h, d] * l, and one division stands behind it; nothing
#      moves before m does
#   3. run b, h, i and d in parallel, m, l, S and m_bhij private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def attention_ragged(
#         Q: Float[Array, "T H E"],
#         K: Float[Array, "U H E"],
#         V: Float[Array, "U H D"],
#         cu_q: Int[Array, "B+1", "0:T+1"],
#         cu_k: Int[Array, "B+1", "0:U+1"],
#         scale: float
#     ):
#         assert all(cu_q[b] <= cu_q[b + 1] for b in range(0, B))
#         assert all(cu_k[b] <= cu_k[b + 1] for b in range(0, B))
#         O = zeros((T, H, D))
#         lse = full((T, H), -inf, dtype=float32)
#         for b in parallel(0, B):
#             private: (m, l, S, m_bhij)
#             for h in parallel(0, H):
#                 private: (m, l, S, m_bhij)
#                 for i in parallel(cu_q[b], cu_q[b + 1]):
#                     private: (m, l, S, m_bhij)
#                     m = -inf  # S1: nothing is seen yet
#                     l = 0.0  # S4
#                     for j in range(cu_k[b], cu_k[b + 1]):
#                         # S2: the scores of row i
#                         S = scale * sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))
#                         m_bhij = max(m, S)  # S10
#                         l = l * exp(m - m_bhij) + exp(S - m_bhij) if m_bhij > -inf else l  # S11
#                         for d in parallel(0, D):
#                             # S8
#                             O[i, h, d] = (
#                                 O[i, h, d] * exp(m - m_bhij) + V[j, h, d] * exp(S - m_bhij)
#                                 if m_bhij > -inf
#                                 else O[i, h, d]
#                             )
#                         m = m_bhij  # S3
#                     for d in parallel(0, D):
#                         O[i, h, d] = O[i, h, d] / l if l != 0.0 else 0.0  # S5
#                     lse[i, h] = m + log(l)  # S9: the log-sum-exp of row i
#         return O, lse
#
# The steps from there to the backward kernels:
#   1. run b, h, i, e, j and d in parallel, S_sum, S, P, dP, dS, dS_sum, S_sum_2, S_2, P_2, dP_2,
#      dS_2 and dS_sum_2 private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def attention_ragged_backward(
#         Q: Float[Array, "T H E"],
#         K: Float[Array, "U H E"],
#         V: Float[Array, "U H D"],
#         cu_q: Int[Array, "B+1", "0:T+1"],
#         cu_k: Int[Array, "B+1", "0:U+1"],
#         scale: float,
#         lse: Float32[Array, "T H"],
#         O: Float[Array, "T H D"],
#         dO: Float[Array, "T H D"],
#         dlse: Float32[Array, "T H"]
#     ):
#         assert all(cu_q[b] <= cu_q[b + 1] for b in range(0, B))
#         assert all(cu_k[b] <= cu_k[b + 1] for b in range(0, B))
#         delta = zeros((H, T), dtype=float32)
#         dscale_part = zeros((H, T), dtype=float32)
#         dQ = zeros((T, H, E))
#         dK = zeros((U, H, E))
#         dV = zeros((U, H, D))
#         dscale = 0.0  # S1
#         for b in parallel(0, B):
#             for h in parallel(0, H):
#                 for i in parallel(cu_q[b], cu_q[b + 1]):
#                     for d in range(0, D):
#                         delta[h, i] = delta[h, i] + dO[i, h, d] * O[i, h, d]  # S2
#         for b in parallel(0, B):
#             private: (S_sum, S, P, dP, dS, dS_sum)
#             for h in parallel(0, H):
#                 private: (S_sum, S, P, dP, dS, dS_sum)
#                 for i in parallel(cu_q[b], cu_q[b + 1]):
#                     private: (S_sum, S, P, dP, dS, dS_sum)
#                     for j in range(cu_k[b], cu_k[b + 1]):
#                         S_sum = sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))  # S3
#                         S = scale * S_sum  # S4
#                         P = exp(S - lse[i, h])  # S5
#                         dP = sum(dO[i, h, d] * V[j, h, d] for d in range(0, D))  # S6
#                         dS = P * (dP + dlse[i, h] - delta[h, i])  # S7
#                         dS_sum = dS * scale  # S8
#                         dscale_part[h, i] = dscale_part[h, i] + dS * S_sum  # S9
#                         for e in parallel(0, E):
#                             dQ[i, h, e] = dQ[i, h, e] + dS_sum * K[j, h, e]  # S10
#         for b in parallel(0, B):
#             private: (S_sum_2, S_2, P_2, dP_2, dS_2, dS_sum_2)
#             for h in parallel(0, H):
#                 private: (S_sum_2, S_2, P_2, dP_2, dS_2, dS_sum_2)
#                 for j in parallel(cu_k[b], cu_k[b + 1]):
#                     private: (S_sum_2, S_2, P_2, dP_2, dS_2, dS_sum_2)
#                     for i in range(cu_q[b], cu_q[b + 1]):
#                         S_sum_2 = sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))  # S11
#                         S_2 = scale * S_sum_2  # S12
#                         P_2 = exp(S_2 - lse[i, h])  # S13
#                         dP_2 = sum(dO[i, h, d] * V[j, h, d] for d in range(0, D))  # S14
#                         dS_2 = P_2 * (dP_2 + dlse[i, h] - delta[h, i])  # S15
#                         dS_sum_2 = dS_2 * scale  # S16
#                         for e in parallel(0, E):
#                             dK[j, h, e] = dK[j, h, e] + dS_sum_2 * Q[i, h, e]  # S17
#                         for d in parallel(0, D):
#                             dV[j, h, d] = dV[j, h, d] + dO[i, h, d] * P_2  # S18
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(cu_q[b], cu_q[b + 1]):
#                     dscale = dscale + dscale_part[h, i]  # S19
#         return dQ, dK, dV, dscale
#
# Notes:
#   - the loop b runs one iteration at a time in each program: the loop h inside carries values of
#     the state
#   - the loop h runs one iteration at a time in each program: the loop i inside carries values of
#     the state

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
def attention_ragged_kernel(
    Q_ptr, K_ptr, V_ptr, cu_q_ptr, cu_k_ptr, O_ptr, lse_ptr,
    stride_Q_i, stride_Q_h, stride_Q_e,
    stride_K_j, stride_K_h, stride_K_e,
    stride_V_j, stride_V_h, stride_V_d,
    stride_cu_q_b,
    stride_cu_k_0,
    stride_O_i, stride_O_h, stride_O_d,
    stride_lse_i, stride_lse_h,
    scale,
    T, H,
    E: tl.constexpr, D: tl.constexpr,
    SCALE_POSITIVE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    LATE: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    i goes from cu_q[b] to cu_q[b + 1]: a program whose block begins beyond does nothing.
    Reads Q (T, H, E), K (U, H, E), V (U, H, D), cu_q (B + 1,), cu_k (B + 1,).
    Writes O (T, H, D), lse (T, H).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(T, BLOCK_I)
    b = pid // blocks_i // H
    h = pid // blocks_i % H
    block_i = pid % blocks_i
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    # What is the same throughout the program goes into the pointers.
    Q_ptr += h * stride_Q_h
    K_ptr += h * stride_K_h
    V_ptr += h * stride_V_h
    O_ptr += h * stride_O_h
    lse_ptr += h * stride_lse_h

    cu_q_b = tl.load(cu_q_ptr + b * stride_cu_q_b)
    cu_q_b_2 = tl.load(cu_q_ptr + (b + 1) * stride_cu_q_b)
    i_first = (cu_q_b + block_i * BLOCK_I).to(INDEX)
    i = i_first + tl.arange(0, BLOCK_I)
    if i_first < cu_q_b_2:
        O = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
        m = tl.full([BLOCK_I], float("-inf"), tl.float32)  # S1
        l = tl.zeros([BLOCK_I], tl.float32)  # S4
        cu_k_b = tl.load(cu_k_ptr + (b + 1) * stride_cu_k_0)  # S4
        cu_k_b_2 = tl.load(cu_k_ptr + b * stride_cu_k_0)  # S4
        # blocks before this one are full
        j_full = cu_k_b_2 + tl.maximum(cu_k_b - cu_k_b_2, 0) // BLOCK_J * BLOCK_J
        Q_ie = tl.load(
            Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
            mask=(i[:, None] < cu_q_b_2) & e_in[None, :],
            other=0.0
        )  # S2
        S_scale = scale * 1.4426950408889634  # in units of log2(e)
        S_inside = 1.0 if SCALE_POSITIVE else S_scale  # for elements
        S_outside = S_scale if SCALE_POSITIVE else 1.0  # for their maximum
        if LATE:
            exp_S_late = tl.zeros([BLOCK_I, BLOCK_J], V_ptr.dtype.element_ty)
            j_late = tl.full([BLOCK_J], -2147483648, INDEX)  # no block yet
        # What is read as it would be in a block that begins at 0.
        j_at = tl.arange(0, BLOCK_J).to(INDEX)
        K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
        V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
        # Full blocks.
        for j_first in range(cu_k_b_2, j_full, BLOCK_J):
            j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
            K_je = tl.load(
                K_at + tl.cast(j_first, INDEX) * stride_K_j, mask=e_in[None, :], other=0.0
            )  # S2
            S = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee") * S_inside  # S2
            if LATE:
                V_jd = tl.load(
                    V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                    mask=(j_late[:, None] > -2147483648) & d_in[None, :],
                    other=0.0
                )  # S8
                O = tl.dot(exp_S_late, V_jd, O, input_precision="ieee")  # S8: of the block before
            m_bhij = tl.maximum(m, tl.max(S, axis=1) * S_outside)  # S10
            # 0 as long as nothing was seen
            m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
            exp_m = tl.exp2(m - m_bhij_finite)  # S11
            exp_S = tl.exp2(S * S_outside - m_bhij_finite[:, None])  # S11
            l = l * exp_m + tl.sum(exp_S, axis=1)  # S11
            if LATE:
                O = O * exp_m[:, None]  # S8
                exp_S_late = exp_S.to(V_ptr.dtype.element_ty)
                j_late = j
            else:
                V_jd = tl.load(
                    V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
                )  # S8
                O = tl.dot(
                    exp_S.to(V_ptr.dtype.element_ty),
                    V_jd,
                    O * exp_m[:, None],
                    input_precision="ieee"
                )  # S8
            m = m_bhij  # S3
        # The last, partial block.
        for j_first in range(j_full, cu_k_b, BLOCK_J):
            j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
            K_je = tl.load(
                K_at + tl.cast(j_first, INDEX) * stride_K_j,
                mask=(j[:, None] < cu_k_b) & e_in[None, :],
                other=0.0
            )  # S2
            S = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee") * S_inside  # S2
            if LATE:
                V_jd = tl.load(
                    V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                    mask=(j_late[:, None] > -2147483648) & d_in[None, :],
                    other=0.0
                )  # S8
                O = tl.dot(exp_S_late, V_jd, O, input_precision="ieee")  # S8: of the block before
            S = tl.where(j[None, :] < cu_k_b, S, float("-inf"))  # outside: the least there is
            m_bhij = tl.maximum(m, tl.max(S, axis=1) * S_outside)  # S10
            # 0 as long as nothing was seen
            m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
            exp_m = tl.exp2(m - m_bhij_finite)  # S11
            exp_S = tl.exp2(S * S_outside - m_bhij_finite[:, None])  # S11
            l = l * exp_m + tl.sum(exp_S, axis=1)  # S11
            if LATE:
                O = O * exp_m[:, None]  # S8
                exp_S_late = exp_S.to(V_ptr.dtype.element_ty)
                j_late = tl.where(j < cu_k_b, j, -2147483648)
            else:
                V_jd = tl.load(
                    V_at + tl.cast(j_first, INDEX) * stride_V_j,
                    mask=(j[:, None] < cu_k_b) & d_in[None, :],
                    other=0.0
                )  # S8
                O = tl.dot(
                    exp_S.to(V_ptr.dtype.element_ty),
                    V_jd,
                    O * exp_m[:, None],
                    input_precision="ieee"
                )  # S8
            m = m_bhij  # S3
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] > -2147483648) & d_in[None, :],
                other=0.0
            )  # S8
            O = tl.dot(exp_S_late, V_jd, O, input_precision="ieee")  # S8: of the block before
        m = m * 0.6931471805599453  # back from units of log2(e)
        O = tl.where(l[:, None] != 0.0, O / l[:, None], 0.0)  # S5
        tl.store(lse_ptr + i * stride_lse_i, m + tl.log(l), mask=i < cu_q_b_2)  # S9
        tl.store(
            O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
            O,
            mask=(i[:, None] < cu_q_b_2) & d_in[None, :]
        )  # S5


def attention_ragged_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J, "LATE": LATE}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_ragged_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_J, BLOCK_D, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * BLOCK_I * BLOCK_E + num_stages * width * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    )
    held = BLOCK_I * BLOCK_D + BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_ragged_kernel_default = {
    2: attention_ragged_kernel_config(128, 64, 0, 8, 3),
    4: attention_ragged_kernel_config(32, 32, 0, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_ragged_kernel_tuned = {
    2: _Tuned(
        attention_ragged_kernel,
        [
            attention_ragged_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((128, 8), (64, 4), (128, 4)), (64, 32, 128), (0, 1), (3, 2)
            )
        ],
        key=["T", "H", "E", "D"],
        fitting=_fitting(attention_ragged_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_ragged_kernel,
        [
            attention_ragged_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (0,), (1, 2)
            )
        ],
        key=["T", "H", "E", "D"],
        fitting=_fitting(attention_ragged_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_ragged_backward_delta_kernel(
    cu_q_ptr, O_ptr, dO_ptr, delta_ptr,
    stride_cu_q_b,
    stride_O_i, stride_O_h, stride_O_d,
    stride_dO_i, stride_dO_h, stride_dO_d,
    stride_delta_h, stride_delta_i,
    T, D, B,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    i goes from cu_q[b] to cu_q[b + 1]: a program whose block begins beyond does nothing.
    Reads cu_q (B + 1,), O (T, H, D), dO (T, H, D).
    Writes delta (H, T).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(T, BLOCK_I)
    b = pid // blocks_i % B
    h = pid // blocks_i // B
    block_i = pid % blocks_i
    # What is the same throughout the program goes into the pointers.
    O_ptr += h * stride_O_h
    dO_ptr += h * stride_dO_h
    delta_ptr += h * stride_delta_h

    cu_q_b = tl.load(cu_q_ptr + b * stride_cu_q_b)
    cu_q_b_2 = tl.load(cu_q_ptr + (b + 1) * stride_cu_q_b)
    i_first = (cu_q_b + block_i * BLOCK_I).to(INDEX)
    i = i_first + tl.arange(0, BLOCK_I)
    if i_first < cu_q_b_2:
        delta = tl.zeros([BLOCK_I], tl.float32)
        d_full = D // BLOCK_D * BLOCK_D  # blocks before this one are full
        # Full blocks.
        for d_first in range(0, d_full, BLOCK_D):
            d = (d_first + tl.arange(0, BLOCK_D)).to(INDEX)
            dO_id = tl.load(
                dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
                mask=i[:, None] < cu_q_b_2,
                other=0.0
            )  # S2
            O_id = tl.load(
                O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
                mask=i[:, None] < cu_q_b_2,
                other=0.0
            )  # S2
            delta = delta + tl.sum(dO_id.to(tl.float32) * O_id.to(tl.float32), axis=1)  # S2
        # The last, partial block.
        for d_first in range(d_full, D, BLOCK_D):
            d = (d_first + tl.arange(0, BLOCK_D)).to(INDEX)
            dO_id = tl.load(
                dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
                mask=(i[:, None] < cu_q_b_2) & (d[None, :] < D),
                other=0.0
            )  # S2
            O_id = tl.load(
                O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
                mask=(i[:, None] < cu_q_b_2) & (d[None, :] < D),
                other=0.0
            )  # S2
            delta = delta + tl.sum(dO_id.to(tl.float32) * O_id.to(tl.float32), axis=1)  # S2
        tl.store(delta_ptr + i * stride_delta_i, delta, mask=i < cu_q_b_2)  # S2


def attention_ragged_backward_delta_kernel_config(BLOCK_I, BLOCK_D, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_D": BLOCK_D}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_ragged_backward_delta_kernel_default = attention_ragged_backward_delta_kernel_config(
    4, 512, 4, 2
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_ragged_backward_delta_kernel_tuned = _Tuned(
    attention_ragged_backward_delta_kernel,
    [
        attention_ragged_backward_delta_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["T", "D", "B"],
)


@triton.jit
def attention_ragged_backward_dQ_kernel(
    Q_ptr, K_ptr, V_ptr, cu_q_ptr, cu_k_ptr, lse_ptr, dO_ptr, dlse_ptr, delta_ptr, dscale_part_ptr,
    dQ_ptr,
    stride_Q_i, stride_Q_h, stride_Q_e,
    stride_K_j, stride_K_h, stride_K_e,
    stride_V_j, stride_V_h, stride_V_d,
    stride_cu_q_b,
    stride_cu_k_0,
    stride_lse_i, stride_lse_h,
    stride_dO_i, stride_dO_h, stride_dO_d,
    stride_dlse_i, stride_dlse_h,
    stride_delta_h, stride_delta_i,
    stride_dscale_part_h, stride_dscale_part_i,
    stride_dQ_i, stride_dQ_h, stride_dQ_e,
    scale,
    T, H,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    i goes from cu_q[b] to cu_q[b + 1]: a program whose block begins beyond does nothing.
    Reads Q (T, H, E), K (U, H, E), V (U, H, D), cu_q (B + 1,), cu_k (B + 1,), lse (T, H), dO (T,
    H, D), dlse (T, H), delta (H, T).
    Writes dscale_part (H, T), dQ (T, H, E).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(T, BLOCK_I)
    b = pid // blocks_i // H
    h = pid // blocks_i % H
    block_i = pid % blocks_i
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
    # What is the same throughout the program goes into the pointers.
    Q_ptr += h * stride_Q_h
    K_ptr += h * stride_K_h
    V_ptr += h * stride_V_h
    lse_ptr += h * stride_lse_h
    dO_ptr += h * stride_dO_h
    dlse_ptr += h * stride_dlse_h
    delta_ptr += h * stride_delta_h
    if dscale_part_ptr is not None:
        dscale_part_ptr += h * stride_dscale_part_h
    if dQ_ptr is not None:
        dQ_ptr += h * stride_dQ_h

    S_scale = scale * 1.4426950408889634  # in units of log2(e)
    cu_q_b = tl.load(cu_q_ptr + b * stride_cu_q_b)
    cu_q_b_2 = tl.load(cu_q_ptr + (b + 1) * stride_cu_q_b)
    i_first = (cu_q_b + block_i * BLOCK_I).to(INDEX)
    i = i_first + tl.arange(0, BLOCK_I)
    if i_first < cu_q_b_2:
        dscale_part = tl.zeros([BLOCK_I], tl.float32)
        dQ = tl.zeros([BLOCK_I, BLOCK_E], tl.float32)
        cu_k_b = tl.load(cu_k_ptr + (b + 1) * stride_cu_k_0)
        cu_k_b_2 = tl.load(cu_k_ptr + b * stride_cu_k_0)
        # blocks before this one are full
        j_full = cu_k_b_2 + tl.maximum(cu_k_b - cu_k_b_2, 0) // BLOCK_J * BLOCK_J
        Q_ie = tl.load(
            Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
            mask=(i[:, None] < cu_q_b_2) & e_in[None, :],
            other=0.0
        )  # S3
        lse_i = tl.load(lse_ptr + i * stride_lse_i, mask=i < cu_q_b_2, other=0.0)  # S5
        dO_id = tl.load(
            dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
            mask=(i[:, None] < cu_q_b_2) & d_in[None, :],
            other=0.0
        )  # S6
        dlse_i = tl.load(dlse_ptr + i * stride_dlse_i, mask=i < cu_q_b_2, other=0.0)  # S7
        delta_i = tl.load(delta_ptr + i * stride_delta_i, mask=i < cu_q_b_2, other=0.0)  # S7
        # What is read as it would be in a block that begins at 0.
        j_at = tl.arange(0, BLOCK_J).to(INDEX)
        K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
        V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
        # Full blocks.
        for j_first in range(cu_k_b_2, j_full, BLOCK_J):
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
            dS = P * (dP + dlse_i.to(tl.float32)[:, None] - delta_i.to(tl.float32)[:, None])  # S7
            dscale_part = dscale_part + tl.sum(dS * S_sum, axis=1)  # S9
            dQ = tl.dot(dS.to(K_ptr.dtype.element_ty), K_je, dQ, input_precision="ieee")  # S10
        # The last, partial block.
        for j_first in range(j_full, cu_k_b, BLOCK_J):
            j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
            K_je = tl.load(
                K_at + tl.cast(j_first, INDEX) * stride_K_j,
                mask=(j[:, None] < cu_k_b) & e_in[None, :],
                other=0.0
            )  # S3
            S_sum = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S3
            P = tl.exp2(
                S_sum * S_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
            )  # S4, S5
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j,
                mask=(j[:, None] < cu_k_b) & d_in[None, :],
                other=0.0
            )  # S6
            dP = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S6
            dS = P * (dP + dlse_i.to(tl.float32)[:, None] - delta_i.to(tl.float32)[:, None])  # S7
            dscale_part = dscale_part + tl.sum(
                tl.where(j[None, :] < cu_k_b, dS * S_sum, 0.0), axis=1
            )  # S9
            dQ = tl.dot(
                tl.where(j[None, :] < cu_k_b, dS, 0.0).to(K_ptr.dtype.element_ty),
                K_je,
                dQ,
                input_precision="ieee"
            )  # S10
        dQ = dQ * scale  # S8, S10
        if dscale_part_ptr is not None:
            tl.store(
                dscale_part_ptr + i * stride_dscale_part_i, dscale_part, mask=i < cu_q_b_2
            )  # S9
        if dQ_ptr is not None:
            tl.store(
                dQ_ptr + i[:, None] * stride_dQ_i + e[None, :] * stride_dQ_e,
                dQ,
                mask=(i[:, None] < cu_q_b_2) & e_in[None, :]
            )  # S10


def attention_ragged_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_ragged_backward_dQ_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_D, BLOCK_J, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D
    ) + num_stages * width * (BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D)
    held = BLOCK_I * BLOCK_E + 2 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_ragged_backward_dQ_kernel_default = {
    2: attention_ragged_backward_dQ_kernel_config(128, 32, 8, 3),
    4: attention_ragged_backward_dQ_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_ragged_backward_dQ_kernel_tuned = {
    2: _Tuned(
        attention_ragged_backward_dQ_kernel,
        [
            attention_ragged_backward_dQ_kernel_config(*row)
            for row in itertools.product((128, 64), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["T", "H", "E", "D"],
        fitting=_fitting(attention_ragged_backward_dQ_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_ragged_backward_dQ_kernel,
        [
            attention_ragged_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["T", "H", "E", "D"],
        fitting=_fitting(attention_ragged_backward_dQ_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_ragged_backward_dK_dV_kernel(
    Q_ptr, K_ptr, V_ptr, cu_q_ptr, cu_k_ptr, lse_ptr, dO_ptr, dlse_ptr, delta_ptr, dK_ptr, dV_ptr,
    stride_Q_i, stride_Q_h, stride_Q_e,
    stride_K_j, stride_K_h, stride_K_e,
    stride_V_j, stride_V_h, stride_V_d,
    stride_cu_q_0,
    stride_cu_k_b,
    stride_lse_i, stride_lse_h,
    stride_dO_i, stride_dO_h, stride_dO_d,
    stride_dlse_i, stride_dlse_h,
    stride_delta_h, stride_delta_i,
    stride_dK_j, stride_dK_h, stride_dK_e,
    stride_dV_j, stride_dV_h, stride_dV_d,
    scale,
    H, U,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_J iterations of j, for one b and one h.

    j goes from cu_k[b] to cu_k[b + 1]: a program whose block begins beyond does nothing.
    Reads Q (T, H, E), K (U, H, E), V (U, H, D), cu_q (B + 1,), cu_k (B + 1,), lse (T, H), dO (T,
    H, D), dlse (T, H), delta (H, T).
    Writes dK (U, H, E), dV (U, H, D).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_j = tl.cdiv(U, BLOCK_J)
    b = pid // blocks_j // H
    h = pid // blocks_j % H
    block_j = pid % blocks_j
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
    # What is the same throughout the program goes into the pointers.
    Q_ptr += h * stride_Q_h
    K_ptr += h * stride_K_h
    V_ptr += h * stride_V_h
    lse_ptr += h * stride_lse_h
    dO_ptr += h * stride_dO_h
    dlse_ptr += h * stride_dlse_h
    delta_ptr += h * stride_delta_h
    if dK_ptr is not None:
        dK_ptr += h * stride_dK_h
    if dV_ptr is not None:
        dV_ptr += h * stride_dV_h

    S_2_scale = scale * 1.4426950408889634  # in units of log2(e)
    cu_k_b = tl.load(cu_k_ptr + b * stride_cu_k_b)
    cu_k_b_2 = tl.load(cu_k_ptr + (b + 1) * stride_cu_k_b)
    j_first = (cu_k_b + block_j * BLOCK_J).to(INDEX)
    j = j_first + tl.arange(0, BLOCK_J)
    if j_first < cu_k_b_2:
        dK = tl.zeros([BLOCK_J, BLOCK_E], tl.float32)
        dV = tl.zeros([BLOCK_J, BLOCK_D], tl.float32)
        cu_q_b = tl.load(cu_q_ptr + (b + 1) * stride_cu_q_0)
        cu_q_b_2 = tl.load(cu_q_ptr + b * stride_cu_q_0)
        # blocks before this one are full
        i_full = cu_q_b_2 + tl.maximum(cu_q_b - cu_q_b_2, 0) // BLOCK_I * BLOCK_I
        K_je = tl.load(
            K_ptr + j[:, None] * stride_K_j + e[None, :] * stride_K_e,
            mask=(j[:, None] < cu_k_b_2) & e_in[None, :],
            other=0.0
        )  # S11
        V_jd = tl.load(
            V_ptr + j[:, None] * stride_V_j + d[None, :] * stride_V_d,
            mask=(j[:, None] < cu_k_b_2) & d_in[None, :],
            other=0.0
        )  # S14
        # What is read as it would be in a block that begins at 0.
        i_at = tl.arange(0, BLOCK_I).to(INDEX)
        Q_at = Q_ptr + i_at[:, None] * stride_Q_i + e[None, :] * stride_Q_e
        lse_at = lse_ptr + i_at * stride_lse_i
        dO_at = dO_ptr + i_at[:, None] * stride_dO_i + d[None, :] * stride_dO_d
        dlse_at = dlse_ptr + i_at * stride_dlse_i
        delta_at = delta_ptr + i_at * stride_delta_i
        # Full blocks.
        for i_from in range(tl.cast(cu_q_b_2, tl.int64), tl.cast(i_full, tl.int64), BLOCK_I):
            i_first = tl.cast(i_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
            Q_ie = tl.load(Q_at + i_first * stride_Q_i, mask=e_in[None, :], other=0.0)  # S11
            S_sum_2 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S11
            lse_i = tl.load(lse_at + i_first * stride_lse_i)  # S13
            P_2 = tl.exp2(
                S_sum_2 * S_2_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
            )  # S12, S13
            dO_id = tl.load(dO_at + i_first * stride_dO_i, mask=d_in[None, :], other=0.0)  # S14
            dP_2 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S14
            dlse_i = tl.load(dlse_at + i_first * stride_dlse_i)  # S15
            delta_i = tl.load(delta_at + i_first * stride_delta_i)  # S15
            dS_2 = P_2 * (
                dP_2 + dlse_i.to(tl.float32)[None, :] - delta_i.to(tl.float32)[None, :]
            )  # S15
            dK = tl.dot(dS_2.to(Q_ptr.dtype.element_ty), Q_ie, dK, input_precision="ieee")  # S17
            dV = tl.dot(P_2.to(dO_ptr.dtype.element_ty), dO_id, dV, input_precision="ieee")  # S18
        # The last, partial block.
        for i_from in range(tl.cast(i_full, tl.int64), tl.cast(cu_q_b, tl.int64), BLOCK_I):
            i_first = tl.cast(i_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
            i = i_first + tl.arange(0, BLOCK_I)
            Q_ie = tl.load(
                Q_at + i_first * stride_Q_i, mask=(i[:, None] < cu_q_b) & e_in[None, :], other=0.0
            )  # S11
            S_sum_2 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S11
            lse_i = tl.load(lse_at + i_first * stride_lse_i, mask=i < cu_q_b, other=0.0)  # S13
            P_2 = tl.exp2(
                S_sum_2 * S_2_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
            )  # S12, S13
            dO_id = tl.load(
                dO_at + i_first * stride_dO_i, mask=(i[:, None] < cu_q_b) & d_in[None, :], other=0.0
            )  # S14
            dP_2 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S14
            dlse_i = tl.load(dlse_at + i_first * stride_dlse_i, mask=i < cu_q_b, other=0.0)  # S15
            delta_i = tl.load(
                delta_at + i_first * stride_delta_i, mask=i < cu_q_b, other=0.0
            )  # S15
            dS_2 = P_2 * (
                dP_2 + dlse_i.to(tl.float32)[None, :] - delta_i.to(tl.float32)[None, :]
            )  # S15
            dK = tl.dot(
                tl.where(i[None, :] < cu_q_b, dS_2, 0.0).to(Q_ptr.dtype.element_ty),
                Q_ie,
                dK,
                input_precision="ieee"
            )  # S17
            dV = tl.dot(
                tl.where(i[None, :] < cu_q_b, P_2, 0.0).to(dO_ptr.dtype.element_ty),
                dO_id,
                dV,
                input_precision="ieee"
            )  # S18
        dK = dK * scale  # S16, S17
        if dK_ptr is not None:
            tl.store(
                dK_ptr + j[:, None] * stride_dK_j + e[None, :] * stride_dK_e,
                dK,
                mask=(j[:, None] < cu_k_b_2) & e_in[None, :]
            )  # S17
        if dV_ptr is not None:
            tl.store(
                dV_ptr + j[:, None] * stride_dV_j + d[None, :] * stride_dV_d,
                dV,
                mask=(j[:, None] < cu_k_b_2) & d_in[None, :]
            )  # S18


def attention_ragged_backward_dK_dV_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_ragged_backward_dK_dV_kernel_footprint(
    width, /, num_stages, BLOCK_J, BLOCK_E, BLOCK_D, BLOCK_I, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    ) + num_stages * width * (BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D)
    held = BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D + 2 * BLOCK_J * BLOCK_I
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_ragged_backward_dK_dV_kernel_default = {
    2: attention_ragged_backward_dK_dV_kernel_config(64, 32, 8, 3),
    4: attention_ragged_backward_dK_dV_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_ragged_backward_dK_dV_kernel_tuned = {
    2: _Tuned(
        attention_ragged_backward_dK_dV_kernel,
        [
            attention_ragged_backward_dK_dV_kernel_config(*row)
            for row in itertools.product((64, 128), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["H", "U", "E", "D"],
        fitting=_fitting(attention_ragged_backward_dK_dV_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_ragged_backward_dK_dV_kernel,
        [
            attention_ragged_backward_dK_dV_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages)
            for (BLOCK_J, num_warps), BLOCK_I, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "U", "E", "D"],
        fitting=_fitting(attention_ragged_backward_dK_dV_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_ragged_backward_dscale_kernel(
    cu_q_ptr, dscale_part_ptr, dscale_ptr,
    stride_cu_q_0,
    stride_dscale_part_h, stride_dscale_part_i,
    H, B,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    """A program does everything.

    Reads cu_q (B + 1,), dscale_part (H, T).
    Writes dscale (a number).
    """
    dscale = tl.full([], 0.0, tl.float32)  # S1
    # The loop h inside carries values of the state.
    for b in range(tl.cast(0, INDEX), B):
        cu_q_b = tl.load(cu_q_ptr + (b + 1) * stride_cu_q_0)  # S1
        cu_q_b_2 = tl.load(cu_q_ptr + b * stride_cu_q_0)  # S1
        # The loop i inside carries values of the state.
        for h in range(tl.cast(0, INDEX), H):
            # blocks before this one are full
            i_full = cu_q_b_2 + tl.maximum(cu_q_b - cu_q_b_2, 0) // BLOCK_I * BLOCK_I
            # Full blocks.
            for i_first in range(cu_q_b_2, i_full, BLOCK_I):
                i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
                dscale_part_i = tl.load(
                    dscale_part_ptr + h * stride_dscale_part_h + i * stride_dscale_part_i
                )  # S19
                dscale = dscale + tl.sum(dscale_part_i.to(tl.float32), axis=0)  # S19
            # The last, partial block.
            for i_first in range(i_full, cu_q_b, BLOCK_I):
                i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
                dscale_part_i = tl.load(
                    dscale_part_ptr + h * stride_dscale_part_h + i * stride_dscale_part_i,
                    mask=i < cu_q_b,
                    other=0.0
                )  # S19
                dscale = dscale + tl.sum(dscale_part_i.to(tl.float32), axis=0)  # S19
    tl.store(dscale_ptr, dscale)  # S19


def attention_ragged_backward_dscale_kernel_config(BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_ragged_backward_dscale_kernel_default = attention_ragged_backward_dscale_kernel_config(
    512, 4, 2
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_ragged_backward_dscale_kernel_tuned = _Tuned(
    attention_ragged_backward_dscale_kernel,
    [
        attention_ragged_backward_dscale_kernel_config(*row)
        for row in itertools.product((128, 512, 1024), (4, 8), (2,))
    ],
    key=["H", "B"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(attention_ragged_kernel, triton.JITFunction)
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


def attention_ragged_forward(Q, K, V, cu_q, cu_k, scale, *, tune=True, check=False):
    """Run attention_ragged, and return what its gradients need besides.

    Args:
        Q: (T, H, E), float16, bfloat16 or float32, any strides.
        K: (U, H, E), float16, bfloat16 or float32, any strides.
        V: (U, H, D), float16, bfloat16 or float32, any strides.
        cu_q: (B + 1,), int32 or int64, any strides; values from 0 up to, not including, T + 1.
        cu_k: (B + 1,), int32 or int64, any strides; values from 0 up to, not including, U + 1.
        scale: A real number.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: all(cu_q[b] <= cu_q[b + 1] for b in
            range(0, B)); all(cu_k[b] <= cu_k[b + 1] for b in range(0, B)); the declared range of
            cu_q; the declared range of cu_k. It waits for the GPU; without it, they are trusted.

    Returns:
        O (T, H, D), lse (T, H) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 3, _FLOAT), ("K", K, 3, _FLOAT), ("V", V, 3, _FLOAT), ("cu_q", cu_q, 1, _INT),
        ("cu_k", cu_k, 1, _INT)
    )
    scale = _real("scale", scale)
    T, H, E = Q.shape
    U = K.shape[0]
    D = V.shape[2]
    B = cu_q.shape[0] - 1
    _check_shape("K", K, (U, H, E), "(U, H, E) with H = Q.shape[1] and E = Q.shape[2]")
    _check_shape("V", V, (U, H, D), "(U, H, D) with U = K.shape[0] and H = Q.shape[1]")
    _check_shape("cu_q", cu_q, (B + 1,), "(B + 1,)")
    _check_shape("cu_k", cu_k, (B + 1,), "(B + 1,)")
    if check:
        if ((cu_q < 0) | (cu_q >= T + 1)).any():
            raise ValueError(f"cu_q should hold integers from 0 up to, not including, {T + 1}")
        if ((cu_k < 0) | (cu_k >= U + 1)).any():
            raise ValueError(f"cu_k should hold integers from 0 up to, not including, {U + 1}")
        cu_q_copy = cu_q.cpu()
        if not all(cu_q_copy[b] <= cu_q_copy[b + 1] for b in range(0, B)):
            raise ValueError("the listing assumes all(cu_q[b] <= cu_q[b + 1] for b in range(0, B))")
        cu_k_copy = cu_k.cpu()
        if not all(cu_k_copy[b] <= cu_k_copy[b + 1] for b in range(0, B)):
            raise ValueError("the listing assumes all(cu_k[b] <= cu_k[b + 1] for b in range(0, B))")
    O = torch.full((T, H, D), 0.0, dtype=Q.dtype, device=Q.device)
    lse = torch.full((T, H), float("-inf"), dtype=torch.float32, device=Q.device)
    index = _index_type(Q, K, V, cu_q, cu_k, O, lse)
    width = Q.element_size()

    lanes = {
        "BLOCK_D": max(16, triton.next_power_of_2(D)), "BLOCK_E": max(16, triton.next_power_of_2(E))
    }
    if _INTERPRETED or not tune:
        run = attention_ragged_kernel
        blocks = _fitted(
            attention_ragged_kernel_default[width],
            attention_ragged_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_ragged_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(T, meta["BLOCK_I"]),)

    if min(B, H, T) > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, cu_q, cu_k, O, lse,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *cu_q.stride(),
                *cu_k.stride(),
                *O.stride(),
                *lse.stride(),
                scale,
                T, H,
                E=E, D=D,
                SCALE_POSITIVE=scale > 0,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return O, lse


def attention_ragged_backward(
    Q, K, V, cu_q, cu_k, scale, lse, O, dO, dlse, *, wanted=None, tune=True, check=False
):
    """Return the gradients of attention_ragged.

    Args:
        Q: (T, H, E), float16, bfloat16 or float32, any strides.
        K: (U, H, E), float16, bfloat16 or float32, any strides.
        V: (U, H, D), float16, bfloat16 or float32, any strides.
        cu_q: (B + 1,), int32 or int64, any strides; values from 0 up to, not including, T + 1.
        cu_k: (B + 1,), int32 or int64, any strides; values from 0 up to, not including, U + 1.
        scale: A real number.
        lse: (T, H), float32, any strides.
        O: (T, H, D), float16, bfloat16 or float32, any strides.
        dO: (T, H, D), float16, bfloat16 or float32, any strides.
        dlse: (T, H), float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: all(cu_q[b] <= cu_q[b + 1] for b in
            range(0, B)); all(cu_k[b] <= cu_k[b + 1] for b in range(0, B)); the declared range of
            cu_q; the declared range of cu_k. It waits for the GPU; without it, they are trusted.

    Returns:
        dQ (T, H, E), dK (U, H, E), dV (U, H, D), dscale (a number) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 3, _FLOAT), ("K", K, 3, _FLOAT), ("V", V, 3, _FLOAT), ("cu_q", cu_q, 1, _INT),
        ("cu_k", cu_k, 1, _INT), ("lse", lse, 2, (torch.float32,)), ("O", O, 3, _FLOAT),
        ("dO", dO, 3, _FLOAT), ("dlse", dlse, 2, (torch.float32,))
    )
    scale = _real("scale", scale)
    T, H, E = Q.shape
    U = K.shape[0]
    D = V.shape[2]
    B = cu_q.shape[0] - 1
    _check_shape("K", K, (U, H, E), "(U, H, E) with H = Q.shape[1] and E = Q.shape[2]")
    _check_shape("V", V, (U, H, D), "(U, H, D) with U = K.shape[0] and H = Q.shape[1]")
    _check_shape("cu_q", cu_q, (B + 1,), "(B + 1,)")
    _check_shape("cu_k", cu_k, (B + 1,), "(B + 1,)")
    _check_shape("lse", lse, (T, H), "(T, H) with T = Q.shape[0] and H = Q.shape[1]")
    _check_shape(
        "O", O, (T, H, D), "(T, H, D) with T = Q.shape[0], H = Q.shape[1] and D = V.shape[2]"
    )
    _check_shape(
        "dO", dO, (T, H, D), "(T, H, D) with T = Q.shape[0], H = Q.shape[1] and D = V.shape[2]"
    )
    _check_shape("dlse", dlse, (T, H), "(T, H) with T = Q.shape[0] and H = Q.shape[1]")
    if check:
        if ((cu_q < 0) | (cu_q >= T + 1)).any():
            raise ValueError(f"cu_q should hold integers from 0 up to, not including, {T + 1}")
        if ((cu_k < 0) | (cu_k >= U + 1)).any():
            raise ValueError(f"cu_k should hold integers from 0 up to, not including, {U + 1}")
        cu_q_copy = cu_q.cpu()
        if not all(cu_q_copy[b] <= cu_q_copy[b + 1] for b in range(0, B)):
            raise ValueError("the listing assumes all(cu_q[b] <= cu_q[b + 1] for b in range(0, B))")
        cu_k_copy = cu_k.cpu()
        if not all(cu_k_copy[b] <= cu_k_copy[b + 1] for b in range(0, B)):
            raise ValueError("the listing assumes all(cu_k[b] <= cu_k[b + 1] for b in range(0, B))")
    wanted = _wanted(wanted, ("dQ", "dK", "dV", "dscale"))
    delta = torch.full((H, T), 0.0, dtype=torch.float32, device=Q.device)
    dscale_part = None
    if "dscale" in wanted:
        dscale_part = torch.full((H, T), 0.0, dtype=torch.float32, device=Q.device)
    dQ = None
    if "dQ" in wanted:
        dQ = torch.full((T, H, E), 0.0, dtype=Q.dtype, device=Q.device)
    dK = None
    if "dK" in wanted:
        dK = torch.full((U, H, E), 0.0, dtype=Q.dtype, device=Q.device)
    dV = None
    if "dV" in wanted:
        dV = torch.full((U, H, D), 0.0, dtype=Q.dtype, device=Q.device)
    dscale = None
    if "dscale" in wanted:
        dscale = torch.empty((), dtype=torch.float32, device=Q.device)
    index = _index_type(
        *_given(Q, K, V, cu_q, cu_k, lse, O, dO, dlse, delta, dscale_part, dQ, dK, dV, dscale)
    )
    width = Q.element_size()

    if _INTERPRETED or not tune:
        run = attention_ragged_backward_delta_kernel
        blocks = attention_ragged_backward_delta_kernel_default.all_kwargs()
    else:
        run = attention_ragged_backward_delta_kernel_tuned
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(T, meta["BLOCK_I"]),)

    if min(B, H, T) > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                cu_q, O, dO, delta,
                *cu_q.stride(),
                *O.stride(),
                *dO.stride(),
                *delta.stride(),
                T, D, B,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    lanes = {
        "BLOCK_E": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = attention_ragged_backward_dQ_kernel
        blocks = _fitted(
            attention_ragged_backward_dQ_kernel_default[width],
            attention_ragged_backward_dQ_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_ragged_backward_dQ_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(T, meta["BLOCK_I"]),)

    if min(B, H, T) > 0 and wanted & {"dQ", "dscale"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, cu_q, cu_k, lse, dO, dlse, delta, dscale_part, dQ,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *cu_q.stride(),
                *cu_k.stride(),
                *lse.stride(),
                *dO.stride(),
                *dlse.stride(),
                *delta.stride(),
                *_strides(dscale_part, 0, 1),
                *_strides(dQ, 0, 1, 2),
                scale,
                T, H,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    lanes = {
        "BLOCK_E": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = attention_ragged_backward_dK_dV_kernel
        blocks = _fitted(
            attention_ragged_backward_dK_dV_kernel_default[width],
            attention_ragged_backward_dK_dV_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_ragged_backward_dK_dV_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(U, meta["BLOCK_J"]),)

    if min(B, H, U) > 0 and wanted & {"dK", "dV"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, cu_q, cu_k, lse, dO, dlse, delta, dK, dV,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *cu_q.stride(),
                *cu_k.stride(),
                *lse.stride(),
                *dO.stride(),
                *dlse.stride(),
                *delta.stride(),
                *_strides(dK, 0, 1, 2),
                *_strides(dV, 0, 1, 2),
                scale,
                H, U,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = attention_ragged_backward_dscale_kernel
        blocks = attention_ragged_backward_dscale_kernel_default.all_kwargs()
    else:
        run = attention_ragged_backward_dscale_kernel_tuned
        blocks = {}
    if "dscale" in wanted:
        with torch.cuda.device_of(Q):
            run[(1,)](
                cu_q, dscale_part, dscale,
                *cu_q.stride(),
                *dscale_part.stride(),
                H, B,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return dQ, dK, dV, dscale


@torch.library.custom_op(_free("attention_ragged_forward_55a6e6a4"), mutates_args=())
def _attention_ragged_forward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor,
    scale: float, scale_tensor: torch.Tensor | None, tune: bool, check: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return attention_ragged_forward(Q, K, V, cu_q, cu_k, scale, tune=tune, check=check)


@_attention_ragged_forward_operator.register_fake
def _(Q, K, V, cu_q, cu_k, scale, scale_tensor, tune, check):
    T = Q.shape[0]
    H = Q.shape[1]
    D = V.shape[2]
    return (
        torch.empty((T, H, D), dtype=Q.dtype, device=Q.device),
        torch.empty((T, H), dtype=torch.float32, device=Q.device),
    )


@torch.library.custom_op(_free("attention_ragged_backward_55a6e6a4"), mutates_args=())
def _attention_ragged_backward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor,
    scale: float, lse: torch.Tensor, O: torch.Tensor, dO: torch.Tensor, dlse: torch.Tensor,
    wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = attention_ragged_backward(
        Q,
        K,
        V,
        cu_q,
        cu_k,
        scale,
        lse,
        O,
        dO,
        dlse,
        wanted=[name for name, each in zip(("dQ", "dK", "dV", "dscale"), wanted) if each],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_attention_ragged_backward_operator.register_fake
def _(Q, K, V, cu_q, cu_k, scale, lse, O, dO, dlse, wanted, tune):
    T = Q.shape[0]
    H = Q.shape[1]
    E = Q.shape[2]
    U = K.shape[0]
    D = V.shape[2]
    found = (
        torch.empty((T, H, E), dtype=Q.dtype, device=Q.device),
        torch.empty((U, H, E), dtype=Q.dtype, device=Q.device),
        torch.empty((U, H, D), dtype=Q.dtype, device=Q.device),
        torch.empty((), dtype=torch.float32, device=Q.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _attention_ragged_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    Q, K, V, cu_q, cu_k, scale, scale_tensor, tune, check = inputs
    O, lse = output
    ctx.save_for_backward(Q, K, V, cu_q, cu_k, lse, O, scale_tensor)
    ctx.numbers = scale, tune
    ctx.like = _like(O), _like(lse)
    ctx.set_materialize_grads(False)


def _attention_ragged_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dO, dlse = found
    Q, K, V, cu_q, cu_k, lse, O, scale_tensor = ctx.saved_tensors
    scale, tune = ctx.numbers
    O_like, lse_like = ctx.like
    if dO is None:
        dO = _zeros(*O_like)
    if dlse is None:
        dlse = _zeros(*lse_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1], needed[2], needed[6]]
    found = iter(
        _attention_ragged_backward_operator(
            Q, K, V, cu_q, cu_k, scale, lse, O, dO, dlse, wanted, tune
        )
    )
    dQ, dK, dV, dscale = (next(found) if each else None for each in wanted)
    if dscale is not None:
        dscale = dscale.to(scale_tensor).reshape(scale_tensor.shape)
    return dQ, dK, dV, None, None, None, dscale, None, None


def _attention_ragged_second(ctx, *found):
    raise RuntimeError(
        "attention_ragged has no second derivative: its backward pass is derived once. Call "
        "backward without create_graph=True"
    )


_attention_ragged_forward_operator.register_autograd(
    _attention_ragged_gradients, setup_context=_attention_ragged_keep
)
_attention_ragged_backward_operator.register_autograd(_attention_ragged_second)


def attention_ragged(Q, K, V, cu_q, cu_k, scale, *, tune=True, check=False):
    """Attention over sequences of different lengths, packed one behind the other without padding.
    Differentiable: gradients come from attention_ragged_backward.

    Args:
        Q: (T, H, E), float16, bfloat16 or float32, any strides.
        K: (U, H, E), float16, bfloat16 or float32, any strides.
        V: (U, H, D), float16, bfloat16 or float32, any strides.
        cu_q: (B + 1,), int32 or int64, any strides; values from 0 up to, not including, T + 1.
        cu_k: (B + 1,), int32 or int64, any strides; values from 0 up to, not including, U + 1.
        scale: A real number.
        tune: Whether a GPU tries several block sizes; else the default.
        check: Whether to check what is assumed of contents: all(cu_q[b] <= cu_q[b + 1] for b in
            range(0, B)); all(cu_k[b] <= cu_k[b + 1] for b in range(0, B)); the declared range of
            cu_q; the declared range of cu_k. It waits for the GPU; without it, they are trusted.

    Returns:
        O (T, H, D), lse (T, H) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    return _attention_ragged_forward_operator(
        Q, K, V, cu_q, cu_k, _number("scale", scale), _handle(scale), tune, check
    )
