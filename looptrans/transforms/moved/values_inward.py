"""Numbers that a loop works out for a loop inside, worked out in the loop inside.

    for t in range(T):                        for t in range(T):
        f = w[t] * scale                          for r in range(P):
        for r in range(P):             ->             f = w[t] * scale
            m = max(m, f * x[t, r])                   m = max(m, f * x[t, r])

The two loops then hold nothing but one state, which goes through the iterations of both; or, where
both are free, they stand one directly inside the other, and either may be run in blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Reduce, Value, value_children
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import live_out, read_by, written_in
from looptrans.transforms.editing.accesses import listed, sites_of
from looptrans.transforms.editing.own_scalars import own_scalars
from looptrans.transforms.editing.substitute import without_binders
from looptrans.transforms.editing.tree import LoopPath, loop_paths, replace_at


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
    program: Program,
    suits: Callable[[Program, LoopPath, LoopPath], bool],
    *,
    fewer: int | None = None,
) -> Inward | None:
    """Work numbers out in the loop that reads them, where that suits both loops.

    Args:
        program: The program.
        suits: Tells of the loop around and the one inside whether it does.
        fewer: By how many fewer loops and sums have to stand in each other in a number than in the
            loop inside; None where a number may be any work.

    Returns:
        The program afterwards; None where there is nothing to move.
    """
    for path in loop_paths(program):
        if len(path.loop.body) < 2:
            continue
        *before, last = path.loop.body
        if not isinstance(last, Loop):
            continue
        inner = LoopPath(last, (*path.position, len(before)))
        values = [node for node in before if isinstance(node, Assign)]
        known: set[str] = set()
        for node in values:
            if _is_value(program, node, path, inner, known):
                known |= {target.array for target in node.targets}
        if len(known) < len(before):
            continue
        if fewer is not None and _depth(before) + fewer > _depth((last,)):
            continue
        if not suits(program, path, inner):
            continue
        apart = (without_binders(program, value, frozenset({last.variable})) for value in values)
        body = (replace(last, body=(*apart, *last.body)),)
        after = replace_at(program, path.position, (replace(path.loop, body=body),))
        return Inward(after, tuple(value.targets[0].array for value in values))
    return None


def _depth(body: Iterable[Node]) -> int:
    """Return how many loops and sums stand in each other at most."""
    found = 0
    for node in body:
        match node:
            case Loop():
                found = max(found, 1 + _depth(node.body))
            case If():
                found = max(found, _depth((*node.body, *node.orelse)))
            case Assign():
                found = max(found, *map(_depth_of_sums, node.values))
            case _:
                pass
    return found


def _depth_of_sums(value: Value) -> int:
    own = len(value.generators) if isinstance(value, Reduce) else 0
    return own + max(map(_depth_of_sums, value_children(value)), default=0)


def _is_value(
    program: Program, node: Assign, path: LoopPath, inner: LoopPath, known: set[str]
) -> bool:
    """Tell whether a statement sets a number that only what is inside reads.

    It is the same all the time: nothing that it is made of is written in between, but numbers of
    the same kind that are known already. Other loops may have a number of that name.
    """
    if len(node.targets) != 1 or node.targets[0].subscripts:
        return False
    name = node.targets[0].array
    if name in live_out(program):
        return False
    sites = sites_of(program, name)
    if name in own_scalars(program, path.loop):
        sites = tuple(site for site in sites if path.position in site.place.loop_positions)
    reads = [site for site in sites if not site.relation.is_write]
    if len(sites) != len(reads) + 1:
        return False
    beside = {n.label for n in path.loop.body if isinstance(n, Assign)}
    if any(
        inner.position not in site.place.loop_positions and site.place.label not in beside
        for site in reads
    ):
        return False
    return not read_by(node) & (written_in(path.loop.body) - known)
