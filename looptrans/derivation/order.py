"""The order of loops: over all of what blocks are of, and what is free outside of what carries.

for j:                                  for i:
    for i: s[i] = Q[i] @ K[j]               for j:
    for i: n[i] = max(m[i], s[i])   ->          s[i] = Q[i] @ K[j]
    …                                           n[i] = max(m[i], s[i])
                                                …
Whatever i belongs to no other i: with i outside, j carries a few numbers and not rows of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from looptrans.adjoint.accumulating import accumulation
from looptrans.derivation.bodies import flow
from looptrans.derivation.free import carrying_loops, freed
from looptrans.derivation.step import NotDone, NotNeeded
from looptrans.derivation.work import Work, loop_name
from looptrans.ir.index import variables
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.walk import nodes
from looptrans.transforms.tree import LoopPath, Position, loop_paths, loops_around


def in_order(work: Work) -> None:
    """Make loops over blocks loops over everything, and bring free loops outward."""
    work.take("tiles made once")
    work.take("rows outward")
    work.take("whole loops")
    _outward(work)
    while True:
        reason = work.take("elements")
        if reason is not None:
            break
        work.take("whole loops")
        _outward(work)
    if not isinstance(reason, NotNeeded):
        work.note(reason)


def _outward(work: Work) -> None:
    tried: set[tuple[str, str]] = set()
    while True:
        pair = next((p for p in _carried_over_free(work.program) if p not in tried), None)
        if pair is None:
            return
        tried.add(pair)
        work.take("loop outward", *pair)


def _carried_over_free(program: Program) -> Iterator[tuple[str, str]]:
    """Yield loops that carry something, and loops inside of them that do not."""
    pairs = [(path, inner) for path in loop_paths(program) for inner in _shared(program, path)]
    if not pairs:
        return
    try:
        carrying = carrying_loops(program, flow(program))
    except NotDone:
        return
    for path, inner in pairs:
        around = loops_around(program, path.position)
        if carrying.get(path.position, True) or any(o.position in carrying for o in around):
            continue
        # Passes over one range that any order suits are best left side by side.
        if around and _only_adds(path.loop) and _has_passes(program, path, carrying):
            continue
        if inner.position not in carrying and freed(program, inner) is not None:
            yield loop_name(path.loop), loop_name(inner.loop)


def _shared(program: Program, path: LoopPath) -> Iterator[LoopPath]:
    """Yield loops that a loop begins with, and that may hold all of it."""
    here, position = path.loop, path.position
    bound = {here.variable}
    while here.body and all(isinstance(node, Loop) for node in here.body):
        first, position = here.body[0], (*position, 0)
        assert isinstance(first, Loop)
        here = first
        if not bound & {*variables(here.range.start), *variables(here.range.stop)}:
            yield LoopPath(here, position)
        bound.add(here.variable)


def _has_passes(program: Program, path: LoopPath, carrying: dict[Position, bool]) -> bool:
    """Tell whether another loop that carries something goes over the range of a loop."""
    return any(
        other.position in carrying and other.loop.range == path.loop.range
        for other in loop_paths(program)
        if other.position != path.position
    )


def _only_adds(loop: Loop) -> bool:
    """Tell whether a loop does nothing but add to what is there: any order suits that."""
    inside = [node for node in nodes(loop.body) if isinstance(node, Assign)]
    return all(
        len(node.targets) == len(node.values) == 1
        and accumulation(node.targets[0], node.values[0]) is not None
        for node in inside
    )
