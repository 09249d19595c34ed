"""Choices in one form, and updates of one cell by the term that a condition chooses."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from looptrans.derivation.derive import derive
from looptrans.derivation.forms.masks import with_guards
from looptrans.derivation.forms.selects import with_selects
from looptrans.derivation.step import Goal
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing as text_of
from looptrans.ir.program import If
from looptrans.ir.walk import nodes
from tests.analysis import program

LISTING = """
def f(X: Float[Array, "M N"], d: float):
    L = zeros(M)
    for i in range(M):
        for j in range(N):
            {body}
    return L
"""
UPDATES = [
    ("if X[i, j] <= d: L[i] += 1.0\n            else: L[i] += X[i, j]", "L[i] + (1.0 if"),
    ("if X[i, j] <= d: L[i] += 1.0\n            else: L[i] -= X[i, j]", "else -X[i, j])"),
    (
        "if X[i, j] > d: L[i] += 1.0\n            elif X[i, j] < -d: L[i] -= 2.0\n"
        "            else: L[i] += X[i, j]",
        "(1.0 if X[i, j] > d else -2.0 if X[i, j] < -d else X[i, j])",
    ),
    (
        "if X[i, j] > 0.0: L[i] = max(L[i], X[i, j])\n"
        "            else: L[i] = max(L[i], -2.0 * X[i, j])",
        "max(L[i], X[i, j] if X[i, j] > 0.0 else -2.0 * X[i, j])",
    ),
    # What is joined in different ways, or to different cells, or looks at the cell, stays.
    ("if X[i, j] > 0.0: L[i] += 1.0\n            else: L[i] = max(L[i], 2.0)", ""),
    ("if X[i, j] > 0.0: L[i] += 1.0\n            else: L[0] += 2.0", ""),
    ("if X[i, j] > 0.0: L[i] += 1.0\n            else: L[i] += 2.0 * L[i]", ""),
    # A condition on indices says where blocks are masked.
    ("if j <= i: L[i] += 1.0\n            else: L[i] += X[i, j]", ""),
]


@pytest.mark.parametrize(("body", "update"), UPDATES)
def test_updates_by_a_chosen_term_are_one(body: str, update: str) -> None:
    listing = program(LISTING.format(body=body))
    found = with_selects(listing)
    assert any(isinstance(node, If) for node in nodes(found.body)) == (not update)
    assert update in " ".join(text_of(found).split())
    inputs = {"X": np.random.default_rng(0).standard_normal((3, 5))}
    sizes = {"M": 3, "N": 5, "d": 0.4}
    want = execute(listing, sizes=sizes, inputs=inputs)["L"]
    np.testing.assert_array_equal(execute(found, sizes=sizes, inputs=inputs)["L"], want)


def test_masks_by_where_are_no_obstacle_to_one_pass() -> None:
    """Each goal reads `where(c, x, -inf)` as a choice, as it does `x if c else -inf`."""
    score = "where(doc[i] == doc[j], sum(Q[i, e] * K[j, e] for e in range(0, E)), -inf)"
    listing = program(f"""
def documents(
    Q: Float[Array, "M E"], K: Float[Array, "M E"], V: Float[Array, "M E"], doc: Int[Array, "M"]
):
    O = zeros((M, E))
    for i in range(0, M):
        m = -inf; l = 0.0
        for j in range(0, M):
            m = max(m, {score})
        for j in range(0, M):
            l += exp({score} - m)
        for j in range(0, M):
            s = {score}
            for e in range(0, E):
                O[i, e] += exp(s - m) / l * V[j, e]
    return O
