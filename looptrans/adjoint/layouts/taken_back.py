"""A view of packed rows, taken back in a listing that was made of the one that is seen.

    for b: for i in range(0, T):            ->    for b: for i in range(cu[b], cu[b + 1]):
        dX[b, i] = …                                  dX[i] = …

Loops over all rows are cut back to those of their sequence, and what was made for each row of each
sequence has its rows packed too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.equations.sums import held_together
from looptrans.adjoint.layouts.views import Use, View, created, sets_first, shaped, uses_of
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.frontend import parse
from looptrans.ir.affine import is_same, simplified
from looptrans.ir.condition import ALWAYS, Condition, Relation
from looptrans.ir.index import Index, Int, Var
from looptrans.ir.listing import listing
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, with_accesses
from looptrans.ir.source import Source
from looptrans.ir.value import (
    Access,
    Generator,
    Range,
    Reduce,
    Value,
    Whole,
    arrays_read,
    cells_read,
)
from looptrans.ir.walk import accesses, accesses_in, nodes, targets_in
from looptrans.transforms.rows.segments import Rows, Segments, is_over_all, rows_of


@dataclass(slots=True)
class TakenBack:
    """Takes a view back.

    Attributes:
        program: A listing made of the one that is seen.
        views: How its arrays are seen.
        known: The arrays of ends.
        wholes: What is gone over as the rows of a sequence, for each array of ends.
        fixed: The arrays that have the shape they are to have, unless they are among the views.
    """

    program: Program
    views: dict[str, View]
    known: Mapping[str, Segments]
    wholes: Mapping[str, Rows]
    fixed: frozenset[str]

    def run(self) -> Program:
        """Return the listing without the view."""
        while True:
            body = self._cut(self.program.body, {})
            more = dict(self._more(replace(self.program, body=body)))
            if not more:
                break
            self.views |= more
        self._check(replace(self.program, body=body))
        body = with_accesses(body, self._access)
        arrays = []
        shapes: dict[str, tuple[Index, ...]] = {}
        for array in self.program.arrays:
            view = self.views.get(array.name)
            if view is not None:
                taken = view.taken_back(array.shape)
                shapes[array.name] = tuple(e for e in taken if e is not None)
            arrays.append(shaped(array, shapes.get(array.name)))
        changed = replace(self.program, arrays=tuple(arrays), body=created(body, shapes))
        return parse(Source(self.program.source.name, listing(changed)))

    def _more(self, program: Program) -> Iterator[tuple[str, View]]:
        """Yield what was made for each row of each sequence, so that the row alone will do."""
        for array in program.arrays:
            if array.element != "float" or array.name in self.fixed | set(self.views):
                continue
            uses = [use for use in uses_of(program) if use.access.array == array.name]
            places = ((p, q) for p in range(array.rank) for q in range(array.rank) if p != q)
            for batch, row in places:
                found = {self._rows_of(use, batch, row) for use in uses}
                ends = found - {""}
                if len(ends) == 1 and None not in found:
                    (name,) = (end for end in ends if end)
                    order = [n - (n > batch) for n in range(array.rank)]
                    order[batch] = -1
                    yield array.name, View(name, row - (row > batch), tuple(order))
                    break

    def _rows_of(self, use: Use, batch: int, row: int) -> str | None:
        """Return the ends of the sequences whose rows are used; nothing where all rows are."""
        one, other = use.access.subscripts[batch], use.access.subscripts[row]
        if not isinstance(one, Var) or not isinstance(other, Var):
            return None
        if one.name not in use.around or other.name not in use.around:
            return None
        bounds = use.around[other.name]
        found = rows_of(bounds, self.known)
        if found is not None and found.sequence == one.name:
            return found.ends
        return "" if bounds.step == 1 and simplified(bounds.start) == Int(0) else None

    def _check(self, program: Program) -> None:
        """Refuse a listing in which some row is not one of the sequence around it."""
        for use in uses_of(program):
            view = self.views.get(use.access.array)
            if view is None:
                continue
            batch, row = (use.access.subscripts[n] for n in view.places)
            bounds = use.around.get(row.name) if isinstance(row, Var) else None
            rows = None if bounds is None else rows_of(bounds, self.known)
            own = rows is not None and (rows.ends, Var(rows.sequence)) == (view.ends, batch)
            around = use.around.get(batch.name) if isinstance(batch, Var) else None
            if (
                around is None
                or not is_over_all(around, self.known[view.ends])
                or not (own or self._is_asked(use, view))
            ):
                raise NotDifferentiated(
                    f"{use.access.array} is needed at rows that are none of the sequence around it"
                )

    def _is_asked(self, use: Use, view: View) -> bool:
        """Tell whether a row is read only where it is asked whether it is one of the sequence."""
        batch, row = (use.access.subscripts[n] for n in view.places)
        if not isinstance(batch, Var) or isinstance(row, Whole):
            return False
        bounds = self.wholes[view.ends].of(batch.name)
        ends = (Relation(">=", row, bounds.start), Relation("<", row, bounds.stop))
        asked = [each for condition in use.asked for each in held_together(condition)]
        return all(any(_is_one_of(each, (end,)) for each in asked) for end in ends)

    def _access(self, access: Access) -> Access:
        view = self.views.get(access.array)
        return access if view is None else Access(access.array, view.taken_back(access.subscripts))

    def _cut(self, body: tuple[Node, ...], around: dict[str, Range]) -> tuple[Node, ...]:
        """Cut loops over rows back to those of their sequence."""
        found: list[Node] = []
        for given in body:
            node = self._sequence_first(given) if isinstance(given, Loop) else given
            match node:
                case Loop():
                    rows = self._of(node.variable, accesses_in(node.body), around)
                    bounds = node.range
                    inner = node.body
                    if rows is not None and not self._is_of(bounds, rows):
                        ends, batch = rows
                        self._is_all(node.variable, bounds, ends)
                        bounds = self.wholes[ends].of(batch)
                        inner = _without_bounds(inner, node.variable, bounds)
                    inside = around | {node.variable: bounds}
                    found.append(replace(node, range=bounds, body=self._cut(inner, inside)))
                case If():
                    then, other = self._cut(node.body, around), self._cut(node.orelse, around)
                    found.append(replace(node, body=then, orelse=other))
                case Assign():
                    values = tuple(self._sums(value, around) for value in node.values)
                    found.append(replace(node, values=values))
                case _:
                    found.append(node)
        return tuple(found)

    def _sequence_first(self, loop: Loop) -> Loop:
        """Put the loop over sequences outside of one over rows, where both only add something up.

        for k: if col[k] == m:                      for i:
            for i: dB[m] += dS[i, k] …      ->          for k: if col[k] == m: …
        """
        match loop.body:
            case (Loop() as inner,):
                body = inner.body
            case (If(_, (Loop() as inner,), ()) as guard,):
                body = (replace(guard, body=inner.body),)
            case _:
                return loop
        rows = (self._row_of(access) for access in accesses_in(inner.body))
        if (inner.variable, loop.variable) not in rows or loop.variable in inner.range.variables:
            return loop
        if not _adds_up(inner.body) or inner.variable in loop.range.variables:
            return loop
        return replace(inner, body=(replace(loop, body=body),))

    def _row_of(self, access: Access) -> tuple[str, str] | None:
        """Return the variables of the sequence and of the row that an access is to."""
        view = self.views.get(access.array)
        if view is None or len(access.subscripts) <= max(view.places):
            return None
        match tuple(access.subscripts[n] for n in view.places):
            case (Var(batch), Var(row)):
                return batch, row
            case _:
                return None

    def _sums(self, value: Value, around: dict[str, Range]) -> Value:
        """Cut sums over rows back to those of their sequence."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Reduce):
                return None
            generators: list[Generator] = []
            inside = dict(around)
            read = cells_read(part.body)
            for g in self._sequences_first(part):
                rows = self._of(g.variable, read, inside)
                bounds = g.range
                if rows is not None and not self._is_of(bounds, rows):
                    self._is_all(g.variable, bounds, rows[0])
                    bounds = self.wholes[rows[0]].of(rows[1])
                inside[g.variable] = bounds
                generators.append(replace(g, range=bounds))
            return Reduce(part.function, tuple(generators), self._sums(part.body, inside))

        return replaced(value, change)

    def _sequences_first(self, sum_: Reduce) -> tuple[Generator, ...]:
        """Return the generators of a sum with those over sequences before those over rows."""
        order = list(sum_.generators)
        for found in map(self._row_of, cells_read(sum_.body)):
            names = [g.variable for g in order]
            if found is None or not {*found} <= {*names}:
                continue
            batch, row = map(names.index, found)
            free = not any(name in order[batch].range.variables for name in names)
            if row < batch and order[batch].condition == ALWAYS and free:
                order.insert(row, order.pop(batch))
        return tuple(order)

    def _is_of(self, bounds: Range, rows: tuple[str, str]) -> bool:
        """Tell whether a range has rows of a sequence, given by its ends and its variable."""
        found = rows_of(bounds, self.known)
        return found is not None and (found.ends, found.sequence) == rows

    def _of(
        self, variable: str, inside: Iterable[Access], around: Mapping[str, Range]
    ) -> tuple[str, str] | None:
        """Return the ends and the sequence whose rows a variable stands for."""
        found: set[tuple[str, str]] = set()
        for access in inside:
            view = self.views.get(access.array)
            if view is None:
                continue
            if len(access.subscripts) <= max(view.places):
                raise NotDifferentiated(
                    f"{access.array} is kept for rows of all sequences: its rows have no batch",
                    remedy=f"work {access.array} out in each loop, in a number, where it is read, "
                    "or in a listing of its own, and hand it on as an argument",
                )
            batch, row = (access.subscripts[n] for n in view.places)
            if row != Var(variable):
                continue
            if not isinstance(batch, Var) or batch.name not in around:
                raise NotDifferentiated(
                    f"{access.array} is gathered over {variable} before it is known which "
                    "sequence its rows belong to"
                )
            found.add((view.ends, batch.name))
        if len(found) > 1:
            raise NotDifferentiated(f"{variable} stands for rows of two kinds of sequences")
        return next(iter(found), None)

    def _is_all(self, variable: str, bounds: Range, ends: str) -> None:
        """Refuse a loop that is no loop over all rows."""
        if bounds.step != 1 or simplified(bounds.start) != Int(0):
            raise NotDifferentiated(
                f"{variable} does not go over all rows that {ends} divides",
                remedy="write what adds up along a sequence as a sum, in a listing of its own, and "
                "hand it on as an argument",
            )


