# Made by looptrans 0.1.0. Needs only torch and triton, 3.6 to 3.9.
#
# The listing:
#
#     def attention_differential(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         Q2: Float[Array, "B H M E"],
#         K2: Float[Array, "B H N E"],
#         lam: float
#     ):
#         S = zeros((B, H, M, N))
#         S2 = zeros((B, H, M, N))
#         O = zeros((B, H, M, D))
#         O2 = zeros((B, H, M, D))
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     m = -inf  # S1: the maximum of nothing
#                     m2 = -inf  # S2: the maximum of nothing
#                     for j in range(0, N):
#                         # S3: the scaled score
#                         S[b, h, i, j] = sum(
#                             Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)
#                         ) * (1.0 / sqrt(E))
#                         m = max(m, S[b, h, i, j])  # S4: Aggregation over j
#                         # S5: the scaled score
#                         S2[b, h, i, j] = sum(
#                             Q2[b, h, i, e] * K2[b, h, j, e] for e in range(0, E)
#                         ) * (1.0 / sqrt(E))
#                         m2 = max(m2, S2[b, h, i, j])  # S6: Aggregation over j
#                     l = 0.0  # S7: an empty sum
#                     l2 = 0.0  # S8: an empty sum
#                     for j in range(0, N):
#                         l = l + exp(S[b, h, i, j] - m)  # S9: Aggregation over j
#                         l2 = l2 + exp(S2[b, h, i, j] - m2)  # S10: Aggregation over j
#                     for j in range(0, N):
#                         for d in range(0, D):
#                             # S11: the weighted mean of the rows of V
#                             O[b, h, i, d] = O[b, h, i, d] + exp(
#                                 S[b, h, i, j] - m
#                             ) / l * V[b, h, j, d]
#                             # S12: the weighted mean of the rows of V
#                             O2[b, h, i, d] = O2[b, h, i, d] + exp(
#                                 S2[b, h, i, j] - m2
#                             ) / l2 * V[b, h, j, d]
#                     for d in range(0, D):
#                         # S13: the one less the other
#                         O[b, h, i, d] = O[b, h, i, d] - lam * O2[b, h, i, d]
#         return O
#
# The steps from there to its backward pass, with what each leans on:
#   1. define every array once (storage: every read gets the value that was written last above it)
#   2. reverse mode (algebra: the adjoint of a cell is the sum of what every read of it adds)
#   3. dm2 vanishes (algebra: dm2 = 0)
#   4. dm vanishes (algebra: dm = 0)
#   5. work P out from lse: keep lse = m[b, h, i] + log(l[b, h, i]) for each sum (algebra: P[b, h,
#      i, j] = exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] = exp(S[b, h, i, j] - lse[b, h, i]))
#   6. work P_2 out from lse_2: keep lse_2 = m2[b, h, i] + log(l2[b, h, i]) for each sum (algebra:
#      P_2[b, h, i, j] = exp(S2[b, h, i, j] - m2[b, h, i]) / l2[b, h, i] = exp(S2[b, h, i, j] -
#      lse_2[b, h, i]))
#   7. store little, work out the rest again (storage: a value worked out again is the value that
#      was read before; rounding: sums are done in another order than reverse mode on the listing
#      would do them)
#
# Its backward pass:
#
#     def attention_differential_backward(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         Q2: Float[Array, "B H M E"],
#         K2: Float[Array, "B H N E"],
#         lam: float,
#         lse: Float32[Array, "B H M"],
#         lse_2: Float32[Array, "B H M"],
#         O2: Float32[Array, "B H M D"],
#         dO: Float[Array, "B H M D"]
#     ):
#         dl_sum = zeros((B, H, M), dtype=float32)
#         dl2_sum = zeros((B, H, M), dtype=float32)
#         dlam_part = zeros((B, H, M), dtype=float32)
#         dQ = zeros((B, H, M, E))
#         dK = zeros((B, H, N, E))
#         dV = zeros((B, H, N, D))
#         dQ2 = zeros((B, H, M, E))
#         dK2 = zeros((B, H, N, E))
#         dlam = 0.0
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for j in range(0, N):
#                         dP_2_sum = sum(V[b, h, j, d] * dO[b, h, i, d] for d in range(0, D))
#                         S_sum = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                         S = S_sum * (1.0 / sqrt(E))
#                         P = exp(S - lse[b, h, i])
#                         dP_2 = -(lam * dP_2_sum)
#                         S2_sum = sum(Q2[b, h, i, e] * K2[b, h, j, e] for e in range(0, E))
#                         S2 = S2_sum * (1.0 / sqrt(E))
#                         P_2 = exp(S2 - lse_2[b, h, i])
#                         dl_sum[b, h, i] = dl_sum[b, h, i] + dP_2_sum * P
#                         dl2_sum[b, h, i] = dl2_sum[b, h, i] + dP_2 * P_2
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for d in range(0, D):
#                         dlam_part[b, h, i] = dlam_part[b, h, i] - dO[b, h, i, d] * O2[b, h, i, d]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     for j in range(0, N):
#                         S_sum_2 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                         S_2 = S_sum_2 * (1.0 / sqrt(E))
#                         P_3 = exp(S_2 - lse[b, h, i])
#                         dP_2_sum_2 = sum(V[b, h, j, d] * dO[b, h, i, d] for d in range(0, D))
#                         dS = P_3 * (dP_2_sum_2 - dl_sum[b, h, i])
#                         dS_sum = dS / sqrt(E)
#                         S2_sum_2 = sum(Q2[b, h, i, e] * K2[b, h, j, e] for e in range(0, E))
#                         S2_2 = S2_sum_2 * (1.0 / sqrt(E))
#                         P_2_2 = exp(S2_2 - lse_2[b, h, i])
#                         dP_2_2 = -(lam * dP_2_sum_2)
#                         dS2 = P_2_2 * (dP_2_2 - dl2_sum[b, h, i])
#                         dS2_sum = dS2 / sqrt(E)
#                         for e in range(0, E):
#                             dQ[b, h, i, e] = dQ[b, h, i, e] + dS_sum * K[b, h, j, e]
#                         for e in range(0, E):
#                             dQ2[b, h, i, e] = dQ2[b, h, i, e] + dS2_sum * K2[b, h, j, e]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for j in range(0, N):
#                     for i in range(0, M):
#                         S_sum_3 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
#                         S_3 = S_sum_3 * (1.0 / sqrt(E))
#                         P_4 = exp(S_3 - lse[b, h, i])
#                         dP_2_sum_3 = sum(V[b, h, j, d] * dO[b, h, i, d] for d in range(0, D))
#                         dS_2 = P_4 * (dP_2_sum_3 - dl_sum[b, h, i])
#                         dS_sum_2 = dS_2 / sqrt(E)
#                         S2_sum_3 = sum(Q2[b, h, i, e] * K2[b, h, j, e] for e in range(0, E))
#                         S2_3 = S2_sum_3 * (1.0 / sqrt(E))
#                         P_2_3 = exp(S2_3 - lse_2[b, h, i])
#                         dP_2_3 = -(lam * dP_2_sum_3)
#                         dS2_2 = P_2_3 * (dP_2_3 - dl2_sum[b, h, i])
#                         dS2_sum_2 = dS2_2 / sqrt(E)
#                         for e in range(0, E):
#                             dK[b, h, j, e] = dK[b, h, j, e] + dS_sum_2 * Q[b, h, i, e]
#                         for d in range(0, D):
#                             dV[b, h, j, d] = dV[b, h, j, d] + dO[b, h, i, d] * (P_4 - P_2_3 * lam)
#                         for e in range(0, E):
#                             dK2[b, h, j, e] = dK2[b, h, j, e] + dS2_sum_2 * Q2[b, h, i, e]
#         for b in range(0, B):
#             for h in range(0, H):
#                 for i in range(0, M):
#                     dlam = dlam + dlam_part[b, h, i]
#         return dQ, dK, dV, dQ2, dK2, dlam
#
# The steps from there to the forward kernels:
#   1. one pass instead of 3: m, m2, l, l2, O[b, h, i, d] and O2[b, h, i, d] move together
#   2. change of state: the loop keeps O[b, h, i, d] * l and O2[b, h, i, d] * l2, and one division
#      stands behind it; nothing moves before m and m2 does
#   3. keep S in a scalar: nothing else reads it
#   4. keep S2 in a scalar: nothing else reads it
#   5. run b, h, i and d in parallel, m, m2, l, l2, S_bhij, S2_bhij, m_bhij and m2_bhij private to
#      an iteration
#
# Where they end; the labels in the forward kernels are those of this nest:
#
#     def attention_differential(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         Q2: Float[Array, "B H M E"],
#         K2: Float[Array, "B H N E"],
#         lam: float
#     ):
#         lse = zeros((B, H, M), dtype=float32)
#         lse_2 = zeros((B, H, M), dtype=float32)
#         O = zeros((B, H, M, D))
#         O2 = zeros((B, H, M, D), dtype=float32)
#         for b in parallel(0, B):
#             private: (m, m2, l, l2, S_bhij, S2_bhij, m_bhij, m2_bhij)
#             for h in parallel(0, H):
#                 private: (m, m2, l, l2, S_bhij, S2_bhij, m_bhij, m2_bhij)
#                 for i in parallel(0, M):
#                     private: (m, m2, l, l2, S_bhij, S2_bhij, m_bhij, m2_bhij)
#                     m = -inf  # S1: the maximum of nothing
#                     m2 = -inf  # S2: the maximum of nothing
#                     l = 0.0  # S7: an empty sum
#                     l2 = 0.0  # S8: an empty sum
#                     for j in range(0, N):
#                         # S3: the scaled score
#                         S_bhij = sum(
#                             Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)
#                         ) * (1.0 / sqrt(E))
#                         # S5: the scaled score
#                         S2_bhij = sum(
#                             Q2[b, h, i, e] * K2[b, h, j, e] for e in range(0, E)
#                         ) * (1.0 / sqrt(E))
#                         m_bhij = max(m, S_bhij)  # S16
#                         m2_bhij = max(m2, S2_bhij)  # S17
#                         # S18
#                         l = l * exp(m - m_bhij) + exp(S_bhij - m_bhij) if m_bhij > -inf else l
#                         # S19
#                         l2 = (
#                             l2 * exp(m2 - m2_bhij) + exp(S2_bhij - m2_bhij)
#                             if m2_bhij > -inf
#                             else l2
#                         )
#                         for d in parallel(0, D):
#                             # S11
#                             O[b, h, i, d] = (
#                                 O[b, h, i, d] * exp(m - m_bhij)
#                                 + V[b, h, j, d] * exp(S_bhij - m_bhij)
#                                 if m_bhij > -inf
#                                 else O[b, h, i, d]
#                             )
#                             # S12
#                             O2[b, h, i, d] = (
#                                 O2[b, h, i, d] * exp(m2 - m2_bhij)
#                                 + V[b, h, j, d] * exp(S2_bhij - m2_bhij)
#                                 if m2_bhij > -inf
#                                 else O2[b, h, i, d]
#                             )
#                         m = m_bhij  # S4
#                         m2 = m2_bhij  # S6
#                     for d in parallel(0, D):
#                         O2[b, h, i, d] = O2[b, h, i, d] / l2 if l2 != 0.0 else 0.0  # S9
#                     for d in parallel(0, D):
#                         O[b, h, i, d] = O[b, h, i, d] / l if l != 0.0 else 0.0  # S10
#                     lse[b, h, i] = m + log(l)  # S14
#                     lse_2[b, h, i] = m2 + log(l2)  # S15
#                     for d in parallel(0, D):
#                         # S13: the one less the other
#                         O[b, h, i, d] = O[b, h, i, d] - lam * O2[b, h, i, d]
#         return O, lse, lse_2, O2
#
# The steps from there to the backward kernels:
#   1. each iteration of b and h keeps what it adds to dlam, which is added up afterwards
#   2. run b, h, i, e, j and d in parallel, dP_2_sum, S_sum, S, P, dP_2, S2_sum, S2, P_2, S_sum_2,
#      S_2, P_3, dP_2_sum_2, dS, dS_sum, S2_sum_2, S2_2, P_2_2, dP_2_2, dS2, dS2_sum, S_sum_3, S_3,
#      P_4, dP_2_sum_3, dS_2, dS_sum_2, S2_sum_3, S2_3, P_2_3, dP_2_3, dS2_2 and dS2_sum_2 private
#      to an iteration
#
# Where they end; the labels in the backward kernels are those of this nest:
#
#     def attention_differential_backward(
#         Q: Float[Array, "B H M E"],
#         K: Float[Array, "B H N E"],
#         V: Float[Array, "B H N D"],
#         Q2: Float[Array, "B H M E"],
#         K2: Float[Array, "B H N E"],
#         lam: float,
#         lse: Float32[Array, "B H M"],
#         lse_2: Float32[Array, "B H M"],
#         O2: Float32[Array, "B H M D"],
#         dO: Float[Array, "B H M D"]
#     ):
#         dlam_part1 = zeros(B * H)
#         dl_sum = zeros((B, H, M), dtype=float32)
#         dl2_sum = zeros((B, H, M), dtype=float32)
#         dlam_part = zeros((B, H, M), dtype=float32)
#         dQ = zeros((B, H, M, E))
#         dK = zeros((B, H, N, E))
#         dV = zeros((B, H, N, D))
#         dQ2 = zeros((B, H, M, E))
#         dK2 = zeros((B, H, N, E))
#         dlam = 0.0  # S1
#         for b in parallel(0, B):
#             private: (dP_2_sum, S_sum, S, P, dP_2, S2_sum, S2, P_2)
#             for h in parallel(0, H):
#                 private: (dP_2_sum, S_sum, S, P, dP_2, S2_sum, S2, P_2)
#                 for i in parallel(0, M):
#                     private: (dP_2_sum, S_sum, S, P, dP_2, S2_sum, S2, P_2)
#                     for j in range(0, N):
#                         dP_2_sum = sum(V[b, h, j, d] * dO[b, h, i, d] for d in range(0, D))  # S2
#                         S_sum = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S3
#                         S = S_sum * (1.0 / sqrt(E))  # S4
#                         P = exp(S - lse[b, h, i])  # S5
#                         dP_2 = -(lam * dP_2_sum)  # S6
#                         S2_sum = sum(Q2[b, h, i, e] * K2[b, h, j, e] for e in range(0, E))  # S7
#                         S2 = S2_sum * (1.0 / sqrt(E))  # S8
#                         P_2 = exp(S2 - lse_2[b, h, i])  # S9
#                         dl_sum[b, h, i] = dl_sum[b, h, i] + dP_2_sum * P  # S10
#                         dl2_sum[b, h, i] = dl2_sum[b, h, i] + dP_2 * P_2  # S11
#         for b in parallel(0, B):
#             for h in parallel(0, H):
#                 for i in parallel(0, M):
#                     for d in range(0, D):
#                         # S12
#                         dlam_part[b, h, i] = (
#                             dlam_part[b, h, i] - dO[b, h, i, d] * O2[b, h, i, d]
#                         )
#         for b in parallel(0, B):
#             private: (
#                 S_sum_2,
#                 S_2,
#                 P_3,
#                 dP_2_sum_2,
#                 dS,
#                 dS_sum,
#                 S2_sum_2,
#                 S2_2,
#                 P_2_2,
#                 dP_2_2,
#                 dS2,
#                 dS2_sum
#             )
#             for h in parallel(0, H):
#                 private: (
#                     S_sum_2,
#                     S_2,
#                     P_3,
#                     dP_2_sum_2,
#                     dS,
#                     dS_sum,
#                     S2_sum_2,
#                     S2_2,
#                     P_2_2,
#                     dP_2_2,
#                     dS2,
#                     dS2_sum
#                 )
#                 for i in parallel(0, M):
#                     private: (
#                         S_sum_2,
#                         S_2,
#                         P_3,
#                         dP_2_sum_2,
#                         dS,
#                         dS_sum,
#                         S2_sum_2,
#                         S2_2,
#                         P_2_2,
#                         dP_2_2,
#                         dS2,
#                         dS2_sum
#                     )
#                     for j in range(0, N):
#                         S_sum_2 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S13
#                         S_2 = S_sum_2 * (1.0 / sqrt(E))  # S14
#                         P_3 = exp(S_2 - lse[b, h, i])  # S15
#                         # S16
#                         dP_2_sum_2 = sum(V[b, h, j, d] * dO[b, h, i, d] for d in range(0, D))
#                         dS = P_3 * (dP_2_sum_2 - dl_sum[b, h, i])  # S17
#                         dS_sum = dS / sqrt(E)  # S18
#                         # S19
#                         S2_sum_2 = sum(Q2[b, h, i, e] * K2[b, h, j, e] for e in range(0, E))
#                         S2_2 = S2_sum_2 * (1.0 / sqrt(E))  # S20
#                         P_2_2 = exp(S2_2 - lse_2[b, h, i])  # S21
#                         dP_2_2 = -(lam * dP_2_sum_2)  # S22
#                         dS2 = P_2_2 * (dP_2_2 - dl2_sum[b, h, i])  # S23
#                         dS2_sum = dS2 / sqrt(E)  # S24
#                         for e in parallel(0, E):
#                             dQ[b, h, i, e] = dQ[b, h, i, e] + dS_sum * K[b, h, j, e]  # S25
#                         for e in parallel(0, E):
#                             dQ2[b, h, i, e] = dQ2[b, h, i, e] + dS2_sum * K2[b, h, j, e]  # S26
#         for b in parallel(0, B):
#             private: (
#                 S_sum_3,
#                 S_3,
#                 P_4,
#                 dP_2_sum_3,
#                 dS_2,
#                 dS_sum_2,
#                 S2_sum_3,
#                 S2_3,
#                 P_2_3,
#                 dP_2_3,
#                 dS2_2,
#                 dS2_sum_2
#             )
#             for h in parallel(0, H):
#                 private: (
#                     S_sum_3,
#                     S_3,
#                     P_4,
#                     dP_2_sum_3,
#                     dS_2,
#                     dS_sum_2,
#                     S2_sum_3,
#                     S2_3,
#                     P_2_3,
#                     dP_2_3,
#                     dS2_2,
#                     dS2_sum_2
#                 )
#                 for j in parallel(0, N):
#                     private: (
#                         S_sum_3,
#                         S_3,
#                         P_4,
#                         dP_2_sum_3,
#                         dS_2,
#                         dS_sum_2,
#                         S2_sum_3,
#                         S2_3,
#                         P_2_3,
#                         dP_2_3,
#                         dS2_2,
#                         dS2_sum_2
#                     )
#                     for i in range(0, M):
#                         S_sum_3 = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S27
#                         S_3 = S_sum_3 * (1.0 / sqrt(E))  # S28
#                         P_4 = exp(S_3 - lse[b, h, i])  # S29
#                         # S30
#                         dP_2_sum_3 = sum(V[b, h, j, d] * dO[b, h, i, d] for d in range(0, D))
#                         dS_2 = P_4 * (dP_2_sum_3 - dl_sum[b, h, i])  # S31
#                         dS_sum_2 = dS_2 / sqrt(E)  # S32
#                         # S33
#                         S2_sum_3 = sum(Q2[b, h, i, e] * K2[b, h, j, e] for e in range(0, E))
#                         S2_3 = S2_sum_3 * (1.0 / sqrt(E))  # S34
#                         P_2_3 = exp(S2_3 - lse_2[b, h, i])  # S35
#                         dP_2_3 = -(lam * dP_2_sum_3)  # S36
#                         dS2_2 = P_2_3 * (dP_2_3 - dl2_sum[b, h, i])  # S37
#                         dS2_sum_2 = dS2_2 / sqrt(E)  # S38
#                         for e in parallel(0, E):
#                             dK[b, h, j, e] = dK[b, h, j, e] + dS_sum_2 * Q[b, h, i, e]  # S39
#                         for d in parallel(0, D):
#                             # S40
#                             dV[b, h, j, d] = dV[b, h, j, d] + dO[b, h, i, d] * (
#                                 P_4 - P_2_3 * lam
#                             )
#                         for e in parallel(0, E):
#                             dK2[b, h, j, e] = dK2[b, h, j, e] + dS2_sum_2 * Q2[b, h, i, e]  # S41
#         for b in parallel(0, B):
#             for h in parallel(0, H):
#                 for i in range(0, M):
#                     dlam_part1[b * H + h] = dlam_part1[b * H + h] + dlam_part[b, h, i]  # S42
#         for n in range(0, B * H):
#             dlam = dlam + dlam_part1[n]  # S43
#         return dQ, dK, dV, dQ2, dK2, dlam

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
def attention_differential_kernel(
    Q_ptr, K_ptr, V_ptr, Q2_ptr, K2_ptr, lse_ptr, lse_2_ptr, O_ptr, O2_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_Q2_b, stride_Q2_h, stride_Q2_i, stride_Q2_e,
    stride_K2_b, stride_K2_h, stride_K2_j, stride_K2_e,
    stride_lse_b, stride_lse_h, stride_lse_i,
    stride_lse_2_b, stride_lse_2_h, stride_lse_2_i,
    stride_O_b, stride_O_h, stride_O_i, stride_O_d,
    stride_O2_b, stride_O2_h, stride_O2_i, stride_O2_d,
    lam,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), Q2 (B, H, M, E), K2 (B, H, N, E).
    Writes lse (B, H, M), lse_2 (B, H, M), O (B, H, M, D), O2 (B, H, M, D).
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
    V_ptr += b * stride_V_b
    V_ptr += h * stride_V_h
    Q2_ptr += b * stride_Q2_b
    Q2_ptr += h * stride_Q2_h
    K2_ptr += b * stride_K2_b
    K2_ptr += h * stride_K2_h
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h
    lse_2_ptr += b * stride_lse_2_b
    lse_2_ptr += h * stride_lse_2_h
    O_ptr += b * stride_O_b
    O_ptr += h * stride_O_h
    O2_ptr += b * stride_O2_b
    O2_ptr += h * stride_O2_h

    O = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    O2 = tl.zeros([BLOCK_I, BLOCK_D], tl.float32)
    m = tl.full([BLOCK_I], float("-inf"), tl.float32)  # S1
    m2 = tl.full([BLOCK_I], float("-inf"), tl.float32)  # S2
    l = tl.zeros([BLOCK_I], tl.float32)  # S7
    l2 = tl.zeros([BLOCK_I], tl.float32)  # S8
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S3
    S_bhij_scale = 1.4426950408889634 / tl.sqrt_rn(tl.cast(E, tl.float32))  # in units of log2(e)
    Q2_ie = tl.load(
        Q2_ptr + i[:, None] * stride_Q2_i + e[None, :] * stride_Q2_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S5
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    K2_at = K2_ptr + j_at[:, None] * stride_K2_j + e[None, :] * stride_K2_e
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j, mask=e_in[None, :], other=0.0
        )  # S3
        S_bhij = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S3
        K2_je = tl.load(
            K2_at + tl.cast(j_first, INDEX) * stride_K2_j, mask=e_in[None, :], other=0.0
        )  # S5
        S2_bhij = tl.dot(Q2_ie, tl.trans(K2_je), input_precision="ieee")  # S5
        m_bhij = tl.maximum(m, tl.max(S_bhij, axis=1) * S_bhij_scale)  # S16
        m2_bhij = tl.maximum(m2, tl.max(S2_bhij, axis=1) * S_bhij_scale)  # S17
        # 0 as long as nothing was seen
        m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
        exp_m = tl.exp2(m - m_bhij_finite)  # S18
        exp_S_bhij = tl.exp2(S_bhij * S_bhij_scale - m_bhij_finite[:, None])  # S18
        l = l * exp_m + tl.sum(exp_S_bhij, axis=1)  # S18
        # 0 as long as nothing was seen
        m2_bhij_finite = tl.where(m2_bhij > float("-inf"), m2_bhij, 0.0)
        exp_m2 = tl.exp2(m2 - m2_bhij_finite)  # S19
        exp_S2_bhij = tl.exp2(S2_bhij * S_bhij_scale - m2_bhij_finite[:, None])  # S19
        l2 = l2 * exp_m2 + tl.sum(exp_S2_bhij, axis=1)  # S19
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
        )  # S11
        O = tl.dot(
            exp_S_bhij.to(V_ptr.dtype.element_ty), V_jd, O * exp_m[:, None], input_precision="ieee"
        )  # S11
        O2 = tl.dot(
            exp_S2_bhij.to(V_ptr.dtype.element_ty),
            V_jd,
            O2 * exp_m2[:, None],
            input_precision="ieee"
        )  # S12
        m = m_bhij  # S4
        m2 = m2_bhij  # S6
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < N) & e_in[None, :],
            other=0.0
        )  # S3
        S_bhij = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S3
        K2_je = tl.load(
            K2_at + tl.cast(j_first, INDEX) * stride_K2_j,
            mask=(j[:, None] < N) & e_in[None, :],
            other=0.0
        )  # S5
        S2_bhij = tl.dot(Q2_ie, tl.trans(K2_je), input_precision="ieee")  # S5
        S_bhij = tl.where(j[None, :] < N, S_bhij, float("-inf"))  # outside: the least there is
        m_bhij = tl.maximum(m, tl.max(S_bhij, axis=1) * S_bhij_scale)  # S16
        S2_bhij = tl.where(j[None, :] < N, S2_bhij, float("-inf"))  # outside: the least there is
        m2_bhij = tl.maximum(m2, tl.max(S2_bhij, axis=1) * S_bhij_scale)  # S17
        # 0 as long as nothing was seen
        m_bhij_finite = tl.where(m_bhij > float("-inf"), m_bhij, 0.0)
        exp_m = tl.exp2(m - m_bhij_finite)  # S18
        exp_S_bhij = tl.exp2(S_bhij * S_bhij_scale - m_bhij_finite[:, None])  # S18
        l = l * exp_m + tl.sum(exp_S_bhij, axis=1)  # S18
        # 0 as long as nothing was seen
        m2_bhij_finite = tl.where(m2_bhij > float("-inf"), m2_bhij, 0.0)
        exp_m2 = tl.exp2(m2 - m2_bhij_finite)  # S19
        exp_S2_bhij = tl.exp2(S2_bhij * S_bhij_scale - m2_bhij_finite[:, None])  # S19
        l2 = l2 * exp_m2 + tl.sum(exp_S2_bhij, axis=1)  # S19
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j,
            mask=(j[:, None] < N) & d_in[None, :],
            other=0.0
        )  # S11
        O = tl.dot(
            exp_S_bhij.to(V_ptr.dtype.element_ty), V_jd, O * exp_m[:, None], input_precision="ieee"
        )  # S11
        O2 = tl.dot(
            exp_S2_bhij.to(V_ptr.dtype.element_ty),
            V_jd,
            O2 * exp_m2[:, None],
            input_precision="ieee"
        )  # S12
        m = m_bhij  # S4
        m2 = m2_bhij  # S6
    m = m * 0.6931471805599453  # back from units of log2(e)
    m2 = m2 * 0.6931471805599453  # back from units of log2(e)
    O2 = tl.where(l2[:, None] != 0.0, O2 / l2[:, None], 0.0)  # S9
    O = tl.where(l[:, None] != 0.0, O / l[:, None], 0.0)  # S10
    tl.store(lse_ptr + i * stride_lse_i, m + tl.log(l), mask=i < M)  # S14
    tl.store(lse_2_ptr + i * stride_lse_2_i, m2 + tl.log(l2), mask=i < M)  # S15
    O = O - lam * O2  # S13
    tl.store(
        O_ptr + i[:, None] * stride_O_i + d[None, :] * stride_O_d,
        O,
        mask=(i[:, None] < M) & d_in[None, :]
    )  # S13
    tl.store(
        O2_ptr + i[:, None] * stride_O2_i + d[None, :] * stride_O2_d,
        O2,
        mask=(i[:, None] < M) & d_in[None, :]
    )  # S9


