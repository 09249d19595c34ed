"""Domains with opaque terms, as far as two of them can be compared.

A domain is a set of constraints. Those without opaque terms are an isl set, the *relaxed* domain.
The others are compared as they stand: a constraint of the one must be among those of the other, or
follow from one that is, by a difference that is not negative anywhere in the relaxed domain:

    j < n[b], j0 <= j   gives   j0 < n[b]

What declared ranges of values say of the others is among the constraints of the relaxed domain:

    j < n[b]   gives   j < N, where no element of n is above N
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from looptrans.analysis.isl_model.constraints import constraints, has_terms, plain_constraints
from looptrans.analysis.isl_model.formula import conjunction
from looptrans.analysis.isl_model.linear import Linear, linear, summed
from looptrans.analysis.isl_model.model import Model, StatementModel
from looptrans.analysis.isl_model.polyhedra import dimensions
from looptrans.ir.affine import product, total
from looptrans.ir.condition import Condition, Relation, compared, walk_condition
from looptrans.ir.index import Index, Int, Opaque, Param, Var, opaque_terms


@dataclass(frozen=True, slots=True)
class Bounded:
    """A constraint with opaque terms: a sum that is at least 0, or (`exact`) equal to 0.

    Attributes:
        sum: The sum.
        kind: `>=`, `==` or `!=`; or the text of a condition that is none of these.
    """

    sum: Linear
    kind: str


def relaxed_formula(model: Model, statement: StatementModel, letter: str) -> str:
    """Say which instances a statement has, as far as no opaque term decides it."""
    notation = model.notation(dimensions(statement, letter))
    found = [*plain_constraints(statement)]
    found += [loose for each in constraints(statement) if (loose := _loosened(model, each))]
    return conjunction(notation.condition(each) for each in found)


def _loosened(model: Model, condition: Condition) -> Condition | None:
    """Return what a constraint says for some values of its opaque terms within declared ranges."""
    ordered = isinstance(condition, Relation) and condition.op in ("<", "<=", ">", ">=")
    if not ordered or not model.value_ranges or not has_terms(condition):
        return None
    assert isinstance(condition, Relation)
    constant, terms = _bounded(model, condition, {}).sum
    parts: list[Index] = []
    for term, count in sorted(terms, key=repr):
        end = term
        if isinstance(term, Opaque) and term.array in model.value_ranges:
            low, high = model.value_ranges[term.array]
            end = total(high, -1) if count > 0 else low
        if opaque_terms(end):
            return None
        parts.append(product(count, end))
    return Relation(">=", total(constant, *parts), Int(0))


def opaque_constraints(
    model: Model, statement: StatementModel, values: Mapping[str, Index]
) -> dict[Bounded, None]:
    """Return the constraints with opaque terms, over what the variables stand for."""
    found: dict[Bounded, None] = {}
    for condition in constraints(statement):
        if not has_terms(condition):
            continue
        if isinstance(condition, Relation):
            found[_bounded(model, condition, values)] = None
        else:
            sides = [_rank(linear(side, model.normalizer, values)) for side in compared(condition)]
            shape = [
                part.op if isinstance(part, Relation) else type(part).__name__
                for part in walk_condition(condition)
            ]
            found[Bounded((0, frozenset()), repr((shape, sides)))] = None
    return found


def _bounded(model: Model, relation: Relation, values: Mapping[str, Index]) -> Bounded:
    def side(index: Index) -> Linear:
        return linear(index, model.normalizer, values)

    left, right = side(relation.left), side(relation.right)
    match relation.op:
        case "<":
            return Bounded(summed(right, left, -1, -1), ">=")
        case "<=":
            return Bounded(summed(right, left, -1, 0), ">=")
        case ">":
            return Bounded(summed(left, right, -1, -1), ">=")
        case ">=":
            return Bounded(summed(left, right, -1, 0), ">=")
        case op:
            forward, back = summed(left, right, -1, 0), summed(right, left, -1, 0)
            return Bounded(min(forward, back, key=_rank), op)


def _rank(sum_: Linear) -> tuple[int, list[str]]:
    return sum_[0], sorted(map(repr, sum_[1]))


def follow(
    wanted: dict[Bounded, None],
    given: dict[Bounded, None],
    model: Model,
    statement: StatementModel,
) -> bool:
    """Tell whether constraints are among others, or follow from one of them.

    Args:
        wanted: The constraints, over the variables of a statement.
        given: The others, over the same.
        model: The program the statement is of.
        statement: The statement, in whose relaxed domain they are compared.
    """
    return all(
        each in given or any(_implied(each, other, model, statement) for other in given)
        for each in wanted
    )


def _implied(wanted: Bounded, given: Bounded, model: Model, statement: StatementModel) -> bool:
    if wanted.kind != ">=" or given.kind != ">=":
        return False
    more = _text(summed(wanted.sum, given.sum, -1, 0), model, statement)
    if more is None:
        return False
    formula = conjunction([relaxed_formula(model, statement, "i"), f"{more} < 0"])
    dims = ", ".join(dimensions(statement).values())
    return bool(isl.Set(f"{model.prefix}{{ [{dims}] : {formula} }}").is_empty())


def _text(sum_: Linear, model: Model, statement: StatementModel) -> str | None:
    """Write a sum of variables and parameters; None where anything else is in it."""
    names = dimensions(statement)
    parts = [str(sum_[0])]
    for term, count in sorted(sum_[1], key=repr):
        known = names if isinstance(term, Var) else model.parameters
        if not isinstance(term, Var | Param) or term.name not in known:
            return None
        parts.append(f"{count}*{known[term.name]}")
    return " + ".join(parts)
