"""About how long a run takes in Triton's interpreter, before it is made.

The interpreter takes about as long for an operation on a block as for one on a number, so what
counts is how many there are: those of a loop as often as it goes round, tiles by the block and
elements one by one, for every program. What is loaded is written down element by element besides,
and the listing itself is executed, its parallel loops as the axes of arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod

from looptrans.blocks.block_ir.expr import Dim, Expr, Load, Reduce, children, dims_of, walk
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Op,
    RowBlock,
    Store,
    TileLoop,
    exprs_of,
)
from looptrans.blocks.block_ir.program import BlockProgram, Kernel
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import Index, opaque_terms, parameters
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Reduce as Sum
from looptrans.ir.value import walk_value

Sizes = Mapping[str, int]

WATCHED = 2000
"""How many elements that are loaded or stored take as long as an operation."""
WORKED_OUT = 40000
"""How many elements that are worked out take as long as one."""
EXECUTED = 1
"""How many operations one of the listing takes, which is executed several times for a run."""
DIFFERENTIATED = 4
"""How many where it is differentiated as well."""
CALLED = 3
"""How many operations a function such as `tl.sum` takes."""


def work(blocks: Sequence[BlockProgram], sizes: Sizes) -> float:
    """Return about how many operations a run makes.

    Args:
        blocks: The kernels: those of a listing, or of a forward pass and the gradients after it.
        sizes: The sizes.
    """
    if not blocks:
        return 0.0
    total = sum(_kernel(k, each.listing, sizes) for each in blocks for k in each.kernels)
    times = EXECUTED if len(blocks) == 1 else DIFFERENTIATED
    total += times * _executed(blocks[0].scheduled, sizes)
    return total + _elements_of(blocks[0].listing, sizes) / WATCHED


def default_blocks(kernel: Kernel) -> dict[str, int]:
    """Return for each constexpr the most iterations that a block has by default."""
    found: dict[str, int] = {}
    for choice in (kernel.narrow, kernel.wide):
        for name, size in choice.default.blocks.items():
            found[name] = max(size, found.get(name, 0))
    return found


def bounding(stop: Index, program: Program) -> Iterator[str]:
    """Yield the sizes that say how far a loop goes, those of what is read from memory too."""
    yield from parameters(stop)
    # What a forward pass hands over has no declared range.
    declared = {array.name: array.value_range for array in program.arrays}
    for term in opaque_terms(stop):
        values = declared.get(term.array)
        if values is not None:
            yield from parameters(values[1])


class _Extents:
    """How many iterations loops have, those around them half way through."""

    def __init__(self, program: Program, sizes: Sizes) -> None:
        self.program = program
        self.sizes = sizes
        self.values = dict(sizes)

    def of(self, variable: str, start: Index, stop: Index, step: int = 1) -> int:
        first, last = evaluate(start, self.values), evaluate(stop, self.values)
        if first is None or last is None:
            names = bounding(stop if step > 0 else start, self.program)
            first, last = 0, max((self.sizes.get(name, 1) for name in names), default=1)
            step = abs(step)
        count = len(range(first, last, step))
        self.values[variable] = first + count // 2 * step
        return count


def _kernel(kernel: Kernel, program: Program, sizes: Sizes) -> float:
    found = _Extents(program, sizes)
    extents = {d: found.of(d.name, d.start, d.stop, d.step) for d in kernel.dims}
    # Bounds are asked for once more, now that every loop around them is known.
    extents = {d: found.of(d.name, d.start, d.stop, d.step) for d in kernel.dims}
    blocks = default_blocks(kernel)
    visits = {
        dim: -(-extent // blocks[dim.block]) if dim.block in blocks else extent
        for dim, extent in extents.items()
    }
    filled = {
        dim: min(extent, blocks.get(dim.block or "", extent)) for dim, extent in extents.items()
    }
    programs = prod(visits[dim] for dim in kernel.grid)
    return programs * _done(kernel.body, visits, filled)


def _done(ops: Sequence[Op], visits: Mapping[Dim, int], filled: Mapping[Dim, int]) -> float:
    """Return how much a program does."""
    total = 0.0
    others = {one: other for one, other in pairwise(ops) if isinstance(one, TileLoop)}
    split = {
        each
        for one, other in others.items()
        if isinstance(other, TileLoop) and isinstance(one, TileLoop) and one.dim == other.dim
        for each in (one, other)
    }
    for op in ops:
        total += sum(_worked_out(expr, filled) for expr in exprs_of(op))
        match op:
            case TileLoop(dim, _, _, kind, body):
                # Where there are full blocks, the others are the last one.
                often = visits[dim]
                if op in split:
                    often = 1 if kind == "boundary" else max(often - 1, 0)
                total += often * _done(body, visits, filled)
            case ElementLoop(dim, _, _, body):
                total += visits[dim] * _done(body, visits, filled)
            case Branch(_, body, otherwise):
                total += _done(body, visits, filled) + _done(otherwise, visits, filled)
            case RowBlock(_, _, _, body):
                total += _done(body, visits, filled)
            case Store():
                total += len(op.subscripts) + _elements(op.subscripts, filled) / WATCHED
    return total


def _worked_out(expr: Expr, filled: Mapping[Dim, int]) -> float:
    total = 0.0
    for part in walk(expr):
        if isinstance(part, Load):
            total += 2 + 2 * len(part.subscripts) + _elements(part.subscripts, filled) / WATCHED
        elif children(part):
            size = prod(filled.get(dim, 1) for dim in dims_of(part))
            total += (CALLED if isinstance(part, Reduce) else 1) + size / WORKED_OUT
    return total


def _elements(subscripts: Iterable[Expr], filled: Mapping[Dim, int]) -> int:
    dims = {dim for each in subscripts for dim in dims_of(each)}
    return prod(filled.get(dim, 1) for dim in dims)


def _elements_of(program: Program, sizes: Sizes) -> int:
    shapes = [[evaluate(e, sizes) for e in a.extents] for a in program.arrays]
    return sum(prod(e for e in shape if e is not None) for shape in shapes if shape)


def _executed(program: Program, sizes: Sizes) -> float:
    """Return about how many operations on arrays an execution of a program makes."""
    found = _Extents(program, sizes)

    def done(nodes: Sequence[Node], elements: int) -> float:
        total = 0.0
        for node in nodes:
            if isinstance(node, Loop):
                ends = node.range
                often = found.of(node.variable, ends.start, ends.stop, ends.step)
                if node.execution == "parallel":
                    total += done(node.body, elements * often)
                else:
                    total += often * done(node.body, elements)
            elif isinstance(node, If):
                total += 1 + done(node.body, elements) + done(node.orelse, elements)
            elif isinstance(node, Assign):
                for value in node.values:
                    parts = list(walk_value(value))
                    inner = prod(
                        found.of(each.variable, each.range.start, each.range.stop)
                        for part in parts
                        if isinstance(part, Sum)
                        for each in part.generators
                    )
                    total += len(parts) / 4 * (1 + elements * inner / WORKED_OUT)
        return total

    return done(program.body, 1)
