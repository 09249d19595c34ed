"""Listings that break what a rule takes for granted: each rule looks a second time."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from looptrans.adjoint.divided import with_weights_divided
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
VERIFIED = {
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