def _adds_up(body: tuple[Node, ...]) -> bool:
    """Tell whether nothing is done but additions, of what is not added to, to what is there.

    What is added may be worked out in numbers that are set first.
    """
    targets = targets_in(body)
    numbers = {target.array for target in targets if not target.subscripts}
    sums = {target.array for target in targets} - numbers
    for node in nodes(body):
        match node:
            case Assign(targets=(target,), values=(value,)):
                if target.array in numbers:
                    if arrays_read(value) & sums:
                        return False
                    continue
                found = accumulation(target, value)
                if found is None or found[0] != "sum" or arrays_read(found[1]) & sums:
                    return False
            case If(orelse=()) if {r.access.array for r in accesses(node)} & sums:
                return False
            case Loop() | If(orelse=()):
                pass
            case _:
                return False
    return sets_first(body, numbers)


def _without_bounds(body: tuple[Node, ...], variable: str, bounds: Range) -> tuple[Node, ...]:
    """Leave out guards that say no more than a range does."""
    known = (
        Relation(">=", Var(variable), bounds.start),
        Relation("<", Var(variable), bounds.stop),
    )

    def change(node: Node) -> tuple[Node, ...]:
        if isinstance(node, If) and not node.orelse and _is_one_of(node.condition, known):
            return node.body
        return (node,)

    return rewritten(body, change)


def _is_one_of(condition: Condition, known: tuple[Relation, ...]) -> bool:
    return isinstance(condition, Relation) and any(
        condition.op == each.op
        and is_same(condition.left, each.left)
        and is_same(condition.right, each.right)
        for each in known
    )
