"""Loops that only add up, as sums: each is one operation of NumPy, or of torch.

for e in range(E):                         s = s + sum(Q[i, e] * K[j, e] for e in range(E))
    s += Q[i, e] * K[j, e]          ->     r = r + sum(Q[i, e] ** 2 for e in range(E))
    r += Q[i, e] ** 2

for j in range(N):                         for d in range(D):
    for d in range(D):              ->         O[d] = O[d] + sum(P[j] * V[j, d] for j in range(N))
        O[d] += P[j] * V[j, d]
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Var, lets, opaque_terms, variables
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Binary, Generator, Read, Reduce
from looptrans.ir.walk import accesses, nodes


def with_loops_summed(program: Program) -> Program:
    """Return a program with sums for its loops that only add up floats, to cells in loops inside.

    How far such a loop goes may differ between the iterations of the loops around it.
    """
    floats = frozenset(array.name for array in program.arrays if array.element == "float")

    def change(node: Node) -> tuple[Node, ...]:
        found = _summed(node, floats) if isinstance(node, Loop) else None
        return (node,) if found is None else found

    return replace(program, body=rewritten(program.body, change))


def _summed(loop: Loop, floats: frozenset[str]) -> tuple[Node, ...] | None:
    """Return a loop as sums, in the loops inside whose iterations have cells of their own."""
    match loop.body:
        case (Loop(execution="sequential") as inner,):
            pass
        case _:
            return _sums(loop, floats)
    ends = (inner.range.start, inner.range.stop)
    if any(loop.variable in variables(end) or opaque_terms(end) or lets(end) for end in ends):
        return None
    targets = [t for node in nodes(inner.body) if isinstance(node, Assign) for t in node.targets]
    if not all(Var(inner.variable) in target.indices for target in targets):
        return None
    found = _summed(replace(loop, body=inner.body), floats)
    return None if found is None else (replace(inner, body=found),)


def _sums(loop: Loop, floats: frozenset[str]) -> tuple[Assign, ...] | None:
    """Return what a loop does as sums; None where it does something else."""
    ends = (loop.range.start, loop.range.stop)
    if loop.execution != "sequential" or not loop.body:
        return None
    if any(lets(end) for end in ends):
        return None
    written = [t.array for node in loop.body if isinstance(node, Assign) for t in node.targets]
    found: list[Assign] = []
    for node in loop.body:
        match node:
            case Assign(targets=(target,), values=(Binary("+", Read(read), term),)) if (
                read == target
            ):
                pass
            case _:
                return None
        moves = any(loop.variable in variables(index) for index in target.indices)
        if target.array not in floats or target.rank or moves:
            return None
        touched = [each.access.array for each in accesses(node)]
        if any(touched.count(name) != 2 * (name == target.array) for name in written):
            return None
        whole = Reduce("sum", (Generator(loop.variable, loop.range, ALWAYS),), term)
        value = Binary("+", Read(target), whole)
        found.append(replace(node, values=(value,), augmented=False))
    return tuple(found)
