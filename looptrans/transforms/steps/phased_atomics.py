"""Phased atomics: loops become one parallel loop, its reductions atomic, barriers where needed."""

from __future__ import annotations

from looptrans.analysis.cycles.iterations import Fold
from looptrans.ir.program import Atomic, Node, Program
from looptrans.ir.step import Step
from looptrans.transforms.steps.phases import in_phases


def phased_atomics(program: Program, loop: str, *others: str) -> Step:
    """Run loops as one parallel loop, in phases, and their reductions by atomic updates.

        for j in range(0, N):                  for j in parallel(0, N):
            m = max(m, x[j])                       with atomic():
        for j in range(0, N):         ->               m = max(m, x[j])
            l = l + exp(x[j] - m)                  barrier()
                                                   with atomic():
                                                       l = l + exp(x[j] - m)

    A barrier stands only where instances of different iterations depend on one another. Names that
    tie iterations only by sharing the memory become private.

    Args:
        program: The program.
        loop: The loop; a single one is divided into phases where its statements allow it.
        others: Further loops, siblings that follow on it and run over the same range.

    Raises:
        TransformError: There is no such loop, the loops do not follow one another or do not run
            over the same range, one is parallel already, or no two iterations need each other.
    """
    names = (loop, *others)
    return in_phases(f"phased_atomics({', '.join(names)})", program, names, _atomic)


def _atomic(_: Fold, body: tuple[Node, ...]) -> Node:
    return Atomic(body)
