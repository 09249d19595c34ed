"""Loops that only add up, as sums: each is one operation of NumPy, or of torch.

for e in range(E):                         s = s + sum(Q[i, e] * K[j, e] for e in range(E))
    s += Q[i, e] * K[j, e]          ->     r = r + sum(Q[i, e] ** 2 for e in range(E))
    r += Q[i, e] ** 2

for j in range(N):                         for d in range(D):
    for d in range(D):              ->         O[d] = O[d] + sum(P[j] * V[j, d] for j in range(N))
        O[d] += P[j] * V[j, d]

What such a loop gives a name to, and nobody else reads, is put in where it is read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Var, lets, opaque_terms, variables
from looptrans.ir.program import Assign, Loop, Node, Program
from looptrans.ir.rewrite import cells_put_in, rewritten
from looptrans.ir.value import Access, Binary, Generator, Read, Reduce, Value, walk_value
from looptrans.ir.walk import accesses, accesses_in, live_out, targets_in

LONGEST = 400
"""How many parts a term may have in which names are put in."""


def with_loops_summed(program: Program) -> Program:
    """Return a program with sums for its loops that only add up floats, to cells in loops inside.

    How far such a loop goes may differ between the iterations of the loops around it.
    """
    floats = frozenset(array.name for array in program.arrays if array.element == "float")
    outside = set(live_out(program))
    scalars = {a.name for a in program.arrays if a.role == "local" and not a.rank} - outside
    everywhere = _mentioned(program.body)

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Loop):
            return (node,)
        here = _mentioned(node.body)
        own = {name for name in scalars & floats if here[name] == everywhere[name] > 0}
        found = _summed(node, floats, frozenset(own))
        return (node,) if found is None else found

    return replace(program, body=rewritten(program.body, change))


def _summed(loop: Loop, floats: frozenset[str], own: frozenset[str]) -> tuple[Node, ...] | None:
    """Return a loop as sums, in the loops inside whose iterations have cells of their own."""
    match loop.body:
        case (Loop(execution="sequential") as inner,):
            pass
        case _:
            return _sums(loop, floats, own)
    ends = inner.range.ends
    if any(loop.variable in variables(end) or opaque_terms(end) or lets(end) for end in ends):
        return None
    targets = targets_in(inner.body)
    if not all(Var(inner.variable) in target.indices for target in targets):
        return None
    found = _summed(replace(loop, body=inner.body), floats, own)
    return None if found is None else (replace(inner, body=found),)


def _mentioned(body: tuple[Node, ...]) -> Counter[str]:
    """Return how often each array and scalar is accessed."""
    return Counter(access.array for access in accesses_in(body))


def _sums(loop: Loop, floats: frozenset[str], own: frozenset[str]) -> tuple[Assign, ...] | None:
    """Return what a loop does as sums; None where it does something else.

    Args:
        loop: The loop.
        floats: The names of what holds floats.
        own: Those that nothing outside of the loop looks at.
    """
    ends = loop.range.ends
    if loop.execution != "sequential" or not loop.body:
        return None
    if any(lets(end) for end in ends):
        return None
    written = [t.array for node in loop.body if isinstance(node, Assign) for t in node.targets]
    found: list[Assign] = []
    known: dict[Access, Value] = {}
    for named in loop.body:
        node = named
        if isinstance(node, Assign):
            values = tuple(cells_put_in(value, known) for value in node.values)
            node = replace(node, values=values)
        match node:
            case Assign(targets=(Access(name, ()) as target,), values=(value,)) if (
                name in own and not target.rank and not _reads(value, own)
            ):
                known[target] = value
                continue
            case Assign(targets=(target,), values=(Binary("+", Read(read), term),)) if (
                read == target
            ):
                pass
            case _:
                return None
        moves = any(loop.variable in variables(index) for index in target.indices)
        if target.array not in floats or target.rank or moves:
            return None
        if _reads(term, own - {target.array}) or sum(1 for _ in walk_value(term)) > LONGEST:
            return None
        touched = [each.access.array for each in accesses(node)]
        if any(touched.count(name) != 2 * (name == target.array) for name in written):
            return None
        whole = Reduce("sum", (Generator(loop.variable, loop.range, ALWAYS),), term)
        value = Binary("+", Read(target), whole)
        found.append(replace(node, values=(value,), augmented=False))
    return tuple(found)


def _reads(value: Value, names: frozenset[str]) -> bool:
    return any(isinstance(part, Read) and part.access.array in names for part in walk_value(value))
