"""Blocks that the GPU copies by itself: it is told once how an array lies, before the loops.

    bias_blocks = tl.make_tensor_descriptor(bias_ptr, [M, N], [stride_bias_i, 1], […])
    for i_first in range(0, M, BLOCK_I):
        bias_ij = tl.trans(bias_blocks.load([i_first, j_first]))

Hopper and later GPUs do so for arrays whose last dimension lies in one piece. It is tried where a
loop with matrix products works with the elements of a block that is no operand of them, a bias.

Where it reads the block across, along rows of the array that are columns of the block, threads
cannot copy it ahead in Triton: they hold it in registers until it is its turn, and the sums of the
products have less room. On an H100, head size 128, the gradients of keys and values under a bias
took 2.9 ms so, and 2.3 to 2.5 where the GPU copied it and the operands beside it. Else the GPU
copies what is no operand alone: forward 3 % faster on an H200, with the operands 5 % slower.

Both forms stand in one kernel; the constexpr `DESCRIBED` picks one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Final

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dim,
    Dot,
    Edge,
    Expr,
    Load,
    Name,
    Number,
    Position,
    Scalar,
    Unary,
    Where,
    walk,
)
from looptrans.blocks.block_ir.ops import Let, Op, TileLoop, exprs_of, has_products, ops_in
from looptrans.blocks.block_ir.program import ArrayArgument, Choice, Config, Kernel
from looptrans.blocks.passes.flipped import is_reversed
from looptrans.blocks.passes.late import LATE
from looptrans.ir.index import Index, Int, Param

DESCRIBED: Final = "DESCRIBED"
"""The constexpr: 0 where threads load blocks, 1 where the GPU copies them."""


@dataclass(frozen=True, slots=True)
class Described:
    """How the GPU is told of an array.

    Attributes:
        array: The array.
        axes: The two of its dimensions that a block has; the second is the last.
        dims: The dimensions of the block, in this order.
        extents: How far the array goes along them.
        fixed: The other subscripts by their axis: numbers that do not change during a program.
    """

    array: str
    axes: tuple[int, int]
    dims: tuple[Dim, Dim]
    extents: tuple[Index, Index]
    fixed: tuple[tuple[int, Expr], ...]


def with_described(kernel: Kernel) -> Kernel:
    """Return a kernel whose configurations also try what the GPU copies, where it is worth it."""
    if not any(described_loads(kernel)):
        return kernel
    narrow, wide = (
        Choice(_chosen(choice.default, 0), tuple(_chosen(each, 0) for each in choice.tuned))
        for choice in (kernel.narrow, kernel.wide)
    )
    copied = tuple(_chosen(each, 1) for each in narrow.tuned if not each.blocks.get(LATE))
    return replace(kernel, narrow=Choice(narrow.default, narrow.tuned + copied), wide=wide)


def without_described(kernel: Kernel) -> Kernel:
    """Return a kernel whose blocks are loaded by threads in all configurations."""

    def plain(choice: Choice) -> Choice:
        tuned = (each for each in choice.tuned if not each.blocks.get(DESCRIBED))
        return Choice(_without(choice.default), tuple(map(_without, tuned)))

    if not has_described(kernel):
        return kernel
    return replace(kernel, narrow=plain(kernel.narrow), wide=plain(kernel.wide))


def has_described(kernel: Kernel) -> bool:
    """Tell whether the configurations of a kernel pick who copies blocks."""
    return DESCRIBED in kernel.narrow.default.blocks


def described(load: Load, kernel: Kernel) -> Described | None:
    """Return how the GPU is told of the array of a load, or None where it cannot copy its blocks.

    A block has two dimensions, each a subscript of its own and one of them the array's last, along
    which it begins at 16 bytes, and where the load is masked, it is where the array ends.
    """
    array = next((each for each in kernel.arrays if each.name == load.array), None)
    if array is None or array.element != "float" or array.access != "in":
        return None
    places = [(axis, s.dim) for axis, s in enumerate(load.subscripts) if isinstance(s, Position)]
    places = [(axis, dim) for axis, dim in places if dim.is_vector]
    if len(places) != 2 or places[1][0] != array.rank - 1:
        return None
    (first, rows), (last, columns) = places
    fixed = tuple((n, s) for n, s in enumerate(load.subscripts) if n not in (first, last))
    ends = array.shape[first], array.shape[last]
    if rows == columns or not all(is_fixed(subscript) for _, subscript in fixed):
        return None
    known = {scalar.name for scalar in kernel.scalars}
    if ends[0] is None or ends[1] is None or not all(_is_known(end, known) for end in ends):
        return None
    if any(dim.role == "lanes" and dim.start != Int(0) for dim in (rows, columns)):
        return None
    if not _begins_whole(columns, kernel):
        return None
    if columns.role == "lanes" and not columns.contracted:
        return None  # fewer than 16 bytes, perhaps
    if load.other is not None and load.other != 0:
        return None
    if not all(_is_end(part, array) for part in _parts(load, (first, last))):
        return None
    return Described(load.array, (first, last), (rows, columns), (ends[0], ends[1]), fixed)


def _begins_whole(dim: Dim, kernel: Kernel) -> bool:
    """Tell whether blocks of a dimension begin at 0 and whole blocks, of any dimension, from it."""
    sizes = {each.block for each in kernel.dims}
    values: dict[str, list[Expr]] = {}
    for op in ops_in(kernel.body):
        if isinstance(op, Let):
            values.setdefault(op.name, []).append(op.value)

    def is_whole(place: Expr) -> bool:
        match place:
            case Number(value):
                return value == 0
            case Scalar(name):
                return name in sizes
            case Name(name):
                return all(map(is_whole, values.get(name, [Number(1)])))
            case Edge(each, "first"):
                return each.start == Int(0) and each.most is None
            case Binary("*", left, right):
                return is_whole(left) or is_whole(right)
            case Binary("+" | "-", left, right) | Where(_, left, right):
                return is_whole(left) and is_whole(right)
            case Call("min" | "max", arguments):
                return all(map(is_whole, arguments))
            case _:
                return False

    if dim.role == "tile":
        loops = [op for op in ops_in(kernel.body) if isinstance(op, TileLoop) and op.dim == dim]
        return all(is_whole(loop.start) for loop in loops)
    return dim.start == Int(0) and dim.most is None


def _is_known(extent: Index | None, handed: Container[str]) -> bool:
    """Tell whether an extent is a literal, or a number that the kernel is handed."""
    return isinstance(extent, Int) or (isinstance(extent, Param) and extent.name in handed)


def is_fixed(subscript: Expr) -> bool:
    """Tell whether a subscript is a number that does not change during a program."""
    return all(
        isinstance(node, Number | Scalar | Unary | Binary | Call)
        or (isinstance(node, Position) and node.dim.role == "program")
        for node in walk(subscript)
    )


def described_loads(
    kernel: Kernel, ops: tuple[Op, ...] | None = None
) -> Iterator[tuple[Let, Load, Described]]:
    """Yield the loads that the GPU does by itself, in loops over blocks with matrix products.

    Args:
        kernel: The kernel.
        ops: What a program does, in another form than the body of the kernel.
    """
    body = kernel.body if ops is None else ops
    found = list(_possible(kernel, body))
    apart = _no_operands(body)
    across = any(let.name in apart and is_reversed(load) for let, load, _ in found)
    yield from (each for each in found if across or each[0].name in apart)


def _possible(kernel: Kernel, body: tuple[Op, ...]) -> Iterator[tuple[Let, Load, Described]]:
    """Yield the loads that the GPU could do by itself."""
    for op in ops_in(body):
        if isinstance(op, TileLoop) and has_products(op.body):
            for let in ops_in(op.body):
                if isinstance(let, Let) and isinstance(let.value, Load):
                    found = described(let.value, kernel)
                    if found is not None:
                        yield let, let.value, found


def _no_operands(body: tuple[Op, ...]) -> set[str]:
    """Return the names of loads that are not only multiplied as matrices."""
    ops = tuple(ops_in(body))
    nodes = [node for op in ops for expr in exprs_of(op) for node in walk(expr)]
    products = [node for node in nodes if isinstance(node, Dot)]
    sides = [_widened(side) for dot in products for side in (dot.left, dot.right)]
    operands = Counter(side.name for side in sides if isinstance(side, Name))
    uses = Counter(node.name for node in nodes if isinstance(node, Name))
    loads = {op.name for op in ops if isinstance(op, Let) and isinstance(op.value, Load)}
    return {name for name in loads if uses[name] != operands[name]}


def _widened(side: Expr) -> Expr:
    """Return what is widened to another type, where an operand is."""
    return side.operand if isinstance(side, Cast) else side


def _parts(load: Load, axes: tuple[int, int]) -> Iterator[tuple[Expr, int | None]]:
    """Yield the parts of a mask, each with the axis whose iterations it asks about."""
    axis_of = {s.dim: axis for axis in axes if isinstance(s := load.subscripts[axis], Position)}
    waiting = [] if load.mask is None else [load.mask]
    while waiting:
        part = waiting.pop()
        match part:
            case Binary("and", left, right):
                waiting += [left, right]
            case Binary("<", Position(dim)):
                yield part, axis_of.get(dim)
            case _:
                yield part, None


def _is_end(asked: tuple[Expr, int | None], array: ArrayArgument) -> bool:
    """Tell whether a part of a mask asks whether the array goes on."""
    part, axis = asked
    if axis is None or not isinstance(part, Binary):
        return False
    match array.shape[axis], part.right:
        case Param(name), Scalar(other):
            return name == other
        case Int(value), Number(other):
            return value == other
        case _:
            return False


def _chosen(config: Config, form: int) -> Config:
    return replace(config, blocks={**config.blocks, DESCRIBED: form})


def _without(config: Config) -> Config:
    blocks = {name: size for name, size in config.blocks.items() if name != DESCRIBED}
    return replace(config, blocks=blocks)
