"""Listings nobody derived a backward for: written by hand, and made at random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from looptrans.adjoint import backward as deriving
from looptrans.adjoint.backward import backward
from looptrans.adjoint.derived import Backward
from looptrans.adjoint.hanging import hangs_on_extreme
from looptrans.adjoint.normalizing.picking import with_picks_added
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.executor import execute, prepare
from looptrans.ir.listing import assign_text, index_text
from looptrans.ir.listing import listing as text_of
from looptrans.ir.named import relabelled
from looptrans.ir.program import Assign, Declaration, Loop, Program
from looptrans.ir.walk import nodes, placed
from tests.analysis import program, spec
from tests.test_adjoint_closed import gaps
from tests.test_adjoint_torch import gradients

SIZES = {
    "M": 3,
    "N": 4,
    "E": 2,
    "D": 3,
    "B": 2,
    "H": 4,
    "G": 2,
    "R": 2,
    "K": 3,
    "V": 5,
    "W": 2,
    "F": 1,
    "T": 5,
}
ALL = """
### a table by distance, documents
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      T: Float[Array, "M+N"], dq: Int[Array, "M", "0:2"], dk: Int[Array, "N", "0:2"]):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            if dq[i] == dk[j]:
                s = sum(Q[i, e] * K[j, e] for e in range(0, E)) + T[i - j + N]
                for d in range(0, D):
                    O[i, d] = O[i, d] + max(s, 0.0) ** 2 * V[j, d]
    return O
### a score that a chain of guards sets
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      dq: Int[Array, "M", "0:2"], dk: Int[Array, "N", "0:2"]):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            if dq[i] != dk[j]:
                s = 0.5
            elif j > i:
                s = 2.0 * Q[i, 0]
            else:
                s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            w = s
            if dk[j] > 0:
                w = 0.0
            else:
                w = w * Q[i, 0]
            for d in range(0, D):
                O[i, d] = O[i, d] + s * exp(w) * V[j, d]
    return O
### a score that is changed in place, one pass
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      n: Int[Array, "M", "1:N + 1"]):
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            if j < n[i]:
                s = 0.0
                for e in range(0, E):
                    s += Q[i, e] * K[j, e]  # S9
                s = s / sqrt(E)
                s = 3.0 * tanh(s)
                new = max(m, s)
                old = exp(m - new)
                p = exp(s - new)
                l = l * old + p
                for d in range(0, D):
                    O[i, d] = O[i, d] * old + p * V[j, d]
                m = new
        for d in range(0, D):
            O[i, d] = O[i, d] / l
    return O
### rotated inside the score, with temporaries
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      C: Float[Array, "T F"], S: Float[Array, "T F"]):
    assert E == 2 * F
    assert T >= M
    assert T >= N
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            if j <= i:
                s = 0.0
                for f in range(F):
                    q1 = Q[i, f] * C[i, f] - Q[i, f + F] * S[i, f]
                    k1 = K[j, f] * C[j, f] - K[j, f + F] * S[j, f]
                    s += q1 * k1
                    q2 = Q[i, f + F] * C[i, f] + Q[i, f] * S[i, f]
                    k2 = K[j, f + F] * C[j, f] + K[j, f] * S[j, f]
                    p = q2 * k2
                    s += p
                new = max(m, s)
                p = exp(s - new)
                l = l * exp(m - new) + p
                for d in range(D):
                    O[i, d] = O[i, d] * exp(m - new) + p * V[j, d]
                m = new
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
### rotated inside the score, without
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      C: Float[Array, "T F"], S: Float[Array, "T F"]):
    assert E == 2 * F
    assert T >= M
    assert T >= N
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            s = sum((Q[i, f] * C[i, f] - Q[i, f + F] * S[i, f])
                    * (K[j, f] * C[j, f] - K[j, f + F] * S[j, f]) for f in range(F))
            s += sum((Q[i, f + F] * C[i, f] + Q[i, f] * S[i, f])
                     * (K[j, f + F] * C[j, f] + K[j, f] * S[j, f]) for f in range(F))
            new = max(m, s)
            p = exp(s - new)
            l = l * exp(m - new) + p
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - new) + p * V[j, d]
            m = new
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
### a window, heads in groups, rotated inside the score
def f(Q: Float[Array, "H M E"], K: Float[Array, "G M E"], V: Float[Array, "G M D"],
      C: Float[Array, "M F"], S: Float[Array, "M F"]):
    assert H == G * R
    assert E == 2 * F
    O = zeros((H, M, D))
    for h in range(H):
        for i in range(M):
            m = -inf
            l = 0.0
            for j in range(max(0, i - W + 1), i + 1):
                s = 0.0
                for f in range(F):
                    q1 = Q[h, i, f] * C[i, f] - Q[h, i, f + F] * S[i, f]
                    q2 = Q[h, i, f + F] * C[i, f] + Q[h, i, f] * S[i, f]
                    k1 = K[h // R, j, f] * C[j, f] - K[h // R, j, f + F] * S[j, f]
                    k2 = K[h // R, j, f + F] * C[j, f] + K[h // R, j, f] * S[j, f]
                    s += q1 * k1 + q2 * k2
                new = max(m, s)
                l = l * exp(m - new) + exp(s - new)
                for d in range(D):
                    O[h, i, d] = O[h, i, d] * exp(m - new) + exp(s - new) * V[h // R, j, d]
                m = new
            for d in range(D):
                O[h, i, d] = O[h, i, d] / l
    return O
### distances with a temporary, biases
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      a: Float[Array, "E"], b: Float[Array, "E"]):
    O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            s = 0.0
            for e in range(E):
                x = Q[i, e] - K[j, e]
                s -= x * x
            t = 0.0
            for e in range(E):
                q = Q[i, e] + a[e]
                k = K[j, e] + b[e]
                t += q * k
            p = exp(s + t)
            for d in range(D):
                O[i, d] += p * V[j, d]
    return O
### a prefix, the whole update in both branches
def f(Q: Float[Array, "M E"], K: Float[Array, "M E"], V: Float[Array, "M D"], P: int):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(M):
            if j < P:
                s = sum(Q[i, e] * K[j, e] for e in range(E))
                new = max(m, s)
                l = l * exp(m - new) + exp(s - new)
                for d in range(D):
                    O[i, d] = O[i, d] * exp(m - new) + exp(s - new) * V[j, d]
                m = new
            elif j <= i:
                s = sum(Q[i, e] * K[j, e] for e in range(E))
                new = max(m, s)
                l = l * exp(m - new) + exp(s - new)
                for d in range(D):
                    O[i, d] = O[i, d] * exp(m - new) + exp(s - new) * V[j, d]
                m = new
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
### heads in groups, their number said by a contract
def f(Q: Float[Array, "H M E"], K: Float[Array, "G N E"], V: Float[Array, "G N D"],
      sinks: Float[Array, "H"]):
    assert H == G * R
    O = zeros((H, M, D))
    for g in range(G):
        for r in range(R):
            for i in range(M):
                l = exp(sinks[g * R + r])
                for j in range(N):
                    l += exp(sum(Q[g * R + r, i, e] * K[g, j, e] for e in range(E)))
                for j in range(N):
                    for d in range(D):
                        s = sum(Q[g * R + r, i, e] * K[g, j, e] for e in range(E))
                        O[g * R + r, i, d] += exp(s) / l * V[g, j, d]
    return O
### a score above the maximum takes a branch of its own, one pass
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            if s > m:
                old = exp(m - s)
                m = s
            else:
                old = 1.0
            p = exp(s - m)
            l = l * old + p
            for d in range(0, D):
                O[i, d] = O[i, d] * old + p * V[j, d]
        for d in range(0, D):
            O[i, d] = O[i, d] / l
    return O
### a score in memory that is changed in place, one pass
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N"]):
    O = zeros(M)
    S = zeros(N)
    for i in range(0, M):
        m = -inf
        l = 0.0
        o = 0.0
        for j in range(0, N):
            S[j] = 0.0
            for e in range(0, E):
                S[j] = S[j] + Q[i, e] * K[j, e]
            S[j] = S[j] * 2.0
            new = max(m, S[j])
            l = l * exp(m - new) + exp(S[j] - new)
            o = o * exp(m - new) + exp(S[j] - new) * V[j]
            m = new
        O[i] = o / l
    return O
### a table by distance, lengths
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      T: Float[Array, "M+N"], n: Int[Array, "M", "0:N + 1"]):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, n[i]):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E)) + T[i - j + N]
            for d in range(0, D):
                O[i, d] = O[i, d] + s * V[j, d]
    return O
