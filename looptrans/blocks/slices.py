"""Arrays of which only slices with a number for a subscript are written, as an array for each.

for d: dX[j, 2, d] = dX[j, 2, d] + …          for d: dX_2[j, d] = dX_2[j, d] + …
for d: dX[j, 1, d] = dX[j, 1, d] + …    ->    for d: dX_1[j, d] = dX_1[j, d] + …

A program then has a block of registers for each of them. In memory they are one array still.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from looptrans.blocks.arithmetic import mapped
from looptrans.blocks.expr import Cast, Expr, Load, Name, Number
from looptrans.blocks.ops import Branch, ElementLoop, Let, Op, RowBlock, Store, TileLoop
from looptrans.blocks.program import ArrayAccess, ArrayArgument, BlockProgram, Filled, Kernel
from looptrans.ir.index import Int
from looptrans.ir.program import (
    Array,
    Assign,
    Declaration,
    If,
    Node,
    Program,
)
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.value import Access
from looptrans.ir.walk import accesses, nodes


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of an array where one subscript is a number.

    Attributes:
        array: The array.
        axis: The subscript.
        number: What it is.
    """

    array: Array
    axis: int
    number: int


def sliced(program: Program) -> tuple[Program, dict[str, Slice]]:
    """Return a program with an array for each slice, and what each of them is a slice of."""
    slices: dict[str, Slice] = {}
    names: dict[tuple[str, int], str] = {}
    axes: dict[str, int] = {}
    taken = {a.name for a in program.arrays} | {p.name for p in program.parameters}
    for array in program.arrays:
        found = _axis(program, array)
        if found is None:
            continue
        axes[array.name], count = found
        for number in range(count):
            name = f"{array.name}_{number}"
            while name in taken:
                name += "_"
            taken.add(name)
            names[array.name, number] = name
            slices[name] = Slice(array, axes[array.name], number)
    if not slices:
        return program, {}

    def parts(name: str) -> list[str]:
        return [new for (old, _), new in names.items() if old == name] or [name]

    def cell(access: Access) -> Access:
        axis = axes.get(access.array)
        if axis is None:
            return access
        subscript = access.subscripts[axis]
        assert isinstance(subscript, Int)
        others = (*access.subscripts[:axis], *access.subscripts[axis + 1 :])
        return Access(names[access.array, subscript.value], others)

    def created(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Declaration) or node.array not in axes:
            return (node,)
        made = node.creation
        shape = tuple(s for n, s in enumerate(made.shape) if n != axes[node.array])
        creation = replace(made, shape=shape)
        return tuple(replace(node, array=name, creation=creation) for name in parts(node.array))

    arrays: list[Array] = []
    for array in program.arrays:
        for name in parts(array.name):
            made = slices.get(name)
            if made is None:
                arrays.append(array)
                continue
            shape = tuple(s for n, s in enumerate(array.shape) if n != made.axis)
            own = replace(array, name=name, rank=len(shape), shape=shape, annotation=None)
            arrays.append(own)
    return replace(
        program,
        arrays=tuple(arrays),
        body=rewritten(with_accesses(program.body, cell), created),
        outputs=tuple(name for output in program.outputs for name in parts(output)),
    ), slices


def _axis(program: Program, array: Array) -> tuple[int, int] | None:
    """Return a subscript that is a number wherever an array is used, and its extent."""
    if array.role != "local":
        return None
    used = [
        relation.access
        for node in nodes(program.body)
        if isinstance(node, Assign | If)
        for relation in accesses(node)
        if relation.access.array == array.name
    ]
    for axis, extent in enumerate(array.shape):
        subscripts = [access.subscripts[axis] for access in used]
        numbers = {s.value for s in subscripts if isinstance(s, Int)}
        if not isinstance(extent, Int) or not all(isinstance(s, Int) for s in subscripts):
            continue
        if len(numbers) > 1 and numbers <= set(range(extent.value)):
            return axis, extent.value
    return None


