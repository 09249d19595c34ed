def attention_naive(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    m_part = empty((3, M))
    l_part = empty((3, M))
    O_part = empty((3, M, D))
    for i in parallel(0, M):
        private: (S_ij, m_part_ij, m_ip)
        for p in parallel(0, 3):
            private: (S_ij, m_part_ij)
            m_part[p, i] = -inf  # S2
            l_part[p, i] = 0.0  # S3
            for d in parallel(0, D):
                O_part[p, i, d] = 0.0  # S4
            for j in range(p * ((N + 2) // 3), min((p + 1) * ((N + 2) // 3), N)):
                S_ij = sum(Q[i, e] * K[j, e] for e in range(0, E))  # S1: the scores of row i
                m_part_ij = max(m_part[p, i], S_ij)  # S5
                l_part[p, i] = l_part[p, i] * exp(m_part[p, i] - m_part_ij) + exp(S_ij - m_part_ij) if m_part_ij > -inf else l_part[p, i]  # S7
                for d in parallel(0, D):
                    O_part[p, i, d] = O_part[p, i, d] * exp(m_part[p, i] - m_part_ij) + V[j, d] * exp(S_ij - m_part_ij) if m_part_ij > -inf else O_part[p, i, d]  # S8
                m_part[p, i] = m_part_ij  # S9
        for p in range(0, 3):
            m_ip = max(m[i], m_part[p, i])  # S10
            l[i] = l[i] * exp(m[i] - m_ip) + l_part[p, i] * exp(m_part[p, i] - m_ip) if m_ip > -inf else l[i]  # S11
            for d in parallel(0, D):
                O[i, d] = O[i, d] * exp(m[i] - m_ip) + O_part[p, i, d] * exp(m_part[p, i] - m_ip) if m_ip > -inf else O[i, d]  # S12
            m[i] = m_ip  # S13
        for d in parallel(0, D):
            O[i, d] = O[i, d] / l[i] if l[i] != 0.0 else 0.0  # S6
    return O

