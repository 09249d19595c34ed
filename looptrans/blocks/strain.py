"""How many registers the loops of a kernel with many products are likely to need.

`footprint` counts the numbers a thread holds. Of those, sums of products only ever meet matrix
instructions, but what is worked on element by element has others beside it: parts of its function,
its place in an array, another layout it is brought into. So it counts twice:

    strain = sums + 2 · (other blocks + conditions) + vectors held throughout + …

The weights are those that told best which of some 250 kernels for sm_90, of attention of all kinds
and head size 128, spill registers: from `MOST` on they do, or nearly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from looptrans.blocks.expr import Call, Expr, Load, Name, dims_of, walk
from looptrans.blocks.footprint import Inner, Sizes, integers_of, loops_of, needs_of, sizes_of
from looptrans.blocks.ops import Let, Op
from looptrans.blocks.program import Config

MOST = 145
"""The strain of a thread at most, in registers; it has 255, and others are needed in any case."""

_BESIDE = 2
# The rounds of Philox, several elements at once.
_DRAWN = 7
# A thread has elements of two rows.
_ROWS = 2
# Four warps have at least as many rows, or their matrix instructions are those of sm_80, whose
# operands are registers too: those that stay the same throughout a loop, in 16 bits.
_LEAST_ROWS = 64

Weighed: TypeAlias = tuple[Sizes, float]


@dataclass(frozen=True, slots=True)
class Strain:
    """What one loop needs registers for.

    Attributes:
        blocks: Blocks, and how many registers each element takes.
        operands: Operands of products that are loaded before the loop.
        vectors: The registers of vectors.
    """

    blocks: tuple[Weighed, ...]
    operands: tuple[Sizes, ...]
    vectors: int

    def registers(self, sizes: Mapping[str, int], threads: int, *, is_low: bool) -> float:
        """Return the registers of a thread.

        Args:
            sizes: The iterations of each block.
            threads: The threads of a program.
            is_low: Whether it has too few rows for sm_90's matrix instructions.
        """
        kept = [(operand, 0.5 * _BESIDE) for operand in self.operands if is_low]
        blocks = ((prod(sizes[s] for s in sides), each) for sides, each in (*self.blocks, *kept))
        return self.vectors + sum(elements * each for elements, each in blocks) / threads


def strains_of(body: tuple[Op, ...]) -> tuple[Strain, ...]:
    """Return what each innermost loop with products needs registers for.

    Args:
        body: What a program does.
    """
    return tuple(_strain(loop) for loop in loops_of(body))


def strain(
    strains: Iterable[Strain], config: Config, lanes: Mapping[str, int], rows: Iterable[str]
) -> float:
    """Return how many registers of a thread the loop that needs most of them is likely to need.

    Args:
        strains: What its loops need.
        config: The configuration.
        lanes: The iterations of what is no part of a configuration.
        rows: The blocks of rows.
    """
    sizes = {**lanes, **config.blocks}
    is_low = any(config.blocks[row] < _LEAST_ROWS for row in rows)
    threads = 32 * config.warps
    return max((each.registers(sizes, threads, is_low=is_low) for each in strains), default=0)


def _strain(loop: Inner) -> Strain:
    needed = needs_of(loop)
    sums = [sizes_of(op) for op in (*loop.sums, *loop.kept)]
    others = list(needed.held)
    for each in sums:
        others.remove(each)
    blocks: list[Weighed] = [(each, 1) for each in sums]
    blocks += [(each, _BESIDE) for each in others]
    _, _, compared = integers_of(loop.ops)
    # The first is no part of what is held.
    blocks += [(_sides(each), _BESIDE) for each in compared[:1]]
    # Numbers that are read are compared in 64 bits.
    blocks += [(_sides(each), _BESIDE) for each in compared if _is_read(each)]
    drawn = {p for p in loop.parts if isinstance(p, Call) and p.function == "uniform"}
    blocks += [(_sides(each), _DRAWN) for each in drawn]
    vectors = [op for op in loop.before if isinstance(op, Let) and len(dims_of(op.value)) == 1]
    operands = tuple(piece.sizes for piece in needed.resident)
    return Strain(tuple(blocks), operands, _ROWS * len(vectors))


def _sides(expr: Expr) -> Sizes:
    return tuple(dim.block or "" for dim in dims_of(expr))


def _is_read(condition: Expr) -> bool:
    """Tell whether integers that arrays hold are compared."""
    return any(
        isinstance(part, Load) or (isinstance(part, Name) and part.holds is not None)
        for part in walk(condition)
    )
