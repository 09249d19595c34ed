"""The dependence table: one line for each piece, within 100 columns.

S12 → S3  flow  m  (=,<) distance (0,1)  carried by j  e.g. M=1 N=2: (0,0) → (0,1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from looptrans.ir.facts import Basis, Dependence, DependenceKind, DependenceReport, InstancePair
from looptrans.reports.style import (
    PLAIN,
    WIDTH,
    Style,
    block,
    columns,
    pad,
    paragraph,
    printable,
    wrap,
)
from looptrans.reports.words import carrier, counted, example, listed, repeated_loops, vector

GROUPS: Final[tuple[tuple[Basis, DependenceKind, str], ...]] = (
    ("value", "flow", "Flow by value (the read gets what that very write wrote)"),
    ("value", "anti", "Anti by value"),
    ("value", "output", "Output by value"),
    ("memory", "flow", "Flow in memory (a write, then a read of the same cell)"),
    ("memory", "anti", "Anti in memory (a read, then a write of the same cell)"),
    ("memory", "output", "Output in memory (two writes of the same cell)"),
)
# A column is never wider than this for the sake of one long row; that row runs over instead.
_WIDEST: Final = (14, 10, 12, 34, 16)
_INSTANCES_SHOWN: Final = 12
_NOT_KNOWN: Final = "the dependences are not known"
_NONE: Final = "No statement instance depends on another: any order gives the same values."
_NONE_OF_THESE: Final = "There is no dependence of the sort that was asked for."


def dependences_text(report: DependenceReport, style: Style = PLAIN) -> str:
    """Return the dependence table of a program, with what it leans on and what to look at."""
    found = bool(report.dependences) or report.unknown is None
    pieces = counted(len(report.dependences), "dependence") if found else _NOT_KNOWN
    lines = paragraph(f"{printable(report.program)}: {pieces}")
    lines[0] = style.paint("bold", lines[0])
    return block([*lines, *dependence_lines(report, style), *notes(report, style)])


def dependence_lines(report: DependenceReport, style: Style = PLAIN) -> list[str]:
    """Return the table's lines, grouped by basis and kind."""
    if not report.dependences and report.unknown is None:
        return ["", _NONE_OF_THESE if report.selected else _NONE]
    repeated = repeated_loops(report.dependences)
    lines: list[str] = []
    for basis, kind, heading in GROUPS:
        group = [d for d in report.dependences if d.basis == basis and d.kind == kind]
        if not group:
            continue
        lines += ["", style.paint("bold", f"{heading}: {len(group)}")]
        rows = [_cells(dependence, repeated) for dependence in group]
        widths = _widths(rows)
        for dependence, row in zip(group, rows, strict=True):
            lines += _row(dependence, row, widths, style)
    return lines


def notes(report: DependenceReport, style: Style = PLAIN) -> list[str]:
    """Return the contracts that were used, the warnings and what is missing."""
    lines: list[str] = []
    if report.assumptions:
        lines += ["", style.paint("bold", "Assumed, as the listing states:")]
        for assumption in report.assumptions:
            lines += paragraph(assumption, "  ", "      ")
    if report.warnings:
        lines += ["", style.paint("bold", "Worth a look:")]
        for warning in report.warnings:
            lines += paragraph(warning, "  ", "      ")
    if report.unknown is not None:
        found = paragraph(f"The answer is incomplete: {report.unknown}")
        lines += ["", *(style.paint("doubt", line) for line in found)]
    return lines


def summary(report: DependenceReport) -> list[str]:
    """Return how many dependences there are of each sort, in two sentences at most."""
    if not report.dependences:
        return ["no dependences" if report.unknown is None else _NOT_KNOWN]
    sorts = [
        f"{number} {kind} {'by value' if basis == 'value' else 'in memory'}"
        for basis, kind, _ in GROUPS
        if (number := sum(d.basis == basis and d.kind == kind for d in report.dependences))
    ]
    repeated = repeated_loops(report.dependences)
    carriers: dict[str, int] = {}
    for dependence in report.dependences:
        name = carrier(dependence, repeated)
        if name is not None:
            carriers[name] = carriers.get(name, 0) + 1
    free = sum(dependence.carried_by is None for dependence in report.dependences)
    parts = [f"{number} carried by {name}" for name, number in carriers.items()]
    parts += [f"{free} independent of any loop"] if free else []
    return [listed(sorts), listed(parts)]


def _cells(dependence: Dependence, repeated: frozenset[str]) -> tuple[str, ...]:
    kind = f"{dependence.kind} (may)" if dependence.may else dependence.kind
    carried = carrier(dependence, repeated)
    if dependence.loops:
        where = f"{vector(dependence.direction)} distance {vector(dependence.distance)}"
    else:
        where = "no common loop"
    return (
        f"{printable(dependence.source)} → {printable(dependence.sink)}",
        kind,
        printable(dependence.array),
        where,
        "independent" if carried is None else f"carried by {carried}",
        "" if dependence.witness is None else example(dependence.witness),
    )


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [
        max((columns(row[place]) for row in rows if columns(row[place]) <= widest), default=0)
        for place, widest in enumerate(_WIDEST)
    ]


def _row(
    dependence: Dependence, row: tuple[str, ...], widths: Sequence[int], style: Style
) -> list[str]:
    aligned = [pad(cell, width) for cell, width in zip(row, widths, strict=False)]
    layouts = ([*aligned, row[-1]], [*aligned[:2], *row[2:]], aligned)
    fitting = ("  ".join(cells).rstrip() for cells in layouts)
    line = next((line for line in fitting if columns(line) <= WIDTH), None)
    if line is None:
        parts = wrap("  ".join(row[:-1]), WIDTH - 6)
        lines = [parts[0], *(f"      {part}" for part in parts[1:])]
    else:
        lines = [_dressed(line, row, dependence, style)]
    if row[-1] and (line is None or not line.endswith(row[-1])):
        lines += [f"      {part}" for part in wrap(row[-1], WIDTH - 6)]
    if dependence.distance_set is not None and "*" in dependence.distance:
        within = " within" if dependence.within else ""
        lines += paragraph(dependence.distance_set, f"      distances{within} ")
    if dependence.instances is not None:
        lines += paragraph(_instances(dependence.instances), "      instances ")
    return lines


def _dressed(line: str, row: tuple[str, ...], dependence: Dependence, style: Style) -> str:
    if not style.colour:
        return line
    head, rest = line[: len(row[0])], line[len(row[0]) :]
    rest = rest.replace(row[1], style.paint(dependence.kind, row[1]), 1)
    if row[-1] and rest.endswith(row[-1]):
        rest = rest[: -len(row[-1])] + style.paint("dim", row[-1])
    return style.paint("bold", head) + rest


def _instances(instances: Sequence[InstancePair]) -> str:
    if not instances:
        return "none at these sizes"
    shown = [f"{vector(source)}→{vector(sink)}" for source, sink in instances[:_INSTANCES_SHOWN]]
    left = len(instances) - len(shown)
    more = f", and {left} more" if left else ""
    return f"({len(instances)}) {', '.join(shown)}{more}"
