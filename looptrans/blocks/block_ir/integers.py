"""Integers that a kernel has in 32 bits, and the listing without end: where they are 64 bits.

    i * j < 3 * k          ->     i.to(int64) * j < 3 * k
    T[a[i] * 3001 % R]     ->     T[a[i].to(int64) * 3001 % R]

A place in an array has 32 bits unless the launch says otherwise, and so has a multiple of one by a
small number. What two integers are multiplied to has twice as many.
"""

from __future__ import annotations

from dataclasses import dataclass

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

# Times this, places in arrays of thirty million rows still have 32 bits.
_SMALL = 1 << 6
_BITS_32 = 1 << 31


def is_long(value: Expr) -> bool:
    """Tell whether an integer says of itself that it has 64 bits."""
    return isinstance(value, Cast) and value.to == "int64"


@dataclass(frozen=True, slots=True)
class Exact:
    """How the integers of a kernel are made exact.

    Attributes:
        lengths: The sizes of its arrays. Other arguments may be any numbers.
    """

    lengths: frozenset[str]

    def value(self, value: Expr) -> Expr:
        """Return a value whose products of integers are worked out in 64 bits, or in float32."""
        match value:
            case Load(_, subscripts, mask):
                masks = () if mask is None else (self.value(mask),)
                return rebuilt(value, (*map(self.place, subscripts), *masks))
            case Call("uniform"):
                return value  # which takes the low 32 bits of each
            case Cast(operand, "float32", None) if kind_of(operand) == "int":
                return self._real(operand)
            case Binary("*", left, right) if kind_of(value) == "int" and self._grows(left, right):
                return self._long(value)
            case Binary(op, left, Number() as right) if _is_beyond(right) and _is_integer(left):
                return Binary(op, self._long(left), right)
            case Binary(op, Number() as left, right) if _is_beyond(left) and _is_integer(right):
                return Binary(op, left, self._long(right))
            case Call("min" | "max", parts) if any(map(_is_beyond, parts)) and _is_integer(value):
                return rebuilt(value, tuple(map(self._wide, parts)))
            case Where(condition, chosen, other) if _is_beyond(chosen) or _is_beyond(other):
                return Where(self.value(condition), self._wide(chosen), self._wide(other))
            case _:
                parts = children(value)
                return rebuilt(value, tuple(map(self.value, parts))) if parts else value

    def place(self, value: Expr) -> Expr:
        """Return a subscript, or an end of a loop, with what `//` and `%` divide in it exact.

        It lies inside an array itself, and the launch says how wide that needs it to be.
        """
        match value:
            case Unary("-") | Binary("+" | "-" | "*"):
                return rebuilt(value, tuple(map(self.place, children(value))))
            case Where(condition, chosen, otherwise):
                return Where(self.value(condition), self.place(chosen), self.place(otherwise))
            case Binary("//" | "%", left, right):
                return rebuilt(value, (self.value(left), self.place(right)))
            case _:
                return self.value(value)

    def _real(self, value: Expr) -> Expr:
        """Return an integer in float32; products are worked out there, which has room for them."""
        match value:
            case Number(number):
                return Number(float(number))
            case Unary("-", operand):
                return Unary("-", self._real(operand))
            case Where(condition, chosen, otherwise):
                return Where(self.value(condition), self._real(chosen), self._real(otherwise))
            case Binary("*", left, right) if self._grows(left, right):
                return Binary("*", self._real(left), self._real(right))
            case _:
                return Cast(self.value(value))

    def _grows(self, left: Expr, right: Expr) -> bool:
        """Tell whether a product of integers may have more than 32 bits."""
        match left, right:
            case (Binary("//", _, part), other) | (other, Binary("//", _, part)) if part == other:
                return False  # the multiple below what is divided
            case (Position(dim), Scalar(name)) | (Scalar(name), Position(dim)):
                return not _counts_blocks(dim.stop, Param(name))
            case (Number(value), other) | (other, Number(value)):
                return abs(value) > _SMALL or not self._is_of_places(other)
            case _:
                return True

    def _long(self, value: Expr) -> Expr:
        """Return a value in 64 bits, which what it is multiplied with or added to then has, too."""
        match value:
            case Number():
                return value
            case Binary("*", Number() as left, right):
                return Binary("*", left, self._long(right))
            case Binary("*", left, right):
                return Binary("*", self._long(left), self.value(right))
            case _:
                return self._wide(value)

    def _wide(self, value: Expr) -> Expr:
        return value if is_long(value) else Cast(self.value(value), "int64")

    def _is_of_places(self, value: Expr) -> bool:
        match value:
            case Scalar(name):
                return name in self.lengths
            case Position() | Edge():
                return True
            case Number(number):
                return abs(number) <= _SMALL
            case _ if kind_of(value) == "bool":
                return True
            case Unary("-", operand):
                return self._is_of_places(operand)
            case Where(_, chosen, otherwise):
                return self._is_of_places(chosen) and self._is_of_places(otherwise)
            case Binary("+" | "-", left, right):
                return self._is_of_places(left) and self._is_of_places(right)
            case Binary("//" | "%", left, _):
                return self._is_of_places(left)
            case Call("min" | "max" | "abs", arguments):
                return all(map(self._is_of_places, arguments))
            case _:
                return False


def _counts_blocks(stop: Index, size: Index) -> bool:
    """Tell whether numbers below an end count blocks of a size, in a row that was divided."""
    match stop:
        case Arith("//", _, divisor):
            return divisor == size
        case Extremum("min", arguments):
            return any(_counts_blocks(each, size) for each in arguments)
        case _:
            return False


def _is_beyond(value: Expr) -> bool:
    number = value.value if isinstance(value, Number) else 0
    return isinstance(number, int) and not -_BITS_32 <= number < _BITS_32


def _is_integer(value: Expr) -> bool:
    return kind_of(value) == "int"
