"""What iterations hand on through arrays goes on in states; what adds up to it does so in sums.

    for t downwards:                              for t downwards:
        for s:                                        for s: u[s] = f(dh[t + 1, s])
            u = f(dh[t + 1, s])             ->        for r: next[r] = sum(u[s] * W[s, r] for s)
            for r: dh[t, r] += u * W[s, r]            for r: state[r] = next[r]

Where elements look at each other a state is a block: what looks at all of it has to be a sum.
"""

from __future__ import annotations

from collections.abc import Collection

from looptrans.adjoint.rewriting.simpler import BLOCKS
from looptrans.derivation.handed_on.handed import handed_on
from looptrans.derivation.handed_on.row_by_row import is_over_blocks, tables
from looptrans.derivation.handed_on.whole_rows import rows_handed_on
from looptrans.derivation.joined.loops_as_sums import added_to_rows, sum_loops
from looptrans.derivation.rows_added import looks_at_all, rows_added_to, seen_by_cells
from looptrans.derivation.work import Work


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
        if found.update.targets[0].array in arrays or looks_at_all(found.loop, arrays):
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
    for each in tuple(rows_added_to(work.program, array, others)):
        if seen_by_cells(work, each):
            looked_at |= {*each.locals}
    for found in sum_loops(work.program, several=True):
        if found.update.targets[0].array == array and looks_at_all(found.loop, looked_at):
            work.take("loop as sum", found.update.label)
    return len(work.steps) > start
