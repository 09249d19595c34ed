"""States that a loop inside an iteration adds to, set by one sum.

    for t: y[t] = … h[e] …                         for t: y[t] = … h[e] …
           for j: for e: h[e] = h[e] + x[j, e]  ->        for e: h[e] = h[e] + sum(x[j, e] for j …)

Then one statement hands the state on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import variables
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.value import Binary, Generator, Read, Reduce, Whole
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import touched
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.tree import (
    LoopPath,
    loop_paths,
    loops_around,
    node_at,
    replace_at,
)


@dataclass(frozen=True, slots=True)
class Summed:
    """A listing whose iterations add to their states once.

    Attributes:
        program: The listing afterwards.
        names: The states.
    """

    program: Program
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"add to {listed(self.names)} once in each iteration"

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """What shows that the two mean the same."""
        law = "to add terms one after the other is to add their sum"
        reason = "nothing looks at a cell while a loop adds to it"
        return (Certificate("algebra", law, "legal", reason),)


def with_steps_summed(program: Program) -> Summed | None:
    """Write loops that only add to a state of a loop around as sums; None where there are none."""
    names: dict[str, None] = {}
    while True:
        found = next(_summed(program), None)
        if found is None:
            return Summed(program, tuple(names)) if names else None
        program, name = found
        names[name] = None


def _summed(program: Program) -> Iterator[tuple[Program, str]]:
    """Yield the program with one loop written as a sum, and the state it adds to."""
    for path in loop_paths(program):
        nest = _nest(path.loop)
        if nest is None:
            continue
        loops, node = nest
        if not _is_state(program, path, node.targets[0].array):
            continue
        ((target,), (value,)) = node.targets, node.values
        found = accumulation(target, value)
        here = path.variable
        if found is None or found[0] != "sum" or found[2] != ALWAYS:
            continue
        if any(isinstance(s, Whole) or here in variables(s) for s in target.subscripts):
            continue
        ends = (end for loop in loops for end in (loop.range.start, loop.range.stop))
        if any(here in variables(end) for end in ends):
            continue
        total = Reduce("sum", (Generator(here, path.loop.range, ALWAYS),), found[1])
        after: Assign | Loop = replace(
            node, values=(Binary("+", Read(target), total),), augmented=False
        )
        for loop in reversed(loops):
            after = replace(loop, body=(after,))
        yield replace_at(program, path.position, (after,)), target.array


def _nest(loop: Loop) -> tuple[list[Loop], Assign] | None:
    """Return the loops in a loop, each the only thing in the one outside, and what they hold."""
    loops: list[Loop] = []
    while loop.execution == "sequential" and not loop.private and len(loop.body) == 1:
        match loop.body[0]:
            case Loop() as inner:
                loops.append(inner)
                loop = inner
            case Assign(targets=(_,), values=(_,)) as node:
                return loops, node
            case _:
                return None
    return None


def _is_state(program: Program, path: LoopPath, name: str) -> bool:
    """Tell whether a loop around looks at what one inside of it adds to, and does not set it."""
    for outer in loops_around(program, path.position):
        own = path.position[len(outer.position)]
        others = tuple(n for number, n in enumerate(outer.loop.body) if number != own)
        if name in touched(others, writes=False) and name not in touched(others, writes=True):
            return node_at(program, path.position) is path.loop
    return False