def attention_differential_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_differential_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_J, BLOCK_D, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * 2 * BLOCK_I * BLOCK_E + num_stages * width * (
        2 * BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    )
    held = 2 * BLOCK_I * BLOCK_D + 2 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_differential_kernel_default = {
    2: attention_differential_kernel_config(64, 32, 8, 3),
    4: attention_differential_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_differential_kernel_tuned = {
    2: _Tuned(
        attention_differential_kernel,
        [
            attention_differential_kernel_config(*row)
            for row in itertools.product((64, 128), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_differential_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_differential_kernel,
        [
            attention_differential_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages)
            for (BLOCK_I, num_warps), BLOCK_J, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_differential_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_differential_backward_dl_sum_dl2_sum_kernel(
    Q_ptr, K_ptr, V_ptr, Q2_ptr, K2_ptr, lse_ptr, lse_2_ptr, dO_ptr, dl_sum_ptr, dl2_sum_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_Q2_b, stride_Q2_h, stride_Q2_i, stride_Q2_e,
    stride_K2_b, stride_K2_h, stride_K2_j, stride_K2_e,
    stride_lse_b, stride_lse_h, stride_lse_i,
    stride_lse_2_b, stride_lse_2_h, stride_lse_2_i,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_dl_sum_b, stride_dl_sum_h, stride_dl_sum_i,
    stride_dl2_sum_b, stride_dl2_sum_h, stride_dl2_sum_i,
    lam,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_E: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), Q2 (B, H, M, E), K2 (B, H, N, E), lse
    (B, H, M), lse_2 (B, H, M), dO (B, H, M, D).
    Writes dl_sum (B, H, M), dl2_sum (B, H, M).
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
    V_ptr += b * stride_V_b
    V_ptr += h * stride_V_h
    Q2_ptr += b * stride_Q2_b
    Q2_ptr += h * stride_Q2_h
    K2_ptr += b * stride_K2_b
    K2_ptr += h * stride_K2_h
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h
    lse_2_ptr += b * stride_lse_2_b
    lse_2_ptr += h * stride_lse_2_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    dl_sum_ptr += b * stride_dl_sum_b
    dl_sum_ptr += h * stride_dl_sum_h
    dl2_sum_ptr += b * stride_dl2_sum_b
    dl2_sum_ptr += h * stride_dl2_sum_h

    S_scale = 1.4426950408889634 / tl.sqrt_rn(tl.cast(E, tl.float32))  # in units of log2(e)
    dl_sum = tl.zeros([BLOCK_I], tl.float32)
    dl2_sum = tl.zeros([BLOCK_I], tl.float32)
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    dO_id = tl.load(
        dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
        mask=(i[:, None] < M) & d_in[None, :],
        other=0.0
    )  # S2
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S3
    lse_i = tl.load(lse_ptr + i * stride_lse_i, mask=i < M, other=0.0)  # S5
    Q2_ie = tl.load(
        Q2_ptr + i[:, None] * stride_Q2_i + e[None, :] * stride_Q2_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S7
    lse_2_i = tl.load(lse_2_ptr + i * stride_lse_2_i, mask=i < M, other=0.0)  # S9
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    K2_at = K2_ptr + j_at[:, None] * stride_K2_j + e[None, :] * stride_K2_e
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
        )  # S2
        dP_2_sum = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S2
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j, mask=e_in[None, :], other=0.0
        )  # S3
        S_sum = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S3
        P = tl.exp2(
            S_sum * S_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S4, S5
        dP_2 = -(lam * dP_2_sum)  # S6
        K2_je = tl.load(
            K2_at + tl.cast(j_first, INDEX) * stride_K2_j, mask=e_in[None, :], other=0.0
        )  # S7
        S2_sum = tl.dot(Q2_ie, tl.trans(K2_je), input_precision="ieee")  # S7
        P_2 = tl.exp2(
            S2_sum * S_scale - (lse_2_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S8, S9
        dl_sum = dl_sum + tl.sum(dP_2_sum * P, axis=1)  # S10
        dl2_sum = dl2_sum + tl.sum(dP_2 * P_2, axis=1)  # S11
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j,
            mask=(j[:, None] < N) & d_in[None, :],
            other=0.0
        )  # S2
        dP_2_sum = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S2
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < N) & e_in[None, :],
            other=0.0
        )  # S3
        S_sum = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S3
        P = tl.exp2(
            S_sum * S_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S4, S5
        dP_2 = -(lam * dP_2_sum)  # S6
        K2_je = tl.load(
            K2_at + tl.cast(j_first, INDEX) * stride_K2_j,
            mask=(j[:, None] < N) & e_in[None, :],
            other=0.0
        )  # S7
        S2_sum = tl.dot(Q2_ie, tl.trans(K2_je), input_precision="ieee")  # S7
        P_2 = tl.exp2(
            S2_sum * S_scale - (lse_2_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S8, S9
        dl_sum = dl_sum + tl.sum(tl.where(j[None, :] < N, dP_2_sum * P, 0.0), axis=1)  # S10
        dl2_sum = dl2_sum + tl.sum(tl.where(j[None, :] < N, dP_2 * P_2, 0.0), axis=1)  # S11
    tl.store(dl_sum_ptr + i * stride_dl_sum_i, dl_sum, mask=i < M)  # S10
    tl.store(dl2_sum_ptr + i * stride_dl2_sum_i, dl2_sum, mask=i < M)  # S11


def attention_differential_backward_dl_sum_dl2_sum_kernel_config(
    BLOCK_I, BLOCK_J, num_warps, num_stages
):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_differential_backward_dl_sum_dl2_sum_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_D, BLOCK_E, BLOCK_J, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        BLOCK_I * BLOCK_D + 2 * BLOCK_I * BLOCK_E
    ) + num_stages * width * (BLOCK_J * BLOCK_D + 2 * BLOCK_J * BLOCK_E)
    held = 3 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_differential_backward_dl_sum_dl2_sum_kernel_default = {
    2: attention_differential_backward_dl_sum_dl2_sum_kernel_config(128, 32, 8, 3),
    4: attention_differential_backward_dl_sum_dl2_sum_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_differential_backward_dl_sum_dl2_sum_kernel_tuned = {
    2: _Tuned(
        attention_differential_backward_dl_sum_dl2_sum_kernel,
        [
            attention_differential_backward_dl_sum_dl2_sum_kernel_config(*row)
            for row in itertools.product((128, 64), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_differential_backward_dl_sum_dl2_sum_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_differential_backward_dl_sum_dl2_sum_kernel,
        [
            attention_differential_backward_dl_sum_dl2_sum_kernel_config(
                BLOCK_I, BLOCK_J, num_warps, num_stages
            )
            for (BLOCK_I, num_warps), BLOCK_J, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_differential_backward_dl_sum_dl2_sum_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_differential_backward_dlam_part_kernel(
    O2_ptr, dO_ptr, dlam_part_ptr,
    stride_O2_b, stride_O2_h, stride_O2_i, stride_O2_d,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_dlam_part_b, stride_dlam_part_h, stride_dlam_part_i,
    H, M, D,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads O2 (B, H, M, D), dO (B, H, M, D).
    Writes dlam_part (B, H, M).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_i = tl.cdiv(M, BLOCK_I)
    b = pid // blocks_i // H
    h = pid // blocks_i % H
    i = (pid % blocks_i) * BLOCK_I + tl.arange(0, BLOCK_I)
    # What is the same throughout the program goes into the pointers.
    O2_ptr += b * stride_O2_b
    O2_ptr += h * stride_O2_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    dlam_part_ptr += b * stride_dlam_part_b
    dlam_part_ptr += h * stride_dlam_part_h

    dlam_part = tl.zeros([BLOCK_I], tl.float32)
    d_full = D // BLOCK_D * BLOCK_D  # blocks before this one are full
    # Full blocks.
    for d_first in range(0, d_full, BLOCK_D):
        d = (d_first + tl.arange(0, BLOCK_D)).to(INDEX)
        dO_id = tl.load(
            dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
            mask=i[:, None] < M,
            other=0.0
        )  # S12
        O2_id = tl.load(
            O2_ptr + i[:, None] * stride_O2_i + d[None, :] * stride_O2_d,
            mask=i[:, None] < M,
            other=0.0
        )  # S12
        dlam_part = dlam_part - tl.sum(dO_id.to(tl.float32) * O2_id.to(tl.float32), axis=1)  # S12
    # The last, partial block.
    for d_first in range(d_full, D, BLOCK_D):
        d = (d_first + tl.arange(0, BLOCK_D)).to(INDEX)
        dO_id = tl.load(
            dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
            mask=(i[:, None] < M) & (d[None, :] < D),
            other=0.0
        )  # S12
        O2_id = tl.load(
            O2_ptr + i[:, None] * stride_O2_i + d[None, :] * stride_O2_d,
            mask=(i[:, None] < M) & (d[None, :] < D),
            other=0.0
        )  # S12
        dlam_part = dlam_part - tl.sum(dO_id.to(tl.float32) * O2_id.to(tl.float32), axis=1)  # S12
    tl.store(dlam_part_ptr + i * stride_dlam_part_i, dlam_part, mask=i < M)  # S12


def attention_differential_backward_dlam_part_kernel_config(
    BLOCK_I, BLOCK_D, num_warps, num_stages
):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_D": BLOCK_D}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_differential_backward_dlam_part_kernel_default = (
    attention_differential_backward_dlam_part_kernel_config(4, 512, 4, 2)
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_differential_backward_dlam_part_kernel_tuned = _Tuned(
    attention_differential_backward_dlam_part_kernel,
    [
        attention_differential_backward_dlam_part_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["H", "M", "D"],
)


@triton.jit
def attention_differential_backward_dQ_dQ2_kernel(
    Q_ptr, K_ptr, V_ptr, Q2_ptr, K2_ptr, lse_ptr, lse_2_ptr, dO_ptr, dl_sum_ptr, dl2_sum_ptr,
    dQ_ptr, dQ2_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_Q2_b, stride_Q2_h, stride_Q2_i, stride_Q2_e,
    stride_K2_b, stride_K2_h, stride_K2_j, stride_K2_e,
    stride_lse_b, stride_lse_h, stride_lse_i,
    stride_lse_2_b, stride_lse_2_h, stride_lse_2_i,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_dl_sum_b, stride_dl_sum_h, stride_dl_sum_i,
    stride_dl2_sum_b, stride_dl2_sum_h, stride_dl2_sum_i,
    stride_dQ_b, stride_dQ_h, stride_dQ_i, stride_dQ_e,
    stride_dQ2_b, stride_dQ2_h, stride_dQ2_i, stride_dQ2_e,
    lam,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_I iterations of i, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), Q2 (B, H, M, E), K2 (B, H, N, E), lse
    (B, H, M), lse_2 (B, H, M), dO (B, H, M, D), dl_sum (B, H, M), dl2_sum (B, H, M).
    Writes dQ (B, H, M, E), dQ2 (B, H, M, E).
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
    V_ptr += b * stride_V_b
    V_ptr += h * stride_V_h
    Q2_ptr += b * stride_Q2_b
    Q2_ptr += h * stride_Q2_h
    K2_ptr += b * stride_K2_b
    K2_ptr += h * stride_K2_h
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h
    lse_2_ptr += b * stride_lse_2_b
    lse_2_ptr += h * stride_lse_2_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    dl_sum_ptr += b * stride_dl_sum_b
    dl_sum_ptr += h * stride_dl_sum_h
    dl2_sum_ptr += b * stride_dl2_sum_b
    dl2_sum_ptr += h * stride_dl2_sum_h
    if dQ_ptr is not None:
        dQ_ptr += b * stride_dQ_b
        dQ_ptr += h * stride_dQ_h
    if dQ2_ptr is not None:
        dQ2_ptr += b * stride_dQ2_b
        dQ2_ptr += h * stride_dQ2_h

    S_2_scale = 1.4426950408889634 / tl.sqrt_rn(tl.cast(E, tl.float32))  # in units of log2(e)
    dQ = tl.zeros([BLOCK_I, BLOCK_E], tl.float32)
    dQ2 = tl.zeros([BLOCK_I, BLOCK_E], tl.float32)
    j_full = N // BLOCK_J * BLOCK_J  # blocks before this one are full
    Q_ie = tl.load(
        Q_ptr + i[:, None] * stride_Q_i + e[None, :] * stride_Q_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S13
    lse_i = tl.load(lse_ptr + i * stride_lse_i, mask=i < M, other=0.0)  # S15
    dO_id = tl.load(
        dO_ptr + i[:, None] * stride_dO_i + d[None, :] * stride_dO_d,
        mask=(i[:, None] < M) & d_in[None, :],
        other=0.0
    )  # S16
    dl_sum_i = tl.load(dl_sum_ptr + i * stride_dl_sum_i, mask=i < M, other=0.0)  # S17
    Q2_ie = tl.load(
        Q2_ptr + i[:, None] * stride_Q2_i + e[None, :] * stride_Q2_e,
        mask=(i[:, None] < M) & e_in[None, :],
        other=0.0
    )  # S19
    lse_2_i = tl.load(lse_2_ptr + i * stride_lse_2_i, mask=i < M, other=0.0)  # S21
    dl2_sum_i = tl.load(dl2_sum_ptr + i * stride_dl2_sum_i, mask=i < M, other=0.0)  # S23
    # What is read as it would be in a block that begins at 0.
    j_at = tl.arange(0, BLOCK_J).to(INDEX)
    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    V_at = V_ptr + j_at[:, None] * stride_V_j + d[None, :] * stride_V_d
    K2_at = K2_ptr + j_at[:, None] * stride_K2_j + e[None, :] * stride_K2_e
    # Full blocks.
    for j_first in range(0, j_full, BLOCK_J):
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j, mask=e_in[None, :], other=0.0
        )  # S13
        S_sum_2 = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S13
        P_3 = tl.exp2(
            S_sum_2 * S_2_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S14, S15
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j, mask=d_in[None, :], other=0.0
        )  # S16
        dP_2_sum_2 = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S16
        dS = P_3 * (dP_2_sum_2 - dl_sum_i.to(tl.float32)[:, None])  # S17
        K2_je = tl.load(
            K2_at + tl.cast(j_first, INDEX) * stride_K2_j, mask=e_in[None, :], other=0.0
        )  # S19
        S2_sum_2 = tl.dot(Q2_ie, tl.trans(K2_je), input_precision="ieee")  # S19
        P_2_2 = tl.exp2(
            S2_sum_2 * S_2_scale - (lse_2_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S20, S21
        dP_2_2 = -(lam * dP_2_sum_2)  # S22
        dS2 = P_2_2 * (dP_2_2 - dl2_sum_i.to(tl.float32)[:, None])  # S23
        dQ = tl.dot(dS.to(K_ptr.dtype.element_ty), K_je, dQ, input_precision="ieee")  # S25
        dQ2 = tl.dot(dS2.to(K2_ptr.dtype.element_ty), K2_je, dQ2, input_precision="ieee")  # S26
    # The last, partial block.
    for j_first in range(j_full, N, BLOCK_J):
        j = (j_first + tl.arange(0, BLOCK_J)).to(INDEX)
        K_je = tl.load(
            K_at + tl.cast(j_first, INDEX) * stride_K_j,
            mask=(j[:, None] < N) & e_in[None, :],
            other=0.0
        )  # S13
        S_sum_2 = tl.dot(Q_ie, tl.trans(K_je), input_precision="ieee")  # S13
        P_3 = tl.exp2(
            S_sum_2 * S_2_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S14, S15
        V_jd = tl.load(
            V_at + tl.cast(j_first, INDEX) * stride_V_j,
            mask=(j[:, None] < N) & d_in[None, :],
            other=0.0
        )  # S16
        dP_2_sum_2 = tl.dot(dO_id, tl.trans(V_jd), input_precision="ieee")  # S16
        dS = P_3 * (dP_2_sum_2 - dl_sum_i.to(tl.float32)[:, None])  # S17
        K2_je = tl.load(
            K2_at + tl.cast(j_first, INDEX) * stride_K2_j,
            mask=(j[:, None] < N) & e_in[None, :],
            other=0.0
        )  # S19
        S2_sum_2 = tl.dot(Q2_ie, tl.trans(K2_je), input_precision="ieee")  # S19
        P_2_2 = tl.exp2(
            S2_sum_2 * S_2_scale - (lse_2_i.to(tl.float32) * 1.4426950408889634)[:, None]
        )  # S20, S21
        dP_2_2 = -(lam * dP_2_sum_2)  # S22
        dS2 = P_2_2 * (dP_2_2 - dl2_sum_i.to(tl.float32)[:, None])  # S23
        dQ = tl.dot(
            tl.where(j[None, :] < N, dS, 0.0).to(K_ptr.dtype.element_ty),
            K_je,
            dQ,
            input_precision="ieee"
        )  # S25
        dQ2 = tl.dot(
            tl.where(j[None, :] < N, dS2, 0.0).to(K2_ptr.dtype.element_ty),
            K2_je,
            dQ2,
            input_precision="ieee"
        )  # S26
    dQ = dQ * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S18, S25
    dQ2 = dQ2 * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S24, S26
    if dQ_ptr is not None:
        tl.store(
            dQ_ptr + i[:, None] * stride_dQ_i + e[None, :] * stride_dQ_e,
            dQ,
            mask=(i[:, None] < M) & e_in[None, :]
        )  # S25
    if dQ2_ptr is not None:
        tl.store(
            dQ2_ptr + i[:, None] * stride_dQ2_i + e[None, :] * stride_dQ2_e,
            dQ2,
            mask=(i[:, None] < M) & e_in[None, :]
        )  # S26


def attention_differential_backward_dQ_dQ2_kernel_config(BLOCK_I, BLOCK_J, num_warps, num_stages):
    blocks = {"BLOCK_I": BLOCK_I, "BLOCK_J": BLOCK_J}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_differential_backward_dQ_dQ2_kernel_footprint(
    width, /, num_stages, BLOCK_I, BLOCK_E, BLOCK_D, BLOCK_J, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        2 * BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D
    ) + num_stages * width * (2 * BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D)
    held = 2 * BLOCK_I * BLOCK_E + 3 * BLOCK_I * BLOCK_J
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_differential_backward_dQ_dQ2_kernel_default = {
    2: attention_differential_backward_dQ_dQ2_kernel_config(64, 32, 8, 3),
    4: attention_differential_backward_dQ_dQ2_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_differential_backward_dQ_dQ2_kernel_tuned = {
    2: _Tuned(
        attention_differential_backward_dQ_dQ2_kernel,
        [
            attention_differential_backward_dQ_dQ2_kernel_config(*row)
            for row in itertools.product((64, 128), (32, 64, 128), (8, 4), (3, 2))
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_differential_backward_dQ_dQ2_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_differential_backward_dQ_dQ2_kernel,
        [
            attention_differential_backward_dQ_dQ2_kernel_config(
                BLOCK_I, BLOCK_J, num_warps, num_stages
            )
            for (BLOCK_I, num_warps), BLOCK_J, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_differential_backward_dQ_dQ2_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_differential_backward_dK_dV_dK2_kernel(
    Q_ptr, K_ptr, V_ptr, Q2_ptr, K2_ptr, lse_ptr, lse_2_ptr, dO_ptr, dl_sum_ptr, dl2_sum_ptr,
    dK_ptr, dV_ptr, dK2_ptr,
    stride_Q_b, stride_Q_h, stride_Q_i, stride_Q_e,
    stride_K_b, stride_K_h, stride_K_j, stride_K_e,
    stride_V_b, stride_V_h, stride_V_j, stride_V_d,
    stride_Q2_b, stride_Q2_h, stride_Q2_i, stride_Q2_e,
    stride_K2_b, stride_K2_h, stride_K2_j, stride_K2_e,
    stride_lse_b, stride_lse_h, stride_lse_i,
    stride_lse_2_b, stride_lse_2_h, stride_lse_2_i,
    stride_dO_b, stride_dO_h, stride_dO_i, stride_dO_d,
    stride_dl_sum_b, stride_dl_sum_h, stride_dl_sum_i,
    stride_dl2_sum_b, stride_dl2_sum_h, stride_dl2_sum_i,
    stride_dK_b, stride_dK_h, stride_dK_j, stride_dK_e,
    stride_dV_b, stride_dV_h, stride_dV_j, stride_dV_d,
    stride_dK2_b, stride_dK2_h, stride_dK2_j, stride_dK2_e,
    lam,
    H, M, N,
    E: tl.constexpr, D: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_D: tl.constexpr,
):
    """A program does BLOCK_J iterations of j, for one b and one h.

    Reads Q (B, H, M, E), K (B, H, N, E), V (B, H, N, D), Q2 (B, H, M, E), K2 (B, H, N, E), lse
    (B, H, M), lse_2 (B, H, M), dO (B, H, M, D), dl_sum (B, H, M), dl2_sum (B, H, M).
    Writes dK (B, H, N, E), dV (B, H, N, D), dK2 (B, H, N, E).
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
    V_ptr += b * stride_V_b
    V_ptr += h * stride_V_h
    Q2_ptr += b * stride_Q2_b
    Q2_ptr += h * stride_Q2_h
    K2_ptr += b * stride_K2_b
    K2_ptr += h * stride_K2_h
    lse_ptr += b * stride_lse_b
    lse_ptr += h * stride_lse_h
    lse_2_ptr += b * stride_lse_2_b
    lse_2_ptr += h * stride_lse_2_h
    dO_ptr += b * stride_dO_b
    dO_ptr += h * stride_dO_h
    dl_sum_ptr += b * stride_dl_sum_b
    dl_sum_ptr += h * stride_dl_sum_h
    dl2_sum_ptr += b * stride_dl2_sum_b
    dl2_sum_ptr += h * stride_dl2_sum_h
    if dK_ptr is not None:
        dK_ptr += b * stride_dK_b
        dK_ptr += h * stride_dK_h
    if dV_ptr is not None:
        dV_ptr += b * stride_dV_b
        dV_ptr += h * stride_dV_h
    if dK2_ptr is not None:
        dK2_ptr += b * stride_dK2_b
        dK2_ptr += h * stride_dK2_h

    S_3_scale = 1.4426950408889634 / tl.sqrt_rn(tl.cast(E, tl.float32))  # in units of log2(e)
    dK = tl.zeros([BLOCK_J, BLOCK_E], tl.float32)
    dV = tl.zeros([BLOCK_J, BLOCK_D], tl.float32)
    dK2 = tl.zeros([BLOCK_J, BLOCK_E], tl.float32)
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    K_je = tl.load(
        K_ptr + j[:, None] * stride_K_j + e[None, :] * stride_K_e,
        mask=(j[:, None] < N) & e_in[None, :],
        other=0.0
    )  # S27
    V_jd = tl.load(
        V_ptr + j[:, None] * stride_V_j + d[None, :] * stride_V_d,
        mask=(j[:, None] < N) & d_in[None, :],
        other=0.0
    )  # S30
    K2_je = tl.load(
        K2_ptr + j[:, None] * stride_K2_j + e[None, :] * stride_K2_e,
        mask=(j[:, None] < N) & e_in[None, :],
        other=0.0
    )  # S33
    # What is read as it would be in a block that begins at 0.
    i_at = tl.arange(0, BLOCK_I).to(INDEX)
    Q_at = Q_ptr + i_at[:, None] * stride_Q_i + e[None, :] * stride_Q_e
    lse_at = lse_ptr + i_at * stride_lse_i
    dO_at = dO_ptr + i_at[:, None] * stride_dO_i + d[None, :] * stride_dO_d
    dl_sum_at = dl_sum_ptr + i_at * stride_dl_sum_i
    Q2_at = Q2_ptr + i_at[:, None] * stride_Q2_i + e[None, :] * stride_Q2_e
    lse_2_at = lse_2_ptr + i_at * stride_lse_2_i
    dl2_sum_at = dl2_sum_ptr + i_at * stride_dl2_sum_i
    # Full blocks.
    for i_from in range(0, tl.cast(i_full, tl.int64), BLOCK_I):
        i_first = tl.cast(i_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        Q_ie = tl.load(Q_at + i_first * stride_Q_i, mask=e_in[None, :], other=0.0)  # S27
        S_sum_3 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S27
        lse_i = tl.load(lse_at + i_first * stride_lse_i)  # S29
        P_4 = tl.exp2(
            S_sum_3 * S_3_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S28, S29
        dO_id = tl.load(dO_at + i_first * stride_dO_i, mask=d_in[None, :], other=0.0)  # S30
        dP_2_sum_3 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S30
        dl_sum_i = tl.load(dl_sum_at + i_first * stride_dl_sum_i)  # S31
        dS_2 = P_4 * (dP_2_sum_3 - dl_sum_i.to(tl.float32)[None, :])  # S31
        Q2_ie = tl.load(Q2_at + i_first * stride_Q2_i, mask=e_in[None, :], other=0.0)  # S33
        S2_sum_3 = tl.dot(K2_je, tl.trans(Q2_ie), input_precision="ieee")  # S33
        lse_2_i = tl.load(lse_2_at + i_first * stride_lse_2_i)  # S35
        P_2_3 = tl.exp2(
            S2_sum_3 * S_3_scale - (lse_2_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S34, S35
        dP_2_3 = -(lam * dP_2_sum_3)  # S36
        dl2_sum_i = tl.load(dl2_sum_at + i_first * stride_dl2_sum_i)  # S37
        dS2_2 = P_2_3 * (dP_2_3 - dl2_sum_i.to(tl.float32)[None, :])  # S37
        dK = tl.dot(dS_2.to(Q_ptr.dtype.element_ty), Q_ie, dK, input_precision="ieee")  # S39
        dV = tl.dot(
            (P_4 - P_2_3 * lam).to(dO_ptr.dtype.element_ty), dO_id, dV, input_precision="ieee"
        )  # S40
        dK2 = tl.dot(dS2_2.to(Q2_ptr.dtype.element_ty), Q2_ie, dK2, input_precision="ieee")  # S41
    # The last, partial block.
    for i_from in range(tl.cast(i_full, tl.int64), tl.cast(M, tl.int64), BLOCK_I):
        i_first = tl.cast(i_from, INDEX)  # counted in 64 bits, or ptxas lets each product wait
        i = i_first + tl.arange(0, BLOCK_I)
        Q_ie = tl.load(
            Q_at + i_first * stride_Q_i, mask=(i[:, None] < M) & e_in[None, :], other=0.0
        )  # S27
        S_sum_3 = tl.dot(K_je, tl.trans(Q_ie), input_precision="ieee")  # S27
        lse_i = tl.load(lse_at + i_first * stride_lse_i, mask=i < M, other=0.0)  # S29
        P_4 = tl.exp2(
            S_sum_3 * S_3_scale - (lse_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S28, S29
        dO_id = tl.load(
            dO_at + i_first * stride_dO_i, mask=(i[:, None] < M) & d_in[None, :], other=0.0
        )  # S30
        dP_2_sum_3 = tl.dot(V_jd, tl.trans(dO_id), input_precision="ieee")  # S30
        dl_sum_i = tl.load(dl_sum_at + i_first * stride_dl_sum_i, mask=i < M, other=0.0)  # S31
        dS_2 = P_4 * (dP_2_sum_3 - dl_sum_i.to(tl.float32)[None, :])  # S31
        Q2_ie = tl.load(
            Q2_at + i_first * stride_Q2_i, mask=(i[:, None] < M) & e_in[None, :], other=0.0
        )  # S33
        S2_sum_3 = tl.dot(K2_je, tl.trans(Q2_ie), input_precision="ieee")  # S33
        lse_2_i = tl.load(lse_2_at + i_first * stride_lse_2_i, mask=i < M, other=0.0)  # S35
        P_2_3 = tl.exp2(
            S2_sum_3 * S_3_scale - (lse_2_i.to(tl.float32) * 1.4426950408889634)[None, :]
        )  # S34, S35
        dP_2_3 = -(lam * dP_2_sum_3)  # S36
        dl2_sum_i = tl.load(dl2_sum_at + i_first * stride_dl2_sum_i, mask=i < M, other=0.0)  # S37
        dS2_2 = P_2_3 * (dP_2_3 - dl2_sum_i.to(tl.float32)[None, :])  # S37
        dK = tl.dot(
            tl.where(i[None, :] < M, dS_2, 0.0).to(Q_ptr.dtype.element_ty),
            Q_ie,
            dK,
            input_precision="ieee"
        )  # S39
        dV = tl.dot(
            tl.where(i[None, :] < M, P_4 - P_2_3 * lam, 0.0).to(dO_ptr.dtype.element_ty),
            dO_id,
            dV,
            input_precision="ieee"
        )  # S40
        dK2 = tl.dot(
            tl.where(i[None, :] < M, dS2_2, 0.0).to(Q2_ptr.dtype.element_ty),
            Q2_ie,
            dK2,
            input_precision="ieee"
        )  # S41
    dK = dK * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S32, S39
    dK2 = dK2 * (1.0 / tl.sqrt_rn(tl.cast(E, tl.float32)))  # S38, S41
    if dK_ptr is not None:
        tl.store(
            dK_ptr + j[:, None] * stride_dK_j + e[None, :] * stride_dK_e,
            dK,
            mask=(j[:, None] < N) & e_in[None, :]
        )  # S39
    if dV_ptr is not None:
        tl.store(
            dV_ptr + j[:, None] * stride_dV_j + d[None, :] * stride_dV_d,
            dV,
            mask=(j[:, None] < N) & d_in[None, :]
        )  # S40
    if dK2_ptr is not None:
        tl.store(
            dK2_ptr + j[:, None] * stride_dK2_j + e[None, :] * stride_dK2_e,
            dK2,
            mask=(j[:, None] < N) & e_in[None, :]
        )  # S41


def attention_differential_backward_dK_dV_dK2_kernel_config(
    BLOCK_J, BLOCK_I, num_warps, num_stages
):
    blocks = {"BLOCK_J": BLOCK_J, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


def attention_differential_backward_dK_dV_dK2_kernel_footprint(
    width, /, num_stages, BLOCK_J, BLOCK_E, BLOCK_D, BLOCK_I, **_
):
    """Return the bytes of shared memory and the numbers in registers of a program."""
    shared = width * (
        2 * BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D
    ) + num_stages * width * (2 * BLOCK_I * BLOCK_E + BLOCK_I * BLOCK_D)
    held = 2 * BLOCK_J * BLOCK_E + BLOCK_J * BLOCK_D + 3 * BLOCK_J * BLOCK_I
    return shared, held


# Used where nothing is timed, by the bytes of an element.
attention_differential_backward_dK_dV_dK2_kernel_default = {
    2: attention_differential_backward_dK_dV_dK2_kernel_config(64, 16, 8, 3),
    4: attention_differential_backward_dK_dV_dK2_kernel_config(32, 32, 8, 1),
}

# The fastest of these that fit is used on a GPU, found once for like sizes, and kept.
attention_differential_backward_dK_dV_dK2_kernel_tuned = {
    2: _Tuned(
        attention_differential_backward_dK_dV_dK2_kernel,
        [
            attention_differential_backward_dK_dV_dK2_kernel_config(*row)
            for row in [
                (64, 16, 8, 3), (128, 32, 8, 2), (128, 32, 8, 3), (128, 64, 8, 2), (128, 64, 8, 3),
                (128, 128, 8, 2), (128, 128, 8, 3), (64, 32, 4, 2), (64, 32, 4, 3), (64, 64, 4, 2),
                (64, 64, 4, 3), (64, 128, 4, 2), (64, 128, 4, 3), (128, 32, 4, 2), (128, 32, 4, 3),
                (128, 64, 4, 2), (128, 64, 4, 3), (128, 128, 4, 2), (128, 128, 4, 3),
                (64, 32, 8, 2), (64, 32, 8, 3), (64, 64, 8, 2), (64, 64, 8, 3), (64, 128, 8, 2),
                (64, 128, 8, 3),
            ]
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_differential_backward_dK_dV_dK2_kernel_footprint, 2),
    ),
    4: _Tuned(
        attention_differential_backward_dK_dV_dK2_kernel,
        [
            attention_differential_backward_dK_dV_dK2_kernel_config(
                BLOCK_J, BLOCK_I, num_warps, num_stages
            )
            for (BLOCK_J, num_warps), BLOCK_I, num_stages in itertools.product(
                ((32, 8), (32, 4), (64, 8)), (32, 16, 64), (1, 2)
            )
        ],
        key=["H", "M", "N", "E", "D"],
        fitting=_fitting(attention_differential_backward_dK_dV_dK2_kernel_footprint, 4),
    ),
}


@triton.jit
def attention_differential_backward_dlam_part1_kernel(
    dlam_part1_ptr, dlam_part_ptr,
    stride_dlam_part1_0,
    stride_dlam_part_b, stride_dlam_part_h, stride_dlam_part_i,
    H, M,
    INDEX: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_I: tl.constexpr,
):
    """A program does BLOCK_H iterations of h, for one b.

    Reads dlam_part (B, H, M).
    Writes dlam_part1 (B * H,).
    """
    pid = tl.program_id(0).to(INDEX)
    blocks_h = tl.cdiv(H, BLOCK_H)
    b = pid // blocks_h
    h = (pid % blocks_h) * BLOCK_H + tl.arange(0, BLOCK_H)
    # What is the same throughout the program goes into the pointers.
    dlam_part_ptr += b * stride_dlam_part_b

    dlam_part1 = tl.zeros([BLOCK_H], tl.float32)
    i_full = M // BLOCK_I * BLOCK_I  # blocks before this one are full
    # Full blocks.
    for i_first in range(0, i_full, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dlam_part_hi = tl.load(
            dlam_part_ptr + h[:, None] * stride_dlam_part_h + i[None, :] * stride_dlam_part_i,
            mask=h[:, None] < H,
            other=0.0
        )  # S42
        dlam_part1 = dlam_part1 + tl.sum(dlam_part_hi.to(tl.float32), axis=1)  # S42
    # The last, partial block.
    for i_first in range(i_full, M, BLOCK_I):
        i = (i_first + tl.arange(0, BLOCK_I)).to(INDEX)
        dlam_part_hi = tl.load(
            dlam_part_ptr + h[:, None] * stride_dlam_part_h + i[None, :] * stride_dlam_part_i,
            mask=(h[:, None] < H) & (i[None, :] < M),
            other=0.0
        )  # S42
        dlam_part1 = dlam_part1 + tl.sum(dlam_part_hi.to(tl.float32), axis=1)  # S42
    tl.store(dlam_part1_ptr + (b * H + h) * stride_dlam_part1_0, dlam_part1, mask=h < H)  # S42


def attention_differential_backward_dlam_part1_kernel_config(
    BLOCK_H, BLOCK_I, num_warps, num_stages
):
    blocks = {"BLOCK_H": BLOCK_H, "BLOCK_I": BLOCK_I}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_differential_backward_dlam_part1_kernel_default = (
    attention_differential_backward_dlam_part1_kernel_config(4, 512, 4, 2)
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_differential_backward_dlam_part1_kernel_tuned = _Tuned(
    attention_differential_backward_dlam_part1_kernel,
    [
        attention_differential_backward_dlam_part1_kernel_config(*row)
        for row in itertools.product((1, 4, 16), (128, 512, 1024), (4, 8), (2,))
    ],
    key=["H", "M"],
)


@triton.jit
def attention_differential_backward_dlam_kernel(
    dlam_part1_ptr, dlam_ptr,
    stride_dlam_part1_n,
    B, H,
    INDEX: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """A program does everything.

    Reads dlam_part1 (B * H,).
    Writes dlam (a number).
    """
    dlam = tl.full([], 0.0, tl.float32)  # S1
    n_stop = B * H
    n_full = tl.maximum(n_stop, 0) // BLOCK_N * BLOCK_N  # blocks before this one are full
    # Full blocks.
    for n_first in range(0, n_full, BLOCK_N):
        n = (n_first + tl.arange(0, BLOCK_N)).to(INDEX)
        dlam_part1_n = tl.load(dlam_part1_ptr + n * stride_dlam_part1_n)  # S43
        dlam = dlam + tl.sum(dlam_part1_n.to(tl.float32), axis=0)  # S43
    # The last, partial block.
    for n_first in range(n_full, n_stop, BLOCK_N):
        n = (n_first + tl.arange(0, BLOCK_N)).to(INDEX)
        dlam_part1_n = tl.load(
            dlam_part1_ptr + n * stride_dlam_part1_n, mask=n < n_stop, other=0.0
        )  # S43
        dlam = dlam + tl.sum(dlam_part1_n.to(tl.float32), axis=0)  # S43
    tl.store(dlam_ptr, dlam)  # S43


def attention_differential_backward_dlam_kernel_config(BLOCK_N, num_warps, num_stages):
    blocks = {"BLOCK_N": BLOCK_N}
    return _Timed(blocks, num_warps=num_warps, num_stages=num_stages)


# Used where nothing is timed.
attention_differential_backward_dlam_kernel_default = (
    attention_differential_backward_dlam_kernel_config(512, 4, 2)
)

# The fastest of these is used on a GPU, found once for like sizes, and kept.
attention_differential_backward_dlam_kernel_tuned = _Tuned(
    attention_differential_backward_dlam_kernel,
    [
        attention_differential_backward_dlam_kernel_config(*row)
        for row in itertools.product((128, 512, 1024), (4, 8), (2,))
    ],
    key=["B", "H"],
)


# Whether kernels run in Triton's interpreter (TRITON_INTERPRET=1), which needs no GPU.
_INTERPRETED = not isinstance(attention_differential_kernel, triton.JITFunction)
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


def attention_differential_forward(Q, K, V, Q2, K2, lam, *, tune=True):
    """Run attention_differential, and return what its gradients need besides.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        Q2: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K2: (B, H, N, E), float16, bfloat16 or float32, any strides.
        lam: A real number.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (B, H, M, D), lse (B, H, M) in float32, lse_2 (B, H, M) in float32, O2 (B, H, M, D) in
        float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 4, _FLOAT), ("K", K, 4, _FLOAT), ("V", V, 4, _FLOAT), ("Q2", Q2, 4, _FLOAT),
        ("K2", K2, 4, _FLOAT)
    )
    lam = _real("lam", lam)
    B, H, M, E = Q.shape
    N = K.shape[2]
    D = V.shape[3]
    _check_shape(
        "K", K, (B, H, N, E), "(B, H, N, E) with B = Q.shape[0], H = Q.shape[1] and E = Q.shape[3]"
    )
    _check_shape(
        "V", V, (B, H, N, D), "(B, H, N, D) with B = Q.shape[0], H = Q.shape[1] and N = K.shape[2]"
    )
    _check_shape(
        "Q2",
        Q2,
        (B, H, M, E),
        "(B, H, M, E) with B = Q.shape[0], H = Q.shape[1], M = Q.shape[2] and E = Q.shape[3]"
    )
    _check_shape(
        "K2",
        K2,
        (B, H, N, E),
        "(B, H, N, E) with B = Q.shape[0], H = Q.shape[1], N = K.shape[2] and E = Q.shape[3]"
    )
    lse = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    lse_2 = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    O = torch.empty((B, H, M, D), dtype=Q.dtype, device=Q.device)
    O2 = torch.empty((B, H, M, D), dtype=torch.float32, device=Q.device)
    index = _index_type(Q, K, V, Q2, K2, lse, lse_2, O, O2)
    width = Q.element_size()

    lanes = {
        "BLOCK_D": max(16, triton.next_power_of_2(D)), "BLOCK_E": max(16, triton.next_power_of_2(E))
    }
    if _INTERPRETED or not tune:
        run = attention_differential_kernel
        blocks = _fitted(
            attention_differential_kernel_default[width],
            attention_differential_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_differential_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, Q2, K2, lse, lse_2, O, O2,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *Q2.stride(),
                *K2.stride(),
                *lse.stride(),
                *lse_2.stride(),
                *O.stride(),
                *O2.stride(),
                lam,
                H, M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )
    return O, lse, lse_2, O2


def attention_differential_backward(
    Q, K, V, Q2, K2, lam, lse, lse_2, O2, dO, *, wanted=None, tune=True
):
    """Return the gradients of attention_differential.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        Q2: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K2: (B, H, N, E), float16, bfloat16 or float32, any strides.
        lam: A real number.
        lse: (B, H, M), float32, any strides.
        lse_2: (B, H, M), float32, any strides.
        O2: (B, H, M, D), float32, any strides.
        dO: (B, H, M, D), float16, bfloat16 or float32, any strides.
        wanted: The names of the gradients that are asked for; all by default. The others are
            None, and cost nothing.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        dQ (B, H, M, E), dK (B, H, N, E), dV (B, H, N, D), dQ2 (B, H, M, E), dK2 (B, H, N, E), dlam
        (a number) in float32.

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    _check_tensors(
        ("Q", Q, 4, _FLOAT), ("K", K, 4, _FLOAT), ("V", V, 4, _FLOAT), ("Q2", Q2, 4, _FLOAT),
        ("K2", K2, 4, _FLOAT), ("lse", lse, 3, (torch.float32,)),
        ("lse_2", lse_2, 3, (torch.float32,)), ("O2", O2, 4, (torch.float32,)),
        ("dO", dO, 4, _FLOAT)
    )
    lam = _real("lam", lam)
    B, H, M, E = Q.shape
    N = K.shape[2]
    D = V.shape[3]
    _check_shape(
        "K", K, (B, H, N, E), "(B, H, N, E) with B = Q.shape[0], H = Q.shape[1] and E = Q.shape[3]"
    )
    _check_shape(
        "V", V, (B, H, N, D), "(B, H, N, D) with B = Q.shape[0], H = Q.shape[1] and N = K.shape[2]"
    )
    _check_shape(
        "Q2",
        Q2,
        (B, H, M, E),
        "(B, H, M, E) with B = Q.shape[0], H = Q.shape[1], M = Q.shape[2] and E = Q.shape[3]"
    )
    _check_shape(
        "K2",
        K2,
        (B, H, N, E),
        "(B, H, N, E) with B = Q.shape[0], H = Q.shape[1], N = K.shape[2] and E = Q.shape[3]"
    )
    _check_shape(
        "lse", lse, (B, H, M), "(B, H, M) with B = Q.shape[0], H = Q.shape[1] and M = Q.shape[2]"
    )
    _check_shape(
        "lse_2",
        lse_2,
        (B, H, M),
        "(B, H, M) with B = Q.shape[0], H = Q.shape[1] and M = Q.shape[2]"
    )
    _check_shape(
        "O2",
        O2,
        (B, H, M, D),
        "(B, H, M, D) with B = Q.shape[0], H = Q.shape[1], M = Q.shape[2] and D = V.shape[3]"
    )
    _check_shape(
        "dO",
        dO,
        (B, H, M, D),
        "(B, H, M, D) with B = Q.shape[0], H = Q.shape[1], M = Q.shape[2] and D = V.shape[3]"
    )
    wanted = _wanted(wanted, ("dQ", "dK", "dV", "dQ2", "dK2", "dlam"))
    dlam_part1 = None
    if "dlam" in wanted:
        dlam_part1 = torch.empty((B * H,), dtype=torch.float32, device=Q.device)
    dl_sum = None
    if wanted & {"dQ", "dK", "dV", "dQ2", "dK2"}:
        dl_sum = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    dl2_sum = None
    if wanted & {"dQ", "dK", "dV", "dQ2", "dK2"}:
        dl2_sum = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    dlam_part = None
    if "dlam" in wanted:
        dlam_part = torch.empty((B, H, M), dtype=torch.float32, device=Q.device)
    dQ = None
    if "dQ" in wanted:
        dQ = torch.empty((B, H, M, E), dtype=Q.dtype, device=Q.device)
    dK = None
    if "dK" in wanted:
        dK = torch.empty((B, H, N, E), dtype=Q.dtype, device=Q.device)
    dV = None
    if "dV" in wanted:
        dV = torch.empty((B, H, N, D), dtype=Q.dtype, device=Q.device)
    dQ2 = None
    if "dQ2" in wanted:
        dQ2 = torch.empty((B, H, M, E), dtype=Q.dtype, device=Q.device)
    dK2 = None
    if "dK2" in wanted:
        dK2 = torch.empty((B, H, N, E), dtype=Q.dtype, device=Q.device)
    dlam = None
    if "dlam" in wanted:
        dlam = torch.empty((), dtype=torch.float32, device=Q.device)
    index = _index_type(
        *_given(
            Q,
            K,
            V,
            Q2,
            K2,
            lse,
            lse_2,
            O2,
            dO,
            dlam_part1,
            dl_sum,
            dl2_sum,
            dlam_part,
            dQ,
            dK,
            dV,
            dQ2,
            dK2,
            dlam
        )
    )
    width = Q.element_size()

    lanes = {
        "BLOCK_D": max(16, triton.next_power_of_2(D)), "BLOCK_E": max(16, triton.next_power_of_2(E))
    }
    if _INTERPRETED or not tune:
        run = attention_differential_backward_dl_sum_dl2_sum_kernel
        blocks = _fitted(
            attention_differential_backward_dl_sum_dl2_sum_kernel_default[width],
            attention_differential_backward_dl_sum_dl2_sum_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_differential_backward_dl_sum_dl2_sum_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0 and wanted & {"dQ", "dK", "dV", "dQ2", "dK2"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, Q2, K2, lse, lse_2, dO, dl_sum, dl2_sum,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *Q2.stride(),
                *K2.stride(),
                *lse.stride(),
                *lse_2.stride(),
                *dO.stride(),
                *dl_sum.stride(),
                *dl2_sum.stride(),
                lam,
                H, M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = attention_differential_backward_dlam_part_kernel
        blocks = attention_differential_backward_dlam_part_kernel_default.all_kwargs()
    else:
        run = attention_differential_backward_dlam_part_kernel_tuned
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0 and "dlam" in wanted:
        with torch.cuda.device_of(Q):
            run[grid](
                O2, dO, dlam_part,
                *O2.stride(),
                *dO.stride(),
                *dlam_part.stride(),
                H, M, D,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    lanes = {
        "BLOCK_E": max(16, triton.next_power_of_2(E)), "BLOCK_D": max(16, triton.next_power_of_2(D))
    }
    if _INTERPRETED or not tune:
        run = attention_differential_backward_dQ_dQ2_kernel
        blocks = _fitted(
            attention_differential_backward_dQ_dQ2_kernel_default[width],
            attention_differential_backward_dQ_dQ2_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_differential_backward_dQ_dQ2_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(M, meta["BLOCK_I"]),)

    if min(B, H, M) > 0 and wanted & {"dQ", "dQ2"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, Q2, K2, lse, lse_2, dO, dl_sum, dl2_sum, dQ, dQ2,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *Q2.stride(),
                *K2.stride(),
                *lse.stride(),
                *lse_2.stride(),
                *dO.stride(),
                *dl_sum.stride(),
                *dl2_sum.stride(),
                *_strides(dQ, 0, 1, 2, 3),
                *_strides(dQ2, 0, 1, 2, 3),
                lam,
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
        run = attention_differential_backward_dK_dV_dK2_kernel
        blocks = _fitted(
            attention_differential_backward_dK_dV_dK2_kernel_default[width],
            attention_differential_backward_dK_dV_dK2_kernel_footprint,
            width,
            lanes,
            Q.device.index
        ).all_kwargs()
    else:
        run = attention_differential_backward_dK_dV_dK2_kernel_tuned[width]
        blocks = {}

    def grid(meta):
        return (B * H * triton.cdiv(N, meta["BLOCK_J"]),)

    if min(B, H, N) > 0 and wanted & {"dK", "dV", "dK2"}:
        with torch.cuda.device_of(Q):
            run[grid](
                Q, K, V, Q2, K2, lse, lse_2, dO, dl_sum, dl2_sum, dK, dV, dK2,
                *Q.stride(),
                *K.stride(),
                *V.stride(),
                *Q2.stride(),
                *K2.stride(),
                *lse.stride(),
                *lse_2.stride(),
                *dO.stride(),
                *dl_sum.stride(),
                *dl2_sum.stride(),
                *_strides(dK, 0, 1, 2, 3),
                *_strides(dV, 0, 1, 2, 3),
                *_strides(dK2, 0, 1, 2, 3),
                lam,
                H, M, N,
                E=E, D=D,
                INDEX=index,
                **lanes,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = attention_differential_backward_dlam_part1_kernel
        blocks = attention_differential_backward_dlam_part1_kernel_default.all_kwargs()
    else:
        run = attention_differential_backward_dlam_part1_kernel_tuned
        blocks = {}

    def grid(meta):
        return (B * triton.cdiv(H, meta["BLOCK_H"]),)

    if min(B, H) > 0 and "dlam" in wanted:
        with torch.cuda.device_of(Q):
            run[grid](
                dlam_part1, dlam_part,
                *dlam_part1.stride(),
                *dlam_part.stride(),
                H, M,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )

    if _INTERPRETED or not tune:
        run = attention_differential_backward_dlam_kernel
        blocks = attention_differential_backward_dlam_kernel_default.all_kwargs()
    else:
        run = attention_differential_backward_dlam_kernel_tuned
        blocks = {}
    if "dlam" in wanted:
        with torch.cuda.device_of(Q):
            run[(1,)](
                dlam_part1, dlam,
                *dlam_part1.stride(),
                B, H,
                INDEX=index,
                **blocks, enable_fp_fusion=True,
            )
    return dQ, dK, dV, dQ2, dK2, dlam


@torch.library.custom_op(_free("attention_differential_forward_fc3fafc0"), mutates_args=())
def _attention_differential_forward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, Q2: torch.Tensor, K2: torch.Tensor,
    lam: float, lam_tensor: torch.Tensor | None, tune: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return attention_differential_forward(Q, K, V, Q2, K2, lam, tune=tune)


@_attention_differential_forward_operator.register_fake
def _(Q, K, V, Q2, K2, lam, lam_tensor, tune):
    B = Q.shape[0]
    H = Q.shape[1]
    M = Q.shape[2]
    D = V.shape[3]
    return (
        torch.empty((B, H, M, D), dtype=Q.dtype, device=Q.device),
        torch.empty((B, H, M), dtype=torch.float32, device=Q.device),
        torch.empty((B, H, M), dtype=torch.float32, device=Q.device),
        torch.empty((B, H, M, D), dtype=torch.float32, device=Q.device),
    )


@torch.library.custom_op(_free("attention_differential_backward_fc3fafc0"), mutates_args=())
def _attention_differential_backward_operator(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, Q2: torch.Tensor, K2: torch.Tensor,
    lam: float, lse: torch.Tensor, lse_2: torch.Tensor, O2: torch.Tensor, dO: torch.Tensor,
    wanted: list[bool], tune: bool
) -> list[torch.Tensor]:
    found = attention_differential_backward(
        Q,
        K,
        V,
        Q2,
        K2,
        lam,
        lse,
        lse_2,
        O2,
        dO,
        wanted=[
            name
            for name, each in zip(("dQ", "dK", "dV", "dQ2", "dK2", "dlam"), wanted)
            if each
        ],
        tune=tune
    )
    return [gradient for gradient in found if gradient is not None]


@_attention_differential_backward_operator.register_fake
def _(Q, K, V, Q2, K2, lam, lse, lse_2, O2, dO, wanted, tune):
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
        torch.empty((B, H, M, E), dtype=Q.dtype, device=Q.device),
        torch.empty((B, H, N, E), dtype=Q.dtype, device=Q.device),
        torch.empty((), dtype=torch.float32, device=Q.device),
    )
    return [gradient for gradient, each in zip(found, wanted) if each]


def _attention_differential_keep(ctx, inputs, output):
    """Save what the gradients are worked out from."""
    Q, K, V, Q2, K2, lam, lam_tensor, tune = inputs
    O, lse, lse_2, O2 = output
    ctx.save_for_backward(Q, K, V, Q2, K2, lse, lse_2, O2, lam_tensor)
    ctx.numbers = lam, tune
    ctx.like = (_like(O),)
    ctx.mark_non_differentiable(lse, lse_2, O2)
    ctx.set_materialize_grads(False)


def _attention_differential_gradients(ctx, *found):
    """Return a gradient for each argument, None where none is asked for."""
    dO, _, _, _ = found
    Q, K, V, Q2, K2, lse, lse_2, O2, lam_tensor = ctx.saved_tensors
    lam, tune = ctx.numbers
    (O_like,) = ctx.like
    if dO is None:
        dO = _zeros(*O_like)
    needed = ctx.needs_input_grad
    wanted = [needed[0], needed[1], needed[2], needed[3], needed[4], needed[6]]
    found = iter(
        _attention_differential_backward_operator(
            Q, K, V, Q2, K2, lam, lse, lse_2, O2, dO, wanted, tune
        )
    )
    dQ, dK, dV, dQ2, dK2, dlam = (next(found) if each else None for each in wanted)
    if dlam is not None:
        dlam = dlam.to(lam_tensor).reshape(lam_tensor.shape)
    return dQ, dK, dV, dQ2, dK2, None, dlam, None


def _attention_differential_second(ctx, *found):
    raise RuntimeError(
        "attention_differential has no second derivative: its backward pass is derived once. "
        "Call backward without create_graph=True"
    )


_attention_differential_forward_operator.register_autograd(
    _attention_differential_gradients, setup_context=_attention_differential_keep
)
_attention_differential_backward_operator.register_autograd(_attention_differential_second)


def attention_differential(Q, K, V, Q2, K2, lam, *, tune=True):
    """Differential softmax attention for a batch of heads. Differentiable: gradients come from
    attention_differential_backward.

    Args:
        Q: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K: (B, H, N, E), float16, bfloat16 or float32, any strides.
        V: (B, H, N, D), float16, bfloat16 or float32, any strides.
        Q2: (B, H, M, E), float16, bfloat16 or float32, any strides.
        K2: (B, H, N, E), float16, bfloat16 or float32, any strides.
        lam: A real number.
        tune: Whether a GPU tries several block sizes; else the default.

    Returns:
        O (B, H, M, D).

    Raises:
        ValueError: An argument does not fit; the message says which and how.
    """
    O, _, _, _ = _attention_differential_forward_operator(
        Q, K, V, Q2, K2, _number("lam", lam), _handle(lam), tune
    )
    return O
