"""What is joined to nothing: the number that changes nothing, of the kind and width of a value.

sum of floats    ->    from 0.0, in float32
sum of integers  ->    from 0, in 64 bits: float32 holds none beyond 2 ** 24 exactly
"""

from __future__ import annotations

from collections.abc import Iterator

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Edge,
    Expr,
    Number,
    Position,
    Unary,
    Where,
    children,
    kind_of,
)
from looptrans.blocks.block_ir.integers import is_long
from looptrans.ir.monoids import IDENTITIES, Monoid


def identity(op: Monoid, value: Expr) -> float | int:
    """Return what changes nothing where it is joined to a value: of its kind, and of its width."""
    if kind_of(value) != "int":
        return IDENTITIES[op]
    most = 1 << (63 if is_long(value) else 31)
    neutral: dict[Monoid, int] = {"+": 0, "*": 1, "max": -most, "min": most - 1}
    return neutral[op]


def counted(op: Monoid, value: Expr) -> Expr:
    """Return integers wide enough for what they are joined to: all but counts and positions."""
    if kind_of(value) != "int":
        return value
    # A product soon has more than 32 bits, whatever it is of.
    is_plain = _is_counted if op == "+" else _is_place
    plain = op != "*" and all(map(is_plain, _parts(value)))
    return value if plain or is_long(value) else Cast(value, "int64")


def _is_counted(part: Expr) -> bool:
    return isinstance(part, Number) and abs(part.value) <= 1


def _is_place(part: Expr) -> bool:
    small = isinstance(part, Number) and abs(part.value) < 1 << 30
    return small or isinstance(part, Position | Edge)


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
