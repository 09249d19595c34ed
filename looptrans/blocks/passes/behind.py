"""What a sum of matrix products is multiplied by in every iteration stands behind the loop.

    for j:                                       for j:
        dQ = dQ + F * dot(dS, K[j])                  dQ = dot(dS, K[j], dQ)
        dF = dF + Q * dot(dS, K[j])       ->     dF = dQ * Q
                                                 dQ = dQ * F

The product is then added where it is worked out, and sums that are the same but for their factors
are one. They begin at 0 before the loop, nothing else looks at them until it has ended, and a
factor is the same in all of its iterations. Where nothing was added the sum is 0, whatever the
factor is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.blocks.block_ir.arithmetic import factors, mentions, product
from looptrans.blocks.block_ir.expr import (
    Binary,
    Cast,
    Dot,
    Edge,
    Expr,
    Load,
    Name,
    Number,
    Position,
    Where,
    dims_of,
    walk,
)
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    TileLoop,
    exprs_of,
    ops_in,
)
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.finite import is_finite


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum of matrix products over some loops.

    Attributes:
        name: Its name.
        above: What each product is multiplied by.
        below: What it is divided by.
        dots: The product in each of the loops.
    """

    name: str
    above: tuple[Expr, ...]
    below: tuple[Expr, ...]
    dots: tuple[Dot, ...]


def factors_behind(b: Builder, ops: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return what a program does, with the factors of sums behind the loops that add them up.

    Args:
        b: The kernel.
        ops: What a program does.
    """
    inner = tuple(_inside(b, op) for op in ops)
    for begun in [op for op in inner if isinstance(op, Let) and _is_zero(op.value)]:
        found = _sum(inner, begun.name)
        if found is not None and (found.above or found.below):
            alike = [s for n in _begun(inner) if (s := _sum(inner, n)) and s.dots == found.dots]
            inner = _moved(b, inner, alike)
    return inner


def _inside(b: Builder, op: Op) -> Op:
    match op:
        case TileLoop() | ElementLoop() | RowBlock():
            return replace(op, body=factors_behind(b, op.body))
        case Branch(_, body, otherwise):
            return replace(op, body=factors_behind(b, body), otherwise=factors_behind(b, otherwise))
        case _:
            return op


def _begun(ops: tuple[Op, ...]) -> Iterator[str]:
    for op in ops:
        if isinstance(op, Let) and _is_zero(op.value):
            yield op.name


def _is_zero(value: Expr) -> bool:
    while isinstance(value, Cast):
        value = value.operand
    return isinstance(value, Number) and value.value == 0


def _sum(ops: tuple[Op, ...], name: str) -> _Sum | None:
    """Return a sum of products over loops among operations, if a name is nothing else there."""
    loops = [op for op in ops if isinstance(op, TileLoop) and _has(op.body, name)]
    if not loops or sum(isinstance(op, Let) and op.name == name for op in ops) != 1:
        return None
    first, last = ops.index(loops[0]), ops.index(loops[-1])
    if any(_has((op,), name) for op in ops[first : last + 1] if op not in loops):
        return None
    begun = next(at for at, op in enumerate(ops) if isinstance(op, Let) and op.name == name)
    if begun > first or any(_has((op,), name) for op in ops[begun + 1 : first]):
        return None
    changed = {o.name for loop in loops for o in ops_in(loop.body) if isinstance(o, Let)}
    tiles = {loop.dim for loop in loops}
    found = []
    for loop in loops:
        lets = [op for op in loop.body if _has((op,), name)]
        if len(lets) != 1 or not isinstance(lets[0], Let) or lets[0].name != name:
            return None
        part = _added(lets[0].value, name)
        if part is None:
            return None
        found.append(part)
    above, below, _ = found[0]
    fixed = all(
        not (isinstance(part, Name) and part.name in changed)
        and not (isinstance(part, Position | Edge) and part.dim in tiles)
        and not isinstance(part, Load)
        for each in (*above, *below)
        for part in walk(each)
    )
    is_same = all(part[:2] == (above, below) for part in found)
    return _Sum(name, above, below, tuple(p[2] for p in found)) if fixed and is_same else None


def _added(value: Expr, name: str) -> tuple[tuple[Expr, ...], tuple[Expr, ...], Dot] | None:
    """Return the factors, the divisors and the product of what is added to a name."""
    match value:
        case Dot(_, _, _, _, _, Name(first)) if first == name:
            dot = replace(value, accumulator=None)
            return None if mentions(dot, name) else ((), (), dot)
        case Binary("+" | "-" as sign, Name(first), term) if first == name:
            above, below = factors(term)
            dots = [part for part in above if isinstance(part, Dot)]
            if len(dots) != 1 or dots[0].accumulator is not None or mentions(term, name):
                return None
            rest = [part for part in above if part is not dots[0] and part != Number(1.0)]
            if not all(set(dims_of(p)) <= set(dims_of(dots[0])) for p in (*rest, *below)):
                return None
            sign_of = (Number(-1.0),) if sign == "-" else ()
            return (*rest, *sign_of), below, dots[0]
        case _:
            return None


def _has(ops: tuple[Op, ...], name: str) -> bool:
    """Tell whether operations set a name or look at it."""
    return any(
        (isinstance(op, Let) and op.name == name)
        or any(mentions(expr, name) for expr in exprs_of(op))
        for op in ops_in(ops)
    )


def _moved(b: Builder, ops: tuple[Op, ...], sums: list[_Sum]) -> tuple[Op, ...]:
    """Return operations that add one of several sums that differ by factors, and then make all."""
    kept, others = sums[0], sums[1:]
    gone = {each.name for each in others}
    loops = [op for op in ops if isinstance(op, TileLoop) and _has(op.body, kept.name)]
    done: list[Op] = []
    labels: dict[str, Let] = {}
    for op in ops:
        if isinstance(op, Let) and op.name in gone:
            continue
        if op not in loops:
            done.append(op)
            continue
        assert isinstance(op, TileLoop)
        body: list[Op] = []
        for each in op.body:
            if isinstance(each, Let) and each.name in {kept.name, *gone}:
                labels[each.name] = each
            if isinstance(each, Let) and each.name == kept.name:
                dot = kept.dots[loops.index(op)]
                total = Name(kept.name, dims_of(dot))
                body.append(replace(each, value=replace(dot, accumulator=total)))
            elif not (isinstance(each, Let) and each.name in gone):
                body.append(each)
        done.append(replace(op, body=tuple(body)))
        if op is loops[-1]:
            for each_sum in (*others, kept):
                let = labels[each_sum.name]
                whole = Name(kept.name, dims_of(kept.dots[0]))
                value = product((whole, *each_sum.above), each_sum.below)
                if not is_finite(b, product(each_sum.above, each_sum.below), None):
                    value = Where(Binary("!=", whole, Number(0.0)), value, Number(0.0))
                if value != whole or let.name != kept.name:
                    done.append(replace(let, value=value))
    return tuple(done)