### packed rows that see those before them
def f(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T D"],
      cu: Int[Array, "B+1", "0:T+1"], W: int):
    assert all(cu[b] <= cu[b + 1] for b in range(0, B))
    O = zeros((T, D))
    for b in range(0, B):
        for i in range(cu[b], cu[b + 1]):
            l = 0.0
            for j in range(max(cu[b], i - W), i + 1):
                l = l + exp(sum(Q[i, e] * K[j, e] for e in range(0, E)))
            for j in range(max(cu[b], i - W), i + 1):
                p = exp(sum(Q[i, e] * K[j, e] for e in range(0, E))) / l
                for d in range(0, D):
                    O[i, d] = O[i, d] + p * V[j, d]
    return O
### packed rows that see those behind them
def f(X: Float[Array, "T"], Y: Float[Array, "T"], cu: Int[Array, "B+1", "0:T+1"]):
    assert all(cu[b] <= cu[b + 1] for b in range(0, B))
    z = zeros(T)
    for b in range(0, B):
        for i in range(cu[b], cu[b + 1]):
            for j in range(i, cu[b + 1]):
                z[i] = z[i] + X[i] * exp(Y[j])
    return z
### columns set one after the other
def f(X: Float[Array, "M 2"], t: float):
    Y = zeros((M, 2))
    z = zeros(M)
    for i in range(0, M):
        Y[i, 0] = X[i, 0] * X[i, 0] * t
        Y[i, 1] = X[i, 1] * X[i, 0]
    for i in range(0, M):
        z[i] = Y[i, 0] * exp(Y[i, 1])
    return Y, z
### a column that is added to
def f(X: Float[Array, "M N"], A: Float[Array, "M 3"]):
    Y = zeros((M, 3))
    for i in range(0, M):
        for c in range(0, 3):
            Y[i, c] = A[i, c] * A[i, c]
        for j in range(0, N):
            Y[i, 1] = Y[i, 1] + X[i, j] * X[i, j]
    return Y
### rows that a guard leaves out
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      keep: Bool[Array, "M"], hidden: Bool[Array, "N"]):
    O = zeros((M, D))
    L = full(M, -inf)
    for i in range(0, M):
        if keep[i]:
            m = -inf
            for j in range(0, N):
                if not hidden[j]:
                    m = max(m, sum(Q[i, e] * K[j, e] for e in range(0, E)))
            l = 0.0
            for j in range(0, N):
                if not hidden[j]:
                    l = l + exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - m)
            L[i] = m + log(l)
            for j in range(0, N):
                if not hidden[j]:
                    p = exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - m) / l
                    for d in range(0, D):
                        O[i, d] = O[i, d] + p * V[j, d]
    return O, L
### a cross entropy of a product, in some rows
def f(X: Float[Array, "M E"], W: Float[Array, "N E"], b: Float[Array, "N"],
      y: Int[Array, "M", "-1:N"]):
    loss = zeros(M)
    for i in range(0, M):
        if y[i] >= 0:
            m = -inf
            for j in range(0, N):
                m = max(m, sum(X[i, e] * W[j, e] for e in range(0, E)) + b[j])
            l = 0.0
            for j in range(0, N):
                l = l + exp(sum(X[i, e] * W[j, e] for e in range(0, E)) + b[j] - m)
            loss[i] = m + log(l) - sum(X[i, e] * W[y[i], e] for e in range(0, E)) - b[y[i]]
    return loss
### a row may be empty
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      n: Int[Array, "M", "0:N + 1"]):
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, n[i]):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            m = max(m, s)
        for j in range(0, n[i]):
            l = l + exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - m)
            for d in range(0, D):
                O[i, d] = O[i, d] + exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - m) * V[j, d]
        if l > 0.0:
            for d in range(0, D):
                O[i, d] = O[i, d] / l
    return O
### a projection behind it, a window
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      U: Float[Array, "D C"]):
    O = zeros((M, D))
    Y = zeros((M, C))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(max(0, i - 1), min(N, i + 2)):
            if j <= i + 1:
                s = log(1.0 + sum(Q[i, e] * K[j, e] for e in range(0, E)) ** 2)
                m = max(m, s)
        for j in range(max(0, i - 1), min(N, i + 2)):
            if j <= i + 1:
                s = log(1.0 + sum(Q[i, e] * K[j, e] for e in range(0, E)) ** 2)
                l = l + exp(s - m)
                for d in range(0, D):
                    O[i, d] = O[i, d] + exp(s - m) * V[j, d]
        for d in range(0, D):
            O[i, d] = O[i, d] / l
        for c in range(0, C):
            for d in range(0, D):
                Y[i, c] = Y[i, c] + O[i, d] * U[d, c]
    return Y
### sigmoid weights
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], c: float):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            p = 1.0 / (1.0 + exp(c - s))
            for d in range(0, D):
                O[i, d] = O[i, d] + p * V[j, d]
    return O
### a cap on scores, worked out three times
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], cap: float):
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            m = max(m, cap * tanh(s / cap))
        l = 0.0
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            l = l + exp(cap * tanh(s / cap) - m)
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            for d in range(0, D):
                O[i, d] = O[i, d] + exp(cap * tanh(s / cap) - m) / l * V[j, d]
    return O
### a window and slopes
def f(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"],
      slope: Float[Array, "H"], W):
    S = zeros((H, M, N))
    m = full((H, M), -inf)
    l = zeros((H, M))
    O = zeros((H, M, D))
    for h in range(0, H):
        for i in range(0, M):
            for j in range(max(0, i - W), min(N, i + 1)):
                S[h, i, j] = sum(Q[h, i, e] * K[h, j, e] for e in range(0, E)) - slope[h] * (i - j)
                m[h, i] = max(m[h, i], S[h, i, j])
            for j in range(max(0, i - W), min(N, i + 1)):
                l[h, i] = l[h, i] + exp(S[h, i, j] - m[h, i])
            for j in range(max(0, i - W), min(N, i + 1)):
                for d in range(0, D):
                    O[h, i, d] = O[h, i, d] + exp(S[h, i, j] - m[h, i]) / l[h, i] * V[h, j, d]
    return O
### divided at the end, the state returned
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))
            m[i] = max(m[i], S[i, j])
        for j in range(0, N):
            l[i] = l[i] + exp(S[i, j] - m[i])
            for d in range(0, D):
                O[i, d] = O[i, d] + exp(S[i, j] - m[i]) * V[j, d]
        for d in range(0, D):
            O[i, d] = O[i, d] / l[i]
    return O, m, l
### powers of two
def f(X: Float[Array, "M N"], c: float):
    Y = zeros((M, N))
    for i in range(0, M):
        m = max(X[i, j] for j in range(0, N))
        l = sum(exp2(c * (X[i, j] - m)) for j in range(0, N))
        for j in range(0, N):
            Y[i, j] = exp2(c * (X[i, j] - m)) / l
    return Y
### three layers
def f(X: Float[Array, "M E"], U: Float[Array, "E K"], V: Float[Array, "K N"],
      W: Float[Array, "N D"]):
    H = zeros((M, K))
    G = zeros((M, N))
    Y = zeros((M, D))
    for i in range(0, M):
        for k in range(0, K):
            for e in range(0, E):
                H[i, k] = H[i, k] + X[i, e] * U[e, k]
        for n in range(0, N):
            for k in range(0, K):
                G[i, n] = G[i, n] + max(H[i, k], 0.0) * V[k, n]
        for d in range(0, D):
            for n in range(0, N):
                Y[i, d] = Y[i, d] + tanh(G[i, n]) * W[n, d]
    return Y
### a table
def f(T: Float[Array, "V D"], at: Int[Array, "N", "0:V"], w: Float[Array, "N"]):
    Y = zeros((N, D))
    for n in range(0, N):
        for d in range(0, D):
            Y[n, d] = T[at[n], d] * w[n]
    return Y
