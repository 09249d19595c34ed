def flash_forward_backward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], lse: Float32[Array, "M"], O: Float[Array, "M D"], dO: Float[Array, "M D"]):
    delta = zeros(M, dtype=float32)
    dQ = zeros((M, E))
    dK = zeros((N, E))
    dV = zeros((N, D))
    for i in range(0, M):
        for d in range(0, D):
            delta[i] = delta[i] + dO[i, d] * O[i, d]  # S1: Self dependency: [SLoop: (i, (i, d), (i, d)), TLoop: (i, d)] # Aggregation over d # RAW on delta
    for i in range(0, M):
        for j in range(0, N):
            S_ij = sum(Q[i, t] * K[j, t] for t in range(0, E))  # S2: No self dependency: [SLoop: (i, j), TLoop: (i, j)]
            P = exp(S_ij - lse[i])  # S3: No self dependency: [SLoop: ((i, j), i), TLoop: (i, j)] # RAW on S_ij
            dP = sum(dO[i, d] * V[j, d] for d in range(0, D))  # S4: No self dependency: [SLoop: (i, j), TLoop: (i, j)]
            dS_ij = P * (dP - delta[i])  # S5: No self dependency: [SLoop: ((i, j), (i, j), i), TLoop: (i, j)] # RAW on P, dP, delta
            for t in range(0, E):
                dQ[i, t] = dQ[i, t] + dS_ij * K[j, t]  # S6: Self dependency: [SLoop: ((i, t), (i, j), (j, t)), TLoop: (i, j, t)] # Aggregation over j # RAW on dQ, dS_ij
    for j in range(0, N):
        for i in range(0, M):
            S_ij_2 = sum(Q[i, t] * K[j, t] for t in range(0, E))  # S7: No self dependency: [SLoop: (i, j), TLoop: (j, i)]
            P_2 = exp(S_ij_2 - lse[i])  # S8: No self dependency: [SLoop: ((j, i), i), TLoop: (j, i)] # RAW on S_ij_2
            dP_2 = sum(dO[i, d] * V[j, d] for d in range(0, D))  # S9: No self dependency: [SLoop: (i, j), TLoop: (j, i)]
            dS_ij_2 = P_2 * (dP_2 - delta[i])  # S10: No self dependency: [SLoop: ((j, i), (j, i), i), TLoop: (j, i)] # RAW on P_2, dP_2, delta
            for t in range(0, E):
                dK[j, t] = dK[j, t] + dS_ij_2 * Q[i, t]  # S11: Self dependency: [SLoop: ((j, t), (j, i), (i, t)), TLoop: (j, i, t)] # Aggregation over i # RAW on dK, dS_ij_2
            for d in range(0, D):
                dV[j, d] = dV[j, d] + dO[i, d] * P_2  # S12: Self dependency: [SLoop: ((j, d), (i, d), (j, i)), TLoop: (j, i, d)] # Aggregation over i # RAW on dV, P_2
    return dQ, dK, dV
