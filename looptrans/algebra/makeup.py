"""Which scores may hold numbers that are as large as masks are.

Masks hold a very negative number to leave elements out, often the least there is.

    s = sum(Q[i, e] * K[j, e] for e in range(E)) + (1.0 - B[i, j]) * neg

A mask is made of what is given: numbers of memory, real parameters, literals as large. Scores that
are summed, and what they are multiplied with, have a size of their own; so has a slope times a
distance of indices, which would be infinite two steps away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final, TypeVar

from looptrans.ir.index import Arith, Index, Int, Let, Neg, Param, Var, variables, walk
from looptrans.ir.value import (
    Binary,
    Call,
    Const,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
)

T = TypeVar("T")
BOUNDED: Final = frozenset(("tanh", "sin", "cos", "log", "log2", "sqrt", "bool", "uniform"))
"""Functions that are far from the least float wherever they are finite."""


@dataclass(frozen=True, slots=True)
class Makeup:
    """What a value is made of.

    Attributes:
        given: Whether it may be as large as a mask: a mask, or a sum that has one.
        scored: Whether it is a score: it has a sum of products, or several terms that are given.
        stepped: Whether an index is a term or factor.
    """

    given: bool = False
    scored: bool = False
    stepped: bool = False

    @property
    def is_masked(self) -> bool:
        """Whether it is a score that a mask was added to."""
        return self.given and self.scored


PLAIN: Final = Makeup()
GIVEN: Final = Makeup(given=True)
SCORED: Final = Makeup(scored=True)
STEPPED: Final = Makeup(stepped=True)


def makeup_of_value(value: Value, made: Mapping[str, Value], large: float) -> Makeup:
    """Return what a value of a listing is made of.

    Args:
        value: The value.
        made: What the names of an iteration stand for.
        large: Literals above it may be masks.
    """

    def each(part: Value) -> Makeup:
        return makeup_of_value(part, made, large)

    match value:
        case Read(access) if access.array in made:
            return makeup_of_value(made[access.array], without(made, access.array), large)
        case Read() | Real():
            return GIVEN
        case Const(number):
            return of_number(number, large)
        case IndexValue(index):
            return STEPPED if _is_distance(index) else PLAIN
        case Reduce("sum") | Binary("@"):
            return SCORED
        case Reduce(_, _, operand) | Unary(_, operand):
            return each(operand)
        case Binary("+" | "-", left, right) | Select(_, left, right):
            return added((each(left), each(right)))
        case Binary(_, left, right):
            return multiplied(each(left), each(right))
        case Call("sum"):
            return SCORED
        case Call("where", (_, chosen, otherwise)):
            return added((each(chosen), each(otherwise)))
        case Call(function, arguments):
            return called(function, map(each, arguments))
        case _:
            return PLAIN


def added(parts: Iterable[Makeup]) -> Makeup:
    """Return the makeup of a sum, or of one of several values."""
    found = list(parts)
    given = sum(part.given for part in found)
    return Makeup(
        given > 0, given > 1 or any(part.scored for part in found), any(p.stepped for p in found)
    )


def multiplied(left: Makeup, right: Makeup) -> Makeup:
    """Return the makeup of a product or quotient: scores and distances are no masks, scaled."""
    scored, stepped = left.scored or right.scored, left.stepped or right.stepped
    if any(part.given and (part.scored or part.stepped) for part in (left, right)):
        return Makeup(True, scored, stepped)
    given = (left.given or right.given) and not scored and not stepped
    return Makeup(given, scored, stepped)


def called(function: str, arguments: Iterable[Makeup]) -> Makeup:
    """Return the makeup of what a function returns."""
    made = added(arguments)
    return replace(made, given=False, stepped=False) if function in BOUNDED else made


def of_number(number: float, large: float) -> Makeup:
    """Return the makeup of a literal."""
    return GIVEN if large < abs(number) < inf else PLAIN


def _is_distance(index: Index) -> bool:
    """Tell whether an index goes up or down with every iteration of some loop."""
    affine = all(
        isinstance(part, Int | Var | Param | Neg | Let)
        or (isinstance(part, Arith) and part.op in ("+", "-", "*"))
        for part in walk(index)
    )
    return affine and bool(variables(index))


def without(names: Mapping[str, T], name: str) -> dict[str, T]:
    """Return what names stand for, but for one of them."""
    return {other: value for other, value in names.items() if other != name}
