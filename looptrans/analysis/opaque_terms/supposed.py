"""The array elements a witness supposes: `n[0] = 1`, so that a person can replay it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import islpy as isl

from looptrans.analysis.isl_model.model import Model
from looptrans.analysis.isl_model.relation import Relation, Supposed
from looptrans.analysis.isl_model.witness import smallest_point
from looptrans.ir.index import Arith, Extremum, Index, Int, Neg, Opaque, Param, Var
from looptrans.ir.verdict import Assignment, Witness

MOST_CONTENTS = 6


def with_supposed_elements(model: Model, relation: Relation, witness: Witness) -> Witness | None:
    """Add to a witness the smallest contents of integer arrays under which it occurs.

    Returns:
        None where the contents found contradict each other: with many opaque terms not all that
        is known of them was used, and the pair may be one that cannot occur.
    """
    return next(with_some_elements(model, relation, witness), None)


def with_some_elements(model: Model, relation: Relation, witness: Witness) -> Iterator[Witness]:
    """Add to a witness contents of integer arrays, a few in turn, the smallest first.

    Each touches one cell twice; what else is written in between is not known of all.
    """
    for supposed in relation.supposed:
        points = supposed.points
        fixed = len(witness.source) + len(witness.sink)
        for _ in range(MOST_CONTENTS):
            values = _values(model, points, witness)
            if values is None:
                break
            elements = _elements(model, supposed, witness, values)
            if elements is not None:
                yield replace(witness, elements=elements)
            tried = points
            for number, value in enumerate(values, fixed):
                tried = tried.fix_val(isl.dim_type.set, number, isl.Val(value))
            points = points.subtract(tried)


def _values(model: Model, points: isl.Set, witness: Witness) -> list[int] | None:
    sizes = dict(witness.parameters)
    for number, name in enumerate(model.parameters):
        if name in sizes:
            points = points.fix_val(isl.dim_type.param, number, isl.Val(sizes[name]))
        elif name in model.sizes:
            points = points.lower_bound_val(isl.dim_type.param, number, isl.Val(0))
    fixed = [value for _, value in (*witness.source, *witness.sink)]
    for number, value in enumerate(fixed):
        points = points.fix_val(isl.dim_type.set, number, isl.Val(value))
    # Contents that are not negative read more naturally, where there are such.
    count = points.dim(isl.dim_type.set)
    names = ", ".join(f"x{number}" for number in range(count))
    hidden = " and ".join(f"x{number} >= 0" for number in range(len(fixed), count)) or "0 = 0"
    natural = points.intersect(isl.Set(f"{{ [{names}] : {hidden} }}"))
    is_natural = not natural.is_empty()
    signless = [name in model.sizes or sizes.get(name, -1) >= 0 for name in model.parameters]
    signless += [value >= 0 for value in fixed] + [is_natural] * (count - len(fixed))
    found = smallest_point(natural if is_natural else points, signless)
    if found is None:
        return None
    return found[points.dim(isl.dim_type.param) + len(fixed) :]


def _elements(
    model: Model, supposed: Supposed, witness: Witness, values: list[int]
) -> Assignment | None:
    sizes = dict(model.normalizer.sizes) | dict(witness.parameters)
    first = len(supposed.source_generators)
    second = first + len(supposed.source_terms)
    third = second + len(supposed.sink_generators)
    sides = (
        (witness.source, supposed.source_generators, values[:first]),
        (witness.sink, supposed.sink_generators, values[second:third]),
    )
    terms = (
        (supposed.source_terms, values[first:second]),
        (supposed.sink_terms, values[third:]),
    )
    # A term's arguments may hold terms of the same instance, so values are looked up by term.
    found: dict[str, int] = {}
    for (iteration, generators, bound), (own, contents) in zip(sides, terms, strict=True):
        variables = dict(iteration) | dict(zip(generators, bound, strict=True))
        known = dict(zip(own, contents, strict=True))
        for term, value in known.items():
            if term.array in model.normalizer.arithmetic:
                continue
            arguments = [_evaluate(a, variables, sizes, known) for a in term.arguments]
            if None not in arguments:
                name = f"{term.array}[{', '.join(str(a) for a in arguments)}]"
                if found.setdefault(name, value) != value:
                    return None
    return tuple(sorted(found.items()))


def _evaluate(
    index: Index, variables: dict[str, int], sizes: dict[str, int], known: dict[Opaque, int]
) -> int | None:
    """Return the value of an index expression; None where it needs a size that is not fixed."""
    match index:
        case Int(value):
            return value
        case Var(name):
            return variables.get(name)
        case Param(name):
            return sizes.get(name)
        case Opaque():
            return known.get(index)
        case Neg(operand):
            inner = _evaluate(operand, variables, sizes, known)
            return None if inner is None else -inner
        case Extremum(op, arguments):
            values = [_evaluate(a, variables, sizes, known) for a in arguments]
            present = [value for value in values if value is not None]
            if len(present) < len(values):
                return None
            return min(present) if op == "min" else max(present)
        case Arith(op, left, right):
            a = _evaluate(left, variables, sizes, known)
            b = _evaluate(right, variables, sizes, known)
            if a is None or b is None:
                return None
            match op:
                case "+":
                    return a + b
                case "-":
                    return a - b
                case "*":
                    return a * b
                case "//":
                    return a // b if b else None
                case _:
                    return a % b if b else None
        case _:
            return None
