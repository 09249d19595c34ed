"""Kernels of programs whose slices are arrays, with the arrays they are slices of again.

y_1[i, f] = …    ->    y[i, F + f] = …
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from looptrans.blocks.block_ir.arithmetic import mapped
from looptrans.blocks.block_ir.expr import Binary, Cast, Expr, Load, Name, Number, Scalar, Unary
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Op, RowBlock, Store, TileLoop
from looptrans.blocks.block_ir.program import (
    ArrayAccess,
    ArrayArgument,
    BlockProgram,
    Filled,
    Kernel,
)
from looptrans.blocks.places.slices import Slice
from looptrans.ir.index import Arith, Index, Int, Neg, Param, parameters


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
    starts = (slices[each.name].start for each in kernel.arrays if each.name in slices)
    sizes = sorted({name for start in starts for name in parameters(start)})
    handed = {scalar.name for scalar in kernel.scalars}
    scalars = (Scalar(name) for name in sizes if name not in handed)
    return replace(
        kernel,
        arrays=tuple(arguments.values()),
        scalars=(*kernel.scalars, *scalars),
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
    start = _value(part.start)
    if part.count is None:
        return (*subscripts[: part.axis], start, *subscripts[part.axis :])
    found = subscripts[part.axis]
    if part.step > 1:
        found = Binary("*", Number(part.step), found)
        found = found if start == Number(0) else Binary("+", found, start)
    elif start != Number(0):
        found = Binary("+", start, found)
    return (*subscripts[: part.axis], found, *subscripts[part.axis + 1 :])


def _value(size: Index) -> Expr:
    """Return sums and products of sizes as a value."""
    match size:
        case Int(value):
            return Number(value)
        case Param(name):
            return Scalar(name)
        case Neg(operand):
            return Unary("-", _value(operand))
        case Arith("+" | "-" | "*" as op, left, right):
            return Binary(op, _value(left), _value(right))
        case _:
            raise AssertionError(f"not checked by _is_plain: {size}")


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
        shape = part.array.extents
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
