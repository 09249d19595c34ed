"""A program with coarser ends of its loops, for questions where a little less is enough.

    for j in range(0, min(N, max(n[b], i + 1)))     ->    for j in range(0, min(N, f[b, i]))

A maximum at the upper end of a loop makes its iterations a union, and every question about them
multiplies by the parts. As an element of an array of its own, which says nothing but that it is the
same for the same iteration around, it is one part. What holds whatever such an array contains holds
for the maximum; what depends on it is uncertain, as it is with any element of an array.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.index import (
    Extremum,
    Index,
    Opaque,
    Var,
    children,
    lets,
    rebuild,
    variables,
)
from looptrans.ir.listing import index_text
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.value import Range


def with_coarse_ends(program: Program) -> Program:
    """Return a program in which no end of a loop makes its iterations a union."""
    return replace(program, body=_coarse(program.body))


def _coarse(body: tuple[Node, ...]) -> tuple[Node, ...]:
    found: list[Node] = []
    for node in body:
        match node:
            case Loop():
                found.append(replace(node, range=_range(node.range), body=_coarse(node.body)))
            case If():
                then, other = _coarse(node.body), _coarse(node.orelse)
                found.append(replace(node, body=then, orelse=other))
            case _:
                found.append(node)
    return tuple(found)


def _range(given: Range) -> Range:
    low, high = ("min", "max") if given.step > 0 else ("max", "min")
    return replace(given, start=_end(given.start, low), stop=_end(given.stop, high))


def _end(index: Index, joining: str) -> Index:
    """Replace the parts of an end that join iterations."""
    if isinstance(index, Extremum):
        # A scalar may stand for something else in the next loop that is written the same.
        if index.op == joining and variables(index) and not lets(index):
            return Opaque(index_text(index), tuple(Var(name) for name in variables(index)))
        return rebuild(index, tuple(_end(child, joining) for child in children(index)))
    return index
