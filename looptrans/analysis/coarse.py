"""A program with coarser ends of its loops, for questions where a little less is enough.

    for j in range(0, min(N, max(n[b], i + 1)))     ->    for j in range(0, min(N, f[b, i]))

A maximum at the upper end of a loop makes its iterations a union, and every question about them
multiplies by the parts. As an element of an array of its own, which says nothing but that it is the
same for the same iteration around, it is one part. What holds whatever such an array contains holds
for the maximum; what depends on it is uncertain, as it is with any element of an array. So it is
with a quotient of what is read, `(n[b] + P - 1) // P`, which is uncertain anyway.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Neg,
    Opaque,
    Var,
    children,
    lets,
    opaque_terms,
    rebuild,
    substitute,
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
    joins = isinstance(index, Extremum) and index.op == joining
    divides = isinstance(index, Arith) and index.op in ("//", "%") and any(opaque_terms(index))
    # A scalar may stand for something else in the next loop that is written the same.
    if (joins or divides) and variables(index) and not lets(index):
        names = variables(index)
        plain = substitute(index, {name: Var(f"_{n}") for n, name in enumerate(names)})
        return Opaque(index_text(plain), tuple(Var(name) for name in names))
    if isinstance(index, Extremum | Arith | Neg):
        inner = joining if isinstance(index, Extremum) else ""
        return rebuild(index, tuple(_end(child, inner) for child in children(index)))
    return index
