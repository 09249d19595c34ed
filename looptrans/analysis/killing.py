"""Writes that come before a read in the very same iteration, which no earlier write survives.

    for i: m = -inf         every read of m in the loop j sees what this iteration of i has left:
           for j: m = max(m, x[i, j])     of all pairs of a write and a read of m, only those with
                                          one i need be looked at

No sets are needed to tell: the write stands before the read, in a block that is around both, and
names the same cell.
"""

from __future__ import annotations

from collections.abc import Iterable

from looptrans.analysis.model import AccessModel, StatementModel
from looptrans.ir.condition import ALWAYS


def killer(read: AccessModel, writes: Iterable[AccessModel]) -> AccessModel | None:
    """Return the write before a read that shares most loops with it; None if there is none.

    Args:
        read: The read.
        writes: All writes of the array.
    """
    found = [write for write in writes if _kills(write, read)]
    return max(found, key=lambda write: write.statement.depth, default=None)


def _kills(write: AccessModel, read: AccessModel) -> bool:
    mine, other = write.statement, read.statement
    depth = mine.depth
    block = mine.place.position[:-1]
    # Whatever decides whether the block runs decides it for both.
    return (
        write.condition == ALWAYS
        and not (write.generators or read.generators)
        and write.subscripts == read.subscripts
        and not _variables(other, depth) & _variables(mine)
        and other.place.position[: len(block)] == block
        and mine.shared_depth(other) == depth
        and mine.order[depth] < other.order[depth]
    )


def _variables(statement: StatementModel, start: int = 0) -> set[str]:
    return {bound.variable for bound in statement.bounds[start:]}


def is_killed(source: StatementModel, sink: StatementModel, last: AccessModel) -> bool:
    """Tell whether nothing a statement writes survives the write before a read.

    Args:
        source: The statement.
        sink: The statement that reads.
        last: The write before it.
    """
    depth = last.statement.depth
    return source.shared_depth(sink) < depth or source.order[depth] < last.statement.order[depth]
