"""Tests of the same unchanged data come out alike, and what they rule out is not listed."""

from __future__ import annotations

import pytest

from looptrans.analysis.dependence.truths import with_truths
from looptrans.ir.condition import Relation
from looptrans.ir.index import Opaque
from looptrans.ir.program import If, Program
from looptrans.ir.walk import nodes, written
from looptrans.transforms.steps.expand import expand
from looptrans.transforms.steps.fuse import fuse
from looptrans.transforms.steps.parallelize import parallelize
from looptrans.transforms.steps.privatize import privatize
from tests.analysis import lines, verdicts
from tests.oracle.compare import compare
from tests.steps import agrees, read

NEST = """
def f(x, y, z, N):
    s = 0.0
    for i in range(N):
        if {first}:
            s = y[i]
        if {second}:
            z[i] = s
"""
FROM_START = "may flow/value S1 -> S3 s () () -"
SAME = "may flow/value S2 -> S3 s (=) (0) -"
EARLIER = "may flow/value S2 -> S3 s (<) (*) i"


def flow_of_s(first: str, second: str) -> list[str]:
    text = NEST.format(first=first, second=second)
    compare(text, {"N": 4}, {}, {"data_guard"}, seconds=60.0)
    return [line for line in lines(text, "flow/value") if " s " in line]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x[i] > 0", "x[i] > 0"),
        ("not x[i] > 0", "not x[i] > 0"),
        ("x[i] > 0", "x[i] > 0 and i > 1"),
        ("x[i] > 0 or x[i + 1] > 0", "x[i] > 0 or x[i + 1] > 0"),
        ("x[i] > x[0]", "x[i] > x[0] and x[i + 1] > 0"),
    ],
)
def test_what_runs_whenever_the_read_does_hides_what_was_before(first: str, second: str) -> None:
    assert flow_of_s(first, second) == [SAME]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x[i] > 0", "not x[i] > 0"),
        ("not x[i] > 0", "x[i] > 0"),
        ("x[i] > 0", "x[i] <= 0"),
        ("x[i] == 1 and x[i + 1] > 0", "x[i] != 1"),
    ],
)
def test_what_never_both_runs_hands_nothing_on(first: str, second: str) -> None:
    assert flow_of_s(first, second) == [FROM_START, EARLIER]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x[i] > 0", "x[i + 1] > 0"),  # another cell
        ("x[i] > 0 and x[i + 1] > 0", "x[i] > 0"),  # more is asked of the write
        ("not x[i] > 0", "not x[i] <= 0"),  # nan
        ("y[i] > 0", "z[i] > 0"),  # another array
        ("x[i] > 0", "x[i] > 0 or i > 1"),  # not always asked
    ],
)
def test_what_is_decided_otherwise_is_kept(first: str, second: str) -> None:
    assert flow_of_s(first, second) == [FROM_START, SAME, EARLIER]


def test_a_test_of_what_is_written_may_come_out_otherwise() -> None:
    text = NEST.format(first="x[i] > 0", second="x[i] > 0").replace("z[i] = s", "x[i + 1] = s")
    found = [line for line in lines(text, "flow/value") if " s " in line]
    assert found == [FROM_START, SAME, EARLIER]


def test_tests_in_two_loops_are_of_one_cell_at_one_iteration() -> None:
    text = """
def f(x, y, z, w, N):
    for i in range(N):
        if x[i] > 0:
            y[i] = z[i]
    for j in range(N):
        if x[N - 1 - j] > 0:
            w[j] = y[N - 1 - j]
        else:
            w[j] = 2 * y[N - 1 - j]
"""
    compare(text, {"N": 4}, {}, {"data_guard"}, seconds=60.0)
    assert lines(text, "flow/value") == ["may flow/value S1 -> S2 y () () -"]