### a table by buckets of pairs, causal
def f(Q: Float[Array, "H M E"], K: Float[Array, "H M E"], V: Float[Array, "H M D"],
      T: Float[Array, "R H"], at: Int[Array, "M M", "0:R"]):
    O = zeros((H, M, D))
    for h in range(0, H):
        for i in range(0, M):
            l = 0.0
            for j in range(0, i + 1):
                l += exp(sum(Q[h, i, e] * K[h, j, e] for e in range(0, E)) + T[at[i, j], h])
            for j in range(0, i + 1):
                s = sum(Q[h, i, e] * K[h, j, e] for e in range(0, E)) + T[at[i, j], h]
                for d in range(0, D):
                    O[h, i, d] += exp(s) / l * V[h, j, d]
    return O
### a table of distances that ends at R, on both sides
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      T: Float[Array, "2*R+1"]):
    O = zeros((M, D))
    for i in range(0, M):
        l = 0.0
        for j in range(0, N):
            l += exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) + T[min(max(j - i, -R), R) + R])
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E)) + T[min(max(j - i, -R), R) + R]
            for d in range(0, D):
                O[i, d] += exp(s) / l * V[j, d]
    return O
### a convolution that goes on with its first and last element, and the larger of two places
def f(X: Float[Array, "N"], w: Float[Array, "K"], Y: Float[Array, "T"], c: Int[Array, "M", "0:9"]):
    O = zeros(N)
    P = zeros(M)
    for i in range(0, N):
        for k in range(0, K):
            O[i] += w[k] * X[min(max(i + k - 1, 0), N - 1)] * Y[abs(i - k)]
    for i in range(0, M):
        P[i] = X[min(c[i], N - 1)] * Y[min(max(i, c[i]), T - 1)]
    return O, P
### a convolution
def f(X: Float[Array, "N"], w: Float[Array, "K"]):
    Y = zeros(N - K + 1)
    for i in range(0, N - K + 1):
        for k in range(0, K):
            Y[i] = Y[i] + X[i + k] * w[k]
    return Y
### the largest
def f(X: Float[Array, "M N"]):
    y = full(M, -inf)
    for i in range(0, M):
        for j in range(0, N):
            y[i] = max(y[i], X[i, j])
    return y
### two sums, one under a condition on data
def f(X: Float[Array, "M N"]):
    total = 0.0
    big = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            total = total + abs(X[i, j]) ** 3 * sin(X[i, j])
            if X[i, j] > 0.0:
                big[i] = big[i] + X[i, j] * cos(X[i, j])
    return total, big
### a product in the middle
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    A = zeros((E, D))
    z = zeros(E)
    O = zeros((M, D))
    for j in range(0, N):
        for e in range(0, E):
            z[e] = z[e] + exp(K[j, e])
            for d in range(0, D):
                A[e, d] = A[e, d] + exp(K[j, e]) * V[j, d]
    for i in range(0, M):
        n = sum(Q[i, e] * z[e] for e in range(0, E))
        for d in range(0, D):
            O[i, d] = sum(Q[i, e] * A[e, d] for e in range(0, E)) / (1.0 + n * n)
    return O
### written over
def f(X: Float[Array, "M N"], a: float):
    Y = zeros((M, N))
    for i in range(0, M):
        for j in range(0, N):
            t = X[i, j] * a
            t = t * t + a
            Y[i, j] = t / (1.0 + abs(t))
        for j in range(0, N):
            if j > 0:
                Y[i, j] = Y[i, j] * 2.0
    return Y
### groups
def f(X: Float[Array, "B H"], w: Float[Array, "G"]):
    assert H == G * R
    y = zeros(B)
    for b in range(0, B):
        for h in range(0, H):
            y[b] = y[b] + sqrt(1.0 + X[b, h] ** 2) * w[h // R] * w[h // R]
    return y
### windows of two groups
def f(X: Float[Array, "N"], W: Float[Array, "G N"], Z: Float[Array, "R"]):
    O = zeros(G)
    for g in range(0, G):
        for h in range(g * R, min(g * R + 2 * R, N)):
            O[g] = O[g] + X[h // R] * W[g, h] * X[h]
    return O
### rows of pages, seen from the left
def f(X: Float[Array, "M"], K: Float[Array, "C*P"], page: Int[Array, "B T", "0:C"],
      n: Int[Array, "B", "0:T*P+1"], P: Const):
    O = zeros((B, M))
    for b in range(0, B):
        for i in range(0, M):
            for j in range(0, min(n[b], i + n[b] - M + 1)):
                O[b, i] = O[b, i] + tanh(X[i] * K[page[b, j // P] * P + j % P]) * j
    return O
### triangles and reversed subscripts
def f(A: Float[Array, "N N"], x: Float[Array, "N"]):
    y = zeros(N)
    for i in range(0, N):
        for j in range(i, N):
            y[i] = y[i] + A[i, j - i] * x[N - 1 - j] + log(2.0 + x[i] ** 2)
        for j in range(0, i):
            y[i] = y[i] - A[j, i] * stop_gradient(x[j])
    return y
### a sink
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], sink: float):
    O = zeros((M, D))
    S = zeros((M, N))
    for i in range(0, M):
        m = sink
        for j in range(0, N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))
            m = max(m, S[i, j])
        l = exp(sink - m)
        for j in range(0, N):
            l = l + exp(S[i, j] - m)
        for d in range(0, D):
            for j in range(0, N):
                O[i, d] = O[i, d] + exp(S[i, j] - m) / l * V[j, d]
    return O
### a sink, and a log-sum-exp whose axes are not in the order of the loops
def f(Q: Float[Array, "M H E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      sink: Float[Array, "H"]):
    O = zeros((M, H, D))
    lse = zeros((H, M))
    for i in range(0, M):
        for h in range(0, H):
            m = sink[h]
            for j in range(0, N):
                m = max(m, sum(Q[i, h, e] * K[j, e] for e in range(0, E)))
            l = exp(sink[h] - m)
            for j in range(0, N):
                l = l + exp(sum(Q[i, h, e] * K[j, e] for e in range(0, E)) - m)
            lse[h, i] = m + log(l)
            for j in range(0, N):
                w = exp(sum(Q[i, h, e] * K[j, e] for e in range(0, E)) - m) / l
                for d in range(0, D):
                    O[i, h, d] = O[i, h, d] + w * V[j, d]
    return O, lse
### dropped, divided once by the sum and by what is kept
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      keep: Bool[Array, "M N"], p: float):
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            s = Q[i] @ K[j]
            t = max(m, s)
            l = l * exp(m - t) + exp(s - t)
            for d in range(0, D):
                O[i, d] = O[i, d] * exp(m - t) + (exp(s - t) * V[j, d] if keep[i, j] else 0.0)
            m = t
        for d in range(0, D):
            O[i, d] = O[i, d] / ((1.5 + p) * l)
    return O
### a mask that is data
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      ok: Bool[Array, "M N"]):
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            S[i, j] = where(ok[i, j], sum(Q[i, e] * K[j, e] for e in range(0, E)), -inf)
            m[i] = max(m[i], S[i, j])
        for j in range(0, N):
            l[i] = l[i] + exp(S[i, j] - m[i])
        for j in range(0, N):
            for d in range(0, D):
                O[i, d] = O[i, d] + exp(S[i, j] - m[i]) / l[i] * V[j, d]
    return O
### normalized queries
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      g: Float[Array, "E"]):
    O = zeros((M, D))
    S = zeros((M, N))
    for i in range(0, M):
        r = sqrt(sum(Q[i, e] ** 2 for e in range(0, E)) + 0.001)
        m = -inf
        for j in range(0, N):
            S[i, j] = sum(Q[i, e] / r * g[e] * K[j, e] for e in range(0, E))
            m = max(m, S[i, j])
        l = 0.0
        for j in range(0, N):
            l = l + exp(S[i, j] - m)
        for d in range(0, D):
            for j in range(0, N):
                O[i, d] = O[i, d] + exp(S[i, j] - m) / l * V[j, d]
    return O
### one more logit, gated, the log-sum-exp returned
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      g: Float[Array, "M D"]):
    O = zeros((M, D))
    lse = zeros(M)
    for i in range(0, M):
        m = 0.0
        for j in range(0, N):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(0, E)) / sqrt(E))
        l = exp(-m)
        for j in range(0, N):
            p = exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) / sqrt(E) - m)
            l += p
            for d in range(0, D):
                O[i, d] += p * V[j, d]
        lse[i] = log(l) + m
        for d in range(0, D):
            O[i, d] = O[i, d] / l / (1.0 + exp(-g[i, d]))
    return O, lse
