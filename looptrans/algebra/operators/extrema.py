"""Maxima and minima, shifted or not: max(s + a, b), joined by max, with the sums of the a.

Where shift and input depend on other states, a level w(S) is looked for with which they do not.
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from looptrans.algebra.iterations.recurrence import StateVariable
from looptrans.algebra.normal_forms.atoms import Expr
from looptrans.algebra.normal_forms.readable import value_of
from looptrans.algebra.operators.draft import Draft
from looptrans.algebra.operators.operator import Component
from looptrans.algebra.operators.weights import tidied
from looptrans.algebra.positional.values import (
    INFINITY,
    MINUS_INFINITY,
    ZERO,
    add,
    is_number,
    put,
    subtract,
)
from looptrans.ir.value import Call, Real, Value


def extremum(draft: Draft, state: StateVariable) -> bool:
    """Take a variable that is max(s + a, b) or min(s + a, b), levelled where that is needed."""
    terms = draft.terms
    form = terms.normal(state.update)
    mine = terms.normal(Real(state.name))
    for symbol in sorted(form.free_symbols, key=str):
        atom = terms.meaning[symbol]
        if atom.kind != "max":
            continue
        sign = form.coeff(symbol)
        rest = terms.reduced(form - sign * symbol)
        if sign not in (1, -1) or symbol in rest.free_symbols:
            continue
        parts = [terms.reduced(sign * part + rest) for part in atom.parts]
        own = [part for part in parts if state.name in terms.names_in(part)]
        others = [part for part in parts if part not in own]
        if len(own) != 1 or not others:
            continue
        shift = terms.reduced(own[0] - mine)
        word = "max" if sign == 1 else "min"
        found = _levelled(draft, shift, others)
        if found is not None:
            return _take_extremum(draft, state, word, *found)
    return draft.no(state, "it is not the greater or the smaller of itself and an input")


def _levelled(
    draft: Draft, shift: Expr, others: list[Expr]
) -> tuple[Value, Expr, list[Expr]] | None:
    """Find a level w with which `shift` and `others` no longer depend on the state.

    max(s + A(S, x), B(S, x)) is max(w + s + a, b) - w(S') where A is w(S) - w(S') + a(x) and B
    is b(x) - w(S').
    """
    if draft.free(shift) and all(map(draft.free, others)):
        return ZERO, shift, others
    terms = draft.terms
    inputs = {given.name for given in draft.recurrence.inputs}
    old = [
        term
        for term in sympy.Add.make_args(sympy.expand(shift))
        if terms.names_in(term) & draft.states <= set(draft.where)
        and terms.names_in(term) & draft.states
        and not terms.names_in(term) & inputs
    ]
    level = value_of(sympy.Add(*old), terms)
    updates = {s.name: s.update for s in draft.recurrence.states if s.name in draft.where}
    ahead = terms.normal(put(level, updates))
    along = terms.reduced(shift + ahead - terms.normal(level))
    terms_of = [terms.reduced(other + ahead) for other in others]
    if old and all(map(draft.free, (along, *terms_of))):
        return level, along, terms_of
    return None


def _take_extremum(
    draft: Draft, state: StateVariable, word: str, level: Value, shift: Expr, others: list[Expr]
) -> bool:
    given = tuple(value_of(part, draft.terms) for part in others)
    joined = given[0] if len(given) == 1 else Call(word, given)
    units = {s: draft.components[n - 1].unit for s, n in draft.where.items()}
    right_names = {s: Real(f"b{n}") for s, n in draft.where.items()}
    moved = value_of(shift, draft.terms)
    along = None if shift == 0 else draft.coefficient(state, moved, "+")
    number = len(draft.components) + 1
    right = Real(f"b{number}")

    def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
        mine = add(left[state.name], subtract(put(level, left), put(level, new)))
        theirs = add(right, subtract(put(level, right_names), put(level, new)))
        return Call(word, (mine if along is None else add(mine, along), theirs))

    kind = f"a {'maximum' if word == 'max' else 'minimum'}"
    plain = is_number(level, 0.0)
    kind = kind if plain else f"{kind} once it is moved"
    unit = joined if plain else tidied(subtract(joined, put(level, units)))
    y = Real(f"y{number}")
    return draft.keep(
        state,
        Component(
            state.name,
            kind if shift == 0 else f"{kind} that is shifted in every iteration",
            unit,
            ZERO,
            MINUS_INFINITY if word == "max" else INFINITY,
            add(Real(state.name), level) if shift == 0 else None,
            word if shift == 0 else "",
            joined if shift == 0 else None,
            subtract(y, put(level, draft.letters("c"))) if shift == 0 else None,
        ),
        build,
    )
