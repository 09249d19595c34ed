def flash_forward_backward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], lse: Float32[Array, "M"], O: Float[Array, "M D"], dO: Float[Array, "M D"]):
    delta = zeros(M, dtype=float32)
    dQ = zeros((M, E))
    dK = zeros((N, E))
    dV = zeros((N, D))
    for i in range(0, M):
        for d in range(0, D):
            delta[i] = delta[i] + dO[i, d] * O[i, d]
    for j in parallel(0, N):
        private: (S_ij, P, dP, dS_ij)
        for i in range(0, M):
            S_ij = sum(Q[i, t] * K[j, t] for t in range(0, E))
            P = exp(S_ij - lse[i])
            dP = sum(dO[i, d] * V[j, d] for d in range(0, D))
            dS_ij = P * (dP - delta[i])
            for t in range(0, E):
                with atomic():
                    dQ[i, t] = dQ[i, t] + dS_ij * K[j, t]
            for t in range(0, E):
                dK[j, t] = dK[j, t] + dS_ij * Q[i, t]
            for d in range(0, D):
                dV[j, d] = dV[j, d] + dO[i, d] * P
    return dQ, dK, dV
