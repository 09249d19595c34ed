def flash_forward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    """The published listing with S10 mended."""
    O = zeros((M, D))
    m = full(M, -inf)
    l = zeros(M)
    S_ij = empty(N)
    for i in parallel(0, M):
        private: (S_ij, q_i, k_j, m_i, l_i, m_ij, l_ij, o_id, v_jd, o_ijd)
        q_i = Q[i]  # S1
        for j in parallel(0, N):
            private: (k_j, m_i, l_i, m_ij, l_ij, o_id, v_jd, o_ijd)
            k_j = K[j]  # S2
            S_ij[j] = q_i @ k_j  # S5
            with atomic(turn=j):
                m_i = m[i]  # S3
                l_i = l[i]  # S4
                m_ij = max(m_i, S_ij[j])  # S6
                l_ij = l_i * exp(m_i - m_ij) + exp(S_ij[j] - m_ij)  # S7
                for d in parallel(0, D):
                    private: (o_id, v_jd, o_ijd)
                    o_id = O[i, d]  # S8
                    v_jd = V[j, d]  # S9
                    o_ijd = o_id * l_i * exp(m_i - m_ij) / l_ij + exp(S_ij[j] - m_ij) * v_jd / l_ij  # S10
                    O[i, d] = o_ijd  # S11
                m[i] = m_ij  # S12
                l[i] = l_ij  # S13
    return O, m, l
