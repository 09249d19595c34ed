"""Numbers that are worked out once, of sizes and given numbers alone, where they are read.

    scale = 1.0 / sqrt(D)
    for i: for j: s = scale * …    ->    for i: for j: s = 1.0 / sqrt(D) * …

A kernel works such a number out by itself: it need not wait in memory for another kernel.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from looptrans.ir.condition import with_operands
from looptrans.ir.index import lets, opaque_terms, variables
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, values_replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    IndexValue,
    Read,
    Real,
    Unary,
    Value,
    walk_value,
)
from looptrans.ir.walk import nodes, read_in

# What is longer is worked out once.
_MOST_PARTS: Final = 16


def with_given_numbers_put_in(program: Program) -> Program:
    """Return a program in which what reads such a number works it out.

    Args:
        program: The program.
    """
    numbers: dict[str, Value] = {}

    def as_number(part: Value) -> Value | None:
        match part:
            case Read(Access(name, ())):
                return numbers.get(name)
            case _:
                return None

    once = _set_once(program)
    for node in program.body:
        match node:
            case Assign(targets=(Access(name),), values=(value,)) if name in once:
                found = replaced(value, as_number)
                if is_given(found) and sum(1 for _ in walk_value(found)) <= _MOST_PARTS:
                    numbers[name] = found
            case _:
                pass
    if not numbers:
        return program

    def put_in(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign():
                return (values_replaced(node, as_number),)
            case If():
                asked = with_operands(node.condition, value=lambda v: replaced(v, as_number))
                return (replace(node, condition=asked),)
            case Declaration(_, creation) if creation.fill is not None:
                fill = replaced(creation.fill, as_number)
                return (replace(node, creation=replace(creation, fill=fill)),)
            case _:
                return (node,)

    body = rewritten(program.body, put_in)
    gone = numbers.keys() - read_in(body)
    body = tuple(n for n in body if not (isinstance(n, Assign) and n.targets[0].array in gone))
    arrays = tuple(array for array in program.arrays if array.name not in gone)
    return replace(program, arrays=arrays, body=body)


def _set_once(program: Program) -> set[str]:
    """Return the scalars of real numbers that one statement sets, and nobody outside sees."""
    inside = tuple(nodes(program.body))
    written = [t.array for node in inside if isinstance(node, Assign) for t in node.targets]
    private = {name for node in inside if isinstance(node, Loop) for name in node.private}
    return {
        array.name
        for array in program.arrays
        if array.role == "local" and not array.rank and array.element == "float"
        if written.count(array.name) == 1
        if array.name not in private and array.name not in program.outputs
    }


def is_given(value: Value) -> bool:
    """Tell whether a value is made of sizes, real parameters and literals alone."""
    for part in walk_value(value):
        match part:
            case IndexValue(index):
                if variables(index) or opaque_terms(index) or lets(index):
                    return False
            case Binary(op):
                if op == "@":
                    return False
            case Call(name):
                if name == "uniform":
                    return False
            case Const() | Real() | Unary():
                pass
            case _:
                return False
    return True
