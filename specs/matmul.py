def matmul(A: Float[Array, "M K"], B: Float[Array, "K N"], bias: Float[Array, "N"]):
    """A matrix product with an epilogue: C = max(A B + bias, 0).

    A is (M, K), B is (K, N), bias is (N), and the result C is (M, N).

    Look at acc: the loops i and j are free as soon as each iteration has an accumulator of its own.
    Only the k loop carries a value, and S3 must wait for the end of it, because max(., 0) of a sum
    is not the sum of the max(., 0).
    """
    C = zeros((M, N))
    for i in range(0, M):
        for j in range(0, N):
            acc = 0.0  # S1: an empty sum
            for k in range(0, K):
                acc = acc + A[i, k] * B[k, j]  # S2: Aggregation over k
            C[i, j] = max(acc + bias[j], 0.0)  # S3: bias and activation
    return C
