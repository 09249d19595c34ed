f: 15 steps towards the backward pass

def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], L: Float[Array, "H E"], W: Float[Array, "H D"], r: Float[Array, "M"]):
    O = zeros((M, D))
    Z = zeros(M)
    for i in range(0, M):
        l = 0.0
        for j in range(0, N):
            l = l + exp(Q[i] @ K[j] - r[i])
            for d in range(0, D):
                O[i, d] = O[i, d] + exp(Q[i] @ K[j] - r[i]) * V[j, d]
        for j in range(0, H):
            l = l + exp(Q[i] @ L[j] - r[i])
            for d in range(0, D):
                O[i, d] = O[i, d] + exp(Q[i] @ L[j] - r[i]) * W[j, d]
        for d in range(0, D):
            O[i, d] = O[i, d] / l
        Z[i] = log(l)
    return O, Z

1. define every array once

  * storage: every read gets the value that was written last above it, shown: the exact flow, 16
    pairs of a write and a read: 12 from the same iteration of the loops around both, sums complete;
    4 from an update to the next one of the same sum, maximum or minimum.

2. reverse mode

  * algebra: the adjoint of a cell is the sum of what every read of it adds, shown: the derivatives
    of *, exp, -, +, /, log are those that sympy finds; by the chain rule the reader's indices that
    the cell does not have are summed over, and subscripts are solved for the others.

3. do a sum term by term

  * algebra: l_2[i] * sum(dO_2[i, d] * W[j, d] for d in range(0, D)) = sum(W[j, d] * dO[i, d] for d
    in range(0, D)), shown: term by term: sum(W[j, d] * dO[i, d] for d in range(0, D)); written out,
    both sides are the same sum of products, whatever the sizes.

4. do a sum term by term

  * algebra: sum(dO_2[i, d] * W[j, d] * P_2[i, j] for d in range(0, D) for j in range(0, H)) =
    sum(P_2[i, j] * dP_2[i, j] for j in range(0, H)) / l_2[i], shown: term by term: sum(P_2[i, j] *
    dP_2[i, j] for j in range(0, H)) / l_2[i]; written out, both sides are the same sum of products,
    whatever the sizes.

5. do a sum term by term

  * algebra: P[i, j] * l_2[i] * sum(dO_2[i, d] * V[j, d] for d in range(0, D)) = P[i, j] * sum(V[j,
    d] * dO[i, d] for d in range(0, D)), shown: term by term: P[i, j] * sum(V[j, d] * dO[i, d] for d
    in range(0, D)); written out, both sides are the same sum of products, whatever the sizes.

6. do a sum term by term

  * algebra: sum(dO_2[i, d] * P[i, j] * l_2[i] for i in range(0, M)) = sum(P[i, j] * dO[i, d] for i
    in range(0, M)), shown: term by term: sum(P[i, j] * dO[i, d] for i in range(0, M)); written out,
    both sides are the same sum of products, whatever the sizes.

7. do a sum term by term

  * algebra: sum(dO_2[i, d] * P_2[i, j] * l_2[i] for i in range(0, M)) = sum(P_2[i, j] * dO[i, d]
    for i in range(0, M)), shown: term by term: sum(P_2[i, j] * dO[i, d] for i in range(0, M));
    written out, both sides are the same sum of products, whatever the sizes.

8. do a sum term by term

  * algebra: -(l_2[i] * sum(dO_2[i, d] * V[j, d] * P[i, j] for d in range(0, D) for j in range(0,
    N))) = -sum(P[i, j] * dl_sum_3_sum[i, j] for j in range(0, N)), shown: term by term: -sum(P[i,
    j] * dl_sum_3_sum[i, j] for j in range(0, N)); written out, both sides are the same sum of
    products, whatever the sizes.

9. reassociate a contraction

  * algebra: -(dZ[i] * l[i] / l_2[i]) + -(dZ[i] * l_sum_2[i] / l_2[i]) = -(dZ[i] * l_2[i] / l_2[i]),
    shown: l_2 is l + l_sum_2, whose sums are done first; written out, both sides are the same sum
    of products, whatever the sizes.

