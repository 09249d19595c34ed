"""Rewriting values and conditions part by part."""

from __future__ import annotations

from collections.abc import Callable

from looptrans.ir.condition import Condition, Data, Every, Not, Some
from looptrans.ir.value import (
    Binary,
    Call,
    Compare,
    Create,
    Generator,
    Holds,
    Reduce,
    Select,
    Unary,
    Value,
)


def replaced(value: Value, change: Callable[[Value], Value | None]) -> Value:
    """Replace every part for which `change` gives something, from the outside in.

    What is put in is not looked at again.
    """
    changed = change(value)
    if changed is not None:
        return changed

    def inner(part: Value) -> Value:
        return replaced(part, change)

    match value:
        case Unary(op, operand):
            return Unary(op, inner(operand))
        case Binary(op, left, right):
            return Binary(op, inner(left), inner(right))
        case Compare(op, left, right):
            return Compare(op, inner(left), inner(right))
        case Holds(condition):
            return Holds(replaced_in_condition(condition, change))
        case Select(condition, chosen, otherwise):
            return Select(replaced_in_condition(condition, change), inner(chosen), inner(otherwise))
        case Call(function, arguments):
            return Call(function, tuple(inner(argument) for argument in arguments))
        case Reduce(function, generators, body):
            bound = tuple(
                Generator(g.variable, g.range, replaced_in_condition(g.condition, change))
                for g in generators
            )
            return Reduce(function, bound, inner(body))
        case Create(function, shape, fill, element):
            return Create(function, shape, None if fill is None else inner(fill), element)
        case _:
            return value


def replaced_in_condition(
    condition: Condition, change: Callable[[Value], Value | None]
) -> Condition:
    """Replace parts of the values a condition depends on; see `replaced`."""
    match condition:
        case Data(value):
            return Data(replaced(value, change))
        case Every(parts):
            return Every(tuple(replaced_in_condition(part, change) for part in parts))
        case Some(parts):
            return Some(tuple(replaced_in_condition(part, change) for part in parts))
        case Not(part):
            return Not(replaced_in_condition(part, change))
        case _:
            return condition
