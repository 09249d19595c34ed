"""Privatization: each iteration of a loop gets its own copy of a local."""

from __future__ import annotations

from looptrans.analysis.budget import BudgetExceeded
from looptrans.analysis.iterations import iterations_of
from looptrans.ir.program import Array, Program
from looptrans.ir.source import Span
from looptrans.ir.step import Step, same_names
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import live_out
from looptrans.transforms.accesses import (
    AccessSite,
    find_array,
    listed,
    place_of,
    sites_of,
    sites_outside,
)
from looptrans.transforms.check import check_storage
from looptrans.transforms.nest import (
    LoopPath,
    NothingToDo,
    TransformError,
    find_loop,
    finished,
    loop_name,
)
from looptrans.transforms.privacy import with_private


def privatize(program: Program, loop: str, *names: str) -> Step:
    """Give each iteration of a loop its own copy of locals.

        for j in range(0, N):              for j in range(0, N):
            t = 2.0 * x[j]                     private: t
            y[j] = t + t            ->         t = 2.0 * x[j]
                                               y[j] = t + t

    A copy starts without a value and ends with its iteration, so it is legal if no value of the
    local comes into an iteration from outside it, or goes out.

    Args:
        program: The program.
        loop: The loop.
        names: The locals; by default all that tie iterations together only by sharing the memory.

    Raises:
        TransformError: There is no such loop or local, it comes from outside, or it is used outside
            the loop for values of another kind.
    """
    called = f"privatize({', '.join((loop, *names))})"
    path = find_loop(program, loop)
    if names:
        for name in names:
            _require_local(program, path, find_array(program, name))
    else:
        try:
            names = _possible(program, path)
        except BudgetExceeded as error:
            return Step(called, program, program, Verdict("unknown", reason=str(error)), {})
    after = with_private(program, path.position, names)
    done, images = finished(after, same_names(program, after))
    verdict = check_storage(program, done, images)
    if verdict.decision == "legal":
        for name in names:
            _require_inside(program, path, name)
    return Step(called, program, done, verdict, images)


def _possible(program: Program, path: LoopPath) -> tuple[str, ...]:
    found = iterations_of(program, path.position)
    names = tuple(n for n in found.private if not sites_outside(program, n, path.position))
    if names:
        return names
    loop = loop_name(program, path.position)
    if found.private:
        _require_inside(program, path, found.private[0])
    tied = tuple(dict.fromkeys(tie.array for tie in found.ties))
    message = f"there is nothing to privatize in the loop {loop}"
    if not tied:
        raise NothingToDo(
            message,
            place_of(path.loop),
            why="no two iterations touch a cell that one of them writes",
            remedy=f"parallelize({loop})",
        )
    raise NothingToDo(
        message,
        place_of(path.loop),
        why=f"what ties the iterations together is {listed(tied)}, whose values are needed "
        "outside an iteration",
        remedy=f"privatize({loop}, {tied[0]}) shows which value",
    )


def _require_local(program: Program, path: LoopPath, array: Array) -> None:
    """Require that a name can be private at all: made by the listing, and used in the loop."""
    loop = loop_name(program, path.position)
    name = array.name
    if array.role == "input" or name in live_out(program):
        where = "comes from outside" if array.role == "input" else "is returned"
        raise TransformError(
            f"{name} {where}, and cannot be private",
            _span(sites_of(program, name)),
            why="a private copy starts without a value and ends with its iteration",
            remedy=f"keep an element of it in a local, promote({name}, {loop})"
            if array.rank
            else f"use a local in the loop, and copy it to {name}",
        )
    if name in path.loop.private:
        raise NothingToDo(
            f"{name} is private to the iterations of {loop} already",
            place_of(path.loop),
            remedy="leave it out",
        )
    inside = [s for s in sites_of(program, name) if path.position in s.place.loop_positions]
    if not inside:
        raise NothingToDo(
            f"{name} is not used in the loop {loop}",
            place_of(path.loop),
            remedy="name a local that the loop sets",
        )


def _require_inside(program: Program, path: LoopPath, name: str) -> None:
    """Require that a name is used nowhere but in the loop.

    Where its values do not leave the loop, what is outside is another use of the same name.
    """
    outside = sites_outside(program, name, path.position)
    if not outside:
        return
    loop = loop_name(program, path.position)
    raise TransformError(
        f"{name} is also used outside the loop {loop}, by {outside[0].place.label}",
        _span(outside),
        why="a private name is used only in loops that make it private, though here no value "
        "passes between the two uses",
        remedy=f"give {name} another name in one of the two places",
    )


def _span(sites: tuple[AccessSite, ...]) -> Span | None:
    return place_of(sites[0].place.node) if sites else None
