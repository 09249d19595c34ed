"""The guard of the empty prefix, as a step."""

from __future__ import annotations

from looptrans.derivation.guards import (
    conditions,
    guard_laws,
    names_in_guard,
    next_values,
    unguarded,
)
from looptrans.derivation.loop import loop_read, operator_for, with_step
from looptrans.derivation.step import DerivationStep, NotNeeded
from looptrans.ir.program import Program
from looptrans.transforms.accesses import listed


def guard(program: Program, loop: str) -> DerivationStep:
    """Let the state of a loop be as it is while nothing but -inf has been seen.

    Args:
        program: The program.
        loop: The loop.

    Raises:
        NotNeeded: Nothing needs a guard.
        NotDone: It could not be shown that nothing is lost by it.
    """
    step, already = unguarded(loop_read(program, loop))
    if already:
        raise NotNeeded("the empty prefix is guarded already")
    found = operator_for(program, loop, step)
    guards = conditions(next_values(step), step, found.operator)
    if not guards:
        raise NotNeeded("every update is a number from the first iteration on")
    laws = guard_laws(step, found.operator, guards)
    after, again = with_step(program, loop, step, guards)
    tested = names_in_guard(step, guards)
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
