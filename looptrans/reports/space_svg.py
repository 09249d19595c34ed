"""The iteration space of a nest of one to three loops as an SVG picture.

The outer loop runs down and the inner one to the right, so that execution order reads like text;
the innermost of three loops runs obliquely. `looptrans.reports.space` says what is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, hypot
from typing import Final

from looptrans.ir.facts import DependenceReport
from looptrans.reports import svg
from looptrans.reports.space import Arrow, Position, Space, build_space
from looptrans.reports.style import printable, shorten
from looptrans.reports.svg import number
from looptrans.reports.words import counted, vector

Point = tuple[float, float]

STEP: Final = 74.0
DOT: Final = 5.5
MARGIN: Final = 30.0
_OBLIQUE: Final = (0.52, -0.40)
_BEND: Final = {"flow": 0.10, "anti": -0.16, "output": 0.24}


def iteration_space_svg(
    report: DependenceReport, points: Mapping[str, Sequence[tuple[int, ...]]]
) -> str:
    """Draw the iterations of the deepest nest and the dependences between them.

    Args:
        report: Dependences with `instances`, at given sizes.
        points: For each statement, its iterations at those sizes.

    Raises:
        ValueError: There is no loop, there are more than three, the nest has no iteration, or the
            picture would be too large to read.
    """
    space = build_space(report, points)
    places = _Places(space)
    lines = [_arrow(places, arrow) for arrow in space.arrows]
    halo = [] if space.highlight is None else [_halo(places, space.highlight)]
    axes = _axes(space, places)
    grid = _grid(space, places)
    dots = [_dot(places.at(point), point, space.loops) for point in space.points]
    if space.highlight is not None:
        ends = (space.highlight.source, space.highlight.sink)
        dots += [_ring(places.at(point)) for point in ends]
    corners = [places.at(point) for point in places.corners()]
    left = min(x for x, _ in corners) - 76
    top = min(y for _, y in corners) - (62 if len(space.loops) > 1 else 92)
    bottom = max(y for _, y in corners) + (66 if len(space.loops) == 1 else 40)
    right = max(x for x, _ in corners) + 76
    kinds = [kind for kind in svg.KINDS if any(arrow.kind == kind for arrow in space.arrows)]
    notes = _notes(space)
    key, key_width = svg.legend(0.0, 0.0, kinds, "" if kinds else "no dependence between points")
    name = shorten(f"Iteration space of {printable(report.program)}", 80)
    widest = max(
        [key_width, svg.text_width(name, 14), *(svg.text_width(note, 11) for note in notes)]
    )
    width = max(right - left, widest) + 2 * MARGIN
    height = bottom - top + 64 + 30 + 18 * len(notes)
    below = 58 + bottom - top
    body = [
        svg.text(MARGIN, 34.0, name, 14, font_weight="bold"),
        f'<g transform="translate({number(MARGIN - left)},{number(48 - top)})">',
        *grid,
        *axes,
        *halo,
        *lines,
        *dots,
        "</g>",
        f'<g transform="translate({number(MARGIN)},{number(below)})">',
        *key,
    ]
    for place, note in enumerate(notes):
        fill = svg.INK if place == 0 and space.highlight else svg.FAINT
        body.append(svg.text(0.0, 22.0 + 18 * place, note, 11, fill))
    body.append("</g>")
    points_said = counted(len(space.points), "point")
    said = f"{points_said}, {counted(len(space.arrows), 'arrow')}"
    return svg.picture(width, height, name, said, body)


class _Places:
    """Where a point of the grid stands on paper."""

    def __init__(self, space: Space) -> None:
        self.ticks = space.ticks
        self.depth = len(space.loops)
        self.index: list[dict[int, int]] = []
        for values in space.ticks:
            spread = values[-1] - values[0]
            near = spread <= 40
            self.index.append({v: v - values[0] if near else k for k, v in enumerate(values)})

    def at(self, point: Position) -> Point:
        """Return x and y of an iteration."""
        steps = [float(self.index[axis][value]) for axis, value in enumerate(point)]
        if self.depth == 1:
            return steps[0] * STEP, 0.0
        if self.depth == 2:
            return steps[1] * STEP, steps[0] * STEP
        i, j, d = steps
        last = max(self.index[2].values(), default=0)
        wide, tall = self._cell(last)
        return j * wide + d * STEP * _OBLIQUE[0], i * tall + d * STEP * _OBLIQUE[1]

    def _cell(self, last: int) -> Point:
        """Return the distances that keep one plane of a third loop clear of the next."""
        return (
            max(STEP, (last + 1) * STEP * _OBLIQUE[0] + 50),
            max(STEP, (last + 1) * STEP * -_OBLIQUE[1] + 44),
        )

    def corners(self) -> list[Position]:
        """Return the corners of the box around all ticks."""
        found: list[Position] = [()]
        for values in self.ticks:
            found = [(*one, value) for one in found for value in (values[0], values[-1])]
        return found


def _grid(space: Space, places: _Places) -> list[str]:
    lines = []
    firsts = [values[0] for values in space.ticks]
    for axis, values in enumerate(space.ticks):
        for other in range(len(space.ticks)):
            if other == axis:
                continue
            for value in values:
                start, end = list(firsts), list(firsts)
                start[axis] = end[axis] = value
                end[other] = space.ticks[other][-1]
                lines.append(_rule(places.at(tuple(start)), places.at(tuple(end))))
    return lines


def _rule(start: Point, end: Point) -> str:
    path = f"M{svg.point(start)} L{svg.point(end)}"
    return svg.element("path", d=path, stroke="#dde2e7", stroke_width=1, fill="none")


def _axes(space: Space, places: _Places) -> list[str]:
    firsts = [values[0] for values in space.ticks]
    # Outer loop: labels at the left; next: above; third: at the far right, along the slope.
    shifts: list[tuple[float, float]] = [(-24.0, 4.0), (0.0, -22.0), (14.0, 18.0)]
    if len(space.loops) == 1:
        shifts = [(0.0, 26.0)]
    parts = []
    for axis, values in enumerate(space.ticks):
        base = list(firsts)
        if axis == 1 and len(space.loops) == 3:
            base[2] = space.ticks[2][-1]
        if axis == 2:
            base[0] = space.ticks[0][-1]
            base[1] = space.ticks[1][-1]
        dx, dy = shifts[axis]
        for value in values:
            at = list(base)
            at[axis] = value
            x, y = places.at(tuple(at))
            parts.append(svg.text(x + dx, y + dy, str(value), 11, svg.FAINT, text_anchor="middle"))
        start, last = list(base), list(base)
        start[axis], last[axis] = values[0], values[-1]
        x0, y0 = places.at(tuple(start))
        x1, y1 = places.at(tuple(last))
        x, y = (x0 + x1) / 2 + dx, (y0 + y1) / 2 + dy
        offset = [(-26.0, 0.0), (0.0, -20.0), (26.0, 8.0)][axis]
        if len(space.loops) == 1:
            offset = (0.0, 20.0)
        name = shorten(space.loops[axis], 12)
        parts.append(
            svg.text(
                x + offset[0],
                y + offset[1],
                name,
                13,
                text_anchor="end" if axis == 0 and len(space.loops) > 1 else "middle",
                font_weight="bold",
            )
        )
    return parts


def _dot(at: Point, point: Position, loops: Sequence[str]) -> str:
    said = ", ".join(f"{name}={value}" for name, value in zip(loops, point, strict=True))
    return svg.element(
        "circle", svg.title(said), cx=at[0], cy=at[1], r=DOT, fill=svg.INK, class_="point"
    )


def _ring(at: Point) -> str:
    return svg.element(
        "circle",
        cx=at[0],
        cy=at[1],
        r=DOT + 4,
        fill="none",
        stroke=svg.MARK,
        stroke_width=3,
        class_="witness",
    )


def _arrow(places: _Places, arrow: Arrow) -> str:
    said = f"{arrow.kind}  {vector(arrow.source)} → {vector(arrow.sink)}"
    return svg.element(
        "path",
        svg.title(said),
        d=_curve(places, arrow, DOT + 3 + 8),
        **svg.line_style(arrow.kind, heavy=False),
        stroke_opacity="0.9",
        marker_end=f"url(#lt-{arrow.kind})",
        class_=f"edge {arrow.kind}",
    )


def _halo(places: _Places, arrow: Arrow) -> str:
    return svg.element(
        "path",
        d=_curve(places, arrow, DOT + 3),
        fill="none",
        stroke=svg.MARK,
        stroke_width=9,
        stroke_opacity="0.55",
        stroke_linecap="round",
        class_="witness",
    )


def _curve(places: _Places, arrow: Arrow, short: float) -> str:
    """Return a slight bow from point to point: kinds bow differently, long arrows more."""
    start, end = places.at(arrow.source), places.at(arrow.sink)
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = hypot(dx, dy) or 1.0
    steps = [
        places.index[axis][b] - places.index[axis][a]
        for axis, (a, b) in enumerate(zip(arrow.source, arrow.sink, strict=True))
    ]
    over = gcd(*steps) > 1
    bend = _BEND[arrow.kind] + ((0.14 if _BEND[arrow.kind] > 0 else -0.14) if over else 0.0)
    bow = max(-60.0, min(60.0, bend * length))
    middle = (
        (start[0] + end[0]) / 2 + dy / length * bow,
        (start[1] + end[1]) / 2 - dx / length * bow,
    )
    enter = _nearer(start, middle, DOT + 1.5)
    leave = _nearer(end, middle, short)
    return f"M{svg.point(enter)} Q{svg.point(middle)} {svg.point(leave)}"


def _nearer(point: Point, target: Point, distance: float) -> Point:
    dx, dy = target[0] - point[0], target[1] - point[1]
    length = hypot(dx, dy) or 1.0
    share = min(distance / length, 0.9)
    return point[0] + dx * share, point[1] + dy * share


def _notes(space: Space) -> list[str]:
    notes = []
    if space.highlight is not None:
        pair = f"{vector(space.highlight.source)} → {vector(space.highlight.sink)}"
        notes.append(f"highlighted: {shorten(printable(space.caption), 60)}, {pair}")
    if space.inside:
        pairs = counted(space.inside, "instance pair")
        notes.append(f"{pairs} inside one iteration of these loops not drawn")
    if space.outside:
        notes.append(f"{counted(space.outside, 'instance pair')} of other nests not drawn")
    return notes
