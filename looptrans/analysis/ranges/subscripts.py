"""Subscripts that may be negative, each with the smallest iteration at which one is.

NumPy would count from the end of the array there; in a listing a subscript means itself, and the
executor stops. Parameters are taken as not negative: an offset of unknown sign is no mistake.
"""

from __future__ import annotations

from itertools import islice

import islpy as isl

from looptrans.analysis.isl_model.formula import conjunction
from looptrans.analysis.isl_model.model import AccessModel, Model
from looptrans.analysis.isl_model.normal import not_negative
from looptrans.analysis.isl_model.polyhedra import dimensions, domain_formula
from looptrans.analysis.isl_model.witness import signless_dimensions, smallest_instance
from looptrans.ir.index import Index, opaque_terms
from looptrans.ir.listing import index_text
from looptrans.ir.value import Whole

MOST_SHOWN = 10


def negative_subscripts(model: Model) -> tuple[str, ...]:
    """Return a sentence for each access that may have a negative subscript."""
    found: dict[str, None] = {}
    in_digits = {layout.array for layout in model.layouts}
    for access in model.accesses:
        if access.array in in_digits:
            continue
        for number, subscript in enumerate(access.subscripts[access.private :]):
            if not isinstance(subscript, Whole):
                sentence = _sentence(model, access, number, subscript)
                if sentence is not None:
                    found[sentence] = None
    more = len(found) - MOST_SHOWN
    if more > 0:
        return (*islice(found, MOST_SHOWN), f"{more} more subscripts may be negative")
    return tuple(found)


def _sentence(model: Model, access: AccessModel, number: int, subscript: Index) -> str | None:
    statement = access.statement
    if opaque_terms(subscript) or statement.terms or access.terms:
        return None
    known = signless_dimensions(model, statement)
    sure = {b.variable for b, positive in zip(statement.bounds, known, strict=True) if positive}
    if not_negative(subscript, sure, set(model.parameters)):
        return None
    names = dimensions(statement)
    bound = {g.variable: f"g{place}" for place, g in enumerate(access.generators)}
    notation = model.notation(names | bound)
    formula = conjunction(
        [
            domain_formula(model, statement),
            *(notation.bounds(bound[g.variable], g.range) for g in access.generators),
            notation.condition(access.condition),
            f"{notation.index(subscript)} < 0",
            *(f"{name} >= 0" for name in model.parameters.values()),
            model.context,
        ]
    )
    dims = [*names.values(), *bound.values()]
    points = isl.Set(f"{model.prefix}{{ [{', '.join(dims)}] : {formula} }}")
    if points.is_empty():
        return None
    signless = [True] * len(model.parameters) + known + [False] * len(bound)
    values = smallest_instance(model, points, signless)
    if values is None:
        return None
    variables = [*model.parameters, *(b.variable for b in statement.bounds), *bound]
    shown = " ".join(
        f"{name}={value}"
        for name, value in zip(variables, values, strict=True)
        if name not in model.normalizer.made
    )
    return (
        f"subscript {number + 1} of {access.array} in {statement.label}, {index_text(subscript)}, "
        f"may be negative, for example {shown}; NumPy would count from the end"
    )
