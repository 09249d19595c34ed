"""Split a loop into several, one after another (loop fission)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from looptrans.frontend.appearance import names_in
from looptrans.ir.program import Loop, Program
from looptrans.ir.step import Step, same_names
from looptrans.ir.verdict import Verdict
from looptrans.transforms.editing.band import require_no_phases
from looptrans.transforms.editing.errors import NoSuchStatement, NothingToDo
from looptrans.transforms.editing.tree import (
    LoopPath,
    find_loop,
    find_statement,
    loop_name,
    loops_around,
    replace_at,
    statements_in,
)
from looptrans.transforms.judging.check import reordered


def distribute(program: Program, loop: str, *statements: str) -> Step:
    """Split a loop into several loops over the same range, one after another.

        for j in range(0, N):               for j in range(0, N):
            S1(j)                               S1(j)
            S2(j)                ->         for j in range(0, N):
                                                S2(j)

    What stands directly in the loop (a statement, an inner loop, a guard) stays in one piece.
    Without statements the loop is split as far as it can be: the strongly connected components of
    the dependences inside one iteration of the loops around it stay together, and the new loops
    stand in an order in which every dependence runs forward, of several the one nearest to the
    text. With statements it is split before each of them, whether that is right or not.

    Legal where no dependence runs from a later piece to an earlier one: for all dependences
    S -> T that the loops outside do not carry, the piece of S is that of T or before it.

    Args:
        program: The program.
        loop: The loop.
        statements: Where to split: the first statements of the new loops but the first.

    Raises:
        TransformError: There is no such loop or statement, a statement is not the first one of
            something that stands directly in the loop, the loop has barriers, or it is one piece.
    """
    path = find_loop(program, loop)
    require_no_phases(path.loop, "distributing it", turns=False)
    name = f"distribute({', '.join((loop, *statements))})"
    if statements:
        pieces = _cut(program, path, statements)
        return _distributed(name, program, path, pieces, loop)
    found = _components(program, path) if len(path.loop.body) > 1 else [[0]]
    if isinstance(found, str):
        same = same_names(program, program)
        return Step(name, program, program, Verdict("unknown", reason=found), same)
    if len(found) < 2:
        raise _one_piece(program, path)
    return _distributed(name, program, path, found, loop)


def _distributed(
    name: str, program: Program, path: LoopPath, pieces: Sequence[Sequence[int]], loop: str
) -> Step:
    loops = tuple(_piece(path.loop, numbers, n == 0) for n, numbers in enumerate(pieces))
    after = replace_at(program, path.position, loops)

    def advice(_: Verdict) -> str:
        found = _components(program, path)
        if isinstance(found, str):
            return ""
        if len(found) < 2:
            return f"the dependences let {loop} be split nowhere"
        return f"distribute({loop}) splits it as far as the dependences allow"

    return reordered(name, program, after, same_names(program, after), advice)


def _piece(loop: Loop, numbers: Sequence[int], first: bool) -> Loop:
    body = tuple(loop.body[number] for number in numbers)
    used = names_in((), body)
    private = tuple(name for name in loop.private if name in used)
    if first:
        return replace(loop, body=body, private=private)
    return replace(loop, body=body, private=private, leading=(), comment="")


# Where a person wants it split


def _cut(program: Program, path: LoopPath, statements: Sequence[str]) -> list[list[int]]:
    cuts = sorted({_cut_before(program, path, label) for label in statements})
    ends = [*cuts, len(path.loop.body)]
    return [list(range(start, end)) for start, end in zip([0, *cuts], ends, strict=True)]


def _cut_before(program: Program, path: LoopPath, label: str) -> int:
    """Return the number of the child of the loop that begins with a statement."""
    place = find_statement(program, label)
    depth = len(path.position)
    if path.position not in place.loop_positions:
        raise NoSuchStatement(
            f"{label} does not stand in the loop {path.variable}",
            place.node.span,
            why=f"the loop holds {', '.join(statements_in((path.loop,)))}",
            remedy="name statements of the loop",
        )
    number = place.position[depth]
    first = next(iter(statements_in((path.loop.body[number],))))
    if first != label:
        raise NoSuchStatement(
            f"the loop {path.variable} cannot be split before {label}",
            place.node.span,
            why="it would have to be split in the middle of what stands in it from "
            f"{first} on, which stays in one piece",
            remedy=f"split before {first}, or distribute the loop around {label} first",
        )
    if number == 0:
        raise NothingToDo(
            f"there is nothing in the loop {path.variable} before {label}",
            place.node.span,
            why="the first new loop would be empty",
            remedy="name the first statement of the second new loop",
        )
    return number


# Where the dependences let it be split


def _one_piece(program: Program, path: LoopPath) -> NothingToDo:
    labels = statements_in((path.loop,))
    shown = ""
    if len(path.loop.body) < 2:
        why = "it holds one statement, loop or guard only"
    else:
        why = f"the dependences of {', '.join(labels)} form a cycle"
        heads = [statements_in((node,)) for node in path.loop.body[1:]]
        behind = next((head[0] for head in heads if head), None)
        if behind is not None:
            loop = loop_name(program, path.position)
            shown = f"; distribute({loop}, {behind}) shows what stands in the way"
    return NothingToDo(
        f"the loop {path.variable} cannot be split",
        path.loop.span,
        why=why,
        remedy="distribute a loop around it or inside it, or privatize or expand a local that ties "
        f"its statements together{shown}",
    )


def _components(program: Program, path: LoopPath) -> list[list[int]] | str:
    """Return the children of a loop in groups that must stay together, or why that is unknown."""
    from looptrans.analysis.api import edges_inside
    from looptrans.analysis.budget import BudgetExceeded

    try:
        inside = edges_inside(program, len(loops_around(program, path.position)))
    except BudgetExceeded as error:
        return str(error)
    child = {
        label: number
        for number, node in enumerate(path.loop.body)
        for label in statements_in((node,))
    }
    edges = {
        (child[source], child[sink]) for source, sink in inside if source in child and sink in child
    }
    used = [names_in((), (node,)) for node in path.loop.body]
    for name in path.loop.private:
        sharing = [number for number, names in enumerate(used) if name in names]
        edges |= {(one, other) for one in sharing for other in sharing}
    return _in_condensation_order(len(path.loop.body), edges)


def _in_condensation_order(count: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph, sources before sinks.

    Of several orders the one nearest to that of the numbers is taken.
    """
    reached = [{number} for number in range(count)]
    for one, other in edges:
        reached[one].add(other)
    for middle in range(count):
        for start in range(count):
            if middle in reached[start]:
                reached[start] |= reached[middle]
    groups = {
        min(other for other in reached[number] if number in reached[other])
        for number in range(count)
    }
    members = {g: [n for n in range(count) if n in reached[g] and g in reached[n]] for g in groups}
    order: list[list[int]] = []
    left = sorted(groups)
    while left:
        ready = next(g for g in left if not any(g in reached[o] for o in left if o != g))
        left.remove(ready)
        order.append(members[ready])
    return order
