def attention_causal_bottom_right(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], scale: float):
    """Causal attention, aligned at the bottom right: the last query sees all keys.

        S[b, h, i, j] = scale * Q[b, h, i] . K[b, h, j]  for j <= i + N - M
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[b, h, j]
        lse[b, h, i] = log(sum_j exp(S[b, h, i, j]))

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D), scale is a real number; the results are
    O (B, H, M, D) and lse (B, H, M). This is how M new tokens attend to a cache of N.

    Look at the bound of j: it says what the mask says, so masked keys do not exist here. With more
    queries than keys the first M - N rows see no key: they have O = 0 and lse = -inf.
    """
    S = zeros((B, H, M, N))
    m = full((B, H, M), -inf)
    l = zeros((B, H, M))
    O = zeros((B, H, M, D))
    lse = zeros((B, H, M), dtype=float32)
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, min(N, i + N - M + 1)):
                    S[b, h, i, j] = scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S1: the scores of row i
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, min(N, i + N - M + 1)):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, min(N, i + N - M + 1)):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] * V[b, h, j, d]  # S4: the weighted mean of the rows of V
                lse[b, h, i] = m[b, h, i] + log(l[b, h, i])  # S5: the log-sum-exp of row i
    return O, lse
