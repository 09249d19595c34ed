"""Powers of two written as `2 ** x`, read as the function that they are, those of e likewise.

p = 2.0 ** (s - m)                        ->    p = exp2(s - m)
p = exp2((s - m) * 1.4426950408889634)    ->    p = exp(s - m)
"""

from __future__ import annotations

from dataclasses import replace
from math import e, log2
from typing import Final

from looptrans.frontend.elements import element_of
from looptrans.ir.functions import is_as_written
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.rewrite import replaced, replaced_in_condition, rewritten
from looptrans.ir.value import Binary, Call, Const, IndexValue, Value

LOG2_E: Final = log2(e)


def with_powers_of_two(program: Program) -> Program:
    """Return a program that means the same, with `exp2` for powers of the literal 2.

    A power whose exponent is a literal, or which is an integer, stays what it is. Where log2(e) is
    a factor of the exponent it is one of e.

    Args:
        program: The program.
    """
    kinds = {array.name: array.element for array in program.arrays}

    def power(value: Value) -> Value | None:
        match value:
            case Binary("**", Const(base), exponent) if base == 2.0 and not isinstance(
                exponent, Const | IndexValue
            ):
                if element_of(value, kinds) == "int":
                    return None
                return exponential(exponent)
            case Call("exp2", (exponent,)):
                return exponential(exponent)
            case _:
                return None

    def exponential(exponent: Value) -> Value:
        rest = _divided(exponent)
        if rest is None:
            return Call("exp2", (replaced(exponent, power),))
        return Call("exp", (replaced(rest, power),))

    def node(each: Node) -> tuple[Node, ...]:
        match each:
            case Assign(values=values):
                return (replace(each, values=tuple(replaced(v, power) for v in values)),)
            case If(condition):
                return (replace(each, condition=replaced_in_condition(condition, power)),)
            case _:
                return (each,)

    return replace(program, body=rewritten(program.body, node))


def _divided(product: Value) -> Value | None:
    """Return what a product is without its factor log2(e), where it has that."""
    match product:
        case Binary("*", Const(number), rest) if is_as_written(number, LOG2_E):
            return rest
        case Binary("*", rest, Const(number)) if is_as_written(number, LOG2_E):
            return rest
        case Binary("*", left, right):
            first = _divided(left)
            if first is not None:
                return Binary("*", first, right)
            second = _divided(right)
            return None if second is None else Binary("*", left, second)
        case Binary("/", above, below):
            first = _divided(above)
            return None if first is None else Binary("/", first, below)
        case _:
            return None
