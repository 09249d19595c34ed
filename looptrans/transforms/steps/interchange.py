"""Interchange two loops of a perfect nest."""

from __future__ import annotations

from functools import partial

from looptrans.ir.program import Program
from looptrans.ir.step import Step, same_names
from looptrans.transforms.editing.band import find_band
from looptrans.transforms.editing.scan import in_order
from looptrans.transforms.judging.check import reordered
from looptrans.transforms.steps.advice import skew_first


def interchange(program: Program, outer: str, inner: str) -> Step:
    """Swap two loops of a perfect nest; loops between them stay where they are.

        for i in range(0, N):                    for j in range(0, N):
            for j in range(0, i + 1):     ->         for i in range(j, N):
                S(i, j)                                  S(i, j)

    Legal where every dependence still runs forward with the two entries of its distance vector
    swapped: for all dependences (x, y) -> (x', y') of the nest, (x, y) < (x', y') lexicographically
    implies swap(x, y) < swap(x', y').

    Args:
        program: The program.
        outer: The one loop.
        inner: The other, inside it. Loops between the two, and both loops, may only hold one
            another and guards on loop variables and sizes; the guards move inward. A range may
            depend on the loops around it; where it must change, it becomes one that has the same
            iterations, with a guard inside where no range does.

    Raises:
        TransformError: The loops do not exist or are not nested so, or the range that one of them
            would have cannot be written down.
    """
    band = find_band(program, (outer, inner))
    order = [band.loops[-1], *band.loops[1:-1], band.loops[0]]
    after = in_order(band, order)
    name = f"interchange({outer}, {inner})"
    return reordered(name, program, after, same_names(program, after), partial(skew_first, program))
