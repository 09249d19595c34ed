def attention_gqa(Q: Float[Array, "B H M E"], K: Float[Array, "B G N E"], V: Float[Array, "B G N D"], scale: float):
    """Attention with grouped queries: R heads after each other share a head of keys and values.

        S[b, h, i, j] = scale * Q[b, h, i] . K[b, h // R, j]
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[b, h // R, j]

    Q is (B, H, M, E), K is (B, G, N, E), V is (B, G, N, D) with H = G * R, scale is a real number,
    and the result O is (B, H, M, D). R = 1 is ordinary attention, G = 1 one head for all queries.

    Look at h // R: the heads of a group read the same keys, so the loop over h is free as before,
    and running the heads of a group next to each other keeps their keys in cache.
    """
    assert H == G * R
    S = zeros((B, H, M, N))
    m = full((B, H, M), -inf)
    l = zeros((B, H, M))
    O = zeros((B, H, M, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, N):
                    S[b, h, i, j] = scale * sum(Q[b, h, i, e] * K[b, h // R, j, e] for e in range(0, E))  # S1: the scores of row i
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, N):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, N):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] * V[b, h // R, j, d]  # S4: the weighted mean of the rows of V
    return O
