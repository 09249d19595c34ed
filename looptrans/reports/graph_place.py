"""Where the statements of a drawn graph stand in their rows, and where long edges pass between.

Every row is a list of entries from left to right: statements, the passages of edges that cross the
row, and the two sides of each box. Neighbours keep a distance, and a side is one variable for all
the rows of its box, so what must hold is `x[b] >= x[a] + d` for pairs (a, b). The mean of the
leftmost and of the rightmost solution satisfies that; each entry then moves towards its neighbours
as far as the constraints let it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

NODE_GAP = 30.0
PASSAGE_GAP = 9.0
BOX_PADDING = 16.0
BOX_GAP = 22.0


@dataclass(slots=True)
class Entry:
    """A statement, a passage of an edge, or a side of a box.

    Attributes:
        kind: Which of them.
        number: Of the statement, the edge or the box.
        left: How far it reaches to the left of its x.
        right: How far to the right.
    """

    kind: str
    number: int
    left: float = 0.0
    right: float = 0.0


@dataclass(slots=True)
class Plan:
    """Entries, the rows they stand in, and what pulls on what.

    Attributes:
        entries: All entries; a box side occurs once here and in each row of its box.
        rows: Numbers of entries, from left to right.
        apart: Further constraints (a, b, d).
        links: Pairs of entries an edge joins.
        groups: For each box, the entries that move with it.
    """

    entries: list[Entry]
    rows: list[list[int]]
    apart: list[tuple[int, int, float]] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)


def solve(plan: Plan, sweeps: int) -> list[float]:
    """Return an x for each entry, the smallest being where its left end is at 0."""
    size = len(plan.entries)
    after: list[list[tuple[int, float]]] = [[] for _ in range(size)]
    before: list[list[tuple[int, float]]] = [[] for _ in range(size)]
    for one, two, distance in [*_neighbours(plan), *plan.apart]:
        after[one].append((two, distance))
        before[two].append((one, distance))
    order = _topological(after, before)
    low = [plan.entries[number].left for number in range(size)]
    for number in order:
        for two, distance in after[number]:
            low[two] = max(low[two], low[number] + distance)
    wide = max((low[k] + plan.entries[k].right for k in range(size)), default=0.0)
    high = [wide - plan.entries[number].right for number in range(size)]
    for number in reversed(order):
        for two, distance in after[number]:
            high[number] = min(high[number], high[two] - distance)
    x = [(one + two) / 2 for one, two in zip(low, high, strict=True)]
    if sweeps:
        _relax(plan, x, order, after, before, sweeps)
        leftmost = min((x[k] - plan.entries[k].left for k in range(size)), default=0.0)
        x = [value - leftmost for value in x]
    return x


def _neighbours(plan: Plan) -> list[tuple[int, int, float]]:
    found = []
    for row in plan.rows:
        for one, two in pairwise(row):
            a, b = plan.entries[one], plan.entries[two]
            found.append((one, two, a.right + b.left + _gap(a.kind, b.kind)))
    return found


def _gap(one: str, two: str) -> float:
    kinds = {one, two}
    if "side" in kinds:
        return BOX_GAP if kinds == {"side"} else BOX_PADDING
    return PASSAGE_GAP if "passage" in kinds else NODE_GAP


def _topological(
    after: Sequence[Sequence[tuple[int, float]]], before: Sequence[Sequence[tuple[int, float]]]
) -> list[int]:
    waiting = [len(each) for each in before]
    order = [number for number, count in enumerate(waiting) if not count]
    for number in order:
        for two, _ in after[number]:
            waiting[two] -= 1
            if not waiting[two]:
                order.append(two)
    return order


def _relax(
    plan: Plan,
    x: list[float],
    order: Sequence[int],
    after: Sequence[Sequence[tuple[int, float]]],
    before: Sequence[Sequence[tuple[int, float]]],
    sweeps: int,
) -> None:
    near: list[list[int]] = [[] for _ in x]
    for one, two in plan.links:
        near[one].append(two)
        near[two].append(one)
    openings = {group[0] for group in plan.groups}

    def bounds(number: int, inside: frozenset[int] = frozenset()) -> tuple[float, float]:
        low = max((x[a] + d for a, d in before[number] if a not in inside), default=-1e9)
        high = min((x[b] - d for b, d in after[number] if b not in inside), default=1e9)
        return low, high

    sets = [frozenset(group) for group in plan.groups]
    for sweep in range(sweeps):
        for number in order if sweep % 2 else reversed(order):
            low, high = bounds(number)
            if plan.entries[number].kind == "side":
                wanted = high if number in openings else low
                if abs(wanted) >= 1e9:
                    continue
            elif near[number]:
                wanted = sum(x[other] for other in near[number]) / len(near[number])
            else:
                continue
            x[number] = max(min(wanted, high), low) if low <= high else x[number]
        for inside in sets:
            pulls = [x[b] - x[a] for a in sorted(inside) for b in near[a] if b not in inside]
            if not pulls:
                continue
            ranges = [(*bounds(a, inside), x[a]) for a in sorted(inside)]
            down = max(low - at for low, _, at in ranges)
            up = min(high - at for _, high, at in ranges)
            shift = max(min(sum(pulls) / len(pulls), up), down) if down <= up else 0.0
            for number in inside:
                x[number] += shift
