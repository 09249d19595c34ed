def attention_naive(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))  # S1: the scores of row i
            m_ij = max(m[i], S[i, j])  # S2
            l_ij = l[i] * exp(m[i] - m_ij) + exp(S[i, j] - m_ij)  # S3
            for d in range(0, D):
                O[i, d] = O[i, d] * l[i] * exp(m[i] - m_ij) / l_ij + V[j, d] * exp(S[i, j] - m_ij) / l_ij  # S4
            m[i] = m_ij  # S5
            l[i] = l_ij  # S6
    return O

