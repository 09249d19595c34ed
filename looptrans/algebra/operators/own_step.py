"""The step itself as the operator, and sums under a map.

max(s, x)                 inputs can be read off what one iteration leaves
sqrt(s ** 2 + x ** 2)     the step is g^-1(g(s) + h(x)), with g found by integration
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy

from looptrans.algebra.iterations.recurrence import StateVariable
from looptrans.algebra.normal_forms.atoms import Undefined
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.normal_forms.readable import value_of
from looptrans.algebra.operators.conjugation import conjugation
from looptrans.algebra.operators.draft import Draft
from looptrans.algebra.operators.operator import Component, Operator
from looptrans.algebra.operators.weights import tidied
from looptrans.algebra.positional.numbers import Domain
from looptrans.algebra.positional.values import INFINITY, MINUS_INFINITY, ONE, ZERO, add, put
from looptrans.ir.value import Const, Real, Value


def itself(draft: Draft, state: StateVariable) -> bool:
    """Take the step for a part as for one input, where the inputs can be read off its result."""
    found = _first_value(draft, state)
    if found is None:
        return draft.no(state, "what a single iteration leaves depends on the state before it")
    unit, nothing = found
    number = len(draft.components) + 1
    units = {n: draft.terms.normal(c.unit) for n, c in enumerate(draft.components, 1)}
    units[number] = draft.terms.normal(unit)
    inputs = {given.name for given in draft.recurrence.inputs}
    used = [
        name for name in draft.terms.names_in(draft.terms.normal(state.update)) if name in inputs
    ]
    read: dict[str, Value] = {}
    for name in sorted(used):
        symbol = draft.terms.normal(Real(name))
        places = [n for n, form in units.items() if form == symbol]
        if not places:
            return draft.no(state, f"{name} cannot be read off what one iteration leaves")
        read[name] = Real(f"b{places[0]}")

    def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
        del new
        return put(state.update, {**left, **read})

    kept = (list(draft.components), list(draft.act), dict(draft.where))
    kind = "the step itself, a part's result in place of an input"
    draft.keep(state, Component(state.name, kind, unit, ZERO, nothing), build)
    if _is_associative(draft, number):
        _add_coordinates(draft, state, number)
        return True
    draft.components, draft.act, draft.where = kept
    return draft.no(state, "the step itself does not join the results of parts")


def _add_coordinates(draft: Draft, state: StateVariable, number: int) -> None:
    """Give a component coordinates where its step is a sum under a map."""
    form = draft.terms.normal(state.update)
    if draft.terms.names_in(form) & draft.states != {state.name}:
        return
    inputs = [given.name for given in draft.recurrence.inputs]
    found = conjugation(form, draft.terms, state.name, inputs)
    if found is not None:
        draft.components[number - 1] = replace(
            draft.components[number - 1],
            coordinate=put(found.map, {"y": Real(state.name)}),
            monoid="+",
            contribution=found.contribution,
            inverse=put(found.inverse, {"y": Real(f"y{number}")}),
        )


def _first_value(draft: Draft, state: StateVariable) -> tuple[Value, Value] | None:
    """Return what one iteration leaves, and what stands for no iteration."""
    nothing = {s: draft.components[n - 1].identity for s, n in draft.where.items()}
    for own in (state.initial, MINUS_INFINITY, ZERO, INFINITY, ONE):
        if not isinstance(own, Const):
            continue
        try:
            form = draft.terms.normal(put(state.update, {**nothing, state.name: own}))
        except Undefined:
            continue
        if draft.free(form) and form not in (sympy.oo, -sympy.oo):
            return value_of(form, draft.terms), own
    return None


def _is_associative(draft: Draft, number: int) -> bool:
    operator = Operator(tuple(draft.components), ())
    a, b, c = (operator.names(letter) for letter in "abd")
    left = operator.combined(operator.combined(a, b), c)[number - 1]
    right = operator.combined(a, operator.combined(b, c))[number - 1]
    return equality(left, right, Assumptions(draft.terms.domain)).answer == "proved"


def conjugated(draft: Draft, state: StateVariable) -> bool:
    """Take a variable that is a sum under a map, g^-1(g(s) + h(x))."""
    form = draft.terms.normal(state.update)
    if draft.terms.names_in(form) & draft.states != {state.name}:
        return draft.no(state, "it depends on other variables in no form that was tried")
    inputs = [given.name for given in draft.recurrence.inputs]
    found = conjugation(form, draft.terms, state.name, inputs)
    if found is None:
        return draft.no(state, "no function g makes it g(s) + h(x)")
    number = len(draft.components) + 1
    theirs = Real(f"b{number}")

    def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
        del new
        own = put(found.map, {"y": left[state.name]})
        return tidied(put(found.inverse, {"y": add(own, put(found.map, {"y": theirs}))}))

    formula = build({state.name: Real("a")}, {})

    return draft.keep(
        state,
        Component(
            state.name,
            "a sum under a map",
            tidied(put(found.inverse, {"y": found.contribution})),
            ZERO,
            _neutral(formula, theirs),
            put(found.map, {"y": Real(state.name)}),
            "+",
            found.contribution,
            put(found.inverse, {"y": Real(f"y{number}")}),
        ),
        build,
    )


def _neutral(formula: Value, other: Real) -> Value:
    """Return a value of `a` that leaves the other side as it is; -inf where none was found."""
    for candidate in (ZERO, MINUS_INFINITY, INFINITY, ONE):
        given = put(formula, {"a": candidate})
        assumed = Assumptions(Domain(nonnegative=frozenset({other.name})))
        if equality(given, other, assumed).answer == "proved":
            return candidate
    return MINUS_INFINITY
