"""Loops that add up whole rows, one after the other: seen the other way round, each adds up a cell.

for e: for d: y[d] = y[d] + c[e] * h[e, d]    ->    for d: for e: y[d] = y[d] + c[e] * h[e, d]

What goes over all of a state that is a block has to be a sum, and a sum is of one cell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.algebra.positional.cells import mentions
from looptrans.derivation.joined.apart import handed
from looptrans.derivation.joined.loops_as_sums import has_fixed_ends, rows_carried
from looptrans.derivation.work import Work, loop_name
from looptrans.ir.program import Assign, If, Loop, Program
from looptrans.ir.walk import Placed, accesses, nodes, placed
from looptrans.transforms.editing.tree import statements_in


@dataclass(frozen=True, slots=True)
class AddedRow:
    """A loop that adds to a row, one whole row after the other.

    Attributes:
        outer: The loop that adds up.
        inner: The loop over the row.
        cuts: The statements before which the outer loop is cut to hold the inner one alone.
        apart: What the outer loop is called then.
        locals: The scalars that its pieces hand to each other.
    """

    outer: str
    inner: str
    cuts: tuple[str, ...]
    apart: str
    locals: tuple[str, ...]


def rows_added_to(program: Program, array: str, others: Collection[str]) -> Iterator[AddedRow]:
    """Yield the loops that add rows to an array, and look at what is handed on.

    Args:
        program: The program.
        array: The array.
        others: All arrays through which iterations hand something on.
    """
    for place, outer, inner in _adding(program):
        if _target(place) == array and looks_at_all(place.loops[outer], others):
            yield _row(program, place.loops[outer], inner)


def rows_added_beside(program: Program) -> Iterator[AddedRow]:
    """Yield the loops that add up rows, and look at all of a row that a loop around carries."""
    for place, outer, inner in _adding(program):
        carried = {name for loop in place.loops[:outer] for name in rows_carried(loop)}
        loop = place.loops[outer]
        if has_fixed_ends(loop) and looks_at_all(loop, carried, besides=True):
            yield _row(program, loop, inner)


def seen_by_cells(work: Work, each: AddedRow) -> bool:
    """See a loop that adds up rows the other way round; tell if that could be done."""
    before = work.mark()
    made = [f"expand({name}, {each.outer})" for name in each.locals]
    if each.cuts:
        made.append(f"distribute({', '.join((each.outer, *each.cuts))})")
    made.append(f"interchange({each.apart}, {each.inner})")
    if any(work.take("transformation", text) is not None for text in made):
        work.back_to(before)
        return False
    return True


def looks_at_all(loop: Loop, arrays: Collection[str], *, besides: bool = False) -> bool:
    """Tell whether a loop goes over cells of some arrays that it reads.

    Args:
        loop: The loop.
        arrays: The arrays.
        besides: Whether what only sets the cell that it reads does not count.
    """
    for node in nodes(loop.body):
        if isinstance(node, Assign | If):
            own = {t.array for t in node.targets} if isinstance(node, Assign) and besides else set()
            for each in accesses(node):
                read = not each.is_write and each.access.array in set(arrays) - own
                if read and mentions(each.access, loop.variable):
                    return True
    return False


def _adding(program: Program) -> Iterator[tuple[Placed, int, Loop]]:
    """Yield what adds to a cell of a row: with the loop that adds up, and the one right inside."""
    for place in placed(program):
        if not isinstance(place.node, Assign) or len(place.loops) < 3:
            continue
        target = place.node.targets[0]
        if accumulation(target, place.node.values[0], elsewhere=True) is None:
            continue
        over = [n for n, loop in enumerate(place.loops) if not mentions(target, loop.variable)]
        if over and 0 < over[-1] < len(place.loops) - 1:
            inner = place.loops[over[-1] + 1]
            if any(node is inner for node in place.loops[over[-1]].body):
                yield place, over[-1], inner


def _target(place: Placed) -> str:
    assert isinstance(place.node, Assign)
    return place.node.targets[0].array


def _row(program: Program, outer: Loop, inner: Loop) -> AddedRow:
    number = next(n for n, node in enumerate(outer.body) if node is inner)
    parts = (outer.body[:number], (inner,), outer.body[number + 1 :])
    pieces = [part for part in parts if statements_in(part)]
    cuts = tuple(statements_in(piece)[0] for piece in pieces[1:])
    label = statements_in((inner,))[0]
    return AddedRow(
        loop_name(outer),
        loop_name(inner),
        cuts,
        f"{outer.variable}@{label}",
        handed(program, pieces),
    )
