"""What an update comes to before any element was seen, in floating point."""

from __future__ import annotations

import math
from collections.abc import Mapping

from looptrans.ir.condition import Data
from looptrans.ir.evaluate import COMPARE
from looptrans.ir.value import (
    Binary,
    Call,
    Compare,
    Const,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
    value_children,
)


class Unsure(Exception):
    """A value for which this cannot be said."""


def worked_out(value: Value, names: Mapping[str, float], least: Value | None = None) -> float:
    """Return a value where some names are known and everything else is some finite number.

    Args:
        value: The value.
        names: What arrays hold.
        least: What is -inf besides: elements that a maximum is taken of, all of which are as small
            as nothing at all.

    Raises:
        Unsure: It has a part that is not looked into.
    """

    def of(part: Value) -> float:
        return worked_out(part, names, least)

    if least is not None and value == least:
        return -math.inf
    match value:
        case Select(Data(Compare(op, left, right)), chosen, otherwise) if _is_known(
            left, names, least
        ) and _is_known(right, names, least):
            holds = COMPARE[op](of(left), of(right))
            return of(chosen) if holds else of(otherwise)
        case Select(_, chosen, otherwise) if of(chosen) == of(otherwise):
            return of(chosen)
        case Call("max" | "min" as function, arguments) if len(arguments) > 1:
            return (max if function == "max" else min)(of(argument) for argument in arguments)
        case Const(number):
            return float(number)
        case Read(access):
            return names.get(access.array, 1.5)
        case Real() | IndexValue() | Reduce():
            return 0.75
        case Unary("-", operand):
            return -of(operand)
        case Unary(_, operand):
            return of(operand)
        case Binary("+", left, right):
            return of(left) + of(right)
        case Binary("-", left, right):
            return of(left) - of(right)
        case Binary("*", left, right):
            return of(left) * of(right)
        case Binary("/", left, right) if of(right) != 0.0:
            return of(left) / of(right)
        case Call("exp", (operand,)):
            return math.exp(min(of(operand), 700.0))
        case Call("exp2", (operand,)):
            return math.exp(min(of(operand), 700.0) * math.log(2.0))
        case _:
            raise Unsure


def _is_known(value: Value, names: Mapping[str, float], least: Value | None) -> bool:
    """Tell whether a value is made of names that are known."""
    if least is not None and value == least:
        return True
    match value:
        case Const():
            return True
        case Read(access):
            return access.array in names
        case Unary() | Binary() | Call():
            return all(_is_known(part, names, least) for part in value_children(value))
        case _:
            return False
