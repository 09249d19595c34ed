"""`break` at the start of a loop is a guard where no later iteration takes its test back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.executor import execute
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from tests.analysis import program

HEAD = "def f(x, n, N, k=None):\n"
TYPED = 'def f(x: Float[Array, "N"], n: Int[Array, "N"]):\n'
BODY = """    y = zeros(N)
    for i in range(N):
        {loop}
            if {leaves}: break
            y[i] += x[j]
    return y
"""


@pytest.mark.parametrize(
    ("loop", "leaves"),
    [
        ("for j in range(N):", "j > i"),
        ("for j in range(N):", "n[i] <= j or i + 2 < j"),
        ("for j in range(N):", "j >= n[i] and j > 1"),
        ("for j in range(1, N, 2):", "j >= 3"),
        ("for j in range(N - 1, -1, -1):", "j < i"),
        ("for j in range(N - 1, -1, -1):", "i >= j"),
        ("for j in range(N):", "j - N > i - 3"),
        ("for j in range(N):", "-j + 1 < 2 - (i + 1)"),
        ("for j in range(N - 1, -1, -1):", "i - j > 1"),
    ],
)
def test_a_break_that_no_later_iteration_takes_back_is_a_guard(loop: str, leaves: str) -> None:
    body = BODY.format(loop=loop, leaves=leaves)
    read = program(TYPED + body)
    assert "break" not in listing(read) and "if " in listing(read)
    given = {"x": np.arange(1.0, 6.0), "n": np.array([2, 0, 5, 9, -1])}
    space: dict[str, Any] = {"zeros": np.zeros}
    exec(HEAD + body, space)
    theirs = space["f"](**given, N=5)
    np.testing.assert_array_equal(execute(read, inputs=given)["y"], theirs)


@pytest.mark.parametrize(
    "lines",
    [
        ("x[i] = 0.0", "if j > i: break"),  # done in the iteration that ends the loop
        ("if j < i: break", "x[j] = 1.0"),  # later ones would go on
        ("if i - j > 0: break", "x[j] = 1.0"),
        ("if j - j > -i: break", "x[j] = 1.0"),
        ("if j > i - j: break", "x[j] = 1.0"),
        ("if j > k[i]: break", "k[i] = j"),  # what it is compared with changes
        ("if j > x.n: break", "x.n = j"),
        ("if j > i and i != 2 * j: break", "x[j] = 1.0"),
        ("if j > sum(x): break", "x[j] = 1.0"),
        ("if j > i:", "    x[j] = 2.0", "    break", "x[j] = 1.0"),
        ("break", "x[j] = 1.0"),
    ],
)
def test_a_break_that_is_no_guard_is_refused(lines: tuple[str, ...]) -> None:
    text = "def f(x, k, N):\n    for i in range(N):\n        for j in range(N):\n"
    text += "".join(f"            {line}\n" for line in lines) + "    return x\n"
    with pytest.raises(ListingError, match="break"):
        program(text)
