"""Conditions as ranges of one variable: what `j <= i and (j < S or i - j < W)` says about j.

A comparison that holds for a range of j is bounds; `or` makes several ranges of it, `and` joins
their bounds. Of alternatives that bound one end, the widest is the bound: `j <= i or j < P` is
`j < max(i + 1, P)`; where an alternative is about the row alone, rows for which it holds have no
such bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

from looptrans.blocks.scheduled.ranges import ALL, Bounds, Unless, is_surely_empty, joined
from looptrans.ir.affine import Form, difference, extremum, form_of, index_of, quotient, total
from looptrans.ir.condition import (
    MIRRORED,
    Comparison,
    Condition,
    Every,
    Not,
    Relation,
    Some,
    Truth,
    conjunction,
    opposite,
)
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Let,
    Param,
    Var,
    children,
    rebuild,
    variables,
)

# More ranges are no ranges any more, but a mask; each has loops of its own.
MOST: Final = 4
_MOST_ALTERNATIVES: Final = 16


@dataclass(frozen=True, slots=True)
class _Both:
    """What must hold at once: bounds of the variable, and conditions without it."""

    bounds: Bounds = ALL
    rows: tuple[Condition, ...] = ()

    def joined(self, other: _Both) -> _Both:
        rows = (*self.rows, *(each for each in other.rows if each not in self.rows))
        return _Both(joined(self.bounds, other.bounds), rows)


def wholly_apart(condition: Condition) -> tuple[Condition, ...]:
    """Return conditions that hold together exactly where one does, as many as there are."""
    match condition:
        case Every(parts):
            return tuple(part for each in parts for part in wholly_apart(each))
        case Not(part):
            other = opposite(part)
            return (condition,) if isinstance(other, Not) else wholly_apart(other)
        case Relation():
            apart = _taken_apart(condition)
            return wholly_apart(apart) if isinstance(apart, Every) else (condition,)
        case _:
            return (condition,)


def solved(variable: str, part: Condition, within: Bounds) -> tuple[Bounds, ...] | None:
    """Return a condition as ranges of a variable, if they are no more and no less.

    Args:
        variable: The variable.
        part: The condition.
        within: What the variable is in anyway.
    """
    alternatives = _alternatives(variable, part)
    if not alternatives or _Both() in alternatives:
        return None
    # Any lower bound will do; one that is the same for all rows lets none of them be visited.
    same = [b for b in within.lower if not isinstance(b, Unless) and not variables(b)]
    start = extremum("max", same) if same else within.start
    left = [a for a in alternatives if not is_surely_empty(joined(within, a.bounds))]
    lower: list[Index] = []
    upper: list[Index] = []
    free: list[Condition] = []
    found: list[Bounds] = []
    limited: list[Bounds] = []
    for each in left or alternatives:
        match each:
            case _Both(Bounds((), ()), rows):
                free.append(conjunction(*rows))
            case _Both(Bounds((index,), ()), ()) if not isinstance(index, Unless):
                lower.append(index)
            case _Both(Bounds((), (index,)), ()) if not isinstance(index, Unless):
                upper.append(index)
            case _Both(bounds, ()):
                found.append(bounds)
            case _Both(bounds, rows):
                limited.append(_only(bounds, rows, start))
    if lower:
        found.insert(0, Bounds((extremum("min", lower),), ()))
    if upper:
        found.insert(0, Bounds((), (extremum("max", upper),)))
    if free and found:
        found = [_unless(each, free) for each in found]
    elif free:
        found.append(_only(ALL, (_any(free),), start))
    every = tuple(dict.fromkeys((*found, *limited)))
    return tuple(each for each in every if not is_surely_empty(each)) or every[:1]


def _any(conditions: list[Condition]) -> Condition:
    return conditions[0] if len(conditions) == 1 else Some(tuple(conditions))


def _unless(bounds: Bounds, free: list[Condition]) -> Bounds:
    """Return bounds that some rows do not have."""
    apart = _any(free)
    return Bounds(
        tuple(b if isinstance(b, Unless) else Unless(b, apart, True) for b in bounds.lower),
        tuple(b if isinstance(b, Unless) else Unless(b, apart, False) for b in bounds.upper),
    )


def _only(bounds: Bounds, rows: tuple[Condition, ...], start: Index) -> Bounds:
    """Return a range that only some rows have; for others it ends where it begins."""
    return Bounds(bounds.lower, (*bounds.upper, Unless(start, conjunction(*rows), False)))


def _alternatives(variable: str, condition: Condition) -> tuple[_Both, ...] | None:
    """Return a condition as alternatives; None where it has a part that is no bound."""
    match condition:
        case Truth(True):
            return (_Both(),)
        case Truth(False):
            return ()
        case Some(parts):
            found: list[_Both] = []
            for part in parts:
                alternatives = _alternatives(variable, part)
                if alternatives is None:
                    return None
                found += alternatives
            return tuple(dict.fromkeys(found)) if len(found) <= _MOST_ALTERNATIVES else None
        case Every(parts):
            all_parts: tuple[_Both, ...] = (_Both(),)
            for part in parts:
                alternatives = _alternatives(variable, part)
                if alternatives is None:
                    return None
                joint = (a.joined(b) for a, b in product(all_parts, alternatives))
                all_parts = tuple(dict.fromkeys(joint))
                if len(all_parts) > _MOST_ALTERNATIVES:
                    return None
            return all_parts
        case Not(part):
            other = opposite(part)
            return None if isinstance(other, Not) else _alternatives(variable, other)
        case Relation():
            return _of_relation(variable, condition)
        case _:
            return None


def _of_relation(variable: str, relation: Relation) -> tuple[_Both, ...] | None:
    apart = _taken_apart(relation)
    if apart != relation:
        return _alternatives(variable, apart)
    if variable not in variables(relation.left) + variables(relation.right):
        return (_Both(rows=(relation,)),)
    if relation.op == "!=":
        sides: tuple[Comparison, ...] = ("<", ">")
        parts = tuple(Relation(op, relation.left, relation.right) for op in sides)
        return _alternatives(variable, Some(parts))
    bounds = _bounds(variable, relation)
    return None if bounds is None else (_Both(bounds),)


def _taken_apart(relation: Relation) -> Condition:
    """Return a comparison with a `max` or a `min` as comparisons with what is inside."""
    op, left, right = relation.op, relation.left, relation.right
    if op in ("==", "!=") and any(isinstance(side, Extremum) for side in (left, right)):
        below, above = Relation("<=", left, right), Relation(">=", left, right)
        found = Every((below, above))
        return found if op == "==" else opposite(found)
    if op in (">", ">="):
        op, left, right = MIRRORED[op], right, left
    if op not in ("<", "<="):
        return relation
    if isinstance(right, Extremum):
        parts = tuple(Relation(op, left, each) for each in right.arguments)
        return Every(parts) if right.op == "min" else Some(parts)
    if isinstance(left, Extremum):
        parts = tuple(Relation(op, each, right) for each in left.arguments)
        return Every(parts) if left.op == "max" else Some(parts)
    return relation


def _bounds(variable: str, relation: Relation) -> Bounds | None:
    """Return a comparison as bounds of the variable."""
    op = relation.op
    form = form_of(_plain(difference(relation.left, relation.right), variable))
    with_it = [term for term in form.terms if variable in variables(term)]
    if len(with_it) != 1:
        return None
    (term,) = with_it
    factor = form.terms[term]
    rest = Form({t: n for t, n in form.terms.items() if t != term}, form.constant)
    if factor < 0:
        factor, rest, op = -factor, rest.times(-1), MIRRORED[op]
    # factor * term + rest op 0: the least and the greatest value of the term, the latter excluded.
    edge = index_of(rest.times(-1))
    lower: Index | None = None
    upper: Index | None = None
    if op in (">=", "=="):
        lower = quotient(total(edge, factor - 1), factor)
    if op == ">":
        lower = total(quotient(edge, factor), 1)
    if op in ("<=", "=="):
        upper = total(quotient(edge, factor), 1)
    if op == "<":
        upper = quotient(total(edge, factor - 1), factor)
    match term:
        case Var():
            return Bounds(
                () if lower is None else (lower,),
                () if upper is None else (upper,),
            )
        case Arith("//", inside, Int() | Param() as divisor):
            # inside // size >= lower is inside >= lower * size, and so for what is below.
            found = ALL
            signs: tuple[tuple[Comparison, Index | None], ...] = ((">=", lower), ("<", upper))
            for sign, end in signs:
                if end is None:
                    continue
                own = _bounds(variable, Relation(sign, inside, Arith("*", end, divisor)))
                if own is None:
                    return None
                found = joined(found, own)
            return found
        case _:
            return None


def _plain(index: Index, variable: str) -> Index:
    """Return an index expression with what integer scalars about a variable stand for."""
    if variable not in variables(index):
        return index
    if isinstance(index, Let):
        return _plain(index.value, variable)
    operands = children(index)
    return rebuild(index, tuple(_plain(each, variable) for each in operands)) if operands else index
