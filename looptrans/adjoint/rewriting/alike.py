"""Sums that differ only in what their variables are called, written in the same words.

    m = max(m, sum(Q[i, c] * K[j, c] for c in …))         m = max(m, sum(Q[i, e] * K[j, e] for e …))
    for c in range(0, C):                            ->   for c in range(0, C):
        s = sum(Q[i, e] * K[j, e] for e in …)                 s = sum(Q[i, e] * K[j, e] for e in …)

Passes are seen to need the same number where it is written in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.algebra.positional.bound_names import bound, called, nameless, outermost
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.rewrite import replaced, replaced_in_condition, rewritten
from looptrans.ir.value import Reduce, Value, data_of
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import placed
from looptrans.transforms.editing.naming import fresh_name


@dataclass(frozen=True, slots=True)
class Alike:
    """A program whose equal sums are written in the same words.

    Attributes:
        program: The program afterwards.
    """

    program: Program
    text: str = "write sums alike that differ in the names of their variables only"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the variable of a sum is seen in that sum only"
        reason = "no loop or sum around it, and no sum in it, has the new name"
        return Certificate("algebra", law, "legal", reason)


def with_sums_alike(program: Program) -> Alike | None:
    """Write sums, maxima and minima that are equal but for the names of their variables alike."""
    names: dict[Value, dict[tuple[str, ...], None]] = {}
    around: dict[Value, set[str]] = {}
    for place in placed(program):
        node = place.node
        for value in node.values if isinstance(node, Assign) else data_of(node.condition):
            for each in outermost(value):
                plain = nameless(each)
                names.setdefault(plain, {})[tuple(bound(each))] = None
                around.setdefault(plain, set()).update(loop.variable for loop in place.loops)
    chosen = {
        plain: _chosen(program, tuple(found), around[plain])
        for plain, found in names.items()
        if len(found) > 1
    }
    if not chosen:
        return None

    def change(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        plain = nameless(part)
        return called(plain, iter(chosen[plain])) if plain in chosen else part

    def each_node(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign(values=values):
                return (replace(node, values=tuple(replaced(v, change) for v in values)),)
            case If(condition):
                return (replace(node, condition=replaced_in_condition(condition, change)),)
            case _:
                return (node,)

    return Alike(replace(program, body=rewritten(program.body, each_node)))


def _chosen(program: Program, names: tuple[tuple[str, ...], ...], around: set[str]) -> list[str]:
    """Return the first names that no loop around has, or new ones."""
    for each in names:
        if len(set(each)) == len(each) and around.isdisjoint(each):
            return list(each)
    found: list[str] = []
    for name in names[0]:
        found.append(fresh_name(program, name, found))
    return found
