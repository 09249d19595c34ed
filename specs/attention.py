def attention(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"]):
    """Softmax attention for a batch of heads, with the log-sum-exp of each row as a second result.

        S[b, h, i, j] = Q[b, h, i] . K[b, h, j] / sqrt(E)
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[b, h, j]
        lse[b, h, i] = log(sum_j exp(S[b, h, i, j]))

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D); the results are O (B, H, M, D) and lse
    (B, H, M). D need not be E. Without keys, N = 0, a row has O = 0 and lse = -inf.

    Look at lse: it needs m and l after the last key only, so it costs nothing in the loop over j,
    and with it the softmax of any single score can be had again later.
    """
    S = zeros((B, H, M, N))
    O = zeros((B, H, M, D))
    lse = zeros((B, H, M), dtype=float32)
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                m = -inf  # S1: the maximum of nothing
                l = 0.0  # S2: an empty sum
                for j in range(0, N):
                    S[b, h, i, j] = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) * (1.0 / sqrt(E))  # S3: the scaled scores of row i
                    m = max(m, S[b, h, i, j])  # S4: Aggregation over j
                for j in range(0, N):
                    l = l + exp(S[b, h, i, j] - m)  # S5: Aggregation over j
                for j in range(0, N):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m) / l * V[b, h, j, d]  # S6: the weighted mean of the rows of V
                lse[b, h, i] = m + log(l)  # S7: the log-sum-exp of row i
    return O, lse
