"""Change of state, as a step: the update is freed of its division, which is done once behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.laws import Equation, Law
from looptrans.algebra.other_states.change_of_state import (
    ChangeOfState,
    freed_of_division,
    freed_of_numbers,
)
from looptrans.algebra.positional.numbers import NoNumber, evaluate, exact
from looptrans.algebra.positional.values import ZERO, divide, names_of, put
from looptrans.derivation.one_loop.bodies import labels_of, position_of, ranges_in
from looptrans.derivation.one_loop.guards import (
    conditions,
    guard_laws,
    names_in_guard,
    next_values,
    require_proved,
    unguarded,
)
from looptrans.derivation.one_loop.loop import loop_read, operator_for, with_step
from looptrans.derivation.one_loop.reading import over_listing
from looptrans.derivation.one_loop.writing import Writer
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.condition import Condition, Data
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.value import Compare, Const, Range, Read, Select, Value, walk_value
from looptrans.ir.walk import written_in
from looptrans.transforms.editing.accesses import listed


def change_state(program: Program, loop: str) -> DerivationStep:
    """Keep a product in the place of a state, so that the loop divides by nothing.

        O[i, d] = (O[i, d] * l[i] * … + p * V[j, d]) / l_ij
     -> O[i, d] = O[i, d] * … + p * V[j, d]      and behind the loop  O[i, d] = O[i, d] / l[i]

    Args:
        program: The program.
        loop: The loop.

    Raises:
        NotDone: No update divides by the state, or no product frees it.
    """
    return _changed(program, loop, "change of state")


def change_and_guard(program: Program, loop: str) -> DerivationStep:
    """Do the same, and guard the empty prefix of the new state where it needs that.

    Args:
        program: The program.
        loop: The loop.

    Raises:
        NotDone: No update divides by the state, no product frees it, or it cannot be shown that
            nothing is lost by the guard.
    """
    return _changed(program, loop, "guarded change of state")


def divide_behind(program: Program, loop: str) -> DerivationStep:
    """Divide by what earlier loops have found once, behind the loop, and not in each iteration.

        for j: O[i] = O[i] + w[j] * V[j] / n   ->   for j: O[i] = O[i] + w[j] * V[j]
                                                    O[i] = O[i] / n

    The loop need not wait for n then.

    Args:
        program: The program.
        loop: The loop.

    Raises:
        NotDone: No sum divides by what an earlier loop has found.
    """
    step = loop_read(program, loop)
    _, node = position_of(program, loop)
    step, changes = freed_of_numbers(step, written_in(program.body) - written_in(node.body))
    if not changes:
        raise NotDone("no sum divides by what an earlier loop has found")
    return _with_changes(program, loop, "division behind", step, changes, {})


def _changed(program: Program, loop: str, kind: str) -> DerivationStep:
    step, guarded = unguarded(loop_read(program, loop))
    changes = freed_of_division(step)
    if not changes:
        raise NotDone("no update divides by the state")
    new = changes[-1].recurrence
    first = {state.name: state.initial for state in step.states}
    moved = [s for s in new.states if s.initial != first[s.name]]
    if moved:
        raise NotDone(f"{access_text(moved[0].access)} would have to start from another value")
    found = operator_for(program, loop, new)
    wanted = bool(guarded) or kind != "change of state"
    guards = conditions(next_values(new), new, found.operator) if wanted else {}
    guards = guarded | guards
    required: tuple[Law, ...] = ()
    text = ""
    if guards and not guarded:
        required = guard_laws(new, found.operator, guards)
        text = f"; nothing moves before {listed(names_in_guard(new, guards))} does"
    made = _with_changes(program, loop, kind, step, changes, guards)
    laws = (*made.laws[:-1], *required, made.laws[-1])
    return replace(made, name=made.name + text, laws=laws, operator=found)


def _with_changes(
    program: Program,
    loop: str,
    kind: str,
    step: Recurrence,
    changes: tuple[ChangeOfState, ...],
    guards: Mapping[str, Condition],
) -> DerivationStep:
    """Let a loop keep the new states, and bring the old ones back behind it."""
    ranges = ranges_in(program, labels_of(step))

    def behind(writer: Writer) -> tuple[Node, ...]:
        return _readouts(writer, ranges, changes, step)

    factors = [_over_cells(change.factor, step) for change in changes]
    below = {p.access for value in factors for p in walk_value(value) if isinstance(p, Read)}
    unread = tuple(sorted(below - {s.access for s in step.states}, key=access_text))
    after, again = with_step(program, loop, changes[-1].recurrence, guards, behind, unread)
    laws = tuple(
        law
        for c in changes
        for law in (require_proved(_law(c), step), _nothing(c, step, _asked(c, step)))
    )
    names = [
        f"{access_text(step.state(c.state).access)} * {value_text(factor)}"
        for c, factor in zip(changes, factors, strict=True)
    ]
    return DerivationStep(
        f"change of state: the loop keeps {listed(names)}, and one division stands behind it",
        kind,
        (loop,),
        program,
        after,
        (),
        (*laws, again),
    )


def _law(change: ChangeOfState) -> Law:
    updates = {s.name: s.update for s in change.recurrence.states}
    new, factor = updates[change.state], change.factor
    return Law(
        "change of state",
        "the new update over the new factor is the old update of the readout",
        (Equation(change.state, divide(new, put(factor, updates)), change.readout, change.proof),),
    )


def _asked(change: ChangeOfState, step: Recurrence) -> Value:
    """Return what is 0 where the listing has added up nothing: the factor, or the new state.

    The factor of l * exp(-m) is no number where l is 0 and m -inf; what earlier loops have found
    may be anything.
    """
    state = step.state(change.state)
    start = {each.name: each.initial for each in step.states}
    first = put(change.factor, start)
    try:
        if first != change.factor:
            evaluate(first, dict.fromkeys(names_of(first), exact(0.5)))
            return _over_cells(change.factor, step)
    except NoNumber:
        pass
    return Read(state.access) if state.initial == ZERO else _over_cells(change.factor, step)


def _nothing(change: ChangeOfState, step: Recurrence, asked: Value) -> Law:
    """Say what stands in the place of 0 / 0."""
    state = step.state(change.state)
    cell = access_text(state.access)
    if asked == Read(state.access):
        return Law(
            "nothing to divide",
            f"{cell} = 0.0 where nothing was added up",
            (),
            by_definition=f"so without iterations; where what iterations add up is 0, {cell} in "
            "the listing is 0 or no finite number",
        )
    factor = value_text(asked)
    return Law(
        "nothing to divide by",
        f"{cell} = {value_text(state.initial)} where {factor} = 0",
        (),
        by_definition=f"so without iterations; where iterations leave {factor} at 0, the listing "
        f"divides by it, and its own {cell} is no finite number",
    )


def _over_cells(value: Value, step: Recurrence) -> Value:
    return over_listing(put(value, {s.name: Read(s.access) for s in step.states}), step)


def _readouts(
    writer: Writer,
    ranges: Mapping[str, Range],
    changes: tuple[ChangeOfState, ...],
    step: Recurrence,
) -> tuple[Node, ...]:
    """Return the statements that bring the old states back, the last change first."""
    found: list[Node] = []
    for change in reversed(changes):
        state = step.state(change.state)
        value = Select(
            Data(Compare("!=", _asked(change, step), Const(0.0))),
            _over_cells(change.readout, step),
            state.initial,
        )
        node: Node = Assign(writer.label(), (state.access,), (value,))
        for variable in reversed([name for name in state.over if name != ":"]):
            node = Loop(variable, ranges[variable], (node,))
        found.append(node)
    return tuple(found)
