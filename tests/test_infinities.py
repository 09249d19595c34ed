"""Tests whether something is an infinity stay, unless nothing hangs on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.derivation.derive import derive
from looptrans.derivation.step import Goal
from looptrans.executor import execute
from looptrans.ir.listing import listing as text_of
from tests.analysis import program

ONE_PASS = """
def f(X: Float[Array, "N"], B: Float[Array, "M N"]):
    R = zeros(M)
    for i in range(M):
        l = 0.0
        m = -inf
        for j in range(N):
            {}
        R[i] = l
    return R
"""
TWO_PASSES = """
def f(X: Float[Array, "N"], B: Float[Array, "M N"]):
    R = zeros(M)
    for i in range(M):
        l = 0.0
        m = -inf
        for j in range(N):
            m = max(m, B[i, j])
        k = m if m > -inf else 0.0
        for j in range(N):
            {}
        R[i] = l
    return R
"""
NEXT = "n = max(m, B[i, j]); "
SAVED = "k = 0.0 if n == -inf else n; "
# What an iteration does, and whether it can do without its test; then with how many passes.
CASES = {
    "a sum of other things": (ONE_PASS, "m = max(m, B[i, j]); l += X[j] if m > -inf else 0.0", []),
    "a sum until then": (ONE_PASS, "m = max(m, B[i, j]); l += X[j] if m == -inf else 0.0", []),
    "weights that are saved from nan": (
        ONE_PASS,
        f"{NEXT}{SAVED}l = l * exp(m - k) + exp(B[i, j] - k) * X[j]; m = n",
        ["guard"],
    ),
    "each weight with its own test": (
        ONE_PASS,
        f"{NEXT}l = (l * exp(m - n) if m > -inf else 0.0) + "
        "(exp(B[i, j] - n) if B[i, j] != -inf else 0.0); m = n",
        ["guard"],
    ),
    "other things in a second pass": (TWO_PASSES, "l += X[j] if m > -inf else 0.0", []),
    "weights in a second pass": (
        TWO_PASSES,
        "l += exp(B[i, j] - m) if m > -inf else 0.0",
        ["one pass", "guard"],
    ),
    "weights over what is saved from nan": (
        TWO_PASSES,
        "l += exp(B[i, j] - k) * X[j]",
        ["one pass", "guard"],
    ),
    "ones where there is nothing": (TWO_PASSES, "l += exp(B[i, j] - m) if m > -inf else 1.0", []),
}


@pytest.mark.parametrize("goal", ["fold", "forward"])
@pytest.mark.parametrize("case", CASES)
def test_a_test_goes_only_where_nothing_hangs_on_it(case: str, goal: Goal) -> None:
    listing, step, kinds = CASES[case]
    original = program(listing.format(step.replace("; ", "\n            ")))
    found = derive(original, goal)
    assert [step.kind for step in found.steps if step.kind in ("one pass", "guard")] == kinds
    assert ("blocks" in [step.kind for step in found.steps]) == (
        goal == "forward" and (bool(kinds) or listing == TWO_PASSES)
    )
    random = np.random.default_rng(0)
    for count in (0, 1, 5, 70):
        x, b = random.standard_normal(count), random.standard_normal((4, count))
        b[1] = -np.inf
        b[2, : (count + 1) // 2] = -np.inf
        b[3, random.random(count) < 0.5] = -np.inf
        inputs: dict[str, Any] = {"X": x, "B": b}
        wanted = execute(original, inputs=inputs)["R"]
        assert not np.isnan(wanted).any()
        result = execute(found.steps[-1].after, inputs=inputs)["R"]
        np.testing.assert_allclose(result, wanted, rtol=1e-9, atol=1e-9)


BLOCKS = """
def f(X: Float[Array, "N"], ok: Bool[Array, "M N"]):
    R = zeros(M)
    for i in range(M):
        l = 1.0
        m = -inf
        for j0 in range(0, N, 4):
            n = m
            b = 0.0
            for j in range(j0, min(j0 + 4, N)):
                if ok[i, j]:
                    n = max(n, X[j])
            for j in range(j0, min(j0 + 4, N)):
                if ok[i, j]:
                    b += exp(X[j] - n)
            if m > -inf:
                l = l * exp(m - n) + b
            else:
                l = b
            m = n
        R[i] = l
    return R
"""


def test_a_maximum_that_goes_on_from_another_may_be_of_nothing_too() -> None:
    original = program(BLOCKS)
    found = derive(original, "forward")
    assert {"one pass", "guard", "blocks"} <= {step.kind for step in found.steps}
    ok = np.random.default_rng(0).random((4, 9)) < 0.3
    ok[0], ok[1, :6], ok[2, 4:] = False, False, False
    inputs: dict[str, Any] = {"X": np.linspace(-3.0, 2.0, 9), "ok": ok}
    wanted = execute(original, inputs=inputs)["R"]
    result = execute(found.steps[-1].after, inputs=inputs)["R"]
    np.testing.assert_allclose(result, wanted, rtol=1e-12)


@pytest.mark.parametrize("same", [True, False])
def test_what_is_masked_in_a_maximum_is_masked_in_the_sum(same: bool) -> None:
    masked = "(X[j] if B[i, j] > 0.0 else -inf)"
    original = program(f"""
