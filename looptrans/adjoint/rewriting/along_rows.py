"""Sums of products, taken along rows: the loop inside goes over what both factors have in rows.

    for e: for h: y[i, c] += O[h, i, e] * W[h, e, c]      ->  for h: for e: y[i, c] += …
    y[o, t] = sum(x[c, t + r] * w[o, c, r] for c for r)   ->  y[o, t] = sum(… for r for c)

The loop inside is the one that a matrix product sums over. So it should be one that every factor
has as a subscript by itself, as a window of a convolution is none, and that is found close to each
other in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.ir.condition import ALWAYS, compared, is_of_indices
from looptrans.ir.index import Int, variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.value import Access, Range, Reduce, Value, Whole, cells_read
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.accesses import listed

FEW = 16
"""A matrix product sums over at least as many."""


@dataclass(frozen=True, slots=True)
class AlongRows:
    """A program whose sums go along rows.

    Attributes:
        program: The program afterwards.
        loops: The variables of the loops that are inside now.
    """

    program: Program
    loops: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"sum over {listed(self.loops)} inside of the other loops of a sum"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "terms may be added up in another order"
        reason = "the loops do nothing else, and none of them says how far another one goes"
        return Certificate("algebra", law, "legal", reason)


def with_sums_along_rows(program: Program) -> AlongRows | None:
    """Bring the loop that suits a matrix product inside of the other loops of its sum.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where all sums are so.
    """
    moved: dict[str, None] = {}

    def turned(part: Value) -> Value | None:
        if not isinstance(part, Reduce) or not _is_free(part):
            return None
        factors = cells_read(part.body)
        *others, last = part.generators
        able = [each for each in reversed(others) if _suits(each.variable, factors)]
        if not able or _suits(last.variable, factors):
            return None
        inside = min(able, key=lambda each: _cost(each.variable, each.range, factors))
        moved[inside.variable] = None
        outside = (each for each in part.generators if each is not inside)
        return replace(part, generators=(*outside, inside))

    def change(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Assign):
            values = tuple(replaced(value, turned) for value in node.values)
            same = all(new is old for new, old in zip(values, node.values, strict=True))
            return (node,) if same else (replace(node, values=values),)
        chain, added = _chain(node)
        loops = [each for each in chain if isinstance(each, Loop)]
        if added is None or len(loops) < 2:
            return (node,)
        factors = [a for a in cells_read(added.values[0]) if a != added.targets[0]]
        guarded = _guarded(chain)
        *others, last = loops
        if len(loops) < len(chain) and _suits(last.variable, factors):
            return (node,)  # inside of its guards it can stay as it is
        able = [last, *(each for each in reversed(others) if each.variable not in guarded)]
        inside = min(able, key=lambda loop: _cost(loop.variable, loop.range, factors))
        if inside is last:
            return (node,)
        moved[inside.variable] = None
        found: Node = added
        for outer in (inside, *(each for each in reversed(chain) if each is not inside)):
            found = replace(outer, body=(found,))
        return (found,)

    body = rewritten(program.body, change)
    return AlongRows(replace(program, body=body), tuple(moved)) if moved else None


def _chain(node: Node) -> tuple[list[Loop | If], Assign | None]:
    """Return loops and guards in each other that add up to one cell, and what they hold alone."""
    chain: list[Loop | If] = []
    while isinstance(node, Loop | If) and len(node.body) == 1:
        if isinstance(node, If):
            able = not node.orelse and is_of_indices(node.condition)
        else:
            able = node.is_plain and node.range.step == 1
        if not able:
            return [], None
        chain.append(node)
        node = node.body[0]
    if not isinstance(node, Assign) or len(node.targets) != 1:
        return [], None
    (target,) = node.targets
    found = accumulation(target, node.values[0])
    if found is None or found[0] != "sum" or found[2] != ALWAYS:
        return [], None
    loops = [each for each in chain if isinstance(each, Loop)]
    names = {loop.variable for loop in loops}
    apart = all(loop.range.variables.isdisjoint(names) for loop in loops)
    is_one = len(names) == len(loops) and names.isdisjoint(target.variables)
    return (chain, node) if apart and is_one else ([], None)


def _guarded(chain: list[Loop | If]) -> set[str]:
    """Return the variables that guards ask about."""
    conditions = [each.condition for each in chain if isinstance(each, If)]
    return {name for c in conditions for index in compared(c) for name in variables(index)}


def _is_free(total: Reduce) -> bool:
    """Tell whether the variables of a sum may come in any order."""
    names = {each.variable for each in total.generators}
    return (
        total.function == "sum"
        and len(names) == len(total.generators) > 1
        and all(
            each.condition == ALWAYS
            and each.range.step == 1
            and each.range.variables.isdisjoint(names)
            for each in total.generators
        )
    )


def _cost(variable: str, bounds: Range, factors: list[Access]) -> tuple[bool, int, int]:
    """Return what speaks against a loop inside, what counts most first."""
    extent = bounds.stop
    few = isinstance(extent, Int) and extent.value < FEW
    places = [_places(variable, access) for access in factors]
    return few, -sum(map(bool, places)), sum(min(each) for each in places if each)


def _suits(variable: str, factors: list[Access]) -> bool:
    """Tell whether a matrix product may sum over a variable: two factors, each has it by itself."""
    having = [access for access in factors if variable in access.variables]
    return len(having) > 1 and all(_places(variable, access) for access in having)


def _places(variable: str, access: Access) -> list[int]:
    """Return how far from the last one subscripts are that hang on one variable alone."""
    return [
        place
        for place, subscript in enumerate(reversed(access.subscripts))
        if not isinstance(subscript, Whole) and set(variables(subscript)) == {variable}
    ]
