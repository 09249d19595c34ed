"""A loop that runs at most once, as a guard.

    for j in range(max(0, i), min(N, i + 1)):     if i < N:
        m = max(m, X[i, j])                 ->        m = max(m, X[i, i])

Nothing goes from one iteration to another, so it would be no fold. What a fold does where it has
seen nothing but -inf is done here as well: see `nothing_seen`.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.derivation.forms.nothing_seen import with_nothing_seen
from looptrans.ir.affine import difference, sides
from looptrans.ir.condition import ALWAYS, Relation, conjunction
from looptrans.ir.index import Index, Int, variables
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.ranges import ranges_in_common
from looptrans.ir.rewrite import with_blocks
from looptrans.ir.walk import loops
from looptrans.transforms.editing.extents import is_never_negative
from looptrans.transforms.editing.naming import binders
from looptrans.transforms.editing.substitute import substitute_variable


def with_loops_at_most_once(program: Program) -> Program:
    """Return a program with a guard in the place of every loop that plainly runs at most once."""
    ranges = ranges_in_common(loops(program))

    def guard(node: Node) -> If | None:
        found = _only(node) if isinstance(node, Loop) else None
        if found is None or not isinstance(node, Loop):
            return None
        only, others = found
        conditions = []
        for relation in others:
            below = relation.op == "<=" and relation.left == Int(0)
            if not (below and is_never_negative(program, only, ranges)):
                conditions.append(relation)
        body = tuple(substitute_variable(inner, {node.variable: only}) for inner in node.body)
        return If(conjunction(*conditions), body, leading=node.leading)

    def block(body: tuple[Node, ...]) -> tuple[Node, ...]:
        inner = with_blocks(body, block)
        guards = {place: made for place, node in enumerate(inner) if (made := guard(node))}
        if not guards:
            return inner
        changed = [guards.get(place, node) for place, node in enumerate(inner)]
        found: list[Node] = []
        for place, node in enumerate(with_nothing_seen(changed, guards)):
            if place in guards and isinstance(node, If) and node.condition == ALWAYS:
                found.extend(node.body)
            else:
                found.append(node)
        return tuple(found)

    return replace(program, body=block(program.body))


def _only(loop: Loop) -> tuple[Index, list[Relation]] | None:
    """Return the only iteration that a loop may have, and when it has it."""
    if loop.execution != "sequential" or loop.range.step != 1:
        return None
    inside = binders(loop)
    starts, stops = sides("max", loop.range.start), sides("min", loop.range.stop)
    for start in starts:
        for stop in stops:
            if isinstance(start, Int) or inside & set(variables(start)):
                continue
            if difference(stop, start) == Int(1):
                others = [Relation("<=", other, start) for other in starts if other != start]
                others += [Relation("<", start, other) for other in stops if other != stop]
                return start, others
    return None
