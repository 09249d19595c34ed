"""Joining the result of a part to the state, as updates of a listing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isinf
from typing import Literal, TypeAlias

from looptrans.algebra.iterations.order import inputs_of
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.normal_forms.normal import Assumptions, equality, has_value, is_the_same
from looptrans.algebra.operators.laws import Equation, Law, domain_of
from looptrans.algebra.operators.operator import Operator
from looptrans.algebra.positional.values import ZERO, names_of, put
from looptrans.derivation.one_loop.guards import conditions, next_values
from looptrans.derivation.one_loop.writing import Update, flattened
from looptrans.derivation.step import NotDone
from looptrans.ir.condition import Condition, Data, Some
from looptrans.ir.index import Index, Int, variables
from looptrans.ir.listing import access_text, index_text
from looptrans.ir.value import (
    Access,
    Compare,
    Const,
    Holds,
    IndexValue,
    Range,
    Read,
    Real,
    Select,
    Value,
)

_Left: TypeAlias = Literal["the same", "no number", "another"]


def join_updates(
    step: Recurrence,
    operator: Operator,
    parts: Mapping[int, Access],
    *,
    guarded: bool,
    empty: bool,
    natural: Callable[[Index], bool] = lambda index: False,
) -> tuple[tuple[Update, ...], dict[str, Value]]:
    """Return the updates that join a part to the state.

    Args:
        step: The recurrence.
        operator: Its operator.
        parts: Where the components of the part are.
        guarded: Whether the state stays while nothing but infinities has been seen.
        empty: Whether a part may have no iterations.
        natural: Tells whether an index of an iteration is never negative.

    Returns:
        The updates, over `s…`, `t…` and `b…`; and what each `b…` stands for.

    Raises:
        NotDone: An empty part would change the state.
    """
    act = dict(operator.act)
    updates = {state.name: flattened(act[state.name]) for state in step.states}
    guards = _conditions(updates, step, operator) if guarded else {}
    for name in (n for n in updates if n not in guards):
        if guarded and not _keeps(name, step, operator):
            guards[name] = _has_seen(step, operator, name, natural)
        elif empty and (left := _with_nothing(name, step, operator)) != "the same":
            guards[name] = _is_something(step, operator, name, left)
    given: dict[str, Value] = {f"b{number}": Read(cell) for number, cell in parts.items()}
    return (
        tuple(
            Update(
                state.name,
                state.access,
                state.over,
                updates[state.name],
                state.statements[0] if state.statements else "",
                guards.get(state.name),
            )
            for state in step.states
        ),
        given,
    )


def _conditions(
    updates: Mapping[str, Value], step: Recurrence, operator: Operator
) -> dict[str, Condition]:
    """Return the guards of joins: those of the updates they stand for."""
    found = conditions(next_values(step), step, operator)
    return {name: found[name] for name in updates if name in found}


def _keeps(name: str, step: Recurrence, operator: Operator) -> bool:
    """Tell whether an empty part leaves a state as it is that saw nothing but infinities."""
    states: dict[str, Value] = {}
    for component in operator.components:
        if component.state is not None:
            own = component.identity
            states[component.state] = own if _is_infinite(own) else Real(component.state)
    kept, own = operator.acted(states, operator.identity)[name], states[name]
    if not has_value(kept):
        return True  # it is no number in the listing either
    domain = domain_of(step, operator, operator.positive, operator.nonnegative)
    return is_the_same(kept, own) or equality(kept, own, Assumptions(domain)).answer == "proved"


def _with_nothing(name: str, step: Recurrence, operator: Operator) -> _Left:
    """Return what an empty part leaves of a state that no iteration has changed.

    A mean divides 0 by 0 then. A root of squares is another number where the state begins below 0.
    """
    known = {s.name: s.initial for s in step.states if isinstance(s.initial, Const)}
    start: dict[str, Value] = {s.name: known.get(s.name, Real(s.name)) for s in step.states}
    kept = operator.acted(start, operator.identity)[name]
    if not has_value(kept):
        return "no number"
    shown = equality(kept, start[name], Assumptions(inputs_of(step)))
    if shown.answer != "proved":
        return "another"
    return "no number" if shown.needs else "the same"


def _is_something(step: Recurrence, operator: Operator, name: str, left: _Left) -> Condition:
    """Return the condition that a part is not the empty one.

    Raises:
        NotDone: An element of a row does not tell.
    """
    over = set(step.state(name).over)
    known = [
        (number, component)
        for number, component in enumerate(operator.components, 1)
        if component.state is not None and set(step.state(component.state).over) <= over
    ]
    # What every iteration makes positive tells by itself. Else all are as none would leave them,
    # where iterations that leave the same would have divided 0 by 0 in the listing as well.
    counts = [(n, c) for n, c in known if n in operator.positive and is_the_same(c.identity, ZERO)]
    if not counts and (left == "another" or len(known) < len(operator.components)):
        how = "to what is another number then" if left == "another" else "by dividing 0 by 0"
        raise NotDone(
            f"{access_text(step.state(name).access)} of a part without iterations is joined {how}, "
            "and nothing tells that there were none"
        )
    tests = tuple(
        Data(Compare("!=", Real(f"b{number}"), component.identity))
        for number, component in counts[:1] or known
    )
    return tests[0] if len(tests) == 1 else Some(tests)


def _is_infinite(value: Value) -> bool:
    return isinstance(value, Const) and isinf(value.value)


def _has_seen(
    step: Recurrence, operator: Operator, name: str, natural: Callable[[Index], bool]
) -> Condition:
    """Return the condition that a part had iterations: its result is none that none would leave.

    Raises:
        NotDone: An iteration might leave the same.
    """
    number, own = next((n, c) for n, c in enumerate(operator.components, 1) if c.state == name)
    given = next((x.value for x in step.inputs if Real(x.name) == own.unit), None)
    match own.identity, given:
        case Const(int() | float() as none), IndexValue(index) if none < 0 and natural(index):
            return Data(Compare("!=", Real(f"b{number}"), own.identity))
        case _:
            raise NotDone(
                f"{access_text(step.state(name).access)} of a part without iterations cannot be "
                "told from that of one that saw infinities only, and the last of those is kept"
            )


def joined_cells(
    step: Recurrence, updates: tuple[Update, ...], given: Mapping[str, Value]
) -> tuple[tuple[Access, Value, Value], ...]:
    """Return cell, initial value and full update of each state, over the listing's names."""
    names: dict[str, Value] = dict(given)
    names |= {state.name: Read(state.access) for state in step.states}
    left = list(updates)
    plain: dict[str, Value] = {}
    while left:
        ready = next(
            (
                u
                for u in left
                if not {other.next for other in left if other is not u} & _mentioned(u)
            ),
            None,
        )
        if ready is None:
            raise NotDone("the joins wait for each other")
        left.remove(ready)
        plain[ready.next] = put(ready.value, names)
        names[ready.next] = plain[ready.next]
    found = []
    for update in updates:
        value = plain[update.next]
        if update.guard is not None:
            holds = put(Holds(update.guard), names)
            assert isinstance(holds, Holds)
            value = Select(holds.condition, value, Read(update.cell))
        found.append((update.cell, step.state(update.state).initial, value))
    return tuple(found)


