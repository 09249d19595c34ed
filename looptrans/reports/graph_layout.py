"""A layered layout of the dependence graph: rows, places in a row, passages of long edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final

from looptrans.ir.facts import StatementFact
from looptrans.reports.graph import Edge, Graph, label_lines
from looptrans.reports.graph_order import pairs, rows, sequence
from looptrans.reports.graph_place import Entry, Plan, solve
from looptrans.reports.style import columns, printable, shorten, wrap
from looptrans.reports.svg import text_width

SIZE: Final = 12.0
SMALL: Final = 10.5
LINE: Final = 16.0
SMALL_LINE: Final = 13.0
LOOP_REACH: Final = 30.0
_TEXT_COLUMNS: Final = 28
_TEXT_LINES: Final = 3
_LABEL_COLUMNS: Final = 26


@dataclass(frozen=True, slots=True)
class Label:
    """The lines beside an edge and the room they take."""

    lines: tuple[str, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Shape:
    """A statement as it is drawn.

    Attributes:
        head: Its label.
        loops: The loops around it, as `i, j`.
        lines: Its text, broken into lines.
        width: Of the rectangle.
        height: Of the rectangle.
        selves: Its self dependences, drawn at its right side from the top down.
    """

    head: str
    loops: str
    lines: tuple[str, ...]
    width: float
    height: float
    selves: tuple[Edge, ...]

    @property
    def reach(self) -> float:
        """How far it reaches beyond its right side."""
        widths = [edge_label(edge).width for edge in self.selves]
        return LOOP_REACH + max(widths) if widths else 0.0

    @property
    def tall(self) -> float:
        """The height of the row it needs."""
        return max(self.height, sum(edge_label(edge).height + 8 for edge in self.selves))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything stands from left to right, and in which row.

    Attributes:
        shapes: The statements.
        row: The row of each.
        x: The middle of each rectangle.
        passages: For each edge that crosses rows, the x at which it passes each, from the top.
        sides: The left and right side of each box.
        left: The leftmost x in use.
        right: The rightmost.
    """

    shapes: tuple[Shape, ...]
    row: tuple[int, ...]
    x: tuple[float, ...]
    passages: dict[int, tuple[float, ...]]
    sides: tuple[tuple[float, float], ...]
    left: float
    right: float


def edge_label(edge: Edge) -> Label:
    """Break the label of an edge into short lines and measure it."""
    lines: list[str] = []
    for line in label_lines(edge):
        broken = wrap(line, _LABEL_COLUMNS)
        lines += [*broken[:3], "…"] if len(broken) > 4 else broken
    if len(lines) > 8:
        lines = [*lines[:7], f"… {len(lines) - 7} more"]
    width = max(text_width(line, SMALL) for line in lines) + 6
    return Label(tuple(lines), width, len(lines) * SMALL_LINE + 3)


def layout(graph: Graph) -> Layout:
    """Lay a graph out; the same graph always gives the same numbers."""
    selves: dict[int, list[Edge]] = {}
    for edge in graph.edges:
        if edge.source == edge.sink:
            selves.setdefault(edge.source, []).append(edge)
    shapes = [_shape(fact, selves.get(node, [])) for node, fact in enumerate(graph.nodes)]
    row = rows(graph)
    joined = pairs(graph)

    def cost(tried: Sequence[int]) -> float:
        plan = _plan(graph, shapes, row, tried)
        return _tangle(graph, joined, shapes, row, solve(plan, 0))

    left_to_right = sequence(graph, cost)
    plan = _plan(graph, shapes, row, left_to_right)
    plan.links = [pair for pair, weight in joined.items() for _ in range(weight)]
    passing = _add_passages(graph, plan, row, solve(plan, 12))
    x = solve(plan, 40)
    first = len(graph.nodes)
    sides = tuple(
        (x[first + 2 * number], x[first + 2 * number + 1]) for number in range(len(graph.boxes))
    )
    used = range(len(plan.entries))
    return Layout(
        tuple(shapes),
        tuple(row),
        tuple(x[:first]),
        {edge: tuple(x[entry] for entry in entries) for edge, entries in passing.items()},
        sides,
        min((x[k] - plan.entries[k].left for k in used), default=0.0),
        max((x[k] + plan.entries[k].right for k in used), default=0.0),
    )


def _shape(fact: StatementFact, selves: Sequence[Edge]) -> Shape:
    lines: list[str] = []
    for part in fact.text.split("\n"):
        lines += wrap(printable(part), _TEXT_COLUMNS)
    if len(lines) > _TEXT_LINES:
        last = shorten(f"{lines[_TEXT_LINES - 1]} …", _TEXT_COLUMNS)
        lines = [*lines[: _TEXT_LINES - 1], last]
    head = shorten(printable(fact.label), 14)
    loops = shorten(printable(", ".join(fact.loops)), 14)
    widest = max([columns(head) + columns(loops) + 3, *(columns(line) for line in lines), 9])
    width = text_width("x" * widest, SIZE) + 18
    return Shape(head, loops, tuple(lines), width, (len(lines) + 1) * LINE + 12, tuple(selves))


