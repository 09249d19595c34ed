"""Loops of no iteration or of one, by constant bounds, left out.

    for k in range(0, N):                    for k in range(0, N):
        for b in range(0, 1):                    s[k] = s[k] / n[0]
            s[k] = s[k] / n[b]       ->
        for q in range(0, 0):
            s[k] = s[k] + 1.0

A loop of one iteration carries nothing, and would be a block of a single row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.index import Int
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.substitute import substitute_variable


@dataclass(frozen=True, slots=True)
class Known:
    """A program without loops of no iteration or of one.

    Attributes:
        program: The program afterwards.
        loops: Their variables.
    """

    program: Program
    loops: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"do without {listed(self.loops)}, of one iteration or none"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        return Certificate("order", law, "legal", "constant bounds leave one iteration or none")


def with_known_iterations(program: Program) -> Known | None:
    """Leave out loops of no iteration or of one.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such loop, or would be no statement.
    """
    names: dict[str, None] = {}

    def change(node: Node) -> tuple[Node, ...]:
        found = iterations(node)
        if isinstance(node, Loop) and found is not None and len(found) < 2:
            names[node.variable] = None
            if not found:
                return ()
            at = {node.variable: Int(found[0])}
            return tuple(substitute_variable(inner, at) for inner in node.body)
        if isinstance(node, Loop) and not node.body:
            return ()
        if isinstance(node, If) and not (node.body or node.orelse):
            return ()
        return (node,)

    after = replace(program, body=rewritten(program.body, change))
    kept = any(isinstance(node, Assign | Loop | If) for node in after.body)
    return Known(after, tuple(names)) if names and kept else None


def iterations(node: Node) -> range | None:
    """Return the iterations of a loop that constants bound; None of any other node."""
    if not isinstance(node, Loop) or node.execution != "sequential" or node.private:
        return None
    start, stop = node.range.ends
    if isinstance(start, Int) and isinstance(stop, Int):
        return range(start.value, stop.value, node.range.step)
    return None
