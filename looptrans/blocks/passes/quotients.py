"""Quotients of exponentials that stay numbers where the exponential itself is none any more.

    g = 1 / (1 + exp(-x))
    dx = dg * g * (exp(-x) / (1 + exp(-x)))     ->     dx = dg * g * (1 / (1 + exp(x)))

Below x = -88 the exponential is infinite in float32. The logistic function is 0 there, but its
derivative, the way it comes out of the chain rule, would be infinity by infinity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from looptrans.blocks.block_ir.arithmetic import (
    factors,
    mapped,
    mentions,
    negative,
    plus,
    product,
    terms,
    times,
    total,
)
from looptrans.blocks.block_ir.expr import Binary, Call, Expr, Name, Number, kind_of
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Op, RowBlock, TileLoop, ops_in

Known = dict[str, Expr]


def bounded(ops: tuple[Op, ...], around: Known | None = None) -> tuple[Op, ...]:
    """Write `exp(t) / (c + exp(t))` as `1 / (1 + c * exp(-t))`, c a number above zero.

    Args:
        ops: What a program does.
        around: What the names hold that are set before.
    """
    known = dict(around or {})
    found: list[Op] = []
    for op in ops:
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            for name in _set_in(op.body):
                _forget(known, name)
            found.append(replace(op, body=bounded(op.body, known)))
            continue
        value = mapped(op.value, partial(_changed, known=known))
        found.append(replace(op, value=value))
        if isinstance(op, Let):
            _forget(known, op.name)
            if not mentions(value, op.name):
                known[op.name] = value
    return tuple(found)


def _set_in(ops: tuple[Op, ...]) -> set[str]:
    return {op.name for op in ops_in(ops) if isinstance(op, Let)}


def _forget(known: Known, name: str) -> None:
    known.pop(name, None)
    for other in [n for n, value in known.items() if mentions(value, name)]:
        del known[other]


def _changed(part: Expr, known: Known) -> Expr | None:
    """Return a product in which an exponential and a sum that it is a term of have met, or None."""
    if not isinstance(part, Binary) or part.op not in ("*", "/") or kind_of(part) != "float":
        return None
    above, below = factors(part)
    change = partial(_changed, known=known)
    for number, factor in enumerate(above):
        power = _power(factor, known)
        if power is None:
            continue
        others = (*above[:number], *above[number + 1 :])
        for upper, lower in ((others, below), *_opened(others, below, known)):
            for place, divisor in enumerate(lower):
                found = _share(power, divisor, known)
                if found is not None:
                    share, left = found
                    over = list(upper)
                    under = [*lower[:place], *left, *lower[place + 1 :]]
                    for each in [each for each in left if each in over]:
                        over.remove(each)
                        under.remove(each)
                    return product(
                        (*(mapped(each, change) for each in over), share),
                        [mapped(each, change) for each in under],
                    )
    return _distributed(above, below, known)


def _distributed(above: tuple[Expr, ...], below: tuple[Expr, ...], known: Known) -> Expr | None:
    """Return a product with a sum, one of whose terms meets a divisor, divided term by term."""
    for number, factor in enumerate(above):
        parts = terms(factor)
        if len(parts) < 2:
            continue
        for place, divisor in enumerate(below):
            found = [_changed(Binary("/", part, divisor), known) for _, part in parts]
            if any(each is not None for each in found):
                whole = total(
                    each if sign > 0 else negative(each)
                    for sign, each in (
                        (sign, Binary("/", part, divisor) if each is None else each)
                        for (sign, part), each in zip(parts, found, strict=True)
                    )
                )
                change = partial(_changed, known=known)
                others = (*above[:number], *above[number + 1 :])
                rest = (*below[:place], *below[place + 1 :])
                return product(
                    (*(mapped(each, change) for each in others), whole),
                    [mapped(each, change) for each in rest],
                )
    return None


def _power(expr: Expr, known: Known) -> Call | None:
    """Return the exponential that a factor is, or is a name of."""
    value = known.get(expr.name, expr) if isinstance(expr, Name) else expr
    return value if isinstance(value, Call) and value.function in ("exp", "exp2") else None


def _opened(
    above: tuple[Expr, ...], below: tuple[Expr, ...], known: Known
) -> Iterator[tuple[tuple[Expr, ...], tuple[Expr, ...]]]:
    """Yield a quotient again and again, one of the names above opened."""
    for number, factor in enumerate(above):
        if isinstance(factor, Name) and factor.name in known:
            inner, under = factors(known[factor.name])
            if under:
                yield (*above[:number], *above[number + 1 :], *inner), (*below, *under)


def _share(power: Call, divisor: Expr, known: Known) -> tuple[Expr, tuple[Expr, ...]] | None:
    """Return `power / divisor` and what is left of the divisor, where it is such a sum."""
    match divisor:
        case Call("pow", (base, Number(2))):
            found = _share(power, base, known)
            return None if found is None else (found[0], (*found[1], base))
        case Name(name) if name in known:
            return _share(power, known[name], known)
    parts = [part for sign, part in terms(divisor) if sign > 0]
    others = [part for part in parts if _power(part, known) != power]
    if len(parts) < len(terms(divisor)) or len(others) != len(parts) - 1 or not others:
        return None
    numbers = [part for part in others if isinstance(part, Number) and part.value > 0]
    if len(numbers) < len(others):
        return None
    inverse = Call(power.function, (negative(power.arguments[0]),))
    return Binary("/", Number(1.0), plus(Number(1.0), times(inverse, total(numbers)))), ()
