"""Integer scalars that stand in bounds and guards, in what transformations print."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.executor import execute_on, prepare
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.transforms.script import apply_all
from tests.steps import read


def after(text: str, script: str) -> tuple[Program, str]:
    step = apply_all(read(text), script)[-1]
    assert step.verdict.decision == "legal"
    assert read(listing(step.after)) == step.after
    return read(text), listing(step.after)


def assert_same(before: Program, printed: str) -> None:
    """The text means what the listing meant, read by itself."""
    for sizes in ({"N": 1}, {"N": 4}):
        inputs = prepare(before, sizes, seed=0)
        expected = execute_on(before, inputs)
        actual = execute_on(read(printed), inputs)
        assert list(actual) == list(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(actual[name], values)


APART = {
    "a guard": (
        """
        def f(A: Float[Array, "N"], B: Float[Array, "N"]):
            s = 0
            for i in range(0, N):
                s = i
                if s > 0:
                    A[i] = 1.0
                B[i] = A[i] * 2.0
            return A, B
        """,
        "distribute(i)",
        "if i > 0:",
    ),
    "a bound": (
        """
        def f(A: Float[Array, "N N"], B: Float[Array, "N"]):
            for i in range(0, N):
                s = i + 1
                B[i] = 2.0
                for j in range(0, s):
                    A[i, j] = 1.0
            return A, B
        """,
        "distribute(i)",
        "for j in range(0, i + 1):",
    ),
    "a number made of another one": (
        """
        def f(A: Float[Array, "N N"], B: Float[Array, "N"]):
            for i in range(0, N):
                s = i
                t = s - 1
                B[i] = 2.0
                for j in range(0, s):
                    if j < t:
                        A[i, j] = 1.0
            return A, B
        """,
        "distribute(i)",
        "if j < i - 1:",
    ),
    "a guard behind another value of the same name": (
        """
        def f(A: Float[Array, "N N"], B: Float[Array, "N N"]):
            for i in range(0, N):
                s = N - i
                for j in range(0, N):
                    if s > 1:
                        A[i, j] = 1.0
                    B[i, j] = B[i, j] + 1.0
                s = i
            return A, B
        """,
        "distribute(j)",
        "if s > 1:",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_what_a_bound_or_a_guard_names_is_still_what_it_holds(name: str) -> None:
    text, script, expected = APART[name]
    before, printed = after(text, script)
    assert expected in printed
    assert_same(before, printed)


def test_a_name_that_still_holds_stays() -> None:
    text, _, _ = APART["a bound"]
    before, printed = after(text, "strip_mine(i, 2)")
    assert "for j in range(0, s):" in printed
    assert_same(before, printed)


def test_a_name_in_a_subscript_stays_beside_one_that_is_written_out() -> None:
    before, printed = after(
        """
        def f(A: Float[Array, "N"], B: Float[Array, "N"]):
            for i in range(0, N):
                s = i
                B[i] = 2.0
                A[s] = 1.0
                if s > 1:
                    A[i] = 3.0
            return A, B
        """,
        "distribute(i)",
    )
    assert "A[s] = 1.0" in printed and "if i > 1:" in printed
    assert_same(before, printed)


def test_an_element_for_each_iteration_from_a_named_number_on() -> None:
    before, printed = after(
        """
        def f(A: Float[Array, "N N"], B: Float[Array, "N"]):
            for i in range(0, N):
                k = i - 1
                for j in range(k, N):
                    x = B[max(j, 0)]
                    A[i, max(j, 0)] = x
            return A
        """,
        "expand(x, j)",
    )
    assert "A[i, max(j, 0)] = x[j - i + 1]" in printed
    assert_same(before, printed)


def test_a_number_that_two_loops_name_is_private_to_one_of_them() -> None:
    before, printed = after(
        """
        def f(A: Float[Array, "N N"], B: Float[Array, "N"]):
            k = N - 1
            for i in range(0, k):
                k = i + 1
                for j in range(0, k):
                    if j + k < N:
                        A[i, k] = A[i, k] + B[j]
            for i in range(0, N):
                k = i
                B[k] = 2.0
            return A, B
        """,
        "privatize(i@S2)",
    )
    assert "for i in range(0, k):" in printed and "private: k1" in printed
    assert "for j in range(0, k1):" in printed and "if j + k1 < N:" in printed
    assert "B[k] = 2.0" in printed
    assert_same(before, printed)


def test_a_number_set_in_another_loop_is_written_out_in_subscripts() -> None:
    """Whether the loop that sets it has an iteration is not said: the listing would not be read."""
    before, printed = after(
        """
        def f(A: Float[Array, "N"], B: Float[Array, "N"]):
            for i in range(0, N):
                t = N - 1
                B[t] = 1.0
                B[0] = 2.0
                if t < i:
                    A[i] = B[t] + 1.0
                else:
                    A[i] = B[i]
            return A, B
        """,
        "distribute(i)",
    )
    assert "if N - 1 < i:" in printed and "A[i] = B[N - 1] + 1.0" in printed
    assert_same(before, printed)


def test_a_number_hoisted_above_another_value_of_its_name_is_written_out() -> None:
    before, printed = after(
        """
        def f(B: Float[Array, "N"], C: Float[Array, "N"]):
            for i in range(0, N):
                s = N - 1
                if s < 1:
                    C[s] = 1.0
                s = N - i
                if s < 1:
                    B[i] = 2.0
            return B, C
        """,
        "hoist(S1, i)",
    )
    assert "C[N - 1] = 1.0" in printed
    assert_same(before, printed)
