"""Values worked out in numbers of high precision, to refute what does not hold.

Nothing is ever proved here: numbers only show that two expressions differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import mpmath

from looptrans.ir.condition import Comparison, Condition, Data, Every, Not, Some, Truth
from looptrans.ir.value import Binary, Call, Compare, Const, Holds, Real, Select, Unary, Value

DIGITS = 50
TOLERANCE = mpmath.mpf(10) ** -25
_SIMPLE = [Fraction(n) for n in (1, 2, -1, 3, 0, -2)] + [Fraction(1, 2), Fraction(-3, 2)]

Number = Any  # an mpf; mpmath has no types
Point = Mapping[str, Number]

_FUNCTIONS = {
    "exp": mpmath.exp,
    "log": mpmath.log,
    "sqrt": mpmath.sqrt,
    "tanh": mpmath.tanh,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "abs": abs,
}
_IDENTITIES = ("float", "float64", "stop_gradient", "copy")


class NoNumber(Exception):
    """A value is not defined at a point, or not a thing numbers can be put into."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What is known of the names of an expression.

    Attributes:
        positive: Names of numbers greater than zero.
        nonnegative: Names of numbers that are zero or greater.
        truths: Names that are true or false.
    """

    positive: frozenset[str] = frozenset()
    nonnegative: frozenset[str] = frozenset()
    truths: frozenset[str] = frozenset()


def evaluate(value: Value, point: Point) -> Number:
    """Work out a value at a point.

    Raises:
        NoNumber: It is not a number there.
    """
    try:
        result = _evaluate(value, point)
    except (ZeroDivisionError, ValueError, OverflowError, TypeError) as error:
        raise NoNumber(str(error)) from None
    if isinstance(result, bool):
        return mpmath.mpf(int(result))
    if isinstance(result, mpmath.mpc) or mpmath.isnan(result):
        raise NoNumber("it is not a real number")
    return result


def _evaluate(value: Value, point: Point) -> Number:
    match value:
        case Const(literal):
            return literal if isinstance(literal, bool) else exact(literal)
        case Real(name):
            return point[name]
        case Unary(op, operand):
            inner = evaluate(operand, point)
            return -inner if op == "-" else inner
        case Binary(op, left, right):
            return _binary(op, evaluate(left, point), evaluate(right, point))
        case Compare(op, left, right):
            return _compared(op, evaluate(left, point), evaluate(right, point))
        case Holds(condition):
            return _holds(condition, point)
        case Select(condition, chosen, otherwise):
            return _evaluate(chosen if _holds(condition, point) else otherwise, point)
        case Call("where", (condition, chosen, otherwise)):
            return _evaluate(chosen if evaluate(condition, point) else otherwise, point)
        case Call(function, arguments):
            return _called(function, [evaluate(argument, point) for argument in arguments])
        case _:
            raise NoNumber("it is not over names alone")


def exact(literal: float | int) -> Number:
    """Return a literal as the decimal fraction it is written as."""
    if isinstance(literal, float) and literal in (float("inf"), float("-inf")):
        return mpmath.mpf(literal)
    fraction = Fraction(repr(literal))
    return mpmath.mpf(fraction.numerator) / fraction.denominator


def _binary(op: str, left: Number, right: Number) -> Number:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "**":
            return left**right
        case "//":
            return mpmath.floor(left / right)
        case "%":
            return left - right * mpmath.floor(left / right)
        case _:
            raise NoNumber(f"{op} has no number")


def _compared(op: Comparison, left: Number, right: Number) -> bool:
    result = {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
        "==": left == right,
        "!=": left != right,
    }[op]
    return bool(result)


def _called(function: str, arguments: list[Number]) -> Number:
    if function in _FUNCTIONS and len(arguments) == 1:
        return _FUNCTIONS[function](arguments[0])
    if function in _IDENTITIES:
        return arguments[0]
    match function:
        case "max":
            return max(arguments)
        case "min":
            return min(arguments)
        case "exp2":
            return mpmath.mpf(2) ** arguments[0]
        case "log2":
            return mpmath.log(arguments[0]) / mpmath.log(2)
        case _:
            raise NoNumber(f"{function} is not worked out here")


def _holds(condition: Condition, point: Point) -> bool:
    match condition:
        case Truth(value):
            return value
        case Data(value):
            return bool(evaluate(value, point))
        case Every(parts):
            return all(_holds(part, point) for part in parts)
        case Some(parts):
            return any(_holds(part, point) for part in parts)
        case Not(part):
            return not _holds(part, point)
        case _:
            raise NoNumber("it is not over names alone")


def points(names: tuple[str, ...], domain: Domain, count: int) -> Iterator[dict[str, Number]]:
    """Yield points to try, simple ones first; the same ones every time."""
    random = Random(20240229)
    for number in range(count):
        yield {name: _drawn(random, name, domain, simple=2 * number < count) for name in names}


def _drawn(random: Random, name: str, domain: Domain, *, simple: bool) -> Number:
    if name in domain.truths:
        return mpmath.mpf(random.randrange(2))
    if simple:
        fraction = random.choice(_SIMPLE)
    else:
        fraction = Fraction(random.randint(-40, 40), random.randint(1, 12))
    if name in domain.positive or name in domain.nonnegative:
        fraction = abs(fraction) or Fraction(1)
    return mpmath.mpf(fraction.numerator) / fraction.denominator


def differ(left: Number, right: Number) -> bool:
    """Tell whether two numbers differ by more than their precision explains."""
    if mpmath.isinf(left) or mpmath.isinf(right):
        return bool(left != right)
    return bool(abs(left - right) > TOLERANCE * (1 + abs(left) + abs(right)))


def shown(value: Number) -> str:
    """Return a number as text, twelve digits of it at most."""
    if value == mpmath.floor(value) and abs(value) < 10**12:
        return str(int(value))
    return str(mpmath.nstr(value, 12))


def difference(
    left: Value, right: Value, names: tuple[str, ...], domain: Domain, count: int = 24
) -> tuple[dict[str, Number], Number, Number] | None:
    """Find a point at which two values differ, with the two; None if none was found."""
    with mpmath.workdps(DIGITS):
        for point in points(names, domain, count):
            try:
                a, b = evaluate(left, point), evaluate(right, point)
            except NoNumber:
                continue
            if differ(a, b):
                return point, a, b
    return None
