"""Single numbers that others look at in between: kept, they leave states that have closed forms.

pos = pos + g[j]                pos is kept for every iteration,
m = max(m, s[j] - pos)    ->    m and l have an operator, of which s[j] - pos is an input
l = l * exp(…) + …
"""

from __future__ import annotations

from looptrans.algebra.appending.scanned import beside_scans
from looptrans.algebra.iterations.assembly import assembled, flow_of, iteration_of
from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.finding import find_operator
from looptrans.ir.program import Program
from looptrans.transforms.editing.tree import loop_name, loop_paths


def looked_at(program: Program) -> frozenset[str]:
    """Return the names of the numbers without which the states of loops have an operator."""
    try:
        flow = flow_of(program)
    except NoRecurrence:
        return frozenset()
    found: frozenset[str] = frozenset()
    for path in loop_paths(program):
        name = loop_name(program, path.position)
        try:
            step = assembled(program, iteration_of(program, name, flow))
        except NoRecurrence:
            continue
        found |= _of_loop(step)
    return found


def _of_loop(step: Recurrence) -> frozenset[str]:
    if find_operator(step).operator is not None:
        return frozenset()
    for rest in beside_scans(step):
        kept = {state.name for state in rest.states}
        others = [state.access for state in step.states if state.name not in kept]
        if all(not each.rank for each in others) and find_operator(rest).operator is not None:
            return frozenset(each.array for each in others)
    return frozenset()
