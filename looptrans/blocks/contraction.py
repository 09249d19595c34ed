"""Sums over a dimension: as matrix products where the shapes allow, else multiplied and reduced.

sum over e of Q[i, e] * K[j, e] * c    ->    dot(Q[i, e], K[j, e]) * c
sum over k of A[i, k] * x[k]           ->    reduce + over k of A[i, k] * x[k]
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

from looptrans.blocks.arithmetic import (
    as_float,
    both,
    conjuncts,
    factors,
    negative,
    plus,
    product,
    terms,
    value_outside,
)
from looptrans.blocks.builder import Builder
from looptrans.blocks.program import (
    Binary,
    Call,
    Cast,
    Dim,
    Dot,
    Expr,
    Load,
    Name,
    Number,
    Position,
    Reduce,
    Unary,
    Where,
    dims_of,
    union,
)

Monoid: TypeAlias = Literal["+", "*", "max", "min"]

IDENTITY: Final[dict[Monoid, float]] = {"+": 0.0, "*": 1.0, "max": -math.inf, "min": math.inf}


def summed(b: Builder, value: Expr, over: Dim, mask: Expr | None, onto: Expr | None = None) -> Expr:
    """Return the sum of a value over a dimension.

    Args:
        b: The kernel.
        value: What is summed.
        over: The dimension.
        mask: Which of its iterations count.
        onto: What the sum is added to.
    """
    parts = [(sign, _term(b, term, over, mask)) for sign, term in _gathered(value, over)]
    found = onto
    for sign, (part, rest) in parts:
        whole = isinstance(part, Dot) and rest == ((), ()) and sign > 0
        if whole and found is not None and set(dims_of(found)) <= set(dims_of(part)):
            assert isinstance(part, Dot)
            found = Dot(part.left, part.right, part.rows, part.columns, part.over, found)
            continue
        scaled = product((*rest[0], part), rest[1]) if rest != ((), ()) else part
        scaled = scaled if sign > 0 else negative(scaled)
        found = scaled if found is None else plus(found, scaled)
    assert found is not None
    return found


def _gathered(value: Expr, over: Dim) -> tuple[tuple[int, Expr], ...]:
    """Return the terms to be summed apart: those that are matrix products, and all the rest."""
    found = terms(value)
    if len(found) == 1:
        return found
    products = [pair for pair in found if _sides(_inner(pair[1], over), over) is not None]
    rest = [pair for pair in found if pair not in products]
    if not products:
        return ((1, value),)
    if rest:
        joined = None
        for sign, term in rest:
            signed = term if sign > 0 else negative(term)
            joined = signed if joined is None else plus(joined, signed)
        assert joined is not None
        return (*products, (1, joined))
    return tuple(products)


def _inner(term: Expr, over: Dim) -> tuple[Expr, ...]:
    above, _ = factors(term)
    return tuple(part for part in above if over in dims_of(part))


Rest: TypeAlias = tuple[tuple[Expr, ...], tuple[Expr, ...]]


def _term(b: Builder, term: Expr, over: Dim, mask: Expr | None) -> tuple[Expr, Rest]:
    above, below = factors(term)
    inner = [part for part in above if over in dims_of(part)]
    outer = tuple(part for part in above if over not in dims_of(part))
    under = [part for part in below if over in dims_of(part)]
    rest = (outer, tuple(part for part in below if over not in dims_of(part)))
    if not inner and not under:
        inner, rest = [term], ((), ())
    # A divisor is a factor as well: 1 / (1 + exp(-s)) * V is a product of two operands.
    sides = _sides((*inner, *(Binary("/", Number(1.0), part) for part in under)), over)
    found = None if sides is None else _dot(b, sides, over, mask)
    if found is None:
        found = reduced(b, "+", product(inner, under), over, mask)
    return found, rest


def _sides(
    inner: tuple[Expr, ...], over: Dim
) -> tuple[tuple[Expr, ...], tuple[Expr, ...], Dim, Dim] | None:
    """Split factors into those of the left and of the right operand of a matrix product."""
    free = [tuple(d for d in dims_of(part) if d != over) for part in inner]
    both_sides = union(*free)
    if len(both_sides) != 2 or any(len(dims) > 1 for dims in free):
        return None
    rows, columns = both_sides
    left = [part for part, dims in zip(inner, free, strict=True) if dims == (rows,)]
    right = [part for part, dims in zip(inner, free, strict=True) if dims == (columns,)]
    neither = [part for part, dims in zip(inner, free, strict=True) if not dims]
    # What has neither side goes where something has to be worked out anyway.
    if len(left) == 1 and _held(left[0]) is not None and len(right) > 1:
        right += neither
    else:
        left += neither
    return tuple(left), tuple(right), rows, columns


def _held(expr: Expr) -> str | None:
    """Return the array whose elements a value is, untouched."""
    while isinstance(expr, Cast) and expr.to == "float32" and expr.like is None:
        expr = expr.operand
    if isinstance(expr, Name):
        return expr.holds
    return expr.array if isinstance(expr, Load) and expr.kind == "float" else None


def _bare(expr: Expr) -> Expr:
    while isinstance(expr, Cast):
        expr = expr.operand
    return expr


def _dot(
    b: Builder,
    sides: tuple[tuple[Expr, ...], tuple[Expr, ...], Dim, Dim],
    over: Dim,
    mask: Expr | None,
) -> Expr | None:
    left_parts, right_parts, rows, columns = sides
    if "element" in (rows.role, columns.role, over.role):
        return None
    for dim in (rows, columns, over):
        b.seen_contracted.add((dim.name, dim.role))
    held = [_held(parts[0]) if len(parts) == 1 else None for parts in (left_parts, right_parts)]
    left, right = product(left_parts), product(right_parts)
    if held[0] is not None and held[1] is not None:
        left, right = _bare(left), _bare(right)
    elif held[0] is not None and is_at_most_one(b, right):
        left, right = _bare(left), Cast(right, like=held[0])
    elif held[1] is not None and is_at_most_one(b, left):
        left, right = Cast(left, like=held[1]), _bare(right)
    else:
        left, right = as_float(left), as_float(right)
    # Where an iteration does not count one operand must be 0, and the other a finite number.
    for conjunct in conjuncts(mask):
        known = known_where(b, conjunct)
        outside = [value_outside(o, known, conjunct, b.positive) for o in (left, right)]
        if 0.0 in outside:
            continue
        own = set(dims_of(conjunct))
        if own <= {rows, over}:
            left = _masked(left, conjunct)
        elif own <= {columns, over}:
            right = _masked(right, conjunct)
        else:
            return None
    return Dot(left, right, rows, columns, over)


def _masked(operand: Expr, conjunct: Expr) -> Expr:
    if isinstance(operand, Cast) and operand.like is not None:
        return Cast(Where(conjunct, operand.operand, Number(0.0)), like=operand.like)
    held = _held(operand)
    if held is not None:
        return Cast(Where(conjunct, as_float(operand), Number(0.0)), like=held)
    return Where(conjunct, operand, Number(0.0))


def known_where(b: Builder, conjunct: Expr) -> dict[str, float]:
    """Return what names are known to be where a condition fails."""
    found = {
        name: float(load.other)
        for name, load in b.read.items()
        if load.other is not None and conjunct in conjuncts(load.mask)
    }
    return found | {name: facts[conjunct] for name, facts in b.known.items() if conjunct in facts}


def reduced(b: Builder, op: Monoid, value: Expr, over: Dim, mask: Expr | None) -> Expr:
    """Return a value reduced over a dimension, counting only where the mask holds."""
    value = as_float(value)
    needed: list[Expr] = []
    for conjunct in conjuncts(mask):
        known = known_where(b, conjunct)
        if value_outside(value, known, conjunct, b.positive) != IDENTITY[op]:
            needed.append(conjunct)
    condition = both(*needed)
    if condition is not None:
        value = Where(condition, value, Number(IDENTITY[op]))
    if over not in dims_of(value):
        # The same for every iteration: as many times as there are iterations that count.
        if op in ("max", "min"):
            return value
        every = Binary(">=", Position(over), b.index(over.start))
        value = Where(every, value, Number(IDENTITY[op]))
    return Reduce(op, over, value)


def is_at_most_one(b: Builder, expr: Expr) -> bool:
    """Tell whether the size of a value is surely at most 1, so that 16 bits can hold it."""
    low, high = bounds(b, expr)
    return low >= -1.0 and high <= 1.0


def bounds(b: Builder, expr: Expr) -> tuple[float, float]:
    """Return two numbers between which a value surely is."""
    match expr:
        case Number(value):
            return float(value), float(value)
        case Cast(operand):
            return bounds(b, operand)
        case Name(name) if name in b.ranges:
            return b.ranges[name]
        case Unary("-", operand):
            low, high = bounds(b, operand)
            return -high, -low
        case Call("exp" | "exp2", (operand,)):
            low, high = bounds(b, operand)
            return (math.exp(low) if low > -700 else 0.0), (
                math.exp(high) if high < 700 and high <= 0 else math.inf
            )
        case Call("tanh" | "sin" | "cos", _):
            return -1.0, 1.0
        case Binary("-", left, right):
            if isinstance(right, Name) and (left, right.name) in b.nonpositive:
                return -math.inf, 0.0
            (a, c), (d, e) = bounds(b, left), bounds(b, right)
            return a - e, c - d
        case Binary("+", left, right):
            (a, c), (d, e) = bounds(b, left), bounds(b, right)
            return a + d, c + e
        case Binary("*", left, right):
            return _product(bounds(b, left), bounds(b, right))
        case Binary("/", left, right):
            (a, c), (d, e) = bounds(b, left), bounds(b, right)
            if d > 0:
                return _product((a, c), (1 / e if e < math.inf else 0.0, 1 / d))
            return -math.inf, math.inf
        case Where(_, chosen, otherwise):
            (a, c), (d, e) = bounds(b, chosen), bounds(b, otherwise)
            return min(a, d), max(c, e)
        case Call("max" | "min" as function, (left, right)):
            (a, c), (d, e) = bounds(b, left), bounds(b, right)
            choose = max if function == "max" else min
            return choose(a, d), choose(c, e)
        case _:
            return -math.inf, math.inf


def _product(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    found = [0.0 if 0.0 in (x, y) else x * y for x in a for y in b]
    return min(found), max(found)
