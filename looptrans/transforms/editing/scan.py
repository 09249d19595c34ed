"""The loops of a band in another order, with the ranges they must have there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from looptrans.analysis.ranges.scan import Dimension, Scan, Scanned, bounds_of
from looptrans.ir.program import Loop, Program
from looptrans.transforms.editing.band import Band, rebuilt, require_no_phases, with_private
from looptrans.transforms.editing.errors import RangeNotFound


def in_order(band: Band, order: Sequence[Loop]) -> Program:
    """Return the program with the loops of a band in another order, running the same iterations.

    Args:
        band: The band.
        order: Its loops, outermost first.

    Raises:
        RangeNotFound: The range of a loop in its new place cannot be written down.
        BoundToLoop: The innermost loop has barriers or turns, and would be another one.
    """
    if order[-1] is not band.loops[-1]:
        require_no_phases(band.loops[-1], "changing the order of the loops")
    if ranges_fit(order):
        return rebuilt(band, with_private(band.loops, order))
    dimensions = tuple(
        Dimension(loop.variable, loop.range.step, loop.range.start, range=loop.range)
        for loop in order
    )
    bounds = tuple(b for loop in band.loops for b in bounds_of(loop.variable, loop.range))
    found = ranges_of(band, Scan(dimensions, bounds))
    loops = [replace(loop, range=r) for loop, r in zip(order, found.ranges, strict=True)]
    return rebuilt(band, with_private(band.loops, loops), found.guards)


def ranges_fit(order: Sequence[Loop]) -> bool:
    """Tell whether every range mentions only loops that stand outside it in an order of loops."""
    inside = {loop.variable for loop in order}
    for loop in order:
        if inside & loop.range.variables:
            return False
        inside.remove(loop.variable)
    return True


def ranges_of(band: Band, scan: Scan) -> Scanned:
    """Ask for the ranges of a scan.

    Raises:
        RangeNotFound: One cannot be written down.
    """
    from looptrans.analysis.api import ranges_of as ask
    from looptrans.analysis.budget import BudgetExceeded

    try:
        found = ask(band.program, band.position, scan)
    except BudgetExceeded as error:
        raise RangeNotFound(
            "the ranges of the loops in their new order were not found in time",
            band.loops[0].span,
            why=str(error),
            remedy="change the places of fewer loops at a time",
        ) from None
    if found.unbounded is None:
        return found
    tiles = {d.variable: d.tiles for d in scan.dimensions if d.tiles is not None}
    variable = tiles.get(found.unbounded, found.unbounded)
    loop = next(loop for loop in band.loops if loop.variable == variable)
    raise RangeNotFound(
        f"the loop {variable} cannot stand there: its range cannot be written down",
        loop.span,
        why="its bounds are no sums of loop variables and sizes, and mention a loop that would "
        "then be inside it",
        remedy="keep it inside that loop, or give it a range that does not depend on the loop and "
        "guard its body",
    )
