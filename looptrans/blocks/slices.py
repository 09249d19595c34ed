"""Arrays of which only slices are used, as an array for each.

for d: dX[j, 2, d] = dX[j, 2, d] + …          for d: dX_2[j, d] = dX_2[j, d] + …
for d: dX[j, 1, d] = dX[j, 1, d] + …    ->    for d: dX_1[j, d] = dX_1[j, d] + …

for f in range(F): y[i, f] = y[i, f] + …              y_0[i, f] = y_0[i, f] + …
                   y[i, F + f] = y[i, F + f] + …  ->  y_1[i, f] = y_1[i, f] + …

A program then has a block of registers for each of them. In memory they are one array still.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar, assert_never

from looptrans.blocks.arithmetic import mapped
from looptrans.blocks.expr import Binary, Cast, Expr, Load, Name, Number, Scalar, Unary
from looptrans.blocks.in_front import is_within
from looptrans.blocks.ops import Branch, ElementLoop, Let, Op, RowBlock, Store, TileLoop
from looptrans.blocks.program import ArrayAccess, ArrayArgument, BlockProgram, Filled, Kernel
from looptrans.ir.affine import difference, is_same, simplified, total
from looptrans.ir.index import Arith, Index, Int, Neg, Param, parameters, walk
from looptrans.ir.program import (
    Array,
    Assign,
    Declaration,
    If,
    Loop,
    Node,
    Program,
)
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.value import Access, Range, Subscript, Whole
from looptrans.ir.walk import accesses, nodes
from looptrans.transforms.extents import extreme, is_never_negative

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of an array where one subscript is a number, or stays between two sizes.

    Attributes:
        array: The array.
        axis: The subscript.
        start: What it is, or at least is.
        stop: What it stays below; None where it is a number.
        is_all: Whether the slices of the array surely are all of it.
    """

    array: Array
    axis: int
    start: Index
    stop: Index | None = None
    is_all: bool = True

    def of(self, subscripts: tuple[T, ...], own: T | None) -> tuple[T, ...]:
        """Return what a slice has of something that there is for each subscript.

        Args:
            subscripts: What there is for each subscript of the array.
            own: What is in the place of that of the slice.
        """
        middle = () if self.stop is None or own is None else (own,)
        return (*subscripts[: self.axis], *middle, *subscripts[self.axis + 1 :])

    @property
    def bounds(self) -> tuple[Index, Index]:
        """What its subscript is at least, and stays below."""
        return self.start, total(self.start, 1) if self.stop is None else self.stop

    @property
    def extent(self) -> Index | None:
        """How many there are of its subscript; None where it is a number."""
        return None if self.stop is None else difference(self.stop, self.start)


def sliced(program: Program, *, segments: bool = False) -> tuple[Program, dict[str, Slice]]:
    """Return a program with an array for each slice, and what each of them is a slice of.

    Args:
        program: The program.
        segments: Whether what is between two sizes is a slice, too: of `y[i, f]` and `y[i, F + f]`,
            where `f` stays below F, each has one.
    """
    slices: dict[str, Slice] = {}
    parts: dict[str, list[str]] = {}
    taken = {a.name for a in program.arrays} | {p.name for p in program.parameters}
    for array in program.arrays:
        found = _numbered(program, array)
        if not found and segments:
            found = _segments(program, array)
        for number, part in enumerate(found):
            name = f"{array.name}_{number}"
            while name in taken:
                name += "_"
            taken.add(name)
            slices[name] = part
            parts.setdefault(array.name, []).append(name)
    if not slices:
        return program, {}

    ranges = _common_ranges(program)

    def cell(access: Access) -> Access:
        for name in parts.get(access.array, ()):
            part = slices[name]
            subscript = access.subscripts[part.axis]
            if not isinstance(subscript, Whole) and _bounds(subscript, ranges) == part.bounds:
                own = difference(subscript, part.start)
                return Access(name, part.of(access.subscripts, own))
        return access

    def created(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Declaration) or node.array not in parts:
            return (node,)
        made = node.creation
        shapes = {n: slices[n].of(made.shape, slices[n].extent) for n in parts[node.array]}
        return tuple(
            replace(node, array=name, creation=replace(made, shape=shape))
            for name, shape in shapes.items()
        )

    arrays: list[Array] = []
    for array in program.arrays:
        for name in parts.get(array.name, [array.name]):
            made = slices.get(name)
            if made is None:
                arrays.append(array)
                continue
            shape = made.of(array.shape, made.extent)
            own = replace(array, name=name, rank=len(shape), shape=shape, annotation=None)
            arrays.append(own)
    return replace(
        program,
        arrays=tuple(arrays),
        body=rewritten(with_accesses(program.body, cell), created),
        outputs=tuple(n for output in program.outputs for n in parts.get(output, [output])),
    ), slices