10. reassociate a contraction

  * algebra: dl_sum[i] * l[i] / l_2[i] + dl_sum[i] * l_sum_2[i] / l_2[i] = dl_sum[i] * l_2[i] /
    l_2[i], shown: l_2 is l + l_sum_2, whose sums are done first; written out, both sides are the
    same sum of products, whatever the sizes.

11. work P out from lse: keep lse = r[i] + log(l_2[i]) for each sum

  * algebra: P[i, j] = exp(l_sum[i, j] - r[i]) / l_2[i] = exp(l_sum[i, j] - lse[i]), shown:
    exp(e1)/(exp(e2)*x1) on both sides; it leans on x1 is positive.

12. work P_2 out from lse: keep lse = r[i] + log(l_2[i]) for each sum

  * algebra: P_2[i, j] = exp(l_sum_2_sum[i, j] - r[i]) / l_2[i] = exp(l_sum_2_sum[i, j] - lse[i]),
    shown: exp(e1)/(exp(e2)*x1) on both sides; it leans on x1 is positive.

13. take dZ into dl_sum

  * algebra: dP_2 + dZ[i] - dl_sum[i] = dP_2 - dl_sum[i] with dl_sum[i] - dZ[i] for dl_sum, shown:
    dZ stands beside every read of dl_sum, and all come behind the sum.
  * rounding: dZ is added to the sum first, shown: equal over the reals.

14. hand over l_kept

    @@ -1,3 +1,4 @@
     def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], L: Float[Array, "H E"], W: Float[Array, "H D"], r: Float[Array, "M"]):
    +    l_kept = zeros(M, dtype=float32)
         O = zeros((M, D))
         Z = zeros(M)
    @@ -12,6 +13,7 @@
                 for d in range(0, D):
                     O[i, d] = O[i, d] + exp(Q[i] @ L[j] - r[i]) * W[j, d]
    +        l_kept[i] = l
             for d in range(0, D):
                 O[i, d] = O[i, d] / l
             Z[i] = log(l)
    -    return O, Z
    +    return O, Z, l_kept

  * storage: the listing does what it did, and hands over what it has worked out, shown: without the
    statements that set l_kept it is the listing, which does not know them; read again, they hold
    what is meant.

15. the backward nests: store little, work out the rest again

