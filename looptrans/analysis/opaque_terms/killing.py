"""Writes that come before a read in the very same iteration, which no earlier write survives.

    for i: m = -inf         every read of m in the loop j sees what this iteration of i has left:
           for j: m = max(m, x[i, j])     of all pairs of a write and a read of m, only those with
                                          one i need be looked at

No sets are needed to tell: the write stands before the read, in a block that is around both, and
names the same cell. So do two writes, one in either branch of a guard, whatever decides it. So does
a write in loops of its own, before the read in loops over the same:

    for i: for j: s[j] = …       the read of s[j] in the second loop sees what this iteration of i
           for j: … s[j] …       has left; so it does where both are under one guard on indices
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from looptrans.analysis.isl_model.model import AccessModel, StatementModel
from looptrans.ir.condition import ALWAYS, Condition, compared, conjuncts, is_data_dependent
from looptrans.ir.index import lets
from looptrans.ir.program import Loop
from looptrans.ir.walk import Placed

Position = tuple[int, ...]
_Writes: TypeAlias = tuple[AccessModel, ...]


@dataclass(frozen=True, slots=True)
class Killer:
    """A write that no earlier write survives until a read.

    Attributes:
        write: The write; it is executed before each read, and names the cell.
        levels: In the same iteration of how many of the loops around the read.
    """

    write: AccessModel
    levels: int


def killer(read: AccessModel, writes: Iterable[AccessModel]) -> Killer | None:
    """Return the write before a read that shares most loops with it; None if there is none.

    Of two writes in the branches of a guard it is the first.

    Args:
        read: The read.
        writes: All writes of the array.
    """
    every = tuple(writes)
    found = [Killer(write, write.statement.depth) for write in killers(read, every)[:1]]
    for write in every:
        levels = _covers(write, read)
        if levels is not None:
            found.append(Killer(write, levels))
    return max(found, key=_place, default=None)


def _place(found: Killer) -> tuple[int, int]:
    return found.levels, found.write.statement.order[found.levels]


def _covers(write: AccessModel, read: AccessModel) -> int | None:
    """Return how many loops are shared by a read and a write that goes over all it reads before."""
    mine, other = write.statement, read.statement
    levels = mine.shared_depth(other)
    is_covered = (
        write.condition == ALWAYS
        and not (write.generators or read.generators)
        and write.subscripts == read.subscripts
        and goes_over_before(mine.place, other.place, levels)
    )
    return levels if is_covered else None


def goes_over_before(mine: Placed, other: Placed, levels: int) -> bool:
    """Tell whether loops around a statement go over what those around a later one go over.

    In what the two share, around the other there are loops over the same as around the first,
    perhaps among others, and every guard that is around the first.

    Args:
        mine: The first statement.
        other: The later one.
        levels: How many loops they share.
    """
    if levels == len(mine.loops):
        return False
    first = mine.loop_positions[levels]
    names = [loop.variable for loop in other.loops]
    return (
        other.position[: len(first) - 1] == first[:-1]
        and first[-1] < other.position[len(first) - 1]
        and len(set(names)) == len(names)
        and all(_is_among(loop, other.loops[levels:]) for loop in mine.loops[levels:])
        and all(
            len(branch) <= len(first) or _is_certain(condition, other)
            for branch, condition in zip(mine.branches, mine.conditions, strict=True)
        )
    )


def _is_certain(condition: Condition, place: Placed) -> bool:
    """Tell whether a guard around a statement says the same as another guard did before."""
    asked = {part for each in place.conditions for part in conjuncts(each)}
    # What data or a scalar decide may be decided otherwise the second time.
    return (
        all(part in asked for part in conjuncts(condition))
        and not is_data_dependent(condition)
        and not any(map(lets, compared(condition)))
    )


def _is_among(loop: Loop, others: tuple[Loop, ...]) -> bool:
    """Tell whether one of some loops has the same iterations, under the same name."""
    # A scalar may stand for something else in the next loop that is written the same.
    if any(lets(end) for end in loop.range.ends):
        return False
    return any(
        (each.variable, each.range) == (loop.variable, loop.range)
        and each.execution == loop.execution == "sequential"
        for each in others
    )


def killers(read: AccessModel, writes: Iterable[AccessModel]) -> tuple[AccessModel, ...]:
    """Return the write before a read that shares most loops with it, or those of all branches.

    In every iteration that reads, one of them is executed; there may be none.

    Args:
        read: The read.
        writes: All writes of the array.
    """
    latest: dict[Position, _Writes] = {}
    for write in writes:
        if _names_the_cell(write, read):
            _keep_later(latest, write.statement.place.position[:-1], (write,))
    if any(found[0].statement.place.branches for found in latest.values()):
        _join_branches(latest)
    place = read.statement.place.position
    # Whatever decides whether a block runs decides it for all that it is around.
    found = [writes for block, writes in latest.items() if place[: len(block)] == block]
    return max(found, key=_closeness, default=())


def _names_the_cell(write: AccessModel, read: AccessModel) -> bool:
    """Tell whether a write is of the cell read, and before it in the loops that they share."""
    mine, other = write.statement, read.statement
    depth = mine.depth
    return (
        write.condition == ALWAYS
        and not (write.generators or read.generators)
        and write.subscripts == read.subscripts
        and not _variables(other, depth) & _variables(mine)
        and mine.shared_depth(other) == depth
        and mine.order[depth] < other.order[depth]
    )


def _join_branches(latest: dict[Position, _Writes]) -> None:
    """Let the writes in the branches of a guard stand in the block around the guard."""
    blocks = list(latest)
    while blocks:
        block = blocks.pop()
        if block not in latest[block][0].statement.place.branches:
            continue
        guard, around = block[:-1], block[:-2]
        if (*guard, 1) in latest and (*guard, 2) in latest:
            before = latest.get(around)
            _keep_later(latest, around, (*latest[*guard, 1], *latest[*guard, 2]))
            if latest[around] is not before:
                blocks.append(around)


def _keep_later(latest: dict[Position, _Writes], block: Position, writes: _Writes) -> None:
    latest[block] = max(writes, latest.get(block, writes), key=_closeness)


def _closeness(writes: _Writes) -> tuple[int, int]:
    statement = writes[0].statement
    return statement.depth, statement.order[statement.depth]


def _variables(statement: StatementModel, start: int = 0) -> set[str]:
    return {bound.variable for bound in statement.bounds[start:]}


def is_killed(source: StatementModel, sink: StatementModel, last: Killer) -> bool:
    """Tell whether nothing a statement writes survives the write before a read.

    Args:
        source: The statement.
        sink: The statement that reads.
        last: The write before it.
    """
    depth, write = last.levels, last.write.statement
    return source.shared_depth(sink) < depth or source.order[depth] < write.order[depth]
