"""What must hold of an instance of a statement, one comparison at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from looptrans.ir.condition import Comparison, Condition, Every, Relation, walk_condition
from looptrans.ir.index import Arith, Extremum, Int, Opaque, Var, walk

if TYPE_CHECKING:
    from looptrans.analysis.model import StatementModel


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
    parts = statement.condition.parts if isinstance(statement.condition, Every) else ()
    for condition in parts or (statement.condition,):
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


def has_terms(condition: Condition) -> bool:
    """Tell whether a condition compares something with opaque terms."""
    return any(
        isinstance(node, Opaque)
        for part in walk_condition(condition)
        if isinstance(part, Relation)
        for side in (part.left, part.right)
        for node in walk(side)
    )


def plain_constraints(statement: StatementModel) -> Iterator[Condition]:
    """Yield the constraints of a domain without opaque terms."""
    return (c for c in constraints(statement) if not has_terms(c))
