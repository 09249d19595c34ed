"""A derivative of several terms, each under a condition on data, is added up in one nest."""

from __future__ import annotations

from looptrans.adjoint.backward import backward
from looptrans.ir.listing import listing
from tests.analysis import program
from tests.test_adjoint_closed import gaps

LOGITS = """
def loss(Q: Float[Array, "M E"], K: Float[Array, "N E"], y: Float[Array, "M N"]):
    total = 0.0
    for i in range(0, M):
        for j in range(0, N):
            z = sum(Q[i, e] * K[j, e] for e in range(0, E))
            total += max(z, 0.0) - z * y[i, j] + log(1.0 + exp(-abs(z)))
    return total
"""


def test_products_are_worked_out_once_for_all_of_them() -> None:
    found = backward(program(LOGITS))
    text = listing(found.program)
    assert text.count("dQ[i, e] = dQ[i, e] + ") == 1
    assert text.count("dK[j, e] = dK[j, e] + ") == 1
    assert text.count("sum(Q[i, e] * K[j, e]") == 2
    assert max(gaps(found, 0)) < 1e-12
