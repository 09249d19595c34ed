"""Numbers that a loop works out for a loop inside, worked out in the loop inside.

    for t in range(T):                        for t in range(T):
        f = w[t] * scale                          for r in range(P):
        for r in range(P):             ->             f = w[t] * scale
            m = max(m, f * x[t, r])                   m = max(m, f * x[t, r])

The two loops then hold nothing but one state, which goes through the iterations of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, live_out, nodes
from looptrans.transforms.accesses import listed, sites_of
from looptrans.transforms.tree import LoopPath, loop_paths, replace_at


@dataclass(frozen=True, slots=True)
class Inward:
    """A program that works numbers out where they are read.

    Attributes:
        program: The program afterwards.
        names: What they are called.
    """

    program: Program
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"work {listed(self.names)} out in the loop inside"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "a value worked out again is the value that was read before"
        reason = "nothing that it is made of is written in between, and nobody else reads it"
        return Certificate("storage", law, "legal", reason)


def with_values_inward(
    program: Program, carries: Callable[[Program, LoopPath], bool]
) -> Inward | None:
    """Work numbers out in the loop that reads them, where both loops carry something.

    Args:
        program: The program.
        carries: Tells of a loop whether it may carry something.

    Returns:
        The program afterwards; None where there is nothing to move.
    """
    for path in loop_paths(program):
        *before, last = path.loop.body
        if not isinstance(last, Loop) or not before:
            continue
        inner = LoopPath(last, (*path.position, len(before)))
        values = [node for node in before if isinstance(node, Assign)]
        known: set[str] = set()
        for node in values:
            if _is_value(program, node, path, inner, known):
                known |= {target.array for target in node.targets}
        if len(known) < len(before) or not (carries(program, path) and carries(program, inner)):
            continue
        body = (replace(last, body=(*values, *last.body)),)
        after = replace_at(program, path.position, (replace(path.loop, body=body),))
        return Inward(after, tuple(value.targets[0].array for value in values))
    return None


def _is_value(
    program: Program, node: Assign, path: LoopPath, inner: LoopPath, known: set[str]
) -> bool:
    """Tell whether a statement sets a number that only what is inside reads.

    It is the same all the time: nothing that it is made of is written in between, but numbers of
    the same kind that are known already.
    """
    if len(node.targets) != 1 or node.targets[0].subscripts:
        return False
    name = node.targets[0].array
    sites = sites_of(program, name)
    reads = [site for site in sites if not site.relation.is_write]
    if name in live_out(program) or len(sites) != len(reads) + 1:
        return False
    beside = {n.label for n in path.loop.body if isinstance(n, Assign)}
    if any(
        inner.position not in site.place.loop_positions and site.place.label not in beside
        for site in reads
    ):
        return False
    written = {t.array for n in nodes(path.loop.body) if isinstance(n, Assign) for t in n.targets}
    made_of = {relation.access.array for relation in accesses(node) if not relation.is_write}
    return not made_of & (written - known)
