"""Conditions: what a guard, a ternary or a contract tests.

A condition is built from comparisons of index expressions (exact, part of the iteration domain)
and from `Data` (the truth of a value, known only when the program runs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from looptrans.ir.index import Index, opaque_terms

if TYPE_CHECKING:
    from looptrans.ir.value import Value

Comparison: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]

NEGATED: dict[Comparison, Comparison] = {
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "==": "!=",
    "!=": "==",
}
# What a comparison becomes when its sides change places.
MIRRORED: dict[Comparison, Comparison] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "==": "==",
    "!=": "!=",
}


@dataclass(frozen=True, slots=True)
class Truth:
    """A constant condition."""

    value: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A comparison of two index expressions, e.g. `j <= i`."""

    op: Comparison
    left: Index
    right: Index


@dataclass(frozen=True, slots=True)
class Data:
    """The truth of a value that is known only when the program runs, e.g. `x[i] > 0.0`."""

    value: Value


@dataclass(frozen=True, slots=True)
class Every:
    """All parts hold (`and`, evaluated left to right, stopping at the first false one)."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """At least one part holds (`or`, evaluated left to right, stopping at the first true one)."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Condition


Condition: TypeAlias = Truth | Relation | Data | Every | Some | Not

ALWAYS = Truth(True)


def conjunction(*parts: Condition) -> Condition:
    """Join conditions by `and`, leaving out constant truths."""
    kept: list[Condition] = []
    for part in parts:
        if isinstance(part, Every):
            kept.extend(part.parts)
        elif part != ALWAYS:
            kept.append(part)
    if not kept:
        return ALWAYS
    return kept[0] if len(kept) == 1 else Every(tuple(kept))


def negation(part: Condition) -> Condition:
    """Return the opposite of a condition."""
    match part:
        case Truth(value):
            return Truth(not value)
        case Not(inner):
            return inner
        case _:
            return Not(part)


def opposite(part: Condition) -> Condition:
    """Return the opposite of a condition, with the comparisons in it turned round."""
    match part:
        case Relation(op, left, right):
            return Relation(NEGATED[op], left, right)
        case Every(parts):
            return Some(tuple(map(opposite, parts)))
        case Some(parts):
            return Every(tuple(map(opposite, parts)))
        case _:
            return negation(part)


def negation_normal(condition: Condition) -> Condition:
    """Return a condition in negation normal form: what says the same is written the same.

    `not (j > i or not ok)` is `j <= i and ok`; a `not` is left before data only, since a number
    that is nan is neither above another nor at most that.
    """
    match condition:
        case Not(Not(inner)):
            return negation_normal(inner)
        case Not(Data()):
            return condition
        case Not(part):
            return negation_normal(opposite(part))
        case Every(parts):
            return conjunction(*map(negation_normal, parts))
        case Some(parts):
            normal = [negation_normal(part) for part in parts]
            flat = [p.parts if isinstance(p, Some) else (p,) for p in normal]
            return Some(tuple(one for each in flat for one in each))
        case _:
            return condition


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Return what a condition asks, each thing by itself."""
    if not isinstance(condition, Every):
        return (condition,)
    return tuple(each for part in condition.parts for each in conjuncts(part))


def parts_of(condition: Condition) -> tuple[Condition, ...]:
    """Return the direct parts of a condition."""
    match condition:
        case Every(parts) | Some(parts):
            return parts
        case Not(part):
            return (part,)
        case _:
            return ()


def walk_condition(condition: Condition) -> Iterator[Condition]:
    """Yield a condition and everything below it, outermost first."""
    yield condition
    for part in parts_of(condition):
        yield from walk_condition(part)


def with_operands(
    condition: Condition,
    *,
    index: Callable[[Index], Index] | None = None,
    value: Callable[[Value], Value] | None = None,
) -> Condition:
    """Return a condition that compares other index expressions and tests other values.

    Args:
        condition: Any condition.
        index: What stands for a side of a comparison; nothing changes there without.
        value: What stands for a value that is tested; nothing changes there without.
    """

    def each(part: Condition) -> Condition:
        match part:
            case Relation(op, left, right) if index is not None:
                return Relation(op, index(left), index(right))
            case Data(tested) if value is not None:
                return Data(value(tested))
            case _:
                return part

    return with_tests(condition, each)


def with_tests(condition: Condition, change: Callable[[Condition], Condition]) -> Condition:
    """Return a condition with the tests it is joined of, comparisons and the like, replaced."""
    match condition:
        case Every(parts):
            return Every(tuple(with_tests(part, change) for part in parts))
        case Some(parts):
            return Some(tuple(with_tests(part, change) for part in parts))
        case Not(part):
            return Not(with_tests(part, change))
        case _:
            return change(condition)


def is_data_dependent(condition: Condition) -> bool:
    """Tell whether any part of a condition is known only when the program runs."""
    return any(isinstance(part, Data) for part in walk_condition(condition))


def _is_data(condition: Condition) -> bool:
    return isinstance(condition, Data)


def approximated(
    condition: Condition,
    *,
    over: bool,
    unknown: Callable[[Condition], bool] = _is_data,
) -> Condition:
    """Replace what depends on data by a constant, so that only index comparisons remain.

    Args:
        condition: Any condition.
        over: `True` gives a condition that holds whenever this one may hold (an
            over-approximation), `False` one that holds only where this one must.
        unknown: Which tests nothing is known of; those of data.
    """
    match condition:
        case Every(parts):
            return Every(tuple(approximated(p, over=over, unknown=unknown) for p in parts))
        case Some(parts):
            return Some(tuple(approximated(p, over=over, unknown=unknown) for p in parts))
        case Not(part):
            return negation(approximated(part, over=not over, unknown=unknown))
        case _:
            return Truth(over) if unknown(condition) else condition


def is_of_indices(condition: Condition) -> bool:
    """Tell whether a condition compares indices alone, none of them read from an array."""
    return not is_data_dependent(condition) and not any(map(opaque_terms, compared(condition)))


def compared(condition: Condition) -> list[Index]:
    """Return the index expressions that a condition compares."""
    relations = [part for part in walk_condition(condition) if isinstance(part, Relation)]
    return [side for each in relations for side in (each.left, each.right)]
