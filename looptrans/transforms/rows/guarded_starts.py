"""Loops over rows that begin where an array says, gone over from 0 with a guard.

    for i in range(pad[b], N):               for i in range(0, N):
        O[b, i] = …                  ->          if i >= pad[b]:
                                                     O[b, i] = …

The arrays are whole then: what there is one of for each row has a place of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from looptrans.ir.affine import form_of, simplified
from looptrans.ir.condition import Relation
from looptrans.ir.index import Int, Opaque, Var, opaque_terms
from looptrans.ir.program import If, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.tree import LoopPath, loop_paths, loops_around, replace_at
from looptrans.transforms.rows.bounded import has_packed_rows, rows_inside
from looptrans.transforms.rows.segments import Segments, segments_of


@dataclass(frozen=True, slots=True)
class GuardedStarts:
    """A program whose loops begin at 0, with guards.

    Attributes:
        program: The program afterwards.
        loops: Their variables.
    """

    program: Program
    loops: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"begin {' and '.join(dict.fromkeys(self.loops))} at 0, with a guard"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "the iterations are the same, in the same order"
        reason = "the guard holds from where the loop began, which the array says is not below 0"
        return Certificate("order", law, "legal", reason)


def with_guarded_starts(
    program: Program, is_free: Callable[[Program, LoopPath], bool]
) -> GuardedStarts | None:
    """Let free loops that begin where an array says begin at 0, with a guard.

    Args:
        program: The program.
        is_free: Tells of a loop whether its iterations have nothing to do with each other.

    Returns:
        The program afterwards; None where there is no such loop.
    """
    after, loops = program, list[str]()
    while (path := next(_starting(after, is_free), None)) is not None:
        loop = path.loop
        guard = If(Relation(">=", Var(loop.variable), loop.range.start), loop.body)
        whole = replace(loop, range=Range(Int(0), loop.range.stop), body=(guard,))
        after = replace_at(after, path.position, (whole,))
        loops.append(loop.variable)
    return GuardedStarts(after, tuple(loops)) if loops else None


def _starting(program: Program, is_free: Callable[[Program, LoopPath], bool]) -> Iterator[LoopPath]:
    """Yield the free loops that begin where an array says, and do not end where the same does.

    Rows from `cu[b]` to `cu[b + 1]` are those of a sequence, which are packed; so are those from
    `start[b]` to `stop[b]` that contracts keep apart.
    """
    known = segments_of(program)
    for path in loop_paths(program):
        start, stop = simplified(path.loop.range.start), path.loop.range.stop
        if (
            isinstance(start, Opaque)
            and _is_natural(program, start.array)
            and start.array not in {term.array for term in opaque_terms(stop)}
            and path.loop.range.step == 1
            and path.loop.execution == "sequential"
            and not _has_packed_rows(program, path, known)
            and is_free(program, path)
        ):
            yield path


def _has_packed_rows(program: Program, path: LoopPath, known: Mapping[str, Segments]) -> bool:
    """Tell whether a loop goes over rows of a sequence in an array that has those of all."""
    outer = (each.loop for each in loops_around(program, path.position))
    around = ranges_by_name(outer)
    rows = rows_inside(path.loop.range, around, known)
    return rows is not None and has_packed_rows(path.loop.body, path.loop.variable, rows)


def _is_natural(program: Program, array: str) -> bool:
    """Tell whether the elements of an array are declared to be 0 or more."""
    declared = program.array(array).value_range
    least = None if declared is None else form_of(declared[0])
    return least is not None and least.is_constant and least.constant >= 0
