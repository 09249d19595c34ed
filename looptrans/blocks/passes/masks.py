"""Which scores of a kernel may hold the least float, so that they stay in natural units.

The least float times log2(e) is -inf: where all of a row have it nothing would be left of the row.
What a mask is made of is said in `algebra.makeup`.
"""

from __future__ import annotations

from collections.abc import Mapping

from looptrans.algebra.makeup import (
    GIVEN,
    PLAIN,
    SCORED,
    STEPPED,
    Makeup,
    added,
    called,
    multiplied,
    of_number,
    without,
)
from looptrans.blocks.block_ir.arithmetic import LARGEST
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dot,
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
)


def makeup_of_expr(expr: Expr, known: Mapping[str, Expr]) -> Makeup:
    """Return what a value of a kernel is made of.

    Args:
        expr: The value.
        known: What names stand for.
    """

    def each(part: Expr) -> Makeup:
        return makeup_of_expr(part, known)

    match expr:
        case Name(name) if name in known:
            return makeup_of_expr(known[name], without(known, name))
        case Name(_, _, kind) | Scalar(_, kind):
            return GIVEN if kind == "float" else PLAIN
        case Load():
            return GIVEN
        case Number(number):
            return of_number(number, LARGEST)
        case Position():
            return STEPPED
        case Dot() | Reduce("+" | "*") | Scan("+" | "*"):
            return SCORED
        case Unary("-", operand) | Cast(operand) | Reduce(_, _, operand) | Scan(_, _, operand):
            return each(operand)
        case Binary("+" | "-", left, right) | Where(_, left, right):
            return added((each(left), each(right)))
        case Binary("*" | "/" | "//" | "%", left, right):
            return multiplied(each(left), each(right))
        case Call("pow", (left, right)):
            return multiplied(each(left), each(right))
        case Call(function, arguments):
            return called(function, map(each, arguments))
        case _:
            return PLAIN
