"""What is joined to nothing: the number that changes nothing, of the kind and width of a value.

sum of floats    ->    from 0.0, in float32
sum of integers  ->    from 0, in 64 bits: float32 holds none beyond 2 ** 24 exactly
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from looptrans.blocks.program import (
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

Monoid: TypeAlias = Literal["+", "*", "max", "min"]

_IDENTITY: Final[dict[Monoid, float]] = {"+": 0.0, "*": 1.0, "max": -math.inf, "min": math.inf}


def identity(op: Monoid, value: Expr) -> float | int:
    """Return what changes nothing where it is joined to a value: of its kind, and of its width."""
    if kind_of(value) != "int":
        return _IDENTITY[op]
    most = 1 << (63 if _is_wide(value) else 31)
    neutral: dict[Monoid, int] = {"+": 0, "*": 1, "max": -most, "min": most - 1}
    return neutral[op]


def counted(op: Monoid, value: Expr) -> Expr:
    """Return integers wide enough for what they are joined to: all but counts and positions."""
    if kind_of(value) != "int":
        return value
    parts = list(_parts(value))
    plain = all(isinstance(p, Number) or (op in ("max", "min") and _is_place(p)) for p in parts)
    return value if plain or _is_wide(value) else Cast(value, "int64")


def _is_wide(value: Expr) -> bool:
    return isinstance(value, Cast) and value.to == "int64"


def _is_place(part: Expr) -> bool:
    return isinstance(part, Position | Edge | Scalar)


def _parts(value: Expr) -> Iterator[Expr]:
    """Yield the numbers that an integer is worked out from, not what chooses among them."""
    match value:
        case Where(_, chosen, otherwise):
            operands: tuple[Expr, ...] = (chosen, otherwise)
        case Unary() | Binary() | Call():
            operands = children(value)
        case _:
            yield value
            return
    for operand in operands:
        yield from _parts(operand)
