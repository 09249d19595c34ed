def flash_forward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    """The published listing with S10 mended."""
    lse = zeros(M, dtype=float32)
    O = zeros((M, D))
    m = full(M, -inf)
    l = zeros(M)
    for i in range(0, M):
        q_i = Q[i]  # S1
        for j in range(0, N):
            k_j = K[j]  # S2
            m_i = m[i]  # S3
            l_i = l[i]  # S4
            S_ij = q_i @ k_j  # S5
            m_ij = max(m_i, S_ij)  # S6
            l_ij = l_i * exp(m_i - m_ij) + exp(S_ij - m_ij)  # S7
            for d in range(0, D):
                o_id = O[i, d]  # S8
                v_jd = V[j, d]  # S9
                o_ijd = o_id * l_i * exp(m_i - m_ij) / l_ij + exp(S_ij - m_ij) * v_jd / l_ij  # S10
                O[i, d] = o_ijd  # S11
            m[i] = m_ij  # S12
            l[i] = l_ij  # S13
        lse[i] = m[i] + log(l[i])
    return O, m, l, lse
