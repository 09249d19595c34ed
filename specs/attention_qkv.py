def attention_qkv(QKV: Float[Array, "B N 3 H E"], scale: float):
    """Causal self-attention on queries, keys and values in one array, as one projection gives them.

        S[b, h, i, j] = scale * QKV[b, i, 0, h] . QKV[b, j, 1, h]                 for j <= i
        O[b, i, h] = sum_j softmax_j(S[b, h, i, j]) * QKV[b, j, 2, h]

    QKV is (B, N, 3, H, E): for each position the query, the key and the value of every head. scale is a
    real number, and the result O is (B, N, H, E), ready for the projection that follows.

    Look at the gradient of QKV: three sums, over keys for the queries and over queries for the keys
    and the values, each written into its own third of one array. Nothing is copied or put together.
    """
    S = zeros((B, H, N, N))
    m = full((B, H, N), -inf)
    l = zeros((B, H, N))
    O = zeros((B, N, H, E))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, N):
                for j in range(0, i + 1):
                    S[b, h, i, j] = scale * sum(QKV[b, i, 0, h, e] * QKV[b, j, 1, h, e] for e in range(0, E))  # S1: the scores of row i
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, i + 1):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, i + 1):
                    for e in range(0, E):
                        O[b, i, h, e] = O[b, i, h, e] + exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] * QKV[b, j, 2, h, e]  # S4: the weighted mean of the values
    return O
