"""Join two loops that stand one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.affine import is_same
from looptrans.ir.index import Var
from looptrans.ir.listing import loop_text
from looptrans.ir.program import Loop, Node, Program
from looptrans.ir.step import Image, Step
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import placed
from looptrans.transforms.editing.band import described
from looptrans.transforms.editing.errors import NotAdjacent
from looptrans.transforms.editing.substitute import rename_variable, without_binders
from looptrans.transforms.editing.tree import LoopPath, block_at, find_loop, replace_at
from looptrans.transforms.judging.check import reordered


def fuse(program: Program, first: str, second: str) -> Step:
    """Make one loop of two that stand one after the other and have the same iterations.

        for i in range(0, N):               for i in range(0, N):
            S1(i)                ->             S1(i)
        for j in range(0, N):                   S2(i)
            S2(j)

    Legal where no dependence runs from a later iteration of the first loop to an earlier one of the
    second: for all dependences S1(x) -> S2(y) between the two bodies, inside one iteration of the
    loops around them, x <= y in the order of the loop.

    Args:
        program: The program.
        first: The loop that comes first; the new one has its variable.
        second: The one directly after it. Its range is the same, up to the name of the variable,
            wherever the two run; it is executed in the same way.

    Raises:
        TransformError: The loops do not exist, do not stand so, or have other iterations.
    """
    after = made_one(program, first, second).after
    name = f"fuse({first}, {second})"
    return reordered(name, program, after, _images(program, after), _advice)


@dataclass(frozen=True, slots=True)
class MadeOne:
    """Two loops made one, whether that is legal or not.

    Attributes:
        one: The loop that came first; the new one stands in its place.
        other: The one behind it.
        after: The program afterwards.
    """

    one: LoopPath
    other: LoopPath
    after: Program


def made_one(program: Program, first: str, second: str) -> MadeOne:
    """Make one loop of two that stand one after the other.

    Args:
        program: The program.
        first: The loop that comes first.
        second: The one directly after it.

    Raises:
        TransformError: The loops do not exist, do not stand so, or have other iterations.
    """
    paths = [find_loop(program, first), find_loop(program, second)]
    one, other = sorted(paths, key=lambda path: path.position)
    _require_adjacent(program, one, other)
    _require_same_iterations(program, one, other)
    renamed = other.loop
    if other.variable != one.variable:
        renamed = without_binders(program, renamed, frozenset((one.variable,)))
        renamed = rename_variable(renamed, other.variable, one.variable)
    private = tuple(dict.fromkeys((*one.loop.private, *other.loop.private)))
    body = (*one.loop.body, *with_comments(renamed))
    fused = replace(one.loop, body=body, private=private)
    after = replace_at(program, other.position, ())
    return MadeOne(one, other, replace_at(after, one.position, (fused,)))


def with_comments(loop: Loop) -> tuple[Node, ...]:
    """Return the body of a loop that goes away, its comments above what it begins with."""
    comments = (*loop.leading, *((loop.comment,) if loop.comment else ()))
    if not comments or not loop.body:
        return loop.body
    head, *rest = loop.body
    return (replace(head, leading=(*comments, *head.leading)), *rest)


def _images(before: Program, after: Program) -> dict[str, Image]:
    """Every statement keeps its place inside its loops, whatever their variables are called now."""
    earlier = {place.label: place for place in placed(before)}
    return {
        place.label: Image(place.label, tuple(Var(loop.variable) for loop in place.loops))
        for place in placed(after)
        if len(place.loops) == len(earlier[place.label].loops)
    }


def _require_adjacent(program: Program, one: LoopPath, other: LoopPath) -> None:
    names = _both(one, other)
    block, inside = one.position[:-1], other.position[:-1]
    if block != inside or one.position == other.position:
        raise NotAdjacent(
            f"{names} do not stand one after the other"
            if one.position != other.position
            else f"the loop {one.variable} is named twice",
            other.loop.span,
            why="only loops in the same block can be joined",
            remedy="join the loops around them first, or name two loops of one block",
        )
    between = block_at(program, one.position)[one.position[-1] + 1 : other.position[-1]]
    if between:
        raise NotAdjacent(
            f"{described(between[0])} stands between {names}",
            between[0].span,
            why="it would have to run before the one loop or after the other",
            remedy=f"move it above {one.variable} or below {other.variable} in the listing",
        )


def _both(one: LoopPath, other: LoopPath) -> str:
    if one.variable == other.variable:
        return f"the two loops {one.variable}"
    return f"the loops {one.variable} and {other.variable}"


def _require_same_iterations(program: Program, one: LoopPath, other: LoopPath) -> None:
    mine, theirs = one.loop, other.loop
    if mine.execution != theirs.execution:
        raise NotAdjacent(
            f"the loop {one.variable} is {mine.execution}, and {other.variable} is "
            f"{theirs.execution}",
            theirs.span,
            why="a loop is executed in one way",
            remedy="fuse the loops first, and parallelize the one they make",
        )
    if mine.range.step == theirs.range.step and (
        is_same(mine.range.start, theirs.range.start)
        and is_same(mine.range.stop, theirs.range.stop)
    ):
        return
    if not _same_values(program, one, other):
        raise NotAdjacent(
            f"{_both(one, other)} do not have the same iterations",
            theirs.span,
            why=f"the one is {loop_text(mine)}, the other {loop_text(theirs)}",
            remedy="give both the same range, with a guard where one has fewer iterations, or "
            "state a contract that makes the ranges equal",
        )


def _same_values(program: Program, one: LoopPath, other: LoopPath) -> bool:
    from looptrans.analysis.api import same_values
    from looptrans.analysis.budget import BudgetExceeded

    try:
        return same_values(program, one.position, one.loop.range, other.loop.range)
    except BudgetExceeded:
        return False


def _advice(verdict: Verdict) -> str:
    return "leave the loops apart"
