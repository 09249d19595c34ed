def attention_naive(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            S_ij = sum(Q[i, e] * K[j, e] for e in range(0, E))  # S1: the scores of row i
            m_ij = max(m[i], S_ij)  # S2
            l[i] = l[i] * exp(m[i] - m_ij) + exp(S_ij - m_ij) if m_ij > -inf else l[i]  # S3
            for d in range(0, D):
                O[i, d] = O[i, d] * exp(m[i] - m_ij) + V[j, d] * exp(S_ij - m_ij) if m_ij > -inf else O[i, d]  # S4
            m[i] = m_ij  # S5
        for d in range(0, D):
            O[i, d] = O[i, d] / l[i] if l[i] != 0.0 else 0.0  # S6
    return O

