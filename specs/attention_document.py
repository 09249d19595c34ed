def attention_document(Q: Float[Array, "B H M E"], K: Float[Array, "B H M E"], V: Float[Array, "B H M D"], doc: Int[Array, "B M", "0:M"], scale: float):
    """Causal attention within documents: row i sees the rows j <= i of its own document.

        S[b, h, i, j] = scale * Q[b, h, i] . K[b, h, j]  where j <= i and doc[b, i] == doc[b, j]
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[b, h, j]
        lse[b, h, i] = log(sum_j exp(S[b, h, i, j]))

    Q and K are (B, H, M, E), V is (B, H, M, D), doc holds the document of each row of each batch, in
    any order, scale is a real number; the results are O (B, H, M, D) and lse (B, H, M).

    Look at the two conditions: j <= i is known before anything runs, so the blocks above the
    diagonal are not visited; which rows share a document is known only from doc, so the blocks
    below it are masked.
    """
    O = zeros((B, H, M, D))
    lse = zeros((B, H, M), dtype=float32)
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                m = -inf  # S1: nothing is seen yet
                for j in range(0, i + 1):
                    S = scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) if doc[b, i] == doc[b, j] else -inf  # S2: the scores of row i
                    m = max(m, S)  # S3: Aggregation over j
                l = 0.0  # S4
                for j in range(0, i + 1):
                    S = scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) if doc[b, i] == doc[b, j] else -inf  # S5: the same scores again
                    l = l + exp(S - m)  # S6: Aggregation over j
                for j in range(0, i + 1):
                    S = scale * sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E)) if doc[b, i] == doc[b, j] else -inf  # S7
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S - m) / l * V[b, h, j, d]  # S8: the weighted mean of the rows of V
                lse[b, h, i] = m + log(l)  # S9: the log-sum-exp of row i
    return O, lse
