def attention_differential(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], Q2: Float[Array, "B H M E"], K2: Float[Array, "B H N E"], lam: float):
    """Differential softmax attention for a batch of heads.

        S[b, h, i, j] = (Q[b, h, i] . K[b, h, j]) * (1.0 / sqrt(E))
        S2[b, h, i, j] = (Q2[b, h, i] . K2[b, h, j]) * (1.0 / sqrt(E))
        O[b, h, i] = sum_j (softmax_j(S[b, h, i, j]) - lam * softmax_j(S2[b, h, i, j])) * V[b, h, j]

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D), Q2 is (B, H, M, E), K2 is (B, H, N, E);
    the result is O (B, H, M, D).

    The weights of Q2 and K2, lam times, are taken off those of Q and K: what both give a key is
    noise.
    """
    S = zeros((B, H, M, N))
    S2 = zeros((B, H, M, N))
    O = zeros((B, H, M, D))
    O2 = zeros((B, H, M, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                m = -inf  # S1: the maximum of nothing
                m2 = -inf  # S2: the maximum of nothing
                for j in range(0, N):
                    S[b, h, i, j] = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) * (1.0 / sqrt(E))  # S3: the scaled score
                    m = max(m, S[b, h, i, j])  # S4: Aggregation over j
                    S2[b, h, i, j] = sum(Q2[b, h, i, e] * K2[b, h, j, e] for e in range(0, E)) * (1.0 / sqrt(E))  # S5: the scaled score
                    m2 = max(m2, S2[b, h, i, j])  # S6: Aggregation over j
                l = 0.0  # S7: an empty sum
                l2 = 0.0  # S8: an empty sum
                for j in range(0, N):
                    l = l + exp(S[b, h, i, j] - m)  # S9: Aggregation over j
                    l2 = l2 + exp(S2[b, h, i, j] - m2)  # S10: Aggregation over j
                for j in range(0, N):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m) / l * V[b, h, j, d]  # S11: the weighted mean of the rows of V
                        O2[b, h, i, d] = O2[b, h, i, d] + exp(S2[b, h, i, j] - m2) / l2 * V[b, h, j, d]  # S12: the weighted mean of the rows of V
                for d in range(0, D):
                    O[b, h, i, d] = O[b, h, i, d] - lam * O2[b, h, i, d]  # S13: the one less the other
    return O
