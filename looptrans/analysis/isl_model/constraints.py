"""What must hold of an instance of a statement, one comparison at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from looptrans.ir.condition import (
    Comparison,
    Condition,
    Relation,
    Truth,
    approximated,
    compared,
    conjuncts,
)
from looptrans.ir.index import Arith, Extremum, Int, Opaque, Var, opaque_terms, walk
from looptrans.ir.value import Whole

if TYPE_CHECKING:
    from looptrans.analysis.isl_model.model import AccessModel, StatementModel


def constraints(statement: StatementModel) -> Iterator[Condition]:
    """Yield what must hold of an instance, one comparison at a time where that is possible."""
    for bound in statement.bounds:
        variable, limits = Var(bound.variable), bound.range
        ends: tuple[Comparison, Comparison] = (">=", "<") if limits.step > 0 else ("<=", ">")
        yield from split(Relation(ends[0], variable, limits.start))
        yield from split(Relation(ends[1], variable, limits.stop))
        if abs(limits.step) != 1:
            steps = Arith("%", Arith("-", variable, limits.start), Int(abs(limits.step)))
            yield Relation("==", steps, Int(0))
    for condition in conjuncts(statement.condition):
        yield from split(condition)


def split(condition: Condition) -> Iterator[Condition]:
    """Take a comparison with a minimum or maximum apart where each of its arguments must hold."""
    match condition:
        case Relation("<" | "<=" as op, left, Extremum("min", arguments)):
            for argument in arguments:
                yield from split(Relation(op, left, argument))
        case Relation(">" | ">=" as op, left, Extremum("max", arguments)):
            for argument in arguments:
                yield from split(Relation(op, left, argument))
        case _:
            yield condition


def whatever_the_data(access: AccessModel) -> AccessModel | None:
    """Return the part of an access that no data decide; None if there is none.

    if j == 0 or x[j] > 0.0: B[j] = …        ->        if j == 0: B[j] = …
    """
    return restricted(access, access.statement.sure, access.sure)


def whatever_the_contents(access: AccessModel) -> AccessModel | None:
    """Return the part of an access that no opaque term decides; None if there is none.

    if c > 1 or n[r] == c: B[c] = …        ->        if c > 1: B[c] = …
    """
    loops = [bound.range for bound in (*access.statement.bounds, *access.generators)]
    places = [s for s in access.subscripts if not isinstance(s, Whole)]
    if any(map(opaque_terms, (*places, *(e for each in loops for e in each.ends)))):
        return None
    own, mine = (
        approximated(condition, over=False, unknown=has_terms)
        for condition in (access.statement.condition, access.condition)
    )
    found = restricted(access, own, mine)
    return found and replace(found, statement=replace(found.statement, terms=()), terms=())


def restricted(access: AccessModel, own: Condition, mine: Condition) -> AccessModel | None:
    """Return an access under conditions that data do not decide; None if they never hold.

    Args:
        access: The access.
        own: The condition of its statement.
        mine: Its own.
    """
    if any(Truth(False) in conjuncts(condition) for condition in (own, mine)):
        return None
    statement = replace(access.statement, condition=own, is_may=False)
    return replace(access, statement=statement, condition=mine, is_may=False)


def has_terms(condition: Condition) -> bool:
    """Tell whether a condition compares something with opaque terms."""
    return any(isinstance(node, Opaque) for side in compared(condition) for node in walk(side))


def plain_constraints(statement: StatementModel) -> Iterator[Condition]:
    """Yield the constraints of a domain without opaque terms."""
    return (c for c in constraints(statement) if not has_terms(c))
