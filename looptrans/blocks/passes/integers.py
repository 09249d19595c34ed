"""What is worked out with integers is what the listing says, also where 32 bits do not hold it.

    exp(-g * ((i - j) * (i - j)))  ->  exp(-g * (float32(i - j) * float32(i - j)))
    i * i < 2 * j * j              ->  int64(i) * i < 2 * int64(j) * j

Subscripts and the ends of loops are as wide as the launch says that the arrays need, but what is
divided in them may be wider.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from looptrans.blocks.block_ir.expr import Binary, Expr, Load, Name, Unary, Where, children
from looptrans.blocks.block_ir.integers import Exact
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


def exact_integers(ops: tuple[Op, ...], lengths: frozenset[str]) -> tuple[Op, ...]:
    """Return operations whose integers are exact, where they are no places in arrays.

    Args:
        ops: The operations.
        lengths: The sizes of arrays.
    """
    return _changed(ops, Exact(lengths), _only_places(ops))


def _only_places(ops: tuple[Op, ...]) -> frozenset[str]:
    """Return the names of ends of loops, and those of which places are made and nothing else is."""
    every = tuple(ops_in(ops))
    lets = [op for op in every if isinstance(op, Let)]
    ends: set[str] = set()
    found = {False: set[str](), True: set[str]()}
    for op in every:
        if isinstance(op, TileLoop | ElementLoop | RowBlock):
            ends |= {each.name for each in exprs_of(op) if isinstance(each, Name)}
        if not isinstance(op, Let):
            for name, is_place in _uses_in(op):
                found[is_place].add(name)
    size = -1
    while size != sum(map(len, found.values())):
        size = sum(map(len, found.values()))
        for let in reversed(lets):
            only = let.name in ends | found[True] - found[False]
            for name, is_place in _uses(let.value, only):
                found[is_place].add(name)
    return frozenset(ends | found[True] - found[False])


def _uses_in(op: Op) -> Iterator[tuple[str, bool]]:
    """Yield the names in an operation, and of each whether a place is made of it."""
    places = len(op.subscripts) if isinstance(op, Store) else 0
    if isinstance(op, TileLoop | ElementLoop | RowBlock):
        places = len(exprs_of(op))
    for number, value in enumerate(exprs_of(op)):
        yield from _uses(value, number < places)


def _uses(value: Expr, is_place: bool) -> Iterator[tuple[str, bool]]:
    match value:
        case Name(name):
            yield name, is_place
        case Load(_, subscripts, mask):
            for part in subscripts:
                yield from _uses(part, True)
            if mask is not None:
                yield from _uses(mask, False)
        case Where(condition, chosen, otherwise):
            yield from _uses(condition, False)
            for part in (chosen, otherwise):
                yield from _uses(part, is_place)
        case Binary("//" | "%", left, right):
            yield from _uses(left, False)
            yield from _uses(right, is_place)
        case _:
            stays = is_place and isinstance(value, Unary | Binary) and value.op in "+-*"
            for part in children(value):
                yield from _uses(part, stays)


def _changed(ops: tuple[Op, ...], exact: Exact, places: frozenset[str]) -> tuple[Op, ...]:
    return tuple(_in_op(op, exact, places) for op in ops)


def _in_op(op: Op, exact: Exact, places: frozenset[str]) -> Op:
    match op:
        case Branch(condition, body, otherwise):
            inner, other = (_changed(each, exact, places) for each in (body, otherwise))
            return replace(op, condition=exact.value(condition), body=inner, otherwise=other)
        case TileLoop() | ElementLoop() | RowBlock():
            start, stop = exact.place(op.start), exact.place(op.stop)
            found = replace(op, start=start, stop=stop, body=_changed(op.body, exact, places))
            if isinstance(found, TileLoop) and found.pause is not None:
                before, behind = map(exact.place, found.pause)
                found = replace(found, pause=(before, behind))
            return found
        case Store(_, subscripts, value, mask):
            return replace(
                op,
                subscripts=tuple(map(exact.place, subscripts)),
                value=exact.value(value),
                mask=None if mask is None else exact.value(mask),
            )
        case Let(name, value):
            return replace(op, value=exact.place(value) if name in places else exact.value(value))
