"""Values over positional names: put together, taken apart and replaced.

An expression of the algebra is an IR value whose leaves are literals and `Real("s1")`-like names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Binary, Call, Const, Real, Select, Unary, Value, walk_value

ZERO = Const(0.0)
ONE = Const(1.0)
MINUS_INFINITY = Const(float("-inf"))
INFINITY = Const(float("inf"))


def number(value: int | float | Fraction) -> Value:
    """Return a number as a value; a fraction that is no whole number is a quotient."""
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return Const(float(value.numerator))
        return Binary("/", Const(float(value.numerator)), Const(float(value.denominator)))
    return Const(float(value))


def is_number(value: Value, wanted: float) -> bool:
    """Tell whether a value is a given literal."""
    return isinstance(value, Const) and not isinstance(value.value, bool) and value.value == wanted


def add(*terms: Value) -> Value:
    """Return a sum, zeros left out."""
    kept = [term for term in terms if not is_number(term, 0.0)]
    if not kept:
        return ZERO
    total = kept[0]
    for term in kept[1:]:
        if isinstance(term, Unary) and term.op == "-":
            total = Binary("-", total, term.operand)
        else:
            total = Binary("+", total, term)
    return total


def negative(value: Value) -> Value:
    """Return `-value`."""
    match value:
        case Unary("-", operand):
            return operand
        case Const(amount) if is_number(value, amount):
            return Const(-float(amount) if amount else 0.0)
        case Binary("-", left, right):
            return Binary("-", right, left)
        case _:
            return Unary("-", value)


def subtract(left: Value, right: Value) -> Value:
    """Return `left - right`, zeros left out."""
    if is_number(right, 0.0):
        return left
    if is_number(left, 0.0):
        return negative(right)
    if left == right:
        return ZERO
    return Binary("-", left, right)


def summands(value: Value, sign: int = 1) -> list[tuple[int, Value]]:
    """Return the terms of a sum with their signs."""
    match value:
        case Binary("+", left, right):
            return [*summands(left, sign), *summands(right, sign)]
        case Binary("-", left, right):
            return [*summands(left, sign), *summands(right, -sign)]
        case Unary("-", operand):
            return summands(operand, -sign)
        case Unary("+", operand):
            return summands(operand, sign)
        case _:
            return [(sign, value)]


def factors_in(value: Value) -> tuple[Value, ...]:
    """Return the factors of a product."""
    match value:
        case Binary("*", left, right):
            return (*factors_in(left), *factors_in(right))
        case _:
            return (value,)


def multiply(*factors: Value) -> Value:
    """Return a product, ones left out; zero where a factor is the literal zero."""
    if any(is_number(factor, 0.0) for factor in factors):
        return ZERO
    kept = [factor for factor in factors if not is_number(factor, 1.0)]
    if not kept:
        return ONE
    product = kept[0]
    for factor in kept[1:]:
        product = Binary("*", product, factor)
    return product


def divide(left: Value, right: Value) -> Value:
    """Return `left / right`, a divisor of one left out."""
    if is_number(right, 1.0):
        return left
    if left == right:
        return ONE
    return Binary("/", left, right)


def power(base: Value, exponent: int) -> Value:
    """Return `base ** exponent` for an exponent that is not negative."""
    if exponent == 0:
        return ONE
    return base if exponent == 1 else Binary("**", base, Const(exponent))


def exponential(value: Value) -> Value:
    """Return `exp(value)`, one where the value is zero."""
    return ONE if is_number(value, 0.0) else Call("exp", (value,))


def put(value: Value, names: Mapping[str, Value]) -> Value:
    """Put values in for names, all at once."""

    def change(part: Value) -> Value | None:
        return names.get(part.name) if isinstance(part, Real) else None

    return replaced(value, change)


def names_of(*values: Value) -> tuple[str, ...]:
    """Return the names values mention, in order of first appearance."""
    return tuple(dict.fromkeys(_names(values)))


def _names(values: tuple[Value, ...]) -> Iterator[str]:
    for value in values:
        for part in walk_value(value):
            if isinstance(part, Real):
                yield part.name


def without_repeats(value: Value) -> Value:
    """Leave out choices inside a choice by the same condition, where they are settled already."""
    if not isinstance(value, Select):
        return value

    def change(part: Value) -> Value | None:
        if isinstance(part, Select) and part.condition == value.condition:
            return replaced(part.chosen, change)
        return None

    return Select(value.condition, replaced(value.chosen, change), value.otherwise)
