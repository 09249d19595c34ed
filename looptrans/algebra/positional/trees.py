"""Values as JSON trees and back. What is read is checked node by node and never evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, get_args

from looptrans.ir import condition as conditions
from looptrans.ir import index as indices
from looptrans.ir import value as values
from looptrans.ir.condition import Comparison, Condition
from looptrans.ir.functions import FUNCTIONS
from looptrans.ir.index import ArithmeticOperator, Index
from looptrans.ir.value import (
    WHOLE,
    Access,
    BinaryOperator,
    Call,
    Const,
    Generator,
    Range,
    Value,
    Whole,
)

Tree: TypeAlias = Any  # what json gives: dict, list, str, int, float, bool, None
Reader: TypeAlias = Callable[[Tree], Any]


class Malformed(Exception):
    """A tree is not one of a value; the message says where."""


def tree_of(node: object) -> Tree:
    """Return a value, an index, a condition or an access as a tree."""
    if isinstance(node, Const):
        return {"is": "Const", "value": _literal(node.value)}
    if isinstance(node, tuple):
        return [tree_of(part) for part in node]
    if node is None or isinstance(node, str | int | float | bool):
        return node
    name = type(node).__name__
    if isinstance(node, Whole):
        return {"is": "Whole"}
    fields = _FIELDS[name]
    return {"is": name} | {field: tree_of(getattr(node, field)) for field in fields}


def value_from(tree: Tree) -> Value:
    """Read a value.

    Raises:
        Malformed: The tree is not one.
    """
    result: Value = _node(tree, _VALUES)
    return result


def _literal(value: float | int | bool) -> Tree:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _node(tree: Tree, allowed: tuple[str, ...]) -> Any:
    if not isinstance(tree, dict) or tree.get("is") not in allowed:
        raise Malformed(f"expected one of {', '.join(allowed)}")
    name = tree["is"]
    if name == "Const":
        return Const(_number(tree))
    if name == "Whole":
        return WHOLE
    fields = _FIELDS[name]
    if set(tree) != {"is", *fields}:
        raise Malformed(f"{name} has the fields {', '.join(fields)}")
    made = _CLASSES[name](**{field: read(tree[field]) for field, read in fields.items()})
    if isinstance(made, Call):
        _check_call(made)
    return made


def _check_call(call: Call) -> None:
    known = FUNCTIONS.get(call.function)
    count = len(call.arguments)
    if known is None or count < known.least or (known.most is not None and count > known.most):
        raise Malformed(f"{call.function} is not called like that")


def _number(tree: dict[str, Tree]) -> float | int | bool:
    value = tree.get("value")
    if set(tree) != {"is", "value"}:
        raise Malformed("Const has the field value")
    if value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool | int | float):
        return value
    raise Malformed("a literal is a number")


def _text(tree: Tree) -> str:
    if not isinstance(tree, str):
        raise Malformed("expected a name")
    return tree


def _whole_number(tree: Tree) -> int:
    if not isinstance(tree, int) or isinstance(tree, bool):
        raise Malformed("expected a whole number")
    return tree


def _truth(tree: Tree) -> bool:
    if not isinstance(tree, bool):
        raise Malformed("expected true or false")
    return tree


def _one_of(*words: str) -> Reader:
    def read(tree: Tree) -> str:
        if tree not in words:
            raise Malformed(f"expected one of {', '.join(words)}")
        return str(tree)

    return read


def _several(read: Reader) -> Reader:
    def read_all(tree: Tree) -> tuple[Any, ...]:
        if not isinstance(tree, list):
            raise Malformed("expected a list")
        return tuple(read(part) for part in tree)

    return read_all


def _value(tree: Tree) -> Value:
    return value_from(tree)


def _index(tree: Tree) -> Index:
    result: Index = _node(tree, _INDICES)
    return result


def _subscript(tree: Tree) -> Index | Whole:
    result: Index | Whole = _node(tree, (*_INDICES, "Whole"))
    return result


def _condition(tree: Tree) -> Condition:
    result: Condition = _node(tree, _CONDITIONS)
    return result


def _access(tree: Tree) -> Access:
    result: Access = _node(tree, ("Access",))
    return result


def _range(tree: Tree) -> Range:
    result: Range = _node(tree, ("Range",))
    return result


def _generator(tree: Tree) -> Generator:
    result: Generator = _node(tree, ("Generator",))
    return result


_VALUES = (
    "Const",
    "IndexValue",
    "Real",
    "Read",
    "Unary",
    "Binary",
    "Compare",
    "Holds",
    "Select",
    "Call",
    "Reduce",
)
_INDICES = ("Int", "Var", "Param", "Arith", "Neg", "Extremum", "Opaque", "Let")
_CONDITIONS = ("Truth", "Relation", "Data", "Every", "Some", "Not")
_COMPARISON = _one_of(*get_args(Comparison))

_FIELDS: dict[str, dict[str, Reader]] = {
    "IndexValue": {"index": _index},
    "Real": {"name": _text},
    "Read": {"access": _access},
    "Unary": {"op": _one_of("-", "+"), "operand": _value},
    "Binary": {"op": _one_of(*get_args(BinaryOperator)), "left": _value, "right": _value},
    "Compare": {"op": _COMPARISON, "left": _value, "right": _value},
    "Holds": {"condition": _condition},
    "Select": {"condition": _condition, "chosen": _value, "otherwise": _value},
    "Call": {"function": _text, "arguments": _several(_value)},
    "Reduce": {
        "function": _one_of("sum", "max", "min"),
        "generators": _several(_generator),
        "body": _value,
    },
    "Access": {"array": _text, "subscripts": _several(_subscript)},
    "Range": {"start": _index, "stop": _index, "step": _whole_number},
    "Generator": {"variable": _text, "range": _range, "condition": _condition},
    "Int": {"value": _whole_number},
    "Var": {"name": _text},
    "Param": {"name": _text},
    "Arith": {"op": _one_of(*get_args(ArithmeticOperator)), "left": _index, "right": _index},
    "Neg": {"operand": _index},
    "Extremum": {"op": _one_of("min", "max"), "arguments": _several(_index)},
    "Opaque": {"array": _text, "arguments": _several(_index)},
    "Let": {"name": _text, "value": _index},
    "Truth": {"value": _truth},
    "Relation": {"op": _COMPARISON, "left": _index, "right": _index},
    "Data": {"value": _value},
    "Every": {"parts": _several(_condition)},
    "Some": {"parts": _several(_condition)},
    "Not": {"part": _condition},
}
_CLASSES: dict[str, Callable[..., Any]] = {
    name: getattr(module, name)
    for module, names in (
        (values, (*_VALUES, "Access", "Range", "Generator")),
        (indices, _INDICES),
        (conditions, _CONDITIONS),
    )
    for name in names
}
