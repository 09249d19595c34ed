def linear_cross_entropy(
    X: Float[Array, "N F"], W: Float[Array, "V F"], y: Int[Array, "N", "0:V"]
):
    """The cross entropy of a linear layer's softmax with an integer label, in one pass.

        S[n, v] = sum_f X[n, f] * W[v, f]
        loss[n] = log(sum_v exp(S[n, v])) - S[n, y[n]]

    X holds the features (N, F), W a row for each label (V, F), y the labels (N), each in 0 .. V - 1;
    the result is loss (N).

    Look at the contract: rows of more than 512 features do not fit a block, so that S4 goes over
    blocks of them. The logits are never stored; the backward pass keeps their gradient.
    """
    assert F > 512
    loss = zeros(N)
    for n in range(0, N):
        m = -inf  # S1: the maximum of nothing
        l = 0.0  # S2: an empty sum
        own = 0.0  # S3: an empty sum
        for v in range(0, V):
            s = sum(X[n, f] * W[v, f] for f in range(0, F))  # S4: the logit of a label
            m_new = max(m, s)  # S5: the maximum so far
            l = l * exp(m - m_new) + exp(s - m_new)  # S6: Aggregation over v
            m = m_new  # S7: kept for the next one
            own = own + (s if v == y[n] else 0.0)  # S8: Aggregation over v
        loss[n] = m + log(l) - own  # S9: log-sum-exp minus the logit of the label
    return loss
