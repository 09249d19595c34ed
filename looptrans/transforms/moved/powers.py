"""Powers of two written as `2 ** x`, read as the function that they are.

p = 2.0 ** (s - m)    ->    p = exp2(s - m)
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.frontend.elements import element_of
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.rewrite import replaced, replaced_in_condition, rewritten
from looptrans.ir.value import Binary, Call, Const, IndexValue, Value


def with_powers_of_two(program: Program) -> Program:
    """Return a program that means the same, with `exp2` for powers of the literal 2.

    A power whose exponent is a literal, or which is an integer, stays what it is.

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
                return Call("exp2", (replaced(exponent, power),))
            case _:
                return None

    def node(each: Node) -> tuple[Node, ...]:
        match each:
            case Assign(values=values):
                return (replace(each, values=tuple(replaced(v, power) for v in values)),)
            case If(condition):
                return (replace(each, condition=replaced_in_condition(condition, power)),)
            case _:
                return (each,)

    return replace(program, body=rewritten(program.body, node))
