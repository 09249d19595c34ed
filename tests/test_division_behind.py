"""Sums whose terms divide by what an earlier pass finds: divided once, behind one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.derivation.derive import derive
from looptrans.emit.listing import emitted
from looptrans.executor import execute
from tests.analysis import program

# What stands before the second pass, in it, and behind it.
LISTING = """
def mean(s: Float[Array, "M N"], w: Float[Array, "N"], v: Float[Array, "N D"]):
    O = zeros((M, D))
    P = zeros((M, N))
    for i in range(0, M):
        l = 0.0
        for j in range(0, N):
            l += s[i, j] * w[j]
        n = max(abs(l), 1.0)
        BEFORE
        for j in range(0, N):
            p = TERM
            INSIDE
            for d in range(0, D):
                O[i, d] += p * v[j, d]
    return O, P
"""
# Term, statement before the loop and in it, and whether one pass comes of it.
CASES = {
    "a quotient": ("s[i, j] * w[j] / n", "n = n", "P[0, 0] = 0.0", True),
    "two divisors": ("s[i, j] / l * w[j] / n", "n = n", "P[0, 0] = 0.0", True),
    "under a condition": ("s[i, j] / n if j <= i else 0.0", "n = n", "P[0, 0] = 0.0", True),
    "negated": ("-(s[i, j] / n)", "n = n", "P[0, 0] = 0.0", True),
    "a root": ("s[i, j] / sqrt(n)", "n = n", "P[0, 0] = 0.0", True),
    "what the row begins with": ("s[i, j] / n", "O[i, 0] = 1.0", "P[0, 0] = 0.0", False),
    "kept": ("s[i, j] / n", "n = n", "P[i, j] = p", False),
    "a divisor that moves": ("s[i, j] / n", "n = n", "n = n + 1.0", False),
    "a divisor of each element": ("s[i, j] / (n + w[j])", "n = n", "P[0, 0] = 0.0", False),
    "a summand": ("s[i, j] / n + w[j]", "n = n", "P[0, 0] = 0.0", False),
}


@pytest.mark.parametrize("case", CASES)
def test_one_pass_gives_what_two_give(case: str) -> None:
    term, before, inside, is_one = CASES[case]
    lines = LISTING.replace("BEFORE", before).replace("INSIDE", inside).replace("TERM", term)
    if inside == "P[0, 0] = 0.0":
        lines = lines.replace("            P[0, 0] = 0.0\n", "")
    listing = program(lines.replace("        n = n\n", ""))
    found = derive(listing, "fold")
    assert any(step.kind == "division behind" for step in found.steps) == is_one
    assert any(step.name.startswith("one pass instead of 2") for step in found.steps) == is_one
    random = np.random.default_rng(0)
    for count in (0, 1, 5):
        inputs: dict[str, Any] = {
            "s": random.standard_normal((3, count)),
            "w": random.standard_normal(count),
            "v": random.standard_normal((count, 2)),
        }
        want, mine = (execute(each, inputs=inputs) for each in (listing, found.last))
        for name, value in want.items():
            np.testing.assert_allclose(mine[name], value, rtol=1e-12, err_msg=case)


NORMALIZED = """
def retention(
    Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"], decay: float
):
    O = zeros((N, D))
    for i in range(0, N):
        l = 0.0
        for j in range(0, i + 1):
            l += sum(Q[i, e] * K[j, e] for e in range(0, E)) * decay ** (i - j)
        for j in range(0, i + 1):
            w = sum(Q[i, e] * K[j, e] for e in range(0, E)) * decay ** (i - j) / max(abs(l), 1.0)
            for d in range(0, D):
                O[i, d] += w * V[j, d]
    return O
"""


def test_what_both_passes_add_up_is_worked_out_once() -> None:
    text = emitted(program(NORMALIZED)).text
    assert "one pass instead of 2" in text
    assert text.count("tl.dot(Q_ie") == text.count("for j_first in range(") == 2


NOTHING = """
def f(x: Float[Array, "M N"], v: Float[Array, "N"]):
    O = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            m = max(m, x[i, j])
        l = 0.0
        for j in range(0, N):
            l += exp(x[i, j] - m)
        z = DIVISOR
        for j in range(0, N):
            O[i] += exp(x[i, j] - m) / z * v[j]
    return O
"""


@pytest.mark.parametrize("divisor", ["l * (1.0 + exp(-m))", "l * exp(-m)", "l + l / N"])
def test_nothing_is_divided_where_the_divisor_of_nothing_is_no_number(divisor: str) -> None:
    """Without iterations l is 0 and exp(-m) infinite, and the listing does not divide."""
    listing = program(NOTHING.replace("DIVISOR", divisor))
    found = derive(listing, "fold")
    assert any(step.name.startswith("one pass") for step in found.steps)
    random = np.random.default_rng(0)
    for count in (0, 1, 5):
        inputs: dict[str, Any] = {
            "x": random.standard_normal((3, count)),
            "v": random.standard_normal(count),
        }
        want, mine = (execute(each, inputs=inputs) for each in (listing, found.last))
        np.testing.assert_allclose(mine["O"], want["O"], rtol=1e-12)


def test_what_is_taken_off_an_exponent_is_no_divisor() -> None:
    """exp(x) may be too large where exp(x - m) is not, though both passes are one without m."""
    listing = program("""
def f(x: Float[Array, "M N"], v: Float[Array, "N"], a: Bool[Array, "N"], b: Bool[Array, "N"]):
    O = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            m = max(m, x[i, j] if a[j] else -inf)
        l = 0.0
        for j in range(0, N):
            if b[j]:
                p = exp(x[i, j] - m)
                l += p
                O[i] += p * v[j]
        O[i] = O[i] / l
    return O
""")
    found = derive(listing, "fold")
    inputs = {
        "x": np.array([[1000.0, 1001.0, 999.0]]),
        "v": np.array([1.0, 2.0, 3.0]),
        "a": np.array([True, True, False]),
        "b": np.array([True, False, True]),
    }
    want, mine = (execute(each, inputs=inputs) for each in (listing, found.last))
    np.testing.assert_allclose(mine["O"], want["O"], rtol=1e-12)
