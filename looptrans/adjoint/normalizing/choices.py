"""Guards whose two sides set the same thing, read as a choice between two values.

if j <= i:                               S[i, j] = x if j <= i else -inf
S[i, j] = x
else:                        ->
S[i, j] = -inf

Branches that do the same are one.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.branches import joined
from looptrans.ir.condition import is_data_dependent
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Select, arrays_read


def with_choices(program: Program) -> Program:
    """Return a program that means the same, with a ternary for such a guard."""
    return replace(program, body=tuple(map(_with_choices, program.body)))


def _with_choices(node: Node) -> Node:
    match node:
        case If(_, body, orelse):
            inner = tuple(map(_with_choices, body))
            other = tuple(map(_with_choices, orelse))
            return _chosen(joined(replace(node, body=inner, orelse=other)))
        case Loop(body=body):
            return replace(node, body=tuple(map(_with_choices, body)))
        case _:
            return node


def _chosen(node: If) -> Node:
    """Return `x = a if condition else b` for a choice between two statements that set x."""
    match node:
        case If(condition, (Assign() as first,), (Assign() as second,)):
            if (
                len(first.targets) == len(first.values) == len(second.values) == 1
                and first.targets == second.targets
                and not is_data_dependent(condition)
            ):
                value = Select(condition, first.values[0], second.values[0])
                # What goes on from elements before is no choice, but begins in one way.
                if first.targets[0].array not in arrays_read(value):
                    return replace(first, values=(value,))
    return node
