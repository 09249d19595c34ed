"""The dependence graph as pictures want it: parallel pieces merged, cycles as boxes.

All pieces of one kind between the same two statements are one edge. Its label has a line for each
array, with the direction vectors written as few as possible (`words.joined_directions`): `*` there
stands for all of `<`, `=` and `>`.
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.ir.facts import (
    ComponentReport,
    Dependence,
    DependenceKind,
    DependenceReport,
    Direction,
    StatementFact,
)
from looptrans.reports.style import printable
from looptrans.reports.words import carrier, joined_directions, listed, repeated_loops

_KINDS: tuple[DependenceKind, ...] = ("flow", "anti", "output")


@dataclass(frozen=True, slots=True)
class Edge:
    """All dependences of one kind from one statement to another.

    Attributes:
        source: Number of the earlier statement.
        sink: Number of the later one; the same for a self dependence.
        kind: What they all are.
        lines: For each array, its name and direction vectors.
        carried_by: The loops that carry any of them, outermost first.
        may: Whether none of them is certain to happen.
    """

    source: int
    sink: int
    kind: DependenceKind
    lines: tuple[str, ...]
    carried_by: tuple[str, ...]
    may: bool


@dataclass(frozen=True, slots=True)
class Box:
    """A component with a cycle: its statements, and the title of its frame."""

    members: tuple[int, ...]
    title: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Statements by number, edges between them, and the cycles.

    Attributes:
        order: The numbers of all statements, in condensation order.
    """

    name: str
    nodes: tuple[StatementFact, ...]
    edges: tuple[Edge, ...]
    boxes: tuple[Box, ...]
    order: tuple[int, ...]

    @property
    def box_of(self) -> dict[int, int]:
        """By the number of a statement, that of the box it is in, if it is in one."""
        return {member: number for number, box in enumerate(self.boxes) for member in box.members}


def build_graph(report: DependenceReport, components: ComponentReport) -> Graph:
    """Merge the dependences of a report into the graph that is drawn.

    Statements the components do not name stand at the end, each alone.
    """
    number = {statement.label: place for place, statement in enumerate(report.statements)}
    pieces: dict[tuple[int, int, DependenceKind], list[Dependence]] = {}
    for dependence in report.dependences:
        key = (number[dependence.source], number[dependence.sink], dependence.kind)
        pieces.setdefault(key, []).append(dependence)
    repeated = repeated_loops(report.dependences)
    edges = tuple(
        _edge(key, pieces[key], repeated)
        for key in sorted(pieces, key=lambda key: (key[0], key[1], _KINDS.index(key[2])))
    )
    order: list[int] = []
    boxes: list[Box] = []
    for component in components.components:
        members = tuple(number[label] for label in component.statements if label in number)
        order += members
        if len(members) > 1 or (members and component.carried_by):
            loops = listed(component.carried_by)
            boxes.append(Box(members, f"cycle carried by {loops}" if loops else "cycle"))
    seen = set(order)
    order += [place for place in range(len(report.statements)) if place not in seen]
    return Graph(report.program, report.statements, edges, tuple(boxes), tuple(order))


def carried(edge: Edge) -> str:
    """Return `by i, j`."""
    return f"by {', '.join(edge.carried_by)}"


def label_lines(edge: Edge) -> tuple[str, ...]:
    """Return the lines of an edge's label: its arrays, then the loops that carry it."""
    last = (carried(edge),) if edge.carried_by else ()
    return (*edge.lines, *last, "(may)") if edge.may else (*edge.lines, *last)


def _edge(
    key: tuple[int, int, DependenceKind], pieces: list[Dependence], repeated: frozenset[str]
) -> Edge:
    directions: dict[str, list[tuple[Direction, ...]]] = {}
    depth: dict[str, int] = {}
    for piece in pieces:
        directions.setdefault(piece.array, []).append(piece.direction)
        name = carrier(piece, repeated)
        if name is not None and piece.carried_by is not None:
            depth.setdefault(name, piece.loops.index(piece.carried_by))
    lines = tuple(
        f"{printable(array)} {' '.join(vector for vector in joined_directions(found))}"
        for array, found in directions.items()
    )
    loops = tuple(sorted(depth, key=lambda name: depth[name]))
    return Edge(*key, lines, loops, all(piece.may for piece in pieces))
