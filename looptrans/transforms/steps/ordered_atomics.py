"""Ordered atomics: the iterations of a loop run in parallel, and take turns where they must."""

from __future__ import annotations

from dataclasses import replace

from looptrans.analysis.budget import BudgetExceeded
from looptrans.analysis.cycles.iterations import Tie, iterations_of
from looptrans.ir.program import Atomic, Program
from looptrans.ir.step import Step, same_names
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import nodes
from looptrans.transforms.editing.accesses import place_of
from looptrans.transforms.editing.errors import NothingToDo, TransformError
from looptrans.transforms.editing.privacy import with_private
from looptrans.transforms.editing.tree import (
    LoopPath,
    find_loop,
    loop_name,
    replace_at,
    statements_in,
)
from looptrans.transforms.judging.check import reordered
from looptrans.transforms.steps.advice import with_privacy_first
from looptrans.transforms.steps.parallelize import (
    possible_private,
    require_no_atomic,
    require_sequential,
)


def ordered_atomics(program: Program, loop: str) -> Step:
    """Run a loop in parallel, with turns for the statements that tie its iterations together.

        for j in range(0, N):              for j in parallel(0, N):
            t = exp(x[j])                      private: t
            s = 0.5 * s + t       ->           t = exp(x[j])
            y[j] = t * t                       with atomic(turn=j):
                                                   s = 0.5 * s + t
                                               y[j] = t * t

    The block holds the shortest stretch of the body that has all these statements in it; names that
    tie iterations only by sharing the memory become private.

    Args:
        program: The program.
        loop: The loop.

    Raises:
        TransformError: There is no such loop, it is parallel already, or nothing ties its
            iterations together.
    """
    called = f"ordered_atomics({loop})"
    path = find_loop(program, loop)
    require_sequential(program, path)
    require_no_atomic(program, path)
    try:
        found = iterations_of(program, path.position)
    except BudgetExceeded as error:
        return Step(called, program, program, Verdict("unknown", reason=str(error)), {})
    private = possible_private(program, path, found)
    ties = tuple(tie for tie in found.ties if tie.array not in private)
    if not ties:
        name = loop_name(program, path.position)
        raise NothingToDo(
            f"no statement of the loop {name} needs a turn",
            place_of(path.loop),
            why="no values pass from one iteration to another"
            if private
            else "no two iterations touch a cell that one of them writes",
            remedy=f"privatize({name}) and then parallelize({name})"
            if private
            else f"parallelize({name})",
        )
    first, last = _stretch(path, ties)
    body = path.loop.body
    _require_no_inner_atomic(program, path, first, last)
    turn = Atomic(body[first : last + 1], path.variable)
    changed = replace(
        path.loop, execution="parallel", body=(*body[:first], turn, *body[last + 1 :])
    )
    after = with_private(replace_at(program, path.position, (changed,)), path.position, private)
    step = reordered(called, program, after, same_names(program, after))
    return with_privacy_first(step, loop_name(program, path.position)) if private else step


def _stretch(path: LoopPath, ties: tuple[Tie, ...]) -> tuple[int, int]:
    """Return the first and the last node of the body that a tie ends in."""
    ends = {end for tie in ties for end in (tie.source, tie.sink)}
    tied = [
        number
        for number, node in enumerate(path.loop.body)
        if ends.intersection(statements_in((node,)))
    ]
    return tied[0], tied[-1]


def _require_no_inner_atomic(program: Program, path: LoopPath, first: int, last: int) -> None:
    loop = loop_name(program, path.position)
    for node in nodes(path.loop.body[first : last + 1]):
        if isinstance(node, Atomic):
            raise TransformError(
                f"what needs turns in {loop} has an atomic block in it",
                place_of(node),
                why="an atomic block inside another one would wait for it for ever",
                remedy="use ordered_atomics before the inner loop gets its atomic blocks",
            )
