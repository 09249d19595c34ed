"""Which comparisons of index expressions can hold together.

16 * (j // 16) > i and j <= i     cannot: 16 * (j // 16) is never more than j
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from looptrans.algebra.ordering import Inequality, can_hold
from looptrans.ir.affine import Form, form_of
from looptrans.ir.condition import NEGATED, Relation
from looptrans.ir.index import Arith, Index, Int, walk


def can_all_be(relations: Iterable[tuple[Relation, bool]]) -> bool:
    """Tell whether some comparisons may hold, and others not; False is certain.

    Args:
        relations: Comparisons, each with whether it holds.
    """
    known: list[Inequality] = []
    parts: dict[Index, None] = {}
    for relation, holds in relations:
        op = relation.op if holds else NEGATED[relation.op]
        gap = form_of(relation.left).plus(form_of(relation.right), -1)
        known += {
            "<": [_at_least(gap.times(-1), 1)],
            "<=": [_at_least(gap.times(-1), 0)],
            ">": [_at_least(gap, 1)],
            ">=": [_at_least(gap, 0)],
            "==": [_at_least(gap, 0), _at_least(gap.times(-1), 0)],
            "!=": [],
        }[op]
        parts |= dict.fromkeys(part for term in gap.terms for part in walk(term))
    for part in parts:
        match part:
            case Arith("//", left, Int(size)) if size > 0:
                rest = form_of(left).plus(form_of(part).times(size), -1)
                known += [_at_least(rest, 0), _at_least(rest.times(-1), 1 - size)]
            case _:
                pass
    return can_hold(known)


def _at_least(form: Form, least: int) -> Inequality:
    terms = tuple((str(term), Fraction(count)) for term, count in form.terms.items())
    return Inequality(terms, Fraction(form.constant - least), strict=False)
