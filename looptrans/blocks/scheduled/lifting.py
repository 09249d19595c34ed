"""Guards that become bounds of the loop around them, so that other blocks are never visited.

for j in range(0, N):                    for j in range(0, min(N, i + 1)):
    if j <= i: …              ->             …

for j in range(0, N):                    for j in range(0, min(N, S)):
    if j < S or i - j < W: …  ->             …
                                         for j in range(max(0, i - W + 1), N):
                                             …
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from looptrans.blocks.scheduled.ranges import Bounds, Ranges, joined
from looptrans.blocks.scheduled.sites import Path
from looptrans.blocks.scheduled.solving import MOST, solved, wholly_apart
from looptrans.ir.condition import Condition, Relation, conjunction
from looptrans.ir.program import Assign, If, Node


@dataclass(frozen=True, slots=True)
class Lifted:
    """A guard whose comparisons became bounds of the loop around it.

    Attributes:
        path: Its place, seen from the body of the loop.
        rest: What it still has to test.
    """

    path: Path
    rest: Condition


def lifted(
    variable: str, bounds: Bounds, body: tuple[Node, ...], pure: Iterable[str]
) -> tuple[Ranges, tuple[Lifted, ...]]:
    """Make what every iteration with an effect is guarded by part of the bounds.

    Of guards inside one another, each may give bounds.

    Args:
        variable: The variable of the loop.
        bounds: Its bounds.
        body: Its body.
        pure: Names that statements of the body may set for the iteration alone.
    """
    found: list[Lifted] = []
    ranges = Ranges(bounds)
    path: Path = ()
    names = set(pure)
    while (number := _guard(body, names)) is not None:
        guard = body[number]
        assert isinstance(guard, If)
        path = (*path, number)
        ranges, rest = narrowed(variable, ranges, guard.condition)
        if rest != guard.condition:
            found.append(Lifted(path, rest))
        path, body = (*path, 1), guard.body
    return ranges, tuple(found)


def narrowed(variable: str, ranges: Ranges, condition: Condition) -> tuple[Ranges, Condition]:
    """Return the part of some ranges where a condition holds, and what is still to be tested.

    Args:
        variable: The variable.
        ranges: What it is in.
        condition: The condition.
    """
    rest: list[Condition] = []
    parts = wholly_apart(condition)
    # Of alternatives those count that the others leave.
    for part in sorted(parts, key=lambda part: not isinstance(part, Relation)):
        own = solved(variable, part, ranges.common)
        narrower = None if own is None else _in_both(ranges, own)
        if narrower is None:
            rest.append(part)
        else:
            ranges = narrower
    return ranges, conjunction(*(part for part in parts if part in rest))


def _in_both(ranges: Ranges, own: tuple[Bounds, ...]) -> Ranges | None:
    """Return what is in some ranges and in some others too; None where it is too many."""
    if len(own) == 1:
        found = Ranges(joined(ranges.common, own[0]), ranges.apart).reduced()
    else:
        both = tuple(joined(a, b) for a, b in product(ranges.apart, own))
        found = Ranges(ranges.common, both).reduced()
    return None if len(found.apart) > MOST else found


def _guard(body: tuple[Node, ...], pure: set[str]) -> int | None:
    """Return which node of a body guards everything in it that has an effect."""
    guards = [number for number, node in enumerate(body) if isinstance(node, If)]
    if len(guards) != 1:
        return None
    guard = body[guards[0]]
    assert isinstance(guard, If)
    others = [node for node in body if not isinstance(node, If)]
    if guard.orelse or not all(
        isinstance(n, Assign) and {t.array for t in n.targets} <= pure for n in others
    ):
        return None
    return guards[0]
