"""Facts to text: tables, JSON, Mermaid, DOT and SVG; imports nothing but `looptrans.ir`."""

from looptrans.reports.render import (
    FORMATS,
    Format,
    render_claims,
    render_components,
    render_dependences,
    render_graph,
    render_loops,
    render_report,
)
from looptrans.reports.style import PLAIN, Style

__all__ = [
    "FORMATS",
    "PLAIN",
    "Format",
    "Style",
    "render_claims",
    "render_components",
    "render_dependences",
    "render_graph",
    "render_loops",
    "render_report",
]
