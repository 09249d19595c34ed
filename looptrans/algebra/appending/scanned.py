"""States that are looked at in between: what they are in each iteration of a block is a scan.

    for j: y[j] = r                    for blocks X of x: y = r + the sum of those of X before each
           r = r + x[j]          ->                       r = r + sum(X)

A state may be looked at where it is a sum, product, maximum or minimum of what does not depend on
it: joining is associative, so the terms of a block may be joined before what was there. So are
steps `r = a * r + b`, which may begin anew. To the other states it is then one more input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations

from looptrans.algebra.appending.affine import factor_and_term
from looptrans.algebra.appending.append_laws import one_iteration, steps_join
from looptrans.algebra.appending.append_state import AppendedState
from looptrans.algebra.appending.appended import NoForm, appended
from looptrans.algebra.iterations.inputs import Input
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.operators.laws import Law
from looptrans.algebra.positional.values import ONE, names_of, put
from looptrans.ir.listing import access_text
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Read, Real, Value


def scanned(
    step: Recurrence,
) -> tuple[tuple[AppendedState, ...], tuple[Law, ...], frozenset[str]]:
    """Bring a recurrence into the form in which blocks are appended, some states being scanned.

    Args:
        step: The recurrence.

    Returns:
        The states in its order, the laws, and the names of the states that are looked at.

    Raises:
        NoForm: There is no such form.
    """
    for chosen in _choices(step):
        try:
            return _with(step, chosen)
        except NoForm:
            continue
    raise NoForm(
        f"{step.read_inside[0]} looks at the state in between"
        if step.is_scan
        else "no state is a sum, product, maximum or minimum by itself"
    )


def beside_scans(step: Recurrence) -> Iterator[Recurrence]:
    """Yield recurrences without some states that others look at, which are inputs of the rest."""
    for chosen in _choices(step):
        given, inputs = _as_inputs(step, chosen)
        others = tuple(_given(state, given) for state in step.states if state not in chosen)
        if others:
            whole, found = _whole_inputs(others, inputs, step.parameters, given.values())
            yield replace(step, states=whole, inputs=found)


def _as_inputs(
    step: Recurrence, chosen: tuple[StateVariable, ...]
) -> tuple[dict[str, Input], tuple[Input, ...]]:
    """Return an input in the place of each of some states, and all inputs there are then."""
    given = {
        state.name: Input(f"x{number}", Read(state.access), state.over)
        for number, state in enumerate(chosen, len(step.inputs) + 1)
    }
    return given, (*step.inputs, *given.values())


def _choices(step: Recurrence) -> Iterator[tuple[StateVariable, ...]]:
    """Yield which states may be scanned: those that are looked at, and some of the others."""
    sought = [state for state in step.states if state.name in step.seen_inside]
    mentioned = {
        name for state in step.states for name in names_of(state.update) if name != state.name
    }
    others = [
        state
        for state in step.states
        if state not in sought and state.name in mentioned and state.name in names_of(state.update)
    ]
    for count in range(len(others) + 1):
        for more in combinations(others, count):
            if sought or more:
                yield tuple(s for s in step.states if s in sought or s in more)


def _with(
    step: Recurrence, chosen: tuple[StateVariable, ...]
) -> tuple[tuple[AppendedState, ...], tuple[Law, ...], frozenset[str]]:
    given, inputs = _as_inputs(step, chosen)
    found: dict[str, AppendedState] = {}
    laws: list[Law] = []
    known: set[str] = set()
    for state in _in_order(chosen):
        own = _given(state, {name: given[name] for name in known})
        if set(names_of(own.update)) & {each.name for each in step.states} - {state.name}:
            raise NoForm(f"{access_text(state.access)} waits for other states")
        found[state.name], more = _alone(replace(step, states=(own,), inputs=inputs))
        laws += more
        known.add(state.name)
    others = tuple(_given(state, given) for state in step.states if state not in chosen)
    if others:
        whole, every = _whole_inputs(others, inputs, step.parameters, given.values())
        forms, more = appended(replace(step, states=whole, inputs=every))
        found |= {form.state.name: form for form in forms}
        laws += more
    states = tuple(found[state.name] for state in step.states)
    return states, tuple(laws), frozenset(given)


def _whole_inputs(
    states: tuple[StateVariable, ...],
    inputs: tuple[Input, ...],
    parameters: tuple[Input, ...],
    given: Iterable[Input],
) -> tuple[tuple[StateVariable, ...], tuple[Input, ...]]:
    """Return states with one input for each value that is made of what is given and of inputs.

    What holds whatever such a value is holds for it.
    """
    made: dict[Value, Input] = {}
    known = {each.name: each.value for each in (*inputs, *parameters)}
    looked_at = {each.name for each in given}

    def change(value: Value) -> Value | None:
        names = set(names_of(value))
        if isinstance(value, Real) or not names & looked_at or any(n[0] in "st" for n in names):
            return None
        if value not in made:
            number = len(inputs) + len(made) + 1
            made[value] = Input(f"x{number}", put(value, known))
        return Real(made[value].name)

    whole = tuple(replace(each, update=replaced(each.update, change)) for each in states)
    return whole, (*inputs, *made.values())


def _alone(step: Recurrence) -> tuple[AppendedState, tuple[Law, ...]]:
    """Return the form of the one state of a recurrence, with its laws."""
    try:
        (form,), laws = appended(step)
        if form.is_plain:
            return form, laws
    except NoForm:
        pass
    (state,) = step.states
    own = Real(state.name)
    found = factor_and_term(state.update, lambda value: value == own)
    if found is None or state.name in names_of(*found):
        raise NoForm(f"{access_text(state.access)} is no sum by itself")
    factor, term = found
    form = AppendedState(state, "+", term, None if factor == ONE else factor)
    law = one_iteration(step, (form,))
    laws = (law,) if form.is_plain else (law, steps_join(step, form))
    if any(each.answer != "proved" for each in laws):
        raise NoForm(f"that {access_text(state.access)} may be scanned is not proved")
    return form, laws


def _in_order(chosen: tuple[StateVariable, ...]) -> list[StateVariable]:
    """Return states in an order in which each stands behind those it looks at."""
    found: list[StateVariable] = []
    waiting = list(chosen)
    names = {state.name for state in chosen}
    while waiting:
        done = {state.name for state in found}
        ready = next(
            (s for s in waiting if set(names_of(s.update)) & names <= done | {s.name}), None
        )
        if ready is None:
            cells = " and ".join(access_text(state.access) for state in waiting)
            raise NoForm(f"{cells} wait for each other")
        waiting.remove(ready)
        found.append(ready)
    return found


def _given(state: StateVariable, given: dict[str, Input]) -> StateVariable:
    """Return a state whose update reads inputs in the place of other states."""
    values = {name: Real(one.name) for name, one in given.items() if name != state.name}
    return replace(state, update=put(state.update, values))
