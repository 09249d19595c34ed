"""Listings that break what a rule takes for granted: each rule looks a second time."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

import torch

import looptrans
from looptrans.adjoint.rewriting.divided import with_weights_divided
from looptrans.cli.main import main
from tests.analysis import program

# The logarithm is added to what the name held before; and the sum is one of two rows.
ADDED = """
def added(S: Float[Array, "M N"]):
    L = full(M, 0.5); l = zeros(M); P = zeros((M, N))
    for i in range(M):
        for j in range(N):
            l[i] += exp(S[i, j])
        L[i] += log(l[i])
        for j in range(N):
            P[i, j] = exp(S[i, j] - L[i])
    return P
"""
HALVES = """
def halves(S: Float[Array, "M N"]):
    L = zeros(M); l = zeros(M); P = zeros((M, N))
    for i in range(M):
        for j in range(N):
            l[i // 2] += exp(S[i, j])
        L[i] = log(l[i // 2])
    for i in range(M):
        for j in range(N):
            P[i, j] = exp(S[i, j] - L[i])
    return P
"""
# What the first iteration does not read is one summand of its gradient.
SUMMAND = """
def summand(x: Float[Array, "T D"]):
    h = zeros((T, D))
    for t in range(T):
        for d in range(D):
            if t == 0:
                h[t, d] = x[t, d]
            else:
                h[t, d] = tanh(h[t - 1, d]) * x[t, d]
    return h
"""
# Where K is 0 nothing is said of how many rows C has.
NOT_SAID = """
def not_said(C: Float[Array, "N 4"], E: Float[Array, "M K"], V: Float[Array, "M 4"]):
    y = zeros(K); z = zeros((M, M))
    for k in range(K):
        for i in range(M):
            y[k] += C[i, 0] * E[i, k]
    for i in range(M):
        for j in range(M):
            if i < N:
                z[i, j] = tanh(sum(C[i, e] * V[j, e] for e in range(4)))
    return y, z
"""
# What is worked out again in the backward pass has a name that is not the array's handed over.
CARRIED = """
def carried(F: Float[Array, "N"], x: Float[Array, "N K"]):
    c = zeros(N + 1); y = zeros((N, K))
    for t in range(N):
        c[t + 1] = tanh(c[t] + F[t])
    for i in range(N):
        for d in range(K):
            for j in range(i):
                y[i, d] += exp(c[i] - c[j + 1]) * x[j, d] * c[N]
    return y, c
"""
# What is read before a loop is not there for rows in which the loop has no iterations.
PREVIOUS = """
def previous(c: Float[Array, "N"], x: Float[Array, "N K"]):
    y = zeros((N, K))
    for i in range(N):
        for j in range(i):
            for d in range(K):
                y[i, d] += exp(c[i - 1] - c[j]) * x[j, d]
    return y
"""
# The last state has a gradient, and no x: what is multiplied by x is one summand of it.
LAST_STATE = """
def last_state(x: Float[Array, "N K"], W: Float[Array, "K K"]):
    h = zeros((N + 1, K)); y = zeros((N, K))
    for t in range(N):
        for d in range(K):
            h[t + 1, d] = sum(W[d, e] * h[t, e] for e in range(K)) * 0.5 + x[t, d]
    for i in range(N):
        for j in range(i + 1):
            for d in range(K):
                y[i, d] += tanh(h[i, d] - h[j, d]) * x[j, d]
    return y, h
"""
# What is worked out again for a row is so outside of the loop that the first row does not enter.
AGAIN = """
def again(x: Float[Array, "N K"], b: Float[Array, "K"]):
    h = zeros((N + 1, K)); y = zeros((N, K))
    for t in range(N):
        for d in range(K):
            h[t + 1, d] = (h[t, d] + b[d]) - x[t, d]
    for i in range(N):
        for j in range(i):
            for d in range(K):
                y[i, d] += tanh(h[i, d] - h[j, d]) * x[j, d]
    return y
"""
# Where K is 0, C is empty, and says nothing of how many rows D has.
EMPTY_SAYS_NOTHING = """
def empty_says_nothing(
    C: Float[Array, "P K"], D: Float[Array, "P E"], G: Float[Array, "M E"], V: Float[Array, "M"]
):
    w = zeros(M); y = zeros((M, M))
    for k in range(K):
        for i in range(M):
            w[i] += C[i, k]
    for i in range(M):
        for j in range(M):
            if i + j < P:
                y[i, j] += tanh(V[j] * sum(D[i, e] * G[i, e] for e in range(E)))
    return w, y
"""
# What is read before a loop is not there for rows in which the loop has no iterations: found by an
# integer, by a quotient, in a loop that begins below 0 or ends where an array says.
COUNTED = """
def counted(Q: Float[Array, "N"], n: Int[Array, "N", "0:2"], K: Float[Array, "N D"]):
    y = zeros((N, D))
    for i in range(N):
        for j in range(n[i]):
            for d in range(D):
                y[i, d] += Q[n[i] - 1] * K[j, d]
    return y
"""
HALF_BEFORE = """
def half_before(Q: Float[Array, "N"], K: Float[Array, "N D"]):
    y = zeros((N, D))
    for i in range(N):
        for j in range(i // 2):
            for d in range(D):
                y[i, d] += Q[i // 2 - 1] * K[j, d]
    return y
"""
LOOK_BACK = """
def look_back(Q: Float[Array, "N"], X: Float[Array, "N"]):
    y = zeros(N)
    for i in range(N):
        for t in range(i - 3, i):
            for j in range(0, t):
                y[i] += Q[t] * X[j]
    return y
"""
AS_FAR_AS = """
def as_far_as(Q: Float[Array, "N"], n: Int[Array, "B", "0:2*N+1"], X: Float[Array, "N"]):
    y = zeros(B)
    for b in range(B):
        for j in range(n[b]):
            for k in range(j, N):
                y[b] += Q[j] * X[k]
    return y
"""
# The first row reads no integer: neither does its gradient, nor what the integer would find.
PREVIOUS_FOUND = """
def previous_found(Q: Float[Array, "N"], at: Int[Array, "N", "1:N+1"], K: Float[Array, "N D"]):
    y = zeros((N, D))
    for i in range(N):
        for j in range(i):
            for d in range(D):
                y[i, d] += Q[at[i - 1] - 1] * K[j, d] * Q[at[j] - 1]
    return y
"""
LAST_FOUND = """
def last_found(
    Q: Float[Array, "N"], n: Int[Array, "B", "0:2"], K: Float[Array, "N D"], at: Int[Array, "N"]
):
    y = zeros((B, D))
    for b in range(B):
        for j in range(n[b]):
            for d in range(D):
                y[b, d] += Q[at[n[b] - 1]] * K[j, d]
    return y
"""
# What is handed over stands where its cell is found, which is no variable of the loop, and is not 0
# in cells that the loop leaves alone.
MIRRORED = """
def mirrored(u: Float[Array, "M"], N: int):
    t = zeros(M); y = zeros((N, M)); m = full(N, -inf); l = zeros(N)
    for i in range(1, M):
        for j in range(N):
            t[M - 1 - i] += u[i] * u[M - 1 - i]
    for i in range(1, N):
        for j in range(M):
            m[i] = max(m[i], exp(0.3 * t[j]))
        for j in range(M):
            l[i] += exp(exp(0.3 * t[j]) - m[i])
        for j in range(M):
            y[i, j] = exp(exp(0.3 * t[j]) - m[i]) / l[i]
    return y, t
"""
# What is added to all scores of a row has no gradient, and row 0, which sees nothing, no 0 / 0.
ROW_BIAS = """
def row_bias(u: Float[Array, "M"], w: Float[Array, "M"]):
    y = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(i):
            m = max(m, u[i] + w[j])
        l = 0.0
        for j in range(i):
            l += exp(u[i] + w[j] - m)
        for j in range(i):
            y[i] += exp(u[i] + w[j] - m) / l * w[j]
    return y
"""
# As many equal terms as there are keys are their number times one, but for no keys: 0 * inf.
EQUAL = """
def equal(u: Float[Array, "M"], N: int, K: int):
    y = zeros(M); m = full(M, -inf); l = zeros(M)
    for i in range(M):
        for j in range(K, N):
            m[i] = max(m[i], u[i])
        for j in range(K, N):
            l[i] += exp(u[i] - m[i])
        for j in range(K, N):
            y[i] += exp(u[i] - m[i]) / l[i]
    return y
"""
# An output that gradients are not worked out from has a gradient, and its length is asked for.
UNREAD = """
def unread(w: Float[Array, "N"], M: int):
    h = zeros((M, N)); t = zeros(M); s = zeros(N)
    for i in range(M):
        for j in range(1, N):
            h[i, j] = 0.5 * h[i, j - 1] + w[j] - w[j]
    for j in range(1, N):
        for i in range(M):
            t[i] += h[i, j]
    for i in range(N):
        for j in range(M):
            s[i] += tanh(t[j]) * t[j]
    return t, s
"""
VERIFIED = {
    "equal": (EQUAL, "M=2,N=0,K=0; M=2,N=3,K=1; M=2,N=2,K=3"),
    "row bias": (ROW_BIAS, "M=4; M=1"),
    "mirrored": (MIRRORED, "M=3,N=4; M=1,N=2"),
    "last found": (LAST_FOUND, "N=2,B=17,D=3; N=1,B=5,D=2"),
    "empty says nothing": (EMPTY_SAYS_NOTHING, "P=2,K=0,M=5,E=3; P=5,K=2,M=5,E=3"),
    "counted": (COUNTED, "N=19,D=3; N=1,D=2"),
    "half before": (HALF_BEFORE, "N=5,D=3; N=1,D=2"),
    "look back": (LOOK_BACK, "N=6; N=1"),
    "as far as": (AS_FAR_AS, "N=3,B=4; N=1,B=2"),
    "previous found": (PREVIOUS_FOUND, "N=5,D=3; N=1,D=2"),
    "last state": (LAST_STATE, "N=4,K=3; N=1,K=2"),
    "again": (AGAIN, "N=4,K=3; N=1,K=2"),
    "carried": (CARRIED, "N=4,K=3; N=1,K=2"),
    "previous": (PREVIOUS, "N=5,K=3; N=1,K=2"),
    "added": (ADDED, "M=3,N=5; M=1,N=1; M=2,N=0"),
    "summand": (SUMMAND, "T=4,D=3; T=1,D=2; T=0,D=2"),
    "not said": (NOT_SAID, "N=2,M=3,K=0; N=3,M=3,K=2"),
}


@pytest.mark.parametrize("name", VERIFIED)
def test_kernels_give_what_the_listing_gives(name: str, tmp_path: Path) -> None:
    text, sizes = VERIFIED[name]
    file = tmp_path / "listing.py"
    file.write_text(text)
    sets = [part for each in sizes.split(";") for part in ("--sizes", each.strip())]
    assert main(["verify", str(file), "--pass", "both", "--dtype", "float32", *sets]) == 0


@pytest.mark.parametrize("text", [ADDED, HALVES])
def test_a_logarithm_of_another_sum_is_not_divided_by(text: str) -> None:
    assert with_weights_divided(program(text)) is None


def test_an_output_that_is_not_read_has_a_gradient() -> None:
    function = looptrans.compile(UNREAD)
    w = torch.ones(4, requires_grad=True)
    t, s = function(w, 3)
    (found,) = torch.autograd.grad(t.sum() + s.sum(), [w])
    torch.testing.assert_close(found, torch.zeros(4))


def test_no_terms_are_not_fewer_than_none() -> None:
    text = 'def f(x: Float[Array, "M"], N: int):\n    y = zeros(M)\n    for i in range(M):\n'
    function = looptrans.compile(
        text + "        for j in range(N):\n            y[i] += x[i] * x[i]\n    return y\n"
    )
    x = torch.ones(2, requires_grad=True)
    (found,) = torch.autograd.grad(function(x, -2).sum(), [x])
    torch.testing.assert_close(found, torch.zeros(2))
