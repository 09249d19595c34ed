"""Pointers to the first block of a loop, made before it: an iteration adds where its block begins.

    K_at = K_ptr + j_at[:, None] * stride_K_j + e[None, :] * stride_K_e
    for j_first in range(0, N, BLOCK_J):
        K_je = tl.load(K_at + tl.cast(j_first, INDEX) * stride_K_j)

What the loop works out is then one product for each load, not one for each row of a block. Loads
over rows of the grid as well stay: their pointers would fill registers, and sm_90 then let each
product of a loop with a bias wait.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from looptrans.blocks.block_ir.expr import (
    Binary,
    Dim,
    Dot,
    Edge,
    Expr,
    Load,
    Name,
    Number,
    Position,
    children,
    dims_of,
    walk,
)
from looptrans.blocks.block_ir.ops import (
    ElementLoop,
    Let,
    Op,
    RowBlock,
    Store,
    TileLoop,
    exprs_of,
    ops_in,
)

Key = tuple[str, tuple[Expr, ...]]
"""An access: the array, and its subscripts."""


@dataclass(frozen=True, slots=True)
class FirstBlock:
    """A load whose address depends on the loop through where its block begins alone.

    Attributes:
        array: The array.
        subscripts: What the load has.
        axis: Which of them goes with the loop.
        dim: The dimension of the loop.
        rest: What is added to it in that subscript; 0 where nothing is.
        dims: The dimensions of the pointers.
    """

    array: str
    subscripts: tuple[Expr, ...]
    axis: int
    dim: Dim
    rest: Expr
    dims: tuple[Dim, ...]

    @property
    def key(self) -> Key:
        """The access."""
        return self.array, self.subscripts


def first_blocks(ops: tuple[Op, ...], flipped: Container[str]) -> Iterator[FirstBlock]:
    """Yield the loads in loops over blocks whose pointers can be made before those loops.

    Args:
        ops: What is done from the first of the loops on, at the level they stand at. Those are
            looked at that have matrix products.
        flipped: Names of loads whose two dimensions stand in the order of the array. What is
            accessed in both orders is left as it is.
    """
    inside = tuple(ops_in(ops))
    turned = {
        (op.value.array, op.value.subscripts)
        for op in inside
        if isinstance(op, Let) and op.name in flipped and isinstance(op.value, Load)
    }
    straight = set(_in_order(inside, flipped))
    varying: set[str | Dim] = {op.name for op in inside if isinstance(op, Let)}
    varying |= {op.dim for op in inside if isinstance(op, TileLoop | ElementLoop | RowBlock)}
    for loop in ops:
        if not isinstance(loop, TileLoop):
            continue
        exprs = [expr for op in ops_in(loop.body) for expr in exprs_of(op)]
        parts = [part for expr in exprs for part in walk(expr)]
        if not any(isinstance(part, Dot) for part in parts):
            continue
        for load in parts:
            if isinstance(load, Load):
                found = _first_block(load, loop.dim, varying)
                if found is None or found.key in turned & straight:
                    continue
                yield replace(found, dims=found.dims[::-1]) if found.key in turned else found


def _in_order(ops: tuple[Op, ...], flipped: Container[str]) -> Iterator[Key]:
    """Yield the accesses whose dimensions stand in the order of `Dim`."""
    for op in ops:
        if isinstance(op, Store):
            yield op.array, op.subscripts
        for expr in exprs_of(op):
            for part in walk(expr):
                own = isinstance(op, Let) and op.name in flipped and part is op.value
                if isinstance(part, Load) and not own:
                    yield part.array, part.subscripts


def _first_block(load: Load, dim: Dim, varying: set[str | Dim]) -> FirstBlock | None:
    along = [n for n, s in enumerate(load.subscripts) if dim in dims_of(s)]
    if len(along) != 1:
        return None
    (axis,) = along
    rest = _rest(load.subscripts[axis], dim)
    if rest is None:
        return None
    if any(each.role == "rows" for each in dims_of(load)):
        return None
    others = (rest, *(s for n, s in enumerate(load.subscripts) if n != axis))
    for part in (part for each in others for part in walk(each)):
        if isinstance(part, Load):
            return None
        if isinstance(part, Name) and part.name in varying:
            return None
        if isinstance(part, Position | Edge) and part.dim in varying:
            return None
        if any(each in varying for each in dims_of(part)):
            return None
    return FirstBlock(load.array, load.subscripts, axis, dim, rest, dims_of(load))


def _rest(subscript: Expr, dim: Dim) -> Expr | None:
    """Return what is added to the iterations of a loop in a subscript, else None."""
    match subscript:
        case Position(own) if own == dim:
            return Number(0)
        case Binary("+" | "-", Position(own), rest) if own == dim:
            return rest if subscript.op == "+" else Binary("-", Number(0), rest)
        case Binary("+", rest, Position(own)) if own == dim:
            return rest
        case _:
            return None


def worked_out(expr: Expr, known: Container[Key]) -> Iterator[Expr]:
    """Yield the parts of an expression, but for the subscripts of loads whose pointers are made."""
    yield expr
    if isinstance(expr, Load) and (expr.array, expr.subscripts) in known:
        parts: tuple[Expr, ...] = () if expr.mask is None else (expr.mask,)
    else:
        parts = children(expr)
    for part in parts:
        yield from worked_out(part, known)


def counts_wide(loop: TileLoop) -> bool:
    """Tell whether a loop is to count in 64 bits, whatever offsets are worked out in.

    A product that is added up runs on while the next block begins. Then ptxas must not find
    anything else that sets the sum, or it lets each product wait (C7515); but where the loop is
    skipped LLVM sets it, if it has to widen something there that the loop and what follows need.
    That is so, in Triton 3.6, where besides blocks one number for each iteration is loaded.
    """
    exprs = [expr for op in ops_in(loop.body) for expr in exprs_of(op)]
    parts = [part for expr in exprs for part in walk(expr)]
    adds_up = any(isinstance(part, Dot) and part.accumulator is not None for part in parts)
    return adds_up and any(
        isinstance(part, Load) and dims_of(part) == (loop.dim,) for part in parts
    )
