def flash_blocks(
    Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], scale: float
):
    """Causal softmax attention as the FlashAttention-2 paper has it, in blocks of 16 keys.

    S[i, j] = scale * (Q[i] . K[j]) for j <= i;  O[i] = sum_j softmax_j(S[i, j]) * V[j]
    lse[i] = log(sum_j exp(S[i, j]))

    Q is (M, E), K is (N, E), V is (N, D); the results are O (M, D) and lse (M). Each block is gone
    over twice: once for its maximum, and once for its sums, after what is there has been rescaled.

    Look at j0: what a block does to m, l and O is what its keys do one after the other, and that is
    proved, for blocks of any length. So the 16 says nothing about how the kernel is blocked.
    """
    S = zeros(16)
    O = zeros((M, D))
    lse = zeros(M)
    for i in range(0, M):
        m = -inf  # S1: the maximum of nothing
        l = 0.0  # S2: an empty sum
        for j0 in range(0, min(N, i + 1), 16):
            new = m  # S3: the maximum up to here
            for j in range(j0, min(j0 + 16, N, i + 1)):
                S[j - j0] = scale * sum(Q[i, e] * K[j, e] for e in range(0, E))  # S4: the scaled score
                new = max(new, S[j - j0])  # S5: Aggregation over j
            old = exp(m - new)  # S6: by how much what is there shrinks
            l = l * old  # S7: the sum, at the new maximum
            for d in range(0, D):
                O[i, d] = O[i, d] * old  # S8: the output, at the new maximum
            for j in range(j0, min(j0 + 16, N, i + 1)):
                p = exp(S[j - j0] - new)  # S9: the weight of key j
                l = l + p  # S10: Aggregation over j
                for d in range(0, D):
                    O[i, d] = O[i, d] + p * V[j, d]  # S11: Aggregation over j
            m = new  # S12: Aggregation over j0
        for d in range(0, D):
            O[i, d] = O[i, d] / l  # S13: one division for each element
        lse[i] = m + log(l)  # S14: the log-sum-exp of row i
    return O, lse
