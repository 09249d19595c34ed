def prefix_sum(x: Float[Array, "N"]):
    """The inclusive prefix sum: P[i] = x[0] + ... + x[i].

    x is (N), and so is the result P.

    Look at S2: the flow dependence on P has distance 1 and i carries it, so the loop is sequential
    as written. The condition is affine, a part of the iteration domain: S1 runs for i = 0 only,
    S2 for the rest, and no subscript is ever negative. Each P[i] is also a result, which makes this
    a scan, not a fold.
    """
    P = zeros(N)
    for i in range(0, N):
        if i == 0:
            P[i] = x[i]  # S1: the first element starts the sum
        else:
            P[i] = P[i - 1] + x[i]  # S2: every later one continues it
    return P
