# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def flash_blocks(
#         Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], scale: float
#     ):
#         S = zeros(16)
#         O = zeros((M, D))
#         lse = zeros(M)
#         for i in range(0, M):
#             m = -inf  # S1: the maximum of nothing
#             l = 0.0  # S2: an empty sum
#             for j0 in range(0, min(N, i + 1), 16):
#                 new = m  # S3: the maximum up to here
#                 for j in range(j0, min(j0 + 16, N, i + 1)):
#                     # S4: the scaled score
#                     S[j - j0] = scale * sum(Q[i, e] * K[j, e] for e in range(0, E))
#                     new = max(new, S[j - j0])  # S5: Aggregation over j
#                 old = exp(m - new)  # S6: by how much what is there shrinks
#                 l = l * old  # S7: the sum, at the new maximum
#                 for d in range(0, D):
#                     O[i, d] = O[i, d] * old  # S8: the output, at the new maximum
#                 for j in range(j0, min(j0 + 16, N, i + 1)):
#                     p = exp(S[j - j0] - new)  # S9: the weight of key j
#                     l = l + p  # S10: Aggregation over j
#                     for d in range(0, D):
#                         O[i, d] = O[i, d] + p * V[j, d]  # S11: Aggregation over j
#                 m = new  # S12: Aggregation over j0
#             for d in range(0, D):
#                 O[i, d] = O[i, d] / l  # S13: one division for each element
#             lse[i] = m + log(l)  # S14: the log-sum-exp of row i
#         return O, lse
#
# The steps from there to its backward pass, with what each leans on:
#   1. make j0 and j one loop, each element a block of its own (order: the elements are the same, in
#      the same order; rounding: the results are equal over the reals, not bit for bit; algebra: an
#      element more: B(s, X + [x]) = step(B(s, X), x); algebra: an element: B(s, [x]) = step(s, x))
#   2. closed form of j: m = max_j(scale * sum(Q[i, e] * K[j, e] for e in range(0, E))); l =
#      sum_j(exp(scale * sum(Q[i, e] * K[j, e] for e in range(0, E)) - m)); O[i, d] = sum_j(V[j, d]
#      * exp(scale * sum(Q[i, e] * K[j, e] for e in range(0, E)) - m)) (algebra: one iteration: s .
#      unit(x) = step(s, x); algebra: continuation: s . (b . unit(x)) = step(s . b, x); algebra:
#      associativity: (a . b) . d = a . (b . d); algebra: no iteration: ⊥ . b = b, a . ⊥ = a, ⊥ . ⊥
#      = ⊥; algebra: first iteration: step(⊥, x) = unit(x); algebra: signs: unit(x) and a . b have
#      the signs they are said to have; algebra: coordinates: phi(step(s, x)) = phi(s) + h(x), and
#      phi can be undone; algebra: closed form: after all iterations phi(s) is what it was at first
#      and every h(x), joined)
#   3. define every array once (storage: every read gets the value that was written last above it)
#   4. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   5. do a sum term by term (algebra: l[i] * sum(dO_2[i, d] * V[j, d] for d in range(0, D)) =
#      sum(V[j, d] * dO[i, d] for d in range(0, D)))
#   6. do a sum term by term (algebra: sum(dO_2[i, d] * O_2[i, d] for d in range(0, D)) = sum(O_2[i,
#      d] * dO[i, d] for d in range(0, D)) / l[i])
#   7. reassociate a contraction (algebra: sum(dP[i, j] * P[i, j] for j in range(0, min(N, i + 1)))
#      = sum(dO[i, d] * O_2[i, d] for d in range(0, D)))
#   8. dm vanishes (algebra: dm = 0)
#   9. do a sum term by term (algebra: sum(dO_2[i, d] * l[i] * P[i, j] for i in range(0, M) if j < i
#      + 1) = sum(P[i, j] * dO[i, d] for i in range(0, M) if j < i + 1))
#   10. work P out from lse: keep lse = m[i] + log(l[i]) for each sum (algebra: P[i, j] =
#       exp(m_term[i, j] - m[i]) / l[i] = exp(m_term[i, j] - lse[i]))
#   11. take dlse into delta (algebra: dP + dlse[i] - delta[i] = dP - delta[i] with delta[i] -
#       dlse[i] for delta; rounding: dlse is added to the sum first)
#   12. store little, work out the rest again (storage: a value worked out again is the value that
#       was read before; rounding: sums are done in another order than reverse mode on the listing
#       would do them)
#
# Its backward pass:
#
#     def flash_blocks_backward(
#         Q: Float[Array, "M E"],
#         K: Float[Array, "N E"],
#         V: Float[Array, "N D"],
#         scale: float,
#         lse: Float[Array, "M"],
#         O: Float[Array, "M D"],
#         dO: Float[Array, "M D"],
#         dlse: Float[Array, "M"]
#     ):
#         delta = zeros(M, dtype=float32)
#         dscale_part = zeros(M, dtype=float32)
#         dQ = zeros((M, E))
#         dK = zeros((N, E))
#         dV = zeros((N, D))
#         dscale = 0.0
#         for i in range(0, M):
#             for d in range(0, D):
#                 delta[i] = delta[i] + dO[i, d] * O[i, d]
#             delta[i] = delta[i] - dlse[i]
#         for i in range(0, M):
#             for j in range(0, min(N, i + 1)):
#                 m_sum = sum(Q[i, e] * K[j, e] for e in range(0, E))
#                 m_term = scale * m_sum
#                 P = exp(m_term - lse[i])
#                 dP = sum(V[j, d] * dO[i, d] for d in range(0, D))
#                 dm_term = P * (dP - delta[i])
#                 dm_sum = dm_term * scale
#                 dscale_part[i] = dscale_part[i] + dm_term * m_sum
#                 for e in range(0, E):
#                     dQ[i, e] = dQ[i, e] + dm_sum * K[j, e]
#         for j in range(0, N):
#             for i in range(0, M):
#                 if j < i + 1:
#                     m_sum_2 = sum(Q[i, e] * K[j, e] for e in range(0, E))
#                     m_term_2 = scale * m_sum_2
#                     P_2 = exp(m_term_2 - lse[i])
#                     dP_2 = sum(V[j, d] * dO[i, d] for d in range(0, D))
#                     dm_term_2 = P_2 * (dP_2 - delta[i])
#                     dm_sum_2 = dm_term_2 * scale
#                     for e in range(0, E):
#                         dK[j, e] = dK[j, e] + dm_sum_2 * Q[i, e]
#                     for d in range(0, D):
#                         dV[j, d] = dV[j, d] + P_2 * dO[i, d]
#         for i in range(0, M):
#             dscale = dscale + dscale_part[i]
#         return dQ, dK, dV, dscale
#
# The steps from there to the forward kernels:
#   1. make j0 and j one loop, each element a block of its own
#   2. guard the empty prefix: nothing moves before m does
#   3. run i and d in parallel, m, l, S and m_ij private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def flash_blocks(
#         Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], scale: float
#     ):
#         O = zeros((M, D))
#         lse = zeros(M)
#         for i in parallel(0, M):
#             private: (m, l, S, m_ij)
#             m = -inf  # S1: the maximum of nothing
#             l = 0.0  # S2: an empty sum
#             for j in range(0, min(N, i + 1)):
#                 S = scale * sum(Q[i, e] * K[j, e] for e in range(0, E))  # S4: the scaled score
#                 m_ij = max(m, S)  # S12
#                 l = l * exp(m - m_ij) + exp(S - m_ij) if m_ij > -inf else l  # S10
#                 for d in parallel(0, D):
#                     # S11
#                     O[i, d] = (
#                         O[i, d] * exp(m - m_ij) + exp(S - m_ij) * V[j, d]
#                         if m_ij > -inf
#                         else O[i, d]
#                     )
#                 m = m_ij  # S3
#             for d in parallel(0, D):
#                 O[i, d] = O[i, d] / l  # S13: one division for each element
#             lse[i] = m + log(l)  # S14: the log-sum-exp of row i
#         return O, lse
#
# The steps from there to the backward kernels:
#   1. run i, e, j and d in parallel, m_sum, m_term, P, dP, dm_term, dm_sum, m_sum_2, m_term_2, P_2,
#      dP_2, dm_term_2 and dm_sum_2 private to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def flash_blocks_backward(
#         Q: Float[Array, "M E"],
#         K: Float[Array, "N E"],
#         V: Float[Array, "N D"],
#         scale: float,
#         lse: Float[Array, "M"],
#         O: Float[Array, "M D"],
#         dO: Float[Array, "M D"],
#         dlse: Float[Array, "M"]
#     ):
#         delta = zeros(M, dtype=float32)
#         dscale_part = zeros(M, dtype=float32)
#         dQ = zeros((M, E))
#         dK = zeros((N, E))
#         dV = zeros((N, D))
#         dscale = 0.0  # S1
#         for i in parallel(0, M):
#             for d in range(0, D):
#                 delta[i] = delta[i] + dO[i, d] * O[i, d]  # S2
#             delta[i] = delta[i] - dlse[i]  # S3
#         for i in parallel(0, M):
#             private: (m_sum, m_term, P, dP, dm_term, dm_sum)
#             for j in range(0, min(N, i + 1)):
#                 m_sum = sum(Q[i, e] * K[j, e] for e in range(0, E))  # S4
#                 m_term = scale * m_sum  # S5
#                 P = exp(m_term - lse[i])  # S6
#                 dP = sum(V[j, d] * dO[i, d] for d in range(0, D))  # S7
#                 dm_term = P * (dP - delta[i])  # S8
#                 dm_sum = dm_term * scale  # S9
#                 dscale_part[i] = dscale_part[i] + dm_term * m_sum  # S10
#                 for e in parallel(0, E):
#                     dQ[i, e] = dQ[i, e] + dm_sum * K[j, e]  # S11
#         for j in parallel(0, N):
#             private: (m_sum_2, m_term_2, P_2, dP_2, dm_term_2, dm_sum_2)
#             for i in range(0, M):
#                 if j < i + 1:
#                     m_sum_2 = sum(Q[i, e] * K[j, e] for e in range(0, E))  # S12
#                     m_term_2 = scale * m_sum_2  # S13
#                     P_2 = exp(m_term_2 - lse[i])  # S14
#                     dP_2 = sum(V[j, d] * dO[i, d] for d in range(0, D))  # S15
#                     dm_term_2 = P_2 * (dP_2 - delta[i])  # S16
#                     dm_sum_2 = dm_term_2 * scale  # S17
#                     for e in parallel(0, E):
#                         dK[j, e] = dK[j, e] + dm_sum_2 * Q[i, e]  # S18
#                     for d in parallel(0, D):
#                         dV[j, d] = dV[j, d] + P_2 * dO[i, d]  # S19
#         for i in range(0, M):
#             dscale = dscale + dscale_part[i]  # S20
#         return dQ, dK, dV, dscale

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
def flash_blocks_kernel(
    Q_ptr, K_ptr, V_ptr, O_ptr, lse_ptr,
    stride_Q_i, stride_Q_e,
    stride_K_j, stride_K_e,
    stride_V_j, stride_V_d,
    stride_O_i, stride_O_d,
    stride_lse_i,
    scale,
    M, N,
    E: tl.constexpr, D: tl.constexpr,
    SCALE_POSITIVE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    LATE: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads Q (M, E), K (N, E), V (N, D).
    Writes O (M, D), lse (M,).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    # The last blocks of i have most to do: they begin first.
    i_first = (blocks_i - 1 - pid) * BLOCK_I
    i_last = tl.minimum(i_first + BLOCK_I, M) - 1
    i = i_first + tl.arange(0, BLOCK_I)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)

    O = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    m = tl.full([BLOCK_I], float("-inf"), tl.float32)  # S1
    l = tl.zeros([BLOCK_I], tl.float32)  # S2
    j_stop = tl.minimum(N, i_last + 1)  # no row goes further
    # blocks before this one are full
    j_full = tl.maximum(tl.minimum(N, i_first + 1), 0) // BLOCK_J * BLOCK_J
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S4
    S_scale = scale * 1.4426950408889634  # in units of log2(e)
    S_inside = 1.0 if SCALE_POSITIVE else S_scale  # for elements
    S_outside = S_scale if SCALE_POSITIVE else 1.0  # for their maximum
    if LATE:
        exp_S_late = tl.zeros([BLOCK_I, BLOCK_J], V_ptr.dtype.element_ty)
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
        )  # S4
        S = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee") * S_inside  # S4
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S11
            O = tl.dot(exp_S_late, V_jd, O, input_precision="ieee")  # S11: of the block before
        m_ij = tl.maximum(m, tl.max(S, axis=1) * S_outside)  # S12
        m_ij_finite = tl.where(m_ij > float("-inf"), m_ij, 0.0)  # 0 as long as nothing was seen
        exp_m = tl.exp2(m - m_ij_finite)  # S10
        exp_S = tl.exp2(S * S_outside - m_ij_finite[:, None])  # S10
        l = l * exp_m + tl.sum(exp_S, axis=1)  # S10
        if LATE:
            O = O * exp_m[:, None]  # S11
            exp_S_late = exp_S.to(V_ptr.dtype.element_ty)
            j_late = j
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
            )  # S11
            O = tl.dot(
                exp_S.to(V_ptr.dtype.element_ty), V_jd, O * exp_m[:, None], input_precision="ieee"
            )  # S11
        m = m_ij  # S3
    # Some rows have ended.
    for j_first in range(j_full, j_stop, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < j_stop) & e_in[None, :],
            other=0.0
        )  # S4
        S = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee") * S_inside  # S4
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S11
            O = tl.dot(exp_S_late, V_jd, O, input_precision="ieee")  # S11: of the block before
        # outside: the least there is
        S = tl.where(
            tl.arange(0, BLOCK_J)[None, :] < tl.minimum(j_stop, i + 1)[:, None] - j_first,
            S,
            float("-inf")
        )
        m_ij = tl.maximum(m, tl.max(S, axis=1) * S_outside)  # S12
        m_ij_finite = tl.where(m_ij > float("-inf"), m_ij, 0.0)  # 0 as long as nothing was seen
        exp_m = tl.exp2(m - m_ij_finite)  # S10
        exp_S = tl.exp2(S * S_outside - m_ij_finite[:, None])  # S10
        l = l * exp_m + tl.sum(exp_S, axis=1)  # S10
        if LATE:
            O = O * exp_m[:, None]  # S11
            exp_S_late = exp_S.to(V_ptr.dtype.element_ty)
            j_late = tl.where(j < j_stop, j, -1)
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j,
                mask=(j[:, None] < j_stop) & d_in[None, :],
                other=0.0
            )  # S11
            O = tl.dot(
                exp_S.to(V_ptr.dtype.element_ty), V_jd, O * exp_m[:, None], input_precision="ieee"
            )  # S11
        m = m_ij  # S3
    if LATE:
        V_jd = tl.load(
            V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
            mask=(j_late[:, None] >= 0) & d_in[None, :],
            other=0.0
        )  # S11
        O = tl.dot(exp_S_late, V_jd, O, input_precision="ieee")  # S11: of the block before
    m = m * 0.6931471805599453  # back from units of log2(e)
    O = O / l[:, None]  # S13
    tl.store(lse_ptr + i * stride_lse_i, m + tl.log(l), mask=i < M)  # S14
    tl.store(
        O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
        O,
        mask=(i[:, None] < M) & d_in[None, :]
    )  # S13


