"""Which comparisons of index expressions can hold together.

16 * (j // 16) > i and j <= i     cannot: 16 * (j // 16) is never more than j
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from looptrans.algebra.normal_forms.ordering import Inequality, can_hold
from looptrans.ir.affine import Form, extremum, form_of, sides
from looptrans.ir.condition import NEGATED, Relation, conjuncts
from looptrans.ir.index import Arith, Index, Int, Var, walk
from looptrans.ir.program import If, Loop, Program
from looptrans.ir.value import Range
from looptrans.transforms.editing.tree import Position, loops_around, node_at, replace_at


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


def with_fewer_ends(program: Program, place: Position) -> Program:
    """Leave out ends of a loop beyond which its guard lets nothing through anyway.

    Args:
        program: The program.
        place: Where the loop stands.
    """
    loop = node_at(program, place)
    match loop:
        case Loop(variable, bounds, (If(condition, _, ()),)) if bounds.step == 1:
            pass
        case _:
            return program
    given = [(part, True) for part in conjuncts(condition) if isinstance(part, Relation)]
    for around in loops_around(program, place):
        here, ends = Var(around.variable), around.loop.range
        if ends.step > 0:
            given.append((Relation(">=", here, ends.start), True))
            given += [(Relation("<", here, end), True) for end in sides("min", ends.stop)]
    kept = list(sides("min", bounds.stop))
    for end in tuple(kept):
        beyond = (Relation(">=", Var(variable), end), True)
        if len(kept) > 1 and not can_all_be([*given, beyond]):
            kept.remove(end)
    stop = extremum("min", kept)
    return replace_at(program, place, (replace(loop, range=Range(bounds.start, stop)),))
