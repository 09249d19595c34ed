"""How many registers the loops of a kernel with many products are likely to need.

`footprint` counts the numbers a thread holds. Of those, sums of products only ever meet matrix
instructions, but what is worked on element by element has others beside it: parts of its function,
its place in an array, another layout it is brought into. So

    strain = sums · 3/4 + other blocks · 2 + conditions + numbers that are drawn · 6.5
             + functions that take a GPU several steps
             + 2 for a vector held throughout, 1 for one loaded in the loop
             + 5 for an integer that is read before the loop, 14 for a loop around it

in registers of a thread. The weights are rounded ones of those that told best which of some 500
kernels spill: backward passes of attention of all kinds, head size 128, compiled for sm_90.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from looptrans.blocks.block_ir.expr import Call, Expr, Load, dims_of, walk
from looptrans.blocks.block_ir.ops import Let, Op, exprs_of
from looptrans.blocks.block_ir.program import Config
from looptrans.blocks.fitting.footprint import (
    Inner,
    Sizes,
    integers_of,
    loops_of,
    needs_of,
    sizes_of,
)

_SUM = 0.75
_BESIDE = 2.0
_CONDITION = 1.0
_DRAWN = 6.5
_FUNCTION = 1.0
_SEVERAL_STEPS = ("tanh", "tanh_slope", "pow")
_HELD_VECTOR, _LOADED_VECTOR, _READ, _AROUND = 2, 1, 5, 14

Weighed: TypeAlias = tuple[Sizes, float]


@dataclass(frozen=True, slots=True)
class Strain:
    """What one loop needs registers for.

    Attributes:
        blocks: Blocks, and how many registers each element takes.
        beside: The registers that do not depend on the sizes of blocks.
    """

    blocks: tuple[Weighed, ...]
    beside: int

    def registers(self, sizes: Mapping[str, int], threads: int) -> float:
        """Return the registers of a thread.

        Args:
            sizes: The iterations of each block.
            threads: The threads of a program.
        """
        blocks = (prod(sizes[side] for side in sides) * each for sides, each in self.blocks)
        return self.beside + sum(blocks) / threads


def strains_of(body: tuple[Op, ...]) -> tuple[Strain, ...]:
    """Return what each innermost loop with products needs registers for.

    Args:
        body: What a program does.
    """
    return tuple(_strain(loop) for loop in loops_of(body))


def strain(strains: Iterable[Strain], config: Config, lanes: Mapping[str, int]) -> float:
    """Return the registers of a thread that the loop which needs most of them is likely to need.

    Args:
        strains: What its loops need.
        config: The configuration.
        lanes: The iterations of what is no part of a configuration.
    """
    sizes = {**lanes, **config.blocks}
    return max((each.registers(sizes, 32 * config.warps) for each in strains), default=0)


def _strain(loop: Inner) -> Strain:
    sums = [sizes_of(op) for op in (*loop.sums, *loop.kept)]
    others = list(needs_of(loop).held)
    for each in sums:
        others.remove(each)
    parts = list(dict.fromkeys(loop.parts))
    compared = integers_of(loop.ops)[2]
    calls = [part for part in parts if isinstance(part, Call) and len(dims_of(part)) > 1]
    drawn = [call for call in calls if call.function == "uniform"]
    worked_out = [call for call in calls if call.function in _SEVERAL_STEPS]
    # All conditions but the first, which is gone before the next product, are among the others.
    blocks = [
        *((each, _SUM) for each in sums),
        *((each, _BESIDE) for each in others),
        *((_sides(each), _CONDITION) for each in compared),
        *((_sides(each), _DRAWN) for each in drawn),
        *((_sides(each), _FUNCTION) for each in worked_out),
    ]
    held = [op for op in loop.before if isinstance(op, Let) and len(dims_of(op.value)) == 1]
    loaded = [part for part in parts if isinstance(part, Load) and len(dims_of(part)) == 1]
    outside = dict.fromkeys(p for op in loop.before for e in exprs_of(op) for p in walk(e))
    read = [p for p in outside if isinstance(p, Load) and p.kind == "int" and not dims_of(p)]
    beside = len(held) * _HELD_VECTOR + len(loaded) * _LOADED_VECTOR
    return Strain(tuple(blocks), beside + len(read) * _READ + loop.depth * _AROUND)


def _sides(expr: Expr) -> Sizes:
    return tuple(dim.block or "" for dim in dims_of(expr))
