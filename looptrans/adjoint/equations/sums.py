"""Sums of products, the form in which adjoints are added, cancelled and recognized.

    2 * sum(P[i, j] * V[j, d] for j in range(N))  ->  Term(2, {P[i, j]: 1, V[j, d]: 1}, (), (j,))

A term is a number times powers of atoms times brackets, summed over generators. A bracket is 1
where its condition holds and 0 elsewhere (Iverson's notation), and what it is 0 for is never
worked out. An atom is any value that is no sum or product itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, permutations, product
from math import isfinite, log
from typing import Final

from looptrans.adjoint.equations.definitions import Names, refreshed_generators
from looptrans.algebra.positional.cells import condition_moved, range_moved, value_moved
from looptrans.algebra.positional.values import is_number
from looptrans.ir.affine import in_one_order, simplified
from looptrans.ir.condition import ALWAYS, Condition, Every, Not, Relation, Some, negation, opposite
from looptrans.ir.functions import is_as_written
from looptrans.ir.index import Extremum, Index, Var, substitute
from looptrans.ir.listing import condition_text, index_text, value_text
from looptrans.ir.value import (
    Binary,
    Call,
    Const,
    Generator,
    Reduce,
    Select,
    Unary,
    Value,
    condition_of,
    condition_variables,
    free_variables,
)

MOST_TERMS = 40
MOST_PERMUTED = 5

# What is changed from powers of 2 to those of e and back is what it was.
_LOG_2: Final = Fraction(repr(log(2.0)))
_UNITS: Final = (_LOG_2, 1 / _LOG_2)


@dataclass(frozen=True, slots=True)
class Term:
    """A product, summed over generators.

    Attributes:
        coefficient: A number that is not zero.
        factors: Atoms and their powers, none of them 0, each atom once.
        brackets: Conditions outside of which the term is zero.
        generators: What it is summed over; their conditions are among the brackets.
    """

    coefficient: Fraction
    factors: tuple[tuple[Value, int], ...] = ()
    brackets: tuple[Condition, ...] = ()
    generators: tuple[Generator, ...] = ()

    @property
    def bound(self) -> frozenset[str]:
        """The variables it is summed over."""
        return frozenset(g.variable for g in self.generators)


ONE = Term(Fraction(1))


def _exact(literal: float) -> Fraction:
    """Return the number that a literal says; of log(2) and log2(e) it says a few digits.

    0.69314718, 1.4426950408889634    ->    log(2), 1 / log(2), whose product is 1
    """
    for unit in _UNITS:
        if is_as_written(literal, float(unit)):
            return unit
    return Fraction(repr(literal))


def expanded(value: Value, names: Names) -> list[Term]:
    """Return a value as a sum of terms."""
    match value:
        case Const(literal) if not isinstance(literal, bool):
            if not isfinite(literal):
                return [Term(Fraction(1), ((value, 1),))]
            return [Term(_exact(literal))] if literal else []
        case Unary(op, operand):
            inner = expanded(operand, names)
            return scaled(inner, -1) if op == "-" else inner
        case Binary("+", left, right):
            return [*expanded(left, names), *expanded(right, names)]
        case Binary("-", left, right):
            return [*expanded(left, names), *scaled(expanded(right, names), -1)]
        case Binary("*", left, right):
            a, b = expanded(left, names), expanded(right, names)
            # What is divided by is taken back whole: x / (1 - p) * (1 - p) is x.
            a, b = _unless_divisor(left, a, b), _unless_divisor(right, b, a)
            if len(a) * len(b) <= MOST_TERMS:
                return [times(x, y) for x in a for y in b]
            return [Term(Fraction(1), ((value, 1),))]
        case Binary("/", left, right):
            inverse = _reciprocal(right, names)
            return [times(x, inverse) for x in expanded(left, names)]
        case Binary("**", base, Const(exponent)) if float(exponent).is_integer() and exponent:
            return _powers(base, int(exponent), names)
        case Select(condition, chosen, otherwise):
            if is_number(otherwise, 0.0):
                return [bracketed(t, condition) for t in expanded(chosen, names)]
            if is_number(chosen, 0.0):
                return [bracketed(t, negation(condition)) for t in expanded(otherwise, names)]
        case Call("where", (condition, chosen, otherwise)):
            return expanded(Select(condition_of(condition), chosen, otherwise), names)
        case Reduce("sum", generators, body):
            plain, new = refreshed_generators(generators, names)
            inside = expanded(value_moved(body, new), names)
            conditions = tuple(g.condition for g in plain if g.condition != ALWAYS)
            bare = tuple(replace(g, condition=ALWAYS) for g in plain)
            return [
                replace(bracketed(t, *conditions), generators=(*bare, *t.generators))
                for t in inside
            ]
        case _:
            pass
    return [Term(Fraction(1), ((value, 1),))]


def _unless_divisor(value: Value, terms: list[Term], others: list[Term]) -> list[Term]:
    """Return the terms of a sum, or the sum as one factor where all others are divided by it."""
    if len(terms) < 2 or not others:
        return terms
    if all(dict(other.factors).get(value, 0) < 0 for other in others):
        return [Term(Fraction(1), ((value, 1),))]
    return terms


def _reciprocal(value: Value, names: Names) -> Term:
    """Return one divided by a value, factor by factor: 1 / ((1 + x) * z) has the factor 1 / z."""
    match value:
        case Binary("*", left, right):
            return times(_reciprocal(left, names), _reciprocal(right, names))
        case Binary("/", left, right):
            above = expanded(right, names)
            if _is_product(above):
                return times(_reciprocal(left, names), above[0])
        case Unary("-", operand):
            return scaled([_reciprocal(operand, names)], -1)[0]
        case _:
            pass
    below = expanded(value, names)
    return inverted(below[0]) if _is_product(below) else Term(Fraction(1), ((value, -1),))


def _is_product(terms: list[Term]) -> bool:
    """Tell whether a value is one product, without sums and brackets."""
    return len(terms) == 1 and not terms[0].generators and not terms[0].brackets


def _powers(base: Value, exponent: int, names: Names) -> list[Term]:
    inner = expanded(base, names)
    if _is_product(inner):
        found = ONE
        step = inner[0] if exponent > 0 else inverted(inner[0])
        for _ in range(abs(exponent)):
            found = times(found, step)
        return [found]
    if exponent == 1:
        return inner
    return [Term(Fraction(1), ((base, exponent),))]


def times(a: Term, b: Term) -> Term:
    """Return a product; the bound variables of the two differ."""
    powers: dict[Value, int] = dict(a.factors)
    for atom, exponent in b.factors:
        powers[atom] = powers.get(atom, 0) + exponent
    factors = tuple((atom, p) for atom, p in powers.items() if p)
    joined = replace(a, coefficient=a.coefficient * b.coefficient, factors=factors)
    joined = replace(joined, generators=(*a.generators, *b.generators))
    return bracketed(joined, *b.brackets)


def inverted(term: Term) -> Term:
    """Return one divided by a product without sums and brackets."""
    return Term(1 / term.coefficient, tuple((atom, -p) for atom, p in term.factors))


def scaled(terms: Iterable[Term], by: int) -> list[Term]:
    """Return terms times a number."""
    return [replace(t, coefficient=t.coefficient * by) for t in terms]


def bracketed(term: Term, *conditions: Condition) -> Term:
    """Return a term that is zero where a condition does not hold."""
    found = list(term.brackets)
    for condition in conditions:
        for part in held_together(condition):
            if part != ALWAYS and part not in found:
                found.append(part)
    return replace(term, brackets=tuple(found))


def held_together(condition: Condition) -> list[Condition]:
    """Return what must hold all together; `v < min(a, b)` is `v < a` and `v < b`."""
    match condition:
        case Every(parts):
            return [inner for part in parts for inner in held_together(part)]
        case Not(Some() as part):
            return held_together(opposite(part))
        case Relation(("<" | "<=") as op, left, Extremum("min", arguments)):
            return [Relation(op, left, a) for a in arguments]
        case Relation((">" | ">=") as op, left, Extremum("max", arguments)):
            return [Relation(op, left, a) for a in arguments]
        case _:
            return [condition]


def term_moved(term: Term, indices: Mapping[str, Index]) -> Term:
    """Replace free variables in a term."""
    powers: dict[Value, int] = {}
    for atom, exponent in term.factors:
        moved = value_moved(atom, indices)
        powers[moved] = powers.get(moved, 0) + exponent
    generators = tuple(replace(g, range=range_moved(g.range, indices)) for g in term.generators)
    brackets = tuple(dict.fromkeys(condition_moved(c, indices) for c in term.brackets))
    factors = tuple((atom, p) for atom, p in powers.items() if p)
    return Term(term.coefficient, factors, brackets, generators)


def mentioned(term: Term) -> frozenset[str]:
    """Return the free and bound variables of a term's factors, brackets and ranges."""
    found: set[str] = set()
    for atom, _ in term.factors:
        found |= set(free_variables(atom))
    for condition in term.brackets:
        found |= condition_variables(condition)
    for g in term.generators:
        found |= g.range.variables
    return frozenset(found)