### dropped at random
def f(X: Float[Array, "M N"], p: float, seed: Seed):
    Y = zeros((M, N))
    for i in range(0, M):
        for j in range(0, N):
            Y[i, j] = X[i, j] / (3.0 - p) if uniform(seed, i, j) >= 0.5 else 0.0
    return Y
### loops backwards, in steps, and not from zero
def f(X: Float[Array, "M N"], w: Float[Array, "N"]):
    Y = zeros((M, N))
    y = zeros(M)
    z = zeros(N)
    for i in range(M - 1, -1, -1):
        for j in range(N - 1, -1, -1):
            Y[i, j] = X[i, j] * w[j]
        for j in range(0, N, 2):
            y[i] = y[i] + exp(Y[i, j]) * w[N - 1 - j]
        s = 0.0
        for j in range(1, N):
            s = s + sqrt(1.0 + X[i, j] ** 2)
        for j in range(1, N):
            z[j] = z[j] + X[i, j] / s
        for j in range(N - 1, 0, -2):
            z[j] = z[j] - Y[i, j - 1] * s
    for i in range(1, M):
        t = X[i, 0] * X[i - 1, 1]
        for j in range(0, N):
            z[j] = z[j] + t * Y[i, j]
    return y, z
### several at once, and a row
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    S = zeros((M, N))
    y = zeros(M)
    for i in range(M):
        a, b = Q[i, 0], Q[i, 1]
        for j in range(N):
            c = d = K[j, 0] * a
            S[i, j] = c * b + d
            y[i] += S[i, j] ** 2
    return S, y
### a label beside a running maximum, set once
def f(X: Float[Array, "M E"], W: Float[Array, "N E"], y: Int[Array, "M", "0:N"], eps):
    loss = zeros(M)
    for t in range(M):
        m = -inf
        l = 0.0
        s = 0.0
        zy = 0.0
        for v in range(N):
            z = sum(X[t, e] * W[v, e] for e in range(E))
            new = max(m, z)
            l = l * exp(m - new) + exp(z - new)
            m = new
            s = s + z
            if v == y[t]:
                zy = z
        loss[t] = m + log(l) - (1.0 - eps) * zy - eps * s / N
    return loss
### a row of a table, set once
def f(X: Float[Array, "M N"], W: Float[Array, "N E"], y: Int[Array, "M"]):
    O = zeros((M, E)); row = zeros(E)
    for t in range(M):
        s = 0.0
        for c in range(E):
            row[c] = 0.0
        for v in range(N):
            s += X[t, v]
            if v == y[t]:
                for e in range(E):
                    row[e] = W[v, e]
        for e in range(E):
            O[t, e] = row[e] * s
    return O
### sums that are read while they grow, of what the iteration has set
def f(x: Float[Array, "M N"], w: Float[Array, "N"], a: float):
    g = zeros((M, N)); y = zeros((M, N)); z = zeros(M)
    for i in range(M):
        c = 0.5
        k = 0.0
        for t in range(N):
            if t > 1:
                z[i] = z[i] + w[t] * exp(c)
            step = a * w[t]
            c = c + tanh(x[i, t]) * step
            k -= step * step
            g[i, t] = c
            y[i, t] = x[i, t] * exp(k)
        z[i] = z[i] * c
    return g, y, z
### sums that are read while they grow, counted from the end, in scores
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], w: Float[Array, "M"]):
    p = zeros((M, N)); S = zeros((M, N)); O = zeros((M, D))
    for i in range(M):
        c = 0.0
        for j in range(N - 1, 0, -1):
            p[i, j] = c * w[i]
            c += 1.0 / (1.0 + exp(-w[i] * K[j, 0]))
        m = -inf
        l = 0.0
        for j in range(N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(E)) + p[i, j] + c
            m = max(m, S[i, j])
        for j in range(N):
            l += exp(S[i, j] - m)
        for j in range(N):
            for d in range(D):
                O[i, d] += exp(S[i, j] - m) / l * V[j, d]
    return O
### places beside, counted from below zero, divided by the sum of their weights
def f(x: Float[Array, "N"], g: Float[Array, "N"], a: float):
    y = zeros(N)
    for i in range(N):
        total = 0.0
        for d in range(-2, 3):
            if i + d >= 0 and i + d < N:
                w = exp(a * d * d - (g[i] - g[i + d]) ** 2)
                total += w
                y[i] += w * x[i + d]
        y[i] = y[i] / total
    return y
### weights that ask whether their masked score is infinite
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            s = where(j <= i + 1, sum(Q[i, e] * K[j, e] for e in range(E)), -inf)
            new = max(m, s)
            a = where(m == -inf, 0.0, exp(m - new))
            p = where(s == -inf, 0.0, exp(s - new))
            l = a * l + p
            for d in range(D):
                O[i, d] = a * O[i, d] + p * V[j, d]
            m = new
        for d in range(D):
            O[i, d] = where(l > 0, O[i, d] / l, 0.0)
    return O
### an index in what is taken off
def f(S: Float[Array, "M N"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        l = 0.0
        for j in range(N):
            l += exp(S[i, j] - 0.5 * i)
            for d in range(D):
                O[i, d] += exp(S[i, j] - 0.5 * i) * V[j, d]
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
### divided by the square of a sum up to a length
def f(S: Float[Array, "M N"], n: Int[Array, "M", "1:N+1"]):
    O = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(n[i]):
            m = max(m, S[i, j])
        l = 0.0
        for j in range(n[i]):
            l += exp(S[i, j] - m)
        O[i] = S[i, 0] / (l * l)
    return O
### a score that is changed between its making and the softmax
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      y: Int[Array, "M", "0:N"]):
    S = zeros((M, N)); m = full(M, -inf); l = zeros(M); O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(E))
    for i in range(M):
        S[i, y[i]] = S[i, y[i]] * 2.0
    for i in range(M):
        for j in range(N):
            m[i] = max(m[i], S[i, j])
    for i in range(M):
        for j in range(N):
            l[i] += exp(S[i, j] - m[i])
    for i in range(M):
        for j in range(N):
            for d in range(D):
                O[i, d] += exp(S[i, j] - m[i]) / l[i] * V[j, d]
    return O
### a product that may be zero
def f(X: Float[Array, "M N"], w: Float[Array, "M"]):
    S = zeros((M, N))
    y = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            S[i, j] = exp(X[i, j]) * w[i]
            y[i] = y[i] + exp(X[i, j]) * w[i]
    return S, y
### pages and places in them, each with a name
def f(Q: Float[Array, "M E"], K: Float[Array, "G R E"], V: Float[Array, "G R"],
      table: Int[Array, "M T", "0:G"], n: Int[Array, "M", "1:T*R+1"], a: float, R: Const):
    O = zeros(M)
    for i in range(0, M):
        m = -inf
        l = 0.0
        for p in range(0, (n[i] + R - 1) // R):
            page = table[i, p]
            for t in range(0, R):
                j = p * R + t
                if j < n[i]:
                    s = a * sum(Q[i, e] * K[page, t, e] for e in range(0, E))
                    top = max(m, s)
                    l = l * exp(m - top) + exp(s - top)
                    O[i] = O[i] * exp(m - top) + exp(s - top) * V[page, t]
                    m = top
        O[i] = O[i] / l
    return O
### blocks of keys that are chosen for each row
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N"],
      chosen: Int[Array, "M G", "0:2"], R: Const):
    assert N == 2 * R
    O = zeros(M)
    for i in range(0, M):
        m = -inf
        l = 0.0
        for s in range(0, G):
            block = chosen[i, s]
            for t in range(0, R):
                j = block * R + t
                if j <= i + 2:
                    x = sum(Q[i, e] * K[j, e] for e in range(0, E))
                    top = max(m, x)
                    l = l * exp(m - top) + exp(x - top)
                    O[i] = O[i] * exp(m - top) + exp(x - top) * V[j]
                    m = top
        O[i] = O[i] / l if l > 0 else 0.0
    return O
