"""The operands of a statement: the arrays and scalars it computes with, as its text shows them."""

from __future__ import annotations

from looptrans.ir.condition import Condition, Data, Relation, parts_of
from looptrans.ir.index import Index, Let, Opaque, children
from looptrans.ir.program import Assign
from looptrans.ir.value import (
    Access,
    Binary,
    Holds,
    IndexValue,
    Read,
    Reduce,
    Select,
    Value,
    value_children,
)


def operands(statement: Assign) -> tuple[Access, ...]:
    """Return the arrays and scalars a statement computes with, in the order of the text.

    Each occurrence is one; what stands inside a subscript is none. For `s += x` they are s and x.
    """
    found: list[Access] = []
    for value in statement.values:
        _value_operands(value, found)
    return tuple(found)


def written_operands(statement: Assign) -> tuple[Access, ...]:
    """Return the operands right of the `=`: without the s of `s += x`.

    An `SLoop` list has an entry for each of these.
    """
    found = operands(statement)
    value = statement.values[0]
    if not statement.augmented or not isinstance(value, Binary):
        return found
    target: list[Access] = []
    _value_operands(value.left, target)
    return found[len(target) :]


def _value_operands(value: Value, found: list[Access]) -> None:
    match value:
        case Read(access):
            found.append(access)
        case IndexValue(index):
            _index_operands(index, found)
        case Holds(condition):
            _condition_operands(condition, found)
        case Select(condition, chosen, otherwise):
            _value_operands(chosen, found)
            _condition_operands(condition, found)
            _value_operands(otherwise, found)
        case Reduce(_, generators, body):
            _value_operands(body, found)
            for generator in generators:
                _index_operands(generator.range.start, found)
                _index_operands(generator.range.stop, found)
                _condition_operands(generator.condition, found)
        case _:
            for child in value_children(value):
                _value_operands(child, found)


def _condition_operands(condition: Condition, found: list[Access]) -> None:
    match condition:
        case Data(value):
            _value_operands(value, found)
        case Relation(_, left, right):
            _index_operands(left, found)
            _index_operands(right, found)
        case _:
            for part in parts_of(condition):
                _condition_operands(part, found)


def _index_operands(index: Index, found: list[Access]) -> None:
    match index:
        case Opaque(array, arguments):
            found.append(Access(array, arguments))
        case Let(name, _):
            found.append(Access(name, ()))
        case _:
            for child in children(index):
                _index_operands(child, found)
