"""Scores that are products of three matrices are two matrix products, in both passes alike."""

from __future__ import annotations

import pytest

from looptrans.blocks.block_ir.expr import Dot, walk
from looptrans.blocks.block_ir.ops import ElementLoop, exprs_of, ops_in
from looptrans.blocks.scheduled.chains import as_chain
from looptrans.emit.listing import emitted
from looptrans.ir.listing import value_text
from looptrans.ir.program import Assign, Loop
from looptrans.ir.value import Reduce, walk_value
from tests.analysis import program

LISTING = """
def f(q: Float[Array, "M E"], a: Float[Array, "N R"], b: Float[Array, "R E"], c: Float[Array, "E"],
      z: Float[Array, "M R"]):
    y = zeros((M, N))
    for i in range(M):
        for j in range(N):
            y[i, j] = exp({value})
    return y
"""
BODY = "q[i, e] * a[j, r] * b[r, e]"
OVER = "for r in range(R) for e in range(E)"


@pytest.mark.parametrize(
    ("body", "chain"),
    [
        ("q[i, e] * a[j, r] * b[r, e]", "sum(sum(q[i, e] * b[r, e] {e}) * a[j, r] {r})"),
        ("a[j, r] * (b[r, e] * q[i, e])", "sum(sum(a[j, r] * b[r, e] {r}) * q[i, e] {e})"),
        (
            "q[i, e] * c[e] * b[r, e] * a[j, r]",
            "sum(sum(q[i, e] * c[e] * b[r, e] {e}) * a[j, r] {r})",
        ),
        ("q[i, e] * a[j, r]", None),  # two sums
        ("q[i, e] * a[j, r] * z[i, r]", None),  # no product of matrices over r
        (
            "q[i, e] * a[j, r] * b[r, e] * z[i, r]",
            "sum(sum(q[i, e] * b[r, e] {e}) * a[j, r] * z[i, r] {r})",
        ),
        ("q[i, e] * q[i, r] * b[r, e]", None),  # of one row alone, in another way
        ("q[i, e] * b[r, e] * z[i, r]", None),  # of one row alone
    ],
)
def test_what_is_a_chain(body: str, chain: str | None) -> None:
    listing = program(LISTING.format(value=f"sum({body} {OVER})"))
    (_, outer) = listing.body
    assert isinstance(outer, Loop) and isinstance(outer.body[0], Loop)
    (statement,) = outer.body[0].body
    assert isinstance(statement, Assign)
    (value,) = (p for p in walk_value(statement.values[0]) if isinstance(p, Reduce))
    found = as_chain(value, ("i", "j"))
    ranges = {"e": "for e in range(0, E)", "r": "for r in range(0, R)"}
    assert (found and value_text(found)) == (chain and chain.format(**ranges))


def test_a_kernel_goes_over_no_variable_of_a_chain_one_at_a_time() -> None:
    (kernel,) = emitted(program(LISTING.format(value=f"sum({BODY} {OVER})"))).blocks.kernels
    ops = list(ops_in(kernel.body))
    assert not any(isinstance(op, ElementLoop) for op in ops)
    dots = [p for op in ops for e in exprs_of(op) for p in walk(e) if isinstance(p, Dot)]
    assert {tuple(d.name for d in (dot.rows, dot.columns, dot.over)) for dot in dots} == {
        ("i", "r", "e"),
        ("i", "j", "r"),
    }
