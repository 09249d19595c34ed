def attention_retention(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], rate: Float[Array, "H"]):
    """Retention for a batch of heads.

        S[b, h, i, j] = (Q[b, h, i] . K[b, h, j]) * (1.0 / sqrt(E))
        O[b, h, i] = sum_j decay * S[b, h, i, j] * V[b, h, j]

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D); the result is O (B, H, M, D).

    Query i sees no key behind key i. A weight is the score times exp(-rate) to the power of the
    distance: there is no softmax, and one pass is enough.
    """
    O = zeros((B, H, M, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, min(N, i + 1)):
                    s = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) * (1.0 / sqrt(E))  # S1: the scaled score
                    P = s * exp(-rate[h] * (i - j))  # S2: decayed with the distance
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + P * V[b, h, j, d]  # S3: the weighted sum of the rows of V
    return O
