def layernorm(X: Float[Array, "M N"], w: Float[Array, "N"], b: Float[Array, "N"], eps: float):
    """Each row shifted to mean 0 and scaled to variance 1, then a weight and a bias for each column.

        Y[i, j] = (X[i, j] - mean_i) / sqrt(variance_i + eps) * w[j] + b[j]

    X is (M, N), w and b are (N), eps is a real number, and the result Y is (M, N); the variance
    is the mean of the squared deviations, divided by N.

    Look at S5: the second sum needs the finished mean, as the sum of a softmax needs the finished
    maximum. A single pass needs a state that can be corrected when the mean moves.
    """
    Y = zeros((M, N))
    for i in range(0, M):
        s = 0.0  # S1: an empty sum
        for j in range(0, N):
            s = s + X[i, j]  # S2: Aggregation over j
        mean = s / N  # S3: the mean of row i
        t = 0.0  # S4: an empty sum
        for j in range(0, N):
            t = t + (X[i, j] - mean) ** 2  # S5: Aggregation over j
        r = 1.0 / sqrt(t / N + eps)  # S6: the reciprocal of the standard deviation
        for j in range(0, N):
            Y[i, j] = (X[i, j] - mean) * r * w[j] + b[j]  # S7: no iteration needs another one
    return Y
