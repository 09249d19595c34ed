"""How much a listing works, so that of two that mean the same the one that works less is taken."""

from __future__ import annotations

from math import prod
from typing import Final

from looptrans.ir.index import Int
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Binary, Call, Compare, Range, Reduce, Select, Value, value_children
from looptrans.ir.walk import assignments

MANY: Final = 64
"""How many elements a loop is taken to go over whose range is not known."""


def work_of(program: Program) -> int:
    """Return about how many operations a program does, where loops go over MANY elements.

    A statement counts as MANY besides: it may be a nest and a kernel of its own.
    """
    return _work(program.body) + MANY * len(assignments(program.body))


def _work(body: tuple[Node, ...]) -> int:
    total = 0
    for node in body:
        match node:
            case Loop():
                total += _times(node.range) * _work(node.body)
            case If():
                total += _work(node.body) + _work(node.orelse)
            case Assign():
                total += 1 + sum(map(_operations, node.values))
            case _:
                pass
    return total


def _operations(value: Value) -> int:
    inside = sum(map(_operations, value_children(value)))
    match value:
        case Reduce():
            return prod(_times(each.range) for each in value.generators) * (1 + inside)
        case Binary() | Call() | Compare() | Select():
            return 1 + inside
        case _:
            return inside


def _times(span: Range) -> int:
    if isinstance(span.start, Int) and isinstance(span.stop, Int):
        return len(range(span.start.value, span.stop.value, span.step))
    return MANY
