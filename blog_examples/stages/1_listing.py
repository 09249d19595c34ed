def flash_forward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    """The published listing with S10 mended."""
    O = zeros((M, D))
    m = full(M, -inf)
    l = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            for d in range(0, D):
                q_i = Q[i]  # S1: No self dependency: [SLoop: i, TLoop: i]
                k_j = K[j]  # S2: No self dependency: [SLoop: j, TLoop: j]
                m_i = m[i]  # S3: No self dependency: [SLoop: i, TLoop: i]
                l_i = l[i]  # S4: No self dependency: [SLoop: i, TLoop: i]
                S_ij = q_i @ k_j  # S5: No self dependency: [SLoop: (i, j), TLoop: (i, j)] # Loop interchange possible # RAW on q_i, and k_j
                m_ij = max(m_i, S_ij)  # S6: No self dependency: [SLoop: (i, (i, j)), TLoop: (i, j)] # RAW on m_i and S_ij
                l_ij = l_i * exp(m_i - m_ij) + exp(S_ij - m_ij)  # S7: No self dependency: [SLoop: (j, (i, (i, j)), ((i, j), (i, j))), TLoop: (i, j)] # RAW on l_i, m_i, m_ij, S_ij, m_ij
                o_id = O[i, d]  # S8: No self dependency: [SLoop: (i, d), TLoop: (i, d)]
                v_jd = V[j, d]  # S9: No self dependency: [SLoop: (j, d), TLoop: (j, d)]
                o_ijd = o_id * l_i * exp(m_i - m_ij) / l_ij + exp(S_ij - m_ij) * v_jd / l_ij  # S10: No self dependency: [SLoop: ((i, d), i, (i, j), (i, j), (i, j), (j, d), (i, j)), TLoop: (i, j, d)] # RAW on o_id, l_i, l_ij, S_ij, m_ij, v_jd, l_ij
                ### Finally assign the results back to buffers
                O[i, d] = o_ijd  # S11: Aggregation over j # RAW on o_ijd
                m[i] = m_ij  # S12: Aggregation over j # RAW on m_ij
                l[i] = l_ij  # S13: Aggregation over j # RAW on l_ij
    return O, m, l