def f(X: Float[Array, "N"], B: Float[Array, "M N"]):
    R = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, {masked})
        l = 0.0
        for j in range(N):
            l += exp({masked if same else "X[j]"} - m)
        R[i] = l
    return R
""")
    found = derive(original, "forward")
    assert ("one pass" in [step.kind for step in found.steps]) == same
    b = np.array([[-1.0, -1.0, 1.0, -1.0, 1.0], [1.0] * 5])
    inputs: dict[str, Any] = {"X": np.linspace(-3.0, 2.0, 5), "B": b}
    wanted = execute(original, inputs=inputs)["R"]
    result = execute(found.steps[-1].after, inputs=inputs)["R"]
    np.testing.assert_allclose(result, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    "distance",
    ["x[j]", "2.0 * x[j] + b[j] - c", "x[j] - b[j]", "c * c * x[j]", "b[j] + x[j] / (c * c)"],
)
@pytest.mark.parametrize("mirrored", [False, True])
def test_softmin_of_distances_of_which_the_first_is_infinite(distance: str, mirrored: bool) -> None:
    """The least distance so far is inf then, and exp(inf - inf) is no number."""
    least, test = ("m = max(m, -({0}))", "exp(-({0}) - m)"), ("m = min(m, {0})", "exp(m - ({0}))")
    update, weight = (each.format(distance) for each in (least if mirrored else test))
    listing = program(f"""
def f(x: Float[Array, "N"], b: Float[Array, "N"], v: Float[Array, "N D"], c: float):
    o = zeros(D)
    m = {"-inf" if mirrored else "inf"}; l = 0.0
    for j in range(N): {update}
    for j in range(N): l += {weight}
    for j in range(N):
        for d in range(D): o[d] += {weight} / l * v[j, d]
    return o
""")
    found = derive(listing, "fold")
    assert "one pass" in {step.kind for step in found.steps}
    random = np.random.default_rng(0)
    x = random.standard_normal(5)
    x[[0, 3]] = np.inf
    inputs: dict[str, Any] = {
        "x": x,
        "b": random.standard_normal(5),
        "v": random.standard_normal((5, 2)),
        "c": 0.5,
    }
    want, have = (execute(each, inputs=inputs)["o"] for each in (listing, found.last))
    np.testing.assert_allclose(have, want, rtol=1e-12)
    assert np.isfinite(want).all()


ONLINE = """
def f(X: Float[Array, "M N"], V: Float[Array, "N"], ok: Bool[Array, "M N"]):
    R = zeros(M)
    for i in range(M):
        m = -inf; l = 0.0; o = 0.0
        for j in range(N):
            seen = j <= i + 2 and ok[i, j]
            x = X[i, j] if seen else -inf
            {update}
            p = exp(x - m) if {test} else 0.0
            l = l * c + p
            o = o * c + p * V[j]
        R[i] = o / l if l > 0.0 else 0.0
    return R
"""
UPDATES = (
    "n = max(m, x); c = exp(m - n) if n > -inf else 1.0; m = n",
    "n = max(m, x); c = exp(m - n) if m > -inf else 0.0; m = n",
    """c = 1.0
            if x > m:
                c = exp(m - x)
                m = x""",
)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("test", ["seen", "x > -inf"])
def test_a_weight_is_masked_as_its_score_is(update: str, test: str) -> None:
    original = program(ONLINE.format(update=update, test=test))
    found = derive(original, "forward")
    assert "blocks" in [step.kind for step in found.steps], found.notes
    random = np.random.default_rng(0)
    ok = random.random((4, 9)) < 0.5
    ok[0], ok[1, :2] = False, False
    x, v = random.standard_normal((4, 9)), random.standard_normal(9)
    inputs: dict[str, Any] = {"X": x, "V": v, "ok": ok}
    wanted = execute(original, inputs=inputs)["R"]
    result = execute(found.last, inputs=inputs)["R"]
    np.testing.assert_allclose(result, wanted, rtol=1e-12)
    assert np.isfinite(wanted).all() and wanted[0] == 0.0
    # Its gradient asks for no infinity, and works the weights out once for each result.
    gradient = text_of(backward(original).program)
    assert "inf" not in gradient and gradient.count("exp(") == 2, gradient


def test_a_weight_masked_as_no_score_is_keeps_its_choice() -> None:
    """What is left at -inf is another number, so the test says more."""
    text = ONLINE.format(update=UPDATES[0], test="seen").replace(
        "else 0.0\n            l", "else 2.0\n            l"
    )
    original = program(text)
    found = derive(original, "forward")
    ok = np.random.default_rng(0).random((4, 9)) < 0.5
    inputs: dict[str, Any] = {"X": np.ones((4, 9)), "V": np.linspace(0.0, 1.0, 9), "ok": ok}
    wanted = execute(original, inputs=inputs)["R"]
    np.testing.assert_allclose(execute(found.last, inputs=inputs)["R"], wanted, rtol=1e-12)
