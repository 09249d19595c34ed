"""Annotations of arguments: `Float[Array, "M E"]`, `Int[Array, "B T", "0:NP"]`, `P: Const`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from difflib import get_close_matches

from looptrans.frontend.mistakes import BadAnnotation
from looptrans.frontend.syntax import short, span_of
from looptrans.ir.affine import extremum
from looptrans.ir.index import Arith, ArithmeticOperator, Index, Int, Neg, Param, parameters
from looptrans.ir.program import Element, ParameterKind

_FLOATS = (
    "Float Float8e4m3fn Float8e5m2 Float16 Float32 Float64 BFloat16 Real Inexact Num Number Shaped"
)
_INTEGERS = "Int Int8 Int16 Int32 Int64 Integer UInt UInt8 UInt16 UInt32 UInt64"
ELEMENTS: dict[str, Element] = {
    **dict.fromkeys(_FLOATS.split(), "float"),
    **dict.fromkeys(_INTEGERS.split(), "int"),
    "Bool": "bool",
}
# What makes an annotation with a string one of a shape, whatever stands before the bracket.
_ARRAYS = ("Array", "ArrayLike", "NDArray", "ndarray", "Tensor")
EXAMPLE = 'write it as in Float[Array, "M E"], or Int[Array, "B T", "0:NP"] with a range of values'
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
    return None if node is None else KINDS.get(_name(node))


def kind_of_element(annotation: ast.expr | None) -> ParameterKind | None:
    """Return the kind of a number annotated as elements are, `c: Int`, where that says one."""
    node = _unquoted(annotation)
    element = None if node is None else ELEMENTS.get(_name(node))
    return "size" if element in ("int", "bool") else None


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
        if (text.startswith("*") and text != "*") or text == "...":
            raise BadAnnotation(
                f"the shape {strings[0]!r} leaves the number of dimensions open",
                span_of(annotation),
                remedy="name every dimension",
            )
        extent = None if text == "_" else _extent(text, annotation)
        if isinstance(extent, Int) and extent.value < 0:
            raise BadAnnotation(
                f"the extent {text} is negative", span_of(annotation), remedy="give 0 or more"
            )
        extents.append(extent)
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
    match values:
        case Int(least), Int(end) if least >= end:
            raise BadAnnotation(
                f"the range of values {strings[1]!r} holds no integer",
                span_of(annotation),
                why="no array of integers fits it, and of none everything is true",
                remedy="write the lowest value first, the upper end excluded",
            )
        case _:
            return Shape(element, tuple(extents), values)


def says_its_type(annotation: ast.expr | None) -> bool:
    """Tell whether an annotation says how many bits elements have, as `Float32[Array, "N"]`."""
    node = _unquoted(annotation)
    name = _name(node.value) if isinstance(node, ast.Subscript) else ""
    return any(character.isdigit() for character in name)


def _unquoted(annotation: ast.expr | None) -> ast.expr | None:
    """Return an annotation that is written as a string as if it were not."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return annotation


def _parts(annotation: ast.expr | None) -> tuple[Element, list[str]] | None:
    """Return the element type and the strings of a shape; None for an annotation of another kind.

    Raises:
        BadAnnotation: It looks like one, and is none: nothing of it may be passed over.
    """
    if not isinstance(annotation, ast.Subscript):
        return None
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
    name, array = _name(annotation.value), _name(parts[0])
    strings = [
        part.value
        for part in parts[1:]
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    if name in ELEMENTS:
        if len(parts) not in (2, 3) or len(strings) != len(parts) - 1:
            raise BadAnnotation(
                f"{short(annotation)} does not give an array type and a shape",
                span_of(annotation),
                why="a shape is one string of extents, and the range of values another one",
                remedy=EXAMPLE,
            )
        if _parts(parts[0]) is not None:
            raise BadAnnotation(
                f"{short(annotation)} has a shape within a shape",
                span_of(annotation),
                why="it could be read in more than one way",
                remedy="write one shape with all dimensions, outermost first",
            )
        return ELEMENTS[name], strings
    if strings and array in _ARRAYS and name != "Annotated":
        close = get_close_matches(name, ELEMENTS, 1)
        raise BadAnnotation(
            f"{name!r} is no element type",
            span_of(annotation.value),
            why="the elements of an array are real numbers, integers or Booleans",
            remedy=f"did you mean {close[0]}?" if close else "write Float, Int or Bool",
        )
    return None


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


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
        case ast.Call(func=ast.Name(id="max" | "min" as which), args=[_, _, *_], keywords=[]):
            return extremum(which, tuple(map(_size, node.args)))
        case _:
            raise ValueError(type(node).__name__)
