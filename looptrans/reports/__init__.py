"""Facts to text: tables, JSON, Mermaid, DOT and SVG of what the layers below found out.

asked from outside        render, style, contract
words all of them share   words, verdict_words, verdict_place
as text                   text_report, text_dependences, text_graph, text_verdicts, verdict_text,
                          stages, derivation, backward
as JSON                   program, verdict_document
the graph as a picture    graph, graph_mermaid, graph_dot, graph_svg, graph_layout, graph_order,
                          graph_place, graph_route, graph_tracks
other pictures            svg, space, space_svg, bench_svg
what runs gave            outputs, archive, races, verify, bench, inspect
"""

from looptrans.reports.render import (
    FORMATS,
    Format,
    Shown,
    render_applied,
    render_claims,
    render_components,
    render_dependences,
    render_derivation,
    render_graph,
    render_loops,
    render_report,
    render_verdict,
)
from looptrans.reports.style import PLAIN, Style

__all__ = [
    "FORMATS",
    "PLAIN",
    "Format",
    "Shown",
    "Style",
    "render_applied",
    "render_claims",
    "render_components",
    "render_dependences",
    "render_derivation",
    "render_graph",
    "render_loops",
    "render_report",
    "render_verdict",
]
