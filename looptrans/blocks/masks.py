"""Which scores may hold the least float, so that they stay in natural units.

Masks hold the least number there is to leave elements out, which times log2(e) is -inf: where all
of a row have it nothing would be left of the row.

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

from looptrans.blocks import expr as blocks
from looptrans.blocks.arithmetic import LARGEST
from looptrans.ir import value as values
from looptrans.ir.index import Arith, Index, Int, Let, Neg, Param, Var, variables, walk

T = TypeVar("T")
BOUNDED: Final = frozenset(("tanh", "sin", "cos", "log", "log2", "sqrt", "bool", "uniform"))
"""Functions that are far from the least float wherever they are finite."""


@dataclass(frozen=True, slots=True)
class Makeup:
    """What a value is made of.

    Attributes:
        given: Whether it may be the least float: a mask, or a sum that has one.
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


def makeup_of_value(value: values.Value, made: Mapping[str, values.Value]) -> Makeup:
    """Return what a value of a listing is made of.

    Args:
        value: The value.
        made: What the names of an iteration stand for.
    """

    def each(part: values.Value) -> Makeup:
        return makeup_of_value(part, made)

    match value:
        case values.Read(access) if access.array in made:
            return makeup_of_value(made[access.array], _without(made, access.array))
        case values.Read() | values.Real():
            return GIVEN
        case values.Const(number):
            return _number(number)
        case values.IndexValue(index):
            return STEPPED if _is_distance(index) else PLAIN
        case values.Reduce("sum") | values.Binary("@"):
            return SCORED
        case values.Reduce(_, _, operand) | values.Unary(_, operand):
            return each(operand)
        case values.Binary("+" | "-", left, right) | values.Select(_, left, right):
            return _added((each(left), each(right)))
        case values.Binary(_, left, right):
            return _multiplied(each(left), each(right))
        case values.Call("sum"):
            return SCORED
        case values.Call("where", (_, chosen, otherwise)):
            return _added((each(chosen), each(otherwise)))
        case values.Call(function, arguments):
            return _called(function, map(each, arguments))
        case _:
            return PLAIN


def makeup_of_expr(expr: blocks.Expr, known: Mapping[str, blocks.Expr]) -> Makeup:
    """Return what a value of a kernel is made of.

    Args:
        expr: The value.
        known: What names stand for.
    """

    def each(part: blocks.Expr) -> Makeup:
        return makeup_of_expr(part, known)

    match expr:
        case blocks.Name(name) if name in known:
            return makeup_of_expr(known[name], _without(known, name))
        case blocks.Name(_, _, kind) | blocks.Scalar(_, kind):
            return GIVEN if kind == "float" else PLAIN
        case blocks.Load():
            return GIVEN
        case blocks.Number(number):
            return _number(number)
        case blocks.Position():
            return STEPPED
        case blocks.Dot() | blocks.Reduce("+" | "*"):
            return SCORED
        case blocks.Unary("-", operand) | blocks.Cast(operand) | blocks.Reduce(_, _, operand):
            return each(operand)
        case blocks.Binary("+" | "-", left, right) | blocks.Where(_, left, right):
            return _added((each(left), each(right)))
        case blocks.Binary("*" | "/" | "//" | "%", left, right):
            return _multiplied(each(left), each(right))
        case blocks.Call("pow", (left, right)):
            return _multiplied(each(left), each(right))
        case blocks.Call(function, arguments):
            return _called(function, map(each, arguments))
        case _:
            return PLAIN


def _added(parts: Iterable[Makeup]) -> Makeup:
    """Return the makeup of a sum, or of one of several values."""
    found = list(parts)
    given = sum(part.given for part in found)
    return Makeup(
        given > 0, given > 1 or any(part.scored for part in found), any(p.stepped for p in found)
    )


def _multiplied(left: Makeup, right: Makeup) -> Makeup:
    """Return the makeup of a product or quotient: scores and distances are no masks, scaled."""
    scored, stepped = left.scored or right.scored, left.stepped or right.stepped
    if any(part.given and (part.scored or part.stepped) for part in (left, right)):
        return Makeup(True, scored, stepped)
    given = (left.given or right.given) and not scored and not stepped
    return Makeup(given, scored, stepped)


def _called(function: str, arguments: Iterable[Makeup]) -> Makeup:
    made = _added(arguments)
    return replace(made, given=False, stepped=False) if function in BOUNDED else made


def _number(number: float) -> Makeup:
    return GIVEN if LARGEST < abs(number) < inf else PLAIN


def _is_distance(index: Index) -> bool:
    """Tell whether an index goes up or down with every iteration of some loop."""
    affine = all(
        isinstance(part, Int | Var | Param | Neg | Let)
        or (isinstance(part, Arith) and part.op in ("+", "-", "*"))
        for part in walk(index)
    )
    return affine and bool(variables(index))


def _without(names: Mapping[str, T], name: str) -> dict[str, T]:
    return {other: value for other, value in names.items() if other != name}
