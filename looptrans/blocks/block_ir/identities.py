"""What is joined to nothing: the number that changes nothing, of the kind and width of a value.

sum of floats    ->    from 0.0, in float32
sum of integers  ->    from 0, in 64 bits: float32 holds none beyond 2 ** 24 exactly
"""

from __future__ import annotations

from collections.abc import Iterator

from looptrans.blocks.block_ir.arithmetic import rebuilt
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Edge,
    Expr,
    Number,
    Position,
    Scalar,
    Unary,
    Where,
    children,
    kind_of,
)
from looptrans.ir.monoids import IDENTITIES, Monoid


def identity(op: Monoid, value: Expr) -> float | int:
    """Return what changes nothing where it is joined to a value: of its kind, and of its width."""
    if kind_of(value) != "int":
        return IDENTITIES[op]
    most = 1 << (63 if _is_wide(value) else 31)
    neutral: dict[Monoid, int] = {"+": 0, "*": 1, "max": -most, "min": most - 1}
    return neutral[op]


def counted(op: Monoid, value: Expr) -> Expr:
    """Return integers wide enough for what they are joined to: all but counts and positions."""
    if kind_of(value) != "int":
        return value
    # A product soon has more than 32 bits, whatever it is of.
    is_plain = _is_counted if op == "+" else _is_place
    plain = op != "*" and all(map(is_plain, _parts(value)))
    return value if plain or _is_wide(value) else Cast(_widened(value), "int64")


def _widened(value: Expr) -> Expr:
    """Return an integer whose products are worked out in 64 bits."""
    match value:
        case Where(condition, chosen, otherwise):
            return Where(condition, _widened(chosen), _widened(otherwise))
        case Binary("*", left, right):
            return Binary("*", _long(left), right)
        case Unary() | Binary("+" | "-") | Call("min" | "max"):
            return rebuilt(value, tuple(map(_widened, children(value))))
        case _:
            return value


def _long(value: Expr) -> Expr:
    """Return the first factor of a product in 64 bits, which the others then follow."""
    if isinstance(value, Binary) and value.op == "*":
        return Binary("*", _long(value.left), value.right)
    return Cast(_widened(value), "int64")


def _is_wide(value: Expr) -> bool:
    return isinstance(value, Cast) and value.to == "int64"


def _is_counted(part: Expr) -> bool:
    return isinstance(part, Number) and abs(part.value) <= 1


def _is_place(part: Expr) -> bool:
    small = isinstance(part, Number) and abs(part.value) < 1 << 30
    return small or isinstance(part, Position | Edge | Scalar)


def _parts(value: Expr) -> Iterator[Expr]:
    """Yield what an integer is, or is a sum of, not what chooses among them."""
    match value:
        case Where(_, chosen, otherwise):
            operands: tuple[Expr, ...] = (chosen, otherwise)
        case Unary() | Binary("+" | "-") | Call("min" | "max"):
            operands = children(value)
        case _:
            yield value
            return
    for operand in operands:
        yield from _parts(operand)