def _plan(
    graph: Graph, shapes: Sequence[Shape], row: Sequence[int], left_to_right: Sequence[int]
) -> Plan:
    box_of = graph.box_of
    first = len(graph.nodes)
    entries = [
        Entry("statement", node, shape.width / 2, shape.width / 2 + shape.reach)
        for node, shape in enumerate(shapes)
    ]
    plan = Plan(entries, [[] for _ in range(max(row, default=0) + 1)])
    spans = []
    for number, box in enumerate(graph.boxes):
        entries += [Entry("side", number), Entry("side", number)]
        spans.append({row[node] for node in box.members})
        opening = first + 2 * number
        plan.apart.append((opening, opening + 1, text_width(box.title, SMALL) + 24))
        plan.groups.append([opening, opening + 1, *box.members])
    seen: set[int] = set()
    for node in left_to_right:
        number = box_of.get(node, -1)
        if number < 0:
            plan.rows[row[node]].append(node)
        elif number not in seen:
            seen.add(number)
            members = [other for other in left_to_right if box_of.get(other) == number]
            for r in range(min(spans[number]), max(spans[number]) + 1):
                inside = [other for other in members if row[other] == r]
                opening = first + 2 * number
                plan.rows[r] += [opening, *inside, opening + 1]
    return plan


def _tangle(
    graph: Graph,
    joined: dict[tuple[int, int], int],
    shapes: Sequence[Shape],
    row: Sequence[int],
    x: Sequence[float],
) -> float:
    """Weigh crossings, statements that a straight edge would run over, and length."""
    total = 0.0
    lines = [(row[a], x[a], row[b], x[b], weight) for (a, b), weight in joined.items()]
    for top, one, bottom, two, weight in lines:
        total += weight * abs(one - two) / 150
        for node in range(len(graph.nodes)) if bottom - top > 1 else ():
            if top < row[node] < bottom:
                at = one + (two - one) * (row[node] - top) / (bottom - top)
                half = shapes[node].width / 2
                total += weight if abs(at - x[node]) < half else 0
    for (top, a, bottom, b, w1), (above, c, below, d, w2) in combinations(lines, 2):
        low, high = max(top, above), min(bottom, below)
        if low < high:
            one = (b - a) / (bottom - top)
            two = (d - c) / (below - above)
            before = a + one * (low - top) - c - two * (low - above)
            after = a + one * (high - top) - c - two * (high - above)
            total += min(w1 * w2, 3) if before * after < 0 else 0
    return total


def _add_passages(
    graph: Graph, plan: Plan, row: Sequence[int], x: Sequence[float]
) -> dict[int, list[int]]:
    """Put an entry into every row an edge crosses, in the gap nearest to the straight line."""
    box_of = graph.box_of
    found: dict[int, list[int]] = {}
    put: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
    links: list[tuple[int, int]] = []
    for number, edge in enumerate(graph.edges):
        upper, lower = sorted((edge.source, edge.sink), key=lambda node: row[node])
        chain = [upper]
        homes = (box_of.get(upper, -1), box_of.get(lower, -1))
        slope = (x[lower] - x[upper]) / max(row[lower] - row[upper], 1)
        leftwards = _boxes_on_the_right(graph, row, x, (upper, lower), slope)
        for r in range(row[upper] + 1, row[lower]):
            at = x[upper] + slope * (r - row[upper])
            gap = _gap(plan, plan.rows[r], x, at, homes, leftwards)
            entry = len(plan.entries)
            plan.entries.append(Entry("passage", number, 2, 2))
            put.setdefault((r, gap), []).append((at, number, entry))
            if homes[0] == homes[1] >= 0:
                plan.groups[homes[0]].append(entry)
            found.setdefault(number, []).append(entry)
            chain.append(entry)
        if upper != lower:
            chain.append(lower)
            links += pairwise(chain)
    for r, entries in enumerate(plan.rows):
        widened: list[int] = []
        for gap in range(len(entries) + 1):
            widened += [entry for _, _, entry in sorted(put.get((r, gap), []))]
            widened += entries[gap : gap + 1]
        plan.rows[r] = widened
    plan.links = links
    return found


def _boxes_on_the_right(
    graph: Graph, row: Sequence[int], x: Sequence[float], ends: tuple[int, int], slope: float
) -> frozenset[int]:
    """Return the boxes an edge passes on their left, in all of the rows it shares with them."""
    upper, lower = ends
    found = []
    for number, box in enumerate(graph.boxes):
        span = [row[member] for member in box.members]
        shared = [r for r in range(row[upper] + 1, row[lower]) if min(span) <= r <= max(span)]
        if shared:
            mean = sum(x[upper] + slope * (r - row[upper]) for r in shared) / len(shared)
            opening = len(graph.nodes) + 2 * number
            if mean < (x[opening] + x[opening + 1]) / 2:
                found.append(number)
    return frozenset(found)


def _gap(
    plan: Plan,
    entries: Sequence[int],
    x: Sequence[float],
    at: float,
    homes: tuple[int, int],
    leftwards: frozenset[int],
) -> int:
    """Return before which entry of a row an edge passes, keeping to its side of each box."""
    sides = [
        (place, plan.entries[entry].number)
        for place, entry in enumerate(entries)
        if plan.entries[entry].kind == "side"
    ]
    boxes = [(one[0], two[0], one[1]) for one, two in zip(sides[::2], sides[1::2], strict=True)]
    best, least = 0, float("inf")
    for gap in range(len(entries) + 1):
        low = x[entries[gap - 1]] + plan.entries[entries[gap - 1]].right if gap else -1e9
        high = x[entries[gap]] - plan.entries[entries[gap]].left if gap < len(entries) else 1e9
        distance = max(low - at, at - high, 0.0)
        for opening, closing, number in boxes:
            inside = opening < gap <= closing
            if homes[0] == homes[1] == number:
                distance += 0 if inside else 1e6
            elif inside:
                distance += 1e6 if number not in homes else 0
            elif number not in homes and (gap <= opening) != (number in leftwards):
                distance += 1e4
        if distance < least:
            best, least = gap, distance
    return best
