"""Integer scalars of a listing replaced by the index expressions they stand for."""

from __future__ import annotations

from looptrans.algebra.cells import plain
from looptrans.ir.condition import Condition, Data, Every, Not, Relation, Some
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Reduce,
    Select,
    Value,
    Whole,
)


def cell_without_lets(access: Access) -> Access:
    """Return a cell with integer scalars replaced by what they stand for."""
    return Access(
        access.array,
        tuple(s if isinstance(s, Whole) else plain(s) for s in access.subscripts),
    )


def value_without_lets(value: Value) -> Value:
    """Return a value with integer scalars replaced by what they stand for."""

    def change(part: Value) -> Value | None:
        match part:
            case Read(access):
                return Read(cell_without_lets(access))
            case IndexValue(index):
                return IndexValue(plain(index))
            case Holds(condition):
                return Holds(condition_without_lets(condition))
            case Select(condition, chosen, otherwise):
                return Select(
                    condition_without_lets(condition),
                    value_without_lets(chosen),
                    value_without_lets(otherwise),
                )
            case Reduce(function, generators, body):
                found = tuple(
                    Generator(
                        g.variable,
                        Range(plain(g.range.start), plain(g.range.stop), g.range.step),
                        condition_without_lets(g.condition),
                    )
                    for g in generators
                )
                return Reduce(function, found, value_without_lets(body))
            case _:
                return None

    return replaced(value, change)


def condition_without_lets(condition: Condition) -> Condition:
    """Return a condition with integer scalars replaced by what they stand for."""
    match condition:
        case Relation(op, left, right):
            return Relation(op, plain(left), plain(right))
        case Data(value):
            return Data(value_without_lets(value))
        case Every(parts):
            return Every(tuple(condition_without_lets(part) for part in parts))
        case Some(parts):
            return Some(tuple(condition_without_lets(part) for part in parts))
        case Not(part):
            return Not(condition_without_lets(part))
        case _:
            return condition
