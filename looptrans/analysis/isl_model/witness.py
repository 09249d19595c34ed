"""The smallest example of a relation: sizes first, then the source, then the sink.

Parameters come in order of first appearance and loop variables outermost first; of each the
smallest absolute value is taken, and of two equal ones the positive.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import chain, islice, product

import islpy as isl

from looptrans.analysis.isl_model.model import Bound, Model, StatementModel
from looptrans.analysis.isl_model.normal import not_negative
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import Int, parameters
from looptrans.ir.verdict import Witness, WitnessKind

_PARAM = isl.dim_type.param
_SET = isl.dim_type.set
TRIED_SIZES = range(1, 5)
LARGER_SIZES = (1, 8, 64, 512)
MOST_TRIED = 1024


def smallest_pair(
    model: Model,
    source: StatementModel,
    sink: StatementModel,
    pairs: isl.Map,
    context: isl.Set,
    kind: WitnessKind = "order",
) -> Witness | None:
    """Return the smallest pair of a relation, or None where it is empty.

    Args:
        model: The program.
        source: The statement of the relation's domain.
        sink: The statement of its range.
        pairs: Source instances to sink instances.
        context: What is known of the parameters.
        kind: What the witness shows.
    """
    names = list(model.parameters)
    involved = model.mentioned[source.number] | model.mentioned[sink.number]
    more = [n for n, name in enumerate(names) if name not in involved]
    if any(pairs.involves_dims(_PARAM, number, 1) for number in more):
        # What another statement writes in between can depend on further sizes.
        bare = pairs.gist_params(context)
        involved |= {names[n] for n in more if bare.involves_dims(_PARAM, n, 1)}
    made = model.normalizer.made
    for name in [name for name in reversed(made) if name in involved]:
        involved |= set(parameters(made[name]))
    flat = pairs.intersect_params(context).wrap().flatten()
    signless = [name in model.sizes for name in names]
    signless += signless_dimensions(model, source) + signless_dimensions(model, sink)
    key = (tuple(signless), flat)
    if key not in model.smallest:
        model.smallest[key] = smallest_instance(model, flat, signless)
    values = model.smallest[key]
    if values is None:
        return None
    first, second = len(names), len(names) + source.depth
    sizes = tuple(
        (name, value) for name, value in zip(names, values[:first], strict=True) if name in involved
    )
    return Witness(
        kind,
        sizes,
        _assignment(source, values[first:second]),
        _assignment(sink, values[second:]),
    )


def _assignment(statement: StatementModel, values: list[int]) -> tuple[tuple[str, int], ...]:
    variables = [bound.variable for bound in statement.bounds]
    return tuple(zip(variables, values, strict=True))


def smallest_instance(model: Model, points: isl.Set, signless: list[bool]) -> list[int] | None:
    """Return the smallest point at which products of parameters are what they say they are.

    Args:
        model: The program.
        points: A set over the program's parameters.
        signless: For every parameter and dimension, whether it is known not to be negative.
    """
    places = {name: number for number, name in enumerate(model.parameters)}
    made = {name: index for name, index in model.normalizer.made.items() if name in places}
    if not any(points.involves_dims(_PARAM, places[name], 1) for name in made):
        return smallest_point(points, signless)
    inside = {name for index in made.values() for name in parameters(index)}
    own = [name for name in places if name in inside and name not in made]
    tried = (
        islice(product(sizes, repeat=len(own)), MOST_TRIED) for sizes in (TRIED_SIZES, LARGER_SIZES)
    )
    for values in chain.from_iterable(tried):
        sizes = dict(zip(own, values, strict=True))
        for name, index in made.items():
            value = evaluate(index, sizes)
            if value is not None:
                sizes[name] = value
        if any(name not in sizes for name in made):
            continue
        fixed = points
        for name, value in sizes.items():
            fixed = fixed.fix_val(_PARAM, places[name], isl.Val(value))
        if not fixed.is_empty():
            return smallest_point(fixed, signless)
    return None


def smallest_point(points: isl.Set, signless: list[bool]) -> list[int] | None:
    """Return the smallest point of a set, its parameters counted as leading dimensions.

    Args:
        points: The set.
        signless: For every parameter and dimension, whether it is known not to be negative.
    """
    whole = points.move_dims(_SET, 0, _PARAM, 0, points.dim(_PARAM)).reset_tuple_id()
    # One convex part at a time: the smallest of them all is then a comparison of numbers.
    parts = whole.compute_divs().get_basic_set_list()
    best: list[int] | None = None
    for number in range(parts.n_basic_set()):
        part = isl.Set.from_basic_set(parts.get_at(number))
        found = _smallest_of_part(part, signless, best)
        best = best if found is None else found
    return best


def _smallest_of_part(
    points: isl.Set, signless: list[bool], best: list[int] | None
) -> list[int] | None:
    """Return the smallest point of a convex set, unless the best so far comes before it.

    One dimension at a time: isl's own search for the whole point takes minutes on some sets with
    strides and floor divisions, finds none in others, and gives up on others still.
    """
    values: list[int] = []
    points = points.detect_equalities()
    if points.is_empty():
        return None
    for number, known in enumerate(signless):
        value = points.plain_get_val_if_fixed(_SET, number)
        is_fixed = not value.is_nan()
        if not is_fixed:
            value = points.dim_min_val(number) if known else _nearest_to_zero(points, number)
        values.append(int(value.to_python()))
        if best is not None and _rank(values) > _rank(best[: number + 1]):
            return None
        if is_fixed:
            continue
        points = points.fix_val(_SET, number, value).detect_equalities()
        if points.is_empty():
            return None
    return values


def _nearest_to_zero(points: isl.Set, number: int) -> isl.Val:
    """Return the value of a dimension that is the smallest in size, of two the positive one."""
    lowest = points.dim_min_val(number)
    if not lowest.is_neg():
        return lowest
    found = []
    positive = points.lower_bound_val(_SET, number, isl.Val(0))
    if not positive.is_empty():
        found.append(positive.dim_min_val(number))
    negative = points.upper_bound_val(_SET, number, isl.Val(-1))
    if not (found and found[0].is_zero()) and not negative.is_empty():
        found.append(negative.dim_max_val(number))
    return min(found, key=lambda value: (value.abs().to_python(), value.is_neg()))


def _rank(values: list[int]) -> list[tuple[int, bool]]:
    return [(abs(value), value < 0) for value in values]


def signless_dimensions(model: Model, statement: StatementModel) -> list[bool]:
    """Tell of each loop variable of a statement whether it is plainly not negative."""
    known: set[str] = set()
    found = []
    for bound in statement.bounds:
        sure = _counts_from_zero(bound, known, model.sizes)
        if sure:
            known.add(bound.variable)
        found.append(sure)
    return found


def _counts_from_zero(bound: Bound, variables: set[str], sizes: Container[str]) -> bool:
    limits = bound.range
    if limits.step > 0:
        return not_negative(limits.start, variables, sizes)
    stop = limits.stop
    return (isinstance(stop, Int) and stop.value >= -1) or not_negative(stop, variables, sizes)
