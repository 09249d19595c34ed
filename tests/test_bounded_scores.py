"""Scores that are never infinite, and what else is added up beside their softmax, in one pass."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from looptrans.derivation.derive import derive
from looptrans.emit.listing import lowered
from looptrans.executor import execute
from tests.analysis import program

SCORES = {
    "as they are": "s = s + c[v]",
    "soft capped": "s = 30.0 * tanh((s + c[v]) / 30.0)",
    "cut off": "s = min(max(s + c[v], -5.0), 5.0)",
    "at least 0": "s = max(s, 0.0)",
    "sigmoid": "s = 1.0 / (1.0 + exp(-(s + c[v])))",
    "absolute": "s = abs(s - c[v])",
    "leaky": "s = s + c[v] if s + c[v] > 0.0 else 0.2 * (s + c[v])",
}
BESIDE = {
    "the label's": ("own = own + (s if v == y[t] else 0.0)", "own"),
    "their sum": ("own = own + s", "own"),
    "entropy": ("own = own * exp(m - m_new) + exp(s - m_new) * s", "own / l"),
}
LISTING = """
def loss(
    X: Float[Array, "T F"], W: Float[Array, "V F"], c: Float[Array, "V"], y: Int[Array, "T", "0:V"]
):
    found = zeros((T,))
    for t in range(0, T):
        if {guard}:
            m = -inf
            l = 0.0
            own = 0.0
            for v in range(0, V):
                s = sum(X[t, f] * W[v, f] for f in range(0, F))
                {score}
                m_new = max(m, s)
                l = l * exp(m - m_new) + exp(s - m_new)
                {beside}
                m = m_new
            found[t] = m + log(l) - {result}
    return found
"""


@pytest.mark.parametrize(("score", "beside"), [*product(SCORES, BESIDE)])
def test_one_pass_in_blocks(score: str, beside: str) -> None:
    """Blocks of which no iteration counts offer -inf, which such a score itself may never be."""
    added, result = BESIDE[beside]
    guard = "y[t] >= 1" if beside == "the label's" else "t >= 1"
    listing = program(LISTING.format(guard=guard, score=SCORES[score], beside=added, result=result))
    found = derive(listing, "fold")
    assert "guard" in [step.kind for step in found.steps] and not found.notes
    random = np.random.default_rng(0)
    shapes = {"X": (3, 2), "W": (4, 2), "c": (4,)}
    inputs: dict[str, Any] = {n: random.standard_normal(shape) for n, shape in shapes.items()}
    inputs["y"] = random.integers(0, 4, 3)
    want, mine = (execute(each, inputs=inputs)["found"] for each in (listing, found.last))
    np.testing.assert_allclose(mine, want, rtol=1e-12)
    assert not lowered(listing).notes
