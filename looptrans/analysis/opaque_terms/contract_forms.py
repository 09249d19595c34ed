"""What contracts say of one array: that it rises or falls, leaves room, or is injective."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.ir.affine import Form
from looptrans.ir.condition import ALWAYS, Relation
from looptrans.ir.index import Arith, Index, Int, Opaque, Var, substitute, walk
from looptrans.ir.program import Contract
from looptrans.ir.value import Range


@dataclass(frozen=True, slots=True)
class Monotone:
    """`f` rises (or falls) over the arguments from `low` to `high`, both included."""

    function: str
    low: Index
    high: Index
    strict: bool
    falling: bool


@dataclass(frozen=True, slots=True)
class Room:
    """`f` rises by `least` at least, elements of other arrays, from `low` to `high`, included."""

    function: str
    low: Index
    high: Index
    variable: str
    least: Form


@dataclass(frozen=True, slots=True)
class Injective:
    """`f` takes different values at different arguments from `low` up to `high`, excluded."""

    function: str
    low: Index
    high: Index


def as_monotone(contract: Contract) -> Monotone | None:
    """Read `f[b] <= f[b + 1] for b in range(low, high)` and its mirror images."""
    match contract:
        case Contract(
            condition=Relation(op, Opaque(first, (left,)), Opaque(second, (right,))),
            generators=(generator,),
        ) if first == second and op in ("<", "<=", ">", ">="):
            pass
        case _:
            return None
    if generator.condition != ALWAYS or generator.range.step != 1:
        return None
    offsets = _offset(left, generator.variable), _offset(right, generator.variable)
    if offsets[0] is None or offsets[1] is None or abs(offsets[0] - offsets[1]) != 1:
        return None
    lower = min(offsets[0], offsets[1])
    rising_order = offsets[0] < offsets[1]
    falling = (op in (">", ">=")) == rising_order
    limits: Range = generator.range
    return Monotone(
        first,
        Arith("+", limits.start, Int(lower)),
        Arith("+", limits.stop, Int(lower)),
        op in ("<", ">"),
        falling,
    )


def _offset(index: Index, variable: str) -> int | None:
    """Return c where an index expression is `variable + c`."""
    if not any(node == Var(variable) for node in walk(index)):
        return None
    zero, one = (
        _number(substitute(index, {variable: Int(0)})),
        _number(substitute(index, {variable: Int(1)})),
    )
    if zero is None or one is None or one - zero != 1:
        return None
    return zero


def _number(index: Index) -> int | None:
    match index:
        case Int(value):
            return value
        case Arith("+", left, right):
            a, b = _number(left), _number(right)
            return None if a is None or b is None else a + b
        case Arith("-", left, right):
            a, b = _number(left), _number(right)
            return None if a is None or b is None else a - b
        case _:
            return None


def as_injective(contract: Contract) -> Injective | None:
    """Read `f[b] != f[c]` for two different indices of one range, in either spelling."""
    match contract:
        case Contract(
            condition=Relation("!=", Opaque(first, (Var(left),)), Opaque(second, (Var(right),))),
            generators=(outer, inner),
        ) if first == second and {left, right} == {outer.variable, inner.variable}:
            pass
        case _:
            return None
    if outer.condition != ALWAYS or outer.range.step != 1 or inner.range.step != 1:
        return None
    limits = outer.range
    apart = {
        Relation("!=", Var(outer.variable), Var(inner.variable)),
        Relation("!=", Var(inner.variable), Var(outer.variable)),
        Relation("<", Var(outer.variable), Var(inner.variable)),
        Relation("<", Var(inner.variable), Var(outer.variable)),
    }
    same_range = inner.range == limits and inner.condition in apart
    below = inner.range == Range(limits.start, Var(outer.variable)) and inner.condition == ALWAYS
    above = inner.condition == ALWAYS and inner.range == Range(
        Arith("+", Var(outer.variable), Int(1)), limits.stop
    )
    if same_range or below or above:
        return Injective(first, limits.start, limits.stop)
    return None
