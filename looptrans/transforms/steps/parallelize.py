"""Parallel execution of a loop, as it stands."""

from __future__ import annotations

from dataclasses import replace

from looptrans.analysis.budget import BudgetExceeded
from looptrans.analysis.cycles.iterations import Fold, Iterations, iterations_of
from looptrans.frontend.appearance import names_at
from looptrans.frontend.updates import update_operand
from looptrans.ir.monoids import MONOIDS
from looptrans.ir.program import Assign, Atomic, BlockReduce, Node, Program
from looptrans.ir.step import Step, same_names
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import placed
from looptrans.transforms.editing.accesses import listed, place_of, sites_outside
from looptrans.transforms.editing.errors import NothingToDo, TransformError
from looptrans.transforms.editing.tree import (
    LoopPath,
    find_loop,
    is_node,
    loop_name,
    node_at,
    replace_at,
)
from looptrans.transforms.judging.check import reordered
from looptrans.transforms.steps.split import can_split


def parallelize(program: Program, loop: str) -> Step:
    """Run the iterations of a loop in parallel.

        for j in range(0, N):              for j in parallel(0, N):
            y[j] = 2.0 * x[j]     ->           y[j] = 2.0 * x[j]

    It is legal if no two iterations touch a cell that one of them writes, or something in the loop
    keeps them apart: names it makes private, atomic updates, turns, barriers.

    Args:
        program: The program.
        loop: The loop.

    Raises:
        TransformError: There is no such loop, or it is parallel already.
    """
    path = find_loop(program, loop)
    require_sequential(program, path)
    changed = replace(path.loop, execution="parallel")
    after = replace_at(program, path.position, (changed,))

    def advice(_: Verdict) -> str:
        try:
            found = iterations_of(program, path.position)
        except BudgetExceeded:
            return ""
        return way_out(program, path, found)

    return reordered(f"parallelize({loop})", program, after, same_names(program, after), advice)


def require_sequential(program: Program, path: LoopPath) -> None:
    """Require that a loop can be made parallel as far as its form goes.

    Raises:
        TransformError: It is parallel already, or in a block that allows no parallel loop.
    """
    loop = loop_name(program, path.position)
    if path.loop.execution == "parallel":
        raise NothingToDo(
            f"the loop {loop} is parallel already", place_of(path.loop), remedy="name another loop"
        )
    for length in range(1, len(path.position)):
        above = path.position[:length]
        node = node_at(program, above) if is_node(program, above) else None
        if isinstance(node, BlockReduce):
            raise TransformError(
                f"the loop {loop} stands in a reduce block",
                place_of(path.loop),
                why="the iterations of the parallel loop around the block are combined",
                remedy="leave it sequential",
            )


def require_no_atomic(program: Program, path: LoopPath) -> None:
    """Require that no atomic block is around a loop or in it, so that one can be put into it.

    Raises:
        TransformError: There is one.
    """
    loop = loop_name(program, path.position)
    around = [node_at(program, path.position[:n]) for n in range(1, len(path.position))]
    if any(isinstance(node, Atomic) for node in around):
        raise TransformError(
            f"the loop {loop} stands in an atomic block",
            place_of(path.loop),
            why="an atomic block inside another one would wait for it for ever",
            remedy="leave it sequential",
        )


def possible_private(program: Program, path: LoopPath, found: Iterations) -> tuple[str, ...]:
    """Return the names that may be private to a loop, and are used nowhere else."""
    return tuple(n for n in found.private if not sites_outside(program, n, path.position))


def way_out(program: Program, path: LoopPath, found: Iterations) -> str:
    """Say how the iterations of a loop can run in parallel, given what ties them together."""
    loop = loop_name(program, path.position)
    private = possible_private(program, path, found)
    if found.unexplained:
        tied = dict.fromkeys(tie.array for tie in found.unexplained)
        return f"ordered_atomics({loop}) lets the iterations take turns at {listed(tuple(tied))}"
    if len(private) < len(found.private):
        return f"privatize({loop}) first"
    if found.folds:
        operators = listed(tuple(dict.fromkeys(fold.operator for fold in found.folds)))
        into = listed(tuple(dict.fromkeys(fold.array for fold in found.folds)))
        joining = f"phased_atomics({loop})"
        if _written_as_updates(program, found):
            joining += f" or block_reduce({loop})"
        ways = [f"{joining} joins the iterations"]
        if can_split(program, path, found):
            ways.append(f"split({loop}, SIZE) makes partial results")
        return f"{loop} is a reduction by {operators} into {into}: {', '.join(ways)}"
    return f"privatize({loop}) first" if private else ""


def _written_as_updates(program: Program, found: Iterations) -> bool:
    """Tell whether the updates of a loop have the form and the place that a reduce block needs."""
    places = {place.label: place for place in placed(program)}
    for fold in found.folds:
        updates = [places[label] for label in fold.statements]
        forms = [_is_update(place.node, fold) for place in updates]
        # One block is around all of them, and around nothing else.
        blocks = {place.position[:-1] for place in updates}
        numbers = [place.position[-1] for place in updates]
        together = len(blocks) == 1 and max(numbers) - min(numbers) < len(numbers)
        if fold.operator not in MONOIDS or not all(forms) or not together:
            return False
    return True


def _is_update(node: Node, fold: Fold) -> bool:
    """Tell whether a statement joins to a cell what is worked out without the array it is in."""
    if not isinstance(node, Assign):
        return False
    operand = update_operand(node, fold.operator)
    if operand is None:
        return False
    return fold.array not in names_at(replace(node, targets=(), values=(operand,)))
