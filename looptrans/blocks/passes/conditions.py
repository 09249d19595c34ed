"""Conditions of whole blocks with as few comparisons as can be.

    where(i >= j, where(i < M, P, 0), 0)         ->     where(i >= j and i < M, P, 0)
    where(j < j_stop and j < i + 1, S, -inf)     ->     where(j < min(j_stop, i + 1), S, -inf)

An element is chosen once, and compared with one number of its row where its block is bounded by
several from the same side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from looptrans.blocks.block_ir.arithmetic import both, conjuncts, extreme, rebuilt
from looptrans.blocks.block_ir.expr import (
    Binary,
    Expr,
    Load,
    Position,
    Where,
    children,
    dims_of,
    kind_of,
)
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Op, RowBlock, Store, TileLoop

_SIDE = {"<": "min", "<=": "min", ">": "max", ">=": "max"}


def in_one(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return operations that choose each element once, by as few comparisons as can be."""
    return tuple(_changed(op) for op in ops)


def _changed(op: Op) -> Op:
    match op:
        case TileLoop() | ElementLoop() | Branch() | RowBlock():
            return replace(op, body=in_one(op.body))
        case Let() | Store():
            return replace(op, value=_simpler(op.value))
        case _:
            return op


def _simpler(expr: Expr) -> Expr:
    if isinstance(expr, Load):
        return expr  # a mask of loads says what the compiler knows of the addresses
    expr = rebuilt(expr, tuple(map(_simpler, children(expr)))) if children(expr) else expr
    if not isinstance(expr, Where):
        return expr
    inner = expr.chosen
    if isinstance(inner, Where) and inner.otherwise == expr.otherwise:
        expr = Where(Binary("and", expr.condition, inner.condition), inner.chosen, inner.otherwise)
    found = both(*_merged(conjuncts(expr.condition)))
    return expr if found is None else replace(expr, condition=found)


def _merged(parts: Iterable[Expr]) -> list[Expr]:
    """Return conditions that must all hold, those of a block from one side as one."""
    groups: dict[object, list[Expr]] = {}
    for part in parts:
        groups.setdefault(_side(part) or part, []).append(part)
    return [_one(group) for group in groups.values()]


def _side(part: Expr) -> tuple[Position, str] | None:
    """Return the position that a condition bounds by whole numbers of other dimensions."""
    match part:
        case Binary(op, Position(dim) as position, bound) if (
            op in _SIDE and kind_of(bound) == "int" and dim not in dims_of(bound)
        ):
            return position, op
        case _:
            return None


def _one(group: list[Expr]) -> Expr:
    first = group[0]
    bounds = [part.right for part in group if isinstance(part, Binary)]
    # Without numbers of rows nothing of a whole block is compared.
    if len(group) == 1 or not isinstance(first, Binary) or not any(map(dims_of, bounds)):
        return first if len(group) == 1 else _all(group)
    # In one order, so that equal conditions are seen to be equal.
    bounds.sort(key=lambda bound: len(dims_of(bound)))
    return replace(first, right=extreme(_SIDE[first.op], bounds))


def _all(group: list[Expr]) -> Expr:
    found = both(*group)
    assert found is not None
    return found
