"""Loops over grids, or over several things in turn, made rows where one pass comes of it.

What became one row is seen again as what it was behind that, where the kernel is better for it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from looptrans.derivation.as_a_row.coalesced import grids_in
from looptrans.derivation.as_a_row.continued import loops_continued
from looptrans.derivation.as_a_row.grids import asked_for_cells
from looptrans.derivation.as_a_row.in_turn import loops_over_both, row_of
from looptrans.derivation.one_loop.bodies import recurrence_of
from looptrans.derivation.one_loop.guards import divides
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.derivation.together import joined
from looptrans.derivation.work import Work, loop_name
from looptrans.transforms.editing.tree import loop_paths

Cells: TypeAlias = Mapping[str, tuple[str, str]]
"""The variables that count the cells of grids, with those of rows and columns, the last first."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What several loops were made one row of, for the sake of one pass.

    Attributes:
        cells: What counts the cells of grids.
        both: The variable of loops over two things in turn, or an empty string.
    """

    cells: Cells = field(default_factory=dict)
    both: str = ""


def joined_in_rows(work: Work, *, own: bool) -> Rows:
    """Bring nests and passes together, over grids and over several things in turn as well.

    Returns:
        What became one row: where passes over it that waited for each other became one, or where a
        pass over cells divides by what it carries, which is to be done behind it.
    """
    before = work.mark()
    for passes in (2, 1):
        cells: dict[str, tuple[str, str]] = {}
        while True:
            here = work.program
            if work.take("coalesced", passes) is not None:
                break
            made = grids_in(here, passes).names
            cells = {name: both for both, name in made.items()} | cells
        if cells:
            count = len(work.steps)
            joined(work, own=own)
            if any(_is_over(step, cells) for step in work.steps[count:]) or _divide(work, cells):
                return Rows(cells)
            work.back_to(before)
    parts = loops_continued(work.program)
    if work.take("continued") is None:
        count = len(work.steps)
        joined(work, own=own)
        if any(_is_over(step, parts) for step in work.steps[count:]):
            return Rows()
        work.back_to(before)
    both = row_of(work.program)
    if work.take("concatenated") is None:
        count = len(work.steps)
        joined(work, own=own)
        if any(_is_over(step, {both}) for step in work.steps[count:]):
            return Rows(both=both)
        work.back_to(before)
    joined(work, own=own)
    return Rows()


def _is_over(step: DerivationStep, names: Container[str]) -> bool:
    """Tell whether a step makes one pass over such variables of some that waited for each other."""
    waits = any(law.name == "separability" for law in step.laws)
    loops = (str(name).partition("@")[0] for name in step.arguments)
    return step.kind == "one pass" and waits and any(loop in names for loop in loops)


def _divide(work: Work, cells: Cells) -> bool:
    """Tell whether a loop over cells divides by what it carries."""
    for path in loop_paths(work.program):
        if path.variable in cells:
            try:
                step = recurrence_of(work.program, loop_name(path.loop))
            except NotDone:
                continue
            if not step.is_scan and divides(step):
                return True
    return False


def seen_again(work: Work, rows: Rows) -> None:
    """See loops over cells as two where guards ask for rows or columns; over two things, too."""
    for name, both in rows.cells.items():
        for each in tuple(asked_for_cells(work.program, {name: both})):
            work.take("grid", *each)
    for loop in tuple(loops_over_both(work.program, rows.both)):
        work.take("in turn", loop)