def whole(
    program: BlockProgram, slices: dict[str, Slice], outputs: tuple[str, ...]
) -> BlockProgram:
    """Return a block program in which slices are parts of their arrays in memory again.

    Args:
        program: The program.
        slices: What each name is a slice of.
        outputs: The names that are returned.
    """
    if not slices:
        return program
    return replace(
        program,
        kernels=tuple(_kernel(kernel, slices) for kernel in program.kernels),
        made=_made(program.made, slices),
        outputs=outputs,
    )


def _kernel(kernel: Kernel, slices: dict[str, Slice]) -> Kernel:
    arguments: dict[str, ArrayArgument] = {}
    for given in kernel.arrays:
        part = slices.get(given.name)
        found = given
        if part is not None:
            rank, shape = part.array.rank, part.array.shape
            found = replace(given, name=part.array.name, rank=rank, shape=shape)
        known = arguments.get(found.name)
        access = found.access if known is None else _both(known.access, found.access)
        arguments[found.name] = replace(found, access=access)
    restored = (slices[name].array.name if name in slices else name for name in kernel.restored)
    return replace(
        kernel,
        arrays=tuple(arguments.values()),
        body=_ops(kernel.body, slices),
        restored=tuple(dict.fromkeys(restored)),
    )


def _both(one: ArrayAccess, other: ArrayAccess) -> ArrayAccess:
    return one if one == other else "inout"


def _ops(ops: tuple[Op, ...], slices: dict[str, Slice]) -> tuple[Op, ...]:
    def change(expr: Expr) -> Expr | None:
        match expr:
            case Load(array, subscripts, mask, other, kind) if array in slices:
                part = slices[array]
                inner = tuple(mapped(s, change) for s in subscripts)
                inside = None if mask is None else mapped(mask, change)
                return Load(part.array.name, _with(inner, part), inside, other, kind)
            case Name(holds=array) if array in slices:
                return replace(expr, holds=slices[array].array.name)
            case Cast(operand, to, like) if like in slices:
                return Cast(mapped(operand, change), to, slices[like].array.name)
            case _:
                return None

    def of(expr: Expr) -> Expr:
        return mapped(expr, change)

    found: list[Op] = []
    for op in ops:
        match op:
            case Let():
                found.append(replace(op, value=of(op.value)))
            case Store():
                part = slices.get(op.array)
                subscripts = tuple(of(s) for s in op.subscripts)
                found.append(
                    replace(
                        op,
                        array=op.array if part is None else part.array.name,
                        subscripts=subscripts if part is None else _with(subscripts, part),
                        value=of(op.value),
                        mask=None if op.mask is None else of(op.mask),
                    )
                )
            case TileLoop() | ElementLoop() | RowBlock():
                found.append(
                    replace(op, start=of(op.start), stop=of(op.stop), body=_ops(op.body, slices))
                )
            case Branch():
                found.append(
                    replace(
                        op,
                        condition=of(op.condition),
                        body=_ops(op.body, slices),
                        otherwise=_ops(op.otherwise, slices),
                    )
                )
            case _:
                assert_never(op)
    return tuple(found)


def _with(subscripts: tuple[Expr, ...], part: Slice) -> tuple[Expr, ...]:
    return (*subscripts[: part.axis], Number(part.number), *subscripts[part.axis :])


def _made(made: tuple[Filled, ...], slices: dict[str, Slice]) -> tuple[Filled, ...]:
    found: dict[str, list[Filled]] = {}
    for each in made:
        part = slices.get(each.array)
        found.setdefault(each.array if part is None else part.array.name, []).append(each)
    joined: list[Filled] = []
    for name, parts in found.items():
        part = slices.get(parts[0].array)
        if part is None:
            joined += parts
            continue
        shape = tuple(extent for extent in part.array.shape if extent is not None)
        fills = [each.fill for each in parts if each.fill is not None]
        rounded = any(each.rounded for each in parts)
        joined.append(
            replace(
                parts[0],
                array=name,
                shape=shape,
                fill=fills[0] if fills else None,
                dtype="float32" if rounded else parts[0].dtype,
                rounded=rounded,
            )
        )
    return tuple(joined)
