"""Run a loop from its last iteration to its first."""

from __future__ import annotations

from dataclasses import replace

from looptrans.ir.program import Program
from looptrans.ir.ranges import reversed_range
from looptrans.ir.step import Step, same_names
from looptrans.ir.verdict import Verdict
from looptrans.transforms.editing.tree import find_loop, replace_at
from looptrans.transforms.judging.check import reordered


def reverse(program: Program, loop: str) -> Step:
    """Run a loop backward: the same iterations, the last one first.

        for j in range(0, N):       ->      for j in range(N - 1, -1, -1):
            S(j)                                S(j)

    Legal where the loop carries no dependence: for all dependences x -> x', the first entry in
    which x and x' differ is not that of the loop.

    Args:
        program: The program.
        loop: The loop; its step may be any.

    Raises:
        TransformError: There is no such loop.
    """
    path = find_loop(program, loop)
    turned = replace(path.loop, range=reversed_range(path.loop.range))
    after = replace_at(program, path.position, (turned,))
    return reordered(f"reverse({loop})", program, after, same_names(program, after), _advice)


def _advice(verdict: Verdict) -> str:
    return "only a loop that carries no dependence can run backward"
