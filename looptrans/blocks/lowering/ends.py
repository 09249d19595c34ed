"""The least and greatest values of bounds over the rows of a program.

A bound that is monotone in the row takes them at the first or last row, or where those rows begin
that have it; any other is worked out for every row and reduced.
"""

from __future__ import annotations

from typing import Literal

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Dim,
    Edge,
    Expr,
    Number,
    Reduce,
    Where,
    dims_of,
)
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.scheduled.ranges import Bound, Bounds, Unless, slope, slopes_joined
from looptrans.blocks.scheduled.solving import solved
from looptrans.ir.affine import difference
from looptrans.ir.condition import Relation
from looptrans.ir.index import Index

# What rows that are not there end at: where none is, no loop runs, and 32 bits hold the difference.
_BEYOND = 2**30


def at(b: Builder, bound: Bound, without: Index) -> Expr:
    """Return a bound of each row; rows that do not have it have another."""
    if isinstance(bound, Unless):
        return Where(b.condition(bound.free), b.index(without), b.index(bound.index))
    return b.index(bound)


def end(b: Builder, bound: Bound, without: Index, want: Literal["min", "max"]) -> Expr:
    """Return the least or greatest value of a bound over the vectors it depends on."""
    expr = at(b, bound, without)
    vectors = dims_of(expr)
    if not vectors:
        return expr
    rows = {d.name: d for d in vectors if d.role == "rows"}
    if len(rows) == len(vectors):
        ways = {name: _way(bound, without, name) for name in rows}
        if all(way is not None for way in ways.values()):
            return _at_ends(b, bound, without, rows, ways, want)
    if len(rows) == len(vectors) == 1 and isinstance(bound, Unless):
        found = _apart(b, bound, without, vectors[0], want)
        if found is not None:
            return found
    for dim in vectors:
        exists = b.inside((dim,))
        if exists is not None:
            expr = Where(exists, expr, Number(-_BEYOND if want == "max" else _BEYOND))
        expr = Reduce(want, dim, expr)
    return expr


def _at_ends(
    b: Builder,
    bound: Bound,
    without: Index,
    rows: dict[str, Dim],
    ways: dict[str, int | None],
    want: str,
) -> Expr:
    places = dict(b.places)
    for name, dim in rows.items():
        rising = (ways[name] or 0) >= 0
        b.places[name] = Edge(dim, "last" if rising == (want == "max") else "first")
    try:
        return at(b, bound, without)
    finally:
        b.places.clear()
        b.places.update(places)


def _way(bound: Bound, without: Index, name: str) -> int | None:
    """Return how a bound moves with a row, as `slope` does.

    Where the first rows have no lower bound, it rises with those that do; an upper one falls.
    """
    if not isinstance(bound, Unless):
        return slope(bound, name)
    own = slope(bound.index, name)
    if slope(without, name) != 0 or own is None or not isinstance(bound.free, Relation):
        return None
    apart = slope(difference(bound.free.left, bound.free.right), name)
    if apart == 0:
        return own
    if apart is None or bound.free.op in ("==", "!="):
        return None
    # Whether the rows that do not have it are the first ones or the last.
    first = (apart > 0) == (bound.free.op in ("<", "<="))
    found = (1 if first else -1) * (1 if bound.is_lower else -1)
    return slopes_joined(own, found)


def _apart(
    b: Builder, bound: Unless, without: Index, dim: Dim, want: Literal["min", "max"]
) -> Expr | None:
    """Return the end of a bound that the first rows, or the last, do not have.

    As long as there are such rows they decide what is the outer end, the others the inner one.
    """
    way, ranges = (
        slope(bound.index, dim.name),
        solved(dim.name, bound.free, Bounds((dim.start,), ())),
    )
    if way is None or slope(without, dim.name) != 0 or ranges is None or len(ranges) > 1:
        return None
    (which,) = ranges
    edges = (*which.lower, *which.upper)
    edge = edges[0]
    if len(edges) > 1 or isinstance(edge, Unless) or slope(edge, dim.name) != 0:
        return None
    begins, is_first = b.index(edge), bool(which.upper)
    first: Expr = Edge(dim, "first")
    last: Expr = Edge(dim, "last")
    free_are_some = Binary("<", first, begins) if is_first else Binary(">=", last, begins)
    others_are_some = Binary(">=", last, begins) if is_first else Binary("<", first, begins)
    is_outer = (want == "max") != bound.is_lower
    if not is_outer:
        if is_first:
            first = Call("max", (first, begins))
        else:
            last = Call("min", (last, Binary("-", begins, Number(1))))
    with b.bound(dim.name, last if (way >= 0) == (want == "max") else first):
        own = b.index(bound.index)
    if is_outer:
        return Where(free_are_some, b.index(without), own)
    return Where(others_are_some, own, b.index(without))
