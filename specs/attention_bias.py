def attention_bias(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], bias: Float[Array, "H M N"], scale: float):
    """Attention with a bias added to the scores, one for each head and the same for all batches.

        S[b, h, i, j] = scale * Q[b, h, i] . K[b, h, j] + bias[h, i, j]
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[b, h, j]

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D), bias is (H, M, N), scale is a real
    number, and the result O is (B, H, M, D). A bias of -inf masks a key.

    Look at the subscripts of bias: b is not among them. Broadcasting is an access that does not
    mention a loop, and nothing has to be copied for it.
    """
    S = zeros((B, H, M, N))
    m = full((B, H, M), -inf)
    l = zeros((B, H, M))
    O = zeros((B, H, M, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, N):
                    S[b, h, i, j] = scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) + bias[h, i, j]  # S1: the biased scores of row i
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, N):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, N):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] * V[b, h, j, d]  # S4: the weighted mean of the rows of V
    return O
