"""Index expressions and conditions of a listing as Python, under the launcher's names."""

from __future__ import annotations

import math
from collections.abc import Mapping

from looptrans.ir.condition import NEGATED, Condition, Data, Relation, Truth, with_operands
from looptrans.ir.condition import parts_of as condition_parts
from looptrans.ir.index import Index, Let, Opaque, Param, Var, children, rebuild, walk
from looptrans.ir.listing import condition_text, index_text
from looptrans.ir.value import (
    Binary,
    Call,
    Compare,
    Const,
    Generator,
    IndexValue,
    Range,
    Real,
    Unary,
    Value,
)

_PLAIN_CALLS = ("abs", "max", "min")


class NotPython(ValueError):
    """A condition that the launcher cannot ask."""


def renamed(index: Index, names: Mapping[str, str]) -> Index:
    """Return an index expression with its parameters and arrays called as in the launcher."""
    match index:
        case Param(name):
            if name not in names:
                raise NotPython(name)
            return Param(names[name])
        case Let(_, value):
            return renamed(value, names)
        case Opaque(array, arguments):
            return Opaque(names[array], tuple(renamed(argument, names) for argument in arguments))
    operands = children(index)
    return rebuild(index, tuple(renamed(child, names) for child in operands)) if operands else index


def index_python(index: Index, names: Mapping[str, str]) -> str:
    """Return an index expression as Python; `//` and `%` mean the same there."""
    return index_text(renamed(index, names))


def condition_python(condition: Condition, names: Mapping[str, str]) -> str:
    """Return a condition as Python.

    Raises:
        NotPython: It mentions a value that is known only in a kernel.
    """
    return condition_text(_condition(condition, names))


def denied_python(condition: Condition, names: Mapping[str, str]) -> str:
    """Return the opposite of a condition as Python.

    Raises:
        NotPython: It mentions a value that is known only in a kernel.
    """
    if isinstance(condition, Relation):
        return condition_python(Relation(NEGATED[condition.op], *_sides(condition)), names)
    return f"not ({condition_python(condition, names)})"


def _sides(relation: Relation) -> tuple[Index, Index]:
    return relation.left, relation.right


def generators_python(generators: tuple[Generator, ...], names: Mapping[str, str]) -> str:
    """Return `for b in range(0, B) for …`."""
    text = []
    for generator in generators:
        bounds = generator.range
        ends = [index_python(end, names) for end in bounds.ends]
        ends += [str(bounds.step)] * (bounds.step != 1)
        text.append(f"for {generator.variable} in range({', '.join(ends)})")
        if generator.condition != Truth(True):
            text.append(f"if {condition_python(generator.condition, names)}")
    return " ".join(text)


def _condition(condition: Condition, names: Mapping[str, str]) -> Condition:
    return with_operands(
        condition,
        index=lambda index: renamed(index, names),
        value=lambda value: _value(value, names),
    )


def _value(value: Value, names: Mapping[str, str]) -> Value:
    match value:
        case Const(number) if isinstance(number, int) or math.isfinite(number):
            return value
        case IndexValue(index):
            return IndexValue(renamed(index, names))
        case Real(name) if name in names:
            return Real(names[name])
        case Unary(op, operand):
            return Unary(op, _value(operand, names))
        case Binary(op, left, right) if op != "@":
            return Binary(op, _value(left, names), _value(right, names))
        case Compare(op, left, right):
            return Compare(op, _value(left, names), _value(right, names))
        case Call(function, arguments) if function in _PLAIN_CALLS:
            return Call(function, tuple(_value(argument, names) for argument in arguments))
        case _:
            raise NotPython(str(value))


def mentioned(condition: Condition, generators: tuple[Generator, ...] = ()) -> list[str]:
    """Return the parameters a condition mentions, in order of first appearance."""
    found: dict[str, None] = {}
    for index in (*_bounds(generators), *indices(condition)):
        found |= {node.name: None for node in walk(index) if isinstance(node, Param)}
    found |= dict.fromkeys(_reals(condition))
    return list(found)


def arrays_in(condition: Condition, generators: tuple[Generator, ...] = ()) -> list[str]:
    """Return the integer arrays a condition looks into, in order of first appearance."""
    found: dict[str, None] = {}
    for index in (*_bounds(generators), *indices(condition)):
        found |= {node.array: None for node in walk(index) if isinstance(node, Opaque)}
    return list(found)


def has_variables(condition: Condition) -> bool:
    """Tell whether a condition is about an iteration of a loop, not about the arguments alone."""
    return any(isinstance(node, Var) for index in indices(condition) for node in walk(index))


def _bounds(generators: tuple[Generator, ...]) -> list[Index]:
    found: list[Index] = []
    for generator in generators:
        bounds: Range = generator.range
        found += [bounds.start, bounds.stop, *indices(generator.condition)]
    return found


def indices(condition: Condition) -> list[Index]:
    """Return the index expressions a condition compares."""
    match condition:
        case Relation(_, left, right):
            return [left, right]
        case Data(value):
            return [node.index for node in _values(value) if isinstance(node, IndexValue)]
        case _:
            return [index for part in condition_parts(condition) for index in indices(part)]


def _reals(condition: Condition) -> list[str]:
    match condition:
        case Data(value):
            return [node.name for node in _values(value) if isinstance(node, Real)]
        case _:
            return [name for part in condition_parts(condition) for name in _reals(part)]


def _values(value: Value) -> list[Value]:
    match value:
        case Unary(_, operand):
            return [value, *_values(operand)]
        case Binary(_, left, right) | Compare(_, left, right):
            return [value, *_values(left), *_values(right)]
        case Call(_, arguments):
            return [value, *(node for argument in arguments for node in _values(argument))]
        case _:
            return [value]
