"""The iterations of statements at given sizes, one by one."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from looptrans.analysis.isl_model.formula import conjunction
from looptrans.analysis.isl_model.model import Contents, Model, StatementModel, build_model
from looptrans.analysis.isl_model.polyhedra import dimensions, domain_formula
from looptrans.analysis.opaque_terms.axioms import Known, Term, axioms_of
from looptrans.ir.program import Program

BEYOND = 8


def points_of(
    program: Program, at: Mapping[str, int], contents: Contents | None = None
) -> dict[str, list[tuple[int, ...]]]:
    """Return the iterations of every statement, by label, in lexicographic order.

    Where the contents of an integer array decide and are not given, the iterations that some
    contents allow are listed, as far as the sizes reach.

    Args:
        program: The program.
        at: A value for every integer parameter.
        contents: Contents of integer arrays, cell by cell.
    """
    model = build_model(program, at, contents=contents)
    return {s.label: enumerated(_points(model, s), at) for s in model.statements}


def _points(model: Model, statement: StatementModel) -> isl.Set:
    names = dimensions(statement)
    values = {term: f"x{number}" for number, term in enumerate(statement.terms)}
    notation = model.notation(names, values)
    terms = [
        Term(term.array, tuple(notation.index(a) for a in term.arguments), value, term)
        for term, value in values.items()
    ]
    dims = (*names.values(), *values.values())
    formula = conjunction(
        [domain_formula(model, statement, terms=values), axioms_of(model).about(terms, Known(dims))]
    )
    points = isl.Set(f"{model.prefix}{{ [{', '.join(dims)}] : {formula} }}")
    return points.project_out(isl.dim_type.set, statement.depth, len(values))


def enumerated(points: isl.Set, at: Mapping[str, int]) -> list[tuple[int, ...]]:
    """List the points of a set whose parameters are fixed, in lexicographic order.

    Where array contents that are not given set no bound, the points are kept within a box that
    reaches somewhat beyond the sizes.

    Args:
        points: The set.
        at: The sizes it was made for.
    """
    count = points.dim(isl.dim_type.set)
    if not points.is_bounded():
        limit = max([0, *at.values()]) + BEYOND
        for number in range(count):
            points = points.lower_bound_val(isl.dim_type.set, number, isl.Val(-limit))
            points = points.upper_bound_val(isl.dim_type.set, number, isl.Val(limit))
    found: list[tuple[int, ...]] = []

    def keep(point: isl.Point) -> None:
        value = point.get_coordinate_val
        found.append(tuple([value(isl.dim_type.set, n).get_num_si() for n in range(count)]))

    points.foreach_point(keep)
    return sorted(found)
