"""Where a nest is taken apart, so that what its loops hand over goes through memory.

for i: for k: H[i, k] = …           for i: for k: H[i, k] = …
       for n: … H[i, k] …    ->     for i: for n: … H[i, k] …
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.walk import accesses, live_out, nodes
from looptrans.transforms.tree import LoopPath, block_at, loop_paths, loops_around, statements_in


@dataclass(frozen=True, slots=True)
class Branching:
    """A loop that holds several loops, the outermost one of its nest.

    Attributes:
        path: The loop.
        around: It and the loops around it, outermost first, each the only thing in the one outside.
        cuts: The first statements of the pieces but the first; each piece ends with a loop.
        locals: The scalars that one piece hands to another.
    """

    path: LoopPath
    around: tuple[LoopPath, ...]
    cuts: tuple[str, ...]
    locals: tuple[str, ...]


def branching(program: Program) -> tuple[Branching, ...]:
    """Return the loops at which the nests of a program can be taken apart, in textual order."""
    found = []
    for path in loop_paths(program):
        outside = loops_around(program, path.position)
        if any(len(block_at(program, (*o.position, 0))) > 1 for o in outside):
            continue
        pieces = _pieces(path.loop.body)
        if len(pieces) > 1 and path.loop.execution == "sequential":
            cuts = tuple(statements_in(piece)[0] for piece in pieces[1:])
            found.append(Branching(path, (*outside, path), cuts, _handed(program, pieces)))
    return tuple(found)


def _pieces(body: tuple[Node, ...]) -> list[tuple[Node, ...]]:
    """Cut a block behind each of its loops but the last."""
    ends = [
        n + 1 for n, node in enumerate(body) if any(isinstance(p, Loop) for p in nodes((node,)))
    ]
    ends = [*ends[:-1], len(body)]
    return [body[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def _handed(program: Program, pieces: list[tuple[Node, ...]]) -> tuple[str, ...]:
    """Return the scalars that several pieces touch and one of them writes."""
    seen: dict[str, set[int]] = {}
    written: set[str] = set()
    for number, piece in enumerate(pieces):
        for node in nodes(piece):
            if isinstance(node, Assign | If):
                for relation in accesses(node):
                    seen.setdefault(relation.access.array, set()).add(number)
                    if relation.is_write:
                        written.add(relation.access.array)
    outputs = set(live_out(program))
    return tuple(
        a.name
        for a in program.arrays
        if a.rank == 0
        and a.name in written
        and a.name not in outputs
        and len(seen.get(a.name, ())) > 1
    )
