"""Loops joined into one parallel loop that runs in phases, its reductions in blocks of their own.

    for j in range(0, N):                  for j in parallel(0, N):
        m = max(m, x[j])     # S1              with atomic():
    for j in range(0, N):         ->               m = max(m, x[j])     # S1
        l = l + exp(x[j] - m)  # S2            barrier()
                                               with atomic():
                                                   l = l + exp(x[j] - m)  # S2

The nodes of the joined body are kept in their order. Two of them need a barrier between them where
instances of different iterations depend on one another, unless both are updates of one reduction
of one of the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from looptrans.analysis.budget import BudgetExceeded
from looptrans.analysis.cycles.iterations import Fold, Iterations, Tie, iterations_of
from looptrans.ir.affine import is_same
from looptrans.ir.index import Var
from looptrans.ir.program import Atomic, Barrier, BlockReduce, If, Loop, Node, Program
from looptrans.ir.step import Image, Step
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import Placed, assignments, nodes, placed
from looptrans.transforms.editing.accesses import place_of, sites_of
from looptrans.transforms.editing.errors import NotAdjacent, NothingToDo, TransformError
from looptrans.transforms.editing.privacy import with_private
from looptrans.transforms.editing.substitute import rename_variable, without_binders
from looptrans.transforms.editing.tree import (
    LoopPath,
    Position,
    find_loop,
    loop_name,
    replace_at,
    statements_in,
)
from looptrans.transforms.judging.check import reordered
from looptrans.transforms.steps.advice import with_privacy_first
from looptrans.transforms.steps.parallelize import require_no_atomic, require_sequential, way_out

Wrap: TypeAlias = Callable[[Fold, tuple[Node, ...]], Node]


def in_phases(called: str, program: Program, names: tuple[str, ...], wrap: Wrap) -> Step:
    """Run loops as one parallel loop, in phases where they need it.

    Args:
        called: What is done, as one writes it.
        program: The program.
        names: The loops: siblings that follow one another and run over the same range.
        wrap: Puts the updates of a reduction into a block; it raises where that cannot be.

    Raises:
        TransformError: There is no such loop, the loops do not follow one another or do not run
            over the same range, one is parallel already, or no two iterations need each other.
    """
    paths = _siblings(program, names)
    joined = _joined(program, paths)
    try:
        own = [iterations_of(program, path.position) for path in paths]
        found = own[0] if len(paths) == 1 else iterations_of(joined.program, joined.position)
    except BudgetExceeded as error:
        return Step(called, program, program, Verdict("unknown", reason=str(error)), {})
    if not found.ties:
        loop = loop_name(program, paths[0].position)
        raise NothingToDo(
            f"the loop {loop} has no reductions and needs no phases",
            place_of(paths[0].loop),
            why="no two iterations touch a cell that one of them writes",
            remedy=f"parallelize({loop})",
        )
    private = _private(program, paths, own)
    folds = tuple(fold for each in own for fold in each.folds)
    ties = tuple(
        tie
        for tie in found.ties
        if tie.array not in private and not any(fold.explains(tie) for fold in folds)
    )
    barriers = _barriers(joined, ties)
    body = _Sections(joined, barriers, _stretches(joined, folds), wrap).body()
    changed = replace(joined.loop, execution="parallel", body=body)
    after = replace_at(joined.program, joined.position, (changed,))
    after = with_private(after, joined.position, private)

    def advice(_: Verdict) -> str:
        if len(paths) > 1:
            return "give each loop phases of its own where the joined one goes wrong"
        return way_out(program, paths[0], found)

    step = reordered(called, program, after, _images(program, after, joined), advice)
    if private and len(paths) == 1:
        return with_privacy_first(step, loop_name(program, paths[0].position))
    return step


# Joining


@dataclass(frozen=True, slots=True)
class _Joined:
    """Several loops as one, all in order.

    Attributes:
        program: The program with the one loop in their place.
        position: Where that loop stands.
        loop: The loop.
        groups: For each node of its body, the number of the loop it comes from.
        renamed: By the variables of the other loops, that of the joined one.
        labels: The labels of the statements in the loops.
    """

    program: Program
    position: Position
    loop: Loop
    groups: tuple[int, ...]
    renamed: dict[str, str]
    labels: frozenset[str]

    def child_of(self, label: str) -> int:
        """Return the number of the node of the body that a statement stands in."""
        return next(n for n, node in enumerate(self.loop.body) if label in statements_in((node,)))


def _siblings(program: Program, names: tuple[str, ...]) -> tuple[LoopPath, ...]:
    paths = [find_loop(program, name) for name in names]
    for path in paths:
        require_sequential(program, path)
        require_no_atomic(program, path)
    first = paths[0]
    for number, path in enumerate(paths[1:], start=1):
        expected = (*first.position[:-1], first.position[-1] + number)
        one, other = (loop_name(program, p.position) for p in (paths[number - 1], path))
        if path.position != expected:
            raise NotAdjacent(
                f"the loop {other} does not follow directly on {one}",
                place_of(path.loop),
                why="loops that become phases of one loop stand one after the other",
                remedy="name them in their order, and move what is between them out of the way",
            )
        mine, theirs = path.loop.range, first.loop.range
        ends = ((mine.start, theirs.start), (mine.stop, theirs.stop))
        if mine.step != theirs.step or not all(is_same(a, b) for a, b in ends):
            raise NotAdjacent(
                f"the loops {loop_name(program, first.position)} and {other} do not run over the "
                "same range",
                place_of(path.loop),
                why="an iteration of the one loop goes through all phases",
                remedy="give the loops one range, with a guard in the one that needs less",
            )
    return tuple(paths)


def _joined(program: Program, paths: tuple[LoopPath, ...]) -> _Joined:
    first = paths[0].loop
    body: list[Node] = []
    groups: list[int] = []
    renamed: dict[str, str] = {}
    for number, path in enumerate(paths):
        loop = path.loop
        if loop.variable != first.variable:
            renamed[loop.variable] = first.variable
            loop = without_binders(program, loop, frozenset((first.variable,)))
            loop = rename_variable(loop, loop.variable, first.variable)
        inside = loop.body
        above = (*loop.leading, *((loop.comment,) if loop.comment else ()))
        if number and above and inside:
            top = replace(inside[0], leading=(*above, *inside[0].leading))
            inside = (top, *inside[1:])
        body += inside
        groups += [number] * len(inside)
    private = dict.fromkeys(name for path in paths for name in path.loop.private)
    whole = replace(first, body=tuple(body), private=tuple(private))
    shorter = program
    for path in reversed(paths[1:]):
        shorter = replace_at(shorter, path.position, ())
    return _Joined(
        replace_at(shorter, paths[0].position, (whole,)),
        paths[0].position,
        whole,
        tuple(groups),
        renamed,
        frozenset(label for path in paths for label in statements_in((path.loop,))),
    )


def _images(program: Program, after: Program, joined: _Joined) -> dict[str, Image]:
    """Return the instance map: all is where it was, but for the names of variables."""
    earlier = {place.label: place for place in placed(program)}

    def now(label: str, variable: str) -> Var:
        return Var(joined.renamed.get(variable, variable) if label in joined.labels else variable)

    return {
        label: Image(label, tuple(now(label, loop.variable) for loop in earlier[label].loops))
        for label in (place.label for place in placed(after))
    }


# What goes where


def _private(
    program: Program, paths: tuple[LoopPath, ...], own: list[Iterations]
) -> tuple[str, ...]:
    """Return the names that may be private to each of the loops that uses them, and no one else."""
    found = dict.fromkeys(name for each in own for name in each.private)
    positions = [path.position for path in paths]
    kept = []
    for name in found:
        users = [
            [p for p in positions if p in site.place.loop_positions]
            for site in sites_of(program, name)
            if not any(name in loop.private for loop in site.place.loops)
        ]
        inside = all(users)
        using = {user for each in users for user in each}
        if inside and all(
            name in each.private
            for each, position in zip(own, positions, strict=True)
            if position in using
        ):
            kept.append(name)
    return tuple(kept)


def _barriers(joined: _Joined, ties: tuple[Tie, ...]) -> frozenset[int]:
    """Return the nodes of the body before which a barrier has to stand, as few as will do."""
    stretches = set()
    for tie in ties:
        source, sink = joined.child_of(tie.source), joined.child_of(tie.sink)
        # Within one loop a dependence that goes up the text is not to be turned round.
        if source < sink or joined.groups[source] != joined.groups[sink]:
            stretches.add((max(source, sink), min(source, sink)))
    found: list[int] = []
    for later, earlier in sorted(stretches):
        if not found or found[-1] <= earlier:
            found.append(later)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The nodes of a block that a reduction's updates stand in.

    Attributes:
        block: The position of the block: that of the node whose body it is, or a guard's branch.
        first: The number of the first one.
        last: The number of the last one.
        fold: The reduction.
    """

    block: Position
    first: int
    last: int
    fold: Fold


