"""Passes over the same elements whose sums do not start from nothing, or change in between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.derivation.derive import derive
from looptrans.executor import execute
from looptrans.ir.listing import listing as text_of
from looptrans.ir.program import Loop
from tests.analysis import program

# What stands before the second pass, after it, what the third divides by, and how many become one.
CASES = {
    "a start that moves": ("l = exp(first - m)", "rest = 0.0", "l", 3),
    "a start that does not": ("l = exp(first - 1.0)", "rest = 0.0", "l", 2),
    "what it starts from has changed": ("s = 0.5 * s; l = exp(s - m)", "rest = 0.0", "l", 2),
    "changed between the passes": ("l = 0.0", "l = 2.0 * l + exp(first - m)", "l", 2),
    "a last term, put ahead": ("l = 0.0", "l = l + exp(first - m)", "l", 3),
    "another name for the sum": ("l = 0.0", "total = l + exp(first - m)", "total", 3),
    "one more": ("l = 0.0", "total = l + exp(-m)", "total", 3),
    "a root of the sum": ("l = 0.0", "total = sqrt(l + exp(first - m))", "total", 2),
    "a maximum of the sum": ("l = 0.0", "total = max(l, exp(first - m))", "total", 2),
    "a sum that is added to": ("l = 0.0", "total = l + exp(first)", "total", 3),
    "a name for what the sum was": ("l = 0.0; total = l + 2.0", "rest = 0.0", "total", 3),
}


@pytest.mark.parametrize("case", CASES)
def test_a_sum_starts_from_what_it_starts_from(case: str) -> None:
    before, after, divisor, joined = CASES[case]
    listing = program(f"""
def mean(x: Float[Array, "N"], v: Float[Array, "N"], first: float):
    s = first
    m = first
    o = 0.0
    for j in range(0, N):
        m = max(m, x[j])
    {before.replace("; ", chr(10) + "    ")}
    for j in range(0, N):
        l = l + exp(x[j] - m)
    {after}
    for j in range(0, N):
        o = o + exp(x[j] - m) / {divisor} * v[j]
    return o, l
""")
    found = derive(listing, "fold")
    names = [step.name for step in found.steps if step.name.startswith("one pass instead of")]
    assert names[:1] == [] if not joined else names[0].startswith(f"one pass instead of {joined}")
    random = np.random.default_rng(0)
    # In lowest terms there would be exponentials of elements alone: exp(900) is infinite.
    for count, scale in ((0, 1.0), (1, 1.0), (5, 1.0), (5, 900.0)):
        given = {"x": scale * random.standard_normal(count), "v": random.standard_normal(count)}
        for first in (-2.0, 3.0):
            inputs: dict[str, Any] = {**given, "first": first}
            want, mine = (execute(each, inputs=inputs) for each in (listing, found.last))
            for name, value in want.items():
                np.testing.assert_allclose(mine[name], value, rtol=1e-12, err_msg=case)


@pytest.mark.parametrize(("start", "first"), [("-1e30", 0), ("x[0]", 1), ("0.0", 0), ("-inf", 0)])
def test_a_maximum_that_is_chosen_is_one_from_any_start(start: str, first: int) -> None:
    """A block of iterations is joined to the state then, in place of one after the other."""
    listing = program(f"""
def online(x: Float[Array, "N"], v: Float[Array, "N"]):
    assert N >= 1
    m = {start}
    l = {float(first)}
    o = {f"v[0] * {float(first)}"}
    for j in range({first}, N):
        if x[j] > m:
            o = o * exp(m - x[j])
            l *= exp(m - x[j])
            m = x[j]
        l += exp(x[j] - m)
        o += v[j] * exp(x[j] - m)
    return o, l, m
""")
    found = derive(listing, "fold")
    (loop,) = [node for node in found.last.body if isinstance(node, Loop)]
    text = [text_of(found.last).count(word) for word in (" if x[j] > m", " if m < x[j]", "max(m, ")]
    assert text == [0, 0, 1]
    assert loop.variable == "j"
    random = np.random.default_rng(0)
    for scale in (1.0, 900.0):
        inputs = {"x": scale * random.standard_normal(7), "v": random.standard_normal(7)}
        want, mine = (execute(each, inputs=inputs) for each in (listing, found.last))
        for name, value in want.items():
            np.testing.assert_allclose(mine[name], value, rtol=1e-12)


@pytest.mark.parametrize("start", ["-1e30", "-inf"])
@pytest.mark.parametrize("guard", ["j <= i", "not j > i", "j % 2 == 0"])
def test_what_is_set_anew_under_a_guard_is_not_looked_at(start: str, guard: str) -> None:
    """S is multiplied where the maximum moves, and added to wherever the guard holds."""
    listing = program(f"""
def online(x: Float[Array, "M N"], v: Float[Array, "N D"]):
    S = zeros((M, D))
    for i in range(0, M):
        m = {start}
        l = 0.0
        for j in range(0, N):
            if {guard}:
                if x[i, j] > m:
                    l = l * exp(m - x[i, j])
                    for d in range(D):
                        S[i, d] *= exp(m - x[i, j])
                    m = x[i, j]
                l += exp(x[i, j] - m)
                for d in range(D):
                    S[i, d] += v[j, d] * exp(x[i, j] - m)
        for d in range(D):
            S[i, d] /= l
    return S
""")
    found = derive(listing, "fold")
    assert all(step.decision == "legal" for step in found.steps)
    assert "max(m, " in text_of(found.last) and " if x[i, j] > m" not in text_of(found.last)
    random = np.random.default_rng(0)
    inputs: dict[str, Any] = {
        "x": random.standard_normal((3, 5)),
        "v": random.standard_normal((5, 2)),
    }
    want, mine = (execute(each, inputs=inputs)["S"] for each in (listing, found.last))
    np.testing.assert_allclose(mine, want, rtol=1e-12)


def test_exponentials_of_a_sum_wait_until_all_of_it_is_there() -> None:
    """A maximum rises to what it is in the end; a sum may be far above that before."""
    listing = program("""
def decayed(g: Float[Array, "N"], v: Float[Array, "N"]):
    s = 0.0
    o = 0.0
    for j in range(0, N):
        s = s + g[j]
    for j in range(0, N):
        o = o + v[j] * exp(s)
    return o
""")
    found = derive(listing, "fold")
    assert not [step for step in found.steps if step.kind == "one pass"]
    assert any("not yet all of s" in note for note in found.notes)
    inputs = {"g": np.array([900.0, -900.0]), "v": np.array([1.0, 2.0])}
    assert execute(found.last, inputs=inputs)["o"] == 3.0
