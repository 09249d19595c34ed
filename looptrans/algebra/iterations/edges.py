"""The flow dependences that touch a loop: carried by it, inside an iteration, in or out of it."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.ir.facts import DependenceReport
from looptrans.ir.program import Loop, Program
from looptrans.ir.walk import Placed, placed

Position = tuple[int, ...]


class NoRecurrence(Exception):
    """The loop cannot be read as a recurrence; the message says why."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A flow dependence, seen from one loop.

    Attributes:
        source: The label of the writing statement.
        sink: The label of the reading one.
        array: What they share.
        kind: `carried` by the loop; `within` one iteration of it; `entering` from before the loop
            or from outside; `leaving` it; `outer`: both inside, carried by a loop around it.
        inner: The position of the loop inside that carries a `within`, or None.
        distance: The distance in the loop, for `carried`.
    """

    source: str
    sink: str
    array: str
    kind: str
    inner: Position | None = None
    distance: str = ""


def edges_of(program: Program, report: DependenceReport, loop: Position) -> tuple[Edge, ...]:
    """Return the flow dependences that touch a loop."""
    places = {place.label: place for place in placed(program)}
    found = []
    for d in report.dependences:
        source, sink = places[d.source], places[d.sink]
        inside = [loop in place.loop_positions for place in (source, sink)]
        if not any(inside):
            continue
        if not all(inside):
            kind = "leaving" if inside[0] else "entering"
            found.append(Edge(d.source, d.sink, d.array, kind))
            continue
        level = source.loop_positions.index(loop)
        carrier = d.level
        if carrier is None or carrier > level:
            inner = None if carrier is None else source.loop_positions[carrier]
            found.append(Edge(d.source, d.sink, d.array, "within", inner))
        elif carrier == level:
            found.append(Edge(d.source, d.sink, d.array, "carried", distance=d.distance[level]))
        else:
            found.append(Edge(d.source, d.sink, d.array, "outer"))
    return tuple(found)


def loop_named(program: Program, name: str) -> tuple[Position, Loop]:
    """Find a loop by its variable `j`, by `j@LINE`, or by `j@S7`, the j loop around S7.

    Raises:
        NoRecurrence: There is no such loop, or more than one.
    """
    variable, _, where = name.partition("@")
    found: dict[Position, Loop] = {}
    around: dict[Position, list[Placed]] = {}
    for place in placed(program):
        for position, loop in zip(place.loop_positions, place.loops, strict=True):
            if loop.variable == variable:
                found[position] = loop
                around.setdefault(position, []).append(place)
    if where:
        found = {
            position: loop
            for position, loop in found.items()
            if str(loop.span.line) == where or any(p.label == where for p in around[position])
        }
    if len(found) != 1:
        choices = ", ".join(f"{variable}@{loop.span.line}" for loop in found.values())
        raise NoRecurrence(
            f"there is no loop {name}" if not found else f"{name} may be any of {choices}"
        )
    return next(iter(found.items()))
