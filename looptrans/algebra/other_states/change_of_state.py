"""Another state for the same recurrence: o' = o * l, whose update divides by nothing.

o <- (o * l * exp(m - M) + exp(x - M) * v) / L
q = o * l:  q <- q * exp(m - M) + exp(x - M) * v,  and o = q / l where l is not 0
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from itertools import combinations

import sympy

from looptrans.algebra.iterations.inputs import Input
from looptrans.algebra.iterations.one_order import in_one_order
from looptrans.algebra.iterations.order import inputs_of
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.normal_forms.atoms import Expr, Undefined, is_zero_or_one
from looptrans.algebra.normal_forms.normal import Assumptions, Equality, equality
from looptrans.algebra.normal_forms.readable import factored, value_of
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.positional.values import (
    ONE,
    ZERO,
    add,
    divide,
    multiply,
    names_of,
    power,
    put,
)
from looptrans.ir.value import (
    Binary,
    Call,
    Const,
    Real,
    Select,
    Unary,
    Value,
    arrays_read,
    free_variables,
)


@dataclass(frozen=True, slots=True)
class ChangeOfState:
    """A state variable replaced by its product with others.

    Attributes:
        state: The state variable.
        factor: What it is multiplied by, over state variables.
        recurrence: The recurrence with the new variable under the old one's name.
        readout: The old variable over the new state; where the factor is 0, the initial value.
        proof: That the new update, divided by the new factor, is the old one.
    """

    state: str
    factor: Value
    recurrence: Recurrence
    readout: Value
    proof: Equality


def freed_of_division(recurrence: Recurrence) -> tuple[ChangeOfState, ...]:
    """Find, for each variable whose update divides by the state, the least factor that frees it."""
    found = []
    for state in recurrence.states:
        change = _change(recurrence, state)
        if change is not None:
            found.append(change)
            recurrence = change.recurrence
    return tuple(found)


def freed_of_numbers(
    recurrence: Recurrence, found: Set[str]
) -> tuple[Recurrence, tuple[ChangeOfState, ...]]:
    """Find plain sums from 0 on whose terms divide by what is the same in all of them.

    o <- o + x * v / n
    q = o * n:  q <- q + x * v,  and o = q / n

    Args:
        recurrence: The recurrence.
        found: The arrays of what need not be divided by in every iteration.

    Returns:
        The recurrence with that as parameters of its own, and the changes.
    """
    recurrence = _with_divisors(recurrence, found)
    given = {item.name for item in recurrence.parameters if arrays_read(item.value) & found}
    changes, changed = [], recurrence
    for state in recurrence.states:
        change = _change_of_sum(changed, state, given)
        if change is not None:
            changes.append(change)
            changed = change.recurrence
    return recurrence, tuple(changes)


def _with_divisors(recurrence: Recurrence, found: Set[str]) -> Recurrence:
    """Return a recurrence whose inputs are not divided by what is the same in all iterations."""
    inputs, parameters = [], list(recurrence.parameters)
    quotients: dict[str, Value] = {}
    for item in recurrence.inputs:
        above, below = _divided(
            item.value,
            lambda v: bool(arrays_read(v) & found) and recurrence.loop not in free_variables(v),
        )
        inputs.append(replace(item, value=above) if below else item)
        names = []
        for value in below:
            known = next((p for p in parameters if p.value == value), None)
            if known is None:
                over = tuple(name for name in item.over if name in free_variables(value))
                known = Input(f"p{len(parameters) + 1}", value, over)
                parameters.append(known)
            names.append(Real(known.name))
        if names:
            quotients[item.name] = divide(Real(item.name), multiply(*names))
    if not quotients:
        return recurrence
    states = tuple(replace(s, update=put(s.update, quotients)) for s in recurrence.states)
    return replace(recurrence, states=states, inputs=tuple(inputs), parameters=tuple(parameters))


def _divided(value: Value, same: Callable[[Value], bool]) -> tuple[Value, list[Value]]:
    """Return a value without divisors of the whole of it, and these."""
    match value:
        case Binary("/", above, below):
            found, divisors = _divided(above, same)
            if same(below):
                return found, [*divisors, below]
            return Binary("/", found, below), divisors
        case Binary("*", left, right):
            one, mine = _divided(left, same)
            other, its = _divided(right, same)
            return Binary("*", one, other), [*mine, *its]
        case Unary(op, operand):
            found, divisors = _divided(operand, same)
            return Unary(op, found), divisors
        case Select(condition, chosen, otherwise) if otherwise == ZERO:
            found, divisors = _divided(chosen, same)
            return Select(condition, found, otherwise), divisors
        case _:
            return value, []


def _change_of_sum(
    recurrence: Recurrence, state: StateVariable, given: Set[str]
) -> ChangeOfState | None:
    terms = Terms(inputs_of(recurrence))
    try:
        rest = terms.normal(put(state.update, {state.name: ZERO}))
        grown = terms.normal(state.update)
    except Undefined:
        return None
    if state.initial != ZERO or not terms.is_zero(grown - rest - terms.normal(Real(state.name))):
        return None
    below = _bottoms(rest, given, terms)
    if not below:
        return None
    factor = multiply(*below)
    moved = terms.normal(multiply(value_of(rest, terms), factor))
    update = add(Real(state.name), factored(moved, terms))
    return _proved(recurrence, replace(state, update=update), factor, factor)


def _proved(
    recurrence: Recurrence, state: StateVariable, factor: Value, ahead: Value
) -> ChangeOfState | None:
    """Return the change to a new state, if its update over the new factor is the old update.

    There is none where another update looks at the old state, which the loop no longer keeps.

    Args:
        recurrence: The recurrence.
        state: The new state variable, under the name of the old one.
        factor: What the old one is multiplied by.
        ahead: The factor after an iteration.
    """
    others = (other.update for other in recurrence.states if other.name != state.name)
    if state.name in names_of(*others):
        return None
    old = divide(Real(state.name), factor)
    proof = equality(
        divide(state.update, ahead),
        put(recurrence.state(state.name).update, {state.name: old}),
        Assumptions(inputs_of(recurrence)),
    )
    if proof.answer != "proved":
        return None
    states = tuple(state if s.name == state.name else s for s in recurrence.states)
    made = in_one_order(replace(recurrence, states=states))
    return ChangeOfState(state.name, factor, made, old, proof)


def _bottoms(rest: Expr, given: Set[str], terms: Terms) -> list[Value]:
    """Return what a normal form is divided by that is made of given parameters alone.

    Not an exponential: exp(x) alone may overflow where exp(x - m) does not.
    """
    powers = {symbol for symbol, atom in terms.meaning.items() if atom.kind == "exp"}
    return [
        power(value_of(base, terms), int(times))
        for base, times in sympy.factor_list(sympy.fraction(terms.reduced(rest))[1])[1]
        if terms.names_in(base) and terms.names_in(base) <= given
        if not base.free_symbols & powers
    ]


def _change(recurrence: Recurrence, state: StateVariable) -> ChangeOfState | None:
    terms = Terms(inputs_of(recurrence))
    try:
        rest = terms.normal(put(state.update, {state.name: ZERO}))
        slope = terms.reduced(terms.normal(put(state.update, {state.name: ONE})) - rest)
        form = terms.normal(state.update)
    except Undefined:
        return None
    straight = slope * terms.normal(Real(state.name)) + rest
    if not _divides(form, recurrence, terms) or not terms.is_zero(form - straight):
        return None
    updates = {other.name: other.update for other in recurrence.states}
    candidates = _factors(slope, recurrence, state, terms)
    lowered = [_lowered(factor, recurrence, terms) for factor in candidates]
    for least in [*(factor for factor in lowered if factor is not None), *candidates]:
        moved = terms.normal(multiply(value_of(rest, terms), put(least, updates)))
        factor = multiply(least, *_same_divisors(state, recurrence, moved, terms))
        ahead = put(factor, updates)
        new_slope = terms.normal(divide(multiply(value_of(slope, terms), ahead), factor))
        new_rest = terms.normal(multiply(value_of(rest, terms), ahead))
        if _divides(new_slope, recurrence, terms) or _divides(new_rest, recurrence, terms):
            continue
        update = add(
            multiply(Real(state.name), factored(new_slope, terms)), factored(new_rest, terms)
        )
        first = {s.name: s.initial for s in recurrence.states}
        changed = replace(state, update=update, initial=_initial(state, factor, first))
        found = _proved(recurrence, changed, factor, ahead)
        if found is not None:
            return found
    return None


def _lowered(factor: Value, recurrence: Recurrence, terms: Terms) -> Value | None:
    """Return a factor over the exponential of a running maximum, which may overflow, if it has one.

    1 + l * exp(m)    ->    exp(-m) + l
    """
    form = terms.reduced(terms.normal(factor))
    found = form
    for state in recurrence.states:
        match state.update:
            case Call("max", arguments) if Real(state.name) in arguments:
                tops = [
                    symbol
                    for symbol in found.free_symbols
                    if symbol in terms.meaning
                    and terms.meaning[symbol].kind == "exp"
                    and terms.names_in(symbol) == {state.name}
                ]
                for top in tops:
                    degree = sympy.degree(sympy.fraction(found)[0], top)
                    found = terms.reduced(found / top**degree)
    return None if found == form else value_of(found, terms)


def _initial(state: StateVariable, factor: Value, first: dict[str, Value]) -> Value:
    if state.initial == ZERO:
        return ZERO
    value = multiply(state.initial, put(factor, first))
    numbers = [state.initial, *(first[name] for name in names_of(factor) if name in first)]
    if all(isinstance(number, Const) for number in numbers):
        terms = Terms()
        try:
            return value_of(terms.normal(value), terms)
        except Undefined:
            return value
    return value


def _divides(form: Expr, recurrence: Recurrence, terms: Terms) -> bool:
    """Tell whether a normal form divides by state, other than inside an exponential."""
    states = {state.name for state in recurrence.states}
    bottom = sympy.fraction(terms.reduced(form))[1]
    for base, _ in sympy.factor_list(bottom)[1]:
        atom = terms.meaning.get(base)
        exponential = atom is not None and atom.kind == "exp"
        if not exponential and terms.names_in(base) & states:
            return True
    return False


def _same_divisors(
    state: StateVariable, recurrence: Recurrence, rest: Expr, terms: Terms
) -> list[Value]:
    """Return what a choice between a term and 0 is divided by in all iterations: that can wait.

    Where it is 0 nothing can have been chosen, and the state stays what it was, 0.
    """
    chosen = any(is_zero_or_one(terms.meaning[s]) for s in rest.free_symbols if s in terms.meaning)
    if state.initial != ZERO or not chosen:
        return []
    return _bottoms(rest, {item.name for item in recurrence.parameters}, terms)


def _factors(
    slope: Expr, recurrence: Recurrence, state: StateVariable, terms: Terms
) -> list[Value]:
    """Return the products of factors of the slope that hold old state only, small ones first."""
    states = {s.name for s in recurrence.states} - {state.name}
    given: tuple[Input, ...] = recurrence.inputs
    inputs = {item.name for item in given}
    bases = []
    for base, times in sympy.factor_list(sympy.fraction(terms.reduced(slope))[0])[1]:
        atom = terms.meaning.get(base)
        names = terms.names_in(base)
        if names & states and not names & inputs and not (atom is not None and atom.kind == "exp"):
            bases.append(power(value_of(base, terms), int(times)))
    return [
        multiply(*chosen)
        for size in range(1, len(bases) + 1)
        for chosen in combinations(bases, size)
    ]