### norms inside the loop over keys
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N"], a: float):
    O = zeros(M)
    for i in range(0, M):
        r = 1.0 / sqrt(sum(Q[i, e] * Q[i, e] for e in range(0, E)) + 0.1)
        m = -inf
        l = 0.0
        for j in range(0, min(N, i + 2)):
            k = 1.0 / sqrt(sum(K[j, e] * K[j, e] for e in range(0, E)) + 0.1)
            s = a * sum(Q[i, e] * r * K[j, e] * k for e in range(0, E))
            top = max(m, s)
            l = l * exp(m - top) + exp(s - top)
            O[i] = O[i] * exp(m - top) + exp(s - top) * V[j]
            m = top
        O[i] = O[i] / l
    return O
### a cell that is set twice under one guard
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N"]):
    O = zeros((M, N))
    for i in range(0, M):
        for j in range(0, N):
            if j <= i:
                O[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))
                O[i, j] = O[i, j] * V[j]
                for e in range(0, E):
                    O[i, j] += Q[i, e] * V[j]
    return O
### weights that are divided in place, under guards
def f(X: Float[Array, "M N"], V: Float[Array, "N"]):
    P = zeros((M, N))
    l = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            if j <= i:
                P[i, j] = exp(X[i, j] * V[j])
                l[i] += P[i, j]
        for j in range(0, N):
            if j <= i:
                P[i, j] = P[i, j] / l[i]
    return P
### a triangle of weights that is kept whole
def f(Q: Float[Array, "N E"], K: Float[Array, "N E"]):
    P = zeros((N, N))
    G = zeros((N, E))
    for i in range(N):
        for j in range(i + 1):
            P[i, j] = exp(sum(Q[i, e] * K[j, e] for e in range(E)))
    for i in range(N):
        r = sum(P[i, j] for j in range(i + 1))
        for j in range(i + 1):
            for e in range(E):
                G[i, e] += P[i, j] * r * K[j, e]
    return G
### keys in two loops, the first ones and a window behind them
def f(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D))
    for i in range(N):
        m = -inf
        l = 0.0
        for j in range(0, min(2, i + 1)):
            s = sum(Q[i, e] * K[j, e] for e in range(E))
            n = max(m, s)
            l = l * exp(m - n) + exp(s - n)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - n) + exp(s - n) * V[j, d]
            m = n
        for j in range(max(2, i - W), i + 1):
            s = sum(Q[i, e] * K[j, e] for e in range(E))
            n = max(m, s)
            l = l * exp(m - n) + exp(s - n)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - n) + exp(s - n) * V[j, d]
            m = n
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
"""
PAGED = "pages and places in them, each with a name"
CHOSEN = "blocks of keys that are chosen for each row"
WINDOWED = "a window, heads in groups, rotated inside the score"
LISTINGS = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in ALL.split("### ")[1:]}


def made_inputs(listing: Program, seed: int) -> tuple[dict[str, int], dict[str, Any]]:
    sizes = {p.name: SIZES.get(p.name, 7) for p in listing.parameters if p.is_integer}
    given = prepare(listing, sizes, None, seed)
    inputs: dict[str, Any] = {**given.arrays, **given.reals}
    return sizes, inputs


def handed_over(
    found: Backward, sizes: Mapping[str, int], inputs: Mapping[str, Any], seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the incoming gradients, and every argument of the backward listing."""
    forward = execute(found.forward, sizes=sizes, inputs=inputs)
    random_ = np.random.default_rng(seed)
    incoming = {name: random_.standard_normal(forward[name].shape) for name in found.of}
    arguments = {**inputs, **{found.incoming[name]: g for name, g in incoming.items()}}
    return incoming, arguments | {saved.name: forward[saved.name] for saved in found.saved}


def check(
    listing: Program, found: Backward, changes: Mapping[str, Any] | None = None, times: int = 2
) -> None:
    """Compare a backward listing with torch's autograd, at random inputs."""
    for seed in range(times):
        sizes, inputs = made_inputs(listing, seed)
        inputs |= changes or {}
        incoming, arguments = handed_over(found, sizes, inputs, seed)
        got = execute(found.program, sizes=sizes, inputs=arguments)
        want = gradients(listing, sizes, inputs, incoming)
        assert set(found.gradients) <= set(want)
        for name, gradient in found.gradients.items():
            np.testing.assert_allclose(got[gradient], want[name], rtol=1e-8, atol=1e-10)


# That the adjoint of its maximum vanishes is seen, and not proved.
TOO_MANY = ("a projection behind it, a window",)


@pytest.mark.parametrize("name", [name for name in LISTINGS if name.startswith("rotated")])
def test_rotations_inside_a_score_leave_matrix_products(name: str) -> None:
    """No score is stored, each nest works it out once, and what it adds to has a product's form."""
    found = backward(program(LISTINGS[name]))
    shapes = [n.creation.shape for n in nodes(found.program.body) if isinstance(n, Declaration)]
    assert not any({"M", "N"} <= {index_text(extent) for extent in shape} for shape in shapes)
    text = text_of(found.program)
    assert text.count("= exp(") == 2
    assert "for f in range(0, F) if j" not in text
    targets = [n.targets[0].array for n in nodes(found.program.body) if isinstance(n, Assign)]
    assert len([t for t in targets if t in found.gradients.values()]) == len(found.gradients)


def test_what_pages_share_is_added_up_for_each_row() -> None:
    """No program waits for all rows: how many pages there are is read, how many rows is not."""
    text = text_of(backward(program(LISTINGS[PAGED])).program)
    assert "da_part[i] = da_part[i] + " in text
    assert "da = da + da_part[i]" in text


def test_scores_of_chosen_keys_are_worked_out_again() -> None:
    """Though each key is read as an element that hangs on the row: there are not that many keys."""
    found = backward(program(LISTINGS[CHOSEN])).program
    text = text_of(found)
    assert text.count("= exp(") == 2 and "K[n, e]" in text
    assert not any(array.rank > 2 for array in found.arrays if array.role == "local")


def test_what_a_window_reads_is_worked_out_for_each_row() -> None:
    """Keys depend on the window only by where it ends, so their gradient is one product."""
    text = text_of(backward(program(LISTINGS[WINDOWED])).program)
    assert "dk1[g, j, f] = dk1[g, j, f] + dx" in text.replace("ds", "dx")
    assert text.count("= exp(") == 2


def test_what_waits_for_a_sum_stands_behind_the_nest_it_comes_from() -> None:
    """Of normalised keys: the mask does not part their norms from them, and scores come twice."""
    text = text_of(backward(program(LISTINGS["norms inside the loop over keys"])).program)
    assert text.count("= exp(") == 2
    assert "dQ[i, e] = dQ_sum[i, e] - " in text and "dK[j, e] = dK_sum[j, e] - " in text


@pytest.mark.parametrize("name", LISTINGS)
def test_gradients_are_those_of_autograd(name: str) -> None:
    listing = program(LISTINGS[name])
    found = backward(listing)
    changes = {}
    if name == "a product that may be zero":
        changes["w"] = np.zeros(SIZES["M"])
    if name == "a mask that is data":
        changes["ok"] = np.tril(np.ones((SIZES["M"], SIZES["N"]), dtype=bool))
    check(listing, found, changes)
    open_ = [step for step in found.steps if step.decision != "legal"]
    assert len(open_) == (name in TOO_MANY)
    for step in open_:
        (certificate,) = step.certificates
        assert step.decision == "unknown"
        assert certificate.reason.endswith("the sums are too many to compare")


PICKED = """
def f(X: Float[Array, "M N"], y: Int[Array, "M"], k: Int[Array, "N"], g):
    O = zeros(M)
    z = zeros(M)
    for t in range(M):
        x = 0.0
        for v in range(N):
            if v == y[t]:
                x = X[t, v]
        O[t] = x * x
    return O, z
"""