def f_backward(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], L: Float[Array, "H E"], W: Float[Array, "H D"], r: Float[Array, "M"], l_kept: Float32[Array, "M"], O: Float[Array, "M D"], dO: Float[Array, "M D"], dZ: Float[Array, "M"]):
    lse = zeros(M, dtype=float32)
    dl_sum = zeros(M, dtype=float32)
    dQ = zeros((M, E))
    dK = zeros((N, E))
    dV = zeros((N, D))
    dL = zeros((H, E))
    dW = zeros((H, D))
    dr = zeros(M)
    for i in range(0, M):
        lse[i] = r[i] + log(l_kept[i])  # S1: No self dependency: [SLoop: (i, i), TLoop: i]
    for i in range(0, M):
        for d in range(0, D):
            dl_sum[i] = dl_sum[i] + dO[i, d] * O[i, d]  # S2: Self dependency: [SLoop: (i, (i, d), (i, d)), TLoop: (i, d)] # Aggregation over d # RAW on dl_sum
        dl_sum[i] = dl_sum[i] - dZ[i]  # S3: No self dependency: [SLoop: (i, i), TLoop: i] # RAW on dl_sum
    for i in range(0, M):
        for j in range(0, H):
            l_sum_2_sum = sum(Q[i, t] * L[j, t] for t in range(0, E))  # S4: No self dependency: [SLoop: (i, j), TLoop: (i, j)]
            P_2 = exp(l_sum_2_sum - lse[i])  # S5: No self dependency: [SLoop: ((i, j), i), TLoop: (i, j)] # RAW on l_sum_2_sum, lse
            dP_2 = sum(W[j, d] * dO[i, d] for d in range(0, D))  # S6: No self dependency: [SLoop: (j, i), TLoop: (i, j)]
            dl_sum_2_sum = P_2 * (dP_2 - dl_sum[i])  # S7: No self dependency: [SLoop: ((i, j), (i, j), i), TLoop: (i, j)] # RAW on P_2, dP_2, dl_sum
            for t in range(0, E):
                dQ[i, t] = dQ[i, t] + dl_sum_2_sum * L[j, t]  # S8: Self dependency: [SLoop: ((i, t), (i, j), (j, t)), TLoop: (i, j, t)] # Aggregation over j # RAW on dQ, dl_sum_2_sum
    for i in range(0, M):
        for j in range(0, N):
            l_sum = sum(Q[i, t] * K[j, t] for t in range(0, E))  # S9: No self dependency: [SLoop: (i, j), TLoop: (i, j)]
            P = exp(l_sum - lse[i])  # S10: No self dependency: [SLoop: ((i, j), i), TLoop: (i, j)] # RAW on l_sum, lse
            dl_sum_3_sum = sum(V[j, d] * dO[i, d] for d in range(0, D))  # S11: No self dependency: [SLoop: (j, i), TLoop: (i, j)]
            dl_sum_3 = P * (dl_sum_3_sum - dl_sum[i])  # S12: No self dependency: [SLoop: ((i, j), (i, j), i), TLoop: (i, j)] # RAW on P, dl_sum_3_sum, dl_sum
            for t in range(0, E):
                dQ[i, t] = dQ[i, t] + dl_sum_3 * K[j, t]  # S13: Self dependency: [SLoop: ((i, t), (i, j), (j, t)), TLoop: (i, j, t)] # Aggregation over j # RAW on dQ, dl_sum_3
    for j in range(0, N):
        for i in range(0, M):
            l_sum_2 = sum(Q[i, t] * K[j, t] for t in range(0, E))  # S14: No self dependency: [SLoop: (i, j), TLoop: (j, i)]
            P_3 = exp(l_sum_2 - lse[i])  # S15: No self dependency: [SLoop: ((j, i), i), TLoop: (j, i)] # RAW on l_sum_2, lse
            dl_sum_3_sum_2 = sum(V[j, d] * dO[i, d] for d in range(0, D))  # S16: No self dependency: [SLoop: (j, i), TLoop: (j, i)]
            dl_sum_3_2 = P_3 * (dl_sum_3_sum_2 - dl_sum[i])  # S17: No self dependency: [SLoop: ((j, i), (j, i), i), TLoop: (j, i)] # RAW on P_3, dl_sum_3_sum_2, dl_sum
            for t in range(0, E):
                dK[j, t] = dK[j, t] + dl_sum_3_2 * Q[i, t]  # S18: Self dependency: [SLoop: ((j, t), (j, i), (i, t)), TLoop: (j, i, t)] # Aggregation over i # RAW on dK, dl_sum_3_2
            for d in range(0, D):
                dV[j, d] = dV[j, d] + P_3 * dO[i, d]  # S19: Self dependency: [SLoop: ((j, d), (j, i), (i, d)), TLoop: (j, i, d)] # Aggregation over i # RAW on dV, P_3
    for j in range(0, H):
        for i in range(0, M):
            l_sum_2_sum_2 = sum(Q[i, t] * L[j, t] for t in range(0, E))  # S20: No self dependency: [SLoop: (i, j), TLoop: (j, i)]
            P_2_2 = exp(l_sum_2_sum_2 - lse[i])  # S21: No self dependency: [SLoop: ((j, i), i), TLoop: (j, i)] # RAW on l_sum_2_sum_2, lse
            dP_2_2 = sum(W[j, d] * dO[i, d] for d in range(0, D))  # S22: No self dependency: [SLoop: (j, i), TLoop: (j, i)]
            dl_sum_2_sum_2 = P_2_2 * (dP_2_2 - dl_sum[i])  # S23: No self dependency: [SLoop: ((j, i), (j, i), i), TLoop: (j, i)] # RAW on P_2_2, dP_2_2, dl_sum
            for t in range(0, E):
                dL[j, t] = dL[j, t] + dl_sum_2_sum_2 * Q[i, t]  # S24: Self dependency: [SLoop: ((j, t), (j, i), (i, t)), TLoop: (j, i, t)] # Aggregation over i # RAW on dL, dl_sum_2_sum_2
            for d in range(0, D):
                dW[j, d] = dW[j, d] + P_2_2 * dO[i, d]  # S25: Self dependency: [SLoop: ((j, d), (j, i), (i, d)), TLoop: (j, i, d)] # Aggregation over i # RAW on dW, P_2_2
    for i in range(0, M):
        dr[i] = dl_sum[i]  # S26: No self dependency: [SLoop: i, TLoop: i] # RAW on dl_sum
    for i in range(0, M):
        for j in range(0, H):
            dP_2_3 = sum(W[j, d] * dO[i, d] for d in range(0, D))  # S27: No self dependency: [SLoop: (j, i), TLoop: (i, j)]
            l_sum_2_sum_3 = sum(Q[i, t] * L[j, t] for t in range(0, E))  # S28: No self dependency: [SLoop: (i, j), TLoop: (i, j)]
            P_2_3 = exp(l_sum_2_sum_3 - lse[i])  # S29: No self dependency: [SLoop: ((i, j), i), TLoop: (i, j)] # RAW on l_sum_2_sum_3, lse
            dr[i] = dr[i] - dP_2_3 * P_2_3  # S30: Self dependency: [SLoop: (i, (i, j), (i, j)), TLoop: (i, j)] # Aggregation over j # RAW on dr, dP_2_3, P_2_3
    for i in range(0, M):
        for j in range(0, N):
            l_sum_3 = sum(Q[i, t] * K[j, t] for t in range(0, E))  # S31: No self dependency: [SLoop: (i, j), TLoop: (i, j)]
            P_4 = exp(l_sum_3 - lse[i])  # S32: No self dependency: [SLoop: ((i, j), i), TLoop: (i, j)] # RAW on l_sum_3, lse
            dl_sum_3_sum_3 = sum(V[j, d] * dO[i, d] for d in range(0, D))  # S33: No self dependency: [SLoop: (j, i), TLoop: (i, j)]
            dr[i] = dr[i] - P_4 * dl_sum_3_sum_3  # S34: Self dependency: [SLoop: (i, (i, j), (i, j)), TLoop: (i, j)] # Aggregation over j # RAW on dr, P_4, dl_sum_3_sum_3
    return dQ, dK, dV, dL, dW, dr

  * storage: what comes from outside is only read, shown: no statement writes Q, K, V, L, W, r,
    l_kept, O, dO and dZ.
  * storage: what is worked out in a nest is read in the iteration it is worked out in, and what is
    gathered when it is complete, shown: the exact flow, 49 pairs of a write and a read: 40 from the
    same iteration of the loops around both, sums complete; 9 from an update to the next one of the
    same sum, maximum or minimum.
  * storage: a value worked out again is the value that was read before, shown: the forward hands
    over l_kept, O; P, P_2, dP_2, dl_sum_2_sum, dl_sum_3, dl_sum_3_sum, l_sum, l_sum_2_sum are
    worked out again where they are read; each by the one expression that defines it, and no input
    is written.
  * rounding: sums are done in another order than reverse mode on the listing would do them, shown:
    equal over the reals, not bit for bit.

What the backward pass is given
  * l_kept: handed over besides the outputs; lse reads it
  * O: an output; dl_sum reads it
  * dO: the gradient of O
  * dZ: the gradient of Z

What it gives back
  * dQ: the gradient of Q
  * dK: the gradient of K
  * dV: the gradient of V
  * dL: the gradient of L
  * dW: the gradient of W
  * dr: the gradient of r

How its nests may run
  * kernels (as here), allowed: dQ and dr are carried by j; dK, dV, dL and dW are carried by i; 6 of
    its nests work out the same sums.
  * launch, not known: S4 cannot move to S20, which needs dQ in order.
  * atomics, not known: S4 cannot move to S20, which needs dQ in order.

derived: 19 certificates, all of them shown