def combined(terms: Iterable[Term]) -> list[Term]:
    """Add up terms that differ in nothing but their coefficient, in order of first appearance.

    So are two that are there under opposite conditions and else are the same: they are one term.
    """
    found: dict[str, Term] = {}
    for term in terms:
        key = canonical(term)
        known = found.get(key)
        if known is None:
            found[key] = term
        else:
            found[key] = replace(known, coefficient=known.coefficient + term.coefficient)
    left = [term for term in found.values() if term.coefficient]
    if sum(bool(term.brackets) for term in left) < 2:
        return left
    pair = next(_opposites(left), None)
    return left if pair is None else combined(pair)


def _opposites(terms: list[Term]) -> Iterator[list[Term]]:
    """Yield terms in which two under opposite conditions have become one, which stands first."""
    places = {canonical(term): number for number, term in enumerate(terms)}
    for number, term in enumerate(terms):
        for condition in term.brackets:
            rest = tuple(c for c in term.brackets if c != condition)
            for other in (negation(condition), opposite(condition)):
                place = places.get(canonical(bracketed(replace(term, brackets=rest), other)))
                if place is not None and terms[place].coefficient == term.coefficient:
                    kept = [t for n, t in enumerate(terms) if n not in (number, place)]
                    yield [*kept[:number], replace(term, brackets=rest), *kept[number:]]


