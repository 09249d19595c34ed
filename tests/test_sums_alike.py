"""Equal sums whose variables have other names are one number to every pass."""

import pytest

from looptrans.adjoint.rewriting.alike import with_sums_alike
from looptrans.derivation.derive import derive
from looptrans.ir.listing import listing
from tests.analysis import program

SUMS = """
def f(Q: Float[Array, "M C"], K: Float[Array, "N C"], V: Float[Array, "N C"]):
    O = zeros((M, C))
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, sum(Q[i, c] * K[j, c] for c in range(C)))
        l = 0.0
        for j in range(N):
            l += exp(sum(Q[i, x] * K[j, x] for x in range(C)) - m)
        for c in range(C):
            acc = 0.0
            for j in range(N):
                acc += exp(sum(Q[i, e] * K[j, e] for e in range(C)) - m) / l * V[j, c]
            O[i, c] = acc
    return O
"""

LOOPS = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    lse = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(N):
            s = 0.0
            for a in range(E):
                s += Q[i, a] * K[j, a]
            m = max(m, s)
        l = 0.0
        for j in range(N):
            s = 0.0
            for b in range(E):
                s += Q[i, b] * K[j, b]
            l += exp(s - m)
        lse[i] = m + log(l)
    return lse
"""


@pytest.mark.parametrize("text", [SUMS, LOOPS])
def test_the_passes_are_one(text: str) -> None:
    kinds = [step.kind for step in derive(program(text), "fold").steps]
    assert "sums alike" in kinds
    assert "one pass" in kinds


def test_no_name_of_a_loop_around_is_taken() -> None:
    found = with_sums_alike(program(SUMS))
    assert found is not None
    assert listing(found.program).count("sum(Q[i, x] * K[j, x] for x in range(0, C))") == 3


def test_a_new_name_where_every_loop_has_the_old_ones() -> None:
    text = """
def f(A: Float[Array, "N"]):
    y = zeros(N)
    for p in range(N):
        y[p] = sum(sum(A[q] * A[r] for r in range(q)) for q in range(N))
    for q in range(N):
        y[q] += sum(sum(A[p] * A[r] for r in range(p)) for p in range(N))
    return y
"""
    found = with_sums_alike(program(text))
    assert found is not None
    assert listing(found.program).count("sum(sum(A[q1] * A[r1] for r1 in range(0, q1))") == 2


def test_other_sums_stay_as_they_are() -> None:
    text = """
def f(A: Float[Array, "N N"]):
    y = zeros(N)
    for i in range(N):
        y[i] = sum(A[i, p] for p in range(N)) + sum(A[q, i] for q in range(N))
    return y
"""
    assert with_sums_alike(program(text)) is None
