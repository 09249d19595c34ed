"""Which variable of a sum comes last: the one that a matrix product sums over."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.rewriting.along_rows import with_sums_along_rows
from looptrans.executor.run import execute
from looptrans.ir.listing import listing
from tests.analysis import program

CONVOLUTION = """
def convolution(x: Float[Array, "C T+R-1"], w: Float[Array, "O C R"]):
    y = zeros((O, T))
    for o in range(O):
        for t in range(T):
            y[o, t] = sum(x[c, t + r] * w[o, c, r] for c in range(C) for r in range(R))
    return y
"""
# A guard that asks about a variable stays around what the variable's loop holds.
GUARDED = """
def guarded(y: Float[Array, "O T"], w: Float[Array, "O C R"]):
    x = zeros((C, T + R - 1))
    for c in range(C):
        for u in range(T + R - 1):
            for o in range(O):
                if o <= c:
                    for r in range(R):
                        if u - r >= 0:
                            if u - r < T:
                                x[c, u] += y[o, u - r] * w[o, c, r]
    return x
"""
BESIDE = GUARDED.replace("if o <= c", "if u >= c")
STAY = {
    "how far one goes the other says": CONVOLUTION.replace("range(R))", "range(c + 1))"),
    "terms with a condition": CONVOLUTION.replace("range(R))", "range(R) if t + r > 0)"),
    "the greatest": CONVOLUTION.replace("sum(", "max("),
    "a guard about it": GUARDED,
}


def run(text: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return execute(program(text), sizes={"C": 3, "T": 5, "R": 2, "O": 4}, inputs=inputs)


def test_a_sum_ends_with_what_both_factors_have_by_itself() -> None:
    made = with_sums_along_rows(program(CONVOLUTION))
    assert made is not None and made.loops == ("c",)
    text = listing(made.program)
    assert "for r in range(0, R) for c in range(0, C))" in text
    random = np.random.default_rng(0)
    inputs = {"x": random.normal(size=(3, 6)), "w": random.normal(size=(4, 3, 2))}
    assert np.allclose(run(text, inputs)["y"], run(CONVOLUTION, inputs)["y"])


def test_guards_about_other_variables_stand_around_it() -> None:
    made = with_sums_along_rows(program(BESIDE))
    assert made is not None and made.loops == ("o",)
    text = listing(made.program)
    lines = [line.strip() for line in text.splitlines() if "for " in line or "if " in line]
    assert lines[2:] == [
        "if u >= c:",
        "for r in range(0, R):",
        "if u - r >= 0:",
        "if u - r < T:",
        "for o in range(0, O):",
    ]
    random = np.random.default_rng(0)
    inputs = {"y": random.normal(size=(4, 5)), "w": random.normal(size=(4, 3, 2))}
    assert np.allclose(run(text, inputs)["x"], run(BESIDE, inputs)["x"])


@pytest.mark.parametrize("text", STAY.values(), ids=STAY.keys())
def test_others_stay_as_they_are(text: str) -> None:
    assert with_sums_along_rows(program(text)) is None


def test_the_gradient_of_a_convolution_goes_over_channels_too() -> None:
    made = with_sums_along_rows(backward(program(CONVOLUTION)).program)
    assert made is not None and "o" in made.loops


def test_what_more_factors_hang_on_is_not_what_two_are_multiplied_over() -> None:
    """Heads that each have a factor of their own stay outside of their elements."""
    text = """
def weighed(x: Float[Array, "M H P"], y: Float[Array, "N H P"], c: Float[Array, "M H"]):
    s = zeros((M, N))
    for i in range(M):
        for j in range(N):
            s[i, j] = sum(x[i, h, p] * y[j, h, p] * c[i, h] for h in range(H) for p in range(P))
    return s
"""
    assert with_sums_along_rows(program(text)) is None
