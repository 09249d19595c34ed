"""Which arrays kernels surely store whole, so that nothing need be in them before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

from looptrans.blocks.block_ir.arithmetic import conjuncts
from looptrans.blocks.block_ir.expr import Binary, Dim, Expr, Position, Scalar
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Op, RowBlock, Store, TileLoop, ops_in
from looptrans.blocks.block_ir.program import Kernel
from looptrans.ir.affine import extremum, is_same, multiplied, simplified
from looptrans.ir.index import Index, Int, Param


def is_covered(name: str, shape: tuple[Index, ...], kernels: list[Kernel]) -> bool:
    """Tell whether some kernel surely stores every element, and none looks at it before."""
    for kernel in kernels:
        if any(a.name == name and a.access != "out" for a in kernel.arrays):
            return False
        branches = [op for op in ops_in(kernel.body) if isinstance(op, Branch)]
        if any(op.array == name for op, _ in _stores(branches)):
            return False
        stores = [each for each in _stores(kernel.body) if each[0].array == name]
        if stores and all(_is_whole(op, loops, shape, kernel) for op, loops in stores):
            return True
    return False


def _stores(
    ops: Iterable[Op], around: tuple[Dim, ...] = ()
) -> Iterator[tuple[Store, tuple[Dim, ...]]]:
    """Yield the stores with the loops around them."""
    for op in ops:
        if isinstance(op, Store):
            yield op, around
        elif isinstance(op, TileLoop | ElementLoop):
            yield from _stores(op.body, (*around, op.dim))
        elif isinstance(op, Branch | RowBlock):
            yield from _stores(op.body, around)


def _is_whole(op: Store, loops: tuple[Dim, ...], shape: tuple[Index, ...], kernel: Kernel) -> bool:
    """Tell whether a store, with the others of its loops, stores every element."""
    each = [_counted(subscript) for subscript in op.subscripts]
    dims = [dim for counted in each for dim in counted]
    whole = len(dims) == len(set(dims)) and all(
        counted and _is_extent(reduce(multiplied, (dim.stop for dim in counted)), extent)
        for counted, extent in zip(each, shape, strict=True)
    )
    around = [d for d in (*kernel.grid, *loops) if d not in dims and not _is_once(d)]
    return whole and not around and _is_plain(op)


def _is_extent(count: Index, extent: Index) -> bool:
    """Tell whether an extent is a number of iterations, as N - 1 and max(0, N - 1) are."""
    return is_same(extremum("max", (Int(0), count)), extremum("max", (Int(0), extent)))


def _is_once(dim: Dim) -> bool:
    """Tell whether there is one iteration, whatever the sizes are."""
    return (simplified(dim.start), simplified(dim.stop)) == (Int(0), Int(1))


def _counted(subscript: Expr) -> tuple[Dim, ...]:
    """Return what is counted through by a subscript, `b * H + h` for h in 0 .. H; or nothing."""
    match subscript:
        case Position(dim) if dim.start == Int(0) and dim.step == 1:
            return (dim,)
        case Binary("+", Binary("*", high, Scalar(radix)), Position() as low):
            outer, inner = _counted(high), _counted(low)
            fits = outer and inner and simplified(inner[0].stop) == Param(radix)
            return (*outer, *inner) if fits else ()
        case _:
            return ()


def _is_plain(op: Store) -> bool:
    """Tell whether the mask says no more than that the elements exist."""
    return all(
        isinstance(part, Binary)
        and part.op == "<"
        and isinstance(part.left, Position)
        and isinstance(part.right, Scalar)
        and simplified(part.left.dim.stop) == Param(part.right.name)
        for part in conjuncts(op.mask)
    )
