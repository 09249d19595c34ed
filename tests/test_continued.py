"""Passes over keys in two parts, of which the second goes on where the first ends, are one."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from looptrans.derivation.as_a_row.continued import continued
from looptrans.derivation.derive import derive
from looptrans.derivation.saved import recheck, saved
from looptrans.derivation.step import NotDone
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing as text_of
from looptrans.ir.program import Program
from tests.analysis import program

# Softmax over near and far keys, or over a prefix and the rest, in three passes over each.
LISTING = """
def parts(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"], C: int,
          far: float):
    {says}
    O = zeros((N, D))
    for i in range(N):
        m = -inf; l = 0.0
        for j in range({first}): m = max(m, {one})
        for j in range({second}): m = max(m, {other})
        for j in range({first}): l += exp({one} - m)
        for j in range({second}): l += exp({other} - m)
        for j in range({first}):
            for d in range(D): O[i, d] += exp({one} - m) / l * V[j, d]
        for k in range({second}):
            for d in range(D): O[i, d] += exp({there} - m) / l * V[k, d]
    return O
"""
SCORE = "(Q[i] @ K[j])"
TO_C = {"first": "0, C", "second": "C, N", "says": "assert 0 <= C <= N"}
MOVING = {"first": "0, max(0, i - 1)", "second": "max(0, i - 1), i + 1", "says": ""}


def parts(one: str, other: str, bounds: dict[str, str]) -> Program:
    """Return the listing."""
    there = other.replace("[j]", "[k]")
    return program(LISTING.format(one=one, other=other, there=there, **bounds))


@pytest.mark.parametrize(
    ("one", "other", "bounds", "lines"),
    [
        (SCORE, f"{SCORE} - 0.5", TO_C, ["range(0, N)", "- (0 if j < C else 0.5)"]),
        (SCORE, SCORE, TO_C, ["range(0, N)"]),
        (SCORE, f"{SCORE} / far", {**TO_C, "says": ""}, ["range(min(0, C), max(C, N))"]),
        (f"far * {SCORE}", SCORE, MOVING, ["range(0, i + 1)", "(far if j < max(0, i - 1) else 1)"]),
        (SCORE, "(K[j] @ K[j])", TO_C, [" if j < C else "]),
    ],
)
def test_passes_over_both_parts_are_one(
    one: str, other: str, bounds: dict[str, str], lines: list[str]
) -> None:
    listing = parts(one, other, bounds)
    found = derive(listing, "fold")
    assert all(step.decision == "legal" for step in found.steps)
    assert recheck(saved(found)) == ()
    (step,) = (each for each in found.steps if each.kind == "continued")
    assert bool(step.certificates[0].assumptions) == bool(bounds["says"])
    last = text_of(found.last)
    assert last.count("for j in") == 1 and all(line in last for line in lines)
    for n, c in product((0, 1, 4), (0, 1, 3)):
        sizes = {"N": n, "C": min(c, n), "E": 2, "D": 2}
        inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
        given: dict[str, Any] = {"sizes": {**sizes, "far": 0.75}, "inputs": inputs}
        want = execute(listing, **given)["O"]
        np.testing.assert_allclose(execute(found.last, **given)["O"], want, rtol=1e-10)


@pytest.mark.parametrize(
    "changed",
    [
        {"second": "C + 1, N"},  # one key is left out
        {"second": "N - 1, C - 1, -1"},  # in another order
    ],
)
def test_other_parts_stay(changed: dict[str, str]) -> None:
    with pytest.raises(NotDone):
        continued(parts(SCORE, SCORE, {**TO_C, **changed}))
