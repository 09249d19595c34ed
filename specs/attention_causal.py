def attention_causal(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], scale: float):
    """Causal attention, aligned at the top left: query i sees the keys 0 .. i, and no later one.

        S[b, h, i, j] = scale * Q[b, h, i] . K[b, h, j]  for j <= i, else -inf
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[b, h, j]

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D), scale is a real number, and the result O
    is (B, H, M, D). Where there are more queries than keys the last ones see all keys.

    Look at S1: the mask is a score of -inf, whose exponential is 0. That it may be left out of every
    sum has to be shown, and the keys right of the diagonal need not be visited at all.
    """
    S = zeros((B, H, M, N))
    m = full((B, H, M), -inf)
    l = zeros((B, H, M))
    O = zeros((B, H, M, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, N):
                    S[b, h, i, j] = scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) if j <= i else -inf  # S1: the scores of row i, masked
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, N):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, N):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] * V[b, h, j, d]  # S4: the weighted mean of the rows of V
    return O
