"""Bounds of a loop, and their least and greatest values over the rows of a program.

A bound that is monotone in the row takes its least and greatest value at the first or last row;
any other is worked out for every row and reduced.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, TypeAlias

from looptrans.blocks.builder import Builder
from looptrans.blocks.program import (
    Dim,
    Edge,
    Expr,
    Number,
    Reduce,
    Where,
    dims_of,
)
from looptrans.ir.affine import difference, extremum, form_of, sides
from looptrans.ir.condition import Condition, Relation
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Let,
    Neg,
    Var,
    variables,
)
from looptrans.ir.value import Range


@dataclass(frozen=True, slots=True)
class Unless:
    """A bound that some rows do not have.

    Attributes:
        index: The bound, on the inner side of those that all rows have.
        free: Which rows do not have it.
        is_lower: Whether it is a lower one.
    """

    index: Index
    free: Condition
    is_lower: bool


Bound: TypeAlias = Index | Unless


@dataclass(frozen=True, slots=True)
class Bounds:
    """`max(lower) <= variable < min(upper)`."""

    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]

    @property
    def start(self) -> Index:
        """What every row begins with at the earliest."""
        return extremum("max", [i for i in self.lower if not isinstance(i, Unless)])

    @property
    def stop(self) -> Index:
        """What every row stays below."""
        return extremum("min", [i for i in self.upper if not isinstance(i, Unless)])


ALL: Final = Bounds((), ())


@dataclass(frozen=True, slots=True)
class Ranges:
    """What is in one range and in any of some others as well.

    Attributes:
        common: The bounds of all.
        apart: What each has beside them; a single one has nothing.
    """

    common: Bounds
    apart: tuple[Bounds, ...] = (ALL,)

    def reduced(self) -> Ranges:
        """Return the same without what is plainly empty, unless all are."""
        every = tuple(dict.fromkeys(self.apart))
        kept = [each for each in every if not is_surely_empty(joined(self.common, each))]
        if len(kept) > 1:
            return Ranges(self.common, tuple(kept))
        return Ranges(joined(self.common, (kept or every)[0]))


def joined(one: Bounds, other: Bounds) -> Bounds:
    """Return the bounds of what is in two ranges, each bound once."""
    return Bounds(
        tuple(dict.fromkeys((*one.lower, *other.lower))),
        tuple(dict.fromkeys((*one.upper, *other.upper))),
    )


def is_surely_empty(bounds: Bounds) -> bool:
    """Tell whether some lower bound of a range is plainly not below an upper one."""
    for low, high in product(bounds.lower, bounds.upper):
        if isinstance(low, Unless) or isinstance(high, Unless):
            continue
        apart = form_of(high).plus(form_of(low), -1)
        if apart.is_constant and apart.constant <= 0:
            return True
    return False


def bounds_of(range_: Range) -> Bounds:
    """Return the bounds of a range, a `max` and a `min` taken apart."""
    return Bounds(sides("max", range_.start), sides("min", range_.stop))


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
    for dim in vectors:
        exists = b.inside((dim,))
        if exists is not None:
            expr = Where(exists, expr, Number(-(2**31) if want == "max" else 2**31 - 1))
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
    return _joined(own, found)


def slope(index: Index, name: str) -> int | None:
    """Return 1 where a bound never falls as the variable rises, -1 where it never rises, 0: apart.

    None where neither is plain.
    """
    if name not in variables(index):
        return 0
    match index:
        case Var():
            return 1
        case Neg(operand):
            way = slope(operand, name)
            return None if way is None else -way
        case Arith("+", left, right):
            return _joined(slope(left, name), slope(right, name))
        case Arith("-", left, right):
            way = slope(right, name)
            return _joined(slope(left, name), None if way is None else -way)
        case Arith("*", Int(value), other) | Arith("*", other, Int(value)):
            way = slope(other, name)
            return None if way is None else way * (1 if value >= 0 else -1)
        case Arith("//", left, Int(value)) if value > 0:
            return slope(left, name)
        case Extremum(_, arguments):
            ways = [slope(argument, name) for argument in arguments]
            found: int | None = 0
            for way in ways:
                found = _joined(found, way)
            return found
        case Let(_, value):
            return slope(value, name)
        case _:
            return None


def _joined(a: int | None, b: int | None) -> int | None:
    if a is None or b is None or a * b < 0:
        return None
    return a or b
