"""Run a loop in strips."""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.affine import difference, form_of, total
from looptrans.ir.index import Extremum, Index, Var
from looptrans.ir.program import Loop, Program
from looptrans.ir.step import Step, same_names
from looptrans.ir.value import Range
from looptrans.transforms.editing.band import require_no_phases
from looptrans.transforms.editing.errors import BadNumber
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import find_loop, replace_at
from looptrans.transforms.judging.check import reordered


def strip_mine(program: Program, loop: str, size: int) -> Step:
    """Run a loop in strips of `size` iterations: a loop over the strips, and one inside each.

        for j in range(0, N):       ->      for j0 in range(0, N, 32):
            S(j)                                for j in range(j0, min(j0 + 32, N)):
                                                    S(j)

    The iterations keep their order, so this is always legal.

    Args:
        program: The program.
        loop: The loop; its step may be any. It keeps its variable, the loop over the strips gets a
            new one.
        size: How many iterations a strip has, an integer above 0; the last strip may have fewer.

    Raises:
        TransformError: There is no such loop, the size is no such integer, or the loop has barriers
            or turns.
    """
    path = find_loop(program, loop)
    require_size(path.loop, size)
    require_no_phases(path.loop, "strip-mining")
    over = fresh_name(program, f"{path.variable}0")
    inner = replace(path.loop, range=strip(path.loop.range, over, size), leading=())
    after = replace_at(program, path.position, (strips(path.loop, over, size, inner),))
    name = f"strip_mine({loop}, {size})"
    return reordered(name, program, after, same_names(program, after))


def strips(loop: Loop, variable: str, size: int, *body: Loop) -> Loop:
    """Return the loop over the strips of a loop."""
    bounds = Range(loop.range.start, loop.range.stop, loop.range.step * size)
    return Loop(
        variable, bounds, body, execution=loop.execution, leading=loop.leading, span=loop.span
    )


def strip(limits: Range, over: str, size: int) -> Range:
    """Return the range inside the strip that begins at the variable `over`."""
    start, step = Var(over), limits.step
    end = total(start, step * size)
    extent = form_of(difference(limits.stop, limits.start))
    if extent.is_constant and len(range(0, extent.constant, step)) % size == 0:
        return Range(start, end, step)
    op = "min" if step > 0 else "max"
    stops: tuple[Index, ...] = (limits.stop,)
    if isinstance(limits.stop, Extremum) and limits.stop.op == op:
        stops = limits.stop.arguments
    return Range(start, Extremum("min" if step > 0 else "max", (end, *stops)), step)


def require_size(loop: Loop, size: int) -> None:
    """Require that a size is an integer above 0.

    Raises:
        BadNumber: It is not.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise BadNumber(
            f"the loop {loop.variable} cannot be cut into pieces of size {size}",
            loop.span,
            why="a size is an integer above 0",
            remedy="give 16, 32, 64, …",
        )
