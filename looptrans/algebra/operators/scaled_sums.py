"""Sums, scaled or not: a * s + b, joined by sums, with the products of the a.

A(S, x) * s + B(S, x)     w(S) * s + r(S) is a plain sum, w and r solved for in the states before
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, combinations_with_replacement

import sympy

from looptrans.algebra.iterations.recurrence import StateVariable
from looptrans.algebra.normal_forms.atoms import Expr, Leaf, Undefined
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.normal_forms.readable import factored, value_of
from looptrans.algebra.operators.draft import Draft
from looptrans.algebra.operators.operator import Component
from looptrans.algebra.operators.weights import Weight
from looptrans.algebra.positional.values import (
    ONE,
    ZERO,
    add,
    divide,
    is_number,
    multiply,
    put,
    subtract,
)
from looptrans.ir.value import Call, Const, Real, Value

MOST_FACTORS = 5
MOST_MONOMIALS = 64


def affine(draft: Draft, state: StateVariable) -> bool:
    """Take a variable that is a * s + b, or is once it is scaled and moved."""
    terms, name = draft.terms, state.name
    split = _slope(draft, state.update, name)
    if split is None:
        return draft.no(state, "it is not a multiple of itself plus something")
    slope, rest = split
    if draft.free(slope) and draft.free(rest):
        if slope == 0:
            return _last(draft, state, rest)
        return _take_affine(draft, state, Weight(ZERO, ()), ZERO, slope, rest)
    updates = {s.name: s.update for s in draft.recurrence.states if s.name in draft.where}
    before = {s: Real(s) for s in draft.where}
    slope_value, rest_value = value_of(slope, terms), value_of(rest, terms)
    for weight in _weights(draft, slope):
        ahead = weight.value(updates)
        factor = terms.normal(divide(multiply(slope_value, ahead), weight.value(before)))
        if not draft.free(factor):
            continue
        added = terms.normal(multiply(rest_value, ahead))
        if draft.free(added):
            return _take_affine(draft, state, weight, ZERO, factor, added)
        correction = _correction(draft, state, factor, added, updates)
        if correction is not None:
            return _take_affine(draft, state, weight, correction[0], factor, correction[1])
    return draft.no(
        state,
        "no scaling w and correction r in the other variables turns w * s + r into a plain sum",
    )


def _slope(draft: Draft, update: Value, name: str) -> tuple[Expr, Expr] | None:
    terms = draft.terms
    at_zero, at_one = put(update, {name: ZERO}), put(update, {name: ONE})
    try:
        rest = terms.chosen(at_zero, lambda leaf: _is_input(draft, leaf))
        slope = terms.chosen(subtract(at_one, at_zero), lambda leaf: _is_input(draft, leaf))
        form = terms.normal(update)
    except Undefined:
        return None
    if terms.is_zero(form - slope * terms.normal(Real(name)) - rest):
        return slope, rest
    if not draft.free(slope) or not draft.free(rest):
        return None
    straight = add(multiply(value_of(slope, terms), Real(name)), value_of(rest, terms))
    fits = equality(update, straight, Assumptions(terms.domain)).answer == "proved"
    return (slope, rest) if fits else None


def _is_input(draft: Draft, leaf: Leaf) -> bool:
    """Tell whether the state has no part in a condition."""
    if leaf.kind == "truth":
        return leaf.subject not in draft.states
    return draft.free(leaf.subject)


def _last(draft: Draft, state: StateVariable, rest: Expr) -> bool:
    number = len(draft.components) + 1
    unit = value_of(rest, draft.terms)
    kind = "the value of the last iteration"
    return draft.keep(
        state,
        Component(state.name, kind, unit, ZERO, ZERO),
        lambda left, new: Real(f"b{number}"),
    )


def _take_affine(
    draft: Draft, state: StateVariable, weight: Weight, correction: Value, factor: Expr, added: Expr
) -> bool:
    """Take w * s + r with the step `factor * it + added`."""
    terms, name = draft.terms, state.name
    contribution = factored(added, terms)
    plain = weight == Weight(ZERO, ()) and is_number(correction, 0.0)
    units = {s: draft.components[n - 1].unit for s, n in draft.where.items()}
    if plain and added == 0:
        return _take_product(draft, state, factor)
    along = None if factor == 1 else draft.coefficient(state, factored(factor, terms), "*")
    number = len(draft.components) + 1
    right = {s: Real(f"b{n}") for s, n in draft.where.items()} | {name: Real(f"b{number}")}
    above = subtract(contribution, put(correction, units))
    unit = above if plain else factored(terms.normal(divide(above, weight.value(units))), terms)

    def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
        scale = new if weight != Weight(ZERO, ()) else {}
        earlier = weight.times(left[name], left, scale) if scale else left[name]
        later = weight.times(right[name], right, scale) if scale else right[name]
        total = add(earlier if along is None else multiply(along, earlier), later)
        if is_number(correction, 0.0):
            return total
        return add(total, _corrected(draft, correction, weight, left, right, new, along))

    coordinate = add(weight.times(Real(name), {s: Real(s) for s in draft.where}, {}), correction)
    summed = factor == 1
    kind = _affine_kind(plain, summed, is_number(correction, 0.0))
    inverse = divide(
        subtract(Real(f"y{number}"), put(correction, draft.letters("c"))),
        weight.value(draft.letters("c")),
    )
    return draft.keep(
        state,
        Component(
            name,
            kind,
            unit,
            ZERO,
            ZERO,
            coordinate if summed else None,
            "+" if summed else "",
            contribution if summed else None,
            inverse if summed else None,
        ),
        build,
    )


def _corrected(
    draft: Draft,
    correction: Value,
    weight: Weight,
    left: Mapping[str, Value],
    right: Mapping[str, Value],
    new: Mapping[str, Value],
    along: Value | None,
) -> Value:
    """Return `(r(left) + r(right) - r(new)) / w(new)` without what cancels in it."""
    terms = draft.terms
    formulas = dict(draft.act) if next(iter(left.values())) == Real(next(iter(left))) else None
    known: dict[str, Value] = {}
    for state, number in draft.where.items():
        if state not in left or state not in new:
            continue
        names = (
            {f"t{s[1:]}": v for s, v in known.items()}
            if formulas is not None
            else {f"c{draft.where[s]}": v for s, v in known.items()}
        )
        whole = (
            formulas.get(state)
            if formulas is not None
            else draft.components[number - 1].combine
            if number <= len(draft.components)
            else None
        )
        if whole is not None:
            known[state] = put(whole, names)
    earlier = put(correction, left)
    total = add(earlier if along is None else multiply(along, earlier), put(correction, right))
    gap = subtract(total, put(correction, known))
    return factored(terms.normal(divide(gap, weight.value(known))), terms)


def _take_product(draft: Draft, state: StateVariable, factor: Expr) -> bool:
    number = len(draft.components) + 1
    unit = factored(factor, draft.terms)

    def build(left: Mapping[str, Value], new: Mapping[str, Value]) -> Value:
        del new
        return multiply(left[state.name], Real(f"b{number}"))

    mine, joined = Real(state.name), Real(f"y{number}")
    return draft.keep(
        state,
        Component(state.name, "a product", unit, ZERO, ONE, mine, "*", unit, joined),
        build,
    )


def _weights(draft: Draft, slope: Expr) -> Iterator[Weight]:
    """Yield the products of factors of the slope that hold old state only, large ones first."""
    terms = draft.terms
    top, bottom = sympy.fraction(sympy.factor(slope))
    factors: list[tuple[Expr, int]] = []
    inputs = {given.name for given in draft.recurrence.inputs}
    for part, sign in ((top, 1), (bottom, -1)):
        for base, times in sympy.factor_list(part)[1]:
            names = terms.names_in(base)
            old = names & draft.states
            if old and old <= set(draft.where) and not names & inputs:
                factors.append((base, sign * int(times)))
    factors = factors[:MOST_FACTORS]
    above = [item for item in factors if item[1] > 0]
    below = [item for item in factors if item[1] < 0]
    for kept in (above, factors, below):
        for size in range(len(kept), 0, -1):
            for chosen in combinations(kept, size):
                yield _weight(draft, chosen)
    yield Weight(ZERO, ())


def _weight(draft: Draft, chosen: tuple[tuple[Expr, int], ...]) -> Weight:
    exponent: Expr = sympy.Integer(0)
    factors = []
    for base, times in chosen:
        atom = draft.terms.meaning.get(base)
        if atom is not None and atom.kind == "exp":
            exponent += times * atom.parts[0]
        else:
            factors.append((value_of(base, draft.terms), times))
    two = draft.terms.normal(Call("log", (Const(2),)))
    halved = draft.terms.reduced(exponent / two)
    if exponent != 0 and two not in halved.free_symbols:
        return Weight(value_of(halved, draft.terms), tuple(factors), "exp2")
    return Weight(value_of(exponent, draft.terms), tuple(factors))


def _correction(
    draft: Draft, state: StateVariable, factor: Expr, added: Expr, updates: Mapping[str, Value]
) -> tuple[Value, Expr] | None:
    """Solve `added + r(S') - factor * r(S) = b(x)` for polynomials r and b."""
    terms = draft.terms
    names = [name for name in draft.where if name in updates]
    symbols = {name: terms.normal(Real(name)) for name in names}
    monomials = [
        chosen for degree in (1, 2, 3) for chosen in combinations_with_replacement(names, degree)
    ]
    inputs = [terms.normal(Real(g.name)) for g in draft.recurrence.inputs if not g.is_truth]
    powers = [
        sympy.Mul(*chosen)
        for degree in (0, 1, 2, 3)
        for chosen in combinations_with_replacement(inputs, degree)
    ]
    if not names or len(monomials) + len(powers) > MOST_MONOMIALS:
        return None
    ahead = {name: terms.normal(updates[name]) for name in names}
    unknown = [sympy.Symbol(f"k{n}") for n in range(len(monomials) + len(powers))]
    total = added
    for k, chosen in zip(unknown, monomials, strict=False):
        later = sympy.Mul(*(ahead[name] for name in chosen))
        now = sympy.Mul(*(symbols[name] for name in chosen))
        total += k * (later - factor * now)
    for k, monomial in zip(unknown[len(monomials) :], powers, strict=True):
        total -= k * monomial
    top = sympy.fraction(sympy.together(total))[0]
    others = sorted(top.free_symbols - set(unknown), key=str)
    equations = sympy.Poly(sympy.expand(top), *others).coeffs() if others else [top]
    solutions = sympy.linsolve(equations, unknown)
    if not solutions:
        return None
    solution = [value.subs(dict.fromkeys(unknown, 0)) for value in next(iter(solutions))]
    r = sympy.Add(
        *(
            k * sympy.Mul(*(symbols[name] for name in chosen))
            for k, chosen in zip(solution, monomials, strict=False)
        )
    )
    b = sympy.Add(*(k * p for k, p in zip(solution[len(monomials) :], powers, strict=True)))
    del state
    return value_of(r, terms), b


def _affine_kind(plain: bool, summed: bool, uncorrected: bool) -> str:
    if plain:
        return "a sum" if summed else "affine, with its coefficients' products beside it"
    first = "a sum" if summed else "affine"
    return f"{first} once it is scaled" if uncorrected else f"{first} once it is moved"
