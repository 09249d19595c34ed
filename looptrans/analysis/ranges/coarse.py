"""A program with coarser loops and guards, for questions where a little less is enough.

    for j in range(0, min(N, max(n[b], i + 1)))     ->    for j in range(0, min(N, f[b, i]))

A maximum at the upper end of a loop makes its iterations a union, and every question about them
multiplies by the parts. As an element of an array of its own, which says nothing but that it is the
same for the same iteration around, it is one part. What holds whatever such an array contains holds
for the maximum; what depends on it is uncertain, as it is with any element of an array. So it is
with a quotient of what is read, `(n[b] + P - 1) // P`, which is uncertain anyway.

    if i // P - j // P == x:                        ->    if f[i, j, x] == 1:
        if i % P - j % P == y:                                if g[i, j, y] == 1:

Of quotients by a size little is known; where several of them decide whether a statement runs, as in
a table of what lies how far apart in a square of P rows, a truth for each iteration says as much.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.condition import NEGATED, Condition, Relation, compared, with_tests
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Neg,
    Opaque,
    Var,
    children,
    lets,
    opaque_terms,
    parameters,
    rebuild,
    substitute,
    variables,
    walk,
)
from looptrans.ir.listing import index_text
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.value import Range
from looptrans.ir.walk import nodes

MOST_QUOTIENTS = 2
"""How many quotients by sizes may decide together whether a statement runs."""


def coarsened(program: Program) -> Program:
    """Return a program in which no end of a loop makes its iterations a union.

    Nor are there more than `MOST_QUOTIENTS` by a size in guards inside one another.
    """
    return replace(program, body=_coarse(program.body, frozenset()))


def _coarse(body: tuple[Node, ...], decided: frozenset[Index]) -> tuple[Node, ...]:
    """Return a body with coarser ends and guards; the quotients in those around it are given."""
    found: list[Node] = []
    for node in body:
        match node:
            case Loop():
                inside = _coarse(node.body, decided)
                found.append(replace(node, range=_range(node.range), body=inside))
            case If():
                own = decided | _quotients(node.condition)
                deeper = (n.condition for n in nodes((node,)) if isinstance(n, If))
                condition = node.condition
                if len(own.union(*map(_quotients, deeper))) > MOST_QUOTIENTS:
                    condition = _guard(condition)
                then, other = _coarse(node.body, own), _coarse(node.orelse, own)
                found.append(replace(node, condition=condition, body=then, orelse=other))
            case _:
                found.append(node)
    return tuple(found)


def _quotients(condition: Condition) -> frozenset[Index]:
    """Return the quotients and remainders by sizes in a condition."""
    return frozenset(
        part
        for side in compared(condition)
        for part in walk(side)
        if isinstance(part, Arith) and part.op in ("//", "%") and parameters(part.right)
    )


def _guard(condition: Condition) -> Condition:
    """Replace comparisons of quotients by truths, a comparison and its opposite by the same one."""
    return with_tests(condition, _test)


def _test(test: Condition) -> Condition:
    match test:
        case Relation(op, left, right) if _quotients(test):
            if not (variables(left) or variables(right)) or lets(left) or lets(right):
                return test
            positive = op in ("==", "<", ">")
            truth = _element((left, right), f" {op if positive else NEGATED[op]} ")
            return Relation("==" if positive else "!=", truth, Int(1))
        case _:
            return test


def _range(given: Range) -> Range:
    low, high = ("min", "max") if given.step > 0 else ("max", "min")
    return replace(given, start=_end(given.start, low), stop=_end(given.stop, high))


def _end(index: Index, joining: str) -> Index:
    """Replace the parts of an end that join iterations."""
    joins = isinstance(index, Extremum) and index.op == joining
    divides = isinstance(index, Arith) and index.op in ("//", "%") and any(opaque_terms(index))
    # A scalar may stand for something else in the next loop that is written the same.
    if (joins or divides) and variables(index) and not lets(index):
        return _element((index,))
    if isinstance(index, Extremum | Arith | Neg):
        inner = joining if isinstance(index, Extremum) else ""
        return rebuild(index, tuple(_end(child, inner) for child in children(index)))
    return index


def _element(parts: tuple[Index, ...], joined_by: str = "") -> Opaque:
    """Return an element of an array that is called what the parts are, whatever loops are called.

    No size is called what variables are called in that name.
    """
    names = tuple(dict.fromkeys(name for part in parts for name in variables(part)))
    plain = {name: Var(f"~{n}") for n, name in enumerate(names)}
    text = joined_by.join(index_text(substitute(part, plain)) for part in parts)
    return Opaque(text, tuple(Var(name) for name in names))