@pytest.mark.parametrize(
    ("old", "new", "arrays"),
    [
        ("", "", ("x",)),
        ("v == y[t]", "g > 0.0 and y[t] - 1 == v + t", ("x",)),
        ("if v == y[t]:\n                x = X[t, v]", "x = X[t, v] if v == y[t] else x", ("x",)),
        ("x = X[t, v]", "z[t] = X[t, v]", ("z",)),
        ("x = X[t, v]", "for e in range(M):\n                    z[e] = X[e, v]", None),
        ("v == y[t]", "v <= y[t]", None),
        ("v == y[t]", "v == k[v]", None),
        ("v == y[t]", "v == y[t] or v == 0", None),
        ("x = 0.0", "x = -1.0", None),
        ("x = X[t, v]", "x = x + X[t, v]", None),
        ("        O[t] = x", "        O[t] = x\n        x = 1.0\n        O[t] = x", None),
        ("x = 0.0\n        for", "for", None),
        ("    for t in range(M):\n        x = 0.0", "    x = 0.0\n    for t in range(M):", None),
    ],
)
def test_what_a_guard_lets_through_once_is_added(
    old: str, new: str, arrays: tuple[str, ...] | None
) -> None:
    """To the 0 that is there, where the guard holds in one iteration, and only there."""
    text = PICKED.replace(old, new)
    if "x = 0.0" not in text and "x = -1.0" not in text:
        text = text.replace("    z = zeros(M)\n", "    z = zeros(M)\n    x = 0.0\n    O[0] = x\n")
    listing = program(text)
    found = with_picks_added(listing)
    assert (found and found.arrays) == arrays
    if found is not None:
        for seed in range(3):
            sizes, inputs = made_inputs(listing, seed)
            got = execute(found.program, sizes=sizes, inputs=inputs)
            want = execute(listing, sizes=sizes, inputs=inputs)
            assert all(np.array_equal(got[name], want[name]) for name in want)


@pytest.mark.parametrize(("cleared", "arrays"), [("A[d, d]", None), ("A[d, 0]", ("A",))])
def test_a_diagonal_that_is_cleared_is_not_the_whole(
    cleared: str, arrays: tuple[str, ...] | None
) -> None:
    set_ = "for e in range(E): A[c, e]" if arrays is None else "A[c, 0]"
    found = with_picks_added(
        program(f"""
def f(X: Float[Array, "N E"], y: Int[Array, "M"]):
    A = full((E, E), 1.0); O = zeros((M, E))
    for t in range(M):
        for d in range(E):
            {cleared} = 0.0
        for v in range(N):
            if v == y[t]:
                for c in range(E):
                    {set_} = X[v, c]
        for d in range(E):
            O[t, d] = A[0, d]
    return O
""")
    )
    assert (found and found.arrays) == arrays


def test_what_needs_an_arg_max_receives_no_gradient_unless_asked() -> None:
    found = backward(program(LISTINGS["divided at the end, the state returned"]))
    assert found.of == ("O",)
    assert len(found.notes) == 2
    alone = backward(program(LISTINGS["the largest"]))
    assert alone.of == ("y",)
    assert "shared equally" in alone.notes[0]


def test_no_gradient_is_left_out_where_the_maximum_cancels_in_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That it is not shown to cancel is no reason to say that it does not."""
    gated = program(LISTINGS["one more logit, gated, the log-sum-exp returned"])
    assert backward(gated).of == ("O", "lse")
    assert not backward(gated).notes
    state = program(LISTINGS["divided at the end, the state returned"])
    monkeypatch.setattr(deriving, "_attains", lambda _, output, wrt: output != "l")
    with pytest.raises(NotDifferentiated, match="not shown to cancel; in numbers it does"):
        backward(state)


def test_what_hangs_on_the_largest() -> None:
    online, lengths = spec("flash_forward"), spec("attention_lengths")
    found = {name: hangs_on_extreme(online, name) for name in online.outputs}
    assert found == {"O": False, "m": True, "l": True}
    assert {hangs_on_extreme(lengths, name) for name in lengths.outputs} == {False}
    some = program("""
def of_some(at: Int[Array, "N", "0:K"], w: Float[Array, "N"], K: int):
    s = zeros(K)
    top = full(K, -inf)
    for n in range(0, N):
        s[at[n]] += w[n]
        top[at[n]] = max(top[at[n]], w[n])
    return s, top
""")
    # Of some rows there are no elements, and their maximum is that of nothing.
    assert {name: hangs_on_extreme(some, name) for name in some.outputs} == {
        "s": False,
        "top": True,
    }
    one = program("""
def one(x: Float[Array, "N"]):
    y = zeros(N); m = -inf
    for t in range(0, N):
        y[t] = 2.0 * x[t]
        m = max(m, x[t])
    return y, m
""")
    # The maximum of all is a number: what works it out stands outside of every loop.
    assert {name: hangs_on_extreme(one, name) for name in one.outputs} == {"y": False, "m": True}
    assert backward(one).of == ("y",)


def test_a_tie_of_the_largest_is_shared() -> None:
    listing = program(LISTINGS["the largest"])
    found = backward(listing)
    X = np.array([[1.0, 2.0, 2.0, 0.0]])
    got = execute(found.program, inputs={"X": X, "y": np.array([2.0]), "dy": np.array([3.0])})
    assert got["dX"].tolist() == [[0.0, 1.5, 1.5, 0.0]]


@pytest.mark.parametrize(("test", "dx"), [(">", [0.0, 7.0, 0.0]), (">=", [0.0, 1.0, 6.0])])
def test_of_equal_numbers_the_one_that_the_listing_takes_has_the_gradient(
    test: str, dx: list[float]
) -> None:
    listing = program(f"""
def f(x: Float[Array, "N"]):
    y = zeros(N)
    top = 0.5
    for t in range(N):
        if x[t] {test} top:
            top = x[t]
        y[t] = top
    return y
""")
    found = backward(listing)
    x, dy = np.array([0.0, 2.0, 2.0]), np.array([5.0, 1.0, 6.0])
    kept = np.array([0.5, 0.5, 2.0, 2.0])
    (name,) = (each.name for each in found.saved)
    assert execute(found.program, inputs={"x": x, "dy": dy, name: kept})["dx"].tolist() == dx


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'def f(x: Float[Array, "N"], w: Float[Array, "M"]):\n    h = zeros(N)\n'
            "    for t in range(0, M):\n        for i in range(1, N):\n"
            "            h[i] = h[i - 1] * w[t] + h[i] * x[i]\n    return h\n",
            "S1 looks at h\\[i - 1\\] in between",
        ),
        (
            'def f(x: Float[Array, "N"]):\n    for i in range(0, N):\n        s = x[i]\n'
            "    return s\n",
            "the last iteration",
        ),
        (
            'def f(x: Float[Array, "N"]):\n    for i in range(0, N):\n        x[i] = x[i] * 2.0\n',
            "first values are lost",
        ),
    ],
)
def test_what_is_refused_says_why(text: str, reason: str) -> None:
    with pytest.raises(NotDifferentiated, match=reason):
        backward(program(text))


def test_a_refusal_speaks_of_the_statements_of_the_listing() -> None:
    """Also where loops got closed forms before, and a step has named what it takes."""
    text = LISTINGS[PAGED].replace(
        "page = table[i, p]", "page = table[i, p]\n            b = a * m"
    )
    text = text.replace("s = a * sum", "s = b * sum")
    with pytest.raises(NotDifferentiated) as refusal:
        backward(program(text))
    labels = {n.label: assign_text(n) for n in nodes(program(text).body) if isinstance(n, Assign)}
    assert labels[refusal.value.label] == "b = a * m"
    assert "m is read as an earlier iteration of p left it" in refusal.value.reason


def test_an_array_that_is_called_as_a_label_is_no_label() -> None:
    within = program(
        "def f(X, S2, N):\n    for i in range(N):\n        a = X[i]\n        S2[i] = a\n"
    )
    other = program("def f(X, S2, N):\n    for i in range(N):\n        S2[i] = X[i]\n")
    assert relabelled("S1 sets S2[0]", within, other) == "`a = X[i]` sets S2[0]"


def test_what_is_summed_over_other_loops_has_a_nest_of_its_own() -> None:
    """A number that is summed over all rows would take the rows from what has one for each h."""
    found = backward(
        program("""
