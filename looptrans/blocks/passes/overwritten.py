"""Stores that put something where another thread of the same program has put something before.

    for i in range(0, M):                     one iteration at a time
        j = arange(BLOCK_J)                   each lane is a thread's
        store(T[i + j], X[i, j])              T[1] is stored by two lanes, one after the other

Threads do not wait for each other, so that the first store may come last. Where a cell says which
lane it is of, as `T[j]` or `T[i, j]`, the same thread stores it again, in its own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from looptrans.blocks.block_ir.expr import (
    Binary,
    Dim,
    Expr,
    Number,
    Position,
    Scalar,
    dims_of,
    walk,
)
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Op, RowBlock, Store, TileLoop
from looptrans.ir.affine import simplified
from looptrans.ir.index import Int, Param


def overwritten(ops: Iterable[Op]) -> frozenset[str]:
    """Return the arrays in which threads of a program may overwrite each other's elements.

    Args:
        ops: What a program does.
    """
    return frozenset(
        store.array
        for store, loops in _stores(ops)
        if store.folded is None and loops and not _keeps_lanes(store)
    )


def _stores(ops: Iterable[Op], loops: int = 0) -> Iterator[tuple[Store, int]]:
    """Yield the stores with the number of loops around them."""
    for op in ops:
        match op:
            case Store():
                yield op, loops
            case TileLoop() | ElementLoop():
                yield from _stores(op.body, loops + 1)
            case Branch():
                yield from _stores((*op.body, *op.otherwise), loops)
            case RowBlock():
                yield from _stores(op.body, loops)
            case _:
                pass


def _keeps_lanes(store: Store) -> bool:
    """Tell whether an element says which lane of each dimension of the block stores it."""
    said = {dim for subscript in store.subscripts for dim in _said(subscript)}
    lanes = {dim for subscript in store.subscripts for dim in dims_of(subscript)}
    return lanes <= said


def _said(subscript: Expr) -> tuple[Dim, ...]:
    """Return the dimensions whose positions follow from the value of a subscript alone."""
    match subscript:
        case Position(dim):
            return (dim,)
        case Binary("+", Binary("*", high, Scalar(radix)), Position(dim)) if dim.start == Int(
            0
        ) and simplified(dim.stop) == Param(radix):
            return (*_said(high), dim)
        case Binary("+" | "-", left, right) if _is_fixed(right):
            return _said(left)
        case Binary("+" | "-", left, right) if _is_fixed(left):
            return _said(right)
        case Binary("*", left, Number(times)) | Binary("*", Number(times), left) if times:
            return _said(left)
        case _:
            return ()


def _is_fixed(expr: Expr) -> bool:
    """Tell whether a number is the same throughout a program."""
    return all(
        isinstance(part, Number | Scalar | Binary)
        or (isinstance(part, Position) and part.dim.role == "program")
        for part in walk(expr)
    )
