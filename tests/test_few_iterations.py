"""Loops over a few numbers by which an array is read are written out, with an array for each."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.adjoint.rewriting.few_iterations import with_few_iterations
from looptrans.derivation.derive import derive
from looptrans.executor import execute
from looptrans.ir.listing import listing as text_of
from tests.analysis import program

LISTING = """
def f(X: Float[Array, "M N"]):
    s = {made}; y = zeros((M, N))
    for i in range(M):
        for k in {numbers}:
            for j in range(N):
                s[k, i] += X[i, j] ** (k + 1)
        for j in range(N):
            y[i, j] = X[i, j] * {read}
    return y{more}
"""
KEPT = {"made": "zeros((2, M))", "numbers": "range(2)", "read": "s[0, i] + s[1, i]", "more": ""}


def test_each_number_has_an_array_of_its_own() -> None:
    listing = program(LISTING.format(**KEPT))
    found = with_few_iterations(listing)
    assert found is not None and (found.loops, found.array) == (("k",), "s")
    text = text_of(found.program)
    assert "s[" not in text and "X[i, j] * s0[i] + s1[i]" in text
    assert text.index("s0[i] += X[i, j] **") < text.index("s1[i] += X[i, j] **")
    inputs = {"X": np.random.default_rng(0).standard_normal((3, 4))}
    want = execute(listing, inputs=inputs)["y"]
    np.testing.assert_array_equal(execute(found.program, inputs=inputs)["y"], want)


@pytest.mark.parametrize(
    "changed",
    [
        {"made": "zeros((9, M))", "numbers": "range(9)"},  # many
        {"numbers": "range(1)"},  # not all of them
        {"numbers": "range(1, -1, -1)"},  # in another order
        {"read": "sum(s[k, i] for k in range(2))"},  # by no number
        {"read": "(s[0, i] + sum(s[k, i] for k in range(2)))"},  # by a sum as well
        {"more": ", s"},  # returned
    ],
)
def test_loops_stay_where_the_array_is_found_in_another_way(changed: dict[str, str]) -> None:
    assert with_few_iterations(program(LISTING.format(**{**KEPT, **changed}))) is None


def test_statements_written_out_have_labels_of_their_own() -> None:
    """There are labels in the listing where something was done to it before."""
    listing = program("""
def f(Q: Float[Array, "Y E"]):
    g = zeros((3, Y)); o = zeros(Y); h = zeros((Y, 2))
    for i in range(Y):
        for a in range(3):
            for e in range(E):
                g[a, i] += Q[i, e] * (a + 1)
        g[2, i] = g[2, i] + g[0, i]
        for b in range(2):
            h[i, b] = g[1, i] * b + Q[i, 0]
        o[i] = g[2, i] * g[1, i] + h[i, 1] - h[i, 0]
    return o
""")
    found = derive(listing, "fold")
    assert found.steps and all(step.decision == "legal" for step in found.steps)
    inputs = {"Q": np.random.default_rng(0).standard_normal((3, 4))}
    want = execute(listing, inputs=inputs)["o"]
    np.testing.assert_allclose(execute(found.last, inputs=inputs)["o"], want, rtol=1e-12)
