"""Sums of terms written as values again, so that people read them and kernels round little.

    a * x + a * y                          ->    a * (x + y)
    P[i, j] * dP[i, j] - P[i, j] * D[i]    ->    P[i, j] * (dP[i, j] - D[i])

What is close to each other is subtracted before it is multiplied, and what does not depend on the
variables of a sum stands before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Final, TypeAlias

from looptrans.adjoint.equations.definitions import plain_name
from looptrans.adjoint.equations.sums import ONE, Term, mentioned
from looptrans.algebra.positional.values import add, divide, multiply, negative, number, power
from looptrans.ir.condition import Condition, conjunction, is_data_dependent
from looptrans.ir.listing import value_text
from looptrans.ir.value import (
    Const,
    Generator,
    Reduce,
    Select,
    Unary,
    Value,
    condition_variables,
    free_variables,
)

# What is divided by more is a product of literals, which are no exact numbers: as log2(e) * log(2).
MOST: Final = 2**20


def value_of(terms: Iterable[Term]) -> Value:
    """Return a sum of terms as a value, common factors taken out; sums become reductions."""
    listed = list(terms)
    if not listed:
        return Const(0.0)
    if len(listed) == 1:
        return _product(listed[0])
    common, rest = _common(listed)
    pairs = _differences(rest)
    if pairs:
        total = add(*map(value_of, pairs))
    else:
        total = add(*[_signed(term) for term in sorted(rest, key=lambda t: t.coefficient < 0)])
    if common == ONE:
        return total
    inside = replace(common, brackets=())
    product = total if inside == ONE else _product(inside, total)
    return _under(common.brackets, product)


def value_of_products(terms: Iterable[Term], indices: Iterable[str]) -> Value:
    """Return a sum of terms as a value with few products of what hangs on different indices.

        w[c, 0] * a[i] * x[i] - w[c, 0] * b[i] * y[i] + w[c, 1] * b[i] * x[i] + …
        ->   w[c, 0] * (a[i] * x[i] - b[i] * y[i]) + w[c, 1] * (…)

    Args:
        terms: The terms, which no sums are part of.
        indices: The indices; what hangs on one of them is taken out of all the terms it is in,
            where the rest hangs on others: together they would be no matrix product.
    """
    listed, names = list(terms), set(indices)
    # What all of them hang on is a batch of products.
    each = (set(free_variables(a)) & names for t in listed for a, _ in t.factors)
    hanging = [own for own in each if own]
    names -= {name for name in names if all(name in own for own in hanging)}
    ways = (_by_factors(listed, index) for index in sorted(names))
    few = [way for way in ways if 1 < len(way) < len(listed) and _are_apart(way, names)]
    if not few or any(term.generators for term in listed):
        return value_of(listed)
    return add(*map(value_of, min(few, key=len).values()))


_Shared: TypeAlias = tuple[frozenset[tuple[Value, int]], tuple[Condition, ...]]


def _by_factors(terms: list[Term], index: str) -> dict[_Shared, list[Term]]:
    """Return terms by what they have as factors that hang on an index."""
    found: dict[_Shared, list[Term]] = {}
    for term in terms:
        own = frozenset((a, p) for a, p in term.factors if index in free_variables(a))
        found.setdefault((own, term.brackets), []).append(term)
    return found


def _are_apart(groups: Mapping[_Shared, list[Term]], names: set[str]) -> bool:
    """Tell whether what is taken out of terms hangs on other indices than what is left."""
    for (own, _), terms in groups.items():
        mine = {name for atom, _ in own for name in free_variables(atom)}
        left = (atom for term in terms for atom, p in term.factors if (atom, p) not in own)
        rest = {name for atom in left for name in free_variables(atom)}
        if mine & rest & names:
            return False
    return True


def _differences(terms: list[Term]) -> list[list[Term]]:
    """Return a sum as products with differences of two, where it is nothing else; else nothing.

        a * x + b * x - a * y - b * z   ->   a * (x - y) + b * (x - z)

    What is close to each other is to be subtracted before it is multiplied: a may be large.
    """
    left = [term for term in terms if term.coefficient < 0]
    pairs = []
    for term in terms:
        if term.coefficient > 0:
            other = next((t for t in left if _is_difference(term, t)), None)
            if other is None:
                return []
            left.remove(other)
            pairs.append([term, other])
    return pairs if len(pairs) > 1 and not left else []


def _is_difference(first: Term, second: Term) -> bool:
    """Tell whether two terms of a sum are a number times a difference of two factors."""
    shared = set(first.factors) & set(second.factors)
    return (
        first.coefficient == -second.coefficient
        and not first.generators
        and not second.generators
        and set(first.brackets) == set(second.brackets)
        and bool(shared)
        and len(first.factors) == len(second.factors) == len(shared) + 1
        and all(p == 1 for t in (first, second) for _, p in set(t.factors) - shared)
    )


def _common(terms: list[Term]) -> tuple[Term, list[Term]]:
    """Split off what all terms are products of; sums stay where they are."""
    factors: list[tuple[Value, int]] = []
    for atom, exponent in terms[0].factors:
        if set(free_variables(atom)) & terms[0].bound:
            continue
        powers = [dict(t.factors).get(atom, 0) for t in terms]
        shared = min(powers) if exponent > 0 else max(powers)
        if shared and all((p > 0) == (exponent > 0) and p for p in powers):
            factors.append((atom, shared))
    brackets = tuple(
        c
        for c in terms[0].brackets
        if all(c in t.brackets for t in terms) and not condition_variables(c) & terms[0].bound
    )
    sign = -1 if all(t.coefficient < 0 for t in terms) else 1
    sizes = {abs(t.coefficient) for t in terms}
    size = sizes.pop() if len(sizes) == 1 else Fraction(1)
    common = Term(sign * size, tuple(factors), brackets)
    rest = []
    for term in terms:
        own = dict(term.factors)
        for atom, exponent in factors:
            own[atom] -= exponent
        rest.append(
            replace(
                term,
                coefficient=term.coefficient / common.coefficient,
                factors=tuple((a, p) for a, p in own.items() if p),
                brackets=tuple(c for c in term.brackets if c not in brackets),
            )
        )
    return common, rest


def _signed(term: Term) -> Value:
    if term.coefficient < 0:
        return Unary("-", _product(replace(term, coefficient=-term.coefficient)))
    return _product(term)


def _product(term: Term, last: Value | None = None) -> Value:
    """Return a term as a value: what does not depend on its sums stands before them."""
    bound = term.bound
    inside = [(a, p) for a, p in term.factors if set(free_variables(a)) & bound]
    outside = [(a, p) for a, p in term.factors if (a, p) not in inside]
    within = [c for c in term.brackets if condition_variables(c) & bound]
    around = tuple(c for c in term.brackets if c not in within)
    above = [power(a, p) for a, p in outside if p > 0]
    below = [power(a, -p) for a, p in outside if p < 0]
    if term.generators:
        above.append(_reduction(term.generators, inside, within))
    if last is not None:
        above.append(last)
    size = term.coefficient
    sign = -1 if size < 0 else 1
    size = abs(size)
    if size.denominator == 1 or _is_short(size) or size.denominator > MOST:
        if float(size) != 1.0:
            above.insert(0, Const(float(size)))
    else:
        above.insert(0, number(Fraction(size.numerator)))
        below.append(number(Fraction(size.denominator)))
    product = multiply(*above)
    if below:
        product = divide(product, multiply(*below))
    return _under(around, negative(product) if sign < 0 else product)


def _is_short(size: Fraction) -> bool:
    """Tell whether a fraction is a literal, which says exactly what it is."""
    return Fraction(repr(float(size))) == size


def _under(brackets: tuple[Condition, ...], value: Value) -> Value:
    """Return a value under conditions: of indices first, by which others read what is there."""
    if not brackets:
        return value
    return Select(conjunction(*sorted(brackets, key=is_data_dependent)), value, Const(0.0))


def _reduction(
    generators: tuple[Generator, ...],
    factors: list[tuple[Value, int]],
    brackets: list[Condition],
) -> Value:
    """Return a sum of a product, generators in an order in which ranges are known."""
    ordered = in_order(generators)
    above = [power(a, p) for a, p in factors if p > 0]
    below = [power(a, -p) for a, p in factors if p < 0]
    body = multiply(*above)
    body = divide(body, multiply(*below)) if below else body
    bound = list(ordered)
    body = _under(tuple(c for c in brackets if is_data_dependent(c)), body)
    for condition in brackets:
        if is_data_dependent(condition):
            continue
        names = condition_variables(condition)
        last = max(k for k, g in enumerate(bound) if g.variable in names)
        bound[last] = replace(bound[last], condition=conjunction(bound[last].condition, condition))
    return Reduce("sum", tuple(bound), body)


def in_order(generators: tuple[Generator, ...]) -> tuple[Generator, ...]:
    """Order generators so that each range mentions only what is bound before it."""
    waiting = list(generators)
    names = {g.variable for g in generators}
    found: list[Generator] = []
    while waiting:
        done = {g.variable for g in found}
        ready = next(g for g in waiting if not (g.range.variables & names) - done)
        found.append(ready)
        waiting.remove(ready)
    return tuple(found)


def shown(term: Term) -> str:
    """Return a term to be read."""
    text = value_text(value_of([term]))
    for name in sorted(mentioned(term) | term.bound, key=len, reverse=True):
        text = text.replace(name, plain_name(name))
    return text


def shown_sum(terms: list[Term]) -> str:
    """Return a sum of terms to be read."""
    return " + ".join(shown(term) for term in terms) or "0"