def _mentioned(update: Update) -> set[str]:
    return set(names_of(update.guarded))


def empty_side(step: Recurrence, operator: Operator) -> Law:
    """Show that ⊥ on one side of a join leaves the other side as it is."""
    domain = domain_of(step, operator, operator.positive, operator.nonnegative)
    states: dict[str, Value] = {state.name: Real(state.name) for state in step.states}
    nothing = operator.identity
    empty: dict[str, Value] = {
        c.state: c.identity for c in operator.components if c.state is not None
    }
    part = operator.names("b")
    left, right = operator.acted(empty, part), operator.acted(states, nothing)
    equations = []
    for number, component in enumerate(operator.components, 1):
        name = component.state
        if name is None:
            continue
        mine: Value = Real(f"b{number}")
        for of, a, b in (
            (f"⊥ . b, {name}", left[name], mine),
            (f"a . ⊥, {name}", right[name], states[name]),
        ):
            equations.append(Equation(of, a, b, equality(a, b, Assumptions(domain))))
    return Law("empty part", "⊥ . b = b and a . ⊥ = a, where the other is not ⊥", tuple(equations))


def vector_extent(bounds: Range) -> Index:
    """Return how many elements an array needs that is indexed by a loop's variable.

    Raises:
        NotDone: The loop's end is not one of sizes alone, or it may start below 0.
    """
    start = bounds.start
    known = isinstance(start, Int) and start.value >= 0 and bounds.step > 0
    if not known or variables(bounds.stop):
        raise NotDone(f"the extent of a partial result is not known: {index_text(bounds.stop)}")
    return bounds.stop
