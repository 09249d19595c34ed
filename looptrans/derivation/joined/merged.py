"""Nests next to each other that go over the same loops, made one.

for j: for i: for e: dK[j, e] = dK[j, e] + …        for j: for i: for e: dK[j, e] = dK[j, e] + …
for j: for i: for d: dV[j, d] = dV[j, d] + …   ->                 for d: dV[j, d] = dV[j, d] + …

What both work out is then worked out once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from looptrans.ir.program import Assign, If, Loop, Node
from looptrans.ir.walk import loops_in, targets_in, touched
from looptrans.transforms.editing.substitute import rename_variable


def merged(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return statements where nests that gather over the same loops are one.

    Args:
        body: Nests of one statement each, none of which reads what a later one sets.
    """
    found: list[Node] = []
    for node in body:
        one = None
        if found and not _sets(found[-1]) & touched((node,)):
            one = _one(found[-1], node, ())
        if one is None:
            found.append(node)
        else:
            found[-1] = one
    return tuple(found)


def _one(first: Node, second: Node, around: tuple[str, ...]) -> Node | None:
    """Return two nests as one; None where one gathers over a loop that the other does not have."""
    match first, second:
        case Loop(), Loop() if first.range == second.range:
            here = rename_variable(second, second.variable, first.variable)
            if first.variable != second.variable and first.variable in _variables(second):
                return None
            body = _both(first.body, here.body, (*around, first.variable))
            return None if body is None else replace(first, body=body)
        case If(condition=one), If(condition=other) if one == other:
            body = _both(first.body, second.body, around)
            return None if body is None else replace(first, body=body)
        case _:
            return None


def _both(
    first: tuple[Node, ...], second: tuple[Node, ...], around: tuple[str, ...]
) -> tuple[Node, ...] | None:
    if len(first) == len(second) == 1:
        one = _one(first[0], second[0], around)
        if one is not None:
            return (one,)
    numbers = [{n.targets[0].array: n for n in _numbers(body)} for body in (first, second)]
    if any(numbers[1].get(name, node) != node for name, node in numbers[0].items()):
        return None
    if all(_gathers_only(node, around) for node in (*first, *second)):
        rest = tuple(node for node in second if node not in first)
        ahead = tuple(_numbers(rest))
        at = len(tuple(_numbers(first)))
        return (*first[:at], *ahead, *first[at:], *(node for node in rest if node not in ahead))
    return None


def _numbers(body: tuple[Node, ...]) -> Iterator[Assign]:
    """Yield the statements that set scalars; they come first."""
    for node in body:
        if isinstance(node, Assign) and not node.targets[0].subscripts:
            yield node


def _gathers_only(node: Node, around: tuple[str, ...]) -> bool:
    """Tell whether all that a statement is summed over are loops around, and some are."""
    inside = _variables(node)
    targets = targets_in((node,))
    own = [target.variables for target in targets]
    return all(inside <= names and not set(around) <= names for names in own)


def _variables(node: Node) -> set[str]:
    return {each.variable for each in loops_in((node,))}


def _sets(node: Node) -> set[str]:
    """Return the arrays that statements set; numbers are set again where they are read."""
    return {target.array for target in targets_in((node,)) if target.subscripts}
