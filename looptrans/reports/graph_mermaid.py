"""The dependence graph as a Mermaid flowchart."""

from __future__ import annotations

import re
from typing import Final

from looptrans.ir.facts import ComponentReport, DependenceReport
from looptrans.reports.graph import Graph, build_graph, label_lines
from looptrans.reports.style import printable
from looptrans.reports.svg import COLOURS

_ARROW: Final = {"flow": "-->", "anti": "-.->", "output": "-.->"}
_DASHES: Final = {"flow": "0", "anti": "7 4", "output": "2 4"}
_SPECIAL: Final = re.compile(r"""["&<>#;\\|`%*$]""")
_PLAIN_NAME: Final = re.compile(r"[SG][0-9]+")


def graph_mermaid(report: DependenceReport, components: ComponentReport) -> str:
    """Return a `flowchart TD`: flow solid, anti dashed, output dotted, carried edges heavy."""
    graph = build_graph(report, components)
    lines = ["flowchart TD"]
    boxed = graph.box_of
    opened: set[int] = set()
    for node in graph.order:
        number = boxed.get(node)
        if number is None:
            lines.append(f"    {_node(graph, node)}")
        elif number not in opened:
            opened.add(number)
            box = graph.boxes[number]
            lines.append(f'    subgraph scc{number + 1}["{_escaped(box.title)}"]')
            lines += [f"        {_node(graph, member)}" for member in box.members]
            lines.append("    end")
    for edge in graph.edges:
        label = "<br/>".join(_escaped(line) for line in label_lines(edge))
        source, sink = _name(graph, edge.source), _name(graph, edge.sink)
        lines.append(f'    {source} {_ARROW[edge.kind]}|"{label}"| {sink}')
    for kind in ("flow", "anti", "output"):
        for heavy in (False, True):
            numbers = [
                str(number)
                for number, edge in enumerate(graph.edges)
                if edge.kind == kind and bool(edge.carried_by) == heavy
            ]
            if numbers:
                lines.append(
                    f"    linkStyle {','.join(numbers)} stroke:{COLOURS[kind]},"
                    f"stroke-width:{3 if heavy else 1}px,stroke-dasharray:{_DASHES[kind]}"
                )
    return "\n".join(lines) + "\n"


def _name(graph: Graph, node: int) -> str:
    label = graph.nodes[node].label
    return label if _PLAIN_NAME.fullmatch(label) else f"n{node + 1}"


def _node(graph: Graph, node: int) -> str:
    fact = graph.nodes[node]
    text = "<br/>".join(_escaped(line) for line in [fact.label, *fact.text.split("\n")])
    return f'{_name(graph, node)}["{text}"]'


def _escaped(text: str) -> str:
    """Write what Mermaid, or the Markdown and HTML in its labels, would read as an entity."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", printable(text))
