"""What a loop runs over: bounds that may depend on the row, and ranges that are several."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

from looptrans.ir.affine import extremum, form_of, sides
from looptrans.ir.condition import Condition
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, Var, variables
from looptrans.ir.value import Range


@dataclass(frozen=True, slots=True)
class Unless:
    """A bound that some rows do not have.

    Attributes:
        index: The bound, on the inner side of those that all rows have.
        free: Which rows do not have it.
        is_lower: Whether it is a lower one.
    """

    index: Index
    free: Condition
    is_lower: bool


Bound: TypeAlias = Index | Unless


@dataclass(frozen=True, slots=True)
class Bounds:
    """`max(lower) <= variable < min(upper)`."""

    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]

    @property
    def start(self) -> Index:
        """What every row begins with at the earliest."""
        return extremum("max", [i for i in self.lower if not isinstance(i, Unless)])

    @property
    def stop(self) -> Index:
        """What every row stays below."""
        return extremum("min", [i for i in self.upper if not isinstance(i, Unless)])


ALL: Final = Bounds((), ())


@dataclass(frozen=True, slots=True)
class Ranges:
    """What is in one range and in any of some others as well.

    Attributes:
        common: The bounds of all.
        apart: What each has beside them; a single one has nothing.
    """

    common: Bounds
    apart: tuple[Bounds, ...] = (ALL,)

    def reduced(self) -> Ranges:
        """Return the same without what is plainly empty, unless all are."""
        kept = list(dict.fromkeys(self.apart))
        for each in tuple(kept):
            others = [other for other in kept if other is not each]
            if others and _is_idle(self.common, each, others):
                kept = others
        if len(kept) > 1:
            return Ranges(self.common, tuple(kept))
        return Ranges(joined(self.common, kept[0]))


def _is_idle(common: Bounds, own: Bounds, others: list[Bounds]) -> bool:
    """Tell whether a range is plainly empty; rows that do not have its bounds need another."""
    ends = [
        tuple(b.index if isinstance(b, Unless) else b for b in bounds)
        for bounds in (own.lower, own.upper)
    ]
    if not is_surely_empty(joined(common, Bounds(*ends))):
        return False
    free = {b.free for b in (*own.lower, *own.upper) if isinstance(b, Unless)}
    return not free or any(
        all(isinstance(b, Unless) and {b.free} == free for b in (*other.lower, *other.upper))
        for other in others
    )


def joined(one: Bounds, other: Bounds) -> Bounds:
    """Return the bounds of what is in two ranges, each bound once."""
    return Bounds(
        tuple(dict.fromkeys((*one.lower, *other.lower))),
        tuple(dict.fromkeys((*one.upper, *other.upper))),
    )


def is_surely_empty(bounds: Bounds) -> bool:
    """Tell whether some lower bound of a range is plainly not below an upper one."""
    for low, high in product(bounds.lower, bounds.upper):
        if isinstance(low, Unless) or isinstance(high, Unless):
            continue
        apart = form_of(high).plus(form_of(low), -1)
        if apart.is_constant and apart.constant <= 0:
            return True
    return False


def bounds_of(range_: Range) -> Bounds:
    """Return the bounds of a range, a `max` and a `min` taken apart."""
    return Bounds(sides("max", range_.start), sides("min", range_.stop))


def slope(index: Index, name: str) -> int | None:
    """Return 1 where a bound never falls as the variable rises, -1 where it never rises, 0: apart.

    None where neither is plain.
    """
    if name not in variables(index):
        return 0
    match index:
        case Var():
            return 1
        case Neg(operand):
            way = slope(operand, name)
            return None if way is None else -way
        case Arith("+", left, right):
            return slopes_joined(slope(left, name), slope(right, name))
        case Arith("-", left, right):
            way = slope(right, name)
            return slopes_joined(slope(left, name), None if way is None else -way)
        case Arith("*", Int(value), other) | Arith("*", other, Int(value)):
            way = slope(other, name)
            return None if way is None else way * (1 if value >= 0 else -1)
        case Arith("//", left, Int(value)) if value > 0:
            return slope(left, name)
        case Extremum(_, arguments):
            ways = [slope(argument, name) for argument in arguments]
            found: int | None = 0
            for way in ways:
                found = slopes_joined(found, way)
            return found
        case Let(_, value):
            return slope(value, name)
        case _:
            return None


def slopes_joined(a: int | None, b: int | None) -> int | None:
    """Return how a sum, or the larger of two, moves as `slope` says of each."""
    if a is None or b is None or a * b < 0:
        return None
    return a or b
