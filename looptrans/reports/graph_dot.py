"""The dependence graph in Graphviz's DOT language."""

from __future__ import annotations

from typing import Final

from looptrans.ir.facts import ComponentReport, DependenceReport
from looptrans.reports.graph import Graph, build_graph, label_lines
from looptrans.reports.style import printable
from looptrans.reports.svg import COLOURS, FRAME, TINT

_STYLE: Final = {"flow": "solid", "anti": "dashed", "output": "dotted"}


def graph_dot(report: DependenceReport, components: ComponentReport) -> str:
    """Return a `digraph`: flow solid, anti dashed, output dotted, carried edges heavy."""
    graph = build_graph(report, components)
    lines = [
        f"digraph {_quoted(graph.name)} {{",
        '    graph [newrank=true, bgcolor="white", fontname="monospace", fontsize=10];',
        '    node [shape=box, style="rounded,filled", fillcolor="white", fontname="monospace", '
        "fontsize=11];",
        '    edge [fontname="monospace", fontsize=9];',
    ]
    boxed = graph.box_of
    opened: set[int] = set()
    for node in graph.order:
        number = boxed.get(node)
        if number is None:
            lines.append(f"    {_node(graph, node)}")
        elif number not in opened:
            opened.add(number)
            box = graph.boxes[number]
            lines.append(f"    subgraph cluster_{number + 1} {{")
            lines.append(f"        label={_quoted(box.title)};")
            lines.append(f'        style="rounded,filled"; color="{FRAME}"; fillcolor="{TINT}";')
            lines += [f"        {_node(graph, member)}" for member in box.members]
            lines.append("    }")
    for edge in graph.edges:
        source = _quoted(graph.nodes[edge.source].label)
        sink = _quoted(graph.nodes[edge.sink].label)
        label = _quoted("\n".join(label_lines(edge)))
        colour = COLOURS[edge.kind]
        width = "2.2" if edge.carried_by else "1"
        lines.append(
            f"    {source} -> {sink} [label={label}, style={_STYLE[edge.kind]}, "
            f'color="{colour}", fontcolor="{colour}", penwidth={width}];'
        )
    return "\n".join([*lines, "}"]) + "\n"


def _node(graph: Graph, node: int) -> str:
    fact = graph.nodes[node]
    label = _quoted(f"{fact.label}\n{fact.text}")
    return f"{_quoted(fact.label)} [label={label}];"


def _quoted(text: str) -> str:
    r"""Return a DOT string: `\` and `"` escaped, entities not read, lines as `\n`."""
    lines = [printable(line) for line in text.split("\n")]
    escaped = [
        line.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for line in lines
    ]
    return '"' + "\\n".join(escaped) + '"'
