def softmax(X: Float[Array, "M N"]):
    """The softmax of each row, in three passes.

        Y[i, j] = exp(X[i, j] - max_k X[i, k]) / sum_k exp(X[i, k] - max_k X[i, k])

    X is (M, N), and so is the result Y.

    Look at the first two passes: they fuse into one that rescales l whenever m moves. The third
    writes an element for each j, so it stays a second pass over the row.
    """
    m = full(M, -inf)
    l = zeros(M)
    Y = zeros((M, N))
    for i in range(0, M):
        for j in range(0, N):
            m[i] = max(m[i], X[i, j])  # S1: Aggregation over j
        for j in range(0, N):
            l[i] = l[i] + exp(X[i, j] - m[i])  # S2: Aggregation over j
        for j in range(0, N):
            Y[i, j] = exp(X[i, j] - m[i]) / l[i]  # S3: no iteration needs another one
    return Y
