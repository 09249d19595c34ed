"""What iterations hand on through arrays goes on in states; what adds up to it does so in sums.

    for t downwards:                              for t downwards:
        for s:                                        for s: u[s] = f(dh[t + 1, s])
            u = f(dh[t + 1, s])             ->        for r: next[r] = sum(u[s] * W[s, r] for s)
            for r: dh[t, r] += u * W[s, r]            for r: state[r] = next[r]

Where elements look at each other a state is a block: what looks at all of it has to be a sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.rewriting.simpler import BLOCKS
from looptrans.algebra.positional.cells import mentions
from looptrans.derivation.handed_on.handed import handed_on
from looptrans.derivation.handed_on.row_by_row import is_over_blocks, tables
from looptrans.derivation.handed_on.whole_rows import rows_handed_on
from looptrans.derivation.joined.apart import handed
from looptrans.derivation.joined.loops_as_sums import added_to_rows, sum_loops
from looptrans.derivation.work import Work, loop_name
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.walk import placed, relations_in
from looptrans.transforms.editing.tree import statements_in


def in_states(work: Work) -> None:
    """Hand on in states what iterations hand on through arrays."""
    _with_tables_whole(work)
    arrays = _handed_on(work)
    for array in arrays:
        before = work.mark()
        summed = _summed(work, array, arrays)
        error = work.take("state", array)
        if error is not None and summed:
            work.back_to(before)
            error = work.take("state", array)
        if error is None:
            continue
        before = work.mark()
        adding = [e for e in sum_loops(work.program) if e.update.targets[0].array == array]
        added = [work.take("loop as sum", each.update.label) is None for each in adding]
        if not any(added) or work.take("state", array) is not None:
            work.back_to(before)
            work.note(error)


def own_parts(work: Work) -> None:
    """Keep what iterations work on, and leave behind, in arrays of their own."""
    work.take(BLOCKS)
    known = {array.name for array in work.program.arrays}
    for name in sorted(known):
        work.take("own part", name)
    parts = {array.name for array in work.program.arrays} - known
    _with_sums_over(work, parts)


def _with_tables_whole(work: Work) -> None:
    """Keep tables whole whose rows look at rows made before, and of blocks what one has.

    Such as an outer loop makes anew are made once, with a part for each of its iterations.
    """
    before, known = work.mark(), tables(work.program)
    if work.take("made once") is None and len(tables(work.program)) == len(known):
        work.back_to(before)
    if any(is_over_blocks(work.program, name) for name in tables(work.program)):
        work.take(BLOCKS)
    for name in tables(work.program):
        work.take("own part", name)
    for name in tables(work.program):
        _kept_whole(work, name)


def _kept_whole(work: Work, table: str) -> None:
    """Keep a table whole, its rows made from sums over those before."""
    before = work.mark()
    _with_sums_over(work, {table})
    for label in added_to_rows(work.program, table):
        work.take("loop as sum", label)
    if work.take("row by row", table) is not None:
        work.back_to(before)


def _with_sums_over(work: Work, arrays: Collection[str]) -> None:
    """Write as sums the loops that add up rows of some arrays, or add to them."""
    for found in sum_loops(work.program, several=True):
        if found.update.targets[0].array in arrays or _looks(found.loop, arrays):
            work.take("loop as sum", found.update.label)


def _handed_on(work: Work) -> tuple[str, ...]:
    """Return the arrays through which iterations hand something on.

    Such as an outer loop makes anew for each of its iterations are made once, with a part for each.
    """
    arrays = handed_on(work.program)
    before = work.mark()
    if work.take("made once") is None:
        more = handed_on(work.program)
        if len(more) > len(arrays):
            return more
        work.back_to(before)
    return arrays


def with_whole_rows(work: Work) -> bool:
    """Go over rows that iterations hand on whole; tell if any were gone over in part."""
    before = len(work.steps)
    for kind in ("whole rows", "looked up"):
        for array in rows_handed_on(work.program):
            work.take(kind, array)
    return len(work.steps) > before


def _summed(work: Work, array: str, others: Collection[str]) -> bool:
    """Write as sums what looks at all that is handed on and adds up to an array.

    Args:
        work: The work.
        array: The array.
        others: All arrays through which iterations hand something on.

    Returns:
        Whether anything was changed.
    """
    start = len(work.steps)
    looked_at = set(others)
    for each in tuple(_rows(work.program, array, others)):
        before = work.mark()
        made = [f"expand({name}, {each.outer})" for name in each.locals]
        if each.cuts:
            made.append(f"distribute({', '.join((each.outer, *each.cuts))})")
        made.append(f"interchange({each.apart}, {each.inner})")
        if any(work.take("transformation", text) is not None for text in made):
            work.back_to(before)
        else:
            looked_at |= {*each.locals}
    for found in sum_loops(work.program, several=True):
        if found.update.targets[0].array == array and _looks(found.loop, looked_at):
            work.take("loop as sum", found.update.label)
    return len(work.steps) > start


@dataclass(frozen=True, slots=True)
class _Row:
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


def _rows(program: Program, array: str, others: Collection[str]) -> Iterator[_Row]:
    """Yield the loops that add rows to an array, and look at what is handed on."""
    for place in placed(program):
        if not isinstance(place.node, Assign) or len(place.loops) < 3:
            continue
        target, (outer, inner) = place.node.targets[0], place.loops[-2:]
        if (
            target.array != array
            or accumulation(target, place.node.values[0], elsewhere=True) is None
        ):
            continue
        if mentions(target, outer.variable) or not mentions(target, inner.variable):
            continue
        number = next((n for n, node in enumerate(outer.body) if node is inner), None)
        if number is None or not _looks(outer, others):
            continue
        parts = (outer.body[:number], (inner,), outer.body[number + 1 :])
        pieces = [part for part in parts if statements_in(part)]
        cuts = tuple(statements_in(piece)[0] for piece in pieces[1:])
        label = statements_in((inner,))[0]
        yield _Row(
            loop_name(outer),
            loop_name(inner),
            cuts,
            f"{outer.variable}@{label}",
            handed(program, pieces),
        )


def _looks(loop: Loop, arrays: Collection[str]) -> bool:
    """Tell whether a loop goes over cells of some arrays that it reads."""
    return any(
        not each.is_write and each.access.array in arrays and mentions(each.access, loop.variable)
        for each in relations_in(loop.body)
    )
