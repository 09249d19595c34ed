"""The guard of the empty prefix, as a step."""

from __future__ import annotations

from looptrans.algebra.laws import Law
from looptrans.derivation.guards import (
    conditions,
    names_in_guard,
    neutral,
    next_values,
    require_proved,
    unguarded,
)
from looptrans.derivation.loop import loop_read, operator_for, with_step
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.program import Program
from looptrans.transforms.accesses import listed


def guard(program: Program, loop: str) -> DerivationStep:
    """Let the state of a loop be as it is while nothing but -inf has been seen.

    Args:
        program: The program.
        loop: The loop.

    Raises:
        NotDone: Nothing needs a guard, or it could not be shown that none is lost by it.
    """
    step, already = unguarded(loop_read(program, loop))
    if already:
        raise NotDone("the empty prefix is guarded already")
    found = operator_for(program, loop, step)
    guards = conditions(next_values(step), step, found.operator)
    if not guards:
        raise NotDone("every update is a number from the first iteration on")
    law = require_proved(neutral(step, found.operator, guards))
    after, again = with_step(program, loop, step, guards)
    tested = names_in_guard(step, guards)
    which = Law(
        "guard",
        "what the guard leaves out is no number",
        (),
        by_definition=f"as long as {listed(tested)} has not moved, the listing's own update "
        "takes an infinity from itself",
    )
    return DerivationStep(
        f"guard the empty prefix: nothing moves before {listed(tested)} does",
        "guard",
        (loop,),
        program,
        after,
        (),
        (which, law, again),
        found,
    )
