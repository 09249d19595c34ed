"""What a kernel is handed: arrays, numbers, and the sizes that it is compiled for."""

from __future__ import annotations

from collections.abc import Callable

from looptrans.blocks.block_ir.expr import Dim, Edge, Load, Position, Scalar, dims_of, walk
from looptrans.blocks.block_ir.ops import ElementLoop, Let, Op, Store, TileLoop, exprs_of, ops_in
from looptrans.blocks.block_ir.program import ArrayAccess, ArrayArgument
from looptrans.ir.index import parameters
from looptrans.ir.program import Array, Program


def arguments_of(
    program: Program,
    ops: tuple[Op, ...],
    grid: list[Dim],
    dtype: Callable[[Array], str | None],
) -> tuple[tuple[ArrayArgument, ...], tuple[Scalar, ...]]:
    """Return the arrays and numbers that a kernel is handed.

    Args:
        program: What is scheduled.
        ops: What a program of the kernel does.
        grid: The dimensions that number the kernel's programs.
        dtype: Gives the element type of an array, None where it is that of the inputs.
    """
    read: set[str] = set()
    written: set[str] = set()
    added: set[str] = set()
    used: set[str] = set()
    for op in ops_in(ops):
        if isinstance(op, Store):
            written.add(op.array)
            if op.folded:
                added.add(op.array)
        for expr in exprs_of(op):
            for part in walk(expr):
                if isinstance(part, Load):
                    read.add(part.array)
                elif isinstance(part, Scalar):
                    used.add(part.name)
                elif isinstance(part, Position | Edge):
                    used |= _names(part.dim)
    for dim in grid:
        used |= _names(dim)
    arrays = []
    for array in program.arrays:
        if array.name in read | written:
            access = _access(array.name in read, array.name in written, array.name in added)
            arrays.append(
                ArrayArgument(
                    array.name,
                    array.rank,
                    array.element,
                    access,
                    array.shape,
                    dtype(array),
                )
            )
    scalars = tuple(
        Scalar(p.name, "float" if p.kind == "real" else "int")
        for p in program.parameters
        if p.name in used
    )
    return tuple(arrays), scalars


def dims_in(ops: tuple[Op, ...]) -> set[Dim]:
    """Return the dimensions of what operations work on, and of their loops."""
    found: set[Dim] = set()
    for op in ops_in(ops):
        if isinstance(op, TileLoop | ElementLoop):
            found.add(op.dim)
        if isinstance(op, Let):
            found |= set(op.dims)
        for expr in exprs_of(op):
            for part in walk(expr):
                found |= set(dims_of(part))
    return found


def _names(dim: Dim) -> set[str]:
    most = () if dim.most is None else parameters(dim.most)
    return {*parameters(dim.start), *parameters(dim.stop), *most}


def constants_of(dims: list[Dim]) -> tuple[str, ...]:
    """Return the sizes that a kernel is compiled for: those of dimensions held whole."""
    found: dict[str, None] = {}
    for dim in dims:
        if dim.role == "lanes":
            for name in (*parameters(dim.start), *parameters(dim.stop)):
                found[name] = None
    return tuple(found)


def _access(is_read: bool, is_written: bool, is_added: bool) -> ArrayAccess:
    if is_added:
        return "added"
    if is_read and is_written:
        return "inout"
    return "in" if is_read else "out"