def _stretches(joined: _Joined, folds: tuple[Fold, ...]) -> tuple[_Stretch, ...]:
    """Return where the blocks of reductions go; what overlaps becomes one."""
    places = {place.label: place for place in placed(joined.program)}
    found: list[_Stretch] = []
    for fold in folds:
        for label in fold.statements:
            _require_no_block(joined, fold, places[label])
        ends = [places[label].position for label in fold.statements]
        depth = 0
        while all(len(end) > depth + 1 and end[depth] == ends[0][depth] for end in ends):
            depth += 1
        numbers = [end[depth] for end in ends]
        stretch = _Stretch(ends[0][:depth], min(numbers), max(numbers), fold)
        for other in [s for s in found if s.block == stretch.block]:
            if other.first <= stretch.last and stretch.first <= other.last:
                found.remove(other)
                stretch = _Stretch(
                    stretch.block,
                    min(stretch.first, other.first),
                    max(stretch.last, other.last),
                    _united(other.fold, stretch.fold),
                )
        found.append(stretch)
    return tuple(found)


def _require_no_block(joined: _Joined, fold: Fold, place: Placed) -> None:
    """Require that an update is in no block yet."""
    depth = len(joined.position)
    if any(position[:depth] == joined.position for position in place.section_positions):
        raise TransformError(
            f"{place.label}, an update of {fold.array}, stands in a block already",
            place_of(place.node),
            why="one block cannot stand inside another",
            remedy="make the outer loop parallel before the inner one",
        )


