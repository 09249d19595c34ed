"""Subscripts that are the smaller or larger of several: each piece is solved for itself."""

from __future__ import annotations

import re
from itertools import product

import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.equations.facts import Facts, said_of_sizes
from looptrans.adjoint.equations.piecewise import pieces
from looptrans.emit.listing import emitted
from looptrans.ir.condition import Relation
from looptrans.ir.index import Index
from looptrans.ir.listing import condition_text, index_text, listing
from looptrans.ir.program import Program
from looptrans.ir.walk import accesses, placed
from tests.analysis import program

CLAMPED = """
def clamped(
    Q: Float[Array, "B N E"],
    K: Float[Array, "B N E"],
    V: Float[Array, "B N E"],
    near: Float[Array, "2*R+1"],
):
    O = zeros((B, N, E))
    for b in range(0, B):
        for i in range(0, N):
            m = -inf
            for j in range(0, N):
                m = max(m, sum(Q[b, i, e] * K[b, j, e] for e in range(0, E)) + near[AT])
            l = 0.0
            for j in range(0, N):
                s = sum(Q[b, i, e] * K[b, j, e] for e in range(0, E)) + near[AT]
                l += exp(s - m)
                for e in range(0, E):
                    O[b, i, e] += exp(s - m) * V[b, j, e]
            for e in range(0, E):
                O[b, i, e] /= l
    return O
""".replace("AT", "min(max(j - i, -R), R) + R")


def _read(text: str, array: str) -> tuple[Program, tuple[Index, ...]]:
    found = program(text)
    each = (relation.access for place in placed(found) for relation in accesses(place.node))
    return found, next(access.indices for access in each if access.array == array)


def test_a_clamped_subscript_is_a_diagonal_and_two_ends() -> None:
    found, subscripts = _read(CLAMPED, "near")
    made = pieces(subscripts, said_of_sizes(found))
    shown = [(index_text(at), " and ".join(map(condition_text, c))) for (at,), c in made]
    assert shown == [
        ("j + R - i", "i - j <= R and j - i <= R"),
        ("2 * R", "j - i > R"),
        ("0", "i - j > R"),
    ]


def test_what_is_known_leaves_pieces_out() -> None:
    found, subscripts = _read(
        CLAMPED.replace("min(max(j - i, -R), R) + R", "min(j - i, R)"), "near"
    )
    (index,) = subscripts
    causal = Relation("<", index.arguments[0], index.arguments[1])  # type: ignore[union-attr]
    assert [index_text(at) for (at,), _ in pieces(subscripts, Facts((causal,)))] == ["j - i"]
    assert len(pieces(subscripts, said_of_sizes(found))) == 2
    assert pieces(found.array("near").shape, Facts()) == [(found.array("near").shape, ())]  # type: ignore[arg-type]


def test_the_ends_of_a_clamped_table_are_sums_of_rows_that_are_gone_over_anyway() -> None:
    """No entry of the table asks all pairs, and no pair is gone over for the ends alone."""
    text = listing(backward(program(CLAMPED)).program)
    assert "== x" not in text
    assert text.count("for j in range(0, N)") == 2
    assert "dnear[2 * R] = dnear[2 * R] + dnear_part" in text
    assert "dnear[0] = dnear[0] + dnear_part" in text


LAST = """
def last(X: Float[Array, "C N"], w: Float[Array, "K"], y: Float[Array, "C N"]):
    if N > 0:
        for c in range(0, C):
            for k in range(0, K):
                y[c, N - 1] += w[k] * X[c, 0]
"""


def test_a_cell_that_only_a_guard_keeps_inside_is_read_under_it() -> None:
    """Where there is none, N = 0, nothing is read beside the array."""
    text = emitted(program(LAST)).text
    loads = re.findall(r"tl\.load\(\s*y_ptr.*?\n    \)", text, re.DOTALL)
    assert loads
    assert all("N - 1 >= 0" in load for load in loads)


@pytest.mark.parametrize("at", ["min(i, j, i)", "max(min(i, R), min(j, R))"])
def test_an_argument_that_stands_twice_is_one_piece(at: str) -> None:
    """Where i and j are both larger than R, the smaller of each with R is R and R."""
    found, subscripts = _read(CLAMPED.replace("min(max(j - i, -R), R) + R", at), "near")
    made = pieces(subscripts, said_of_sizes(found))
    for i, j in product(range(6), range(6)):
        here = {"i": i, "j": j, "R": 3}
        held = [
            c for c, conditions in made if all(_of(condition_text(k), here) for k in conditions)
        ]
        assert [_of(index_text(cell), here) for (cell,) in held] == [_of(at, here)]


def _of(text: str, here: dict[str, int]) -> int:
    return int(eval(text, {}, here))  # what the tests wrote


LOOKED_UP = """
def looked_up(
    X: Float[Array, "C N"], w: Float[Array, "K"], y: Float[Array, "C N"], p: Int[Array, "C", "-1:N"]
):
    for c in range(0, C):
        for k in range(0, K):
            if p[c] >= 0:
                y[c, p[c]] += w[k] * X[c, p[c]]
"""


def test_a_cell_that_is_looked_up_is_read_and_written_where_it_is_one() -> None:
    """Also where the guard has become a bound of the loop."""
    text = emitted(program(LOOKED_UP)).text
    touched = re.findall(r"tl\.(?:load|store)\(\s*y_ptr.*?\n    \)", text, re.DOTALL)
    assert len(touched) == text.count("y_ptr + c") == 2
    assert all("(p_c >= 0) & (p_c < N)" in each for each in touched)
