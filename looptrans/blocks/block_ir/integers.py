"""Integers that a kernel has in 32 bits, and the listing without end: where they are 64 bits.

    i * j < 3 * k     ->     i.to(int64) * j < 3 * k

A place in an array has 32 bits unless the launch says otherwise, and so has a multiple of one by a
small number. What two integers are multiplied to has twice as many.
"""

from __future__ import annotations

from looptrans.blocks.block_ir.arithmetic import rebuilt
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Edge,
    Expr,
    Load,
    Number,
    Position,
    Scalar,
    Unary,
    Where,
    children,
    kind_of,
)
from looptrans.ir.index import Arith, Extremum, Index, Param

# Times this, places in arrays of two million rows still have 32 bits.
_SMALL = 1 << 10
_BITS_32 = 1 << 31


def exact(value: Expr) -> Expr:
    """Return a value whose products of integers are worked out in 64 bits, or in float32.

    Subscripts are left as they are: they lie inside an array, and the launch says how wide that
    needs them to be.
    """
    match value:
        case Load(_, subscripts, mask):
            return value if mask is None else rebuilt(value, (*subscripts, exact(mask)))
        case Call("uniform"):
            return value  # which takes the low 32 bits of each
        case Cast(operand, "float32", None) if kind_of(operand) == "int":
            return _real(operand)
        case Binary("*", left, right) if kind_of(value) == "int" and _may_be_long(left, right):
            return Binary("*", _long(left), exact(right))
        case Binary(op, left, Number() as right) if _is_beyond(right) and kind_of(left) == "int":
            return Binary(op, _long(left), right)
        case Binary(op, Number() as left, right) if _is_beyond(left) and kind_of(right) == "int":
            return Binary(op, left, _long(right))
        case _:
            parts = children(value)
            return rebuilt(value, tuple(map(exact, parts))) if parts else value


def is_long(value: Expr) -> bool:
    """Tell whether an integer says of itself that it has 64 bits."""
    return isinstance(value, Cast) and value.to == "int64"


def _real(value: Expr) -> Expr:
    """Return an integer in float32; products are worked out there, which has room for them."""
    match value:
        case Number(number):
            return Number(float(number))
        case Unary("-", operand):
            return Unary("-", _real(operand))
        case Where(condition, chosen, otherwise):
            return Where(exact(condition), _real(chosen), _real(otherwise))
        case Binary("*", left, right) if _may_be_long(left, right):
            return Binary("*", _real(left), _real(right))
        case _:
            return Cast(exact(value))


def _may_be_long(left: Expr, right: Expr) -> bool:
    """Tell whether a product of integers may have more than 32 bits."""
    match left, right:
        case (Binary("//", _, part), other) | (other, Binary("//", _, part)) if part == other:
            return False  # the multiple below what is divided
        case (Position(dim), Scalar(name)) | (Scalar(name), Position(dim)):
            return not _counts_blocks(dim.stop, Param(name))
        case (Number(value), other) | (other, Number(value)):
            return abs(value) > _SMALL or not _is_of_places(other)
        case _:
            return True


def _counts_blocks(stop: Index, size: Index) -> bool:
    """Tell whether numbers below an end count blocks of a size, in a row that was divided."""
    match stop:
        case Arith("//", _, divisor):
            return divisor == size
        case Extremum("min", arguments):
            return any(_counts_blocks(each, size) for each in arguments)
        case _:
            return False


def _long(value: Expr) -> Expr:
    """Return a value in 64 bits, which what it is multiplied with or added to then has, too."""
    match value:
        case Number():
            return value
        case Binary("*", Number() as left, right):
            return Binary("*", left, _long(right))
        case Binary("*", left, right):
            return Binary("*", _long(left), exact(right))
        case _:
            return value if is_long(value) else Cast(exact(value), "int64")


def _is_beyond(number: Number) -> bool:
    return isinstance(number.value, int) and not -_BITS_32 <= number.value < _BITS_32


def _is_of_places(value: Expr) -> bool:
    match value:
        case Position() | Edge() | Scalar():
            return kind_of(value) == "int"
        case Number(number):
            return abs(number) <= _SMALL
        case Unary("-", operand):
            return _is_of_places(operand)
        case Where(_, chosen, otherwise):
            return _is_of_places(chosen) and _is_of_places(otherwise)
        case Binary("+" | "-", left, right):
            return _is_of_places(left) and _is_of_places(right)
        case Binary("//" | "%", left, _):
            return _is_of_places(left)
        case Call("min" | "max" | "abs", arguments):
            return all(map(_is_of_places, arguments))
        case _:
            return False
