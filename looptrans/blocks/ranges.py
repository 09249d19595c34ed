"""Which blocks of a loop are visited, and which of them need a mask.

With rows i0 .. i1 in a program and the bounds  max(L)  <= j <  min(U)  of a loop over j:

    visited    from  max of least L  to  min of greatest U      over the rows
    full       from  max of greatest L  to  min of least U

A bound that is monotone in the row takes its least and greatest value at the first or last row;
any other is worked out for every row and reduced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

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
from looptrans.blocks.sites import Path
from looptrans.ir.affine import Form, difference, form_of, index_of, simplified, total
from looptrans.ir.condition import Comparison, Condition, Every, Relation, conjunction
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
from looptrans.ir.program import Assign, If, Node
from looptrans.ir.value import Range

# What a comparison becomes when both sides change their sign.
_MIRRORED: Final[dict[Comparison, Comparison]] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "==": "==",
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """`max(lower) <= variable < min(upper)`."""

    lower: tuple[Index, ...]
    upper: tuple[Index, ...]


def bounds_of(range_: Range) -> Bounds:
    """Return the bounds of a range, a `max` and a `min` taken apart."""
    return Bounds(_parts("max", range_.start), _parts("min", range_.stop))


def _parts(op: str, index: Index) -> tuple[Index, ...]:
    plain = simplified(index)
    if isinstance(plain, Extremum) and plain.op == op:
        return plain.arguments
    return (plain,)


@dataclass(frozen=True, slots=True)
class Lifted:
    """A guard whose comparisons became bounds of the loop around it.

    Attributes:
        path: Its place, seen from the body of the loop.
        rest: What it still has to test.
    """

    path: Path
    rest: Condition


def lifted(
    variable: str, bounds: Bounds, body: tuple[Node, ...], pure: Iterable[str]
) -> tuple[Bounds, tuple[Lifted, ...]]:
    """Make what every iteration with an effect is guarded by part of the bounds.

        for j in range(0, N):                    for j in range(0, min(N, i + 1)):
            if j <= i: …              ->             …

    Of guards inside one another, each may give bounds.

    Args:
        variable: The variable of the loop.
        bounds: Its bounds.
        body: Its body.
        pure: Names that statements of the body may set for the iteration alone.
    """
    lower, upper = list(bounds.lower), list(bounds.upper)
    found: list[Lifted] = []
    path: Path = ()
    names = set(pure)
    while (number := _guard(body, names)) is not None:
        guard = body[number]
        assert isinstance(guard, If)
        path = (*path, number)
        rest: list[Condition] = []
        for part in _conjuncts(guard.condition):
            ends = _solved(variable, part)
            if ends is None:
                rest.append(part)
                continue
            lower += [index for index in ends.lower if index not in lower]
            upper += [index for index in ends.upper if index not in upper]
        if len(rest) < len(_conjuncts(guard.condition)):
            found.append(Lifted(path, conjunction(*rest)))
        path, body = (*path, 1), guard.body
    return Bounds(tuple(lower), tuple(upper)), tuple(found)


def _guard(body: tuple[Node, ...], pure: set[str]) -> int | None:
    """Return which node of a body guards everything in it that has an effect."""
    guards = [number for number, node in enumerate(body) if isinstance(node, If)]
    if len(guards) != 1:
        return None
    guard = body[guards[0]]
    assert isinstance(guard, If)
    others = [node for node in body if not isinstance(node, If)]
    if guard.orelse or not all(
        isinstance(n, Assign) and {t.array for t in n.targets} <= pure for n in others
    ):
        return None
    return guards[0]


def _conjuncts(condition: Condition) -> tuple[Condition, ...]:
    if isinstance(condition, Every):
        return tuple(part for each in condition.parts for part in _conjuncts(each))
    return (condition,)


def _solved(variable: str, part: Condition) -> Bounds | None:
    """Return a comparison as bounds of the variable, where its factor is 1 or -1."""
    if not isinstance(part, Relation) or part.op == "!=":
        return None
    form = form_of(difference(part.left, part.right))
    factor = form.terms.get(Var(variable), 0)
    rest = {term: count for term, count in form.terms.items() if term != Var(variable)}
    if factor not in (1, -1) or any(variable in variables(term) for term in rest):
        return None
    # factor * v + rest op 0, so v op' -rest for 1 and v op'' rest for -1.
    edge = index_of(Form(rest, form.constant).times(-factor))
    match part.op if factor == 1 else _MIRRORED[part.op]:
        case "<":
            return Bounds((), (edge,))
        case "<=":
            return Bounds((), (total(edge, 1),))
        case ">":
            return Bounds((total(edge, 1),), ())
        case ">=":
            return Bounds((edge,), ())
        case _:
            return Bounds((edge,), (total(edge, 1),))


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
    upper = [b.index(index) for index in bounds.upper]
    lower = [b.index(index) for index in bounds.lower]
    ragged_above = [expr for expr in upper if dims_of(expr)]
    ragged_below = [expr for expr in lower if dims_of(expr)]
    hull = extreme("min", [_end(b, index, "max") for index in bounds.upper])
    start = extreme("max", [_end(b, index, "min") for index in bounds.lower])
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
    first = extreme("max", [_end(b, index, "max") for index in bounds.lower])
    last = extreme("min", [_end(b, index, "min") for index in bounds.upper])
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


def _end(b: Builder, index: Index, want: Literal["min", "max"]) -> Expr:
    """Return the least or greatest value of a bound over the vectors it depends on."""
    expr = b.index(index)
    vectors = dims_of(expr)
    if not vectors:
        return expr
    rows = {d.name: d for d in vectors if d.role == "rows"}
    if len(rows) == len(vectors):
        ways = {name: slope(index, name) for name in rows}
        if all(way is not None for way in ways.values()):
            return _at_ends(b, index, rows, ways, want)
    for dim in vectors:
        exists = b.inside((dim,))
        if exists is not None:
            expr = Where(exists, expr, Number(-(2**31) if want == "max" else 2**31 - 1))
        expr = Reduce(want, dim, expr)
    return expr


def _at_ends(
    b: Builder, index: Index, rows: dict[str, Dim], ways: dict[str, int | None], want: str
) -> Expr:
    places = dict(b.places)
    for name, dim in rows.items():
        rising = (ways[name] or 0) >= 0
        b.places[name] = Edge(dim, "last" if rising == (want == "max") else "first")
    try:
        return b.index(index)
    finally:
        b.places.clear()
        b.places.update(places)


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
