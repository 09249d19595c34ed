# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def flash_forward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
#         O = zeros((M, D))
#         m = full(M, -inf)
#         l = zeros(M)
#         for i in range(0, M):
#             q_i = Q[i]  # S1: No self dependency: [SLoop: i, TLoop: i]
#             for j in range(0, N):
#                 k_j = K[j]  # S2: No self dependency: [SLoop: j, TLoop: j]
#                 m_i = m[i]  # S3: No self dependency: [SLoop: i, TLoop: (i, j)] # RAW on m
#                 l_i = l[i]  # S4: No self dependency: [SLoop: i, TLoop: (i, j)] # RAW on l
#                 # S5: No self dependency: [SLoop: (i, j), TLoop: (i, j)] # Loop interchange
#                 # possible # RAW on q_i, and k_j
#                 S_ij = q_i @ k_j
#                 # S6: No self dependency: [SLoop: (i, (i, j)), TLoop: (i, j)] # RAW on m_i and
#                 # S_ij
#                 m_ij = max(m_i, S_ij)
#                 # S7: No self dependency: [SLoop: (i, i, (i, j), (i, j), (i, j)), TLoop: (i, j)] #
#                 # RAW on l_i, m_i, m_ij, S_ij, m_ij
#                 l_ij = l_i * exp(m_i - m_ij) + exp(S_ij - m_ij)
#                 for d in range(0, D):
#                     # S8: No self dependency: [SLoop: (i, d), TLoop: (i, j, d)] # RAW on O
#                     o_id = O[i, d]
#                     v_jd = V[j, d]  # S9: No self dependency: [SLoop: (j, d), TLoop: (j, d)]
#                     # S10: No self dependency: [SLoop: ((i, d), i, i, (i, j), (i, j), (i, j), (i,
#                     # j), (j, d), (i, j)), TLoop: (i, j, d)] # RAW on o_id, l_i, m_i, m_ij, l_ij,
#                     # S_ij, m_ij, v_jd, l_ij
#                     o_ijd = o_id * l_i * exp(m_i - m_ij) / l_ij + exp(S_ij - m_ij) * v_jd / l_ij
#                     # ## Finally assign the results back to buffers
#                     O[i, d] = o_ijd  # S11: Aggregation over j # RAW on o_ijd
#                 m[i] = m_ij  # S12: Aggregation over j # RAW on m_ij
#                 l[i] = l_ij  # S13: Aggregation over j # RAW on l_ij
#         return O, m, l
#
# The steps from there to its backward pass, with what each leans on:
#   1. closed form of j: m[i] = max_j(q_i @ K[j]); l[i] = sum_j(exp(q_i @ K[j] - m[i])); O[i, d] =
#      sum_j(V[j, d] * exp(q_i @ K[j] - m[i]) / l[i]) (algebra: one iteration: s . unit(x) = step(s,
#      x); algebra: continuation: s . (b . unit(x)) = step(s . b, x); algebra: associativity: (a .
#      b) . d = a . (b . d); algebra: no iteration: ⊥ . b = b, a . ⊥ = a, ⊥ . ⊥ = ⊥; algebra: first
#      iteration: step(⊥, x) = unit(x); algebra: signs: unit(x) and a . b have the signs they are
#      said to have; algebra: coordinates: phi(step(s, x)) = phi(s) + h(x), and phi can be undone;
#      algebra: closed form: after all iterations phi(s) is what it was at first and every h(x),
#      joined)
#   2. define every array once (storage: every read gets the value that was written last above it)
#   3. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   4. reassociate a contraction (algebra: sum(dP[i, j] * P[i, j] for j in range(0, N)) = sum(dO[i,
#      d] * O[i, d] for d in range(0, D)))
#   5. dm vanishes (algebra: dm = 0)
#   6. work P out from lse: keep lse = m[i] + log(l[i]) for each sum (algebra: P[i, j] = exp(S_ij[i,
#      j] - m[i]) / l[i] = exp(S_ij[i, j] - lse[i]))
#   7. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def flash_forward_backward(
#         Q: Float[Array, "M E"],
#         K: Float[Array, "N E"],
#         V: Float[Array, "N D"],
#         lse: Float32[Array, "M"],
#         O: Float[Array, "M D"],
#         dO: Float[Array, "M D"]
#     ):
#         delta = zeros(M, dtype=float32)
#         dQ = zeros((M, E))
#         dK = zeros((N, E))
#         dV = zeros((N, D))
#         for i in range(0, M):
#             for d in range(0, D):
#                 delta[i] = delta[i] + dO[i, d] * O[i, d]
#         for i in range(0, M):
#             for j in range(0, N):
#                 S_ij = sum(Q[i, t] * K[j, t] for t in range(0, E))
#                 P = exp(S_ij - lse[i])
#                 dP = sum(dO[i, d] * V[j, d] for d in range(0, D))
#                 dS_ij = P * (dP - delta[i])
#                 for t in range(0, E):
#                     dQ[i, t] = dQ[i, t] + dS_ij * K[j, t]
#         for j in range(0, N):
#             for i in range(0, M):
#                 S_ij_2 = sum(Q[i, t] * K[j, t] for t in range(0, E))
#                 P_2 = exp(S_ij_2 - lse[i])
#                 dP_2 = sum(dO[i, d] * V[j, d] for d in range(0, D))
#                 dS_ij_2 = P_2 * (dP_2 - delta[i])
#                 for t in range(0, E):
#                     dK[j, t] = dK[j, t] + dS_ij_2 * Q[i, t]
#                 for d in range(0, D):
#                     dV[j, d] = dV[j, d] + dO[i, d] * P_2
#         return dQ, dK, dV
#
# The steps from there to the forward kernels:
#   1. change of state: the loop keeps O[i, d] * l[i], and one division stands behind it; nothing
#      moves before m[i] does
#   2. run i and d in parallel, q_i, k_j, S_ij, v_jd and m_ij private to an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def flash_forward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
#         lse = zeros(M, dtype=float32)
#         O = zeros((M, D))
#         m = full(M, -inf)
#         l = zeros(M)
#         for i in parallel(0, M):
#             private: (q_i, k_j, S_ij, v_jd, m_ij)
#             q_i = Q[i]  # S1: No self dependency: [SLoop: i, TLoop: i]
#             for j in range(0, N):
#                 k_j = K[j]  # S2: No self dependency: [SLoop: j, TLoop: j]
#                 # S5: No self dependency: [SLoop: (i, j), TLoop: (i, j)] # Loop interchange
#                 # possible # RAW on q_i, and k_j
#                 S_ij = q_i @ k_j
#                 for d in parallel(0, D):
#                     private: v_jd
#                     v_jd = V[j, d]  # S9: No self dependency: [SLoop: (j, d), TLoop: (j, d)]
#                 m_ij = max(m[i], S_ij)  # S12
#                 l[i] = l[i] * exp(m[i] - m_ij) + exp(S_ij - m_ij) if m_ij > -inf else l[i]  # S13
#                 for d in parallel(0, D):
#                     # S11
#                     O[i, d] = (
#                         O[i, d] * exp(m[i] - m_ij) + V[j, d] * exp(S_ij - m_ij)
#                         if m_ij > -inf
#                         else O[i, d]
#                     )
#                 m[i] = m_ij  # S3
#             for d in parallel(0, D):
#                 O[i, d] = O[i, d] / l[i] if l[i] != 0.0 else 0.0  # S4
#             lse[i] = m[i] + log(l[i])  # S14
#         return O, m, l, lse
#
# The steps from there to the backward kernels:
#   1. run i, t, j and d in parallel, S_ij, P, dP, dS_ij, S_ij_2, P_2, dP_2 and dS_ij_2 private to
#      an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def flash_forward_backward(
#         Q: Float[Array, "M E"],
#         K: Float[Array, "N E"],
#         V: Float[Array, "N D"],
#         lse: Float32[Array, "M"],
#         O: Float[Array, "M D"],
#         dO: Float[Array, "M D"]
#     ):
#         delta = zeros(M, dtype=float32)
#         dQ = zeros((M, E))
#         dK = zeros((N, E))
#         dV = zeros((N, D))
#         for i in parallel(0, M):
#             for d in range(0, D):
#                 delta[i] = delta[i] + dO[i, d] * O[i, d]  # S1
#         for i in parallel(0, M):
#             private: (S_ij, P, dP, dS_ij)
#             for j in range(0, N):
#                 S_ij = sum(Q[i, t] * K[j, t] for t in range(0, E))  # S2
#                 P = exp(S_ij - lse[i])  # S3
#                 dP = sum(dO[i, d] * V[j, d] for d in range(0, D))  # S4
#                 dS_ij = P * (dP - delta[i])  # S5
#                 for t in parallel(0, E):
#                     dQ[i, t] = dQ[i, t] + dS_ij * K[j, t]  # S6
#         for j in parallel(0, N):
#             private: (S_ij_2, P_2, dP_2, dS_ij_2)
#             for i in range(0, M):
#                 S_ij_2 = sum(Q[i, t] * K[j, t] for t in range(0, E))  # S7
#                 P_2 = exp(S_ij_2 - lse[i])  # S8
#                 dP_2 = sum(dO[i, d] * V[j, d] for d in range(0, D))  # S9
#                 dS_ij_2 = P_2 * (dP_2 - delta[i])  # S10
#                 for t in parallel(0, E):
#                     dK[j, t] = dK[j, t] + dS_ij_2 * Q[i, t]  # S11
#                 for d in parallel(0, D):
#                     dV[j, d] = dV[j, d] + dO[i, d] * P_2  # S12
#         return dQ, dK, dV
#
# Notes:
#   - m receives no gradient: it hangs on which element is the largest or smallest, and its
#     derivative jumps where two are equal.
#   - l receives no gradient: it hangs on which element is the largest or smallest, and its
#     derivative jumps where two are equal.

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
def flash_forward_kernel(
    Q_ptr, K_ptr, V_ptr, lse_ptr, O_ptr, m_ptr, l_ptr,
    stride_Q_i, stride_Q_e,
    stride_K_j, stride_K_e,
    stride_V_j, stride_V_d,
    stride_lse_i,
    stride_O_i, stride_O_d,
    stride_m_i,
    stride_l_i,
    M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
    LATE: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads Q (M, E), K (N, E), V (N, D).
    Writes lse (M,), O (M, D), m (M,), l (M,).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)
    e = tl.arange(0, BLOCK_E).to(INDEX)
    e_in = (e < E) | (BLOCK_E == E)

    m = tl.full([BLOCK_I], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_I], tl.float32)
    O = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    q_i = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S1
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    if LATE:
        exp_S_ij_late = tl.zeros([BLOCK_I, BLOCK_J], V_ptr.dtype.element_ty)
        j_late = tl.full([BLOCK_J], -1, INDEX)  # no block yet
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        k_j = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j, mask=e_in[None, :], other=0.0
        )  # S2
        S_ij = tl.dot(q_i, tl.trans(k_j), input_precision="ieee")  # S5
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S11
            O = tl.dot(exp_S_ij_late, V_jd, O, input_precision="ieee")  # S11: of the block before
        m_ij = tl.maximum(m, tl.max(S_ij, axis=1) * 1.4426950408889634)  # S12
        m_ij_finite = tl.where(m_ij > float("-inf"), m_ij, 0.0)  # 0 as long as nothing was seen
        exp_m = tl.exp2(m - m_ij_finite)  # S13
        exp_S_ij = tl.exp2(S_ij * 1.4426950408889634 - m_ij_finite[:, None])  # S13
        l = l * exp_m + tl.sum(exp_S_ij, axis=1)  # S13
        if LATE:
            O = O * exp_m[:, None]  # S11
            exp_S_ij_late = exp_S_ij.to(V_ptr.dtype.element_ty)
            j_late = j
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
            )  # S11
            O = tl.dot(
                exp_S_ij.to(V_ptr.dtype.element_ty),
                V_jd,
                O * exp_m[:, None],
                input_precision="ieee"
            )  # S11
        m = m_ij  # S3
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        k_j = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < N) & e_in[None, :],
            other=0.0
        )  # S2
        S_ij = tl.dot(q_i, tl.trans(k_j), input_precision="ieee")  # S5
        if LATE:
            V_jd = tl.load(
                V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
                mask=(j_late[:, None] >= 0) & d_in[None, :],
                other=0.0
            )  # S11
            O = tl.dot(exp_S_ij_late, V_jd, O, input_precision="ieee")  # S11: of the block before
        S_ij = tl.where(j[None, :] < N, S_ij, float("-inf"))  # outside: the least there is
        m_ij = tl.maximum(m, tl.max(S_ij, axis=1) * 1.4426950408889634)  # S12
        m_ij_finite = tl.where(m_ij > float("-inf"), m_ij, 0.0)  # 0 as long as nothing was seen
        exp_m = tl.exp2(m - m_ij_finite)  # S13
        exp_S_ij = tl.exp2(S_ij * 1.4426950408889634 - m_ij_finite[:, None])  # S13
        l = l * exp_m + tl.sum(exp_S_ij, axis=1)  # S13
        if LATE:
            O = O * exp_m[:, None]  # S11
            exp_S_ij_late = exp_S_ij.to(V_ptr.dtype.element_ty)
            j_late = tl.where(j < N, j, -1)
        else:
            V_jd = tl.load(
                V_at + tl.cast(j_first, INDEX) * stride_V_j,
                mask=(j[:, None] < N) & d_in[None, :],
                other=0.0
            )  # S11
            O = tl.dot(
                exp_S_ij.to(V_ptr.dtype.element_ty),
                V_jd,
                O * exp_m[:, None],
                input_precision="ieee"
            )  # S11
        m = m_ij  # S3
    if LATE:
        V_jd = tl.load(
            V_ptr + j_late[:, None] * stride_V_j + d[None, :] * stride_V_d,
            mask=(j_late[:, None] >= 0) & d_in[None, :],
            other=0.0
        )  # S11
        O = tl.dot(exp_S_ij_late, V_jd, O, input_precision="ieee")  # S11: of the block before
    m = m * 0.6931471805599453  # back from units of log2(e)
    O = tl.where(l[:, None] != 0.0, O / l[:, None], 0.0)  # S4
    tl.store(lse_ptr + i * stride_lse_i, m + tl.log(l), mask=i < M)  # S14
    tl.store(m_ptr + i * stride_m_i, m, mask=i < M)  # S3
    tl.store(l_ptr + i * stride_l_i, l, mask=i < M)  # S13
    tl.store(
        O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
        O,
        mask=(i[:, None] < M) & d_in[None, :]
    )  # S4


