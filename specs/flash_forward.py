def flash_forward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    """Softmax attention in one pass over j, with every statement and every claim right.

    Q is (M, E), K is (N, E), V is (N, D). After step j, m[i] is the largest score of row i so far,
    l[i] the sum of exp(score - m[i]), and O[i] the attention over the keys 0 .. j, already divided
    by l[i]; the results O (M, D), m (M) and l (M) are the state after the last key.

    Look at exp(m_i - m_ij): it moves the old sum (S7) and the old output (S10) to the new maximum.
    Three cycles, S3-S6-S12, S4-S7-S13 and S8-S10-S11, are carried by j; i and d carry none.
    """
    O = zeros((M, D))
    m = full(M, -inf)
    l = zeros(M)
    for i in range(0, M):
        q_i = Q[i]  # S1: No self dependency: [SLoop: i, TLoop: i]
        for j in range(0, N):
            k_j = K[j]  # S2: No self dependency: [SLoop: j, TLoop: j]
            m_i = m[i]  # S3: No self dependency: [SLoop: i, TLoop: (i, j)] # RAW on m
            l_i = l[i]  # S4: No self dependency: [SLoop: i, TLoop: (i, j)] # RAW on l
            S_ij = q_i @ k_j  # S5: No self dependency: [SLoop: (i, j), TLoop: (i, j)] # Loop interchange possible # RAW on q_i, and k_j
            m_ij = max(m_i, S_ij)  # S6: No self dependency: [SLoop: (i, (i, j)), TLoop: (i, j)] # RAW on m_i and S_ij
            l_ij = l_i * exp(m_i - m_ij) + exp(S_ij - m_ij)  # S7: No self dependency: [SLoop: (i, i, (i, j), (i, j), (i, j)), TLoop: (i, j)] # RAW on l_i, m_i, m_ij, S_ij, m_ij
            for d in range(0, D):
                o_id = O[i, d]  # S8: No self dependency: [SLoop: (i, d), TLoop: (i, j, d)] # RAW on O
                v_jd = V[j, d]  # S9: No self dependency: [SLoop: (j, d), TLoop: (j, d)]
                o_ijd = o_id * l_i * exp(m_i - m_ij) / l_ij + exp(S_ij - m_ij) * v_jd / l_ij  # S10: No self dependency: [SLoop: ((i, d), i, i, (i, j), (i, j), (i, j), (i, j), (j, d), (i, j)), TLoop: (i, j, d)] # RAW on o_id, l_i, m_i, m_ij, l_ij, S_ij, m_ij, v_jd, l_ij
                ### Finally assign the results back to buffers
                O[i, d] = o_ijd  # S11: Aggregation over j # RAW on o_ijd
            m[i] = m_ij  # S12: Aggregation over j # RAW on m_ij
            l[i] = l_ij  # S13: Aggregation over j # RAW on l_ij
    return O, m, l
