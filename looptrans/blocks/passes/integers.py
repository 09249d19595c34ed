"""What is worked out with integers is what the listing says, also where 32 bits do not hold it.

    exp(-g * ((i - j) * (i - j)))  ->  exp(-g * (float32(i - j) * float32(i - j)))
    i * i < 2 * j * j              ->  int64(i) * i < 2 * int64(j) * j

Subscripts and the ends of loops are as wide as the launch says that the arrays need.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.blocks.block_ir.expr import Expr, Load, Name, walk
from looptrans.blocks.block_ir.integers import exact
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    Store,
    TileLoop,
    exprs_of,
    ops_in,
)


def exact_integers(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return operations whose integers are exact, where they are no places in arrays."""
    return _changed(ops, _of_places(ops))


def _of_places(ops: tuple[Op, ...]) -> frozenset[str]:
    """Return the names of integers that subscripts or ends of loops are worked out from."""
    every = tuple(ops_in(ops))
    found = {
        part.name
        for op in every
        for place in _places(op)
        for part in walk(place)
        if isinstance(part, Name)
    }
    for let in reversed([op for op in every if isinstance(op, Let)]):
        if let.name in found:
            found |= {part.name for part in walk(let.value) if isinstance(part, Name)}
    return frozenset(found)


def _places(op: Op) -> list[Expr]:
    loads = [part for e in exprs_of(op) for part in walk(e) if isinstance(part, Load)]
    inside = [each for load in loads for each in load.subscripts]
    match op:
        case Store(_, subscripts):
            return [*subscripts, *inside]
        case TileLoop() | ElementLoop() | RowBlock():
            return [*exprs_of(op), *inside]
        case _:
            return inside


def _changed(ops: tuple[Op, ...], kept: frozenset[str]) -> tuple[Op, ...]:
    return tuple(_in_op(op, kept) for op in ops)


def _in_op(op: Op, kept: frozenset[str]) -> Op:
    match op:
        case Branch(condition, body, otherwise):
            inner, other = _changed(body, kept), _changed(otherwise, kept)
            return replace(op, condition=exact(condition), body=inner, otherwise=other)
        case TileLoop() | ElementLoop() | RowBlock():
            return replace(op, body=_changed(op.body, kept))
        case Store(_, _, value, mask):
            return replace(op, value=exact(value), mask=None if mask is None else exact(mask))
        case Let(name, value):
            return op if name in kept else replace(op, value=exact(value))
