"""The lines of the edges and the places of their labels.

Between two rows lies a channel. An edge crosses a row on a vertical line, through its passage, and
a channel along a track (`graph_tracks`), so it meets no statement; a channel is as high as its
tracks need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from looptrans.reports.graph import Graph
from looptrans.reports.graph_layout import Label, Layout, edge_label
from looptrans.reports.graph_tracks import Run, assign_tracks

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]

HEAD = 8.0
_LEAD = 12.0
_TITLE = 24.0
_FOOT = 14.0
_LOWEST_CHANNEL = 26.0
_PORT_GAP = 15.0


@dataclass(frozen=True, slots=True)
class Route:
    """An edge's line, from its source to where the arrow head begins, and its label.

    Attributes:
        edge: Number of the edge.
        points: The corners.
        label: The label's lines.
        place: The label's rectangle: x, y, width, height.
    """

    edge: int
    points: tuple[Point, ...]
    label: Label
    place: Rectangle


@dataclass(frozen=True, slots=True)
class Rows:
    """Top and bottom of each row."""

    top: tuple[float, ...]
    bottom: tuple[float, ...]


def route(graph: Graph, layout: Layout) -> tuple[Rows, tuple[Route, ...]]:
    """Find the heights of the channels, the lines and the places of the labels."""
    count = max(layout.row, default=0) + 1
    ports = _ports(graph, layout)
    labels = [edge_label(edge) for edge in graph.edges]
    channels: list[list[Run]] = [[] for _ in range(count - 1)]
    runs: dict[int, list[Run]] = {}
    carriers: dict[int, int] = {}
    for k, edge in enumerate(graph.edges):
        if edge.source == edge.sink:
            continue
        first = min(layout.row[edge.source], layout.row[edge.sink])
        xs = [ports[k, "bottom"], *layout.passages.get(k, ()), ports[k, "top"]]
        runs[k] = [Run(k, one, two) for one, two in pairwise(xs)]
        carriers[k] = _carrier(runs[k], first, channels, labels[k])
        runs[k][carriers[k]].width = labels[k].width
        runs[k][carriers[k]].height = labels[k].height
        for step, run in enumerate(runs[k]):
            channels[first + step].append(run)
    heights = [assign_tracks(channel) for channel in channels]
    rows, starts = _rows(graph, layout, heights)
    routes = []
    for k, pieces in runs.items():
        edge = graph.edges[k]
        upper, lower = sorted((edge.source, edge.sink), key=lambda node: layout.row[node])
        points = [(pieces[0].upper, statement_rectangle(layout, rows, upper)[3])]
        for step, run in enumerate(pieces):
            y = starts[layout.row[upper] + step] + run.y
            points += [(run.upper, y), (run.lower, y)]
        points.append((pieces[-1].lower, statement_rectangle(layout, rows, lower)[1]))
        run = pieces[carriers[k]]
        middle = starts[layout.row[upper] + carriers[k]] + run.y
        place = (run.label - run.width / 2, middle - run.height / 2, run.width, run.height)
        down = edge.source == upper
        ordered = points if down else points[::-1]
        x, y = ordered[-1]
        tip = (x, y - HEAD if down else y + HEAD)
        routes.append(Route(k, (*ordered[:-1], tip), labels[k], place))
    return rows, tuple(routes)


def _carrier(
    runs: Sequence[Run], first: int, channels: Sequence[Sequence[Run]], label: Label
) -> int:
    """Return the piece of an edge that has most room for its label, in the emptier channel."""

    def room(step: int) -> float:
        run = runs[step]
        crowd = sum(other.height for other in channels[first + step])
        return min(abs(run.upper - run.lower) / label.width, 1.0) - crowd / 200

    return max(range(len(runs)), key=lambda step: (room(step), -step))


def _ports(graph: Graph, layout: Layout) -> dict[tuple[int, str], float]:
    """Return the x at which an edge leaves its upper end and reaches its lower end."""
    ends: dict[tuple[int, str], list[tuple[float, int]]] = {}
    for k, edge in enumerate(graph.edges):
        if edge.source == edge.sink:
            continue
        upper, lower = sorted((edge.source, edge.sink), key=lambda node: layout.row[node])
        passing = layout.passages.get(k, ())
        first = passing[0] if passing else layout.x[lower]
        last = passing[-1] if passing else layout.x[upper]
        ends.setdefault((upper, "bottom"), []).append((first, k))
        ends.setdefault((lower, "top"), []).append((last, k))
    comings: dict[int, list[tuple[float, int]]] = {}
    goings: dict[int, list[tuple[float, int]]] = {}
    for k, passing in layout.passages.items():
        first_row = min(layout.row[graph.edges[k].source], layout.row[graph.edges[k].sink]) + 1
        for step, x in enumerate(passing):
            goings.setdefault(first_row + step - 1, []).append((x, k))
            comings.setdefault(first_row + step, []).append((x, k))
    found: dict[tuple[int, str], float] = {}
    for node, side in sorted(ends, key=lambda key: (key[1], key[0])):
        edges = ends[node, side]
        gap = min(_PORT_GAP, (layout.shapes[node].width - 14) / len(edges))
        start = layout.x[node] - gap * (len(edges) - 1) / 2
        wanted = [(start + gap * place, k) for place, (_, k) in enumerate(sorted(edges))]
        channel = layout.row[node] if side == "bottom" else layout.row[node] - 1
        shift = _shift(wanted, (goings if side == "bottom" else comings).get(channel, []))
        for x, k in wanted:
            found[k, side] = x + shift
            if side == "bottom":
                comings.setdefault(channel, []).append((x + shift, k))
    return found


def _shift(ports: Sequence[tuple[float, int]], others: Sequence[tuple[float, int]]) -> float:
    """Return how far to move ports so that no line runs along another's in the same channel."""

    def meetings(shift: float) -> int:
        return sum(abs(x + shift - at) < 4 and k != other for x, k in ports for at, other in others)

    return min((0.0, 5.0, -5.0), key=lambda shift: (meetings(shift), abs(shift), -shift))


