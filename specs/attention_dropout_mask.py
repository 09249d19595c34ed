def attention_dropout_mask(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], keep: Bool[Array, "B H M N"], scale: float, p: float):
    """Attention whose weights are dropped where a given mask says so, and the others make up for it.

        P[b, h, i, j] = softmax_j(scale * Q[b, h, i] . K[b, h, j])
        O[b, h, i] = sum_j P[b, h, i, j] / (1 - p) * V[b, h, j]    where keep[b, h, i, j]

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D), keep is (B, H, M, N) and true for the share
    1 - p of the weights, scale and p are real numbers, and the result O is (B, H, M, D).

    Look at S4: what is dropped is dropped behind the softmax, so the sum l is that of all weights. A
    mask that was drawn elsewhere makes a run that can be held against another implementation.
    """
    S = zeros((B, H, M, N))
    m = full((B, H, M), -inf)
    l = zeros((B, H, M))
    O = zeros((B, H, M, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, N):
                    S[b, h, i, j] = scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S1: the scores of row i
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, N):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, N):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + (exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] / (1.0 - p) if keep[b, h, i, j] else 0.0) * V[b, h, j, d]  # S4: what is kept of the weighted mean
    return O
