"""Guards on loop variables and sizes: taken along by what leaves them, gone when empty."""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.condition import ALWAYS, Condition, conjunction, negation
from looptrans.ir.program import If, Node, Program
from looptrans.transforms.editing.tree import Position, is_node, node_at, replace_at


def nodes_between(program: Program, outer: Position, inner: Position) -> tuple[Node, ...]:
    """Return the nodes inside the one at `outer` that are around the one at `inner`."""
    lengths = range(len(outer) + 1, len(inner))
    return tuple(
        node_at(program, inner[:length]) for length in lengths if is_node(program, inner[:length])
    )


def guards_between(program: Program, outer: Position, inner: Position) -> Condition:
    """Return what the guards between two nodes require, as one condition."""
    found = []
    for length in range(len(outer) + 1, len(inner)):
        if is_node(program, inner[:length]):
            node = node_at(program, inner[:length])
            if isinstance(node, If):
                chosen = inner[length] == 1
                found.append(node.condition if chosen else negation(node.condition))
    return conjunction(*found)


def guarded(condition: Condition, body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return a block under a guard; as it is where the condition always holds."""
    return body if condition == ALWAYS else (If(condition, body),)


def without(program: Program, position: Position) -> Program:
    """Remove the node at a position, and the guards that are empty then.

    Guards on data stay: their condition is a statement of its own.
    """
    shorter = replace_at(program, position, ())
    for length in range(len(position) - 1, 0, -1):
        above = position[:length]
        if not is_node(program, above):
            continue
        node = node_at(shorter, above)
        if not isinstance(node, If) or node.label is not None or node.body:
            return shorter
        left: tuple[Node, ...] = ()
        if node.orelse:
            turned = replace(node, condition=negation(node.condition), body=node.orelse, orelse=())
            left = (replace(turned, comment=node.else_comment, else_comment=""),)
        shorter = replace_at(shorter, above, left)
        if left:
            return shorter
    return shorter
