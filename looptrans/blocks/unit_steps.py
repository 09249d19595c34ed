"""Loops in steps of 1.

for i in range(a, b, 2): Y[i] = …    ->    for i in range(0, (b - a + 1) // 2): Y[a + 2 * i] = …
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.affine import difference, product, quotient, total
from looptrans.ir.index import Index, Int, Var
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.value import Range
from looptrans.transforms.substitute import substitute_variable


def unit_steps(program: Program) -> Program:
    """Return a program that means the same, in which every loop counts up by 1.

    The iterations keep their order and number; only what they are called changes.
    """
    return replace(program, body=tuple(_node(node) for node in program.body))


def _node(node: Node) -> Node:
    match node:
        case If():
            return replace(
                node,
                body=tuple(_node(n) for n in node.body),
                orelse=tuple(_node(n) for n in node.orelse),
            )
        case Loop():
            body = tuple(_node(n) for n in node.body)
            step = node.range.step
            if step == 1:
                return replace(node, body=body)
            at = total(node.range.start, product(step, Var(node.variable)))
            inner = tuple(substitute_variable(n, {node.variable: at}) for n in body)
            return replace(node, range=Range(Int(0), _count(node.range)), body=inner)
        case _:
            return node


def _count(range_: Range) -> Index:
    """Return how many iterations a range has, or some number below 0 where it has none."""
    step = range_.step
    if step > 0:
        return quotient(total(difference(range_.stop, range_.start), step - 1), step)
    return quotient(total(difference(range_.start, range_.stop), -step - 1), -step)
