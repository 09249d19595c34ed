"""Loops inside one another that are one fold: one state goes through the iterations of all.

    for t:
        for u:                         m = max(max(m, max_u x[0, u]), max_u x[1, u]) ...
            m = max(m, x[t, u])          = max(m, max_t,u x[t, u])

Where the outer loops hold nothing else and hand on nothing but the state, the inner one takes up at
each t what it left at the t before. What a fold leaves behind is known of the sequence of its
iterations, whatever they are: so the inner loop is looked at as if it were entered once, and what
is found holds for the iterations of all the loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.normalizing.lets import unread_integers
from looptrans.adjoint.reading.closed_nodes import NotClosed
from looptrans.algebra.iterations.edges import edges_of
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.ir.facts import DependenceReport
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.program import Loop, Program
from looptrans.ir.value import arrays_read, free_variables
from looptrans.ir.walk import placed, sets_only, written_in
from looptrans.transforms.editing.tree import LoopPath, Position


@dataclass(frozen=True, slots=True)
class NestedFold:
    """A nest of loops with nothing between them, the outermost of which carries values.

    Attributes:
        path: The innermost loop.
        around: The outer loops, outermost first.
        carried: The arrays and scalars through which an outer loop hands on values.
        flow: The flow of the listing without what the outer loops carry.
    """

    path: LoopPath
    around: tuple[Loop, ...]
    carried: frozenset[str]
    flow: DependenceReport

    def check(self, step: Recurrence) -> None:
        """See to it that the innermost loop, over and over, is one fold.

        Raises:
            NotClosed: It is not known to be: more than the state goes from one iteration of an
                outer loop to the next, or which cells hold the state depends on such a loop, or
                what the fold takes for the same in all iterations does.
        """
        given = {loop.variable for loop in self.around}
        states = {state.access.array for state in step.states}
        others = sorted(self.carried - states)
        if others:
            raise NotClosed(f"besides the state of the loop inside, it hands on {others[0]}")
        for state in step.states:
            if given & state.access.variables:
                raise NotClosed(f"each of its iterations has its own {access_text(state.access)}")
        written = written_in(self.path.loop.body)
        for parameter in step.parameters:
            read = arrays_read(parameter.value)
            if given & set(free_variables(parameter.value)) or read & written:
                shown = value_text(parameter.value)
                raise NotClosed(f"{shown} is not the same in all of its iterations")


def outermost_of_a_fold(
    program: Program, path: LoopPath, flow: DependenceReport
) -> NestedFold | None:
    """Return the nest that a loop begins, where that loop carries values and holds one loop only.

    Args:
        program: The listing.
        path: The loop.
        flow: The flow of the listing.
    """
    around: list[Loop] = []
    positions: list[Position] = []
    loop, position = path.loop, path.position
    vain = unread_integers(program)
    while (number := _only_loop(loop, vain)) is not None:
        around.append(loop)
        positions.append(position)
        inner = loop.body[number]
        assert isinstance(inner, Loop)
        loop, position = inner, (*position, number)
    if not around or not _is_carried(program, flow, path.position):
        return None
    if not _is_carried(program, flow, position):
        return None
    carried = {
        edge.array
        for each in positions
        for edge in edges_of(program, flow, each)
        if edge.kind == "carried"
    }
    return NestedFold(
        LoopPath(loop, position),
        tuple(around),
        frozenset(carried),
        _without_carried(program, flow, frozenset(positions)),
    )


def _only_loop(loop: Loop, vain: frozenset[str]) -> int | None:
    """Return where the one loop stands that a loop holds, besides what is set in vain."""
    rest = [n for n, node in enumerate(loop.body) if not sets_only(node, vain)]
    return rest[0] if len(rest) == 1 and isinstance(loop.body[rest[0]], Loop) else None


def _is_carried(program: Program, flow: DependenceReport, loop: Position) -> bool:
    return any(edge.kind == "carried" for edge in edges_of(program, flow, loop))


def _without_carried(
    program: Program, flow: DependenceReport, loops: frozenset[Position]
) -> DependenceReport:
    places = {place.label: place for place in placed(program)}
    kept = []
    for each in flow.dependences:
        carrier = each.level
        if carrier is None or places[each.source].loop_positions[carrier] not in loops:
            kept.append(each)
    return replace(flow, dependences=tuple(kept))