def f(S: Float[Array, "H M N"], V: Float[Array, "H N"], s: Float[Array, "H"], a: float, p: float):
    O = zeros((H, M))
    L = zeros((H, M))
    for h in range(0, H):
        for i in range(0, M):
            m = s[h]
            for j in range(0, N):
                m = max(m, a * S[h, i, j])
            l = exp(s[h] - m)
            for j in range(0, N):
                l = l + exp(a * S[h, i, j] - m)
            L[h, i] = m + log(l)
            for j in range(0, N):
                O[h, i] = O[h, i] + exp(a * S[h, i, j] - L[h, i]) / (1.0 - p) * V[h, j]
    return O, L
""")
    )
    nests = [
        {t.array for n in nodes((nest,)) if isinstance(n, Assign) for t in n.targets}
        for nest in found.program.body
        if isinstance(nest, Loop)
    ]
    (sinks,) = [written for written in nests if "ds" in written]
    assert "dp_part" in sinks
    assert "da" not in sinks
    check(found.listing, found)


def test_what_rows_share_is_summed_in_parts_where_they_take_no_more_room_than_an_argument() -> None:
    """The rows stay free: none waits for what another has added to a slope, or to W.

    A part of dW is summed without Q, which is the same throughout a row: it has one index less.
    """
    found = backward(
        program("""
def f(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N"],
      slopes: Float[Array, "B H"], W: Float[Array, "E E"]):
    O = zeros((B, H, M))
    for b in range(0, B):
        for h in range(0, H):
            for i in range(0, M):
                for j in range(0, N):
                    s = sum(
                        Q[b, h, i, e] * W[e, c] * K[b, h, j, c]
                        for e in range(0, E) for c in range(0, E)
                    )
                    O[b, h, i] = O[b, h, i] + tanh(s - slopes[b, h] * j) * V[b, h, j]
    return O
""")
    )
    shapes = {a.name: tuple(map(str, a.shape)) for a in found.program.arrays}
    assert len(shapes["dslopes_part"]) == 3
    assert len(shapes["dW_part"]) == 4
    check(found.listing, found)


@pytest.mark.parametrize(
    ("text", "arrays"),
    [
        (
            """
def f(K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D))
    for i in range(0, N):
        if i + 1 < N:
            s = sum(K[i, e] * K[i + 1, e] for e in range(0, E))
            for d in range(0, D):
                O[i, d] = tanh(s) * V[i + 1, d]
    return O
""",
            {"ds_sum"},
        ),
        (
            """
def f(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"], W: int):
    O = zeros((N, D))
    for i in range(0, N):
        for t in range(0, W):
            if i - 3 * t >= 0:
                s = sum(Q[i, e] * K[i - 3 * t, e] for e in range(0, E))
                for d in range(0, D):
                    O[i, d] = O[i, d] + exp(s) * V[i - 3 * t, d]
    return O
""",
            set(),
        ),
    ],
)
def test_nothing_is_read_beside_an_array(text: str, arrays: set[str]) -> None:
    """What is worked out for all rows beforehand stays where the listing's guards let it be.

    Scores of rows a distance apart are worked out again, as those of a query and a key are.
    """
    found = backward(program(text))
    made = {a.name for a in found.program.arrays if a.role != "input" and a.shape}
    assert made - set(found.gradients.values()) == arrays
    check(found.listing, found)


def test_a_factor_that_is_summed_up_to_an_index_has_no_name() -> None:
    """It would be no rectangle, and three sums would be nested where it is read."""
    found = backward(
        program("""
def f(Q: Float[Array, "M V"], K: Float[Array, "N V"], c: Float[Array, "V"], W: Float[Array, "N"]):
    assert V >= M
    O = zeros(M)
    for i in range(M):
        for j in range(N):
            u = sum((Q[i, e] * c[e] + 2.0) * K[j, e] for e in range(i))
            O[i] += tanh(u) * W[j]
    return O
""")
    )
    assert not [array.name for array in found.program.arrays if "factor" in array.name]
    check(found.listing, found)


def test_terms_that_cancel_are_summed_in_one_part() -> None:
    """`1 - tanh ** 2` stays one factor where a number for each row is summed in parts."""
    found = backward(
        program("""
def f(X: Float[Array, "B H N"], w: Float[Array, "H W"], s: Float[Array, "B H"]):
    O = zeros((B, H, N))
    for b in range(B):
        for h in range(H):
            for t in range(N):
                for k in range(W):
                    if t - k >= 0:
                        O[b, h, t] += w[h, k] * tanh(X[b, h, t - k] * s[b, h])
    return O
""")
    )
    assert [a.name for a in found.program.arrays if "_part" in a.name] == ["ds_part"]
    check(found.listing, found)


def test_a_score_is_capped_at_a_number_that_is_written_out() -> None:
    """`1 - tanh ** 2` stays, of which `30 - score ** 2 / 30` would be the rounding errors."""
    found = backward(
        program("""
def f(X: Float[Array, "M N"], V: Float[Array, "N"]):
    y = zeros((M,))
    for i in range(M):
        m = max(30.0 * tanh(X[i, j] / 30.0) for j in range(N))
        l = sum(exp(30.0 * tanh(X[i, j] / 30.0) - m) for j in range(N))
        for j in range(N):
            y[i] += exp(30.0 * tanh(X[i, j] / 30.0) - m) / l * V[j]
    return y
""")
    )
    assert "(1.0 - tanh(m_term_in) ** 2)" in text_of(found.program)
    check(found.listing, found)


def test_what_tanh_gives_is_gated_by_a_sum() -> None:
    """`(1 - f) * (1 - tanh ** 2)` stays, of whose terms the rounding errors would be left."""
    found = backward(
        program("""
def f(X: Float[Array, "T D"], F: Float[Array, "T D"]):
    h = zeros((T + 1, D))
    for t in range(T):
        for d in range(D):
            f = 1.0 / (1.0 + exp(-F[t, d]))
            h[t + 1, d] = f * h[t, d] + (1.0 - f) * tanh(X[t, d])
    return h
""")
    )
    assert "* (1.0 - h_tanh ** 2)" in text_of(found.program)
    check(found.listing, found)


def test_a_mask_that_is_added_bounds_the_nests() -> None:
    found = backward(
        program("""
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            s = Q[i] @ K[j] + (0.0 if j <= i else -inf)
            t = max(m, s)
            l = l * exp(m - t) + exp(s - t)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - t) + exp(s - t) * V[j, d]
            m = t
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
""")
    )
    assert text_of(found.program).count("if j <= i:") == 2


SET_ANEW = """
def f(X: Float[Array, "M N"], w: Float[Array, "N"], ok: Bool[Array, "M N"]):
    Y = full((M, N), 2.0)
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            if ok[i, j]:
                Y[i, j] = X[i, j] * w[j]
                m = max(m, Y[i, j])
        for j in range(N):
            if ok[i, j]:
                Y[i, j] = exp(Y[i, j] - m)
                l += Y[i, j]
        for j in range(N):
            if ok[i, j]:
                Y[i, j] = Y[i, j] / l
    return Y
"""


def test_an_array_that_is_set_anew_under_a_guard_is_read_as_what_was_set() -> None:
    """Its sums are those of exponentials, and their maximum cancels."""
    found = backward(program(SET_ANEW))
    assert all(step.decision == "legal" for step in found.steps)
    assert not found.notes
    ok = np.array([[True, False, True, True], [True] * 4, [False, True, False, True]])
    assert all(error < 1e-10 for error in gaps(found, 0, ok=ok))


TWO_BANKS = """
def f(Q: Float[Array, "M E"], K: Float[Array, "M E"], V: Float[Array, "M D"], W: int):
    O = zeros((M, D))
    for i in range(M):
        m = -inf; l = 0.0; o = zeros(D)
        for j in range(M):
            if j < 2 and j < i - W:
                s = Q[i] @ K[j]
                n = max(m, s)
                l = l * exp(m - n) + exp(s - n)
                for d in range(D): o[d] = o[d] * exp(m - n) + exp(s - n) * V[j, d]
                m = n
        for j in range(M):
            if i - W <= j and j <= i:
                s = Q[i] @ K[j]
                n = max(m, s)
                l = l * exp(m - n) + exp(s - n)
                for d in range(D): o[d] = o[d] * exp(m - n) + exp(s - n) * V[j, d]
                m = n
        for d in range(D): O[i, d] = o[d] / l
    return O
