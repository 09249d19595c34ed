"""Guards that say where a loop ends, put into its range.

    for j in range(0, N):
        if j < n[b]:              ->      for j in range(0, n[b]):
            …                                 …

Only bounds that are read from memory are: a loop that ends where its sequence does visits nothing
beyond, where a guard would be asked in every iteration. Affine guards stay, since blocks of those
are left out when the kernel is written.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.frontend import parse
from looptrans.ir.affine import extremum, is_same, simplified, total
from looptrans.ir.condition import Relation
from looptrans.ir.index import Index, Opaque, Var, opaque_terms, variables
from looptrans.ir.listing import listing
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.source import Source
from looptrans.ir.value import Range


def tightened(program: Program) -> Program:
    """Return a listing whose loops end where guards around their whole bodies say."""

    def change(node: Node) -> tuple[Node, ...]:
        while isinstance(node, Loop):
            tighter = _tightened(program, node)
            if tighter is None:
                break
            node = tighter
        return (node,)

    body = rewritten(program.body, change)
    if body == program.body:
        return program
    return parse(Source(program.source.name, listing(replace(program, body=body))))


def _tightened(program: Program, loop: Loop) -> Loop | None:
    """Return a loop with the guard around its body in its range; None where that is no bound."""
    if len(loop.body) != 1 or loop.range.step != 1 or loop.execution != "sequential":
        return None
    (guard,) = loop.body
    if not isinstance(guard, If) or guard.orelse or guard.label is not None:
        return None
    condition = guard.condition
    if not isinstance(condition, Relation) or condition.left != Var(loop.variable):
        return None
    edge = condition.right
    if not opaque_terms(edge) or loop.variable in variables(edge):
        return None
    start, stop = loop.range.ends
    match condition.op:
        case "<":
            stop = edge if _is_at_most(program, edge, stop) else extremum("min", (stop, edge))
        case ">=":
            start = edge if _is_at_least(program, edge, start) else extremum("max", (start, edge))
        case _:
            return None
    return replace(loop, range=Range(start, stop), body=guard.body)


def _is_at_most(program: Program, edge: Index, stop: Index) -> bool:
    """Tell whether the declared range of an element says that it goes no further."""
    plain = simplified(edge)
    declared = program.array(plain.array).value_range if isinstance(plain, Opaque) else None
    return declared is not None and is_same(declared[1], total(stop, 1))


def _is_at_least(program: Program, edge: Index, start: Index) -> bool:
    """Tell whether the declared range of an element says that it begins no earlier."""
    plain = simplified(edge)
    declared = program.array(plain.array).value_range if isinstance(plain, Opaque) else None
    return declared is not None and is_same(declared[0], start)
