"""Sums that are worked out twice, and tested against the largest of them.

    for b: top = max(top, sum(q[e] * c[b, e] for e))
    for b: w = 1.0 if sum(q[e] * c[b, e] for e) >= top else 0.0

In a listing the largest is one of them. Kernels may add their terms in another order the second
time, and then it is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.ir.condition import Condition, Data, Every, Not, Some
from looptrans.ir.program import Assign, If, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Compare, Read, Reduce, Select, Value, walk_value
from looptrans.ir.walk import Placed, placed


def notes_on_tests(program: Program) -> tuple[str, ...]:
    """Return a note for each statement that tests such a sum.

    Args:
        program: A nest that kernels are made of.
    """
    work = _Tests(program)
    found: dict[str, None] = {}
    for site in placed(program):
        for test in _tests_of(site.node):
            for extremum in work.extrema_of(test, site):
                found[
                    f"{site.label} tests a sum that is worked out again against {extremum}, the "
                    "largest or smallest of such sums: a rounding may decide; an array that keeps "
                    "the sums, and is returned, settles it"
                ] = None
    return tuple(found)


def _tests_of(node: Assign | If) -> Iterator[Compare]:
    """Yield the comparisons of values that a statement, or the condition of a guard, makes."""
    if isinstance(node, If):
        yield from _comparisons(node.condition)
        return
    for value in node.values:
        for part in walk_value(value):
            if isinstance(part, Compare):
                yield part
            elif isinstance(part, Select):
                yield from _comparisons(part.condition)


def _comparisons(condition: Condition) -> Iterator[Compare]:
    match condition:
        case Data(value):
            yield from (part for part in walk_value(value) if isinstance(part, Compare))
        case Every(parts) | Some(parts):
            for part in parts:
                yield from _comparisons(part)
        case Not(part):
            yield from _comparisons(part)
        case _:
            return


@dataclass(slots=True)
class _Tests:
    program: Program
    offered: dict[str, list[tuple[Value, Placed]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for site in placed(self.program):
            if not isinstance(site.node, Assign) or len(site.node.targets) != 1:
                continue
            ((cell,), (value,)) = site.node.targets, site.node.values
            update = accumulation(cell, value)
            if update is not None and update[0] != "sum":
                opened = self._opened(update[1], site)
                if any(isinstance(p, Reduce) and p.function == "sum" for p in walk_value(opened)):
                    self.offered.setdefault(cell.array, []).append((opened, site))

    def extrema_of(self, test: Compare, site: Placed) -> Iterator[str]:
        """Yield the extrema that a comparison holds one of their elements against."""
        for one, other in ((test.left, test.right), (test.right, test.left)):
            if not isinstance(one, Read):
                continue
            for offered, place in self.offered.get(one.access.array, ()):
                same_loop = place.loop_positions[-1:] == site.loop_positions[-1:]
                if not same_loop and self._opened(other, site) == offered:
                    yield one.access.array

    def _opened(self, value: Value, site: Placed) -> Value:
        """Return a value with the scalars put in that the iterations around it have set before."""
        known: dict[str, Value] = {}
        for each in placed(self.program):
            block = each.position[:-1]
            if each.position >= site.position or site.position[: len(block)] != block:
                continue
            if isinstance(each.node, Assign):
                for target, own in zip(each.node.targets, each.node.values, strict=False):
                    if not target.subscripts:
                        known[target.array] = _put_in(own, known)
        return _put_in(value, known)


def _put_in(value: Value, known: dict[str, Value]) -> Value:
    def change(part: Value) -> Value | None:
        return known.get(part.access.array) if isinstance(part, Read) else None

    return replaced(value, change)
