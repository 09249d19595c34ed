"""Loops of a few iterations, each of which goes on from what the one before it made, written out.

    for t in range(2):                           for s in range(S):
        for s in range(S):                           x[s] = x[s] + sum(f(x[s], y[n]) for n …)
            x[s] = x[s] + sum(…)         ->      for s in range(S):
                                                     x[s] = x[s] + sum(f(x[s], y[n]) for n …)

So attention that is repeated is attention several times, layer upon layer, and each layer keeps
what it needs: no more than a state for each iteration would take.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.carried.recurrences import again
from looptrans.adjoint.carried.states_kept import FEW
from looptrans.adjoint.rewriting.few_iterations import unlabelled
from looptrans.analysis.kept_flow import flow_of
from looptrans.ir.index import Int
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import assignments, loops_in, nodes, placed
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.moved.known_iterations import iterations

MOST_STATEMENTS: Final = 160
"""How many statements a listing, or its backward pass, may have afterwards."""


@dataclass(frozen=True, slots=True)
class Repetitions:
    """A program with such loops written out.

    Attributes:
        program: The program afterwards.
        loops: Their variables.
    """

    program: Program
    loops: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"write out the iterations of {listed(self.loops)}"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        return Certificate("order", law, "legal", "constant bounds leave a few iterations")


def with_repetitions_written_out(
    program: Program, *, throughout: bool = False
) -> Repetitions | None:
    """Write out loops of a few iterations that hand on more than a sum, around other loops.

    Args:
        program: The program.
        throughout: Whether those inside of other loops are written out, too.

    Returns:
        The program afterwards; None where there is no such loop, or would be too many statements.
    """
    handing = _handing_on(program)
    names: dict[str, None] = {}

    def change(node: Node) -> tuple[Node, ...]:
        found = _few(node)
        if not isinstance(node, Loop) or found is None or node.variable not in handing:
            return (node,)
        if not loops_in(node.body):
            return (node,)
        names[node.variable] = None
        return tuple(
            substitute_variable(inner, {node.variable: Int(number)})
            for number in found
            for inner in (node.body if number == found[0] else rewritten(node.body, unlabelled))
        )

    if not handing:
        return None
    body = (
        rewritten(program.body, change)
        if throughout
        else tuple(each for node in program.body for each in change(node))
    )
    if not names or len(assignments(body)) > MOST_STATEMENTS:
        return None
    return Repetitions(again(replace(program, body=body)), tuple(names))


def _few(node: Node) -> range | None:
    """Return the iterations of a loop of a few."""
    found = iterations(node)
    return found if found is not None and 1 < len(found) <= FEW else None


def _handing_on(program: Program) -> set[str]:
    """Return the loops of a few iterations that hand on more than what they add up."""
    few = {n.variable for n in nodes(program.body) if isinstance(n, Loop) and _few(n)}
    if not few:
        return set()
    adding = {
        place.label
        for place in placed(program)
        if isinstance(place.node, Assign)
        and len(place.node.targets) == 1
        and accumulation(place.node.targets[0], place.node.values[0]) is not None
    }
    return {
        each.carried_by
        for each in flow_of(program).dependences
        if each.carried_by in few and not (each.source == each.sink and each.source in adding)
    }