def _numbered(program: Program, array: Array) -> list[Slice]:
    """Return the slices of an array where a subscript is a number wherever it is used."""
    used = _uses(program, array)
    for axis, extent in enumerate(array.shape):
        subscripts = [access.subscripts[axis] for access in used]
        numbers = {s.value for s in subscripts if isinstance(s, Int)}
        if not isinstance(extent, Int) or not all(isinstance(s, Int) for s in subscripts):
            continue
        if len(numbers) > 1 and numbers <= set(range(extent.value)):
            return [Slice(array, axis, Int(number)) for number in range(extent.value)]
    return []


def _segments(program: Program, array: Array) -> list[Slice]:
    """Return the slices of an array where a subscript stays between sizes wherever it is used."""
    used = _uses(program, array)
    ranges = _common_ranges(program)
    for axis in range(array.rank):
        found: dict[tuple[Index, Index], None] = {}
        for access in used:
            bounds = _bounds(access.subscripts[axis], ranges)
            if bounds is None or not _is_plain(bounds[0]):
                break
            found[bounds] = None
        else:
            if len(found) > 1 and all(
                _is_before(program, one, other) or _is_before(program, other, one)
                for one, other in combinations(found, 2)
            ):
                behind = {each: sum(_is_before(program, o, each) for o in found) for each in found}
                is_all = _is_all(program, list(found), array.shape[axis])
                return [
                    Slice(array, axis, *each, is_all)
                    for each in sorted(found, key=behind.__getitem__)
                ]
    return []


def _is_all(program: Program, found: list[tuple[Index, Index]], extent: Index | None) -> bool:
    """Tell whether segments surely follow each other from 0 to an extent."""
    end: Index = Int(0)
    while following := [each for each in found if is_same(each[0], end)]:
        end = following[0][1]
        found = [each for each in found if each not in following]
    return not found and extent is not None and is_within(program, extent, end)


def _uses(program: Program, array: Array) -> list[Access]:
    """Return where an array of the program's own is used."""
    if array.role != "local":
        return []
    return [
        relation.access
        for node in nodes(program.body)
        if isinstance(node, Assign | If)
        for relation in accesses(node)
        if relation.access.array == array.name
    ]


def _common_ranges(program: Program) -> dict[str, Range]:
    """Return the range of each variable that has the same one in all loops and sums."""
    found: dict[str, set[Range]] = {}
    for node in nodes(program.body):
        if isinstance(node, Loop):
            found.setdefault(node.variable, set()).add(node.range)
        elif isinstance(node, Assign | If):
            for relation in accesses(node):
                for generator in relation.generators:
                    found.setdefault(generator.variable, set()).add(generator.range)
    return {name: bounds.pop() for name, bounds in found.items() if len(bounds) == 1}


def _bounds(subscript: Subscript, ranges: Mapping[str, Range]) -> tuple[Index, Index] | None:
    """Return the sizes that a subscript stays between, the second one not included."""
    if isinstance(subscript, Whole):
        return None
    ends = extreme(subscript, ranges, "lowest"), extreme(subscript, ranges, "highest")
    if ends[0] is None or ends[1] is None:
        return None
    return simplified(ends[0]), total(ends[1], 1)


def _is_before(program: Program, one: tuple[Index, Index], other: tuple[Index, Index]) -> bool:
    return is_never_negative(program, difference(other[0], one[1]), {})


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
    if part.stop is None:
        return (*subscripts[: part.axis], start, *subscripts[part.axis :])
    own = subscripts[part.axis]
    found = own if start == Number(0) else Binary("+", start, own)
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


def _is_plain(size: Index) -> bool:
    """Tell whether a size is made of sums and products."""
    return all(
        isinstance(part, Int | Param | Neg) or (isinstance(part, Arith) and part.op in "+-*")
        for part in walk(size)
    )


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
