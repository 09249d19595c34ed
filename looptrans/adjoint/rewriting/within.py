"""Loops that end where an integer array says, within the rows of what they touch.

for i in range(0, M):                    for i in range(0, M):
    for j in range(0, n[i]):      ->         for j in range(0, min(N, n[i])):
        o[j] = o[j] + X[i, j]                    o[j] = o[j] + X[i, j]

There is no row beyond N, so that the iterations are the same. Where j is free and i is not, the
loop over j may then go outside: it is over as many rows for every i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.algebra.free import freed
from looptrans.ir.affine import extremum
from looptrans.ir.index import Index, Int, opaque_terms, variables
from looptrans.ir.program import Loop, Program
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.extents import extent_along
from looptrans.transforms.editing.tree import LoopPath, loop_paths, replace_at


@dataclass(frozen=True, slots=True)
class Within:
    """A program whose ranges say that they stay within an array.

    Attributes:
        program: The program afterwards.
        loops: The variables of the loops.
    """

    program: Program
    loops: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"end {' and '.join(dict.fromkeys(self.loops))} with the rows of what is touched"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        reason = "each of them touches a row of an array, which has no others"
        return Certificate("order", law, "legal", reason)


def with_loops_within(program: Program) -> Within | None:
    """Let free loops in one that is not end with the rows of what they touch.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such loop.
    """
    loops: list[str] = []
    after = program
    for outer in loop_paths(program):
        inner = _only_loop(outer)
        if inner is None or freed(program, outer) is not None or freed(program, inner) is None:
            continue
        bounds = _within(program, inner.loop, outer.variable)
        if bounds is not None:
            loops.append(inner.variable)
            after = replace_at(after, inner.position, (replace(inner.loop, range=bounds),))
    return Within(after, tuple(loops)) if loops else None


def _only_loop(path: LoopPath) -> LoopPath | None:
    """Return the loop that is all that a sequential loop holds."""
    match path.loop:
        case Loop(execution="sequential", body=(Loop(execution="sequential") as inner,)):
            return LoopPath(inner, (*path.position, 0))
        case _:
            return None


def _within(program: Program, loop: Loop, outer: str) -> Range | None:
    """Return a range that says that it stays within the rows, if an array bounds it till now."""
    start, stop = loop.range.ends
    if loop.range.step != 1 or not (_is_read(start, outer) or _is_read(stop, outer)):
        return None
    rows = extent_along(program, loop, writes=False)
    if rows is None or {*variables(rows)} & {outer, loop.variable}:
        return None
    least = extremum("max", (Int(0), start)) if _is_read(start, outer) else start
    most = extremum("min", (rows, stop)) if _is_read(stop, outer) else stop
    return None if (least, most) == (start, stop) else Range(least, most)


def _is_read(end: Index, variable: str) -> bool:
    return any(variable in variables(term) for term in opaque_terms(end))
