"""Which blocks of a loop are visited, and which of them need a mask.

With rows i0 .. i1 in a program and the bounds  max(L)  <= j <  min(U)  of a loop over j:

    visited    from  max of least L  to  min of greatest U      over the rows
    full       from  max of greatest L  to  min of least U

Of several ranges the blocks begin at the same places, so that none is visited twice, and between
two ranges there is a gap that is full to no row, perhaps with a hole that is nothing to any:

    range 1   ├── full ──┤╌ some ╌┤                          ├ hull
    range 2                              ├╌ some ╌├── full ──┤╌ some ╌┤
    runs      [full run  )[ gap   )      [ gap    )[ full run )[ rest )

Which range is the first may depend on the numbers: what begins and what ends ranges is sorted, and
that ranges overlap does no harm, since where the k-th begins and the k-th ends is what counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Literal

from looptrans.blocks.block_ir.arithmetic import both, extreme
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Dim,
    Expr,
    Name,
    Number,
    Position,
    Reduce,
    Scalar,
    Where,
    dims_of,
    walk,
)
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.ends import at, end
from looptrans.blocks.lowering.order import greatest, least
from looptrans.blocks.scheduled.ranges import Bounds, Ranges, joined


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


def parts(b: Builder, dim: Dim, ranges: Ranges) -> tuple[Part, ...]:
    """Return the runs of blocks of a loop, in order; names for their ends are emitted."""
    if len(ranges.apart) > 1:
        return _Several(b, dim, ranges).parts()
    return _of_one(b, dim, ranges.common)


def _of_one(b: Builder, dim: Dim, bounds: Bounds) -> tuple[Part, ...]:
    block = Scalar(dim.block or "")
    upper = [at(b, bound, bounds.stop) for bound in bounds.upper]
    lower = [at(b, bound, bounds.start) for bound in bounds.lower]
    ragged_above = [expr for expr in upper if dims_of(expr)]
    ragged_below = [expr for expr in lower if dims_of(expr)]
    hull = extreme("min", [end(b, bound, bounds.stop, "max") for bound in bounds.upper])
    start = extreme("max", [end(b, bound, bounds.start, "min") for bound in bounds.lower])
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
        behind = whole if is_zero else Binary("+", start, whole)
        full = _named(b, f"{name}_full", behind, "blocks before this one are full")
        return (
            Part("full", start, full, None, (), "full blocks"),
            Part("boundary", full, hull, hull, (), "the last, partial block"),
        )
    first = extreme("max", [end(b, bound, bounds.start, "max") for bound in bounds.lower])
    last = extreme("min", [end(b, bound, bounds.stop, "min") for bound in bounds.upper])
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
    last = _of_rows(last, hull)
    length = Call("max", (Binary("-", last, first) if first != Number(0) else last, Number(0)))
    whole = Binary("*", Binary("//", length, block), block)
    behind = whole if first == Number(0) else Binary("+", first, whole)
    full = _named(b, f"{name}_full", behind, "blocks before this one are full")
    found.append(Part("full", first, full, None, (), "full blocks"))
    found.append(Part("boundary", full, hull, hull, masks, "some rows have ended"))
    return tuple(found)


def _of_rows(last: Expr, hull: Expr) -> Expr:
    """Return up to where every row goes, which is nowhere where there is no row at all."""
    looked_at = any(isinstance(part, Reduce) for part in walk(last))
    return Call("min", (last, hull)) if looked_at else last


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


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where ranges begin and end, in this order: each tuple is sorted.

    Attributes:
        some: From where on the first, second … range is asked for by some row.
        every: From where on by every row.
        until: Up to where by every row.
        none: Up to where by some row.
    """

    some: tuple[Expr, ...]
    every: tuple[Expr, ...]
    until: tuple[Expr, ...]
    none: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class _Several:
    """The runs of blocks of several ranges."""

    b: Builder
    dim: Dim
    ranges: Ranges

    def parts(self) -> tuple[Part, ...]:
        ends = self._ends()
        start = self._named("start", ends.some[0], "no row begins earlier")
        hull = self._named("stop", ends.none[-1], "no row goes further")
        masks = self._masks()
        # Whole blocks from the start; what is rounded is never below it.
        found: list[Part] = []
        first = start
        if ends.every[0] != ends.some[0]:
            first = self._named("begun", self._up(start, ends.every[0]), "all rows have begun")
            found.append(Part("boundary", start, first, hull, masks, "some rows have not begun"))
        last = len(ends.some) - 1
        for number in range(last + 1):
            until = ends.until[number]
            length = Call("max", (_apart(until, first), Number(0)))
            behind = _plus(first, self._whole(length))
            full = self._named("full", behind, "blocks before this one are full")
            found.append(Part("full", first, full, None, (), "full blocks"))
            if number == last:
                found.append(Part("boundary", full, hull, hull, masks, "some rows have ended"))
                break
            every = self._named("again", ends.every[number + 1], "all rows go on from here")
            until = self._named("until", until, "some row pauses here")
            none = self._named("pause", ends.none[number], "all rows pause from here")
            begun = Where(Binary(">", every, until), self._up(start, every), full)
            first = self._named("begun", begun, "all rows go on")
            ended = extreme("min", (none, first))
            found.append(Part("boundary", full, ended, hull, masks, "some rows pause"))
            some = self._named("resume", ends.some[number + 1], "no row goes on earlier")
            down = _plus(start, self._whole(_apart(some, start)))
            down = extreme("max", (full, self._up(start, none), down))
            # A range that no row has begins where nothing is left.
            below = Where(Binary("<", some, hull), down, first)
            again = self._named("next", below, "the first block behind the pause")
            note = "some rows do not go on yet"
            found.append(Part("boundary", again, first, hull, masks, note))
        return tuple(found)

    def _ends(self) -> _Ends:
        """Return the ends of the ranges, an empty one made one that does no harm."""
        b = self.b
        every: list[tuple[Expr, Expr, Expr, Expr]] = []
        for own in self.ranges.apart:
            bounds = joined(self.ranges.common, own)
            every.append(
                (
                    self._extreme("max", [end(b, e, bounds.start, "min") for e in bounds.lower]),
                    self._extreme("max", [end(b, e, bounds.start, "max") for e in bounds.lower]),
                    self._extreme("min", [end(b, e, bounds.stop, "min") for e in bounds.upper]),
                    self._extreme("min", [end(b, e, bounds.stop, "max") for e in bounds.upper]),
                )
            )
        top = self._extreme("max", [none for *_, none in every])
        made: list[tuple[Expr, Expr, Expr, Expr]] = []
        for first, begun, last, ended in every:
            some = least(b, first, top)
            until = greatest(b, _of_rows(last, ended), some)
            none = greatest(b, ended, some)
            made.append((some, least(b, begun, until), until, none))
        return _Ends(*(self._sorted(list(column)) for column in zip(*made, strict=True)))

    def _extreme(self, op: Literal["min", "max"], values: list[Expr]) -> Expr:
        choose = least if op == "min" else greatest
        return reduce(lambda one, other: choose(self.b, one, other), values)

    def _sorted(self, values: list[Expr]) -> tuple[Expr, ...]:
        """Return numbers from the least to the greatest."""
        found: list[Expr] = []
        for value in values:
            rest = value
            for place, other in enumerate(found):
                found[place] = least(self.b, other, rest)
                rest = greatest(self.b, other, rest)
            found.append(rest)
        return tuple(found)

    def _named(self, stem: str, value: Expr, note: str) -> Expr:
        return _named(self.b, f"{self.dim.name}_{stem}", value, note)

    def _whole(self, length: Expr) -> Expr:
        block = Scalar(self.dim.block or "")
        return Binary("*", Binary("//", length, block), block)

    def _up(self, start: Expr, value: Expr) -> Expr:
        """Return where the first block begins that does not begin before a place."""
        block = Scalar(self.dim.block or "")
        more = Binary("-", Binary("+", _apart(value, start), block), Number(1))
        return _plus(start, self._whole(more))

    def _masks(self) -> tuple[Expr, ...]:
        """Return what every row asks for by itself."""
        common = self.ranges.common
        ragged = [part for part in self._inside(common, common) if len(dims_of(part)) > 1]
        alternatives = []
        for own in self.ranges.apart:
            found = both(*self._inside(own, joined(common, own)))
            assert found is not None
            alternatives.append(found)
        return (*ragged, reduce(lambda one, other: Binary("or", one, other), alternatives))

    def _inside(self, bounds: Bounds, every: Bounds) -> list[Expr]:
        b, position = self.b, Position(self.dim)
        return [
            *(Binary("<", position, at(b, each, every.stop)) for each in bounds.upper),
            *(Binary(">=", position, at(b, each, every.start)) for each in bounds.lower),
        ]


def _apart(value: Expr, start: Expr) -> Expr:
    return value if start == Number(0) else Binary("-", value, start)


def _plus(start: Expr, value: Expr) -> Expr:
    return value if start == Number(0) else Binary("+", start, value)
