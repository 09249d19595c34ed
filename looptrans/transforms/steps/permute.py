"""Put the loops of a perfect nest into another order."""

from __future__ import annotations

from functools import partial

from looptrans.ir.program import Program
from looptrans.ir.step import Step, same_names
from looptrans.transforms.editing.band import find_band, require_named
from looptrans.transforms.editing.errors import NothingToDo
from looptrans.transforms.editing.scan import in_order
from looptrans.transforms.editing.tree import find_loop
from looptrans.transforms.judging.check import reordered
from looptrans.transforms.steps.advice import skew_first


def permute(program: Program, *order: str) -> Step:
    """Put the loops of a perfect nest into a new order, outermost first.

        for i:                                for k:
            for j:        permute(k, i, j)        for i:
                for k:           ->                   for j:
                    S(i, j, k)                            S(i, j, k)

    Legal where every dependence still runs forward: for all dependences x -> x' of the nest, x < x'
    lexicographically implies the same of the permuted vectors.

    Args:
        program: The program.
        order: The loops in the order they are to have: all those of a perfect nest, as for
            `interchange`.

    Raises:
        TransformError: The loops do not exist or are no perfect nest, they have this order already,
            or the range that one of them would have cannot be written down.
    """
    band = find_band(program, order)
    wanted = [find_loop(program, name).loop for name in order]
    require_named(band, wanted)
    if all(one is other for one, other in zip(wanted, band.loops, strict=True)):
        raise NothingToDo(
            f"the loops {', '.join(order)} have this order already",
            band.loops[0].span,
            remedy="name them in another order, outermost first",
        )
    after = in_order(band, wanted)
    name = f"permute({', '.join(order)})"
    return reordered(name, program, after, same_names(program, after), partial(skew_first, program))
