def attention_paged(Q: Float[Array, "B H M E"], K: Float[Array, "C P H E"], V: Float[Array, "C P H D"], page: Int[Array, "B T", "0:C"], n_kv: Int[Array, "B", "0:T*P+1"], P: Const, scale: float):
    """Attention whose keys and values lie in pages of P, in any order: batch b has n_kv[b] of them.

        S[b, h, i, j] = scale * Q[b, h, i] . K[page[b, j // P], j % P, h]      for j < n_kv[b]
        O[b, h, i] = sum_j softmax_j(S[b, h, i, j]) * V[page[b, j // P], j % P, h]

    Q is (B, H, M, E), K is (C, P, H, E) and V is (C, P, H, D): C pages, from which page (B, T) names up
    to T for each batch; n_kv holds B integers in 0 .. T * P, scale is a real number, and the result O
    is (B, H, M, D). P is known when the kernel is compiled, so that j // P is a shift where it can be.

    Look at page: two batches may share a page, and a batch may have one twice. To read that is no
    matter. In the backward pass a page gathers from those that name it: each entry of page is asked
    once for each page, and only where it is the one the queries of its batch are gone over.
    """
    S = zeros((B, H, M, T * P))
    m = full((B, H, M), -inf)
    l = zeros((B, H, M))
    O = zeros((B, H, M, D))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, n_kv[b]):
                    S[b, h, i, j] = scale * sum(Q[b, h, i, e] * K[page[b, j // P], j % P, h, e] for e in range(0, E))  # S1: the scores of row i
                    m[b, h, i] = max(m[b, h, i], S[b, h, i, j])  # S2: Aggregation over j
                for j in range(0, n_kv[b]):
                    l[b, h, i] = l[b, h, i] + exp(S[b, h, i, j] - m[b, h, i])  # S3: Aggregation over j
                for j in range(0, n_kv[b]):
                    for d in range(0, D):
                        O[b, h, i, d] = O[b, h, i, d] + exp(S[b, h, i, j] - m[b, h, i]) / l[b, h, i] * V[page[b, j // P], j % P, h, d]  # S4: the weighted mean of the rows of V
    return O