"""


def test_two_loops_under_masks_of_their_own_have_loops_of_their_own_and_one_delta() -> None:
    listing = program(TWO_BANKS)
    sizes = {"M": 7, "E": 2, "D": 3, "W": 2}
    found = backward(listing)
    text = text_of(found.program)
    assert "dO[i, d] * O[i, d]" in text and "1.0 if" not in text
    inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 0).arrays)
    forward = execute(found.forward, sizes=sizes, inputs=inputs)
    incoming = np.random.default_rng(0).standard_normal((7, 3))
    given = {**inputs, "dO": incoming}
    given |= {saved.name: forward[saved.name] for saved in found.saved}
    got = execute(found.program, sizes=sizes, inputs=given)
    random = np.random.default_rng(1)
    for name, gradient in found.gradients.items():
        way = random.standard_normal(inputs[name].shape)
        one, other = (
            execute(listing, sizes=sizes, inputs={**inputs, name: inputs[name] + step * way})["O"]
            for step in (1e-5, -1e-5)
        )
        slope = ((one - other) / 2e-5 * incoming).sum()
        np.testing.assert_allclose((got[gradient] * way).sum(), slope, atol=1e-8)


SLOPES = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], slope: float):
    O = zeros(M)
    for i in range(M):
        for j in range(N):
            far = i - j
            O[i] += far * sum(Q[i, e] * K[j, e] - slope * far for e in range(E))
    return O
"""


def test_an_index_under_a_name_is_a_number_as_well() -> None:
    found = backward(program(SLOPES))
    assert "far" not in text_of(found.program)
    assert set(found.gradients) == {"Q", "K", "slope"}
    assert all(error < 1e-10 for error in gaps(found, 0))


OVERLAPPING = """
def f(X: Float[Array, "N"], Y: Float[Array, "G N"], Z: Float[Array, "R"]):
    O = zeros(G)
    for g in range(G):
        for h in range(g * R, min(g * R + 2 * R, N)):
            O[g] = O[g] + X[h // R] * Y[g, h] * X[h]
    return O
"""


def test_a_loop_over_two_blocks_is_not_taken_for_one_over_its_first() -> None:
    found = backward(program(OVERLAPPING))
    assert "h // R" in text_of(found.program)


@pytest.mark.parametrize(("more", "is_wider"), [("", False), (" + 1e-6", True)])
def test_rows_that_nothing_visits_are_worked_out_only_where_nothing_is_infinite(
    more: str, is_wider: bool
) -> None:
    """The adjoint of a norm is multiplied by its power -3/2, in rows that no query sees, too."""
    text = f"""
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    assert M <= N
    O = zeros(M)
    for i in range(M):
        for j in range(1, i + 1):
            c = 1.0 / sqrt(sum(K[j, t] * K[j, t] for t in range(E)){more})
            O[i] += c * sum(Q[i, e] * K[j, e] for e in range(E))
    return O
"""
    found = backward(program(text))
    assert ("c_sum = zeros(N" in text_of(found.program)) == is_wider
    q, k = np.ones((3, 2)), np.ones((5, 2))
    k[3:] = 0.0
    given = execute(found.forward, inputs={"Q": q, "K": k})
    need = {a.name for a in found.program.arrays if a.role == "input"}
    known = {n: v for n, v in {"Q": q, "K": k, **given}.items() if n in need}
    got = execute(found.program, inputs={**known, "dO": np.ones(3)})
    assert not np.isnan(got["dK"]).any()
    assert not got["dK"][3:].any()


@pytest.mark.parametrize("weight", ["(n * X[i]) ** -2", "(n / X[i]) ** -1", "1 / (n ** 2 * X[i])"])
def test_what_a_power_is_divided_by_is_no_zero_in_rows_that_nothing_visits(weight: str) -> None:
    text = f"""
def f(X: Float[Array, "M"], K: Float[Array, "N T"]):
    O = zeros(M)
    for i in range(M):
        for j in range(max(0, i - 3), i + 1):
            n = sum(K[j, t] * K[j, t] for t in range(T))
            O[i] += {weight}
    return O
"""
    found = backward(program(text))
    x, k = np.ones(3), np.ones((5, 2))
    k[3:] = 0.0
    given = execute(found.forward, inputs={"X": x, "K": k})
    need = {a.name for a in found.program.arrays if a.role == "input"}
    known = {n: v for n, v in {"X": x, "K": k, **given}.items() if n in need}
    got = execute(found.program, inputs={**known, "dO": np.ones(3)})
    assert np.isfinite(got["dK"]).all() and not got["dK"][3:].any()


def test_a_gradient_whose_name_would_be_a_word_of_python_has_another_name() -> None:
    text = """
def f(ef: Float[Array, "N"], el: Float[Array, "N"]):
    O = zeros(N)
    for i in range(N):
        O[i] = exp(ef[i]) * el[i]
    return O
"""
    found = backward(program(text))
    assert found.program.outputs == ("def_2", "del_2")
    values = {"ef": np.array([0.5, -1.0]), "el": np.array([2.0, 3.0])}
    got = execute(found.program, inputs={**values, "dO": np.ones(2)})
    np.testing.assert_allclose(got["def_2"], np.exp(values["ef"]) * values["el"])
    np.testing.assert_allclose(got["del_2"], np.exp(values["ef"]))


def test_a_number_has_parts_of_heads_in_groups_and_of_rows_that_are_counted() -> None:
    """Else the rows of a sequence, and all its heads, would wait for each other."""
    listed = program("""
def f(Q: Float[Array, "B H*R T E"], K: Float[Array, "B H T E"], n: Int[Array, "B", "0:T+1"],
      scale: float, R: Const):
    O = zeros((B, H * R, T))
    for b in range(B):
        for h in range(H * R):
            for i in range(n[b]):
                for j in range(i + 1):
                    s = sum(Q[b, h, i, e] * K[b, h // R, j, e] for e in range(E))
                    O[b, h, i] += tanh(scale * s)
    return O
""")
    found = backward(listed)
    assert "dscale_part = zeros((B, H * R, T)" in text_of(found.program)
    check(listed, found)


def test_a_sum_of_what_is_the_opposite_of_an_array_is_done_first() -> None:
    """It is one with the sum of the array itself, and makes a matrix product as that does."""
    listed = program("""
def f(Q: Float[Array, "M 2 E"], K: Float[Array, "N 2 E"], V: Float[Array, "N D"],
      lam: float, c: float):
    O = zeros((M, D))
    acc = zeros((M, D))
    for i in range(M):
        m1 = -inf
        m2 = -inf
        for j in range(N):
            m1 = max(m1, sum(Q[i, 0, e] * K[j, 0, e] for e in range(E)))
            m2 = max(m2, sum(Q[i, 1, e] * K[j, 1, e] for e in range(E)))
        l1 = 0.0
        l2 = 0.0
        for j in range(N):
            l1 += exp(sum(Q[i, 0, e] * K[j, 0, e] for e in range(E)) - m1)
            l2 += exp(sum(Q[i, 1, e] * K[j, 1, e] for e in range(E)) - m2)
        for j in range(N):
            one = exp(sum(Q[i, 0, e] * K[j, 0, e] for e in range(E)) - m1) / l1
            two = exp(sum(Q[i, 1, e] * K[j, 1, e] for e in range(E)) - m2) / l2
            p = one - (lam + c) * two
            for d in range(D):
                acc[i, d] += p * V[j, d]
        r = sum(acc[i, d] ** 2 for d in range(D))
        for d in range(D):
            O[i, d] = acc[i, d] / sqrt(r + 1.0)
    return O
""")
    found = backward(listed)
    text = text_of(found.program)
    assert "sum(-" not in text
    for place in placed(found.program):
        if isinstance(place.node, Assign) and place.node.targets[0].array.startswith("dl"):
            assert "d" not in {loop.variable for loop in place.loops}
    check(listed, found)
