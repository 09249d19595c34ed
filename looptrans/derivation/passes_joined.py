"""Passes over one range made a single loop, those too that have to be brought side by side."""

from __future__ import annotations

from looptrans.adjoint.rewriting.simpler import ALIKE
from looptrans.derivation.joined.loops_as_sums import (
    is_before_rows,
    is_beside_rows,
    is_shared,
    is_with_rows,
    mixed_loops,
    sum_loops,
)
from looptrans.derivation.joined.passes import Passes, brought_out, passes
from looptrans.derivation.rows_added import AddedRow, rows_added_beside, seen_by_cells
from looptrans.derivation.step import NotDone
from looptrans.derivation.work import Work, loop_name
from looptrans.ir.program import Loop
from looptrans.ir.walk import placed
from looptrans.transforms.editing.tree import (
    Position,
    blocks_of,
    loop_paths,
    loops_around,
    statements_in,
)


def one_pass(work: Work) -> None:
    """Make passes over the same range one, those too that have to be brought side by side."""
    notes = len(work.notes)
    tried: set[Passes] = set()
    plain: int | None = None
    while True:
        found = passes(work.program, _free_loops(work))
        each = next((p for p in found if p not in tried and not _are_beside_rows(work, p)), None)
        if each is None:
            break
        tried.add(each)
        before = work.mark()
        if plain is None:
            plain = _joined_passes(work)
            work.back_to(before)
        count = _joined_passes(work) if _side_by_side(work, each) else 0
        if count <= plain:
            work.back_to(before)
        else:
            _alone_as_before(work, before, each, count)
            plain = 0
    _joined_passes(work)
    _joined_once_divided(work, notes)
    _joined_with_sums(work, notes)


def _alone_as_before(work: Work, before: Work, each: Passes, count: int) -> None:
    """Leave those passes what they were that joined no other one, and join the others again.

    Args:
        work: The work, with the passes that could be joined.
        before: What it was before.
        each: The passes.
        count: How many were joined.
    """
    made = [step for step in work.steps if step.kind == "one pass"]
    joined = {str(name).partition("@")[2] for step in made for name in step.arguments}
    kept = Passes(
        tuple(label for label in each.sums if label in joined),
        tuple(label for label in each.inside if label in joined),
    )
    if kept == each:
        return
    now = work.mark()
    work.back_to(before)
    if not _side_by_side(work, kept) or _joined_passes(work) < count:
        work.back_to(now)


def _are_beside_rows(work: Work, each: Passes) -> bool:
    """Tell whether sums stand where rows are carried: both are of one block."""
    places = {place.label: place for place in placed(work.program)}
    return any(
        is_with_rows(work.program, (*places[label].loop_positions[-1], 0))
        for label in each.sums
        if places[label].loops
    )


def _joined_once_divided(work: Work, notes: int) -> None:
    """Join the passes that are left, which divide behind themselves by what they waited for."""
    left = dict.fromkeys(name for run in runs(work) for name in run)
    before = work.mark()
    del work.notes[notes:]
    for name in left:
        work.take("division behind", name)
    if work.program == before.program or _joined_passes(work) == 0:
        work.back_to(before)


def _joined_with_sums(work: Work, notes: int) -> None:
    """Join the passes that are left, with what they add up in loops inside as sums."""
    left = {name for run in runs(work) for name in run}
    before = work.mark()
    del work.notes[notes:]
    for each in sum_loops(work.program):
        if each.first is None:
            continue
        around = loops_around(work.program, each.position)
        if left & {loop_name(path.loop) for path in around}:
            work.take("loop as sum", each.update.label)
    if work.program == before.program or _joined_passes(work) == 0:
        work.back_to(before)


def sums(work: Work) -> None:
    """Write loops as sums where a kernel has no other form for them, or a slower one."""
    _rows_by_cells(work)
    _told_apart(work)
    program = work.program
    for each in sum_loops(program):
        if is_shared(program, each) or is_beside_rows(program, each):
            work.take("loop as sum", each.update.label)
    work.take(ALIKE)


def sums_before_rows(work: Work) -> bool:
    """Write loops as sums whose passes may join one with a row; tell whether there were any.

    Passes that add up alike, one in a loop and the other in a sum, would round in two ways.
    """
    before = work.program
    for each in sum_loops(before):
        if is_before_rows(before, each):
            work.take("loop as sum", each.update.label)
    if work.program == before:
        return False
    work.take(ALIKE)
    return True


def _rows_by_cells(work: Work) -> None:
    """Let loops that add up rows, beside rows that are carried, add up one cell at a time."""
    tried: set[AddedRow] = set()
    while True:
        each = next((r for r in rows_added_beside(work.program) if r not in tried), None)
        if each is None:
            return
        tried.add(each)
        seen_by_cells(work, each)


def _told_apart(work: Work) -> None:
    """Take loops apart that add up between what else they do, beside rows that are carried."""
    tried: set[str] = set()
    while True:
        each = next((m for m in mixed_loops(work.program) if m.name not in tried), None)
        if each is None:
            return
        tried.add(each.name)
        before = work.mark()
        made = [f"expand({name}, {each.name})" for name in each.locals]
        made.append(f"distribute({', '.join((each.name, *each.cuts))})")
        if any(work.take("transformation", text) is not None for text in made):
            work.back_to(before)


def _free_loops(work: Work) -> list[Position]:
    """Return the loops that carry nothing, nor do those around them, where that matters."""
    paths = loop_paths(work.program)
    found: list[Position] = [()]
    if not any(passes(work.program, [(), *(path.position for path in paths)])):
        return found
    for path in paths:
        outside = loops_around(work.program, path.position)
        if all(o.position in found for o in outside) and not work.reduces(path.loop):
            found.append(path.position)
    return found


def _side_by_side(work: Work, each: Passes) -> bool:
    """Bring passes side by side, as loops; tell whether that could be done."""
    if any(work.take("sum as a loop", label) is not None for label in each.sums):
        return False
    for label in each.inside:
        for text in brought_out(work.program, label):
            if work.take("transformation", text) is not None:
                return False
    return True


def _joined_passes(work: Work) -> int:
    """Make passes over the same range one, as many at a time as can be; return how many."""
    count = len(work.steps)
    tried: set[tuple[str, ...]] = set()
    while True:
        left = [run for run in runs(work) if run not in tried]
        if not left:
            made = [step for step in work.steps[count:] if step.kind == "one pass"]
            return sum(len(step.arguments) - 1 for step in made)
        run = left[0]
        tried.add(run)
        reason = work.take("one pass", *run)
        if reason is None:
            tried.clear()
            continue
        over = run[0].partition("@")[0]
        # Of loops that no one wrote, over parts that rows keep, nobody asks why they stay.
        if len(run) == 2 and over in {path.variable for path in loop_paths(work.first)}:
            why = f"two passes over {over} stay: {reason.reason}"
            work.note(NotDone(why, reason.decision))


def runs(work: Work) -> list[tuple[str, ...]]:
    """Return loops of one block with the same range, from each that reduces on, long runs first."""
    found: list[tuple[str, ...]] = []
    for _, block in blocks_of(work.program):
        loops = [node for node in block if isinstance(node, Loop) and statements_in((node,))]
        for start, first in enumerate(loops):
            alike = [
                other
                for other in loops[start:]
                if other.range == first.range and other.execution == first.execution
            ]
            if len(alike) > 1 and work.reduces(first):
                for end in range(len(alike), 1, -1):
                    found.append(tuple(loop_name(loop) for loop in alike[:end]))
    return found
