def attention_sinks(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"], window_left: int, sinks: Float[Array, "H"]):
    """Softmax attention for a batch of heads.

        S[b, h, i, j] = (Q[b, h, i] . K[b, h, j]) * (1.0 / sqrt(E))
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[b, h, j]
        lse[b, h, i] = log(sum_j exp(S[b, h, i, j]))

    Q is (B, H, M, E), K is (B, H, N, E), V is (B, H, N, D); the results are O (B, H, M, D) and lse
    (B, H, M).

    Of the keys before the one query i is level with, window_left are seen. Query i sees no key
    behind key i. The sink is a score without a value: it takes a share of the weights, so that
    those of the keys add up to less than 1.
    """
    S = zeros((B, H, M, N))
    O = zeros((B, H, M, D))
    lse = full((B, H, M), -inf, dtype=float32)
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                m = sinks[h]  # S1: the sink is there from the start
                for j in range(max(0, i - window_left), min(N, i + 1)):
                    S[b, h, i, j] = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) * (1.0 / sqrt(E))  # S2: the scaled score
                    m = max(m, S[b, h, i, j])  # S3: Aggregation over j
                l = exp(sinks[h] - m)  # S4: the share of the sink
                for j in range(max(0, i - window_left), min(N, i + 1)):
                    l = l + exp(S[b, h, i, j] - m)  # S5: Aggregation over j
                for j in range(max(0, i - window_left), min(N, i + 1)):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m) / l * V[b, h, j, d]  # S6: the weighted mean of the rows of V
                lse[b, h, i] = m + log(l)  # S7: the log-sum-exp of row i
    return O, lse
