"""`where` of a listing as a ternary, so that masks have one form.

S[i, j] = where(j <= i, x, -inf)    ->    S[i, j] = x if j <= i else -inf
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.condition import Data
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Call, Holds, Select, Value, rank_of


def with_selects(program: Program) -> Program:
    """Return a program that means the same, with a ternary for every `where` of numbers."""
    return replace(program, body=tuple(_node(node) for node in program.body))


def _node(node: Node) -> Node:
    match node:
        case Assign():
            return replace(node, values=tuple(replaced(value, _select) for value in node.values))
        case If():
            return replace(
                node,
                body=tuple(_node(n) for n in node.body),
                orelse=tuple(_node(n) for n in node.orelse),
            )
        case Loop() | Atomic() | BlockReduce():
            return replace(node, body=tuple(_node(n) for n in node.body))
        case _:
            return node


def _select(value: Value) -> Value | None:
    match value:
        case Call("where", (tested, chosen, otherwise)) if rank_of(value) == 0:
            condition = tested.condition if isinstance(tested, Holds) else Data(tested)
            return Select(condition, replaced(chosen, _select), replaced(otherwise, _select))
        case _:
            return None
