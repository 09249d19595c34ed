def stencil(A: Float[Array, "N N"]):
    """Each inner element of A becomes its upper right neighbour, in place, row by row.

    A is (N, N). The j loop stops one early so that j + 1 stays inside the array, and what is copied
    is the new value of row i - 1, so the values of the border run down the antidiagonals.

    Look at the distance (1, -1): i carries the dependence and j is parallel, yet the two loops may
    not be interchanged, because the distance would become (-1, 1) and the read would come first.
    """
    for j in range(2, 2 * N - 2):
        for i in range(max(1, j - N + 2), min(N, j)):
            A[i, j - i] = A[i - 1, j - i + 1]  # S1: reads what the iteration (i-1, j+1) wrote
