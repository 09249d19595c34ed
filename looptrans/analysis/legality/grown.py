"""A local with an element for each iteration, judged by what each iteration sets for itself.

                                  t = empty(D)
    for d in range(0, D):         for d in range(0, D):
        t = 0.0              ->       t[d] = 0.0
        for j in range(0, n[b]):      for j in range(0, n[b]):
            t = t + x[j, d]               t[d] = t[d] + x[j, d]

Where sources are not followed, it is enough that the programs read the same once the new subscripts
are struck out, and that each iteration of the loop writes the local before it reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.affine import is_same, total
from looptrans.ir.index import Extremum, Index, Int, Var, variables
from looptrans.ir.program import Array, Declaration, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.value import Access, Range
from looptrans.ir.walk import accesses, live_out, placed

Position = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Grown:
    """A local that has more dimensions than before.

    Attributes:
        name: The local.
        more: How many more it has; they come first.
        loops: The positions of the loops each iteration of which has an element.
    """

    name: str
    more: int
    loops: tuple[Position, ...]


def grown_locals(before: Program, after: Program) -> tuple[Grown, ...] | None:
    """Return the locals that have new dimensions; None where other arrays are not the same."""
    found = []
    earlier = {array.name: array for array in before.arrays}
    if set(earlier) != {array.name for array in after.arrays}:
        return None
    for array in after.arrays:
        one = earlier[array.name]
        if (one.rank, one.shape) == (array.rank, array.shape):
            if one.element != array.element:
                return None
            continue
        made = _grown(one, array, after)
        if made is None or array.name in live_out(before):
            return None
        found.append(made)
    return tuple(found)


def _grown(one: Array, array: Array, after: Program) -> Grown | None:
    more = array.rank - one.rank
    kept = array.shape[more:] == one.shape and one.element == array.element
    if more < 1 or not kept or array.role == "input":
        return None
    places: set[tuple[Position, ...]] = set()
    for place in placed(after):
        for access in accesses(place.node):
            if access.access.array != array.name:
                continue
            bound = {g.variable for g in access.generators}
            loops: list[Position] = []
            for subscript, extent in zip(access.access.subscripts, array.shape, strict=False):
                if len(loops) == more:
                    break
                if not isinstance(subscript, Var) or subscript.name in bound or extent is None:
                    return None
                for position, loop in zip(place.loop_positions, place.loops, strict=True):
                    if loop.variable == subscript.name and _is_inside(loop.range, extent):
                        loops.append(position)
                        break
                else:
                    return None
            if len(loops) < more:
                return None
            places.add(tuple(loops))
    if len(places) != 1:
        return None
    return Grown(array.name, more, places.pop())


def _is_inside(bounds: Range, extent: Index) -> bool:
    """Tell whether all iterations of a loop are plainly within an extent."""
    first, end = bounds.ends
    if bounds.step < 0:
        first, end = total(bounds.stop, 1), total(bounds.start, 1)
    fixed = not (set(variables(first)) | set(variables(end)))
    return (
        fixed
        and isinstance(first, Int)
        and first.value >= 0
        and any(is_same(each, extent) for each in (end, _length(end)))
    )


def _length(stop: Index) -> Index:
    """Return how many iterations there are up to a bound that may be negative."""
    return Extremum("max", (Int(0), stop))


def struck_out(body: tuple[Node, ...], found: tuple[Grown, ...]) -> tuple[Node, ...]:
    """Return a block without the new subscripts, and without what creates the locals.

    In the program before, `more` is 0.
    """
    more = {each.name: each.more for each in found}

    def change(access: Access) -> Access:
        return replace(access, subscripts=access.subscripts[more.get(access.array, 0) :])

    def without(node: Node) -> tuple[Node, ...]:
        created = isinstance(node, Declaration) and node.array in more
        return () if created else (node,)

    return rewritten(with_accesses(body, change), without)
