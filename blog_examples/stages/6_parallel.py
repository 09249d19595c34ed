def flash_forward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    """The published listing with S10 mended."""
    O = zeros((M, D))
    m = full(M, -inf)
    l = zeros(M)
    O_i = empty(D)
    for i in parallel(0, M):
        private: (O_i, q_i, m_i, l_i, k_j, S_ij, m_ij, l_ij, o_id, v_jd, o_ijd)
        q_i = Q[i]  # S1
        m_i = m[i]  # S3
        l_i = l[i]  # S4
        for d in parallel(0, D):
            O_i[d] = O[i, d]
        for j in range(0, N):
            k_j = K[j]  # S2
            S_ij = q_i @ k_j  # S5
            m_ij = max(m_i, S_ij)  # S6
            l_ij = l_i * exp(m_i - m_ij) + exp(S_ij - m_ij)  # S7
            for d in parallel(0, D):
                private: (o_id, v_jd, o_ijd)
                o_id = O_i[d]  # S8
                v_jd = V[j, d]  # S9
                o_ijd = o_id * l_i * exp(m_i - m_ij) / l_ij + exp(S_ij - m_ij) * v_jd / l_ij  # S10
                O_i[d] = o_ijd  # S11
            m_i = m_ij  # S12
            l_i = l_ij  # S13
        for d in parallel(0, D):
            O[i, d] = O_i[d]
        l[i] = l_i  # S15
        m[i] = m_i  # S14
    return O, m, l
