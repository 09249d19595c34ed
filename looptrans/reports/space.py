"""The iteration space as points and arrows on a grid, before anything is drawn.

The picture shows the deepest nest: its axes are the loops of the first statement that has most of
them, its points that nest's iterations. A statement in fewer loops has no point of its own, and a
dependence of it is drawn between common coordinates: an end that lacks an axis takes the other
end's coordinate there, or the first tick where both lack it. So an arrow says how the common loops
differ and nothing else. Ends that coincide (a dependence inside one iteration) and dependences of
statements outside the nest's outermost loop are counted, not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from looptrans.ir.facts import Dependence, DependenceKind, DependenceReport
from looptrans.ir.verdict import Assignment

Position = tuple[int, ...]

MOST_POINTS = 2_000
MOST_ARROWS = 4_000
KINDS: Final = ("flow", "anti", "output")


@dataclass(frozen=True, slots=True)
class Arrow:
    """Dependences of one kind from one point to another."""

    kind: DependenceKind
    source: Position
    sink: Position


@dataclass(frozen=True, slots=True)
class Space:
    """What is drawn.

    Attributes:
        loops: The axes, outermost first.
        ticks: For each axis, the values that occur, ascending.
        points: The iterations of the deepest nest.
        arrows: The dependences between them, sorted.
        highlight: The arrow of the first witness among them, flow before anti before output.
        caption: The witness in words.
        inside: How many instance pairs lie inside one point.
        outside: How many belong to other nests.
    """

    loops: tuple[str, ...]
    ticks: tuple[tuple[int, ...], ...]
    points: tuple[Position, ...]
    arrows: tuple[Arrow, ...]
    highlight: Arrow | None
    caption: str
    inside: int
    outside: int


def build_space(report: DependenceReport, points: Mapping[str, Sequence[Position]]) -> Space:
    """Collect points and arrows.

    Raises:
        ValueError: No statement is in a loop, the deepest nest has more than three loops or no
            iteration, or there are more points or arrows than a picture can show.
    """
    deepest = max((len(statement.loops) for statement in report.statements), default=0)
    if deepest == 0:
        raise ValueError(f"{report.program} has no loop, so there is no iteration space to draw")
    if deepest > 3:
        raise ValueError(
            f"an iteration space can be drawn for up to three loops, the deepest nest of "
            f"{report.program} has {deepest}; use the text or JSON format"
        )
    loops = next(s.loops for s in report.statements if len(s.loops) == deepest)
    loops_of = {statement.label: statement.loops for statement in report.statements}
    iterations = sorted(
        {
            tuple(iteration)
            for statement in report.statements
            if statement.loops == loops
            for iteration in points.get(statement.label, ())
        }
    )
    if not iterations:
        raise ValueError(
            f"the loops {', '.join(loops)} have no iteration at these sizes; choose larger ones"
        )
    arrows: dict[Arrow, None] = {}
    inside = outside = 0
    highlight: Arrow | None = None
    caption = ""
    first = [min(values) for values in zip(*iterations, strict=True)]
    for dependence in sorted(report.dependences, key=lambda d: KINDS.index(d.kind)):
        source_loops, sink_loops = loops_of[dependence.source], loops_of[dependence.sink]
        for source, sink in dependence.instances or ():
            one = dict(zip(source_loops, source, strict=True))
            two = dict(zip(sink_loops, sink, strict=True))
            if loops[0] not in one or loops[0] not in two:
                outside += 1
                continue
            start = tuple(
                one.get(name, two.get(name, low)) for name, low in zip(loops, first, strict=True)
            )
            end = tuple(
                two.get(name, one.get(name, low)) for name, low in zip(loops, first, strict=True)
            )
            if start == end:
                inside += 1
                continue
            arrow = Arrow(dependence.kind, start, end)
            arrows[arrow] = None
            if highlight is None and _is_witness(dependence, one, two):
                highlight = arrow
                caption = f"{dependence.source} → {dependence.sink} on {dependence.array}"
    if len(iterations) > MOST_POINTS or len(arrows) > MOST_ARROWS:
        raise ValueError(
            f"a picture holds up to {MOST_POINTS} points and {MOST_ARROWS} arrows, this one would "
            f"have {len(iterations)} and {len(arrows)}; choose smaller sizes"
        )
    drawn = {position for arrow in arrows for position in (arrow.source, arrow.sink)}
    values = [*iterations, *drawn]
    ticks = tuple(tuple(sorted({value[axis] for value in values})) for axis in range(deepest))
    ordered = sorted(arrows, key=lambda arrow: (-KINDS.index(arrow.kind), arrow.source, arrow.sink))
    return Space(
        loops, ticks, tuple(iterations), tuple(ordered), highlight, caption, inside, outside
    )


def _is_witness(dependence: Dependence, source: dict[str, int], sink: dict[str, int]) -> bool:
    witness = dependence.witness
    return witness is not None and (_agrees(witness.source, source) and _agrees(witness.sink, sink))


def _agrees(given: Assignment, values: dict[str, int]) -> bool:
    return all(values.get(name) == value for name, value in given)
