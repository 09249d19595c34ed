def attention_alibi(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], slopes: Float[Array, "H"]):
    """Softmax attention for a batch of heads.

        S[b, h, i, j] = (Q[b, h, i] . K[b, h, j]) * (1.0 / sqrt(E)) - slopes[h] * (i - j)
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[b, h, j]
        lse[b, h, i] = log(sum_j exp(S[b, h, i, j]))

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D); the results are O (B, H, M, D) and lse
    (B, H, M).

    The further away a key is, the less it counts: each step costs a slope. Query i sees no key
    behind key i.
    """
    S = zeros((B, H, M, N))
    O = zeros((B, H, M, D))
    lse = full((B, H, M), -inf, dtype=float32)
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                m = -inf  # S1: the maximum of nothing
                for j in range(0, min(N, i + 1)):
                    s = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) * (1.0 / sqrt(E))  # S2: the scaled score
                    S[b, h, i, j] = s - slopes[h] * (i - j)  # S3: the penalty of the distance
                    m = max(m, S[b, h, i, j])  # S4: Aggregation over j
                l = 0.0  # S5: an empty sum
                for j in range(0, min(N, i + 1)):
                    l = l + exp(S[b, h, i, j] - m)  # S6: Aggregation over j
                for j in range(0, min(N, i + 1)):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m) / l * V[b, h, j, d]  # S7: the weighted mean of the rows of V
                lse[b, h, i] = m + log(l)  # S8: the log-sum-exp of row i
    return O, lse
