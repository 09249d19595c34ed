"""Loops in steps and the blocks in them: counted, they have a backward pass that keeps states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.layouts.block_ends import within_ends
from looptrans.adjoint.layouts.digits import parted
from looptrans.adjoint.layouts.whole_digits import is_covered
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.derivation.handed_on.states import in_state
from looptrans.executor import execute, prepare
from looptrans.ir.affine import product, quotient, total
from looptrans.ir.index import Int, Param
from looptrans.ir.listing import listing
from looptrans.transforms.over_blocks.counted_blocks import with_blocks_counted
from tests.analysis import program
from tests.test_adjoint_closed import gaps

CHUNKED = """
def chunked(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D))
    S = zeros((E, D))
    for c in range(0, N, 4):
        for i in range(c, min(c + 4, N)):
            for d in range(D):
                O[i, d] = sum(Q[i, e] * S[e, d] for e in range(E))
                for j in range(c, i + 1):
                    O[i, d] += sum(Q[i, e] * K[j, e] for e in range(E)) * V[j, d]
        for e in range(E):
            for d in range(D):
                for j in range(c, min(c + 4, N)):
                    S[e, d] += K[j, e] * V[j, d]
    return O
"""
# A size as the width, and one that divides.
ANY_WIDTH = CHUNKED.replace('E"], K', 'E"], P: Const, K').replace("4", "P")
DIVIDES = CHUNKED.replace("    O = zeros", "    assert N % 4 == 0\n    O = zeros").replace(
    "min(c + 4, N)", "c + 4"
)
# Decay up to the last row of a chunk, which is where the sequence ends in the last one.
DECAYS = """
def decays(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
           G: Float[Array, "N"]):
    O = zeros((N, D))
    S = zeros((E, D))
    for c in range(0, N, 4):
        for i in range(c, min(c + 4, N)):
            for d in range(D):
                O[i, d] = exp(G[i]) * sum(Q[i, e] * S[e, d] for e in range(E))
                for j in range(c, i + 1):
                    O[i, d] += exp(G[i] - G[j]) * Q[i, 0] * K[j, 0] * V[j, d]
        for e in range(E):
            for d in range(D):
                S[e, d] = exp(G[min(c + 3, N - 1)]) * S[e, d]
                for j in range(c, min(c + 4, N)):
                    S[e, d] += exp(G[min(c + 3, N - 1)] - G[j]) * K[j, e] * V[j, d]
    return O
"""
# Two states that one loop adds to, and a pass over all rows behind.
TWO_STATES = """
def two_states(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D))
    den = full(N, 1.5)
    S = zeros((E, D))
    z = zeros(E)
    for c in range(0, N, 4):
        for i in range(c, min(c + 4, N)):
            den[i] = 2.0 + sum(Q[i, e] * z[e] for e in range(E))
            for d in range(D):
                O[i, d] = sum(Q[i, e] * S[e, d] for e in range(E))
        for j in range(c, min(c + 4, N)):
            for e in range(E):
                z[e] += K[j, e]
                for d in range(D):
                    S[e, d] += K[j, e] * V[j, d]
    for i in range(N):
        for d in range(D):
            O[i, d] = O[i, d] / (den[i] * den[i] + 1.0)
    return O
"""
EVERY_THIRD = """
def every_third(x: Float[Array, "N"], w: Float[Array, "N"]):
    y = zeros(N)
    for i in range(0, N, 3):
        y[i] = x[i] * w[i]
    for i in range(N):
        y[i] = y[i] + 0.5 * x[i]
    return y
"""
# The state fades in a nest of its own before it is added to.
FADES = """
def fades(q: Float[Array, "N E"], k: Float[Array, "N E"], v: Float[Array, "N D"],
          g: Float[Array, "N"]):
    o = zeros((N, D))
    S = zeros((E, D))
    for c in range(0, N, 4):
        for t in range(c, min(c + 4, N)):
            for r in range(D):
                o[t, r] = g[t] * sum(q[t, a] * S[a, r] for a in range(E))
        for a in range(E):
            for r in range(D):
                S[a, r] *= g[min(c + 3, N - 1)]
        for t in range(c, min(c + 4, N)):
            for a in range(E):
                for r in range(D):
                    S[a, r] += g[t] * k[t, a] * v[t, r]
    return o
