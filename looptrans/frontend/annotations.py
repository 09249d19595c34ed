"""Annotations of arguments: `Float[Array, "M E"]`, `Int[Array, "B T", "0:NP"]`, `P: Const`."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from looptrans.frontend.mistakes import BadAnnotation
from looptrans.frontend.syntax import span_of
from looptrans.ir.index import Arith, ArithmeticOperator, Index, Int, Neg, Param, parameters
from looptrans.ir.program import Element, ParameterKind

_FLOATS = "Float Float16 Float32 Float64 BFloat16 Real Inexact Num Number Shaped"
_INTEGERS = "Int Int8 Int16 Int32 Int64 Integer UInt UInt8 UInt32 UInt64"
ELEMENTS: dict[str, Element] = {
    **dict.fromkeys(_FLOATS.split(), "float"),
    **dict.fromkeys(_INTEGERS.split(), "int"),
    "Bool": "bool",
}
NAMES: dict[Element, str] = {"float": "Float", "int": "Int", "bool": "Bool"}
KINDS: dict[str, ParameterKind] = {
    "Const": "const",
    "Stride": "stride",
    "Seed": "seed",
    "int": "size",
    "bool": "size",
    "float": "real",
    "float16": "real",
    "float32": "real",
    "float64": "real",
}
OPERATORS: dict[type[ast.operator], ArithmeticOperator] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What an annotation says of an array."""

    element: Element
    extents: tuple[Index | None, ...]
    values: tuple[Index, Index] | None

    @property
    def sizes(self) -> tuple[str, ...]:
        """The sizes it mentions, in order."""
        bounds = [e for e in self.extents if e is not None] + list(self.values or ())
        return tuple(dict.fromkeys(name for each in bounds for name in parameters(each)))


def kind_of(annotation: ast.expr | None) -> ParameterKind | None:
    """Return the kind of parameter an annotation states, or None."""
    node = _unquoted(annotation)
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    return KINDS.get(name or "")


def shape_of(annotation: ast.expr | None) -> Shape | None:
    """Read `Float[Array, "M E"]`; None where the annotation is of another kind.

    Raises:
        BadAnnotation: It is of this kind and cannot be read.
    """
    node = _unquoted(annotation)
    parts = _parts(node)
    if parts is None or annotation is None:
        return None
    element, strings = parts
    extents: list[Index | None] = []
    for token in strings[0].split():
        text = token.lstrip("#?").rpartition("=")[2]
        if text.startswith("*") or text == "...":
            raise BadAnnotation(
                f"the shape {strings[0]!r} leaves the number of dimensions open",
                span_of(annotation),
                remedy="name every dimension",
            )
        extents.append(None if text == "_" else _extent(text, annotation))
    if len(strings) == 1:
        return Shape(element, tuple(extents), None)
    low, colon, high = strings[1].partition(":")
    if not colon or element != "int":
        raise BadAnnotation(
            f"the range of values {strings[1]!r} "
            + ("is not low:high" if element == "int" else "stands on an array without integers"),
            span_of(annotation),
            remedy='write it as in Int[Array, "B T", "0:NP"], the upper end excluded',
        )
    values = _extent(low, annotation), _extent(high, annotation)
    return Shape(element, tuple(extents), values)


def _unquoted(annotation: ast.expr | None) -> ast.expr | None:
    """Return an annotation that is written as a string as if it were not."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return annotation


def _parts(annotation: ast.expr | None) -> tuple[Element, list[str]] | None:
    if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.slice, ast.Tuple):
        return None
    base = annotation.value
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", None)
    element = ELEMENTS.get(name or "")
    strings = [
        part.value
        for part in annotation.slice.elts[1:]
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return (element, strings) if element is not None and strings else None


def _extent(token: str, annotation: ast.expr) -> Index:
    try:
        return _size(ast.parse(token.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadAnnotation(
            f"{token.strip()!r} is no extent",
            span_of(annotation),
            why="an extent is an integer, a size, or an expression of sizes without spaces",
            remedy='write it as in Float[Array, "B H//R N+1"]',
        ) from None


def _size(node: ast.expr) -> Index:
    match node:
        case ast.Constant(value=value) if type(value) is int and value < 2**63:
            return Int(value)
        case ast.Name(id=name):
            return Param(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _size(operand)
            return Int(-inner.value) if isinstance(inner, Int) else Neg(inner)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
            return Arith(OPERATORS[type(operator)], _size(left), _size(right))
        case _:
            raise ValueError(type(node).__name__)
