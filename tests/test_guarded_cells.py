"""Cells under a guard that says which iteration it is are found by the variable of the loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from looptrans.adjoint.rewriting.cells_in_steps import with_cells_set_once
from looptrans.adjoint.rewriting.guarded_cells import with_guarded_cells
from looptrans.cli.main import main
from looptrans.executor import execute
from looptrans.ir.listing import listing as text_of
from tests.analysis import program

# The forward sweep of Thomas' algorithm, with its first cell written as such.
SWEEP = """
def sweep(a: Float[Array, "M N"], c: Float[Array, "M N"]):
    p = zeros((M, N))
    for r in range(M):
        for i in range(N):
            if {guard}:
                p[r, 0] = {first}
            else:
                p[r, i] = c[r, i] / (3.0 - a[r, i] * p[r, i - 1])
    return p
"""


@pytest.mark.parametrize("guard", ["i == 0", "0 == i", "i == 0 and r < M"])
def test_the_cell_is_that_of_the_iteration(guard: str) -> None:
    listing = program(SWEEP.format(guard=guard, first="c[r, 0] / 3.0"))
    found = with_guarded_cells(listing)
    assert found is not None and found.arrays == ("p",)
    assert "p[r, i] = c[r, 0] / 3.0" in text_of(found.program)
    draw = np.random.default_rng(0)
    inputs = {name: draw.uniform(-1.0, 1.0, (3, 5)) for name in ("a", "c")}
    want = execute(listing, inputs=inputs)["p"]
    np.testing.assert_array_equal(execute(found.program, inputs=inputs)["p"], want)


def test_a_choice_says_so_as_well() -> None:
    first = "p[r, 0] + (p[r, 0] if i == 0 else 1.0)"
    text = SWEEP.format(guard="i < 1", first=first).replace("p[r, 0] =", "p[r, i] =")
    found = with_guarded_cells(program(text))
    assert found is not None
    assert "p[r, 0] + (p[r, i] if i == 0 else 1.0)" in text_of(found.program)


@pytest.mark.parametrize(
    ("guard", "first"),
    [
        ("i <= 0", "c[r, 0]"),
        ("i == 0 or r == 1", "c[r, 0]"),
        ("i == 1", "c[r, 0]"),
    ],
)
def test_other_guards_say_nothing(guard: str, first: str) -> None:
    assert with_guarded_cells(program(SWEEP.format(guard=guard, first=first))) is None


def test_a_tridiagonal_system_has_kernels_of_both_passes(tmp_path: Path) -> None:
    back = """        for i in range(N - 1, -1, -1):
            if i == N - 1:
                x[r, N - 1] = p[r, i]
            else:
                x[r, i] = p[r, i] - a[r, i] * x[r, i + 1]
    return x
"""
    text = SWEEP.format(guard="i == 0", first="c[r, 0] / 3.0").replace("    return p\n", back)
    file = tmp_path / "listing.py"
    file.write_text(text.replace("p = zeros((M, N))", "p = zeros((M, N)); x = zeros((M, N))"))
    sizes = ["--sizes", "M=3,N=5", "--dtype", "float32"]
    assert main(["verify", str(file), "--pass", "both", *sizes]) == 0


# A scan whose cells are set in two steps, the second of which not every iteration takes.
SCAN = """
def scan(x: Float[Array, "T C"], a: Float[Array, "T C"], new: Bool[Array, "T"]):
    h = zeros((T, C))
    for t in range(T):
        for c in range(C):
            {steps}
    return h
"""
ADDED = """h[t, c] = x[t, c]
            if {guard}:
                h[t, c] += a[t, c] * h[t - 1, c]"""
CHOSEN = """if {guard}:
                h[t, c] = x[t, c] + a[t, c] * h[t - 1, c]
            else:
                h[t, c] = x[t, c]"""


@pytest.mark.parametrize(
    ("steps", "guard"),
    [(ADDED, "t > 0"), (ADDED, "t > 0 and not new[t]"), (CHOSEN, "t > 0 and not new[t]")],
)
def test_what_is_set_in_steps_is_set_once(steps: str, guard: str, tmp_path: Path) -> None:
    text = SCAN.format(steps=steps.format(guard=guard))
    listing = program(text)
    found = with_cells_set_once(listing)
    assert found is not None and found.arrays == ("h",)
    assert text_of(found.program).count("h[t, c] =") == 1
    draw = np.random.default_rng(0)
    inputs = {name: draw.uniform(-1.0, 1.0, (5, 3)) for name in ("x", "a")}
    inputs["new"] = np.array([False, False, True, False, False])
    want = execute(listing, inputs=inputs)["h"]
    np.testing.assert_array_equal(execute(found.program, inputs=inputs)["h"], want)
    file = tmp_path / "listing.py"
    file.write_text(text)
    sizes = ["--sizes", "T=5,C=3", "--dtype", "float32"]
    assert main(["verify", str(file), "--pass", "both", *sizes]) == 0


@pytest.mark.parametrize(
    "steps",
    [
        CHOSEN.format(guard="t > 0"),
        ADDED.format(guard="t > 0").replace("h[t - 1, c]", "h[t - c, c]"),
        ADDED.format(guard="t > 0").replace("h[t, c] = x[t, c]", "h[t, c] += x[t, c]"),
        ADDED.format(guard="t > 0").replace("h[t, c] = x", "if t > 1: h[t, c] = x"),
        ADDED.format(guard="t > 0").replace("h[t - 1, c]", "a[t - 1, c]"),
    ],
)
def test_steps_that_may_meet_another_cell_or_none_stay(steps: str) -> None:
    assert with_cells_set_once(program(SCAN.format(steps=steps))) is None
