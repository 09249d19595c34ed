"""Loops that end with their sequence because one around them does, made to say so.

    for i in range(cu[b], cu[b + 1]):           for i in range(cu[b], cu[b + 1]):
        for j in range(cu[b], i + 1):    ->         for j in range(cu[b], min(cu[b + 1], i + 1)):
        for j in range(i, cu[b + 1]):               for j in range(max(cu[b], i), cu[b + 1]):

The iterations are the same: i is a row of b, and what is added to a range is never less than what
was there. Then each range is known to be of rows of one sequence by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from looptrans.ir.affine import extremum, form_of, sides
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Index, Var, variables
from looptrans.ir.listing import index_text
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.value import Range, Reduce, Value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses_in
from looptrans.transforms.rows.segments import Rows, Segments, rows_of, segments_of


@dataclass(frozen=True, slots=True)
class Bounded:
    """A program in which ranges say that they stay within a sequence.

    Attributes:
        listing: The program before.
        program: The program afterwards.
        laws: What was added leans on, an inequality each.
    """

    listing: Program
    program: Program
    laws: tuple[str, ...]

    def back(self, program: Program) -> Program:
        """Leave out again what was added, in a program that has more statements, and no loops."""
        before: list[Node] = []

        def seen(node: Node) -> tuple[Node, ...]:
            before.append(node)
            return (node,)

        rewritten(self.listing.body, seen)
        loops = iter([node for node in before if isinstance(node, Loop)])
        statements = iter([node for node in before if isinstance(node, Assign)])
        own = {array.name for array in self.listing.arrays}

        def change(node: Node) -> tuple[Node, ...]:
            match node:
                case Loop():
                    return (replace(node, range=next(loops).range),)
                case Assign() if all(target.array in own for target in node.targets):
                    return (replace(node, values=next(statements).values),)
                case _:
                    return (node,)

        return replace(program, body=rewritten(program.body, change))

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "; ".join(self.laws)
        reason = "by the range of the loop around; what bounds a range is in it already"
        return Certificate("order", law, "legal", reason)


def with_ends_said(program: Program) -> Bounded | None:
    """Let ranges over rows of a sequence say where the sequence ends.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where every range says it, or none is over rows.
    """
    known = segments_of(program)
    if not known:
        return None
    work = Ends(known)
    body = work.body(program.body, {})
    if not work.laws:
        return None
    return Bounded(program, replace(program, body=body), tuple(dict.fromkeys(work.laws)))


def rows_inside(
    bounds: Range, around: Mapping[str, Range], known: Mapping[str, Segments]
) -> Rows | None:
    """Return the sequence whose rows a range has, also where rows around say where it ends.

    Args:
        bounds: The range.
        around: The ranges of the loops around, outer ones first.
        known: The arrays of ends.
    """
    ends = Ends(known)
    loops: dict[str, Rows] = {}
    for variable, outer in around.items():
        loops = ends.inside(loops, variable, ends.bounded(outer, loops))
    return rows_of(ends.bounded(bounds, loops), known)


def has_packed_rows(body: tuple[Node, ...], variable: str, rows: Rows) -> bool:
    """Tell whether a variable goes over rows of a sequence in an array that has those of all.

    Args:
        body: The body of its loop.
        variable: The variable.
        rows: The rows.
    """
    return any(
        Var(variable) in access.indices
        and not any(rows.sequence in variables(index) for index in access.indices)
        for access in accesses_in(body)
    )


@dataclass(slots=True)
class Ends:
    """Says where ranges over rows of a sequence end.

    Attributes:
        known: The arrays of ends.
        laws: What was added leans on, an inequality each.
    """

    known: Mapping[str, Segments]
    laws: list[str] = field(default_factory=list)

    def body(self, body: tuple[Node, ...], around: Mapping[str, Rows]) -> tuple[Node, ...]:
        """Return a block in which ranges say it."""
        return tuple(self.node(node, around) for node in body)

    def node(self, node: Node, around: Mapping[str, Rows]) -> Node:
        """Return a node in which ranges say it."""
        match node:
            case Loop():
                bounds = self.bounded(node.range, around)
                inside = self.inside(around, node.variable, bounds)
                return replace(node, range=bounds, body=self.body(node.body, inside))
            case If():
                then, other = self.body(node.body, around), self.body(node.orelse, around)
                return replace(node, body=then, orelse=other)
            case Assign():
                return replace(node, values=tuple(self.value(v, around) for v in node.values))
            case _:
                return node

    def inside(self, around: Mapping[str, Rows], variable: str, bounds: Range) -> dict[str, Rows]:
        """Return the loops over rows around the body of a loop, by their variables."""
        kept = {v: r for v, r in around.items() if variable not in (v, r.sequence)}
        rows = rows_of(bounds, self.known)
        return kept if rows is None else kept | {variable: rows}

    def value(self, value: Value, around: Mapping[str, Rows]) -> Value:
        """Return a value in which the ranges of sums say it."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Reduce) or any(g.condition != ALWAYS for g in part.generators):
                return None
            inside = dict(around)
            found = []
            for g in part.generators:
                found.append(replace(g, range=self.bounded(g.range, inside)))
                inside = self.inside(inside, g.variable, found[-1].range)
            return Reduce(part.function, tuple(found), self.value(part.body, inside))

        return replaced(value, change)

    def bounded(self, bounds: Range, around: Mapping[str, Rows]) -> Range:
        """Return a range that begins or ends at a row around it, and says which rows these are."""
        if bounds.step != 1 or rows_of(bounds, self.known) is not None:
            return bounds
        for variable, rows in around.items():
            lows, highs = sides("max", bounds.start), sides("min", bounds.stop)
            begins = rows.start in lows
            ends = any(self.known[rows.ends].is_inside(high, rows.sequence) for high in highs)
            high = next((h for h in highs if _from(h, variable) in (1, 0)), None)
            low = next((x for x in lows if _from(x, variable) == 0), None)
            if (begins or low is not None) and (ends or high is not None):
                start, stop = bounds.ends
                if not begins and low is not None:
                    start = extremum("max", (rows.start, start))
                    self.laws.append(f"{index_text(rows.start)} <= {index_text(low)}")
                if not ends and high is not None:
                    stop = extremum("min", (rows.stop, stop))
                    self.laws.append(f"{index_text(high)} <= {index_text(rows.stop)}")
                return Range(start, stop)
        return bounds


def _from(index: Index, variable: str) -> int | None:
    """Return the number an index is beyond a variable, where it is one."""
    form = form_of(index)
    return form.constant if form.terms == {Var(variable): 1} else None
