"""What arrays of a listing are created with."""

from __future__ import annotations

from looptrans.ir.program import Declaration, Program
from looptrans.ir.value import Const, Create, Value
from looptrans.ir.walk import nodes


def creation_of(program: Program, name: str) -> Create | None:
    """Return what gives an array its first values; None where it comes from outside."""
    for node in nodes(program.body):
        if isinstance(node, Declaration) and node.array == name:
            return node.creation
    return None


def in_16_bits(program: Program) -> dict[str, str]:
    """Return the arrays that have 16 bits whatever the inputs have, and the type of each."""
    return {
        node.array: node.creation.element
        for node in nodes(program.body)
        if isinstance(node, Declaration) and node.creation.element in ("float16", "bfloat16")
    }


def in_32_bits(program: Program) -> set[str]:
    """Return the arrays that have 32 bits whatever the inputs have."""
    return {
        node.array
        for node in nodes(program.body)
        if isinstance(node, Declaration) and node.creation.element == "float32"
    }


def first_value(creation: Create) -> Value | None:
    """Return what every cell of a new array holds; None where that is not said."""
    match creation:
        case Create("zeros"):
            return Const(0.0)
        case Create("ones"):
            return Const(1.0)
        case Create("full", _, fill):
            return fill
        case _:
            return None
