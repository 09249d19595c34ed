"""The few SVG elements the pictures are made of, as text; equal input gives equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from looptrans.reports.style import columns, printable

FONT: Final = "'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace"
# An em of the fonts above is at most 0.61 wide; the estimate errs on the wide side.
_ADVANCE: Final = 0.61

PAPER: Final = "#fcfcfa"
INK: Final = "#1d2329"
FAINT: Final = "#6b747d"
FRAME: Final = "#8f9aa5"
TINT: Final = "#f0f3f6"
MARK: Final = "#e0a100"
COLOURS: Final = {"flow": "#1b5e9e", "anti": "#b4511b", "output": "#74429a"}
DASHES: Final = {"flow": "", "anti": "7 4", "output": "1.5 4"}
KINDS: Final = ("flow", "anti", "output")


def number(value: float) -> str:
    """Return a coordinate with one decimal at most."""
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def point(place: tuple[float, float]) -> str:
    """Return the two coordinates of a point."""
    return f"{number(place[0])},{number(place[1])}"


def text_width(text: str, size: float) -> float:
    """Return how wide `text` is in the monospaced font of that size."""
    return columns(text) * size * _ADVANCE


def element(name: str, content: str | None = None, /, **attributes: object) -> str:
    """Return an element; `stroke_width` is written `stroke-width`, None attributes are left out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}={quoteattr(_value(value))}"
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    return f"<{name}{written}/>" if content is None else f"<{name}{written}>{content}</{name}>"


def text(
    x: float, y: float, content: str, size: float = 12, fill: str = INK, **attributes: object
) -> str:
    """Return a line of text whose baseline starts at (x, y)."""
    return element(
        "text",
        escape(printable(content)),
        x=x,
        y=y,
        font_size=size,
        fill=fill,
        **attributes,
    )


def title(content: str) -> str:
    """Return what a viewer shows when the pointer rests on the element."""
    return element("title", escape("\n".join(printable(line) for line in content.split("\n"))))


def line_style(kind: str, heavy: bool) -> dict[str, object]:
    """Return the attributes that say the kind of a dependence and whether a loop carries it."""
    return {
        "fill": "none",
        "stroke": COLOURS[kind],
        "stroke_width": 2.3 if heavy else 1.2,
        "stroke_dasharray": DASHES[kind],
        "stroke_linecap": "round" if kind == "output" else None,
    }


def arrow_heads() -> str:
    """Return the markers `lt-flow`, `lt-anti` and `lt-output`: 8 long, at the line's end."""
    heads = [
        element(
            "marker",
            element("path", d="M0,0 L8,4 L0,8 Z", fill=COLOURS[kind]),
            id=f"lt-{kind}",
            viewBox="0 0 8 8",
            markerWidth=8,
            markerHeight=8,
            refX=0,
            refY=4,
            orient="auto",
            markerUnits="userSpaceOnUse",
        )
        for kind in KINDS
    ]
    return element("defs", "".join(heads))


def legend(x: float, y: float, kinds: Sequence[str], note: str) -> tuple[list[str], float]:
    """Return samples of the line styles, and how wide the row is."""
    parts: list[str] = []
    here = x
    for kind in kinds:
        style = line_style(kind, heavy=False)
        parts.append(
            element(
                "path", d=f"M{number(here)},{number(y)} h26", **style, marker_end=f"url(#lt-{kind})"
            )
        )
        parts.append(text(here + 40, y + 4, kind, 11))
        here += 40 + text_width(kind, 11) + 22
    if note:
        parts.append(text(here, y + 4, note, 11, FAINT))
        here += text_width(note, 11)
    return parts, here - x


def picture(width: float, height: float, name: str, description: str, body: Sequence[str]) -> str:
    """Return a whole document on a light ground, with a title for readers who cannot see it."""
    label = quoteattr(printable(name))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label={label} '
        f'width="{number(width)}" height="{number(height)}" '
        f'viewBox="0 0 {number(width)} {number(height)}" font-family={quoteattr(FONT)}>',
        title(name),
        element("desc", escape(printable(description))),
        arrow_heads(),
        element("rect", width="100%", height="100%", fill=PAPER, rx=8),
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)
