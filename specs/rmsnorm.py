def rmsnorm(X: Float[Array, "M N"], w: Float[Array, "N"], eps: float):
    """Each row divided by its root mean square, then scaled by a weight for each column.

        Y[i, j] = X[i, j] / sqrt(mean_k X[i, k]^2 + eps) * w[j]

    X is (M, N), w is (N), eps is a real number, and the result Y is (M, N).

    Look at s and r: one value for each row, reused by all of them. Kept apart for each i they make
    the rows independent; what remains is a sum over j and a pass that uses it.
    """
    Y = zeros((M, N))
    for i in range(0, M):
        s = 0.0  # S1: an empty sum
        for j in range(0, N):
            s = s + X[i, j] * X[i, j]  # S2: Aggregation over j
        r = 1.0 / sqrt(s / N + eps)  # S3: the reciprocal of the root mean square
        for j in range(0, N):
            Y[i, j] = X[i, j] * r * w[j]  # S4: no iteration needs another one
    return Y
