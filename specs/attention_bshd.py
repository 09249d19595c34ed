def attention_bshd(Q: Float[Array, "B M H E"], K: Float[Array, "B N H E"], V: Float[Array, "B N H D"], scale: float):
    """Attention on arrays whose heads stand behind the positions: (batch, sequence, head, dimension).

        S[b, h, i, j] = scale * Q[b, i, h] . K[b, j, h]
        O[b, i, h] = sum_j softmax_j(S[b, h, i, j]) * V[b, j, h]

    Q is (B, M, H, E), K is (B, N, H, E), V is (B, N, H, D), scale is a real number, and the result O is
    (B, M, H, D).

    Look at the subscripts: only they say how the arrays lie. Each array has a stride of its own for
    every dimension, so views, slices and transposed tensors are taken as they are.
    """
    S = zeros((B, H, M, N))
    m = full((B, H, M), -inf)
    l = zeros((B, H, M))
    O = zeros((B, M, H, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, N):
                    S[b, h, i, j] = scale * sum(Q[b, i, h, e] * K[b, j, h, e] for e in range(0, E))  # S1: the scores of row i
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, N):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, N):
                    for d in range(0, D):
                        O[b, i, h, d] = O[b, i, h, d] + exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] * V[b, j, h, d]  # S4: the weighted mean of the rows of V
    return O
