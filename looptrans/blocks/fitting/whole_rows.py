"""Products of whole rows that a kernel has worked out before, all of them in registers.

t = dot(X[i, e], W[e, k])          all k
for c in blocks:
    Y[i, c] = dot(max(t, 0), D[k, c])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from looptrans.blocks.block_ir.expr import Dot, Expr, Name, Reduce, dims_of, walk
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    Store,
    TileLoop,
    exprs_of,
    loaded,
    ops_in,
    products_in,
)
from looptrans.blocks.block_ir.program import Kernel


def multiplies_whole_rows(kernel: Kernel) -> bool:
    """Tell whether a product runs over all of a row that is worked out, only to be stored.

    Where a loop around it carries values, as over keys, its rows are those of one block.
    """
    made: dict[str, bool] = {}
    return any(
        dot.over.role == "lanes" and any(_is_made(o, made) for o in (dot.left, dot.right))
        for dot in _products(kernel.body, made)
    )


def multiplies_over_lanes(kernel: Kernel) -> bool:
    """Tell whether a kernel has a product over rows that are in registers as a whole."""
    return any(product.over.role == "lanes" for _, product in products_in(kernel.body))


def stores_rows_of_products(kernel: Kernel) -> bool:
    """Tell whether a kernel works out rows of a plain product as a whole, and stores them.

    s = dot(Q[i, e], K[j, e])          all j
    dS[i, j] = … exp(s - lse[i])
    """
    values = _first_values(kernel)
    rows: set[str] = set()
    for _, product in products_in(kernel.body):
        operands = (product.left, product.right)
        if product.over.role != "lanes" and all(loaded(each, values) for each in operands):
            rows |= {dim.name for dim in dims_of(product) if dim.role == "lanes"}
    stores = [op for op in ops_in(kernel.body) if isinstance(op, Store)]
    stored = {dim.name for op in stores for each in op.subscripts for dim in dims_of(each)}
    return bool(rows & stored)


def repeats_products(kernel: Kernel) -> bool:
    """Tell whether statements work out one product of whole rows again, and multiply no result.

    s = s + dot(X[i, k], W[k, j]) ** 2         all k
    Y[i, j] = dot(X[i, k], W[k, j]) / s

    Rows of weights may be long, and the product be all that the kernel takes time for.
    """
    values = _first_values(kernel)
    made: dict[str, bool] = {}
    for name, value in values.items():
        made[name] = _is_made(value, made)
    places: dict[tuple[object, ...], set[tuple[str, ...]]] = {}
    for op, product in products_in(kernel.body):
        operands = (product.left, product.right)
        if any(_is_made(operand, made) for operand in operands):
            return False
        loads = [load for each in operands if (load := loaded(each, values)) is not None]
        if product.over.role == "lanes" and isinstance(op, Let | Store) and len(loads) == 2:
            elements = tuple((load.array, load.subscripts) for load in loads)
            places.setdefault(elements, set()).add(op.labels)
    return any(len(labels) > 1 for labels in places.values())


def _first_values(kernel: Kernel) -> dict[str, Expr]:
    """Return what names stand for where they are first set."""
    values: dict[str, Expr] = {}
    for op in ops_in(kernel.body):
        if isinstance(op, Let):
            values.setdefault(op.name, op.value)
    return values


def _products(ops: tuple[Op, ...], made: dict[str, bool]) -> Iterator[Dot]:
    """Yield the products that no loop carries a value over, and note what is made of sums."""
    for op in ops:
        for expr in exprs_of(op):
            yield from (part for part in walk(expr) if isinstance(part, Dot))
        match op:
            case Let(name, value):
                made[name] = _is_made(value, made)
            case TileLoop(body=body) | ElementLoop(body=body):
                if not any(isinstance(o, Let) and o.name in made for o in ops_in(body)):
                    yield from _products(body, made)
                for inner in ops_in(body):
                    if isinstance(inner, Let):
                        made[inner.name] = _is_made(inner.value, made)
            case RowBlock(body=body):
                yield from _products(body, made)
            case Branch(_, body, otherwise):
                yield from _products((*body, *otherwise), made)
            case Store():
                pass


def _is_made(operand: Expr, made: Mapping[str, bool]) -> bool:
    """Tell whether an operand is made of sums, and not of what was loaded alone."""
    return any(
        isinstance(part, Dot | Reduce) or (isinstance(part, Name) and made.get(part.name, False))
        for part in walk(operand)
    )
