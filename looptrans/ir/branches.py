"""Branches that do the same, under one guard.

if j < P: l = l + p                     if j < P or j <= i: l = l + p
elif j <= i: l = l + p          ->
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.condition import Condition, Some, is_data_dependent
from looptrans.ir.program import Assign, If, Loop, Node


def joined(node: If) -> If:
    """Return a guard whose next branch does the same as one guard for both."""
    match node.orelse:
        case (If() as other,) if (
            not is_data_dependent(node.condition)
            and not is_data_dependent(other.condition)
            and [_bare(n) for n in node.body] == [_bare(n) for n in other.body]
        ):
            either = Some((*_ways(node.condition), *_ways(other.condition)))
            return replace(node, condition=either, orelse=other.orelse)
        case _:
            return node


def _ways(condition: Condition) -> tuple[Condition, ...]:
    return condition.parts if isinstance(condition, Some) else (condition,)


def _bare(node: Node) -> Node:
    """Return a node without what its author calls it and says of it."""
    match node:
        case Assign():
            return replace(node, label="", labelled=False, comment="", leading=())
        case Loop():
            body = tuple(map(_bare, node.body))
            return replace(node, body=body, comment="", leading=())
        case If():
            then, other = tuple(map(_bare, node.body)), tuple(map(_bare, node.orelse))
            bare = replace(node, body=then, orelse=other, label=None, comment="", leading=())
            return replace(bare, else_comment="")
        case _:
            return node