def _united(one: Fold, other: Fold) -> Fold:
    return replace(one, statements=(*one.statements, *other.statements))


@dataclass(frozen=True, slots=True)
class _Sections:
    """Puts the barriers and the blocks into the body of the joined loop."""

    joined: _Joined
    barriers: frozenset[int]
    stretches: tuple[_Stretch, ...]
    wrap: Wrap

    def body(self) -> tuple[Node, ...]:
        """Return the body."""
        return tuple(self._nodes(self.joined.loop.body, self.joined.position))

    def _nodes(self, body: tuple[Node, ...], block: Position) -> Iterator[Node]:
        number = 0
        while number < len(body):
            if block == self.joined.position and number in self.barriers:
                yield Barrier()
            stretch = self._starting(block, number)
            if stretch is None:
                yield self._inside(body[number], (*block, number))
                number += 1
                continue
            inside = body[number : stretch.last + 1]
            self._require_whole(stretch, inside)
            yield self.wrap(stretch.fold, inside)
            number = stretch.last + 1

    def _starting(self, block: Position, number: int) -> _Stretch | None:
        at = ((s.block, s.first) for s in self.stretches)
        return next(
            (s for s, place in zip(self.stretches, at, strict=True) if place == (block, number)),
            None,
        )

    def _inside(self, node: Node, position: Position) -> Node:
        match node:
            case If():
                then = tuple(self._nodes(node.body, (*position, 1)))
                return replace(
                    node, body=then, orelse=tuple(self._nodes(node.orelse, (*position, 2)))
                )
            case Loop() | Atomic() | BlockReduce():
                return replace(node, body=tuple(self._nodes(node.body, position)))
            case _:
                return node

    def _require_whole(self, stretch: _Stretch, inside: tuple[Node, ...]) -> None:
        """Require that nothing in a block belongs outside it: no barrier, no other block."""
        cut = stretch.block == self.joined.position and any(
            stretch.first < barrier <= stretch.last for barrier in self.barriers
        )
        other = next((n for n in nodes(inside) if isinstance(n, Atomic | BlockReduce)), None)
        if not cut and other is None:
            return
        first = assignments(inside)[0]
        raise TransformError(
            f"the updates of {stretch.fold.array} cannot be put into one block",
            place_of(first),
            why="there would be a barrier in the middle of it"
            if cut
            else "there is another block in the middle of it",
            remedy="write the update as one statement, or distribute the loop first",
        )
