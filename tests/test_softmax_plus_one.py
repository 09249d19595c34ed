"""A softmax whose sum has a term more, written with the maximum of the scores alone: one pass."""

from __future__ import annotations

import pytest

from looptrans.adjoint.backward import backward
from looptrans.emit.listing import emitted
from looptrans.ir.listing import listing
from tests.analysis import program
from tests.test_adjoint_listings import check

LISTING = """
def attention(
    Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], sink: float
):
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(0, E)) / sqrt(E))
        l = 0.0
        for j in range(0, N):
            l += exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) / sqrt(E) - m)
        z = l + MORE
        for j in range(0, N):
            p = exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) / sqrt(E) - m) / z
            for d in range(0, D):
                O[i, d] += p * V[j, d]
    return O
"""
HEADS = """
def attention(Q: Float[Array, "M H E"], K: Float[Array, "N H E"], V: Float[Array, "N H D"]):
    O = zeros((M, H, D))
    for h in range(0, H):
        for i in range(0, M):
            m = -inf
            for j in range(0, N):
                m = max(m, sum(Q[i, h, e] * K[j, h, e] for e in range(0, E)) / sqrt(E))
            l = 0.0
            for j in range(0, N):
                p = exp(sum(Q[i, h, e] * K[j, h, e] for e in range(0, E)) / sqrt(E) - m)
                l += p
                for d in range(0, D):
                    O[i, h, d] += p * V[j, h, d]
            for d in range(0, D):
                O[i, h, d] /= l + exp(-m)
    return O
"""


@pytest.mark.parametrize("more", ["exp(-m)", "exp(sink - m)", "2.0 * exp(-m) + exp(sink - m)"])
def test_what_the_sum_has_more_is_added_behind_the_pass(more: str) -> None:
    """Blocks of keys are taken in as in any softmax, and nothing is divided on the way.

    In lowest terms a row would be exp(x) / (1 + l * exp(m)), infinite over infinite from 88 on.
    """
    text = emitted(program(LISTING.replace("MORE", more))).text
    (kernel,) = text.split("@triton.jit\n")[1:]
    code = kernel.partition('"""\n')[2].partition("_config(")[0]
    assert "one pass instead of 3" in text
    assert "tl.dot(" in code
    assert "_sum(" not in code
    loops, _, behind = code.rpartition("        m = m_")
    assert " / (" not in loops
    assert " / (" in behind
    assert "tl.exp2(x" in loops or "tl.exp(x" in loops


def test_heads_may_stand_behind_rows() -> None:
    """The divisor has its numbers in the order of loops, not in that of the output: it is one."""
    text = listing(backward(program(HEADS)).program)
    assert "m_at" not in text
    assert text.count("exp(") == 2
    check(program(HEADS), backward(program(HEADS)))