def _rows(graph: Graph, layout: Layout, heights: Sequence[float]) -> tuple[Rows, tuple[float, ...]]:
    """Return the rows and the tops of the channels' tracks."""
    count = len(heights) + 1
    tall = [0.0] * count
    for node, shape in enumerate(layout.shapes):
        tall[layout.row[node]] = max(tall[layout.row[node]], shape.tall)
    spans = [[layout.row[member] for member in box.members] for box in graph.boxes]
    opens = {min(span) for span in spans}
    closes = {max(span) for span in spans}
    top, bottom, starts = [0.0], [tall[0]], []
    for r, height in enumerate(heights):
        start = bottom[-1] + _LEAD + (_FOOT if r in closes else 0)
        slack = max(_LOWEST_CHANNEL - height, 0.0)
        starts.append(start + slack / 2)
        top.append(start + slack + height + _LEAD + (_TITLE if r + 1 in opens else 0))
        bottom.append(top[-1] + tall[r + 1])
    return Rows(tuple(top), tuple(bottom)), tuple(starts)


def statement_rectangle(layout: Layout, rows: Rows, node: int) -> Rectangle:
    """Return left, top, right and bottom of a statement."""
    shape = layout.shapes[node]
    r = layout.row[node]
    middle = (rows.top[r] + rows.bottom[r]) / 2
    x = layout.x[node]
    half = shape.width / 2
    return x - half, middle - shape.height / 2, x + half, middle + shape.height / 2


def self_places(layout: Layout, rows: Rows, node: int) -> list[tuple[float, Rectangle]]:
    """Return, for each self dependence, the y of its loop and the rectangle of its label."""
    shape = layout.shapes[node]
    _, top, right, bottom = statement_rectangle(layout, rows, node)
    labels = [edge_label(edge) for edge in shape.selves]
    total = sum(label.height for label in labels) + 8 * (len(labels) - 1)
    y = (top + bottom) / 2 - total / 2
    room = (bottom - top) / max(len(labels), 1)
    found = []
    for place, label in enumerate(labels):
        at = top + room * (place + 0.5)
        found.append((at, (right + 28, y, label.width, label.height)))
        y += label.height + 8
    return found


def box_rectangle(layout: Layout, rows: Rows, box: Sequence[int], number: int) -> Rectangle:
    """Return left, top, right and bottom of a box."""
    left, right = layout.sides[number]
    top = rows.top[min(layout.row[member] for member in box)] - _TITLE - 4
    bottom = rows.bottom[max(layout.row[member] for member in box)] + _FOOT
    return left, top, right, bottom
