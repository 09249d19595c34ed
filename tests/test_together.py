"""What stands beside the sum of a row wherever it is read goes into the sum."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.adjoint.equations.together import with_rows_together
from looptrans.executor import execute_on, prepare
from looptrans.ir.listing import listing
from tests.analysis import program

ROWS = """
def f(A: Float[Array, "M N"], s: Float[Array, "{extent}"], u: Float[Array, "M"]):
    t = {zeros}; Z = zeros((M, N)); w = zeros(M)
    for i in range({rows}):
        for j in range(N):
            t[i] = t[i] + A[i, j] * A[i, j]{inside}
    for i in range(M):
        for j in range(N):
            Z[i, j] = {value}{after}
    return {outputs}
"""


def rows(**parts: str) -> str:
    usual = {
        "extent": "M",
        "zeros": "zeros(M)",
        "rows": "M",
        "inside": "",
        "after": "",
        "outputs": "Z, w",
    }
    return ROWS.format(**{**usual, **parts})


@pytest.mark.parametrize(
    ("value", "sum_", "left"),
    [
        ("A[i, j] * (A[i, j] + s[i] - t[i])", "t[i] - s[i]", "A[i, j] * (A[i, j] - t[i])"),
        ("exp(t[i] - A[i, j] - s[i])", "t[i] - s[i]", "exp(t[i] - A[i, j])"),
        ("s[i] + (A[i, j] + t[i]) * 2.0", "", ""),
        ("s[i] + A[i, j] + t[i]", "t[i] + s[i]", "A[i, j] + t[i]"),
        ("-(s[i] + A[i, j]) - t[i]", "t[i] + s[i]", "-A[i, j] - t[i]"),
        ("s[i] + A[i, j] + t[i] + s[i]", "t[i] + s[i]", "A[i, j] + t[i] + s[i]"),
        (
            "s[i] - t[i] + A[i, j] * (s[i] - t[i] - A[i, j])",
            "t[i] - s[i]",
            "-t[i] + A[i, j] * (-t[",
        ),
        ("(u[i] + A[i, j] - t[i]) * (u[i] - s[i] - t[i])", "t[i] - u[i]", "(A[i, j] - t[i]) * "),
    ],
)
def test_what_goes_into_the_sum(value: str, sum_: str, left: str) -> None:
    before = program(rows(value=value))
    found = with_rows_together(before)
    if not sum_:
        assert found is None
        return
    assert found is not None
    text = listing(found.program)
    assert f"t[i] = {sum_}\n" in text
    assert f"Z[i, j] = {left}" in text
    assert {c.verdict for c in found.certificates} == {"legal"}
    given = prepare(before, {"M": 3, "N": 4}, None, 0)
    expected, got = (execute_on(each, given) for each in (before, found.program))
    np.testing.assert_allclose(got["Z"], expected["Z"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("why", "parts"),
    [
        ("another read stands alone", {"after": "\n            w[i] = w[i] + t[i] * A[i, j]"}),
        ("it is returned", {"outputs": "Z, t"}),
        ("it is an integer", {"zeros": "zeros(M, int)", "inside": "  # rounded"}),
        ("what stands beside it is shorter", {"extent": "L"}),
        (
            "another row of it is read before that is complete",
            {"inside": "\n        w[i] = A[i, 0] + s[M - 1 - i] - t[M - 1 - i]"},
        ),
        ("not all rows are summed", {"rows": "M - 1"}),
        (
            "it is read before it is complete",
            {"inside": "\n            w[i] = A[i, j] + s[i] - t[i]"},
        ),
        ("what stands beside it is another row's", {"value": "A[i, j] + s[M - 1 - i] - t[i]"}),
        ("what stands beside it is computed", {"value": "A[i, j] + w[i] - t[i]"}),
        (
            "it is read in a condition too",
            {"value": "(A[i, j] + s[i] - t[i] if t[i] > 0.0 else 0.0)"},
        ),
    ],
)
def test_what_stays(why: str, parts: dict[str, str]) -> None:
    value = {"value": "A[i, j] + s[i] - t[i]"}
    assert with_rows_together(program(rows(**{**value, **parts}))) is None, why
