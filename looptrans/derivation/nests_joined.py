"""Nests and loops brought together, or taken apart, where their loops allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from looptrans.algebra.free import freed
from looptrans.derivation.joined.apart import (
    Branching,
    branching,
    handing_numbers,
    nests_of_their_own,
    with_one_cut,
)
from looptrans.derivation.joined.side_by_side import worth_joining
from looptrans.derivation.step import NotDone
from looptrans.derivation.work import Work, loop_name
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.walk import read_in, written_in
from looptrans.transforms.editing.tree import Position, block_at, blocks_of, loop_paths


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
    for _, block in blocks_of(work.program):
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
