def attention_naive(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    """Softmax attention in three passes over j, as one writes it on a whiteboard.

        O[i, d] = sum_j softmax_j(Q[i] . K[j]) * V[j, d]

    Q is (M, E), K is (N, E), V is (N, D), and the result O is (M, D).

    Look at the order of the passes: each needs the whole result of the one before it, the sum l
    needs the final maximum m and the output needs both. Everything that makes a single pass
    possible must therefore come from algebra, not from reordering.
    """
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in parallel(0, M):
        for j in parallel(0, N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))  # S1: the scores of row i
            with reduce("max"):
                m[i] = max(m[i], S[i, j])  # S2: Aggregation over j
            barrier()
            with reduce("+"):
                l[i] = l[i] + exp(S[i, j] - m[i])  # S3: Aggregation over j
            barrier()
            for d in range(0, D):
                with reduce("+"):
                    O[i, d] = O[i, d] + exp(S[i, j] - m[i]) / l[i] * V[j, d]  # S4: the weighted mean of the rows of V
    return O
