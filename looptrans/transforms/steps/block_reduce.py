"""Reduction inside a thread block: the iterations of a parallel loop combine their updates."""

from __future__ import annotations

from dataclasses import replace

from looptrans.analysis.cycles.iterations import Fold
from looptrans.frontend.appearance import names_at
from looptrans.frontend.updates import UPDATES, update_operand
from looptrans.ir.listing import assign_text
from looptrans.ir.monoids import MONOIDS
from looptrans.ir.program import Assign, BlockReduce, Node, Program
from looptrans.ir.step import Step
from looptrans.transforms.editing.accesses import place_of
from looptrans.transforms.editing.errors import TransformError
from looptrans.transforms.steps.phases import in_phases


def block_reduce(program: Program, loop: str, *others: str) -> Step:
    """Run loops as one parallel loop, in phases, and combine their updates in a tree.

        for j in range(0, N):                  for j in parallel(0, N):
            m = max(m, x[j])                       with reduce("max"):
        for j in range(0, N):         ->               m = max(m, x[j])
            l = l + exp(x[j] - m)                  barrier()
                                                   with reduce("+"):
                                                       l = l + exp(x[j] - m)

    As `phased_atomics`, but for the blocks: each update is one statement `cell = cell op x`, with
    the cell first and an operator out of `+`, `*`, `max` and `min`.

    Args:
        program: The program.
        loop: The loop; a single one is divided into phases where its statements allow it.
        others: Further loops, siblings that follow on it and run over the same range.

    Raises:
        TransformError: As for `phased_atomics`, or an update has another form.
    """
    names = (loop, *others)
    return in_phases(f"block_reduce({', '.join(names)})", program, names, _reduced)


def _reduced(fold: Fold, body: tuple[Node, ...]) -> Node:
    if fold.operator not in MONOIDS:
        raise TransformError(
            f"{fold.array} is reduced by {fold.operator}",
            place_of(body[0]),
            why=f"a reduce block combines by {', '.join(MONOIDS)}",
            remedy="use phased_atomics instead",
        )
    arrays = {target.array for n in body if isinstance(n, Assign) for target in n.targets}
    for node in body:
        operand = update_operand(node, fold.operator) if isinstance(node, Assign) else None
        if not isinstance(node, Assign) or operand is None:
            text = assign_text(node) if isinstance(node, Assign) else f"what updates {fold.array}"
            raise TransformError(
                f"{text} is not written as an update",
                place_of(node),
                why=f"in a reduce block each statement is {UPDATES[fold.operator]}, the cell first",
                remedy=f"write it as {UPDATES[fold.operator]}, or use phased_atomics",
            )
        if arrays & names_at(replace(node, targets=(), values=(operand,))):
            raise TransformError(
                f"{node.label} also reads {fold.array} in what it joins to the cell",
                place_of(node),
                why="the updates of a reduce block are made only when all iterations have handed "
                "them in",
                remedy="use phased_atomics, or promote the cell to a local first",
            )
    return BlockReduce(fold.operator, body)
