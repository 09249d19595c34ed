"""Functions, products and sums that are worked out twice get a name; what nothing looks at goes.

l = l * alpha + reduce + exp2(S - m)            exp_S = exp2(S - m)
O = dot(exp2(S - m), V, O * alpha)       ->     l = l * alpha + reduce + exp_S
                                                O = dot(exp_S, V, O * alpha)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from looptrans.blocks.block_ir.arithmetic import mapped
from looptrans.blocks.block_ir.expr import (
    Call,
    Dot,
    Expr,
    Name,
    Reduce,
    children,
    dims_of,
    kind_of,
    names_of,
    walk,
)
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

_STEMS = {"+": "sum", "*": "product"}
_WORK = ("exp", "exp2", "log", "log2", "sqrt", "tanh", "tanh_slope", "sin", "cos", "uniform")
Shared: TypeAlias = Call | Dot | Reduce
Naming = Callable[[str, object], str]


def shared(ops: tuple[Op, ...], naming: Naming) -> tuple[Op, ...]:
    """Name every function or sum that a block works out more than once from the same values.

    Args:
        ops: The block.
        naming: Gives a free name for a stem and a key, the same for the same key.
    """
    inner = tuple(
        replace(op, body=shared(op.body, naming))
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock)
        else op
        for op in ops
    )
    counts: Counter[tuple[Expr, tuple[int, ...]]] = Counter()
    for op, versions in _versioned(inner):
        for expr in exprs_of(op):
            for call in _calls(expr):
                counts[_key(call, versions)] += 1
    found: list[Op] = []
    named: dict[tuple[Expr, tuple[int, ...]], Name] = {}
    for op, versions in _versioned(inner):

        def change(part: Expr, versions: dict[str, int] = versions, op: Op = op) -> Expr | None:
            if not isinstance(part, Shared):
                return None
            name = named.get(_key(part, versions))
            if name is None or (isinstance(op, Let) and op.name == name.name):
                return None
            return name

        for expr in exprs_of(op):
            for call in _calls(expr):
                key = _key(call, versions)
                if counts[key] < 2 or key in named:
                    continue
                if isinstance(op, Let) and op.value == call:
                    named[key] = Name(op.name, op.dims)
                    continue
                name = naming(f"{_stem(call)}", ("shared", call))
                dims = dims_of(call)
                made = Let(name, call, _labels(op), dims=dims)
                found.append(_changed(made, change))
                named[key] = Name(name, dims)
        found.append(_changed(op, change))
    return tuple(found)


def needed(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Leave out values that nothing looks at, and loops that are empty then."""
    while True:
        read: set[str] = set()
        for op in ops_in(ops):
            own = op.name if isinstance(op, Let) else None
            for expr in exprs_of(op):
                read |= names_of(expr) - {own}
        kept, _ = _alive(_kept(ops, read), frozenset())
        if kept == ops:
            return ops
        ops = kept


def _kept(ops: tuple[Op, ...], read: set[str]) -> tuple[Op, ...]:
    found: list[Op] = []
    for op in ops:
        if isinstance(op, Let) and op.name not in read:
            continue
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            inner = _kept(op.body, read)
            if inner:
                found.append(replace(op, body=inner))
            continue
        found.append(op)
    return tuple(found)


def _alive(ops: tuple[Op, ...], after: frozenset[str]) -> tuple[tuple[Op, ...], frozenset[str]]:
    """Leave out values that are set anew before anything looks at them.

    Args:
        ops: Operations.
        after: The names that are looked at behind them.

    Returns:
        What is left, and the names that are looked at before they set them, or behind them.
    """
    found: list[Op] = []
    alive = after
    for op in reversed(ops):
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            around = alive
            body, inner = _alive(op.body, around)
            while isinstance(op, TileLoop | ElementLoop) and not inner <= around:
                around |= inner
                body, inner = _alive(op.body, around)
            found += [replace(op, body=body)] if body else []
            alive |= inner
        elif isinstance(op, Let):
            if op.name not in alive:
                continue
            found.append(op)
            alive -= {op.name}
        else:
            found.append(op)
        alive |= {name for expr in exprs_of(op) for name in names_of(expr)}
    return tuple(reversed(found)), alive


def _labels(op: Op) -> tuple[str, ...]:
    return op.labels if isinstance(op, Let | Store) else ()


def _stem(call: Shared) -> str:
    names = [part.name for part in walk(call) if isinstance(part, Name)]
    if not isinstance(call, Call):
        kind = "dot" if isinstance(call, Dot) else _STEMS.get(call.op, call.op)
        return f"{kind}_{names[0]}" if names else kind
    function = "exp" if call.function == "exp2" else call.function
    return f"{function}_{names[0]}" if names else function


def _calls(expr: Expr) -> Iterator[Shared]:
    """Yield the functions and sums of blocks in an expression, those inside others first."""
    for child in children(expr):
        yield from _calls(child)
    match expr:
        case Dot():
            yield expr
        case Reduce() if kind_of(expr) == "float":  # others are bounds of loops
            yield expr
        case Call(function) if function in _WORK and dims_of(expr):
            yield expr


def _key(call: Shared, versions: dict[str, int]) -> tuple[Expr, tuple[int, ...]]:
    names = (part.name for part in walk(call) if isinstance(part, Name))
    return call, tuple(versions.get(name, 0) for name in names)


def _versioned(ops: tuple[Op, ...]) -> Iterator[tuple[Op, dict[str, int]]]:
    """Yield operations, each with how often names were set before it."""
    versions: dict[str, int] = {}
    for op in ops:
        yield op, dict(versions)
        for name in _set_in(op):
            versions[name] = versions.get(name, 0) + 1


def _set_in(op: Op) -> Iterator[str]:
    if isinstance(op, Let):
        yield op.name
    elif isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
        for each in op.body:
            yield from _set_in(each)


def _changed(op: Op, change: Callable[[Expr], Expr | None]) -> Op:
    match op:
        case Let():
            return replace(op, value=mapped(op.value, change))
        case Store():
            return replace(op, value=mapped(op.value, change))
        case _:
            return op
