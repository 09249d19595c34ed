"""The guard of the empty prefix, as a step; and updates whose choices are made extrema."""

from __future__ import annotations

from contextlib import suppress

from looptrans.algebra.appending.scanned import beside_scans
from looptrans.algebra.certificate import OperatorCertificate
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.derivation.one_loop.bodies import position_of, recurrence_of
from looptrans.derivation.one_loop.guards import (
    conditions,
    guard_laws,
    names_in_guard,
    next_values,
    starts_infinite,
    unguarded,
)
from looptrans.derivation.one_loop.loop import loop_read, operator_for, require_fold, with_step
from looptrans.derivation.step import DerivationStep, NotDone, NotNeeded
from looptrans.ir.program import Assign, If, Program
from looptrans.ir.value import Select, arrays_tested, walk_value
from looptrans.ir.walk import nodes
from looptrans.transforms.editing.accesses import listed


def guard(program: Program, loop: str) -> DerivationStep:
    """Let the state of a loop be as it is while nothing but -inf has been seen.

    Args:
        program: The program.
        loop: The loop.

    Raises:
        NotNeeded: Nothing needs a guard.
        NotDone: It could not be shown that nothing is lost by it.
    """
    step, already = unguarded(recurrence_of(program, loop))
    if already:
        raise NotNeeded("the empty prefix is guarded already")
    own, found = _joined(program, loop, step)
    whole = step if len(own.states) < len(step.states) else None
    guards = conditions(next_values(own), own, found.operator)
    if not guards:
        raise NotNeeded("every update is a number from the first iteration on")
    laws = guard_laws(own, found.operator, guards)
    after, again = with_step(program, loop, own, guards, whole=whole)
    tested = names_in_guard(own, guards)
    return DerivationStep(
        f"guard the empty prefix: nothing moves before {listed(tested)} does",
        "guard",
        (loop,),
        program,
        after,
        (),
        (*laws, again),
        found,
    )


def _joined(
    program: Program, loop: str, step: Recurrence
) -> tuple[Recurrence, OperatorCertificate]:
    """Return a recurrence, or what it is beside states that are scanned, with its operator.

    Raises:
        NotDone: There is none, or none was found.
    """
    try:
        return step, operator_for(program, loop, require_fold(step, loop))
    except NotDone as reason:
        for rest in beside_scans(step):
            if starts_infinite(rest):
                with suppress(NotDone):
                    return rest, operator_for(program, loop, rest)
        raise reason from None


def without_choices(program: Program, loop: str) -> DerivationStep:
    """Let the state of a loop be worked out by maxima where it is chosen by what it is.

        l = l * exp(m - s) if m < s else l            m_ij = max(m, s)
        m = s if m < s else m                  ->     l = l * exp(m - m_ij) + exp(s - m_ij)
        l = l + exp(s - m)                            m = m_ij

    Blocks are appended to a state by what it is multiplied with, which does not hang on the
    iteration then.

    Args:
        program: The program.
        loop: The loop.

    Raises:
        NotNeeded: Nothing is chosen so, or choices stay.
        NotDone: It could not be shown that the loop does the same.
    """
    step, guards = unguarded(loop_read(program, loop))
    if not _chooses(program, loop, step):
        raise NotNeeded("no update is chosen by the state")
    if any(isinstance(p, Select) for s in step.states for p in walk_value(s.update)):
        raise NotNeeded("the updates are choices as they are read, too")
    after, again = with_step(program, loop, step, guards)
    chosen = listed([s.access.array for s in step.states])
    name = f"work {chosen} out by maxima and minima, not by choices"
    return DerivationStep(name, "choices", (loop,), program, after, (), (again,))


def _chooses(program: Program, loop: str, step: Recurrence) -> bool:
    """Tell whether a loop asks for the state that it carries."""
    _, node = position_of(program, loop)
    carried = {state.access.array for state in step.states}
    for each in nodes(node.body):
        if isinstance(each, If) and carried & arrays_tested(each.condition):
            return True
        for value in each.values if isinstance(each, Assign) else ():
            for part in walk_value(value):
                if isinstance(part, Select) and carried & arrays_tested(part.condition):
                    return True
    return False
