def attention_sigmoid(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], bias: Float[Array, "H"]):
    """Sigmoid attention for a batch of heads.

        S[b, h, i, j] = (Q[b, h, i] . K[b, h, j]) * (1.0 / sqrt(E)) + bias[h]
        O[b, h, i] = sum_j sigmoid(S[b, h, i, j]) * V[b, h, j]

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D); the result is O (B, H, M, D).

    bias is (H): an access that does not mention a loop is the same for all its iterations, so
    nothing is copied, and its gradient is a sum over them. The logistic function of s is 0.5 + 0.5
    * tanh(0.5 * s), which overflows nowhere: every score has its weight alone, and one pass is
    enough.
    """
    O = zeros((B, H, M, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, N):
                    s = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) * (1.0 / sqrt(E))  # S1: the scaled score
                    biased = s + bias[h]  # S2: the bias
                    P = 0.5 + 0.5 * tanh(0.5 * biased)  # S3: its logistic function
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + P * V[b, h, j, d]  # S4: the weighted sum of the rows of V
    return O