def flash_blocks_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J, "LATE": LATE}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def flash_blocks_kernel_footprint(width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_J, BLOCK_D, **_):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * BLOCK_I * BLOCK_E + num_stages * width * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    )
    held = BLOCK_I * BLOCK_D + BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
flash_blocks_kernel_default = {
    2: flash_blocks_kernel_config(128, 64, 0, 8, 3),
    4: flash_blocks_kernel_config(32, 32, 0, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
flash_blocks_kernel_tuned = {
    2: _Tuned(
        flash_blocks_kernel,
        [
            flash_blocks_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((128, 8), (64, 4), (128, 4)), (64, 32, 128), (0, 1), (3, 2)
            )
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_blocks_kernel_footprint, 2),
    ),
    4: _Tuned(
        flash_blocks_kernel,
        [
            flash_blocks_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (0,), (1, 2)
            )
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_blocks_kernel_footprint, 4),
    ),
}


@triton.jit
def flash_blocks_backward_delta_kernel(
    O_ptr, dO_ptr, dlse_ptr, delta_ptr,
    stride_O_i, stride_O_d,
    stride_dO_i, stride_dO_d,
    stride_dlse_i,
    stride_delta_i,
    M, D,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads O (M, D), dO (M, D), dlse (M,).
    Writes delta (M,).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)

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


