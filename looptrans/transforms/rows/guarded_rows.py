"""Loops over all rows whose guard leaves those of one sequence, made loops over these.

    for i in range(0, T):                          for i in range(start[b], stop[b]):
        if start[b] <= i and i < stop[b]:    ->        …
            …

Both are then read for every sequence, so the arrays must be known to have an element for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from looptrans.ir.affine import difference, extremum, form_of, is_same, total
from looptrans.ir.condition import ALWAYS, Condition, conjunction, conjuncts
from looptrans.ir.index import Index, Int, Opaque, opaque_terms, substitute, variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Generator, Range, Reduce, Value
from looptrans.ir.verdict import Certificate
from looptrans.transforms.rows.bounded import has_packed_rows, rows_inside
from looptrans.transforms.rows.ends_asked import end_of, start_of
from looptrans.transforms.rows.segments import Segments, is_over_all, segments_of


@dataclass(frozen=True, slots=True)
class GuardedRows:
    """A program whose loops are over the rows that their guards let through.

    Attributes:
        program: The program afterwards.
        loops: Their variables.
    """

    program: Program
    loops: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"let {' and '.join(dict.fromkeys(self.loops))} go over rows of one sequence"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        reason = "the guard holds between the new ends, and nowhere else"
        return Certificate("order", law, "legal", reason)


def with_guarded_rows(program: Program) -> GuardedRows | None:
    """Let loops and sums whose guards leave rows of one sequence be over these.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such guard.
    """
    known = segments_of(program)
    if not known:
        return None
    work = _Work(program, known)
    body = work.body(program.body, {})
    return GuardedRows(replace(program, body=body), tuple(work.loops)) if work.loops else None


@dataclass(slots=True)
class _Work:
    program: Program
    known: Mapping[str, Segments]
    loops: list[str] = field(default_factory=list)

    def body(self, body: tuple[Node, ...], around: Mapping[str, Range]) -> tuple[Node, ...]:
        return tuple(self.node(node, around) for node in body)

    def node(self, node: Node, around: Mapping[str, Range]) -> Node:
        match node:
            case Loop(variable):
                condition, inside = _guarded(node.body)
                is_plain = node.execution == "sequential"
                found = self.rows(variable, node.range, condition, around) if is_plain else None
                rows = None if found is None else rows_inside(found[0], around, self.known)
                # Where each sequence has a place for every row, those of all are gone over.
                if found is not None and rows and has_packed_rows(inside, variable, rows):
                    bounds, rest = found
                    self.loops.append(variable)
                    kept = inside if rest == ALWAYS else (If(rest, inside),)
                    node = replace(node, range=bounds, body=kept)
                return replace(node, body=self.body(node.body, {**around, variable: node.range}))
            case If():
                then, other = self.body(node.body, around), self.body(node.orelse, around)
                return replace(node, body=then, orelse=other)
            case Assign():
                return replace(node, values=tuple(self.value(v, around) for v in node.values))
            case _:
                return node

    def value(self, value: Value, around: Mapping[str, Range]) -> Value:
        def change(part: Value) -> Value | None:
            if not isinstance(part, Reduce):
                return None
            inside = dict(around)
            generators: list[Generator] = []
            for g in part.generators:
                found = self.rows(g.variable, g.range, g.condition, inside)
                bounds, rest = found or (g.range, g.condition)
                if found is not None:
                    self.loops.append(g.variable)
                generators.append(Generator(g.variable, bounds, rest))
                inside[g.variable] = bounds
            return Reduce(part.function, tuple(generators), self.value(part.body, inside))

        return replaced(value, change)

    def rows(
        self, variable: str, bounds: Range, condition: Condition, around: Mapping[str, Range]
    ) -> tuple[Range, Condition] | None:
        """Return the rows of a sequence that a condition leaves of a range, and what else it asks.

        They are all rows of the sequence that the range has, or those up to a row around.
        """
        if bounds.step != 1 or self.sequence(bounds, around) is not None:
            return None
        parts = conjuncts(condition)
        for first, last in product((None, *parts), repeat=2):
            start = Int(0) if first is None else start_of(first, variable)
            stop = Int(0) if last is None else end_of(last, variable)
            if start is None or stop is None:
                continue
            low = bounds.start if first is None else self.latest(bounds.start, start)
            high = bounds.stop if last is None else self.earliest(bounds.stop, stop)
            segments = self.sequence(Range(low, high), around)
            if segments is not None and all(self.is_there(end, segments) for end in (start, stop)):
                rest = tuple(part for part in parts if part not in (first, last))
                return Range(low, high), conjunction(*rest)
        return None

    def sequence(self, bounds: Range, around: Mapping[str, Range]) -> Segments | None:
        """Return the sequences of one of which a range has rows."""
        rows = rows_inside(bounds, around, self.known)
        if rows is None or rows.sequence not in around:
            return None
        segments = self.known[rows.ends]
        return segments if is_over_all(around[rows.sequence], segments) else None

    def is_there(self, end: Index, segments: Segments) -> bool:
        """Tell whether all arrays that an end is read from have an element for each sequence."""
        for term in opaque_terms(end):
            extents = self.program.array(term.array).shape
            for argument, extent in zip(term.arguments, extents, strict=True):
                names = variables(argument)
                if extent is None or len(names) != 1:
                    return False
                last = substitute(argument, {names[0]: total(segments.count, -1)})
                room = difference(extent, last)
                if not isinstance(room, Int) or room.value < 1:
                    return False
        return True

    def latest(self, start: Index, other: Index) -> Index:
        """Return the later one of two starts."""
        if is_same(start, Int(0)) and isinstance(other, Opaque):
            declared = self.program.array(other.array).value_range
            least = None if declared is None else form_of(declared[0])
            if least is not None and least.is_constant and least.constant >= 0:
                return other
        return extremum("max", (start, other))

    def earliest(self, stop: Index, other: Index) -> Index:
        """Return the earlier one of two ends."""
        if isinstance(other, Opaque):
            declared = self.program.array(other.array).value_range
            if declared is not None and is_same(total(declared[1], -1), stop):
                return other
        return extremum("min", (stop, other))


def _guarded(body: tuple[Node, ...]) -> tuple[Condition, tuple[Node, ...]]:
    """Return what guards around all of a block ask of indices, and what is inside of them."""
    match body:
        case (If(condition, then, (), label=None),):
            inner, inside = _guarded(then)
            return conjunction(condition, inner), inside
        case _:
            return ALWAYS, body
