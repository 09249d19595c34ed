"""Facts to text: tables, JSON, Mermaid, DOT and SVG of what the layers below found out."""

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