""")
    for goal in get_args(Goal):
        names = [step.name for step in derive(listing, goal).steps]
        assert any(name.startswith("one pass instead of 3") for name in names), goal


MASKED = """
def masked(S: Float[Array, "M N"], V: Float[Array, "N D"], ok: Bool[Array, "M N"],
           seg: Int[Array, "N"], keep: Int[Array, "M N"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            m = max(m, S[i, j] if TEST else -inf)
        for j in range(N):
            l += exp(S[i, j] - m) if OTHER else 0.0
        for j in range(N):
            for d in range(D):
                O[i, d] += (exp(S[i, j] - m) / l if TEST else 0.0) * V[j, d]
    return O
"""


@pytest.mark.parametrize(
    ("test", "other", "passes"),
    [
        ("ok[i, j]", "ok[i, j]", 1),
        ("keep[i, j] != 0", "keep[i, j] != 0", 1),
        ("seg[i] == seg[j]", "seg[i] == seg[j]", 1),
        # Not the same keys: a row may have terms where it has no maximum. The sums are one pass.
        ("ok[i, j]", "keep[i, j] != 0", 2),
    ],
)
def test_a_mask_of_data_at_a_maximum_and_at_its_sums_is_one_guard(
    test: str, other: str, passes: int
) -> None:
    listing = program(MASKED.replace("TEST", test).replace("OTHER", other))
    found = derive(listing, "fold")
    assert text_of(found.last).count("for j in range(") == passes
    for sizes in ({"M": 3, "N": 5, "D": 2}, {"M": 2, "N": 2, "D": 1}):
        inputs = prepare(listing, sizes, None, 1).arrays
        want = execute(listing, sizes=sizes, inputs=inputs)["O"]
        have = execute(found.last, sizes=sizes, inputs=inputs)["O"]
        np.testing.assert_allclose(have, want, rtol=1e-12)


GUARDED = MASKED.replace(
    "            l += exp(S[i, j] - m) if OTHER else 0.0\n",
    "            if OTHER:\n                l += exp(S[i, j] - m)\n",
).replace(
    "            for d in range(D):\n"
    "                O[i, d] += (exp(S[i, j] - m) / l if TEST else 0.0)",
    "            if OTHER:\n              for d in range(D):\n"
    "                O[i, d] += exp(S[i, j] - m) / l",
)


@pytest.mark.parametrize(
    ("test", "other", "passes"),
    [("ok[i, j]", "ok[i, j]", 1), ("j < D or ok[i, j]", "j < D or ok[i, j]", 1)],
)
def test_a_mask_at_a_maximum_is_the_guard_of_its_sums(test: str, other: str, passes: int) -> None:
    """What is added up has its maximum taken off also where scores are too large for exp."""
    listing = program(GUARDED.replace("TEST", test).replace("OTHER", other))
    found = derive(listing, "fold")
    assert text_of(found.last).count("for j in range(") == passes
    inputs: dict[str, Any] = dict(prepare(listing, {"M": 3, "N": 5, "D": 2}, None, 1).arrays)
    inputs["S"] = 1000.0 * (1.0 + np.abs(inputs["S"]))
    want = execute(listing, inputs=inputs)["O"]
    np.testing.assert_allclose(execute(found.last, inputs=inputs)["O"], want, rtol=1e-12)


READ = """
def read(x: Float[Array, "N"], t: Float[Array, "N"], q: Int[Array, "N", "0:N"]):
    m = -inf
    l = 0.0
    for j in range(N):
        for d in range(q[j]):
            m = max(m, x[d] if t[q[j] - 1] > 0.0 else -inf)
            l += x[d] if t[q[j] - 1] > 0.0 else 0.0
    return m, l
"""


def test_a_mask_is_not_looked_up_where_its_loop_has_no_iteration() -> None:
    """t[-1] is no element, and none is asked for where q[j] is 0."""
    listing = program(READ)
    inputs = {"x": np.arange(3.0), "t": np.array([0.5, -1.0, 1.0]), "q": np.array([2, 0, 1])}
    have = execute(with_guards(with_selects(listing)), inputs=inputs)
    for name, want in execute(listing, inputs=inputs).items():
        np.testing.assert_array_equal(have[name], want)
