def logsumexp(X: Float[Array, "M N"]):
    """The logarithm of the sum of exponentials of each row, without overflow.

        y[i] = log(sum_j exp(X[i, j])) = m_i + log(sum_j exp(X[i, j] - m_i)),  m_i = max_j X[i, j]

    X is (M, N), and the result y is (M). An empty row, N = 0, gives -inf, the log of an empty sum.

    Look at S4: the sum waits for the maximum, though the result does not depend on which maximum it
    is. That is why the two passes become one, whose sum is moved whenever m moves.
    """
    y = zeros(M)
    for i in range(0, M):
        m = -inf  # S1: the maximum of nothing
        for j in range(0, N):
            m = max(m, X[i, j])  # S2: Aggregation over j
        l = 0.0  # S3: an empty sum
        for j in range(0, N):
            l = l + exp(X[i, j] - m)  # S4: Aggregation over j
        y[i] = m + log(l)  # S5: the maximum comes back
    return y
