def attention_lengths(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], n_kv: Int[Array, "B", "0:N+1"], scale: float):
    """Attention over sequences of different lengths in one batch: batch b has n_kv[b] keys.

        S[b, h, i, j] = scale * Q[b, h, i] . K[b, h, j]  for j < n_kv[b]
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[b, h, j]
        lse[b, h, i] = log(sum_j exp(S[b, h, i, j]))

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D), n_kv holds B integers in 0 .. N, scale is
    a real number; the results are O (B, H, M, D) and lse (B, H, M). What K and V hold from n_kv[b] on
    is never read. A batch without keys has O = 0 and lse = -inf.

    Look at the bound n_kv[b]: it is read from memory, so nothing is known of it but its range, yet
    it stays the same while b does. The three loops over j are the same loop for that reason alone.
    """
    S = zeros((B, H, M, N))
    O = zeros((B, H, M, D))
    m = full((B, H, M), -inf)
    l = zeros((B, H, M))
    lse = zeros((B, H, M), dtype=float32)
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, n_kv[b]):
                    S[b, h, i, j] = scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S1: the scores of row i
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, n_kv[b]):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, n_kv[b]):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] * V[b, h, j, d]  # S4: the weighted mean of the rows of V
                lse[b, h, i] = m[b, h, i] + log(l[b, h, i])  # S5: the log-sum-exp of row i
    return O, lse
