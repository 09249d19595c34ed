"""What is surely a finite number in iterations that do not count.

A matrix product and a masked sum go over such iterations too, with 0 in one factor: 0 times
infinity, or times what 0 / 0 gives, would spoil the sum.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dim,
    Dot,
    Edge,
    Expr,
    Load,
    Name,
    Number,
    Position,
    Reduce,
    Scalar,
    Scan,
    Unary,
    Where,
    dims_of,
)
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.magnitude import bounds

# exp of more than this is too large for 32 bits.
_EXPONENT = 80.0


def is_finite(b: Builder, expr: Expr, over: Collection[Dim] | None) -> bool:
    """Tell whether a value is surely finite where iterations do not count.

    Inputs are taken to be finite, and so is what iterations that count work out as well.

    Args:
        b: The kernel.
        expr: The value.
        over: The dimensions whose iterations may not count: what does not depend on them is the
            same in iterations that do. None where it may be that none counts.
    """

    def of(part: Expr) -> bool:
        return is_finite(b, part, over)

    if over is not None and not set(dims_of(expr)) & set(over):
        return True
    match expr:
        case Number(value):
            return math.isfinite(value)
        case Scalar() | Position() | Edge() | Load():
            return True
        case Name(name):
            return name in b.read or (name in b.defined and of(b.defined[name]))
        case Cast(operand) | Unary(_, operand) | Reduce(_, _, operand):
            return of(operand)
        case Scan():
            return False  # of what comes before an iteration, which need not be finite
        case Binary("/", left, right):
            return of(left) and _is_not_zero(b, right, over) and _is_number(b, right, over)
        case Binary(_, left, right):
            return of(left) and of(right)
        case Call("exp" | "exp2", (operand,)):
            return of(operand) and bounds(b, operand)[1] <= _EXPONENT
        case Call("log" | "log2", (operand,)):
            return of(operand) and bounds(b, operand)[0] > 0
        case Call("sqrt", (operand,)):
            return of(operand) and bounds(b, operand)[0] >= 0
        case Call("pow", (operand, Number(exponent))):
            return of(operand) and exponent >= 0 and float(exponent).is_integer()
        case Call("pow", _):
            return False
        case Call(_, arguments):
            return all(of(argument) for argument in arguments)
        case Where(_, chosen, otherwise):
            return of(chosen) and of(otherwise)
        case Dot(left, right, _, _, _, accumulator):
            return of(left) and of(right) and (accumulator is None or of(accumulator))
        case _:
            return False


def _is_number(b: Builder, expr: Expr, over: Collection[Dim] | None) -> bool:
    """Tell whether a divisor is surely finite or +infinity, as 1 + exp(-x): x / inf is 0."""
    if is_finite(b, expr, over):
        return True
    match expr:
        case Name(name):
            return name in b.defined and _is_number(b, b.defined[name], over)
        case Cast(operand) | Call("exp" | "exp2", (operand,)):
            return _is_number(b, operand, over)
        case Binary("+", left, right):
            return _is_number(b, left, over) and _is_number(b, right, over)
        case _:
            return False


def _is_not_zero(b: Builder, expr: Expr, over: Collection[Dim] | None) -> bool:
    low, high = bounds(b, expr)
    same = isinstance(expr, Scalar) if over is None else not set(dims_of(expr)) & set(over)
    return low > 0 or high < 0 or same