def test_a_local_that_is_set_and_read_under_one_test_is_private() -> None:
    text = """
def f(c: Float[Array, "N"], x: Float[Array, "N"], y: Float[Array, "N"]):
    for i in range(N):
        if c[i] > 0.0:
            t = 2.0 * x[i]
        if c[i] > 0.0:
            y[i] = t * t
"""
    found = verdicts(text)["i"]
    assert (found.flow.decision, found.memory.decision) == ("parallel", "privatize")
    step = privatize(read(text), "i")
    assert agrees(step) and agrees(parallelize(step.after, "i"))


IN_TURN = """
def f(ok: Bool[Array, "M N"], other: Bool[Array, "M N"], x: Float[Array, "M N"],
      y: Float[Array, "M"]):
    s = zeros(N)
    for i in range(M):
        for j in range(N):
            if ok[i, j]:
                s[j] = x[i, j] * x[i, j]
        y[i] = sum(s[j] for j in range(N) if {read})
"""


@pytest.mark.parametrize(
    "read", ["ok[i, j]", "ok[i, j] and other[i, N - 1 - j]", "j < i and ok[i, j]"]
)
def test_rows_that_iterations_fill_in_turn_may_each_have_a_row_of_its_own(read: str) -> None:
    step = expand(read_text(read), "s", "i")
    assert step.verdict.decision == "legal"
    assert agrees(step)


@pytest.mark.parametrize(
    "read", ["other[i, j]", "ok[i, j] or other[i, j]", "not ok[i, j]", "ok[i, N - 1 - j]"]
)
def test_rows_read_where_another_iteration_filled_them_may_not(read: str) -> None:
    assert expand(read_text(read), "s", "i").verdict.decision != "legal"


def read_text(test: str) -> Program:
    return read(IN_TURN.format(read=test))


TWO_TESTS = """
def f(x: Float[Array, "N"], t: Float[Array, "N"], y: Float[Array, "N"], w: Float[Array, "N"]):
    for i in range(N):
        if {first}:
            y[i] = t[i]
        if {second}:
            w[i] = y[i]
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [("x[i] * 2 > i", "x[i] * i > 2"), ("x[i] > 2", "x[i] > i"), ("x[i] > i", "x[i] > i + 1")],
)
def test_numbers_in_tests_are_no_indices(first: str, second: str) -> None:
    program = read(TWO_TESTS.format(first=first, second=second))
    told = [
        node.condition
        for node in nodes(with_truths(program, written(program)).body)
        if isinstance(node, If) and isinstance(node.condition, Relation)
    ]
    one, other = (each.left for each in told)
    assert isinstance(one, Opaque) and isinstance(other, Opaque)
    assert (one.array, len(one.arguments)) != (other.array, len(other.arguments)) or (
        one.arguments != other.arguments
    )


def test_tests_that_differ_in_a_number_alone_are_told_apart() -> None:
    text = """
        def f(x: Float[Array, "N"], v: Float[Array, "N"], N):
            s = 0.0
            y = zeros(N)
            for i in range(N):
                if x[i] > 2:
                    s = v[i]
            for i in range(N):
                if x[i] > i:
                    y[i] = s + y[i]
            return y
    """
    assert fuse(read(text), "i@5", "i@8").verdict.decision != "legal"


@pytest.mark.parametrize("cell", ["i", "min(i, i + 1)"])
def test_one_of_several_reads_sees_what_its_own_block_has_left(cell: str) -> None:
    text = f"""
def f(A, x, t, N):
    for i in range(N):
        if t < 1:
            A[{cell}] = 1
            s = A[N + i + 1] + A[i]
        else:
            A[2 * i + 1] = 2
        t = x[i]
"""
    found = [line for line in lines(text, "flow/value") if " A " in line]
    assert found == ["may flow/value S1 -> S2 A (=) (0) -"]


def test_one_of_several_reads_sees_what_either_branch_has_left() -> None:
    text = """
def f(A, x, N):
    for i in range(N):
        if x[i] < 1:
            A[i] = 1
        else:
            A[i] = 2
        s = A[N + 3] + A[i]
        A[i + 2] = 3
"""
    assert not [line for line in lines(text, "flow/value") if "S4 -> S3" in line]
