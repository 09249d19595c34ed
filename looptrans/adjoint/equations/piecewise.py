"""Subscripts that are the smaller or larger of several, one by one.

    T[min(max(j - i, -R), R) + R]      T[j - i + R] where -R <= j - i <= R
                                       T[0]         where j - i < -R
                                       T[2 * R]     where j - i > R

Each can be solved for the loops' variables: a diagonal for each cell of the first kind, and two
cells that all the rest goes to. As they stand, all iterations would be asked of every cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.equations.solving import replacing
from looptrans.ir.affine import Form, form_of, index_of, is_same, simplified
from looptrans.ir.condition import MIRRORED, Comparison, Condition, Relation
from looptrans.ir.index import Extremum, Index, children, opaque_terms, variables

_MOST = 9
"""How many pieces there are at most: three of each of two subscripts."""

Piece = tuple[tuple[Index, ...], tuple[Condition, ...]]
"""Subscripts, and when they are those of a cell."""


def pieces(subscripts: tuple[Index, ...], facts: Facts) -> list[Piece]:
    """Return what subscripts are, and when: one of the pieces holds in every iteration.

    Args:
        subscripts: Those of a cell.
        facts: What holds where it is read.

    Returns:
        The pieces that may hold; the subscripts as they stand, where there would be too many.
    """
    if not any(_is_chosen(index) for index in subscripts):
        return [(subscripts, ())]
    found = list(_pieces(subscripts, (), facts))
    return found if len(found) <= _MOST else [(subscripts, ())]


def _is_chosen(index: Index) -> bool:
    """Tell whether loops choose which argument of an extremum in an index is the index."""
    if isinstance(index, Extremum) and variables(index):
        return True
    return any(map(_is_chosen, children(index)))


def _pieces(
    subscripts: tuple[Index, ...], conditions: tuple[Condition, ...], facts: Facts
) -> Iterator[Piece]:
    extremum = next(filter(None, map(_innermost, subscripts)), None)
    if extremum is None:
        yield subscripts, conditions
        return
    arguments: list[Index] = []
    for argument in extremum.arguments:
        if not any(is_same(argument, other) for other in arguments):
            arguments.append(argument)
    for number, chosen in enumerate(arguments):
        asked = _all_hold(conditions, _attains(extremum.op, arguments, number), facts)
        if asked is not None:
            change = replacing(extremum, chosen)
            moved = tuple(simplified(change(index)) for index in subscripts)
            yield from _pieces(moved, asked, facts)


def _all_hold(
    conditions: tuple[Condition, ...], more: Iterator[Condition], facts: Facts
) -> tuple[Condition, ...] | None:
    """Return conditions of which none follows from the others; None where some cannot hold."""
    found = conditions
    for condition in more:
        known = facts.and_(*found)
        if known.refute(condition):
            return None
        if not known.imply(condition):
            found = (*(c for c in found if not facts.and_(condition).imply(c)), condition)
    return found


def _innermost(index: Index) -> Extremum | None:
    """Return an extremum in which there is none, and no element of an array."""
    for part in children(index):
        found = _innermost(part)
        if found is not None:
            return found
    return index if isinstance(index, Extremum) and not opaque_terms(index) else None


def _attains(which: str, arguments: list[Index], number: int) -> Iterator[Condition]:
    """Yield when an argument is the first that is as small (large) as all of them, none twice."""
    for place, other in enumerate(arguments):
        if place != number:
            op: Comparison = "<" if which == "min" else ">"
            apart = form_of(arguments[number]).plus(form_of(other), -1)
            common = gcd(apart.constant, *apart.terms.values())
            least = Form({t: n // common for t, n in apart.terms.items()}, apart.constant // common)
            moving = Form({t: n for t, n in least.terms.items() if variables(t)})
            if place > number:
                op = "<=" if op == "<" else ">="
            end = moving.plus(least, -1)
            if end.terms and all(n < 0 for n in end.terms.values()):
                op, moving, end = MIRRORED[op], moving.times(-1), end.times(-1)
            yield Relation(op, index_of(moving), index_of(end))