"""
# What is made in blocks is added up over all rows.
ADDED_UP = CHUNKED.replace("def chunked", "def added_up").replace(
    "    return O",
    """    loss = 0.0
    for i in range(N):
        for d in range(D):
            loss += O[i, d] * O[i, d]
    return O, loss""",
)
IN_BLOCKS = [CHUNKED, ADDED_UP, ANY_WIDTH, DIVIDES, DECAYS, TWO_STATES, FADES, EVERY_THIRD]


@pytest.mark.parametrize("text", IN_BLOCKS, ids=lambda text: text.split("(")[0].split()[-1])
def test_listings_in_blocks_have_gradients(text: str) -> None:
    found = backward(program(text))
    assert all(step.decision == "legal" for step in found.steps)
    for n in (4, 8) if text == DIVIDES else (1, 3, 4, 9):
        assert max(gaps(found, n, {"N": n, "E": 2, "D": 3, "P": 3})) < 1e-9, n


@pytest.mark.parametrize("text", IN_BLOCKS, ids=lambda text: text.split("(")[0].split()[-1])
def test_counted_blocks_are_the_listing(text: str) -> None:
    listed = program(text)
    counted = with_blocks_counted(listed)
    assert counted is not None and with_blocks_counted(counted.program) is None
    assert counted.certificate.verdict == "legal"
    for n in (0, 4, 8) if text == DIVIDES else (0, 1, 5, 8):
        sizes = {p.name: n if p.name == "N" else 3 for p in listed.parameters if p.is_integer}
        inputs = prepare(listed, sizes, None, n)
        given: dict[str, Any] = {**inputs.arrays, **inputs.reals}
        want = execute(listed, sizes=sizes, inputs=given)
        got = execute(counted.program, sizes=sizes, inputs=given)
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)


def test_loops_that_do_not_begin_where_a_block_does_stay() -> None:
    overlapping = CHUNKED.replace("for j in range(c, min(c + 4, N))", "for j in range(c + 1, N)")
    counted = with_blocks_counted(program(overlapping))
    assert counted is not None
    text = listing(counted.program)
    assert "for j in range(4 * c + 1, N):" in text and "for i in range(0, 4):" in text


def test_whole_blocks_ask_for_no_end() -> None:
    blocks, rows = Param("C"), Param("N")
    assert is_covered(rows, quotient(total(rows, 3), 4), Int(4))
    assert not is_covered(product(4, blocks), blocks, Int(4))
    assert not is_covered(Int(16), Int(4), Int(4)) and is_covered(Int(15), Int(4), Int(4))


def test_a_pass_over_all_rows_asks_where_they_end() -> None:
    counted = with_blocks_counted(program(TWO_STATES))
    assert counted is not None
    view = parted(program(listing(counted.program)))
    assert view is not None
    seen = listing(view.program)
    assert "O = zeros(((N + 3) // 4, 4, D))" in seen
    assert seen.count("< N:") == 3  # rows, keys, and all rows behind


BEHIND = """
def behind(x: Float[Array, "N"], m: Float[Array, "N"], y: Float[Array, "C 4"]):
    t = zeros((C, 4))
    u = zeros(N)
    s = 0.0
    for c in range(C):
        for i in range(4):
            t[c, i] = t[c, i] + x[4 * c + i] * y[c, i]
            u[4 * c + i] = y[c, i]
            s = s + exp(m[4 * c + i]) + {read}
            if 4 * c + i + 2 < N:
                u[4 * c + i] = x[4 * c + i + 1] + 1.0
    return t, u, s
"""


def test_nothing_is_touched_behind_the_end() -> None:
    filled = program("def f(N: int):\n    m = full(N, 2.0)\n    return m\n")
    text = listing(within_ends(program(BEHIND.format(read="s")), {"x", "u", "m"}, filled))
    assert "if 4 * c + i < N:\n                t[c, i] = t[c, i] + x[4 * c + i] * y[c, i]" in text
    assert "if 4 * c + i < N:\n                u[4 * c + i] = y[c, i]" in text
    assert "s = s + exp(m[4 * c + i] if 4 * c + i < N else 2.0) + s" in text
    assert "                u[4 * c + i] = x[4 * c + i + 1] + 1.0" in text
    with pytest.raises(NotDifferentiated, match="u may be looked at behind its end"):
        within_ends(program(BEHIND.format(read="u[4 * c + i]")), {"x", "u", "m"}, filled)


def test_a_state_of_blocks_of_any_width_is_handed_on() -> None:
    forward = backward(program(ANY_WIDTH)).forward
    step = in_state(forward, "S_kept")
    assert "S_kept_state[d, e] for e in" in listing(step.after)