def canonical(term: Term) -> str:
    """Return a text that two terms share where they are the same up to names and order."""
    generators = term.generators
    if not generators or len(generators) > MOST_PERMUTED:
        return _text(term, {})
    best = None
    for order in _orders(generators):
        names: dict[str, Index] = {
            generators[k].variable: Var(f"_{number}") for number, k in enumerate(order)
        }
        text = _text(replace(term, generators=tuple(generators[k] for k in order)), names)
        best = text if best is None or text < best else best
    assert best is not None
    return best


def _orders(generators: tuple[Generator, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the orders to try: of ranges that differ whatever variables are called, one."""
    nameless: dict[str, Index] = {g.variable: Var("_") for g in generators}
    alike: dict[str, list[int]] = {}
    for k, g in enumerate(generators):
        ends = (substitute(simplified(end), nameless) for end in g.range.ends)
        alike.setdefault(f"{'..'.join(map(index_text, ends))}..{g.range.step}", []).append(k)
    groups = (permutations(alike[text]) for text in sorted(alike))
    return (tuple(chain.from_iterable(order)) for order in product(*groups))


def _text(term: Term, names: dict[str, Index]) -> str:
    moved = term_moved(term, names) if names else term
    factors = sorted(f"({value_text(atom)})**{p}" for atom, p in moved.factors)
    brackets = sorted(condition_text(c) for c in moved.brackets)
    ranges = [
        "..".join(index_text(in_one_order(end)) for end in g.range.ends) + f"..{g.range.step}"
        for g in moved.generators
    ]
    return " ".join([*factors, "|", *brackets, "|", *ranges])
