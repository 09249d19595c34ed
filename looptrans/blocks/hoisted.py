"""Subscripts of what is read outside of loops that may have no iterations.

    for i in range(N):                     Q_he = load(Q + i - 1, mask=i - 1 >= 0)
        for j in range(1, i + 1):    ->    for j in range(1, i + 1):
            s += Q[h, i - 1] * K[h, j]         s += Q_he * K[h, j]

Inside, i is at least 1; in front of the loop it need not be.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from looptrans.blocks.expr import Binary, Call, Expr, Number, Position, Scalar, Unary
from looptrans.ir.affine import Form, form_of
from looptrans.ir.index import Arith, Extremum, Index, Int, Neg, Param, Var

# Bounds of which each holds; and how many are looked at, of sums of minima.
_Bounds = tuple[Form, ...]
_MOST = 16


def strays(
    subscript: Expr, extent: Index, places: Mapping[str, Expr], sizes: frozenset[str]
) -> tuple[bool, bool]:
    """Tell whether a subscript may be below 0, and beyond its array, as far as loops say.

    Where it is made of quotients, or of products with sizes, nothing is said.

    Args:
        subscript: The subscript.
        extent: How many elements there are.
        places: What the variables of loops stand for.
        sizes: Numbers that are not below 0.
    """
    least, most = _of_value(subscript, places)
    end = form_of(extent).plus(Form({}, 1), -1)
    below = bool(least) and not any(_is_count(form, sizes) for form in least)
    beyond = bool(most) and not any(_is_count(end.plus(form, -1), sizes) for form in most)
    return below, beyond


def _is_count(form: Form, sizes: frozenset[str]) -> bool:
    return form.constant >= 0 and all(
        count > 0 and isinstance(term, Param) and term.name in sizes
        for term, count in form.terms.items()
    )


def _of_value(expr: Expr, places: Mapping[str, Expr]) -> tuple[_Bounds, _Bounds]:
    """Return what a value is never below, and never above."""
    match expr:
        case Number(int(value)):
            return _exactly(Int(value))
        case Scalar(name):
            return _exactly(Param(name))
        case Position(dim):
            least, most = _of_index(dim.start, places)[0], _of_index(dim.stop, places)[1]
            return least, tuple(form.plus(Form({}, 1), -1) for form in most)
        case Unary("-", operand):
            return _negated(_of_value(operand, places))
        case Binary("+", left, right):
            return _sum(_of_value(left, places), _of_value(right, places))
        case Binary("-", left, right):
            return _sum(_of_value(left, places), _negated(_of_value(right, places)))
        case Binary("*", Number(int(value)), other) | Binary("*", other, Number(int(value))):
            return _times(value, _of_value(other, places))
        case Call("min" | "max" as op, arguments):
            return _extremum(op, [_of_value(each, places) for each in arguments])
        case _:
            return (), ()


def _of_index(index: Index, places: Mapping[str, Expr]) -> tuple[_Bounds, _Bounds]:
    match index:
        case Int() | Param():
            return _exactly(index)
        case Var(name) if name in places:
            return _of_value(places[name], places)
        case Neg(operand):
            return _negated(_of_index(operand, places))
        case Arith("+", left, right):
            return _sum(_of_index(left, places), _of_index(right, places))
        case Arith("-", left, right):
            return _sum(_of_index(left, places), _negated(_of_index(right, places)))
        case Arith("*", Int(value), other) | Arith("*", other, Int(value)):
            return _times(value, _of_index(other, places))
        case Extremum(op, arguments):
            return _extremum(op, [_of_index(each, places) for each in arguments])
        case _:
            return (), ()


def _exactly(index: Index) -> tuple[_Bounds, _Bounds]:
    return (form_of(index),), (form_of(index),)


def _negated(bounds: tuple[_Bounds, _Bounds]) -> tuple[_Bounds, _Bounds]:
    return _times(-1, bounds)


def _times(count: int, bounds: tuple[_Bounds, _Bounds]) -> tuple[_Bounds, _Bounds]:
    least, most = (tuple(form.times(count) for form in each) for each in bounds)
    return (least, most) if count >= 0 else (most, least)


def _sum(a: tuple[_Bounds, _Bounds], b: tuple[_Bounds, _Bounds]) -> tuple[_Bounds, _Bounds]:
    least, most = (
        tuple(x.plus(y) for x, y in product(*each))[:_MOST] for each in zip(a, b, strict=True)
    )
    return least, most


def _extremum(op: str, parts: list[tuple[_Bounds, _Bounds]]) -> tuple[_Bounds, _Bounds]:
    """A maximum is not below any of its arguments, and not above what none of them is above."""
    least, most = zip(*parts, strict=True)
    any_of = [tuple(form for each in side for form in each) for side in (least, most)]
    all_of = [
        tuple(form for form in side[0] if all(form in each for each in side))
        for side in (least, most)
    ]
    return (any_of[0], all_of[1]) if op == "max" else (all_of[0], any_of[1])