def flash_blocks_backward_delta_kernel_config(BLOCK_I, BLOCK_D, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_D": BLOCK_D}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
flash_blocks_backward_delta_kernel_default = flash_blocks_backward_delta_kernel_config(4, 512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
flash_blocks_backward_delta_kernel_tuned = _Tuned(
    flash_blocks_backward_delta_kernel,
    [
        flash_blocks_backward_delta_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["M", "D"],
)


@triton.jit
def flash_blocks_backward_dQ_kernel(
    Q_ptr, K_ptr, V_ptr, lse_ptr, dO_ptr, delta_ptr, dscale_part_ptr, dQ_ptr,
    stride_Q_i, stride_Q_e,
    stride_K_j, stride_K_e,
    stride_V_j, stride_V_d,
    stride_lse_i,
    stride_dO_i, stride_dO_d,
    stride_delta_i,
    stride_dscale_part_i,
    stride_dQ_i, stride_dQ_e,
    scale,
    M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads Q (M, E), K (N, E), V (N, D), lse (M,), dO (M, D), delta (M,).
    Writes dscale_part (M,), dQ (M, E).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    # The last blocks of i have most to do: they begin first.
    i_first = (blocks_i - 1 - pid) * BLOCK_I
    i_last = tl.minimum(i_first + BLOCK_I, M) - 1
    i = i_first + tl.arange(0, BLOCK_I)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)

    m_term_scale = scale * 1.4426950408889634  # in units of log2(e)
    dscale_part = tl.zeros([BLOCK_I], tl.float32)
    dQ = tl.zeros([BLOCK_I, BLOCK_E], tl.float32)
    j_stop = tl.minimum(N, i_last + 1)  # no row goes further
    # blocks before this one are full
    j_full = tl.maximum(tl.minimum(N, i_first + 1), 0) // BLOCK_J * BLOCK_J
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S4
    lse_i = tl.load(lse_ptr + i * stride_lse_i, mask=i < M, other=0.0)  # S6
    dO_id = tl.load(
        dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
        mask=(i[:, None] < M) & d_in[None, :],
        other=0.0
    )  # S7
    delta_i = tl.load(delta_ptr + i * stride_delta_i, mask=i < M, other=0.0)  # S8
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j, mask=e_in[None, :], other=0.0
        )  # S4
        m_sum = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S4
        P = tl.exp2(
            m_sum * m_term_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S5, S6
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
        )  # S7
        dP = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S7
        dm_term = P * (dP - delta_i.to(tl.float32)[:, None])  # S8
        dscale_part = dscale_part + tl.sum(dm_term * m_sum, axis=1)  # S10
        dQ = tl.dot(dm_term.to(K_ptr.dtype.element_ty), K_je, dQ, input_precision="ieee")  # S11
    # Some rows have ended.
    for j_first in range(j_full, j_stop, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < j_stop) & e_in[None, :],
            other=0.0
        )  # S4
        m_sum = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S4
        P = tl.exp2(
            m_sum * m_term_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S5, S6
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j,
            mask=(j[:, None] < j_stop) & d_in[None, :],
            other=0.0
        )  # S7
        dP = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S7
        dm_term = P * (dP - delta_i.to(tl.float32)[:, None])  # S8
        dscale_part = dscale_part + tl.sum(
            tl.where(
                tl.arange(0, BLOCK_J)[None, :] < tl.minimum(j_stop, i + 1)[:, None] - j_first,
                dm_term * m_sum,
                0.0
            ),
            axis=1
        )  # S10
        dQ = tl.dot(
            tl.where(
                tl.arange(0, BLOCK_J)[None, :] < tl.minimum(j_stop, i + 1)[:, None] - j_first,
                dm_term,
                0.0
            ).to(K_ptr.dtype.element_ty),
            K_je,
            dQ,
            input_precision="ieee"
        )  # S11
    dQ = dQ * scale  # S9, S11
    if dscale_part_ptr is not None:
        tl.store(dscale_part_ptr + i * stride_dscale_part_i, dscale_part, mask=i < M)  # S10
    if dQ_ptr is not None:
        tl.store(
            dQ_ptr + i[:, None] * stride_dQ_i + e[None, :] * stride_dQ_e,
            dQ,
            mask=(i[:, None] < M) & e_in[None, :]
        )  # S11


def flash_blocks_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def flash_blocks_backward_dQ_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_D, BLOCK_J, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D
    ) + num_stages * width * (BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D)
    held = BLOCK_I * BLOCK_E + 2 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
