"""What is gathered over a block, told apart from what it is gathered under.

    sum(exp(x[j] - m) * v[j] for j)      ->    sum(exp(x[j]) * v[j] for j) * exp(-m)
    sum((x[j] - c)**2 for j)             ->    sum(x[j]**2 for j) - 2*c * sum(x[j] for j) + ...
    max(x[j] - c for j)                  ->    max(x[j] for j) - c

What is left inside does not mention m, which is known only once other elements have been seen: so
one element more adds its own term to it, and that is all it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

import sympy

from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.algebra.normal_forms.atoms import Expr, Undefined
from looptrans.algebra.normal_forms.readable import value_of
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.positional.numbers import Domain
from looptrans.algebra.positional.values import MINUS_INFINITY, ZERO, add, is_number, multiply, put
from looptrans.ir.condition import (
    Condition,
    Data,
    Relation,
    Truth,
    conjunction,
    opposite,
    with_tests,
)
from looptrans.ir.monoids import FOLDING_OF, IDENTITIES
from looptrans.ir.rewrite import chosen_where, replaced, replaced_part
from looptrans.ir.value import (
    Binary,
    Call,
    Compare,
    Const,
    Generator,
    Holds,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
    walk_value,
)


def gathered(
    monoid: str,
    term: Value,
    each: Generator,
    is_later: Callable[[Value], bool],
    varies: Callable[[Value], bool],
    masks: set[Condition],
) -> Value:
    """Return the terms of all elements of a block joined, as a value over sums of elements alone.

    Args:
        monoid: `+`, `max` or `min`.
        term: The term of one element.
        each: The elements.
        is_later: Tells of a name or a sum whether other elements have to be seen before it.
        varies: Tells whether a value is another one for each element.
        masks: Grows by the conditions of sums whose other elements have terms that add nothing.

    Raises:
        NoRecurrence: The term is not separable.
    """
    return _Term(monoid, each, is_later, varies, masks).apart(chosen_where(term, each.condition))


@dataclass(slots=True)
class _Term:
    monoid: str
    each: Generator
    is_later: Callable[[Value], bool]
    varies: Callable[[Value], bool]
    masks: set[Condition]
    names: dict[Value, Real] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)
    truths: set[str] = field(default_factory=set)

    def apart(self, term: Value) -> Value:
        if not any(map(self.is_later, walk_value(term))):
            return self._joined(term)
        named = replaced(term, self._name)
        terms = Terms(Domain(truths=frozenset(self.truths)))
        back: dict[str, Value] = {real.name: value for value, real in self.names.items()}
        try:
            form = terms.normal(named)
            parts = self._parts(form, terms)
            found = [
                (put(value_of(outside, terms), back), put(value_of(inside, terms), back))
                for inside, outside in parts.items()
            ]
        except Undefined as reason:
            raise NoRecurrence(f"a term is not a number: {reason}") from None
        if self.monoid != "+":
            ((outside_, inside_),) = found
            return add(outside_, self._joined(inside_))
        return add(*(multiply(outside, self._joined(inside)) for outside, inside in found))

    def _joined(self, body: Value) -> Reduce:
        condition, body = masked(self.monoid, self.each.condition, body)
        if condition != self.each.condition:
            self.masks.add(condition)
        return Reduce(FOLDING_OF[self.monoid], (replace(self.each, condition=condition),), body)

    def _name(self, part: Value) -> Value | None:
        """Give names to the largest parts that wait for nothing, and to what is waited for."""
        waits = any(map(self.is_later, walk_value(part)))
        if waits and isinstance(part, Select) and (test := _by_value(part.condition)):
            return replaced(Select(test, part.chosen, part.otherwise), self._name)
        if isinstance(part, Const) or (waits and not self.is_later(part)):
            return None
        if part not in self.names:
            name = f"u{len(self.names) + 1}"
            self.names[part] = Real(name)
            if not waits and self.varies(part):
                self.own.add(name)
            if isinstance(part, Compare | Holds):
                self.truths.add(name)
        return self.names[part]

    def _parts(self, form: Expr, terms: Terms) -> dict[Expr, Expr]:
        """Return the parts over an element alone, each with what it is multiplied by."""
        top, bottom = sympy.fraction(form)
        inside, outside = self._factors(sympy.factor(bottom), terms)
        found: dict[Expr, Expr] = {}
        if self.monoid == "+":
            for term in sympy.Add.make_args(sympy.expand(top)):
                mine, other = self._factors(term, terms)
                key = mine / inside
                found[key] = found.get(key, sympy.Integer(0)) + other / outside
            return found
        mine, other = sympy.Integer(0), sympy.Integer(0)
        for term in sympy.Add.make_args(sympy.expand(top)):
            own, rest = self._factors(term / bottom, terms)
            if own == 1:
                other += rest
            elif not any(self.is_later(self._meant(n)) for n in terms.names_in(rest)):
                mine += own * rest
            else:
                raise NoRecurrence("what is compared is not apart from what it waits for")
        return {mine: other}

    def _meant(self, name: str) -> Value:
        return next(value for value, real in self.names.items() if real.name == name)

    def _factors(self, term: Expr, terms: Terms) -> tuple[Expr, Expr]:
        """Return the factors over an element, and the others."""
        mine, other = sympy.Integer(1), sympy.Integer(1)
        for factor in sympy.Mul.make_args(term):
            names = terms.names_in(factor.as_base_exp()[0])
            if not names & self.own:
                other *= factor
                continue
            if any(self.is_later(self._meant(name)) for name in names):
                raise NoRecurrence("a term is not apart from what it waits for")
            mine *= factor
        return mine, other


def masked(monoid: str, condition: Condition, body: Value) -> tuple[Condition, Value]:
    """Return which elements are gathered, and their terms, where others add nothing.

    sum(exp(s if j <= i else -inf) for j)    ->    sum(exp(s) for j if j <= i)
    """
    neutral = IDENTITIES[monoid]
    for part in walk_value(body):
        if not isinstance(part, Select):
            continue
        for test, kept, left in (
            (part.condition, part.chosen, part.otherwise),
            (opposite(part.condition), part.otherwise, part.chosen),
        ):
            if is_number(_worked_out(replaced_part(body, part, left)), neutral):
                both = test if condition == Truth(True) else conjunction(condition, test)
                return masked(monoid, both, replaced_part(body, part, kept))
    return condition, body


def _worked_out(value: Value) -> Value:
    """Return a value in which products with 0 are 0, and -inf is what it makes of a sum."""
    match value:
        case Binary("*" | "/" as op, left, right):
            one, other = _worked_out(left), _worked_out(right)
            return ZERO if is_number(one, 0.0) or (is_number(other, 0.0) and op == "*") else value
        case Binary("+" | "-" as op, left, right):
            one, other = _worked_out(left), _worked_out(right)
            low = is_number(one, -inf) or (is_number(other, -inf) and op == "+")
            return MINUS_INFINITY if low else value
        case Call("exp" | "exp2", (argument,)):
            return ZERO if is_number(_worked_out(argument), -inf) else value
        case Unary("-", Const(inf_)) if inf_ == inf:
            return MINUS_INFINITY
        case _:
            return value


def _by_value(condition: Condition) -> Condition | None:
    """Return a condition that tests the truth of what it compares; None if it does so already."""

    def change(test: Condition) -> Condition:
        return Data(Holds(test)) if isinstance(test, Relation) else test

    changed = with_tests(condition, change)
    return None if changed == condition else changed
