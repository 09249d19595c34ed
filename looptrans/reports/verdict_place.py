"""Where a verdict points: the statements of its example, with the accesses that meet marked.

specs/stencil.py:12 | A[i, j] = A[i - 1, j + 1]  # S1
                      ^^^^^^^   ^^^^^^^^^^^^^^^
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from looptrans.ir.evaluate import evaluate
from looptrans.ir.listing import access_text, assign_text, if_text
from looptrans.ir.program import Assign, Program
from looptrans.ir.step import Step
from looptrans.ir.value import Access, Whole
from looptrans.ir.walk import AccessRelation, Placed, accesses, placed
from looptrans.reports.style import columns, printable

WIDEST: Final = 100
_ASSIGNS: Final = re.compile(r" (?://|\*\*|[-+*/%@])?= ")


@dataclass(frozen=True, slots=True)
class Marked:
    """A statement, and the parts of its text that are marked.

    Attributes:
        place: `specs/stencil.py:12`, or what there is to say of a statement that stands nowhere.
        label: Its label.
        text: Its canonical text.
        marks: Start and end of each part, in characters of the text.
    """

    place: str
    label: str
    text: str
    marks: tuple[tuple[int, int], ...]


def marked_statements(step: Step) -> tuple[Marked, ...]:
    """Return the source and the sink of the step's example, one entry where they are one."""
    verdict = step.verdict
    witness = verdict.witness
    program = shown_program(step)
    kind = None if verdict.dependence is None else verdict.dependence.kind
    if witness is not None and witness.kind == "storage":
        kind = "flow"
    ends = (
        (verdict.source, {"flow": True, "anti": False, "output": True}.get(kind or ""), True),
        (verdict.sink, {"flow": False, "anti": True, "output": True}.get(kind or ""), False),
    )
    found: dict[str, Marked] = {}
    for label, writes, is_source in ends:
        place = next((each for each in placed(program) if each.label == label), None)
        if place is None:
            continue
        values: dict[str, int] = {}
        if witness is not None:
            iteration = witness.source if is_source else witness.sink
            values = dict((*witness.parameters, *witness.elements, *iteration))
        text = _text(place, program)
        meeting = _meeting(place, verdict.array, verdict.cell, values, writes)
        marks = {mark for each in meeting for mark in _marks(text, each)}
        if label in found:
            marks |= set(found[label].marks)
        found[label] = Marked(_where(place, program), label, text, tuple(sorted(marks)))
    return tuple(found.values())


def shown_program(step: Step) -> Program:
    """Return the program of the example: the one afterwards for a race, else the one before."""
    witness = step.verdict.witness
    return step.after if witness is not None and witness.kind == "race" else step.before


def excerpt(statements: Iterable[Marked]) -> list[tuple[str, str]]:
    """Return a line for each statement with the line of carets that belongs under it."""
    shown = tuple(statements)
    width = max((columns(each.place) for each in shown), default=0)
    lines = []
    for each in shown:
        text, marks = _window(each)
        margin = f"  {each.place}{' ' * (width - columns(each.place))} | "
        carets = ""
        for start, end in marks:
            carets += " " * (columns(text[:start]) - len(carets))
            carets += "^" * max(columns(text[:end]) - len(carets), 0)
        under = " " * columns(margin) + carets if carets else ""
        lines.append((f"{margin}{text}  # {printable(each.label)}", under))
    return lines


def _window(marked: Marked) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the text, or of a long one the part that holds the first mark, with its marks."""
    text, marks = printable(marked.text), marked.marks
    if len(text) <= WIDEST or text != marked.text:
        return text, marks if text == marked.text else ()
    last = max((end for _, end in marks), default=0)
    left = 0 if last < WIDEST else max(marks[0][0] - 10, 0)
    shown = text[left : left + WIDEST]
    before = "…" if left else ""
    after = "…" if left + WIDEST < len(text) else ""
    shift = len(before) - left
    moved = (
        (start + shift, min(end, left + WIDEST) + shift)
        for start, end in marks
        if left <= start < left + WIDEST
    )
    return f"{before}{shown}{after}", tuple(moved)


def _where(place: Placed, program: Program) -> str:
    line = place.node.span.line
    name = printable(program.source.name)
    return f"{name}:{line}" if line > 0 else f"{name}, made by a step"


def _text(place: Placed, program: Program) -> str:
    if isinstance(place.node, Assign):
        inputs = program.input_names
        return assign_text(place.node, inputs)
    return if_text(place.node)


def _meeting(
    place: Placed,
    array: str,
    cell: tuple[int, ...],
    values: Mapping[str, int],
    writes: bool | None,
) -> tuple[AccessRelation, ...]:
    """Return the accesses to an array that touch a cell; all of them where none plainly does."""
    candidates = [
        each
        for each in accesses(place.node)
        if each.access.array == array and (writes is None or each.is_write == writes)
    ]
    exact = [each for each in candidates if _touches(each, cell, values)]
    return tuple(exact or candidates)


def _touches(relation: AccessRelation, cell: tuple[int, ...], values: Mapping[str, int]) -> bool:
    subscripts = relation.access.subscripts
    if len(subscripts) != len(cell):
        return True
    free = {generator.variable for generator in relation.generators}
    known = {name: value for name, value in values.items() if name not in free}
    numbers = (None if isinstance(s, Whole) else evaluate(s, known) for s in subscripts)
    return all(number in {None, at} for number, at in zip(numbers, cell, strict=True))


def _marks(text: str, relation: AccessRelation) -> set[tuple[int, int]]:
    """Return where an access stands in the canonical text of its statement.

    An access is printed alike wherever it stands, and only equal ones are printed so. A read that
    an augmented assignment does not write out is marked at its target.
    """
    assigns = list(_ASSIGNS.finditer(text))
    middle = assigns[-1].start() if assigns else 0
    spans = _occurrences(text, relation.access)
    side = {span for span in spans if (span[0] < middle) == relation.is_write}
    return side or spans


def _occurrences(text: str, access: Access) -> set[tuple[int, int]]:
    name = re.escape(access_text(access))
    whole = re.finditer(rf"(?<![\w.]){name}(?![\w.\[(])", text)
    found = {match.span() for match in whole}
    # A row stored into an input is written `T[:] = …`.
    return found or {match.span() for match in re.finditer(rf"(?<![\w.]){name}\[:\]", text)}