def flash_forward_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J, "LATE": LATE}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def flash_forward_kernel_footprint(width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_J, BLOCK_D, **_):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * BLOCK_I * BLOCK_E + num_stages * width * (
        BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    )
    held = BLOCK_I * BLOCK_D + BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
flash_forward_kernel_default = {
    2: flash_forward_kernel_config(128, 64, 0, 8, 3),
    4: flash_forward_kernel_config(32, 32, 0, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
flash_forward_kernel_tuned = {
    2: _Tuned(
        flash_forward_kernel,
        [
            flash_forward_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((128, 8), (64, 4), (128, 4)), (64, 32, 128), (0, 1), (3, 2)
            )
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_forward_kernel_footprint, 2),
    ),
    4: _Tuned(
        flash_forward_kernel,
        [
            flash_forward_kernel_config(BLOCK_I, BLOCK_J, LATE, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, LATE, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (0,), (1, 2)
            )
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_forward_kernel_footprint, 4),
    ),
}


@triton.jit
def flash_forward_backward_delta_kernel(
    O_ptr, dO_ptr, delta_ptr,
    stride_O_i, stride_O_d,
    stride_dO_i, stride_dO_d,
    stride_delta_i,
    M, D,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads O (M, D), dO (M, D).
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
    tl.store(delta_ptr + i * stride_delta_i, delta, mask=i < M)  # S1


def flash_forward_backward_delta_kernel_config(BLOCK_I, BLOCK_D, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_D": BLOCK_D}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
flash_forward_backward_delta_kernel_default = flash_forward_backward_delta_kernel_config(
    4, 512, 4, 2
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
flash_forward_backward_delta_kernel_tuned = _Tuned(
    flash_forward_backward_delta_kernel,
    [
        flash_forward_backward_delta_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["M", "D"],
)


@triton.jit
def flash_forward_backward_dQ_kernel(
    Q_ptr, K_ptr, V_ptr, lse_ptr, dO_ptr, delta_ptr, dQ_ptr,
    stride_Q_i, stride_Q_t,
    stride_K_j, stride_K_t,
    stride_V_j, stride_V_d,
    stride_lse_i,
    stride_dO_i, stride_dO_d,
    stride_delta_i,
    stride_dQ_i, stride_dQ_t,
    M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i.

    Reads Q (M, E), K (N, E), V (N, D), lse (M,), dO (M, D), delta (M,).
    Writes dQ (M, E).
    """
    pid = tl.program_id(0).to(INDEX)
    i = pid * BLOCK_I + tl.arange(0, BLOCK_I)
    t = tl.arange(0, BLOCK_T).to(INDEX)
    t_in = (t < E) | (BLOCK_T == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)

    dQ = tl.zeros([BLOCK_I, BLOCK_T], tl.float32)
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    Q_it = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + t[None, :] * stride_Q_t,
        mask=(i[:, None] < M) & t_in[None, :],
        other=0.0
    )  # S2
    lse_i = tl.load(lse_ptr + i * stride_lse_i, mask=i < M, other=0.0)  # S3
    dO_id = tl.load(
        dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
        mask=(i[:, None] < M) & d_in[None, :],
        other=0.0
    )  # S4
    delta_i = tl.load(delta_ptr + i * stride_delta_i, mask=i < M, other=0.0)  # S5
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    K_at = K_ptr + j_at[:, None] * stride_K_j + t[None, :] * stride_K_t
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        K_jt = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j, mask=t_in[None, :], other=0.0
        )  # S2
        S_ij = tl.dot(Q_it, tl.trans(K_jt), input_precision="ieee")  # S2
        P = tl.exp2(
            S_ij * 1.4426950408889634 - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S3
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
        )  # S4
        dP = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S4
        dS_ij = P * (dP - delta_i.to(tl.float32)[:, None])  # S5
        dQ = tl.dot(dS_ij.to(K_ptr.dtype.element_ty), K_jt, dQ, input_precision="ieee")  # S6
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_jt = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < N) & t_in[None, :],
            other=0.0
        )  # S2
        S_ij = tl.dot(Q_it, tl.trans(K_jt), input_precision="ieee")  # S2
        P = tl.exp2(
            S_ij * 1.4426950408889634 - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S3
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j,
            mask=(j[:, None] < N) & d_in[None, :],
            other=0.0
        )  # S4
        dP = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S4
        dS_ij = P * (dP - delta_i.to(tl.float32)[:, None])  # S5
        dQ = tl.dot(
            tl.where(j[None, :] < N, dS_ij, 0.0).to(K_ptr.dtype.element_ty),
            K_jt,
            dQ,
            input_precision="ieee"
        )  # S6
    tl.store(
        dQ_ptr + i[:, None] * stride_dQ_i + t[None, :] * stride_dQ_t,
        dQ,
        mask=(i[:, None] < M) & t_in[None, :]
    )  # S6


def flash_forward_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def flash_forward_backward_dQ_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_T, BLOCK_D, BLOCK_J, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_I * BLOCK_T + BLOCK_I * BLOCK_D
    ) + num_stages * width * (BLOCK_J * BLOCK_T + BLOCK_J * BLOCK_D)
    held = BLOCK_I * BLOCK_T + 2 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
flash_forward_backward_dQ_kernel_default = {
    2: flash_forward_backward_dQ_kernel_config(128, 32, 8, 3),
    4: flash_forward_backward_dQ_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
flash_forward_backward_dQ_kernel_tuned = {
    2: _Tuned(
        flash_forward_backward_dQ_kernel,
        [
            flash_forward_backward_dQ_kernel_config(*row)
            for row in itertools.product((128, 64), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_forward_backward_dQ_kernel_footprint, 2),
    ),
    4: _Tuned(
        flash_forward_backward_dQ_kernel,
        [
            flash_forward_backward_dQ_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_forward_backward_dQ_kernel_footprint, 4),
    ),
}


@triton.jit
def flash_forward_backward_dK_dV_kernel(
    Q_ptr, K_ptr, V_ptr, lse_ptr, dO_ptr, delta_ptr, dK_ptr, dV_ptr,
    stride_Q_i, stride_Q_t,
    stride_K_j, stride_K_t,
    stride_V_j, stride_V_d,
    stride_lse_i,
    stride_dO_i, stride_dO_d,
    stride_delta_i,
    stride_dK_j, stride_dK_t,
    stride_dV_j, stride_dV_d,
    M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_J iterations of j.

    Reads Q (M, E), K (N, E), V (N, D), lse (M,), dO (M, D), delta (M,).
    Writes dK (N, E), dV (N, D).
    """
    pid = tl.program_id(0).to(INDEX)
    j = pid * BLOCK_J + tl.arange(0, BLOCK_J)
    t = tl.arange(0, BLOCK_T).to(INDEX)
    t_in = (t < E) | (BLOCK_T == E)
    d = tl.arange(0, BLOCK_D).to(INDEX)
    d_in = (d < D) | (BLOCK_D == D)

    dK = tl.zeros([BLOCK_J, BLOCK_T], tl.float32)
    dV = tl.zeros([BLOCK_J, BLOCK_D], tl.float32)
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    K_jt = tl.load(
        K_ptr + j[:, None] * stride_K_j + t[None, :] * stride_K_t,
        mask=(j[:, None] < N) & t_in[None, :],
        other=0.0
    )  # S7
    V_jd = tl.load(
        V_ptr + j[:, None] * stride_V_j + d[None, :] * stride_V_d,
        mask=(j[:, None] < N) & d_in[None, :],
        other=0.0
    )  # S9
    # What is read as it would be in a block that begins at 0.
    i_at = tl.arange(0, BLOCK_I).to(INDEX)
    Q_at = Q_ptr + i_at[:, None] * stride_Q_i + t[None, :] * stride_Q_t
    lse_at = lse_ptr + i_at * stride_lse_i
    dO_at = dO_ptr + i_at[:, None] * stride_dO_i + d[None, :] * stride_dO_d
    delta_at = delta_ptr + i_at * stride_delta_i
    # Full blocks.
    for i_from in range(0, tl.cast(i_full, tl.int64), BLOCK_I):
        i_first = tl.cast(i_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        Q_it = tl.load(Q_at + i_first * stride_Q_i, mask=t_in[None, :], other=0.0)  # S7
        S_ij_2 = tl.dot(K_jt, tl.trans(Q_it), input_precision="ieee")  # S7
        lse_i = tl.load(lse_at + i_first * stride_lse_i)  # S8
        P_2 = tl.exp2(
            S_ij_2 * 1.4426950408889634 - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S8
        dO_id = tl.load(dO_at + i_first * stride_dO_i, mask=d_in[None, :], other=0.0)  # S9
        dP_2 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S9
        delta_i = tl.load(delta_at + i_first * stride_delta_i)  # S10
        dS_ij_2 = P_2 * (dP_2 - delta_i.to(tl.float32)[None, :])  # S10
        dK = tl.dot(dS_ij_2.to(Q_ptr.dtype.element_ty), Q_it, dK, input_precision="ieee")  # S11
        dV = tl.dot(P_2.to(dO_ptr.dtype.element_ty), dO_id, dV, input_precision="ieee")  # S12
    # The last, partial block.
    for i_from in range(tl.cast(i_full, tl.int64), tl.cast(M, tl.int64), BLOCK_I):
        i_first = tl.cast(i_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        i = i_first + tl.arange(0, BLOCK_I)
        Q_it = tl.load(
            Q_at + i_first * stride_Q_i, mask=(i[:, None] < M) & t_in[None, :], other=0.0
        )  # S7
        S_ij_2 = tl.dot(K_jt, tl.trans(Q_it), input_precision="ieee")  # S7
        lse_i = tl.load(lse_at + i_first * stride_lse_i, mask=i < M, other=0.0)  # S8
        P_2 = tl.exp2(
            S_ij_2 * 1.4426950408889634 - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S8
        dO_id = tl.load(
            dO_at + i_first * stride_dO_i, mask=(i[:, None] < M) & d_in[None, :], other=0.0
        )  # S9
        dP_2 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S9
        delta_i = tl.load(delta_at + i_first * stride_delta_i, mask=i < M, other=0.0)  # S10
        dS_ij_2 = P_2 * (dP_2 - delta_i.to(tl.float32)[None, :])  # S10
        dK = tl.dot(
            tl.where(i[None, :] < M, dS_ij_2, 0.0).to(Q_ptr.dtype.element_ty),
            Q_it,
            dK,
            input_precision="ieee"
        )  # S11
        dV = tl.dot(
            tl.where(i[None, :] < M, P_2, 0.0).to(dO_ptr.dtype.element_ty),
            dO_id,
            dV,
            input_precision="ieee"
        )  # S12
    if dK_ptr is not None:
        tl.store(
            dK_ptr + j[:, None] * stride_dK_j + t[None, :] * stride_dK_t,
            dK,
            mask=(j[:, None] < N) & t_in[None, :]
        )  # S11
    if dV_ptr is not None:
        tl.store(
            dV_ptr + j[:, None] * stride_dV_j + d[None, :] * stride_dV_d,
            dV,
            mask=(j[:, None] < N) & d_in[None, :]
        )  # S12


def flash_forward_backward_dK_dV_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages):
    blocks = {"BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def flash_forward_backward_dK_dV_kernel_footprint(
    width, /, num_stages, BLOCK_J, BLOCK_T, BLOCK_D, BLOCK_I, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_J * BLOCK_T + BLOCK_J * BLOCK_D
    ) + num_stages * width * (BLOCK_I * BLOCK_T + BLOCK_I * BLOCK_D)
    held = BLOCK_J * BLOCK_T + BLOCK_J * BLOCK_D + 2 * BLOCK_J * BLOCK_I
    return shared, held


# Used where nothing is timed, by the bytes of an element.
flash_forward_backward_dK_dV_kernel_default = {
    2: flash_forward_backward_dK_dV_kernel_config(64, 32, 8, 3),
    4: flash_forward_backward_dK_dV_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
flash_forward_backward_dK_dV_kernel_tuned = {
    2: _Tuned(
        flash_forward_backward_dK_dV_kernel,
        [
            flash_forward_backward_dK_dV_kernel_config(*row)
            for row in itertools.product((64, 128), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_forward_backward_dK_dV_kernel_footprint, 2),
    ),
    4: _Tuned(
        flash_forward_backward_dK_dV_kernel,
        [
            flash_forward_backward_dK_dV_kernel_config(BLOCK_J, BLOCK_I, num_warps, num_stages)
            for (BLOCK_J, num_warps), BLOCK_I, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["M", "N", "E", "D"],
        fitting=_fitting(flash_forward_backward_dK_dV_kernel_footprint, 4),
    ),
}


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(flash_forward_kernel, triton.JITFunction)
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


def flash_forward_forward(Q, K, V, *, tune=True):
    """Run flash_forward, and return what its gradients need besides.

    Args:
        Q: (M, E), float16, bfloat16 or float32, any strides.
        K: (N, E), float16, bfloat16 or float32, any strides.
        V: (N, D), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (M, D), m (M,), l (M,), lse (M,) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(("Q", Q, 2, _FLOAT), ("K", K, 2, _FLOAT), ("V", V, 2, _FLOAT))
    M, E = Q.shape
    N = K.shape[0]
    D = V.shape[1]
    _check_shape("K", K, (N, E), "(N, E) with E = Q.shape[1]")
    _check_shape("V", V, (N, D), "(N, D) with N = K.shape[0]")
    lse = torch.empty((M,), dtype=torch.float32, device=Q.device)
    O = torch.empty((M, D), dtype=Q.dtype, device=Q.device)
    m = torch.empty((M,), dtype=Q.dtype, device=Q.device)
    l = torch.empty((M,), dtype=Q.dtype, device=Q.device)
    index = _index_type(Q, K, V, lse, O, m, l)
    width = Q.element_size()

    lanes = {
        "BLOCK_D": max(16, triton.next_power_of_2(D)), "BLOCK_E": max(16, triton.next_power_of_2(E))
    }
    if _INTERPRETED or not tune:
        run = flash_forward_kernel
        blocks = _fitted(
            flash_forward_kernel_default[width],
            flash_forward_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = flash_forward_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, lse, O, m, l,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *lse.stride(),
                *O.stride(),
                *m.stride(),
                *l.stride(),
                M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return O, m, l, lse


def flash_forward_backward(Q, K, V, lse, O, dO, *, wanted=None, tune=True):
    """Return the gradients of flash_forward.

    Args:
        Q: (M, E), float16, bfloat16 or float32, any strides.
        K: (N, E), float16, bfloat16 or float32, any strides.
        V: (N, D), float16, bfloat16 or float32, any strides.
        lse: (M,), float32, any strides.
        O: (M, D), float16, bfloat16 or float32, any strides.
        dO: (M, D), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dQ (M, E), dK (N, E), dV (N, D).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 2, _FLOAT), ("K", K, 2, _FLOAT), ("V", V, 2, _FLOAT),
        ("lse", lse, 1, (torch.float32,)), ("O", O, 2, _FLOAT), ("dO", dO, 2, _FLOAT)
    )
    M, E = Q.shape
    N = K.shape[0]
    D = V.shape[1]
    _check_shape("K", K, (N, E), "(N, E) with E = Q.shape[1]")
    _check_shape("V", V, (N, D), "(N, D) with N = K.shape[0]")
    _check_shape("lse", lse, (M,), "(M,) with M = Q.shape[0]")
    _check_shape("O", O, (M, D), "(M, D) with M = Q.shape[0] and D = V.shape[1]")
    _check_shape("dO", dO, (M, D), "(M, D) with M = Q.shape[0] and D = V.shape[1]")
    wanted = _wanted(wanted, ("dQ", "dK", "dV"))
    delta = torch.empty((M,), dtype=torch.float32, device=Q.device)
    dQ = None
    if "dQ" in wanted:
        dQ = torch.empty((M, E), dtype=Q.dtype, device=Q.device)
    dK = None
    if "dK" in wanted:
        dK = torch.empty((N, E), dtype=Q.dtype, device=Q.device)
    dV = None
    if "dV" in wanted:
        dV = torch.empty((N, D), dtype=Q.dtype, device=Q.device)
    index = _index_type(*_given(Q, K, V, lse, O, dO, delta, dQ, dK, dV))
    width = Q.element_size()

    if _INTERPRETED or not tune:
        run = flash_forward_backward_delta_kernel
        blocks = flash_forward_backward_delta_kernel_default.all_kwargs()
    else:
        run = flash_forward_backward_delta_kernel_tuned
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                O, dO, delta,
                *O.stride(),
                *dO.stride(),
                *delta.stride(),
                M, D,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    lanes = {
        "BLOCK_T": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = flash_forward_backward_dQ_kernel
        blocks = _fitted(
            flash_forward_backward_dQ_kernel_default[width],
            flash_forward_backward_dQ_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = flash_forward_backward_dQ_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_I"]),)

    if M > 0 and "dQ" in wanted:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, lse, dO, delta, dQ,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *lse.stride(),
                *dO.stride(),
                *delta.stride(),
                *dQ.stride(),
                M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    lanes = {
        "BLOCK_T": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = flash_forward_backward_dK_dV_kernel
        blocks = _fitted(
            flash_forward_backward_dK_dV_kernel_default[width],
            flash_forward_backward_dK_dV_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = flash_forward_backward_dK_dV_kernel_tuned[width]
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
                M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return dQ, dK, dV


@torch.library.custom_op(_free("flash_forward_forward_d6dd577a"), mutates_args=())
def _flash_forward_forward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, tune: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return flash_forward_forward(Q, K, V, tune=tune)


@_flash_forward_forward_operator.register_fake
def _(Q, K, V, tune):
    M = Q.shape[0]
    D = V.shape[1]
    return (
        torch.empty((M, D), dtype=Q.dtype, device=Q.device),
        torch.empty((M,), dtype=Q.dtype, device=Q.device),
        torch.empty((M,), dtype=Q.dtype, device=Q.device),
        torch.empty((M,), dtype=torch.float32, device=Q.device),
    )


@torch.library.custom_op(_free("flash_forward_backward_d6dd577a"), mutates_args=())
def _flash_forward_backward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, lse: torch.Tensor, O: torch.Tensor,
    dO: torch.Tensor, wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = flash_forward_backward(
        Q,
        K,
        V,
        lse,
        O,
        dO,
        wanted=[name for name, each in zip(("dQ", "dK", "dV"), wanted) if each],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_flash_forward_backward_operator.register_fake
def _(Q, K, V, lse, O, dO, wanted, tune):
    M = Q.shape[0]
    E = Q.shape[1]
    N = K.shape[0]
    D = V.shape[1]
    found = (
        torch.empty((M, E), dtype=Q.dtype, device=Q.device),
        torch.empty((N, E), dtype=Q.dtype, device=Q.device),
        torch.empty((N, D), dtype=Q.dtype, device=Q.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _flash_forward_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    Q, K, V, tune = inputs
    O, m, l, lse = output
    ctx.save_for_backward(Q, K, V, lse, O)
    ctx.numbers = (tune,)
    ctx.like = (_like(O),)
    ctx.mark_non_differentiable(m, l, lse)
    ctx.set_materialize_grads(False)


def _flash_forward_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dO, _, _, _ = found
    Q, K, V, lse, O = ctx.saved_tensors
    (tune,) = ctx.numbers
    (O_like,) = ctx.like
    if dO is None:
        dO = _zeros(*O_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1], needed[2]]
    found = iter(_flash_forward_backward_operator(Q, K, V, lse, O, dO, wanted, tune))
    dQ, dK, dV = (next(found) if each else None for each in wanted)
    return dQ, dK, dV, None


def _flash_forward_second(ctx, *found):
    raise RuntimeError(
        "flash_forward has no second derivative: its backward pass is derived once. Call "
        "backward without create_graph=True"
    )


_flash_forward_forward_operator.register_autograd(
    _flash_forward_gradients, setup_context=_flash_forward_keep
)
_flash_forward_backward_operator.register_autograd(_flash_forward_second)


def flash_forward(Q, K, V, *, tune=True):
    """Softmax attention in one pass over j, with every statement and every claim right.
    Differentiable: gradients come from flash_forward_backward.

    Args:
        Q: (M, E), float16, bfloat16 or float32, any strides.
        K: (N, E), float16, bfloat16 or float32, any strides.
        V: (N, D), float16, bfloat16 or float32, any strides.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (M, D), m (M,), l (M,).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    O, m, l, _ = _flash_forward_forward_operator(Q, K, V, tune)
    return O, m, l
