"""What local arrays and scalars hold: booleans, integers or floats.

Every assignment widens what its target holds (boolean, then integer, then float), to a fixed
point, as if NumPy had given each name one type for the whole run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace

from looptrans.frontend.mistakes import UnsupportedExpression
from looptrans.ir.condition import Data, Every, Some
from looptrans.ir.program import Array, Element, Node
from looptrans.ir.source import Span
from looptrans.ir.value import (
    Binary,
    Call,
    Compare,
    Const,
    Create,
    Holds,
    IndexValue,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    walk_value,
)
from looptrans.ir.walk import assignments

WIDTH: dict[Element, int] = {"bool": 0, "int": 1, "float": 2}
SAME = ("max", "min", "abs", "stop_gradient", "copy", "sum")


def with_elements(
    arrays: Mapping[str, Array], body: tuple[Node, ...], created: set[str]
) -> dict[str, Array]:
    """Return the arrays with the element types that the assignments give the local ones.

    Args:
        arrays: The arrays so far.
        body: The nest.
        created: The arrays whose element type a creation states.
    """
    open_ = {n for n, array in arrays.items() if array.role == "local" and n not in created}
    kinds: dict[str, Element] = {n: "bool" if n in open_ else a.element for n, a in arrays.items()}
    stores: dict[str, list[Value]] = {}
    readers: dict[str, set[str]] = {}
    for statement in assignments(body):
        for number, target in enumerate(statement.targets):
            if target.array in open_:
                value = statement.values[min(number, len(statement.values) - 1)]
                stores.setdefault(target.array, []).append(value)
                for inner in walk_value(value):
                    if isinstance(inner, Read) and inner.access.array in open_:
                        readers.setdefault(inner.access.array, set()).add(target.array)
    queue = deque(stores)
    while queue:
        name = queue.popleft()
        kind = _widest(*(element_of(value, kinds) for value in stores[name]))
        if WIDTH[kind] > WIDTH[kinds[name]]:
            kinds[name] = kind
            queue.extend(sorted(readers.get(name, ())))
    return {name: replace(array, element=kinds[name]) for name, array in arrays.items()}


def number_joins(
    arrays: Mapping[str, Array], body: tuple[Node, ...]
) -> Iterator[UnsupportedExpression]:
    """Find `a or b` as a value where Python would give one of two numbers, not a boolean."""
    kinds = {name: array.element for name, array in arrays.items()}
    for statement in assignments(body):
        for value in statement.values:
            for inner in walk_value(value):
                if not (isinstance(inner, Holds) and isinstance(inner.condition, Every | Some)):
                    continue
                for part in inner.condition.parts:
                    if isinstance(part, Data) and element_of(part.value, kinds) != "bool":
                        yield _number_join(statement.span)


def _number_join(span: Span) -> UnsupportedExpression:
    return UnsupportedExpression(
        "numbers are joined by and, or",
        span,
        why="in Python that gives one of the two numbers, not true or false",
        remedy="compare the numbers, x != 0.0, or write a ternary",
    )


def _widest(*kinds: Element) -> Element:
    return max(kinds, key=WIDTH.__getitem__, default="bool")


def element_of(value: Value, kinds: Mapping[str, Element]) -> Element:
    """Return what kind of number a value is, given what each array and scalar holds."""
    match value:
        case Const(number):
            return (
                "bool"
                if isinstance(number, bool)
                else "int"
                if isinstance(number, int)
                else "float"
            )
        case IndexValue():
            return "int"
        case Compare() | Holds():
            return "bool"
        case Read(access):
            return kinds[access.array]
        case Unary(_, operand):
            return _widest("int", element_of(operand, kinds))
        case Binary("/", _, _):
            return "float"
        case Binary(_, left, right):
            return _widest("int", element_of(left, kinds), element_of(right, kinds))
        case Select(_, chosen, otherwise) | Call("where", (_, chosen, otherwise)):
            return _widest(element_of(chosen, kinds), element_of(otherwise, kinds))
        case Reduce(function, _, body):
            return _widest("int" if function == "sum" else "bool", element_of(body, kinds))
        case Call("bool", _):
            return "bool"
        case Call(function, arguments) if function in SAME:
            return _widest(*(element_of(argument, kinds) for argument in arguments))
        case Call(function, _):
            return "int" if function.startswith("int") else "float"
        case Create(_, _, _, element):
            return "int" if element in ("int", "int32", "int64") else "float"
        case _:
            return "float"
