"""The dependence graph and its components as text: each statement with the edges that leave it.

A line style says the kind (solid flow, dashed anti, dotted output), a heavy line that a loop
carries the dependence; statements of one cycle stand in a box.
"""

from __future__ import annotations

from typing import Final

from looptrans.ir.facts import ComponentReport, DependenceReport
from looptrans.reports.graph import Box, Edge, Graph, build_graph, carried
from looptrans.reports.style import PLAIN, WIDTH, Style, block, columns, pad, paragraph, printable
from looptrans.reports.text_dependences import notes
from looptrans.reports.words import counted, listed

_ARROWS: Final = {
    ("flow", False): "──▶",
    ("anti", False): "╌╌▶",
    ("output", False): "┈┈▶",
    ("flow", True): "━━▶",
    ("anti", True): "╍╍▶",
    ("output", True): "┉┉▶",
}
_INSIDE: Final = WIDTH - 4


def graph_text(report: DependenceReport, components: ComponentReport, style: Style = PLAIN) -> str:
    """Return the graph as an adjacency list in condensation order, cycles boxed."""
    graph = build_graph(report, components)
    nodes, edges = counted(len(graph.nodes), "statement"), counted(len(graph.edges), "edge")
    heads = paragraph(f"Dependence graph of {printable(graph.name)}: {nodes}, {edges}")
    lines = [style.paint("bold", line) for line in heads]
    kinds = [
        kind for kind in ("flow", "anti", "output") if any(e.kind == kind for e in graph.edges)
    ]
    if kinds:
        key = [f"{_ARROWS[kind, False]} {kind}" for kind in kinds]
        lines.append("  ".join([*key, "heavy: carried by a loop"]))
    leaving: dict[int, list[Edge]] = {}
    for edge in graph.edges:
        leaving.setdefault(edge.source, []).append(edge)
    boxes = {box.members[0]: box for box in graph.boxes}
    boxed = {member for box in graph.boxes for member in box.members}
    for node in graph.order:
        if node in boxes:
            lines += ["", *_box(graph, boxes[node], leaving, style)]
        elif node not in boxed:
            lines += ["", *_statement(graph, node, leaving.get(node, []), style)]
    return block([*lines, *notes(report, style)])


def components_text(report: ComponentReport, style: Style = PLAIN) -> str:
    """Return the strongly connected components, in condensation order."""
    return block(component_lines(report, style))


def component_lines(report: ComponentReport, style: Style = PLAIN) -> list[str]:
    """Return a line for each component; a cycle says which loops carry it."""
    graph = "flow" if report.graph == "flow" else "whole"
    number = counted(len(report.components), "strongly connected component")
    heading = f"{number} of the {graph} dependence graph, in order"
    if report.unknown is not None and not report.components:
        heading = f"the components of the {graph} dependence graph are not known"
    lines = [style.paint("bold", heading)]
    names = [", ".join(printable(name) for name in c.statements) for c in report.components]
    width = min(max((columns(name) for name in names), default=0) + 2, 44)
    digits = len(str(len(names)))
    for place, (component, name) in enumerate(zip(report.components, names, strict=True), 1):
        lead = f"  {place:{digits}}  "
        if component.carried_by:
            tail = f"  cycle carried by {listed(component.carried_by)}"
        elif len(component.statements) > 1:
            tail = "  cycle"
        else:
            tail = ""
        if columns(name) + 2 <= width and columns(lead + tail) + width <= WIDTH:
            lines.append(f"{lead}{pad('{' + name + '}', width)}{tail}".rstrip())
        else:
            lines += paragraph(f"{{{name}}}{tail}", lead)
    if report.unknown is not None:
        lines += paragraph(f"The answer is incomplete: {report.unknown}")
    return lines


def _box(graph: Graph, box: Box, leaving: dict[int, list[Edge]], style: Style) -> list[str]:
    inner: list[tuple[str, str]] = []
    for place, member in enumerate(box.members):
        if place:
            inner.append(("", ""))
        plain = _statement(graph, member, leaving.get(member, []), PLAIN)
        dressed = _statement(graph, member, leaving.get(member, []), style)
        inner += zip(plain, dressed, strict=True)
    title = paragraph(box.title, width=_INSIDE - 4)[0]
    width = max(columns(title) + 3, *(columns(plain) for plain, _ in inner))
    top = f"╭─ {title} {'─' * (width - columns(title) - 1)}╮"
    middle = [f"│ {dressed}{' ' * (width - columns(plain))} │" for plain, dressed in inner]
    return [top, *middle, f"╰{'─' * (width + 2)}╯"]


def _statement(graph: Graph, node: int, edges: list[Edge], style: Style) -> list[str]:
    fact = graph.nodes[node]
    label = printable(fact.label)
    lines = paragraph(fact.text, f"{label}  ", width=_INSIDE)
    if style.colour:
        lines[0] = style.paint("bold", label) + lines[0][len(label) :]
    width = max((columns(printable(graph.nodes[edge.sink].label)) for edge in edges), default=0)
    for edge in edges:
        sink = pad(printable(graph.nodes[edge.sink].label), min(width, 12))
        arrow = _ARROWS[edge.kind, bool(edge.carried_by)]
        kind = f"{edge.kind} (may)" if edge.may else edge.kind
        loops = f"  {carried(edge)}" if edge.carried_by else ""
        first = f"    {arrow} {sink}  {kind:<6}  "
        found = paragraph(f"{', '.join(edge.lines)}{loops}", first, width=_INSIDE)
        if style.colour:
            found[0] = found[0].replace(arrow, style.paint(edge.kind, arrow), 1)
        lines += found
    return lines
