"""The head of a kernel: its arguments, and what its docstring says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from looptrans.blocks.block_ir.expr import Call, Scalar, walk
from looptrans.blocks.block_ir.ops import Store, exprs_of, ops_in
from looptrans.blocks.block_ir.program import ArrayArgument, Kernel
from looptrans.blocks.passes.described import DESCRIBED
from looptrans.blocks.passes.late import LATE
from looptrans.emit.arguments import (
    Argument,
    BlockSize,
    IndexType,
    LaneCount,
    Pointer,
    Positive,
    RealNumber,
    Size,
    Stride,
)
from looptrans.emit.expressions import Expressions
from looptrans.emit.layout import INDENT, heading
from looptrans.ir.index import Index
from looptrans.ir.listing import index_text
from looptrans.ir.monoids import Folding

_FOLDS: Mapping[Folding, str] = {"sum": "Adds to", "max": "Raises", "min": "Lowers"}
# The least extent of a side of a matrix product.
LEAST_SIDE = 16


def docstring(kernel: Kernel, expr: Expressions) -> list[str]:
    """Return the kernel's docstring: what a program does, and the shapes of the arrays."""
    rows = [
        f"{expr.block(dim.block or '')} iterations of {dim.name}"
        for dim in kernel.grid
        if dim.role == "rows"
    ]
    programs = [f"one {dim.name}" for dim in kernel.grid if dim.role == "program"]
    parts = [" by ".join(rows)] if rows else []
    parts += [("for " * bool(rows)) + joined(programs)] if programs else []
    what = ", ".join(parts) or "everything"
    lines = [f'{INDENT}"""A program does {what}.', ""]
    for dim in kernel.grid:
        if dim.most is not None:
            ends = f"{dim.name} goes from {index_text(dim.start)} to {index_text(dim.stop)}"
            idle = f"{ends}: a program whose block begins beyond does nothing."
            lines += [line.replace("# ", "", 1) for line in heading(idle, 1)]
    for verb, accesses in (
        ("Reads", ("in", "inout")),
        ("Writes", ("out", "inout")),
    ):
        lines += _said(verb, [array for array in kernel.arrays if array.access in accesses])
    for folding, verb in _FOLDS.items():
        folded = {
            o.array for o in ops_in(kernel.body) if isinstance(o, Store) and o.folded == folding
        }
        lines += _said(verb, [array for array in kernel.arrays if array.name in folded])
    return [*lines, f'{INDENT}"""']


def _said(verb: str, arrays: list[ArrayArgument]) -> list[str]:
    if not arrays:
        return []
    named = ", ".join(array_text(array.name, array.shape) for array in arrays)
    return [line.replace("# ", "", 1) for line in heading(f"{verb} {named}.", 1)]


def arguments_of(kernel: Kernel, expr: Expressions) -> tuple[Argument, ...]:
    """Return the arguments of a kernel: what the text written so far mentions."""
    scope, used = expr.scope, expr.used
    handed = {scalar.name for scalar in kernel.scalars} | {a.name for a in kernel.arrays}
    unknown = sorted((used.scalars | used.arrays) - handed)
    if unknown:
        raise ValueError(f"{kernel.name} is not handed {', '.join(unknown)}")
    found: list[Argument] = []
    for array in kernel.arrays:
        if array.name in used.arrays:
            name = expr.pointer(array.name)
            found.append(Pointer(name, array.name, array.element, array.dtype))
    for array in kernel.arrays:
        for axis in range(array.rank):
            if (array.name, axis) in used.strides:
                found.append(Stride(expr.stride(array.name, axis), array.name, axis))
    sizes: list[Argument] = []
    constants: list[Argument] = []
    seeds = _seeds(kernel)
    for scalar in kernel.scalars:
        if scalar.name not in used.scalars:
            continue
        name = scope.name("scalar", scalar.name, wanted=scalar.name)
        if scalar.kind == "float":
            found.append(RealNumber(name, scalar.name))
        elif scalar.name in kernel.constants:
            constants.append(Size(name, scalar.name, True))
        else:
            sizes.append(Size(name, scalar.name, False, scalar.name in seeds))
    found += sizes + constants
    found += [
        Positive(expr.sign(scalar.name), scalar.name)
        for scalar in kernel.scalars
        if scalar.name in used.signs
    ]
    if used.index:
        found.append(IndexType("INDEX"))
    for dim in kernel.dims:
        if dim.block is None or dim.block not in used.blocks:
            continue
        name = expr.block(dim.block)
        if dim.role == "lanes":
            least = LEAST_SIDE if dim.contracted else 1
            lanes = LaneCount(name, dim.extent, least, dim.block)
            found += [lanes] if lanes not in found else []
        elif BlockSize(name, dim.block) not in found:
            found.append(BlockSize(name, dim.block))
    options = (option for option in (LATE, DESCRIBED) if option in used.blocks)
    found += [BlockSize(expr.block(option), option) for option in options]
    return tuple(found)


def _seeds(kernel: Kernel) -> set[str]:
    """Return the numbers that are keys of random numbers."""
    calls = (
        part
        for op in ops_in(kernel.body)
        for expr in exprs_of(op)
        for part in walk(expr)
        if isinstance(part, Call) and part.function == "uniform"
    )
    keys = (call.arguments[0] for call in calls)
    return {key.name for key in keys if isinstance(key, Scalar)}


def side_names(arguments: Iterable[Argument]) -> dict[str, str]:
    """Return what a kernel calls the sizes of its blocks, those of lanes among them."""
    return {a.block: a.name for a in arguments if isinstance(a, BlockSize | LaneCount)}


def grouped(arguments: Sequence[Argument]) -> list[list[Argument]]:
    """Return the arguments as they stand on lines: those of a kind, and of an array, together."""
    groups: dict[tuple[object, ...], list[Argument]] = {}
    for argument in arguments:
        match argument:
            case Stride(_, array):
                key: tuple[object, ...] = (Stride, array)
            case Size(_, _, is_constant):
                key = (Size, is_constant)
            case BlockSize() | LaneCount():
                key = (BlockSize,)
            case _:
                key = (type(argument),)
        groups.setdefault(key, []).append(argument)
    return list(groups.values())


def declared(arguments: Iterable[Argument]) -> list[str]:
    """Return arguments as they stand in the head of a kernel."""
    return [
        argument.name
        + ("" if isinstance(argument, Pointer | Stride | RealNumber) else _annotation(argument))
        for argument in arguments
    ]


def _annotation(argument: Argument) -> str:
    return "" if isinstance(argument, Size) and not argument.is_constant else ": tl.constexpr"


def array_text(name: str, shape: Sequence[Index | None]) -> str:
    """Return an array with its shape, `Q (M, E)`; an extent nobody knows is `?`."""
    extents = ["?" if extent is None else index_text(extent) for extent in shape]
    if not extents:
        return f"{name} (a number)"
    return f"{name} ({', '.join(extents)}{',' * (len(extents) == 1)})"


def joined(parts: Sequence[str]) -> str:
    """Return parts of a sentence as `a, b and c`."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
