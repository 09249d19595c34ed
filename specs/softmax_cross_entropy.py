def softmax_cross_entropy(X: Float[Array, "N V"], y: Int[Array, "N", "0:V"]):
    """The cross entropy of each row's softmax with an integer label, through log-sum-exp.

        loss[n] = log(sum_v exp(X[n, v])) - X[n, y[n]]

    X holds the logits (N, V), y the labels (N), each in 0 .. V - 1; the result is loss (N).

    Look at S5: the label is read as a subscript, so which element of the row it picks is known only
    when the listing runs. The probabilities themselves are never stored.
    """
    loss = zeros(N)
    for n in range(0, N):
        m = -inf  # S1: the maximum of nothing
        for v in range(0, V):
            m = max(m, X[n, v])  # S2: Aggregation over v
        l = 0.0  # S3: an empty sum
        for v in range(0, V):
            l = l + exp(X[n, v] - m)  # S4: Aggregation over v
        loss[n] = m + log(l) - X[n, y[n]]  # S5: log-sum-exp minus the score of the label
    return loss
