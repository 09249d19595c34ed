"""What is said of kernels that could be faster, and what would make them so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from looptrans.blocks.block_ir.expr import Load, Reduce, Scan, dims_of, walk
from looptrans.blocks.block_ir.ops import MOST_DIMS, TileLoop, exprs_of, ops_in
from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.ir.index import parameters
from looptrans.ir.listing import contract_text
from looptrans.ir.program import Array, Program


def notes_on(blocks: BlockProgram) -> tuple[str, ...]:
    """Return what is said of the kernels of a listing, each time with what may be done about it.

    Args:
        blocks: The kernels.
    """
    return (*on_names(blocks.listing), *_on_parts(blocks), *_on_pairs(blocks))


def on_names(program: Program) -> Iterator[str]:
    """Yield a note for each integer that only the body of a function mentions: it may be a typo.

    Args:
        program: The listing.
    """
    said = {name for array in program.arrays if array.role == "input" for name in _said_of(array)}
    asserted = " ".join(map(contract_text, program.contracts))
    for each in program.parameters if program.is_function else ():
        known = each.name in program.arguments or "." in each.name or each.name in said
        if not known and not re.search(rf"\b{re.escape(each.name)}\b", asserted):
            yield (
                f"{each.name} is no argument of the listing and no extent of one: it becomes an "
                f"integer argument; where that is meant, the signature may say so, {each.name}: int"
            )


def _said_of(array: Array) -> Iterator[str]:
    """Yield the names in what an annotation says of an array."""
    for index in (*array.shape, *(array.value_range or ())):
        if index is not None:
            yield from parameters(index)


def _on_parts(blocks: BlockProgram) -> Iterator[str]:
    """Yield a note for each loop over arguments that is a single program's, and may be several'."""
    given = blocks.listing.input_names
    for kernel in blocks.kernels:
        for op in kernel.body:
            if kernel.grid or not isinstance(op, TileLoop):
                continue
            inside = [p for o in ops_in((op,)) for e in exprs_of(o) for p in walk(e)]
            reads = any(isinstance(part, Load) and part.array in given for part in inside)
            if reads and not any(isinstance(part, Scan) for part in inside):
                yield (
                    f"one program goes over all of {op.dim.name}; emit --split computes such loops "
                    "in parts, where that is proved"
                )
                break


def _on_pairs(blocks: BlockProgram) -> Iterator[str]:
    """Yield a note for each argument of whose rows each pair has one, and no matrix product."""
    given = blocks.listing.input_names
    exprs = [
        expr for kernel in blocks.kernels for op in ops_in(kernel.body) for expr in exprs_of(op)
    ]
    parts = [part for expr in exprs for part in walk(expr)]
    loads = {
        dims: part
        for part in parts
        if isinstance(part, Load) and part.kind == "float" and part.array in given
        for dims in map(dims_of, part.subscripts)
        if len(dims) > 1 and len(dims_of(part)) == MOST_DIMS
    }
    summed = {
        part.over
        for part in parts
        if isinstance(part, Reduce) and len(dims_of(part.operand)) == MOST_DIMS
    }
    for pair, load in loads.items():
        if summed & set(dims_of(load)) - set(pair):
            names = " and ".join(dim.name for dim in pair)
            yield (
                f"which row of {load.array} is read hangs on {names} together, so that each pair "
                "has a sum of its own and no matrix product is made of them; where there is room, "
                f"work the products with all rows of {load.array} out in a nest before, T, and "
                "read T there"
            )
