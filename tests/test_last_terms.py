"""Folds that end with a term of their own begin with it, where that makes one pass of several."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.adjoint.rewriting.last_terms import with_last_terms_ahead
from looptrans.derivation.derive import derive
from looptrans.derivation.saved import recheck, saved
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing
from tests.analysis import program

SINKS = """
def sinks(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"],
          s: Float[Array, "H"]):
    O = zeros((H, M, D))
    for h in range(H):
        for i in range(M):
            m = -inf
            l = 0.0
            for j in range(N):
                m = max(m, sum(Q[h, i, e] * K[h, j, e] for e in range(E)))
            {m}
            for j in range(N):
                l += exp(sum(Q[h, i, e] * K[h, j, e] for e in range(E)) - m)
            {l}
            for j in range(N):
                for d in range(D):
                    x = sum(Q[h, i, e] * K[h, j, e] for e in range(E))
                    O[h, i, d] += exp(x - m) / {z} * V[h, j, d]
    return O
"""
SCALARS = SINKS.format(m="m = max(m, s[h])", l="l += exp(s[h] - m)", z="l")
NAMED = SINKS.format(m="m = max(m, s[h])", l="z = l + exp(s[h] - m)", z="z")
ARRAYS = """
def sinks(S: Float[Array, "M N"], V: Float[Array, "N D"], s: Float[Array, "M"]):
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            m[i] = max(m[i], S[i, j])
        m[i] = max(m[i], s[i])
        for j in range(N):
            l[i] += exp(S[i, j] - m[i])
        l[i] += exp(s[i] - m[i])
        for j in range(N):
            for d in range(D):
                O[i, d] += exp(S[i, j] - m[i]) / l[i] * V[j, d]
    return O, l
"""


@pytest.mark.parametrize("text", [SCALARS, NAMED, ARRAYS])
def test_a_sink_behind_the_scores_leaves_one_pass(text: str) -> None:
    found = derive(program(text), "fold")
    assert recheck(saved(found)) == ()
    assert [step.kind for step in found.steps].count("one pass") == 1
    after = found.steps[-1].after
    assert listing(after).count("for j in ") == 1
    for sizes in ({"N": 5}, {"N": 0}, {"N": 1}):
        known = {"H": 2, "M": 3, "E": 2, "D": 2, **sizes}
        known = {p.name: known[p.name] for p in program(text).parameters}
        inputs = prepare(program(text), known, None, 1).arrays
        before = execute(program(text), sizes=known, inputs=inputs)
        behind = execute(after, sizes=known, inputs=inputs)
        for name, value in before.items():
            np.testing.assert_allclose(behind[name], value, rtol=1e-12)


PASSES = """
def f(x: Float[Array, "N"], y: Float[Array, "N"], s: float):
    t = START
    for j in range(N):
        t += x[j]
        BESIDE
    BETWEEN
    t += TERM
    for j in range(N):
        y[j] = t * x[j]
    return t, y
"""


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({}, True),
        ({"START": "1.0"}, True),
        # Somebody looks at the sum on the way, or it is another thing that is done with it.
        ({"BESIDE": "y[j] = t"}, False),
        ({"BESIDE": "t = t * 2.0"}, False),
        ({"BETWEEN": "t = t * 2.0"}, False),
        ({"BETWEEN": "y[0] = t"}, False),
        # The loop sets what the term is made of.
        ({"TERM": "y[0]", "BESIDE": "y[j] = x[j]"}, False),
        ({"TERM": "t * s"}, False),
    ],
)
def test_only_a_term_that_may_stand_there_is_put_ahead(change: dict[str, str], moves: bool) -> None:
    text = PASSES
    for name, usual in (("START", "0.0"), ("BESIDE", ""), ("BETWEEN", ""), ("TERM", "s")):
        text = text.replace(name, change.get(name, usual))
    start = program(text)
    found = with_last_terms_ahead(start)
    assert (found is not None) == moves
    if found is not None:
        before, behind = (
            execute(each, sizes={"N": 4, "s": 0.25}) for each in (start, found.program)
        )
        np.testing.assert_allclose(behind["t"], before["t"], rtol=1e-12)


SHARED = """
def f(x: Float[Array, "M N"], s: Float[Array, "M"], y: Float[Array, "M N"]):
    t = zeros(M + 1)
    for i in range(M):
        for j in range(N):
            t[OWN] += x[i, j]
        t[OWN] += s[i]
        for j in range(N):
            y[i, j] = t[OWN]
    return t, y
"""


@pytest.mark.parametrize(("own", "begins"), [("i", "t[i] = s[i]"), ("0", "t[0] += s[i]")])
def test_what_was_added_before_is_kept(own: str, begins: str) -> None:
    """A cell that several iterations add to does not begin with a term."""
    found = with_last_terms_ahead(program(SHARED.replace("OWN", own)))
    assert found is not None
    assert begins in listing(found.program)


KEPT = """
def f(x: Float[Array, "M N"], s: Float[Array, "M"], y: Float[Array, "M N"]):
    t = zeros(M + 1)
    l = 0.0
    for i in range(M):
        BEGIN
        for j in range(N):
            CELL += x[i, j]
        END
        for j in range(N):
            y[i, j] = z
        BEHIND
    return t, y
"""


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        # The next row goes on with the sum, without the term that only z has.
        ({"CELL": "l", "END": "z = l + s[i]"}, False),
        ({"CELL": "l", "BEGIN": "if s[i] > 0.5: l = 0.0", "END": "z = l + s[i]"}, False),
        ({"CELL": "l", "BEGIN": "l = 0.0", "END": "z = l + s[i]"}, True),
        # A row sets where the next one begins.
        ({"CELL": "t[i]", "END": "t[i] += s[i]; z = t[i]", "BEHIND": "t[i + 1] = 3.0"}, True),
    ],
)
def test_what_rows_hand_on_is_kept(change: dict[str, str], moves: bool) -> None:
    text = KEPT
    for name in ("BEGIN", "CELL", "END", "BEHIND"):
        text = text.replace(name, change.get(name, ""))
    start = program(text)
    found = with_last_terms_ahead(start)
    assert (found is not None) == moves
    if found is not None:
        before, behind = (execute(p, sizes={"M": 4, "N": 3}) for p in (start, found.program))
        for name, value in before.items():
            np.testing.assert_allclose(behind[name], value, rtol=1e-12)