flash_blocks_backward_dQ_kernel_default = {
    2: flash_blocks_backward_dQ_kernel_config(128, 32, 8, 3),
    4: flash_blocks_backward_dQ_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
flash_blocks_backward_dQ_kernel_tuned = {
    2: _Tuned(
        flash_blocks_backward_dQ_kernel,
        [
            flash_blocks_backward_dQ_kernel_config(*row)
            for row in itertools.product((128, 64), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_blocks_backward_dQ_kernel_footprint, 2),
    ),
    4: _Tuned(
        flash_blocks_backward_dQ_kernel,
        [
            flash_blocks_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_blocks_backward_dQ_kernel_footprint, 4),
    ),
}


@triton.jit
def flash_blocks_backward_dK_dV_kernel(
    Q_ptr, K_ptr, V_ptr, lse_ptr, dO_ptr, delta_ptr, dK_ptr, dV_ptr,
    stride_Q_i, stride_Q_e,
    stride_K_j, stride_K_e,
    stride_V_j, stride_V_d,
    stride_lse_i,
    stride_dO_i, stride_dO_d,
    stride_delta_i,
    stride_dK_j, stride_dK_e,
    stride_dV_j, stride_dV_d,
    scale,
    M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_J iterations of j.

    Reads Q (M, E), K (N, E), V (N, D), lse (M,), dO (M, D), delta (M,).
    Writes dK (N, E), dV (N, D).
    """
    pid = tl.program_id(0).to(INDEX)
    j_first = pid * BLOCK_J
    j_last = tl.minimum(j_first + BLOCK_J, N) - 1
    j = j_first + tl.arange(0, BLOCK_J)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)

    m_term_2_scale = scale * 1.4426950408889634  # in units of log2(e)
    dK = tl.zeros([BLOCK_J, BLOCK_E], tl.float32)
    dV = tl.zeros([BLOCK_J, BLOCK_D], tl.float32)
    i_start = tl.maximum(0, j_first)  # no row begins earlier
    # all rows have begun
    i_begun = i_start + (
        tl.maximum(tl.maximum(0, j_last) - i_start, 0) + BLOCK_I - 1
    ) // BLOCK_I * BLOCK_I
    # blocks before this one are full
    i_full = i_begun + tl.maximum(M - i_begun, 0) // BLOCK_I * BLOCK_I
    K_je = tl.load(
        K_ptr + j[:, None] * stride_K_j + e[None, :] * stride_K_e,
        mask=(j[:, None] < N) & e_in[None, :],
        other=0.0
    )  # S12
    V_jd = tl.load(
        V_ptr + j[:, None] * stride_V_j + d[None, :] * stride_V_d,
        mask=(j[:, None] < N) & d_in[None, :],
        other=0.0
    )  # S15
    # What is read as it would be in a block that begins at 0.
    i_at = tl.arange(0, BLOCK_I).to(INDEX)
    Q_at = Q_ptr + i_at[:, None] * stride_Q_i + e[None, :] * stride_Q_e
    lse_at = lse_ptr + i_at * stride_lse_i
    dO_at = dO_ptr + i_at[:, None] * stride_dO_i + d[None, :] * stride_dO_d
    delta_at = delta_ptr + i_at * stride_delta_i
    # Full blocks.
    for i_from in range(tl.cast(i_begun, tl.int64), tl.cast(i_full, tl.int64), BLOCK_I):
        i_first = tl.cast(i_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        Q_ie = tl.load(Q_at + i_first * stride_Q_i, mask=e_in[None, :], other=0.0)  # S12
        m_sum_2 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S12
        lse_i = tl.load(lse_at + i_first * stride_lse_i)  # S14
        P_2 = tl.exp2(
            m_sum_2 * m_term_2_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S13, S14
        dO_id = tl.load(dO_at + i_first * stride_dO_i, mask=d_in[None, :], other=0.0)  # S15
        dP_2 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S15
        delta_i = tl.load(delta_at + i_first * stride_delta_i)  # S16
        dm_term_2 = P_2 * (dP_2 - delta_i.to(tl.float32)[None, :])  # S16
        dK = tl.dot(dm_term_2.to(Q_ptr.dtype.element_ty), Q_ie, dK, input_precision="ieee")  # S18
        dV = tl.dot(P_2.to(dO_ptr.dtype.element_ty), dO_id, dV, input_precision="ieee")  # S19
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
        )  # S12
        m_sum_2 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S12
        lse_i = tl.load(lse_at + i_first * stride_lse_i, mask=i < M, other=0.0)  # S14
        P_2 = tl.exp2(
            m_sum_2 * m_term_2_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S13, S14
        dO_id = tl.load(
            dO_at + i_first * stride_dO_i, mask=(i[:, None] < M) & d_in[None, :], other=0.0
        )  # S15
        dP_2 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S15
        delta_i = tl.load(delta_at + i_first * stride_delta_i, mask=i < M, other=0.0)  # S16
        dm_term_2 = P_2 * (dP_2 - delta_i.to(tl.float32)[None, :])  # S16
        dK = tl.dot(
            tl.where(
                (tl.arange(0, BLOCK_I)[None, :] >= j[:, None] - i_first) & (i[None, :] < M),
                dm_term_2,
                0.0
            ).to(Q_ptr.dtype.element_ty),
            Q_ie,
            dK,
            input_precision="ieee"
        )  # S18
        dV = tl.dot(
            tl.where(
                (tl.arange(0, BLOCK_I)[None, :] >= j[:, None] - i_first) & (i[None, :] < M),
                P_2,
                0.0
            ).to(dO_ptr.dtype.element_ty),
            dO_id,
            dV,
            input_precision="ieee"
        )  # S19
    dK = dK * scale  # S17, S18
    if dK_ptr is not None:
        tl.store(
            dK_ptr + j[:, None] * stride_dK_j + e[None, :] * stride_dK_e,
            dK,
            mask=(j[:, None] < N) & e_in[None, :]
        )  # S18
    if dV_ptr is not None:
        tl.store(
            dV_ptr + j[:, None] * stride_dV_j + d[None, :] * stride_dV_d,
            dV,
            mask=(j[:, None] < N) & d_in[None, :]
        )  # S19


def flash_blocks_backward_dK_dV_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def flash_blocks_backward_dK_dV_kernel_footprint(
    width, /, num_stages, BLOCK_J, BLOCK_E, BLOCK_D, BLOCK_I, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    ) + num_stages * width * (BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D)
    held = BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D + 2 * BLOCK_J * BLOCK_I
    return shared, held


# Used where nothing is timed, by the bytes of an element.
flash_blocks_backward_dK_dV_kernel_default = {
    2: flash_blocks_backward_dK_dV_kernel_config(64, 32, 8, 3),
    4: flash_blocks_backward_dK_dV_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
flash_blocks_backward_dK_dV_kernel_tuned = {
    2: _Tuned(
        flash_blocks_backward_dK_dV_kernel,
        [
            flash_blocks_backward_dK_dV_kernel_config(*row)
            for row in itertools.product((64, 128), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_blocks_backward_dK_dV_kernel_footprint, 2),
    ),
    4: _Tuned(
        flash_blocks_backward_dK_dV_kernel,
        [
            flash_blocks_backward_dK_dV_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages)
            for (BLOCK_J, num_warps), BLOCK_I, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_blocks_backward_dK_dV_kernel_footprint, 4),
    ),
}


@triton.jit
def flash_blocks_backward_dscale_kernel(
    dscale_part_ptr, dscale_ptr,
    stride_dscale_part_i,
    M,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    """A program does everything.

    Reads dscale_part (M,).
    Writes dscale (a number).
    """
    dscale = tl.full([], 0.0, tl.float32)  # S1
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    # Full blocks.
    for i_first in range(0, i_full, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dscale_part_i = tl.load(dscale_part_ptr + i * stride_dscale_part_i)  # S20
        dscale = dscale + tl.sum(dscale_part_i.to(tl.float32), axis=0)  # S20
    # The last, partial block.
    for i_first in range(i_full, M, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dscale_part_i = tl.load(
            dscale_part_ptr + i * stride_dscale_part_i, mask=i < M, other=0.0
        )  # S20
        dscale = dscale + tl.sum(dscale_part_i.to(tl.float32), axis=0)  # S20
    tl.store(dscale_ptr, dscale)  # S20


def flash_blocks_backward_dscale_kernel_config(BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
flash_blocks_backward_dscale_kernel_default = flash_blocks_backward_dscale_kernel_config(512, 4, 2)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
flash_blocks_backward_dscale_kernel_tuned = _Tuned(
    flash_blocks_backward_dscale_kernel,
    [
        flash_blocks_backward_dscale_kernel_config(*row)
        for row in itertools.product((128, 512, 1024), (4, 8), (2,))
    ],
    key=["M"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(flash_blocks_kernel, triton.JITFunction)
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


def flash_blocks_forward(Q, K, V, scale, *, tune=True):
    """Run flash_blocks, and return what its gradients need besides.

    Args:
        Q: (M, E), float16, bfloat16 or float32, any strides.
        K: (N, E), float16, bfloat16 or float32, any strides.
        V: (N, D), float16, bfloat16 or float32, any strides.
        scale: A real number.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (M, D), lse (M,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("Q", Q, 2, _FLOAT), ("K", K, 2, _FLOAT), ("V", V, 2, _FLOAT))
    scale = _real("scale", scale)
    M, E = Q.shape
    N = K.shape[0]
    D = V.shape[1]
    _check_shape("K", K, (N, E), "(N, E) with E = Q.shape[1]")
    _check_shape("V", V, (N, D), "(N, D) with N = K.shape[0]")
    O = torch.empty((M, D), dtype=Q.dtype, device=Q.device)
    lse = torch.empty((M,), dtype=Q.dtype, device=Q.device)
    index = _index_type(Q, K, V, O, lse)
    width = Q.element_size()

    lanes = {
        "BLOCK_D": max(16, triton.next_power_of_2(D)), "BLOCK_E": max(16, triton.next_power_of_2(E))
    }
    if _INTERPRETED or not tune:
        run = flash_blocks_kernel
        blocks = _fitted(
            flash_blocks_kernel_default[width],
            flash_blocks_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = flash_blocks_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, O, lse,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *O.stride(),
                *lse.stride(),
                scale,
                M, N,
                E=E, D=D,
                SCALE_POSITIVE=scale > 0,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return O, lse


def flash_blocks_backward(Q, K, V, scale, lse, O, dO, dlse, *, wanted=None, tune=True):
    """Return the gradients of flash_blocks.

    Args:
        Q: (M, E), float16, bfloat16 or float32, any strides.
        K: (N, E), float16, bfloat16 or float32, any strides.
        V: (N, D), float16, bfloat16 or float32, any strides.
        scale: A real number.
        lse: (M,), float16, bfloat16 or float32, any strides.
        O: (M, D), float16, bfloat16 or float32, any strides.
        dO: (M, D), float16, bfloat16 or float32, any strides.
        dlse: (M,), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dQ (M, E), dK (N, E), dV (N, D), dscale (a number) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 2, _FLOAT), ("K", K, 2, _FLOAT), ("V", V, 2, _FLOAT), ("lse", lse, 1, _FLOAT),
        ("O", O, 2, _FLOAT), ("dO", dO, 2, _FLOAT), ("dlse", dlse, 1, _FLOAT)
    )
    scale = _real("scale", scale)
    M, E = Q.shape
    N = K.shape[0]
    D = V.shape[1]
    _check_shape("K", K, (N, E), "(N, E) with E = Q.shape[1]")
    _check_shape("V", V, (N, D), "(N, D) with N = K.shape[0]")
    _check_shape("lse", lse, (M,), "(M,) with M = Q.shape[0]")
    _check_shape("O", O, (M, D), "(M, D) with M = Q.shape[0] and D = V.shape[1]")
    _check_shape("dO", dO, (M, D), "(M, D) with M = Q.shape[0] and D = V.shape[1]")
    _check_shape("dlse", dlse, (M,), "(M,) with M = Q.shape[0]")
    wanted = _wanted(wanted, ("dQ", "dK", "dV", "dscale"))
    delta = torch.empty((M,), dtype=torch.float32, device=Q.device)
    dscale_part = None
    if "dscale" in wanted:
        dscale_part = torch.empty((M,), dtype=torch.float32, device=Q.device)
    dQ = None
    if "dQ" in wanted:
        dQ = torch.empty((M, E), dtype=Q.dtype, device=Q.device)
    dK = None
    if "dK" in wanted:
        dK = torch.empty((N, E), dtype=Q.dtype, device=Q.device)
    dV = None
    if "dV" in wanted:
        dV = torch.empty((N, D), dtype=Q.dtype, device=Q.device)
    dscale = None
    if "dscale" in wanted:
        dscale = torch.empty((), dtype=torch.float32, device=Q.device)
    index = _index_type(*_given(Q, K, V, lse, O, dO, dlse, delta, dscale_part, dQ, dK, dV, dscale))
    width = Q.element_size()

    if _INTERPRETED or not tune:
        run = flash_blocks_backward_delta_kernel
        blocks = flash_blocks_backward_delta_kernel_default.all_kwargs()
    else:
        run = flash_blocks_backward_delta_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                O, dO, dlse, delta,
                *O.stride(),
                *dO.stride(),
                *dlse.stride(),
                *delta.stride(),
                M, D,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    lanes = {
        "BLOCK_E": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = flash_blocks_backward_dQ_kernel
        blocks = _fitted(
            flash_blocks_backward_dQ_kernel_default[width],
            flash_blocks_backward_dQ_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = flash_blocks_backward_dQ_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0 and wanted & {"dQ", "dscale"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, lse, dO, delta, dscale_part, dQ,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *lse.stride(),
                *dO.stride(),
                *delta.stride(),
                *_strides(dscale_part, 0),
                *_strides(dQ, 0, 1),
                scale,
                M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    lanes = {
        "BLOCK_E": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = flash_blocks_backward_dK_dV_kernel
        blocks = _fitted(
            flash_blocks_backward_dK_dV_kernel_default[width],
            flash_blocks_backward_dK_dV_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = flash_blocks_backward_dK_dV_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_J"]),)

    if N > 0 and wanted & {"dK", "dV"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, lse, dO, delta, dK, dV,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *lse.stride(),
                *dO.stride(),
                *delta.stride(),
                *_strides(dK, 0, 1),
                *_strides(dV, 0, 1),
                scale,
                M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = flash_blocks_backward_dscale_kernel
        blocks = flash_blocks_backward_dscale_kernel_default.all_kwargs()
    else:
        run = flash_blocks_backward_dscale_kernel_tuned
        blocks = {}
    if "dscale" in wanted:
        with torch.cuda.device_of(Q):
            run[(1,)](
                dscale_part, dscale,
                *dscale_part.stride(),
                M,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return dQ, dK, dV, dscale


@torch.library.custom_op(_free("flash_blocks_forward_78af0b28"), mutates_args=())
def _flash_blocks_forward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, scale: float,
    scale_tensor: torch.Tensor | None, tune: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return flash_blocks_forward(Q, K, V, scale, tune=tune)


@_flash_blocks_forward_operator.register_fake
def _(Q, K, V, scale, scale_tensor, tune):
    M = Q.shape[0]
    D = V.shape[1]
    return (
        torch.empty((M, D), dtype=Q.dtype, device=Q.device),
        torch.empty((M,), dtype=Q.dtype, device=Q.device),
    )


@torch.library.custom_op(_free("flash_blocks_backward_78af0b28"), mutates_args=())
def _flash_blocks_backward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, scale: float, lse: torch.Tensor,
    O: torch.Tensor, dO: torch.Tensor, dlse: torch.Tensor, wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = flash_blocks_backward(
        Q,
        K,
        V,
        scale,
        lse,
        O,
        dO,
        dlse,
        wanted=[name for name, each in zip(("dQ", "dK", "dV", "dscale"), wanted) if each],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_flash_blocks_backward_operator.register_fake
def _(Q, K, V, scale, lse, O, dO, dlse, wanted, tune):
    M = Q.shape[0]
    E = Q.shape[1]
    N = K.shape[0]
    D = V.shape[1]
    found = (
        torch.empty((M, E), dtype=Q.dtype, device=Q.device),
        torch.empty((N, E), dtype=Q.dtype, device=Q.device),
        torch.empty((N, D), dtype=Q.dtype, device=Q.device),
        torch.empty((), dtype=torch.float32, device=Q.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _flash_blocks_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    Q, K, V, scale, scale_tensor, tune = inputs
    O, lse = output
    ctx.save_for_backward(Q, K, V, lse, O, scale_tensor)
    ctx.numbers = scale, tune
    ctx.like = _like(O), _like(lse)
    ctx.set_materialize_grads(False)


def _flash_blocks_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dO, dlse = found
    Q, K, V, lse, O, scale_tensor = ctx.saved_tensors
    scale, tune = ctx.numbers
    O_like, lse_like = ctx.like
    if dO is None:
        dO = _zeros(*O_like)
    if dlse is None:
        dlse = _zeros(*lse_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1], needed[2], needed[4]]
    found = iter(_flash_blocks_backward_operator(Q, K, V, scale, lse, O, dO, dlse, wanted, tune))
    dQ, dK, dV, dscale = (next(found) if each else None for each in wanted)
    if dscale is not None:
        dscale = dscale.to(scale_tensor).reshape(scale_tensor.shape)
    return dQ, dK, dV, None, dscale, None


def _flash_blocks_second(ctx, *found):
    raise RuntimeError(
        "flash_blocks has no second derivative: its backward pass is derived once. Call "
        "backward without create_graph=True"
    )


_flash_blocks_forward_operator.register_autograd(
    _flash_blocks_gradients, setup_context=_flash_blocks_keep
)
_flash_blocks_backward_operator.register_autograd(_flash_blocks_second)


def flash_blocks(Q, K, V, scale, *, tune=True):
    """Causal softmax attention as the FlashAttention-2 paper has it, in blocks of 16 keys.
    Differentiable: gradients come from flash_blocks_backward.

    Args:
        Q: (M, E), float16, bfloat16 or float32, any strides.
        K: (N, E), float16, bfloat16 or float32, any strides.
        V: (N, D), float16, bfloat16 or float32, any strides.
        scale: A real number.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (M, D), lse (M,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    return _flash_blocks_forward_operator(Q, K, V, _number("scale", scale), _handle(scale), tune)
