"""States that an iteration sets in several steps, with a name for what they are in between.

    for t: S[e] = S[e] * g[t]                  for t: S_then[e] = S[e] * g[t]
           u = v[t] - S[e] * k[t]      ->             u = v[t] - S_then[e] * k[t]
           S[e] = S[e] + u * k[t]                     S[e] = S_then[e] + u * k[t]

Then one statement hands the state on, and what is kept of it for every iteration is enough to work
out the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from looptrans.adjoint.carried.handed_on import hands_on
from looptrans.adjoint.carried.recurrences import again
from looptrans.ir.creation import creation_of
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.program import Assign, Declaration, If, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.step import same_names
from looptrans.ir.walk import Placed, placed
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import Position
from looptrans.transforms.judging.check import check_storage


def with_names_in_between(program: Program, name: str) -> Program | None:
    """Give what a state is in between a name of its own; None where one statement sets it.

    Args:
        program: The listing.
        name: The state, a local array or a scalar.
    """
    if program.array(name).rank and creation_of(program, name) is None:
        return None
    if len(_steps(program, name)) < 2:
        return None
    program = again(program)
    places = _steps(program, name)
    around = {
        position: loop.variable
        for place in places
        for position, loop in zip(place.loop_positions, place.loops, strict=True)
    }
    for loop, variable in sorted(around.items()):
        if not hands_on(program, name, variable):
            continue
        steps = [p for p in places if loop in p.loop_positions]
        after = _named(program, name, loop, steps) if len(steps) > 1 else None
        if after is None:
            continue
        verdict = check_storage(program, after, same_names(program, after), tried=False)
        if verdict.decision == "legal":
            return after
    return None


def _steps(program: Program, name: str) -> list[Placed]:
    """Return the statements that set a state."""
    return [
        place
        for place in placed(program)
        if isinstance(place.node, Assign) and any(t.array == name for t in place.node.targets)
    ]


def _named(program: Program, name: str, loop: Position, steps: list[Placed]) -> Program | None:
    """Return the listing with a name for what each step but the last one leaves in a loop.

    None where a step in the loop is what the state starts from: nothing sets it before then, or
    all do no more than to start it.
    """
    between: list[str] = []
    for _ in steps[1:]:
        between.append(fresh_name(program, f"{name}_then", between))
    left = [*between, name]
    reads: dict[str, str] = {}
    writes: dict[str, str] = {}
    for place in placed(program):
        if loop == place.position[: len(loop)]:
            before = sum(step.position < place.position for step in steps)
            reads[place.label] = left[before - 1] if before else name
            writes[place.label] = left[min(before, len(steps) - 1)]
    array, creation = program.array(name), creation_of(program, name)
    made: tuple[Node, ...] = ()
    if creation is not None:
        made = tuple(Declaration(each, creation) for each in between)
    after = replace(
        program,
        body=(*made, *rewritten(program.body, lambda node: (_moved(node, name, reads, writes),))),
        arrays=(*program.arrays, *(replace(array, name=each) for each in between)),
    )
    try:
        after = again(after)
    except ListingError:
        return None
    return after if any(array.name == name for array in after.arrays) else None


def _moved(node: Node, name: str, reads: Mapping[str, str], writes: Mapping[str, str]) -> Node:
    """Return a statement that reads and writes what the state is called where it stands."""
    if not isinstance(node, Assign | If) or node.label is None or node.label not in reads:
        return node
    read, write = reads[node.label], writes[node.label]
    (moved,) = with_accesses((node,), lambda access: access.renamed(name, read))
    if isinstance(moved, Assign) and isinstance(node, Assign):
        targets = tuple(target.renamed(name, write) for target in node.targets)
        return replace(moved, targets=targets, augmented=False)
    return moved
