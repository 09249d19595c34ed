"""The dependence graph as an SVG picture, drawn without any other program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from looptrans.ir.facts import ComponentReport, DependenceReport
from looptrans.reports import svg
from looptrans.reports.graph import Edge, Graph, build_graph, label_lines
from looptrans.reports.graph_layout import (
    LINE,
    SIZE,
    SMALL,
    SMALL_LINE,
    Label,
    Layout,
    edge_label,
    layout,
)
from looptrans.reports.graph_route import (
    Point,
    Rectangle,
    Route,
    Rows,
    box_rectangle,
    route,
    self_places,
    statement_rectangle,
)
from looptrans.reports.style import shorten
from looptrans.reports.svg import number
from looptrans.reports.words import counted

MARGIN: Final = 28.0
RADIUS: Final = 9.0
MOST_STATEMENTS: Final = 120
MOST_EDGES: Final = 400


def graph_svg(report: DependenceReport, components: ComponentReport) -> str:
    """Draw the dependence graph: rows in the order of the condensation, cycles boxed.

    Raises:
        ValueError: The graph is too large for a picture anybody could read.
    """
    graph = build_graph(report, components)
    if len(graph.nodes) > MOST_STATEMENTS or len(graph.edges) > MOST_EDGES:
        raise ValueError(
            f"a picture holds up to {MOST_STATEMENTS} statements and {MOST_EDGES} edges, this "
            f"graph has {len(graph.nodes)} and {len(graph.edges)}; use the text, JSON or DOT format"
        )
    plan = layout(graph)
    rows, routes = route(graph, plan)
    edges, labels = _edges(graph, routes)
    loops, loop_labels = _self_loops(graph, plan, rows)
    frames, titles = _frames(graph, plan, rows)
    nodes = [_node(graph, plan, rows, node) for node in range(len(graph.nodes))]
    kinds = [kind for kind in svg.KINDS if any(edge.kind == kind for edge in graph.edges)]
    note = "heavy: carried by a loop" if any(edge.carried_by for edge in graph.edges) else ""
    spread = [each.place for each in routes]
    left = min([plan.left, *(place[0] for place in spread)]) - MARGIN
    right = max([plan.right, *(place[0] + place[2] for place in spread)]) + MARGIN
    bottom = max(rows.bottom, default=0.0) + 54
    key, key_width = svg.legend(0.0, bottom, kinds, note)
    name = shorten(f"Dependence graph of {report.program}", 90)
    heading = svg.text(0.0, -44.0, name, 14, font_weight="bold")
    right = max(right, left + 2 * MARGIN + max(key_width, svg.text_width(name, 14)))
    body = [
        f'<g transform="translate({number(-left)},74)">',
        f'<g transform="translate({number(left + MARGIN)},0)">{heading}{"".join(key)}</g>',
        *frames,
        *edges,
        *loops,
        *titles,
        *nodes,
        *labels,
        *loop_labels,
        "</g>",
    ]
    count = f"{counted(len(graph.nodes), 'statement')}, {counted(len(graph.edges), 'edge')}"
    return svg.picture(right - left, bottom + 74 + 26, name, count, body)


def _node(graph: Graph, plan: Layout, rows: Rows, node: int) -> str:
    fact, shape = graph.nodes[node], plan.shapes[node]
    left, top, right, bottom = statement_rectangle(plan, rows, node)
    parts = [
        svg.title(f"{fact.label}, line {fact.line}\n{fact.text}"),
        svg.element(
            "rect",
            x=left,
            y=top,
            width=right - left,
            height=bottom - top,
            rx=5,
            fill="#ffffff",
            stroke=svg.INK,
            stroke_width=1.1,
        ),
        svg.text(left + 9, top + 17, shape.head, SIZE, font_weight="bold"),
        svg.text(right - 9, top + 17, shape.loops, SMALL, svg.FAINT, text_anchor="end"),
    ]
    for place, line in enumerate(shape.lines):
        parts.append(svg.text(left + 9, top + 17 + LINE * (place + 1), line, SIZE))
    return svg.element("g", "".join(parts), class_="statement")


def _edges(graph: Graph, routes: tuple[Route, ...]) -> tuple[list[str], list[str]]:
    drawn, labels = [], []
    for each in routes:
        edge = graph.edges[each.edge]
        path = _rounded(each.points)
        drawn.append(_curve(graph, edge, path))
        labels.append(_label(edge, each.label, each.place))
    return drawn, labels


def _self_loops(graph: Graph, plan: Layout, rows: Rows) -> tuple[list[str], list[str]]:
    drawn, labels = [], []
    for node, shape in enumerate(plan.shapes):
        right = statement_rectangle(plan, rows, node)[2]
        reach = min(7.0, shape.height / (4 * max(len(shape.selves), 1)))
        places = self_places(plan, rows, node)
        for edge, (y, place) in zip(shape.selves, places, strict=True):
            path = f"M{svg.point((right, y - reach))} C{svg.point((right + 30, y - reach - 5))} "
            path += f"{svg.point((right + 30, y + reach + 1))} {svg.point((right + 8, y + reach))}"
            drawn.append(_curve(graph, edge, path))
            labels.append(_label(edge, edge_label(edge), place))
    return drawn, labels


def _curve(graph: Graph, edge: Edge, path: str) -> str:
    names = f"{graph.nodes[edge.source].label} → {graph.nodes[edge.sink].label}  {edge.kind}"
    return svg.element(
        "path",
        svg.title("\n".join([names, *label_lines(edge)])),
        d=path,
        **svg.line_style(edge.kind, bool(edge.carried_by)),
        marker_end=f"url(#lt-{edge.kind})",
        class_=f"edge {edge.kind}",
    )


def _label(edge: Edge, label: Label, place: Rectangle) -> str:
    x, y, width, height = place
    parts = [
        svg.element(
            "rect",
            x=x,
            y=y,
            width=width,
            height=height,
            rx=3,
            fill=svg.PAPER,
            fill_opacity="0.9",
        )
    ]
    for step, line in enumerate(label.lines):
        baseline = y + SMALL_LINE * (step + 1) - 2
        parts.append(svg.text(x + 3, baseline, line, SMALL, svg.COLOURS[edge.kind]))
    return svg.element("g", "".join(parts), class_="label")


def _frames(graph: Graph, plan: Layout, rows: Rows) -> tuple[list[str], list[str]]:
    frames, titles = [], []
    for place, box in enumerate(graph.boxes):
        left, top, right, bottom = box_rectangle(plan, rows, box.members, place)
        frames.append(
            svg.element(
                "rect",
                x=left,
                y=top,
                width=right - left,
                height=bottom - top,
                rx=10,
                fill=svg.TINT,
                stroke=svg.FRAME,
                stroke_width=1.2,
                class_="cycle",
            )
        )
        room = svg.text_width(box.title, SMALL) + 8
        shade = svg.element(
            "rect", x=left + 8, y=top + 3, width=room, height=16.0, rx=3, fill=svg.TINT
        )
        written = svg.text(left + 12, top + 15, box.title, SMALL, svg.FAINT, font_weight="bold")
        titles.append(shade + written)
    return frames, titles


def _rounded(points: Sequence[Point]) -> str:
    """Return a path along the corners, rounding each."""
    path = f"M{svg.point(points[0])}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        enter, leave = _towards(corner, before), _towards(corner, after)
        if enter != corner != leave:
            path += f" L{svg.point(enter)} Q{svg.point(corner)} {svg.point(leave)}"
    return f"{path} L{svg.point(points[-1])}"


def _towards(corner: Point, other: Point) -> Point:
    """Return the point where the rounding of a corner begins; pieces are level or upright."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    reach = min(RADIUS, length / 2) / length if length > 0.05 else 0.0
    return corner[0] + dx * reach, corner[1] + dy * reach
