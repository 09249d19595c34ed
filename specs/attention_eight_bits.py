def attention_eight_bits(Q: Float[Array, "B H M E"], K: Int8[Array, "B H N E"], K_scale: Float[Array, "B H N"], V: Int8[Array, "B H N D"], V_scale: Float[Array, "B H N"], scale: float):
    """Softmax attention whose keys and values are kept in eight bits, each row with a scale.

        S[b, h, i, j] = scale * K_scale[b, h, j] * Q[b, h, i] . K[b, h, j]
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V_scale[b, h, j] * V[b, h, j]
        lse[b, h, i] = log(sum_j exp(S[b, h, i, j]))

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D), K_scale and V_scale are (B, H, N), scale
    is a real number; the results are O (B, H, M, D) and lse (B, H, M). K and V are tensors of 8-bit
    integers; with Float8e4m3fn or Float8e5m2 they are of 8-bit floating-point numbers.

    Look at the products: an integer of eight bits is a number of bfloat16 and of float16, so matrix
    units multiply them as they are, and scales stand outside. Q and the scales have gradients.
    """
    S = zeros((B, H, M, N))
    O = zeros((B, H, M, D))
    lse = full((B, H, M), -inf, dtype=float32)
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                m = -inf  # S1: no key was seen
                l = 0.0  # S2: no weight was added
                for j in range(0, N):
                    S[b, h, i, j] = scale * K_scale[b, h, j] * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))  # S3: the score
                    m = max(m, S[b, h, i, j])  # S4: Aggregation over j
                for j in range(0, N):
                    l = l + exp(S[b, h, i, j] - m)  # S5: Aggregation over j
                for j in range(0, N):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m) / l * (V_scale[b, h, j] * V[b, h, j, d])  # S6: the weighted mean of the rows of V
                lse[b, h, i] = m + log(l)  # S7: the log-sum-exp of row i
    return O, lse
