"""Which blocks of a loop are visited, and which of them need a mask.

With rows i0 .. i1 in a program and the bounds  max(L)  <= j <  min(U)  of a loop over j:

    visited    from  max of least L  to  min of greatest U      over the rows
    full       from  max of greatest L  to  min of least U

A bound that is monotone in the row takes its least and greatest value at the first or last row;
any other is worked out for every row and reduced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from looptrans.blocks.arithmetic import extreme
from looptrans.blocks.builder import Builder
from looptrans.blocks.program import (
    Binary,
    Call,
    Dim,
    Edge,
    Expr,
    Name,
    Number,
    Position,
    Reduce,
    Scalar,
    Where,
    dims_of,
)
from looptrans.ir.affine import difference, extremum, sides
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


def bounds_of(range_: Range) -> Bounds:
    """Return the bounds of a range, a `max` and a `min` taken apart."""
    return Bounds(sides("max", range_.start), sides("min", range_.stop))


@dataclass(frozen=True, slots=True)
class Part:
    """A run of blocks.

    Attributes:
        kind: Whether they need a mask.
        start: The first iteration of the first block.
        stop: What first iterations stay below.
        hull: What every iteration stays below that any row asks for; None in full blocks.
        masks: Conditions of rows and iterations together, in boundary blocks.
        note: Why.
    """

    kind: Literal["full", "boundary"]
    start: Expr
    stop: Expr
    hull: Expr | None
    masks: tuple[Expr, ...]
    note: str


def parts(b: Builder, dim: Dim, bounds: Bounds) -> tuple[Part, ...]:
    """Return the runs of blocks of a loop, in order; names for their ends are emitted."""
    block = Scalar(dim.block or "")
    upper = [_at(b, bound, bounds.stop) for bound in bounds.upper]
    lower = [_at(b, bound, bounds.start) for bound in bounds.lower]
    ragged_above = [expr for expr in upper if dims_of(expr)]
    ragged_below = [expr for expr in lower if dims_of(expr)]
    hull = extreme("min", [_end(b, bound, bounds.stop, "max") for bound in bounds.upper])
    start = extreme("max", [_end(b, bound, bounds.start, "min") for bound in bounds.lower])
    name = dim.name
    position = Position(dim)
    masks = tuple(Binary("<", position, expr) for expr in ragged_above)
    masks += tuple(Binary(">=", position, expr) for expr in ragged_below)
    start = _named(b, f"{name}_start", start, "no row begins earlier" if ragged_below else "")
    hull = _named(b, f"{name}_stop", hull, "no row goes further" if ragged_above else "")
    is_zero = start == Number(0)
    if not ragged_above and not ragged_below:
        length = hull if is_zero else Binary("-", hull, start)
        whole = Binary("*", Binary("//", length, block), block)
        if not _is_size(length):
            # A length below zero: no block, and division rounds the other way.
            length = Call("max", (length, Number(0)))
            whole = Binary("*", Binary("//", length, block), block)
        end = whole if is_zero else Binary("+", start, whole)
        full = _named(b, f"{name}_full", end, "blocks before this one are full")
        return (
            Part("full", start, full, None, (), "full blocks"),
            Part("boundary", full, hull, hull, (), "the last, partial block"),
        )
    first = extreme("max", [_end(b, bound, bounds.start, "max") for bound in bounds.lower])
    last = extreme("min", [_end(b, bound, bounds.stop, "min") for bound in bounds.upper])
    found: list[Part] = []
    if ragged_below:
        # The first block that begins where all rows have begun.
        gap = Call("max", (Binary("-", first, start), Number(0)))
        blocks = Binary("//", Binary("-", Binary("+", gap, block), Number(1)), block)
        begun = Binary("+", start, Binary("*", blocks, block))
        first = _named(b, f"{name}_begun", begun, "all rows have begun")
        until = Call("min", (first, hull))
        found.append(Part("boundary", start, until, hull, masks, "some rows have not begun"))
    else:
        first = start
    length = Call("max", (Binary("-", last, first) if first != Number(0) else last, Number(0)))
    whole = Binary("*", Binary("//", length, block), block)
    end = whole if first == Number(0) else Binary("+", first, whole)
    full = _named(b, f"{name}_full", end, "blocks before this one are full")
    found.append(Part("full", first, full, None, (), "full blocks"))
    found.append(Part("boundary", full, hull, hull, masks, "some rows have ended"))
    return tuple(found)


def _is_size(expr: Expr) -> bool:
    return isinstance(expr, Scalar)


def _named(b: Builder, stem: str, value: Expr, note: str) -> Expr:
    if isinstance(value, Number | Scalar | Name):
        return value
    for frame in b.frames:
        if value in frame.named:
            return frame.named[value]
    made = b.named(b.name(stem, ("end", stem, value)), value, note=note)
    b.frames[-1].named[value] = made
    return made


def _at(b: Builder, bound: Bound, without: Index) -> Expr:
    """Return a bound of each row; rows that do not have it have another."""
    if isinstance(bound, Unless):
        return Where(b.condition(bound.free), b.index(without), b.index(bound.index))
    return b.index(bound)


def _end(b: Builder, bound: Bound, without: Index, want: Literal["min", "max"]) -> Expr:
    """Return the least or greatest value of a bound over the vectors it depends on."""
    expr = _at(b, bound, without)
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
        return _at(b, bound, without)
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
