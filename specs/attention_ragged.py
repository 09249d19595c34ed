def attention_ragged(Q: Float[Array, "T H E"], K: Float[Array, "U H E"], V: Float[Array, "U H D"], cu_q: Int[Array, "B+1", "0:T+1"], cu_k: Int[Array, "B+1", "0:U+1"], scale: float):
    """Attention over sequences of different lengths, packed one behind the other without padding.

        S[i, h, j] = scale * Q[i, h] . K[j, h]  for cu_q[b] <= i < cu_q[b + 1], cu_k[b] <= j < cu_k[b + 1]
        O[i, h] = sum_j softmax_j(S[i, h, j]) * V[j, h]
        lse[i, h] = log(sum_j exp(S[i, h, j]))

    Q is (T, H, E), K is (U, H, E), V is (U, H, D): the queries of sequence b are the rows from cu_q[b]
    up to cu_q[b + 1], its keys those from cu_k[b] up to cu_k[b + 1]. cu_q and cu_k hold B + 1
    integers, in 0 .. T and 0 .. U, that never fall; scale is a real number. The results are
    O (T, H, D) and lse (T, H). A sequence without keys has O = 0 and lse = -inf, and so have rows
    that belong to no sequence.

    Look at the contracts: without the first one two sequences might share rows of O, and b would
    have to run in order; so would it for the gradients of K and V without the second.
    """
    assert all(cu_q[b] <= cu_q[b + 1] for b in range(0, B))
    assert all(cu_k[b] <= cu_k[b + 1] for b in range(0, B))
    O = zeros((T, H, D))
    lse = full((T, H), -inf, dtype=float32)
    for b in range(0, B):
        for h in range(0, H):
            for i in range(cu_q[b], cu_q[b + 1]):
                m = -inf  # S1: nothing is seen yet
                for j in range(cu_k[b], cu_k[b + 1]):
                    S = scale * sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))  # S2: the scores of row i
                    m = max(m, S)  # S3: Aggregation over j
                l = 0.0  # S4
                for j in range(cu_k[b], cu_k[b + 1]):
                    S = scale * sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))  # S5: the same scores again
                    l = l + exp(S - m)  # S6: Aggregation over j
                for j in range(cu_k[b], cu_k[b + 1]):
                    S = scale * sum(Q[i, h, e] * K[j, h, e] for e in range(0, E))  # S7
                    for d in range(0, D):
                        O[i, h, d] = O[i, h, d] + exp(S - m) / l * V[j, h, d]  # S8: the weighted mean of the rows of V
                lse[i, h] = m + log(l)  # S9: the log-sum-exp of row i
    return O, lse
