"""States that a loop inside an iteration adds to, set by one sum.

    for t: y[t] = … h[e] …                         for t: y[t] = … h[e] …
           for j: for e: h[e] = h[e] + x[j, e]  ->        for e: h[e] = h[e] + sum(x[j, e] for j …)

Where a guard says which iterations add, it says which terms the sum has. A loop that adds to
several states is a loop for each first. Then one statement hands a state on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.ir.condition import ALWAYS, Condition, conjunction
from looptrans.ir.index import variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Binary, Generator, Read, Reduce, Whole, arrays_tested
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import assignments, nodes, read_in, written_in
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
            for name in _added_apart(path.loop):
                if _is_state(program, path, name):
                    yield replace_at(program, path.position, tuple(_chains(path.loop))), name
            continue
        loops, guard, node = nest
        if not _is_state(program, path, node.targets[0].array):
            continue
        ((target,), (value,)) = node.targets, node.values
        found = accumulation(target, value)
        here = path.variable
        if found is None or found[0] != "sum" or found[2] != ALWAYS:
            continue
        if any(isinstance(s, Whole) or here in variables(s) for s in target.subscripts):
            continue
        if target.array in arrays_tested(guard):
            continue
        ends = (end for loop in loops for end in loop.range.ends)
        if any(here in variables(end) for end in ends):
            continue
        total = Reduce("sum", (Generator(here, path.loop.range, guard),), found[1])
        after: Assign | Loop = replace(
            node, values=(Binary("+", Read(target), total),), augmented=False
        )
        for loop in reversed(loops):
            after = replace(loop, body=(after,))
        yield replace_at(program, path.position, (after,)), target.array


def _nest(loop: Loop) -> tuple[list[Loop], Condition, Assign] | None:
    """Return the loops and guards in a loop, each all there is in the last, and what they hold."""
    loops: list[Loop] = []
    guard: Condition = ALWAYS
    outer: Loop | If = loop
    while len(outer.body) == 1:
        if isinstance(outer, Loop) and (outer.execution != "sequential" or outer.private):
            return None
        match outer.body[0]:
            case Loop() as outer:
                loops.append(outer)
            case If(orelse=()) as outer:
                guard = conjunction(guard, outer.condition)
            case Assign(targets=(_,), values=(_,)) as node:
                return loops, guard, node
            case _:
                return None
    return None


def _added_apart(loop: Loop) -> tuple[str, ...]:
    """Return what a loop adds to in several statements, none of which looks at what another sets.

    Those are named to whose cells more than one iteration adds.
    """
    found: list[str] = []
    chains = list(_chains(loop))
    leaves = [node for node in nodes((loop,)) if not isinstance(node, Loop | If)]
    added = [node for node in leaves if isinstance(node, Assign) and _is_added(node)]
    made = [node.targets[0].array for node in added]
    if not len(leaves) == len(added) == len(chains) == len(set(made)) > 1:
        return ()
    for chain, node, own in zip(chains, added, made, strict=True):
        if read_in((chain,)) & {*made} - {own}:
            return ()
        if not any(
            isinstance(s, Whole) or loop.variable in variables(s)
            for s in node.targets[0].subscripts
        ):
            found.append(own)
    return tuple(found)


def _is_added(node: Assign) -> bool:
    if len(node.targets) != 1:
        return False
    found = accumulation(node.targets[0], node.values[0])
    return found is not None and found[0] == "sum"


def _chains(node: Node) -> Iterator[Node]:
    """Yield a loop for each statement in it, with the loops and guards around that."""
    match node:
        case Loop(execution="sequential", private=()) | If(orelse=()):
            for inner in node.body:
                for chain in _chains(inner):
                    yield replace(node, body=(chain,))
        case _:
            yield node


def _is_state(program: Program, path: LoopPath, name: str) -> bool:
    """Tell whether a loop around looks at what one inside of it adds to, and does not begin it."""
    for outer in loops_around(program, path.position):
        own = path.position[len(outer.position)]
        others = tuple(n for number, n in enumerate(outer.loop.body) if number != own)
        begun = any(name in written_in((node,)) - read_in((node,)) for node in assignments(others))
        if name in read_in(others) and not begun:
            return node_at(program, path.position) is path.loop
    return False
