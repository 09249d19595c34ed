"""Nests and passes brought together, and what iterations have for themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from looptrans.adjoint.rewriting.simpler import ALIKE
from looptrans.adjoint.rewriting.spelled import LOOPS
from looptrans.algebra.free import freed
from looptrans.derivation.forms.versions import overwritten
from looptrans.derivation.joined.apart import (
    Branching,
    branching,
    handing_numbers,
    nests_of_their_own,
    with_one_cut,
)
from looptrans.derivation.joined.buffers import reused
from looptrans.derivation.joined.loops_as_sums import (
    is_before_rows,
    is_beside_rows,
    is_shared,
    is_with_rows,
    mixed_loops,
    sum_loops,
)
from looptrans.derivation.joined.passes import (
    Passes,
    brought_out,
    count_of_costly_sums,
    passes,
    sums_of_sums,
    wide_sums,
)
from looptrans.derivation.joined.side_by_side import worth_joining
from looptrans.derivation.one_loop.bodies import read_in, written_in
from looptrans.derivation.step import NotDone
from looptrans.derivation.work import Work, loop_name
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.value import Reduce, Value, walk_value
from looptrans.ir.walk import placed
from looptrans.transforms.editing.tree import (
    Position,
    block_at,
    loop_paths,
    loops_around,
    statements_in,
    walk_positions,
)


def joined(work: Work, *, own: bool = False) -> None:
    """Bring nests and passes together.

    What is worked out again is so for the sake of one pass, and stays where there is none.
    """
    start = work.mark()
    again = work.take("worked out again") is None
    own_arrays(work, reused_too=own)
    brought_together(work)
    one_pass_made = any(step.kind == "one pass" for step in work.steps)
    if again and (not one_pass_made or _sums_more(start, work)):
        work.back_to(start)
        own_arrays(work, reused_too=own)
        brought_together(work)
    if _runs(work) and any(step.kind == "versions" for step in work.steps):
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
    as_written = work.mark()
    count = _passes_joined(work)
    work.back_to(start)
    rows_again(work, own=own)
    if _passes_joined(work) <= count:
        work.back_to(as_written)


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
    """Give each result a nest of its own, where numbers that several hang on would take room."""
    own_arrays(work)
    mark = work.mark()
    if work.take("results worked out again") is None and _sums_more(mark, work):
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
    inside = [part for part in walk_value(value) if isinstance(part, Reduce)]
    return any(
        inner.function != "sum" and any(isinstance(p, Reduce) for p in walk_value(inner.body))
        for outer in inside
        for inner in walk_value(outer.body)
        if isinstance(inner, Reduce)
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


def side_by_side(work: Work) -> None:
    """Join loops that stand one after the other and hold passes over the same range.

    Rows that can be done at once stay so: where one row reads what another one leaves, as
    S[i - 1, j], that goes through memory.
    """
    undone: set[tuple[str, str]] = set()
    while True:
        for pair in _neighbours(work):
            if pair in undone:
                continue
            before = work.mark()
            first, second = (_place_of(work, name) for name in pair)
            free = _is_free(work, first) and _is_free(work, second)
            if work.take("transformation", f"fuse({', '.join(pair)})") is None:
                if not free or _is_free(work, first):
                    break
                work.back_to(before)
                undone.add(pair)
        else:
            if not _turned(work):
                return


def _turned(work: Work) -> bool:
    """Bring free loops of a nest into the order of the nest before it, which it then may join.

    for h: for i: …    for i: for h: …    ->    for h: for i: …    for h: for i: …

    Returns:
        Whether there was one.
    """
    for one, other in pairwise(work.program.body):
        if not isinstance(one, Loop) or not isinstance(other, Loop) or one.range == other.range:
            continue
        inner = other.body[0] if len(other.body) == 1 else None
        if not isinstance(inner, Loop) or inner.range != one.range:
            continue
        turned = replace(inner, body=(replace(other, body=inner.body),))
        if work.reduces(one) or not worth_joining(work.program, one, turned):
            continue
        names = loop_name(other), loop_name(inner)
        free = all(_is_free(work, _place_of(work, name)) for name in names)
        if free and work.take("transformation", f"interchange({', '.join(names)})") is None:
            return True
    return False


def _place_of(work: Work, name: str) -> Position:
    return next(p.position for p in loop_paths(work.program) if loop_name(p.loop) == name)


def _is_free(work: Work, place: Position) -> bool:
    """Tell whether the text shows that a loop carries nothing."""
    path = next(p for p in loop_paths(work.program) if p.position == place)
    return freed(work.program, path) is not None


def apart(work: Work, *, results: bool) -> None:
    """Make nests of their own of the loops that a nest holds, where that is legal."""
    _taken_apart(work, lambda program: branching(program, results=results))


def by_themselves(work: Work, *, numbers: bool = False) -> None:
    """Make nests of their own of those that stand in one free loop, where that is legal.

    Loops over rows that hand numbers of a row to the next are one, and keep them in registers.

    Args:
        work: The work.
        numbers: Whether what works out numbers beside a nest is one of its own, too.
    """
    tried: set[tuple[str, str]] = set()
    while True:
        pairs = [(loop_name(one), loop_name(other)) for one, other in handing_numbers(work.program)]
        pairs = [pair for pair in pairs if pair not in tried]
        if not pairs:
            break
        tried.add(pairs[0])
        work.take("transformation", f"fuse({', '.join(pairs[0])})")
    _taken_apart(work, partial(nests_of_their_own, numbers=numbers))


def _taken_apart(work: Work, find: Callable[[Program], tuple[Branching, ...]]) -> None:
    tried: set[tuple[str, ...]] = set()
    while True:
        each = next((b for b in find(work.program) if b.cuts not in tried), None)
        if each is None:
            return
        tried.add(each.cuts)
        reason = _cut(work, each)
        # What two pieces hand to each other may not go through memory, and the rest may.
        if reason is not None and not (
            len(each.cuts) > 1
            and any(_cut(work, one) is None for one in with_one_cut(work.program, each))
        ):
            work.note(reason)


def _cut(work: Work, each: Branching) -> NotDone | None:
    """Cut a loop and those around it into pieces; return why not where that is not legal."""
    before = work.mark()
    inner, *outer = (loop_name(path.loop) for path in reversed(each.around))
    loops = ", ".join([*reversed(outer), inner])
    made = [f"expand({name}, {loops})" for name in each.locals]
    made += [f"distribute({x}, {', '.join(each.cuts)})" for x in (inner, *outer)]
    for text in made:
        reason = work.take("transformation", text)
        if reason is not None:
            work.back_to(before)
            return reason
    return None


def _neighbours(work: Work) -> list[tuple[str, str]]:
    """Return loops of the same range next to each other that are worth joining.

    So is a loop with nothing but statements, where the one behind it is worth joining with the one
    before: `for i: L[i] = m[i] + log(l[i])` between two passes. What rows keep for themselves is
    not added up in their loop, since they would wait for each other.
    """
    kept = _kept_by_rows(work)

    def joins(a: Node, b: Node) -> bool:
        return (
            isinstance(a, Loop)
            and isinstance(b, Loop)
            and a.range == b.range
            and worth_joining(work.program, a, b)
            and not work.reduces(a)
            and not work.reduces(b)
        )

    found = []
    for _, block in _blocks(work.program):
        for number, (a, b) in enumerate(pairwise(block)):
            if not isinstance(a, Loop) or not isinstance(b, Loop):
                continue
            if kept & written_in((a,)) & read_in((b,)):
                continue
            is_plain = all(isinstance(node, Assign) for node in b.body)
            is_between = a.range == b.range and is_plain and number + 2 < len(block)
            if joins(a, b) or (is_between and joins(a, block[number + 2])):
                found.append((loop_name(a), loop_name(b)))
    return found


def _kept_by_rows(work: Work) -> set[str]:
    """Return the arrays in which rows keep what they add to a total."""
    return {
        array.name
        for step in work.steps
        if step.kind == "by rows"
        for array in step.after.arrays
        if array not in step.before.arrays
    }


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
    left = dict.fromkeys(name for run in _runs(work) for name in run)
    before = work.mark()
    del work.notes[notes:]
    for name in left:
        work.take("division behind", name)
    if work.program == before.program or _joined_passes(work) == 0:
        work.back_to(before)


def _joined_with_sums(work: Work, notes: int) -> None:
    """Join the passes that are left, with what they add up in loops inside as sums."""
    left = {name for run in _runs(work) for name in run}
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
        runs = [run for run in _runs(work) if run not in tried]
        if not runs:
            made = [step for step in work.steps[count:] if step.kind == "one pass"]
            return sum(len(step.arguments) - 1 for step in made)
        run = runs[0]
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


def _runs(work: Work) -> list[tuple[str, ...]]:
    """Return loops of one block with the same range, from each that reduces on, long runs first."""
    found: list[tuple[str, ...]] = []
    for _, block in _blocks(work.program):
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


def outward(work: Work) -> bool:
    """Bring parallel loops outside of sequential ones, so that more of them are outermost.

    Only where nothing stands between the two, or beside them inside of loops.
    """
    before = work.program
    tried: set[tuple[str, str]] = set()
    while True:
        pairs = [
            (loop_name(loop), loop_name(inner))
            for path in loop_paths(work.program)
            for loop in (path.loop,)
            for inner in loop.body
            if loop.execution == "sequential" and len(loop.body) == 1
            if len(path.position) == 1 or len(block_at(work.program, path.position)) == 1
            if isinstance(inner, Loop) and inner.execution == "parallel"
        ]
        left = [pair for pair in pairs if pair not in tried]
        if not left:
            return work.program != before
        tried.add(left[0])
        outer, inner_name = left[0]
        work.take("transformation", f"interchange({outer}, {inner_name})")


def _blocks(program: Program) -> list[tuple[tuple[int, ...], tuple[Node, ...]]]:
    """Return every block of a program, outer ones first."""
    found: list[tuple[tuple[int, ...], tuple[Node, ...]]] = [((), program.body)]
    for position, _ in walk_positions(program.body):
        if position[-1] == 0 and len(position) > 1:
            found.append((position, block_at(program, position)))
    return found
