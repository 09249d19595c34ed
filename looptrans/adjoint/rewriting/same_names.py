"""Loops over one range that share arrays, counting by one name inside of a loop around them.

    for j in range(0, N):                             for j in range(0, N):
        for d in range(0, D): O[d] = O[d] * a             for d in range(0, D): O[d] = O[d] * a
        for x in range(0, D): O[x] = O[x] + p * V[j, x]   for d in range(0, D): O[d] = O[d] + …

Cells and sums are told to be the same by how they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import nodes, touched, written_in
from looptrans.transforms.editing.naming import binders, fresh_name
from looptrans.transforms.editing.substitute import rename_variable


@dataclass(frozen=True, slots=True)
class SameNames:
    """A program whose loops over one range count by one name.

    Attributes:
        program: The program afterwards.
    """

    program: Program
    text: str = "count by one name in loops over one range"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "what a loop counts by is its own"
        return Certificate("storage", law, "legal", "nothing else has that name where it stands")


def with_same_names(program: Program) -> SameNames | None:
    """Let loops over one range count by the name of the first of them, where they share arrays.

    Args:
        program: The program.
    """
    body = tuple(
        replace(node, body=_block(program, node.body, {}, frozenset({node.variable})))
        if isinstance(node, Loop)
        else node
        for node in program.body
    )
    after = replace(program, body=body)
    return None if after == program else SameNames(after)


def _block(
    program: Program,
    body: tuple[Node, ...],
    outside: Mapping[Range, Loop],
    around: frozenset[str],
) -> tuple[Node, ...]:
    known = dict(outside)
    found: list[Node] = []
    for node in body:
        match node:
            case Loop():
                first = known.get(node.range)
                named = node if first is None else _named(program, node, first, around)
                if named is node:
                    known[node.range] = node
                inner = _block(program, named.body, known, around | {named.variable})
                found.append(replace(named, body=inner))
            case If():
                then, other = (_block(program, b, known, around) for b in (node.body, node.orelse))
                found.append(replace(node, body=then, orelse=other))
            case _:
                found.append(node)
    return tuple(found)


def _named(program: Program, loop: Loop, first: Loop, around: frozenset[str]) -> Loop:
    """Return a loop that counts by the name of another one, if it may and both share an array.

    A loop inside that has the name already gets another one, but not over the same range: of rows
    and keys each has its name.
    """
    name = first.variable
    if name == loop.variable or name in around:
        return loop
    written = [written_in(each.body) for each in (first, loop)]
    if not (written[0] & touched(loop.body) or written[1] & touched(first.body)):
        return loop
    body = loop.body
    if name in binders(loop):
        inside = [node for node in nodes(body) if isinstance(node, Loop) and node.variable == name]
        if any(node.range == loop.range for node in inside):
            return loop
        other = fresh_name(program, name)
        body = rewritten(body, lambda node: (_counting_by(node, name, other),))
        if any(name in binders(node) for node in body):
            return loop  # a sum has it
    body = tuple(rename_variable(node, loop.variable, name) for node in body)
    return replace(loop, variable=name, body=body)


def _counting_by(node: Node, old: str, new: str) -> Node:
    """Return a loop that counts by another name, if it counts by an old one."""
    if not isinstance(node, Loop) or node.variable != old:
        return node
    body = tuple(rename_variable(inner, old, new) for inner in node.body)
    return replace(node, variable=new, body=body)
