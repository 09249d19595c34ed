"""What is known about the order of two integers of a kernel, such as `i_first <= i_last`."""

from __future__ import annotations

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Dim,
    Edge,
    Expr,
    Number,
    Scalar,
    Unary,
    Where,
)
from looptrans.blocks.lowering.builder import Builder


def least(b: Builder, one: Expr, other: Expr) -> Expr:
    """Return the smaller of two numbers: one of them where it is known which."""
    if at_most(b, one, other):
        return one
    return other if at_most(b, other, one) else Call("min", (one, other))


def greatest(b: Builder, one: Expr, other: Expr) -> Expr:
    """Return the larger of two numbers: one of them where it is known which."""
    if at_most(b, one, other):
        return other
    return one if at_most(b, other, one) else Call("max", (one, other))


def at_most(b: Builder, left: Expr, right: Expr) -> bool:
    """Tell whether one number is surely no larger than another, whatever the sizes are.

    `False` says that it is not known.
    """
    if left == right:
        return True
    if isinstance(left, Call) and left.function == "max":
        return all(at_most(b, part, right) for part in left.arguments)
    if isinstance(right, Call) and right.function == "min":
        return all(at_most(b, left, part) for part in right.arguments)
    if isinstance(left, Where):
        return at_most(b, left.chosen, right) and at_most(b, left.otherwise, right)
    if isinstance(right, Where):
        return at_most(b, left, right.chosen) and at_most(b, left, right.otherwise)
    below = left.arguments if isinstance(left, Call) and left.function == "min" else ()
    above = right.arguments if isinstance(right, Call) and right.function == "max" else ()
    if any(at_most(b, part, right) for part in below):
        return True
    if any(at_most(b, left, part) for part in above):
        return True
    return _is_nonnegative(b, _form(right, _form(left, {}, -1), 1))


def _form(expr: Expr, found: dict[Expr, int], factor: int) -> dict[Expr, int]:
    """Add so many times an expression to a sum of terms; the constant stands at `Number(1)`."""
    match expr:
        case Number(value):
            found[Number(1)] = found.get(Number(1), 0) + factor * int(value)
        case Unary("-", operand):
            _form(operand, found, -factor)
        case Binary("+" | "-" as op, left, right):
            _form(left, found, factor)
            _form(right, found, factor if op == "+" else -factor)
        case Binary("*", Number(value), other) | Binary("*", other, Number(value)):
            _form(other, found, factor * int(value))
        case _:
            found[expr] = found.get(expr, 0) + factor
    return found


def _is_nonnegative(b: Builder, form: dict[Expr, int]) -> bool:
    """Tell whether a sum is surely not below 0: no term of it may be."""
    firsts: dict[Dim, int] = {}
    lasts: dict[Dim, int] = {}
    for term, count in form.items():
        match term:
            case Edge(dim, which):
                (firsts if which == "first" else lasts)[dim] = count
            case Number():
                if count < 0:
                    return False
            case Scalar(name):
                if count < 0 or (count > 0 and name not in b.lengths):
                    return False
            case _:
                if count != 0:
                    return False
    # m * first + n * last is (m + n) * first + n * (last - first).
    return all(
        lasts.get(dim, 0) >= 0
        and (
            (both := firsts.get(dim, 0) + lasts.get(dim, 0)) == 0
            or (both > 0 and b.is_nonnegative(dim.start))
        )
        for dim in {**firsts, **lasts}
    )
