"""The order of loops: what is free outside of what carries.

for j:                                  for i:
    for i: s[i] = Q[i] @ K[j]               for j:
    for i: n[i] = max(m[i], s[i])   ->          s[i] = Q[i] @ K[j]
    …                                           n[i] = max(m[i], s[i])
                                                …
Whatever i belongs to no other i: with i outside, j carries a few numbers and not rows of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import lru_cache

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.algebra.free import carrying_loops, freed
from looptrans.algebra.iterations.assembly import flow_of
from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.ir.index import variables
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.walk import assignments, nodes
from looptrans.transforms.editing.tree import (
    LoopPath,
    Position,
    loop_paths,
    loops_around,
    node_at,
    statements_in,
)
from looptrans.transforms.moved.guards_inward import Asked, with_guards_inward
from looptrans.transforms.moved.outward import (
    Outward,
    and_then,
    brought_outward,
    with_block_rows_outward,
)
from looptrans.transforms.moved.values_inward import Inward, with_values_inward
from looptrans.transforms.over_blocks.whole_loops import are_blocks
from looptrans.transforms.rows.guarded_starts import GuardedStarts, with_guarded_starts


@lru_cache(maxsize=16)
def with_loops_outward(program: Program) -> Outward | None:
    """Bring loops that are free outside of those that carry something.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such loop, or none that may go there.
    """
    found = Outward(program, ())
    tried: set[tuple[tuple[str, ...], str, str]] = set()
    while True:
        for path, inner in _carried_over_free(found.program):
            key = (statements_in((path.loop,)), path.variable, inner.variable)
            if key not in tried:
                break
        else:
            return found if found.moved else None
        tried.add(key)
        step = brought_outward(found.program, path.position, inner.loop, beside=False, free=_free)
        if step is not None and not _carries(step.program, path.position):
            found = and_then(found, step)


def _carries(program: Program, position: Position) -> bool:
    """Tell whether a loop carries something, as one does that joins a free one and sums."""
    loop = node_at(program, position)
    assert isinstance(loop, Loop)
    if freed(program, LoopPath(loop, position)) is not None:
        return False
    try:
        return position in carrying_loops(program, flow_of(program))
    except NoRecurrence:
        return False


def with_rows_outward(program: Program) -> Outward | None:
    """Bring loops over the rows of a block directly inside of the loop over the blocks.

    One that carries something over loops that are free stays inside of these: it would be brought
    back, see `with_loops_outward`.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such loop, or none that may go there.
    """
    return with_block_rows_outward(program, _free, _stays)


def _stays(program: Program, position: Position) -> bool:
    return all(path.position != position for path, _ in _carried_over_free(program))


def with_numbers_inward(program: Program) -> Inward | None:
    """Work numbers out in the loop that reads them, where it and the one around carry something.

    Args:
        program: The program.
    """
    return with_values_inward(
        program, lambda p, path, inner: not (_is_free(p, path) or _is_free(p, inner))
    )


def with_numbers_to_rows(program: Program) -> Inward | Asked | None:
    """Work numbers out in the loop that reads them, where it and the one around are free.

    What a guard between two such loops asks is asked in the one inside.

    Args:
        program: The program.
    """
    found = with_values_inward(
        program, lambda p, path, inner: _is_free(p, path) and _is_free(p, inner), fewer=2
    )
    return found or with_guards_inward(program, _is_free)


def with_numbers_out_of_the_way(program: Program) -> Inward | None:
    """Work numbers out in a free loop that may then go outside of one that carries a state.

        for t:                                   for t:
            a = exp(-b[t])                           for e: for d:
            for e: for d:                  ->            a = exp(-b[t])
                S[e, d] = a * S[e, d] + x                S[e, d] = a * S[e, d] + x

    Args:
        program: The program.
    """
    names: tuple[str, ...] = ()
    after = program
    while True:
        step = with_values_inward(after, _is_in_state, fewer=1)
        if step is None:
            return None
        names, after = (*names, *step.names), step.program
        if with_loops_outward(after) is not None:
            return Inward(after, tuple(dict.fromkeys(names)))


def _is_in_state(program: Program, path: LoopPath, inner: LoopPath) -> bool:
    """Tell whether a loop, or one around it, carries what it does not only add to."""
    try:
        known = flow_of(program)
        carrying = carrying_loops(program, known)
    except NoRecurrence:
        return False
    around = (path, *loops_around(program, path.position))
    return any(
        each.position in carrying
        and not _only_adds(
            each.loop, {d.array for d in known.dependences if d.carried_by == each.variable}
        )
        for each in around
    )


def with_rows_from_0(program: Program) -> GuardedStarts | None:
    """Let loops over rows that begin where an array says begin at 0, with a guard.

    Args:
        program: The program.
    """
    return with_guarded_starts(program, _is_free)


def _is_free(program: Program, path: LoopPath) -> bool:
    return freed(program, path) is not None


def _free(program: Program, path: LoopPath) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    found = freed(program, path)
    return None if found is None else (found.private, found.contracts)


def _carried_over_free(program: Program) -> Iterator[tuple[LoopPath, LoopPath]]:
    """Yield loops that carry something, and loops inside of them that do not."""
    pairs = [
        (path, inner)
        for path in loop_paths(program)
        for inner in _shared(path)
        if path.loop.execution == inner.loop.execution == "sequential"
        if not are_blocks(program, path.loop, inner.loop)
    ]
    pairs = [(path, inner) for path, inner in pairs if freed(program, path) is None]
    pairs = [(path, inner) for path, inner in pairs if freed(program, inner) is not None]
    if not pairs:
        return
    try:
        carrying = carrying_loops(program, flow_of(program))
    except NoRecurrence:
        return
    for path, inner in pairs:
        around = loops_around(program, path.position)
        if path.position not in carrying:
            continue
        # A state of both loops that an outer one carries is kept where the free one is outside.
        if any(o.position in carrying for o in around) and not _sets_own(path.loop):
            continue
        # Passes over one range that any order suits are best left side by side.
        if around and _only_adds(path.loop) and _has_passes(program, path, carrying):
            continue
        if inner.position not in carrying:
            yield path, inner


def _shared(path: LoopPath) -> Iterator[LoopPath]:
    """Yield loops that a loop begins with, and that may hold all of it."""
    here, position = path.loop, path.position
    between: set[str] = set()
    while here.body and all(isinstance(node, Loop) for node in here.body):
        first, position = here.body[0], (*position, 0)
        assert isinstance(first, Loop)
        here = first
        # Blocks go outward as a whole: what is in them belongs where they are.
        if not between & here.range.variables:
            yield LoopPath(here, position)
        between.add(here.variable)


def _has_passes(program: Program, path: LoopPath, carrying: dict[Position, bool]) -> bool:
    """Tell whether another loop that carries something goes over the range of a loop."""
    return any(
        other.position in carrying and other.loop.range == path.loop.range
        for other in loop_paths(program)
        if other.position != path.position
    )


def _sets_own(loop: Loop) -> bool:
    """Tell whether some statement sets cells that hang on the variable of a loop."""
    return any(
        loop.variable in variables(index)
        for node in assignments(loop.body)
        for target in node.targets
        for index in target.indices
    )


def _only_adds(loop: Loop, names: Container[str] | None = None) -> bool:
    """Tell whether a loop does nothing but add to what is there: any order suits that.

    Args:
        loop: The loop.
        names: The arrays and scalars that count; all of them by default.
    """
    inside = [
        node
        for node in nodes(loop.body)
        if isinstance(node, Assign)
        and (names is None or any(target.array in names for target in node.targets))
    ]
    return all(
        len(node.targets) == len(node.values) == 1
        and accumulation(node.targets[0], node.values[0]) is not None
        for node in inside
    )
