def attention_naive(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O_b = empty(D)
    S_b = empty(64)
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in parallel(0, M):
        private: (O_b, S_b, m_b, l_b, m_ij)
        for j0 in range(0, N, 64):
            m_b = -inf  # S10
            l_b = 0.0  # S11
            for d in parallel(0, D):
                O_b[d] = 0.0  # S12
            for j in range(j0, min(j0 + 64, N)):
                S_b[j - j0] = sum(Q[i, e] * K[j, e] for e in range(0, E))  # S1: the scores of row i
                m_b = max(m_b, S_b[j - j0])  # S2
            for j in range(j0, min(j0 + 64, N)):
                l_b = l_b + exp(S_b[j - j0] - m_b) if m_b > -inf else l_b  # S3
                for d in parallel(0, D):
                    O_b[d] = O_b[d] + V[j, d] * exp(S_b[j - j0] - m_b) if m_b > -inf else O_b[d]  # S4
            m_ij = max(m[i], m_b)  # S5
            l[i] = l[i] * exp(m[i] - m_ij) + l_b * exp(m_b - m_ij) if m_ij > -inf else l[i]  # S7
            for d in parallel(0, D):
                O[i, d] = O[i, d] * exp(m[i] - m_ij) + O_b[d] * exp(m_b - m_ij) if m_ij > -inf else O[i, d]  # S8
            m[i] = m_ij  # S9
        for d in parallel(0, D):
            O[i, d] = O[i, d] / l[i] if l[i] != 0.0 else 0.0  # S6
    return O

