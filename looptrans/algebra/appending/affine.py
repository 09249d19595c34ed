"""Updates that are a number times the old value and a term: `r if c else a * s + b`."""

from __future__ import annotations

from collections.abc import Callable

from looptrans.algebra.positional.values import ONE, ZERO, add, divide, multiply, negative, subtract
from looptrans.ir.value import Binary, Select, Unary, Value, walk_value


def factor_and_term(update: Value, is_own: Callable[[Value], bool]) -> tuple[Value, Value] | None:
    """Return a and b of an update a * s + b, neither of which looks at s; None for another one.

    Args:
        update: The update.
        is_own: Tells whether a value is the old one, s.
    """

    def of(value: Value) -> tuple[Value, Value] | None:
        if is_own(value):
            return ONE, ZERO
        if not any(map(is_own, walk_value(value))):
            return ZERO, value
        match value:
            case Unary("-", operand):
                inner = of(operand)
                return inner and (negative(inner[0]), negative(inner[1]))
            case Binary("+" | "-" as op, left, right):
                one, other = of(left), of(right)
                join = add if op == "+" else subtract
                return one and other and (join(one[0], other[0]), join(one[1], other[1]))
            case Binary("*", left, right):
                one, other = of(left), of(right)
                if one is None or other is None or ZERO not in (one[0], other[0]):
                    return None
                slope, number = (one, other[1]) if other[0] == ZERO else (other, one[1])
                return multiply(slope[0], number), multiply(slope[1], number)
            case Binary("/", left, right):
                one = of(left)
                if one is None or any(map(is_own, walk_value(right))):
                    return None
                term = ZERO if one[1] == ZERO else divide(one[1], right)
                return divide(one[0], right), term
            case Select(condition, chosen, otherwise):
                one, other = of(chosen), of(otherwise)
                if one is None or other is None:
                    return None
                factor = one[0] if one[0] == other[0] else Select(condition, one[0], other[0])
                term = one[1] if one[1] == other[1] else Select(condition, one[1], other[1])
                return factor, term
            case _:
                return None

    found = of(update)
    # A condition may look at it, too.
    if found is None or any(is_own(part) for side in found for part in walk_value(side)):
        return None
    return found
