def attention_dropout(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], scale: float, p: float, seed: int):
    """Causal attention in which each weight is dropped with probability p, and the others make up for it.

        P[b, h, i, j] = softmax_j(scale * Q[b, h, i] . K[b, h, j])                    for j <= i
        O[b, h, i] = sum_j P[b, h, i, j] / (1 - p) * V[b, h, j]    where uniform(seed, b * H + h, i, j) >= p

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D), scale and p are real numbers, seed is an
    integer, and the result O is (B, H, M, D). p = 0 is causal attention, p = 1 gives 0.

    Look at uniform: it is a function of the seed and of three counters (Philox4x32-10), so a number is
    drawn again wherever it is needed. The backward pass works the mask out a second time, bit for bit
    and whatever its blocks are, and nothing is kept of it. The sum l takes no part in the dropping.
    """
    S = zeros((B, H, M, N))
    m = full((B, H, M), -inf)
    l = zeros((B, H, M))
    O = zeros((B, H, M, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, min(N, i + 1)):
                    S[b, h, i, j] = scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S1: the scores of row i
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, min(N, i + 1)):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, min(N, i + 1)):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + (exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] / (1.0 - p) if uniform(seed, b * H + h, i, j) >= p else 0.0) * V[b, h, j, d]  # S4: what is kept of the weighted mean
    return O
