"""Statements that set several cells at once, as one for each.

    m, l = max(m, x), l * exp(m - max(m, x)) + exp(x - max(m, x))
        ->    l = l * exp(m - max(m, x)) + exp(x - max(m, x)); m = max(m, x)

All values are read before anything is set, so each stands before what sets one of the arrays that
it reads. Where two wait for each other, as in a swap, the statement stays. A statement keeps its
label, and so the place that a refusal names; all but the first part of one get new ones.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.rewriting.set_at_once import in_order
from looptrans.ir.program import Assign, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_label


def with_one_target(program: Program) -> Program:
    """Return a program whose statements set one cell each, as far as an order allows it."""
    number = int(fresh_label(program)[1:])

    def node(node: Node) -> tuple[Node, ...]:
        nonlocal number
        parts = _in_order(node) if isinstance(node, Assign) else None
        if parts is None:
            return (node,)
        first, *others = parts
        found = [first]
        for each in others:
            found.append(replace(each, label=f"S{number}", labelled=False, comment="", leading=()))
            number += 1
        return tuple(found)

    body = rewritten(program.body, node)
    if body == program.body:
        return program
    return finished(replace(program, body=body), {})[0]


def _in_order(node: Assign) -> list[Assign] | None:
    """Return a statement for each target, in an order in which all read what was there before."""
    if len(node.targets) < 2 or len(node.targets) != len(node.values):
        return None
    found = in_order(tuple(zip(node.targets, node.values, strict=True)))
    if found is None:
        return None
    return [replace(node, targets=(target,), values=(value,)) for target, value in found]
