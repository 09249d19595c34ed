"""The smallest example of a set of instances, compared with an enumeration."""

from __future__ import annotations

from itertools import product

import islpy as isl
import pytest

from looptrans.analysis.api import dependences
from looptrans.analysis.isl_model.formula import Notation
from looptrans.analysis.isl_model.witness import smallest_point
from looptrans.ir.index import Arith, Int, Var
from tests.analysis import lines, program, verdicts

# What holds of x, y and z, besides lying between -5 and 5.
SETS = (
    "x + y = 3",
    "x <= -2 and y >= x + 4",
    "x + 2 y = -7",
    "(x >= 2 and y = -x) or (x <= -2 and y = x + 1)",
    "x = -3 or x = 3",
    "(x = -3 and y = 0) or (x = 3 and y = 4)",
    "exists e : x = 3 e + 1 and y = -2 e and z = x + y",
    "x = 2 * floor(y / 3) - 1 and y != 0 and z <= y",
    "-x >= 1 and -y >= 1 and z = x - y and z <= -1",
)


@pytest.mark.parametrize("condition", SETS)
def test_the_smallest_point_is_that_of_an_enumeration(condition: str) -> None:
    box = " and ".join(f"-5 <= {name} <= 5" for name in "xyz")
    points = isl.Set(f"{{ [x, y, z] : {box} and ({condition}) }}")
    inside = [
        point
        for point in product(range(-5, 6), repeat=3)
        if not points.intersect(isl.Set(f"{{ [{', '.join(map(str, point))}] }}")).is_empty()
    ]
    smallest = min(inside, key=lambda point: [(abs(value), value < 0) for value in point])
    assert smallest_point(points, [False] * 3) == list(smallest)


def test_sizes_of_unknown_sign_do_not_multiply_the_work() -> None:
    # Seven extents that no array declares: each may be of either sign, as far as is known.
    text = """
def conv(x, w, y, B, O, H, W, C, R, S):
    for b in range(B):
        for o in range(O):
            for h in range(H):
                for v in range(W):
                    acc = 0.0
                    for c in range(C):
                        for r in range(R):
                            for s in range(S):
                                t = x[b, c, h + r, v + s] * w[o, c, r, s]
                                acc = acc + t
                    y[b, o, h, v] = acc
"""
    found = dependences(program(text))
    assert found.unknown is None
    assert all(each.witness is not None for each in found.dependences)
    ones = {"B": 1, "O": 1, "H": 1, "W": 1, "C": 1, "R": 1, "S": 2}
    inner = [each for each in found.dependences if each.carried_by == "s"]
    assert [dict(each.witness.parameters) for each in inner if each.witness] == [ones] * len(inner)


def test_what_happens_only_where_a_divisor_is_negative_is_no_dependence() -> None:
    nest = """
def f(A, B, C, N, M):
    for i in range(0, N):
        C[i] = B[i{}]
        for j in range(i, N):
            A[j, i] = A[(-i + j - M) // 2, j]
    return A, C
"""
    assert [v.memory.decision for v in verdicts(nest.format(" + M")).values()] == ["sequential"] * 2
    assert [v.memory.decision for v in verdicts(nest.format(" // M")).values()] == ["parallel"] * 2


@pytest.mark.parametrize(
    "division", ["if w > 0: B[i] = C[i // w]", "for k in range(w): B[k] = C[k // w]"]
)
def test_what_divides_in_some_iterations_only_may_be_negative_in_others(division: str) -> None:
    nest = f"""
def f(A, B, C, N, w: int):
    for i in range(1, N - 1):
        {division}
        if w < 0:
            A[i] = A[i + w] + 1.0
    return A, B
"""
    assert verdicts(nest)["i"].memory.decision == "sequential"


def test_an_example_is_found_where_a_divisor_is_large() -> None:
    text = """
def f(B, N, M):
    for k in range(-1, M - 1):
        B[k % M] = B[k + 4] + 2
    return B
"""
    assert lines(text, "flow/value", example=True) == [
        "flow/value S1 -> S1 B (<) (*) k | M=5: (-1) -> (0)"
    ]


def test_a_size_of_any_sign_is_divided_by_in_a_formula() -> None:
    notation = Notation({}, {"i": "i0"}, {})
    for divisor, left in product((-3, -1, 2), range(-4, 5)):
        index = Arith("-", Arith("//", Var("i"), Int(divisor)), Arith("%", Var("i"), Int(divisor)))
        value = left // divisor - left % divisor
        found = isl.Set(f"{{ [i0] : i0 = {left} and {notation.index(index)} = {value} }}")
        assert not found.is_empty(), (left, divisor)
