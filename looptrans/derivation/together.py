"""Nests and passes brought together, and what iterations have for themselves."""

from __future__ import annotations

from collections import Counter

from looptrans.adjoint.rewriting.spelled import LOOPS
from looptrans.derivation.forms.versions import overwritten
from looptrans.derivation.joined.buffers import reused
from looptrans.derivation.joined.passes import (
    count_of_costly_sums,
    count_of_sums,
    sums_of_sums,
    wide_sums,
)
from looptrans.derivation.nests_joined import side_by_side
from looptrans.derivation.passes_joined import one_pass, runs, sums, sums_before_rows
from looptrans.derivation.work import Work
from looptrans.ir.program import Assign, Program
from looptrans.ir.value import Value, has_reduction, reductions
from looptrans.ir.walk import placed


def joined(work: Work, *, own: bool = False) -> None:
    """Bring nests and passes together.

    What is worked out again is so for the sake of one pass, and stays where there is none, or where
    one pass comes without that, keeps nothing large, and sums less.
    """
    start = work.mark()
    again = work.take("worked out again") is None
    _with_own_arrays(work, own=own)
    if again:
        other = work.mark()
        is_better = _is_one_pass(work) and not _sums_more(start, work)
        if not is_better or _is_small(start.program, work.program):
            work.back_to(start)
            _with_own_arrays(work, own=own)
            costs_less = _is_one_pass(work) and _costs_more(other.program, work.program)
            if is_better and not costs_less:
                work.back_to(other)
    if runs(work) and any(step.kind == "versions" for step in work.steps):
        _joined_with_versions(work, start, own=own)


def _sums_more(before: Work, work: Work) -> bool:
    """Tell whether sums that take long are done more often than before."""
    return count_of_costly_sums(work.program) > count_of_costly_sums(before.program)


def _joined_with_versions(work: Work, start: Work, *, own: bool) -> None:
    """Work versions of an array out again, where more passes become one by that.

    for j: p[j] = x[j]; m = max(m, p[j])           for j: m = max(m, x[j])
    for j: p[j] = exp(p[j] - m); l += p[j]    ->   for j: l += exp(x[j] - m)
    for j: o += p[j] / l * v[j]                    for j: o += exp(x[j] - m) / l * v[j]
    """
    as_written, program = work.mark(), work.program
    count = _passes_joined(work)
    work.back_to(start)
    rows_again(work, own=own)
    if _passes_joined(work) <= count or (count and _costs_more(work.program, program)):
        work.back_to(as_written)


def _with_own_arrays(work: Work, *, own: bool) -> None:
    own_arrays(work, reused_too=own)
    brought_together(work)


def _is_one_pass(work: Work) -> bool:
    """Tell whether any passes became one."""
    return any(step.kind == "one pass" for step in work.steps)


def _costs_more(program: Program, other: Program) -> bool:
    """Tell whether a program sums more than another one, which keeps nothing large for that."""
    return _is_small(other, program) and count_of_sums(program) > count_of_sums(other)


def _is_small(program: Program, other: Program) -> bool:
    """Tell whether what only the first program keeps is no larger than what is given."""
    kept = {array.name for array in program.arrays} - {array.name for array in other.arrays}
    given = [a for a in program.arrays if a.role == "input" or a.name in program.outputs]
    rooms = [Counter(array.shape) for array in given]
    return all(
        any(Counter(array.shape) <= room for room in rooms)
        for array in program.arrays
        if array.name in kept and array.rank
    )


def _passes_joined(work: Work) -> int:
    """Return how many passes became part of another one."""
    return sum(len(step.arguments) - 1 for step in work.steps if step.kind == "one pass")


def rows_again(work: Work, *, own: bool = False) -> None:
    """Do the same, where what loops of one iteration hand to another is worked out again."""
    own_arrays(work, reused_too=own)
    mark = work.mark()
    if work.take("rows worked out again") is None:
        brought_together(work)
        if _sums_more(mark, work):
            work.back_to(mark)


def results_again(work: Work) -> None:
    """Give each result a nest of its own, where numbers that several hang on would take room.

    What such a result hangs on may be one pass with another one, as the sums of a softmax are.
    """
    own_arrays(work)
    mark = work.mark()
    if work.take("results worked out again") is None and _sums_more(mark, work):
        work.back_to(mark)
        return
    mark = work.mark()
    count = len(mark.steps)
    side_by_side(work)
    one_pass(work)
    if not any(step.kind == "one pass" for step in work.steps[count:]):
        work.back_to(mark)


def sums_in_loops(work: Work) -> None:
    """Write sums of several variables as loops over the first, and leave loops what they are."""
    own_arrays(work)
    for label in tuple(sums_of_sums(work.program)):
        work.take("sum as a loop", label)


def wide_sums_in_loops(work: Work) -> None:
    """Write sums of products as loops where no block is to hold all that they go over."""
    for label in tuple(wide_sums(work.program)):
        work.take("sum as a loop", label)


def extrema_in_loops(work: Work) -> None:
    """Write maxima and minima of products as loops, where another sum or extremum is over them.

    sum(max(sum(Q[i, e] * K[j, e] for e in …) for j in …) for i in …) would have a row of all j.
    """
    while True:
        found = (
            place.label
            for place in placed(work.program)
            if isinstance(place.node, Assign) and any(map(_is_over_extrema, place.node.values))
        )
        label = next(found, None)
        if label is None or work.take(LOOPS, label) is None:
            return


def _is_over_extrema(value: Value) -> bool:
    """Tell whether a value has a reduction over extrema of sums."""
    inside = list(reductions(value))
    return any(
        inner.function != "sum" and has_reduction(inner.body)
        for outer in inside
        for inner in reductions(outer.body)
    )


def brought_together(work: Work) -> None:
    """Make one pass of nests and passes that may be one."""
    sums(work)
    side_by_side(work)
    before = work.mark()
    if sums_before_rows(work):
        count = len(work.steps)
        one_pass(work)
        if any(step.kind == "one pass" for step in work.steps[count:]):
            return
        work.back_to(before)
    one_pass(work)


def own_arrays(work: Work, *, reused_too: bool = False) -> None:
    """Count rows where they are, and let each iteration have its part of what it makes."""
    work.take("made once")
    for array, loops in reused(work.program) if reused_too else ():
        work.take("transformation", f"expand({array}, {', '.join(loops)})")
    if work.take("rows in place") is None:
        # Of rows that are counted where they are it may be known how many there can be.
        work.take("made once")
    work.take("picked")


def own_versions(work: Work) -> None:
    """Give each pass a name of its own for what it makes of an array that others overwrite."""
    for name in tuple(overwritten(work.program)):
        work.take("versions", name)
