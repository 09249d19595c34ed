"""Which instances of the program after a step stand for which before it, as isl relations.

The instance map of a step says it with index expressions; here it is checked that it is one: every
instance of `before` is there once, nothing was made up, and each statement, read through the map,
is the statement it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import islpy as isl

from looptrans.analysis.isl_model.digits import Layout, Unit
from looptrans.analysis.isl_model.formula import conjunction
from looptrans.analysis.isl_model.linear import linear
from looptrans.analysis.isl_model.model import AccessModel, Model, StatementModel, build_model
from looptrans.analysis.isl_model.polyhedra import context_set
from looptrans.analysis.legality.same import Differs, Equal, needed
from looptrans.analysis.opaque_terms.opaque_domains import (
    follow,
    opaque_constraints,
    relaxed_formula,
)
from looptrans.ir.index import Index, Let, Opaque, Param, Var, walk
from looptrans.ir.program import Assign, If, Program
from looptrans.ir.step import Images
from looptrans.ir.value import Read


class NotAStep(Exception):
    """The map does not relate the two programs; the message says which instance or statement."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A statement of `after` and the one of `before` that it stands for.

    Attributes:
        after: The statement afterwards.
        before: The statement it stands for.
        instances: Instances afterwards to the instances they stand for; constraints with opaque
            terms are left out.
        values: What the variables of `before` are over those of `after`, where they are anything.
    """

    after: StatementModel
    before: StatementModel
    instances: isl.Map
    values: Mapping[str, Index]


@dataclass(slots=True)
class Correspondence:
    """Two programs in normal form over the same parameters, and the instance map between them.

    Attributes:
        before: The program before the step.
        after: The program afterwards.
        context: What is known of the parameters.
        pairs: The statements that stand for one another, in the order of `after`.
        removed: The copies of `before` that are gone.
        added: The copies of `after` that are new.
        is_affine: Whether no access or domain has an opaque term.
        created: Whether arrays of other names may have the same first values.
        moved: The labels of the statements of `before` of which two may have changed their order;
            None for all.
        swapped: By two statements of `before`, what `legality.reversals` has found.
    """

    before: Model
    after: Model
    context: isl.Set
    pairs: list[Pair] = field(default_factory=list)
    removed: list[StatementModel] = field(default_factory=list)
    added: list[StatementModel] = field(default_factory=list)
    is_affine: bool = True
    created: bool = False
    moved: frozenset[str] | None = None
    swapped: dict[tuple[int, int], isl.Map] = field(default_factory=dict)

    def of_before(self, number: int) -> list[Pair]:
        """Return the pairs of a statement of `before`."""
        return [pair for pair in self.pairs if pair.before.number == number]

    def of_after(self, number: int) -> Pair | None:
        """Return the pair of a statement of `after`; None for a copy that was put in."""
        return next((pair for pair in self.pairs if pair.after.number == number), None)


def correspondence(
    before: Program,
    after: Program,
    images: Images,
    *,
    created: bool = False,
    new: frozenset[str] = frozenset(),
    sizes: Mapping[str, int] | None = None,
    moved: frozenset[str] | None = None,
) -> Correspondence:
    """Bring two programs into one form, over the same parameters, and relate their statements.

    Args:
        before: The program before the step.
        after: The program afterwards.
        images: What stands for what.
        created: Whether arrays of other names may have the same first values.
        new: Arrays that statements of `after` may write which stand for nothing and are no copies.
        sizes: Parameters that have a value.
        moved: The labels of the statements of `before` of which two may have changed their order,
            by default of all.

    Raises:
        NotAStep: A statement has no counterpart and is no mere copy, or stands for one that does
            not exist.
    """
    first, second = _models(before, after, sizes)
    ways = [{(each.array, each.dimension): each for each in m.layouts} for m in (first, second)]
    shared = {array.name for array in before.arrays} & {array.name for array in after.arrays}
    unlike = frozenset(
        array
        for array, dimension in ways[0].keys() | ways[1].keys()
        if array in shared
        and _units(ways[0].get((array, dimension))) != _units(ways[1].get((array, dimension)))
    )
    if unlike:
        first, second = _models(before, after, sizes, unlike)
    first.normalizer.made |= second.normalizer.made
    second.normalizer.made |= first.normalizer.made
    context = context_set(first).intersect(context_set(second))
    made = Correspondence(first, second, context, created=created, moved=moved)
    made.is_affine = not any(a.all_terms for m in (first, second) for a in m.accesses) and not any(
        s.terms for m in (first, second) for s in m.statements
    )
    _relate(made, images, new)
    return made


def _models(
    before: Program,
    after: Program,
    sizes: Mapping[str, int] | None,
    written: frozenset[str] = frozenset(),
) -> tuple[Model, Model]:
    """Bring two programs into normal forms with the same parameters."""
    first = build_model(before, sizes, written=written)
    second = build_model(after, sizes, parameters=tuple(first.parameters), written=written)
    if tuple(first.parameters) != tuple(second.parameters):
        names = tuple(second.parameters)
        first = build_model(before, sizes, parameters=names, written=written)
    return first, second


def _units(layout: Layout | None) -> tuple[Unit, ...]:
    return () if layout is None else layout.units


def _relate(made: Correspondence, images: Images, new: frozenset[str]) -> None:
    unknown = set(images) - {statement.label for statement in made.after.statements}
    if unknown:
        raise NotAStep(f"there is no {', '.join(sorted(unknown))} afterwards")
    earlier = {statement.label: statement for statement in made.before.statements}
    for statement in made.after.statements:
        if statement.label not in images:
            node = statement.place.node
            writes_new = isinstance(node, Assign) and {t.array for t in node.targets} <= new
            if is_copy(statement, made.after):
                made.added.append(statement)
            elif not writes_new:
                raise NotAStep(f"{statement.label} is new and computes something")
            continue
        image = images[statement.label]
        if image.statement not in earlier:
            raise NotAStep(f"{statement.label} stands for {image.statement}, which there is not")
        source = earlier[image.statement]
        if len(image.indices) != source.depth:
            raise NotAStep(f"{statement.label} does not name an iteration of {source.label}")
        made.pairs.append(_pair(made, statement, source, image.indices))
    for source in made.before.statements:
        if not made.of_before(source.number):
            if not is_copy(source, made.before):
                raise NotAStep(f"{source.label} is gone")
            made.removed.append(source)


def _pair(
    made: Correspondence,
    statement: StatementModel,
    source: StatementModel,
    indices: tuple[Index | None, ...],
) -> Pair:
    normal = made.after.normalizer
    own = {bound.variable for bound in statement.bounds}
    for index in indices:
        for node in walk(normal.index(index)) if index is not None else ():
            is_loop = isinstance(node, Var) and node.name in own
            is_size = isinstance(node, Param) and node.name in made.after.parameters
            if isinstance(node, Var | Param | Opaque) and not (is_loop or is_size):
                raise NotAStep(f"what {statement.label} stands for is no iteration")
    values = {
        bound.variable: normal.index(index)
        for bound, index in zip(source.bounds, indices, strict=True)
        if index is not None
    }
    return Pair(statement, source, _instances(made, statement, source, indices), values)


def _instances(
    made: Correspondence,
    statement: StatementModel,
    source: StatementModel,
    indices: tuple[Index | None, ...],
) -> isl.Map:
    after, before = made.after, made.before
    names = {bound.variable: f"j{level}" for level, bound in enumerate(statement.bounds)}
    notation = after.notation(names)
    formula = [relaxed_formula(after, statement, "j"), relaxed_formula(before, source, "i")]
    for level, index in enumerate(indices):
        if index is not None:
            formula.append(f"i{level} = {notation.index(after.normalizer.index(index))}")
    left = ", ".join(f"j{level}" for level in range(statement.depth))
    right = ", ".join(f"i{level}" for level in range(source.depth))
    ends = f"t{statement.number}[{left}] -> s{source.number}[{right}]"
    return isl.Map(f"{after.prefix}{{ {ends} : {conjunction(formula)} }}")


def domain(model: Model, statement: StatementModel, letter: str) -> isl.Set:
    """Return the instances of a statement, as a set whose tuple is called after `letter`.

    Constraints with opaque terms are left out.
    """
    dims = ", ".join(f"i{level}" for level in range(statement.depth))
    formula = relaxed_formula(model, statement, "i")
    return isl.Set(f"{model.prefix}{{ {letter}{statement.number}[{dims}] : {formula} }}")


def is_copy(statement: StatementModel, model: Model) -> bool:
    """Tell whether a statement only copies a value of one kind from one place to another."""
    node = statement.place.node
    if not isinstance(node, Assign) or len(node.targets) != 1 or statement.is_may:
        return False
    value, target = node.values[0], node.targets[0]
    if not isinstance(value, Read) or value.access.rank != target.rank:
        return False
    if any(isinstance(n, Let) for a in (value.access, target) for i in a.indices for n in walk(i)):
        return False
    arrays = [model.program.array(access.array) for access in (value.access, target)]
    return arrays[0].element == arrays[1].element


def check_instances(made: Correspondence, *, bijective: bool) -> list[tuple[Pair, isl.Set]]:
    """Check that every instance of `before` is there exactly once.

    Args:
        made: The programs.
        bijective: Whether every instance of `after` must stand for exactly one of `before`; else
            one may stand for several, and there may be further ones.

    Returns:
        The instances of `after` that stand for nothing (only where not `bijective`).

    Raises:
        NotAStep: An instance is missing, doubled or made up.
    """
    for source in made.before.statements:
        pairs = made.of_before(source.number)
        missing = domain(made.before, source, "s").intersect_params(made.context)
        twice = f"an instance of {source.label} is run twice"
        for number, pair in enumerate(pairs):
            back = pair.instances.intersect_params(made.context).reverse()
            missing = missing.subtract(back.domain())
            if not back.is_single_valued():
                raise _unlike(made, source, pairs, twice)
            for other in pairs[:number]:
                if not other.instances.range().is_disjoint(back.domain()):
                    raise _unlike(
                        made, source, pairs, f"an instance of {source.label} is run twice"
                    )
        if pairs and not missing.is_empty():
            lost = f"instances of {source.label} are lost: {_example(missing)}"
            raise _unlike(made, source, pairs, lost)
    spare = []
    for pair in made.pairs:
        known = pair.instances.intersect_params(made.context)
        extra = domain(made.after, pair.after, "t").intersect_params(made.context)
        extra = extra.subtract(known.domain())
        if not extra.is_empty():
            if bijective:
                raise NotAStep(f"instances of {pair.after.label} are made up: {_example(extra)}")
            spare.append((pair, extra))
        if bijective and not known.is_single_valued():
            raise NotAStep(f"an instance of {pair.after.label} stands for several")
    return spare


def _unlike(made: Correspondence, source: StatementModel, pairs: list[Pair], what: str) -> NotAStep:
    """Say what is wrong with the instances; where arrays bound them, what is not seen of them."""
    terms = dict.fromkeys(made.before.normalizer.text(term) for term in source.terms)
    afterwards = (term for pair in pairs for term in pair.after.terms)
    terms |= dict.fromkeys(map(made.after.normalizer.text, afterwards))
    if not terms:
        return NotAStep(what)
    names = ", ".join(terms)
    return NotAStep(f"{names} bound {source.label}, and its instances are not followed")


def _example(points: isl.Set) -> str:
    point = points.sample_point()
    values = [
        point.get_coordinate_val(isl.dim_type.set, n).to_python()
        for n in range(points.dim(isl.dim_type.set))
    ]
    return f"({', '.join(str(value) for value in values)})"


def check_statements(made: Correspondence, *, same_cells: bool) -> None:
    """Check that every statement, read through the instance map, is the one it stands for.

    Raises:
        NotAStep: One is not, or it cannot be seen.
    """
    for pair in made.pairs:
        try:
            equalities = needed(pair.before.place, pair.after.place, same_cells=same_cells)
        except Differs as difference:
            names = f"{pair.after.label} is no longer {pair.before.label}"
            raise NotAStep(f"{names}: {difference}") from None
        for equality in equalities:
            if not _holds(made, pair, equality):
                raise NotAStep(f"an index of {pair.after.label} is another one than before")
        _check_guards(made, pair)


def _holds(made: Correspondence, pair: Pair, equality: Equal) -> bool:
    bound: dict[str, Index] = {name: Var(f"sum {name}") for name in equality.bound}
    one = linear(equality.before, made.before.normalizer, {**pair.values, **bound})
    other = linear(equality.after, made.after.normalizer, bound)
    free = {b.variable for b in pair.before.bounds} - set(pair.values) - set(equality.bound)
    if one == other and not _mentions(equality.before, free):
        return True
    if equality.bound:
        return False
    if any(isinstance(n, Opaque) for e in (equality.before, equality.after) for n in walk(e)):
        return False
    return _equal_everywhere(made, pair, equality)


def _mentions(index: Index, names: set[str]) -> bool:
    return any(getattr(node, "name", None) in names for node in walk(index))


def _equal_everywhere(made: Correspondence, pair: Pair, equality: Equal) -> bool:
    earlier = {bound.variable: f"i{n}" for n, bound in enumerate(pair.before.bounds)}
    later = {bound.variable: f"j{n}" for n, bound in enumerate(pair.after.bounds)}
    one = made.before.notation(earlier).index(made.before.normalizer.index(equality.before))
    other = made.after.notation(later).index(made.after.normalizer.index(equality.after))
    left = f"t{pair.after.number}[{', '.join(later.values())}]"
    right = f"s{pair.before.number}[{', '.join(earlier.values())}]"
    apart = isl.Map(f"{made.after.prefix}{{ {left} -> {right} : {one} != {other} }}")
    together = apart.intersect(pair.instances).intersect_params(made.context)
    return bool(together.is_empty())


def _check_guards(made: Correspondence, pair: Pair) -> None:
    """Check that a statement is guarded by the same evaluations of the same conditions."""
    one = _guards_around(made.before, pair.before)
    other = _guards_around(made.after, pair.after)
    if len(one) != len(other):
        raise NotAStep(f"{pair.after.label} no longer stands under the same guards")
    for mine, theirs in zip(other, one, strict=True):
        guard = made.of_after(mine.number)
        if guard is None or guard.before is not theirs:
            raise NotAStep(f"{pair.after.label} no longer stands under {theirs.label}")
        if any(pair.values.get(name) != value for name, value in guard.values.items()):
            raise NotAStep(f"{pair.after.label} takes {theirs.label} of another iteration")


def _guards_around(model: Model, statement: StatementModel) -> list[StatementModel]:
    position = statement.place.position
    found = []
    for guard in model.statements:
        if isinstance(guard.place.node, If) and guard is not statement:
            stem = guard.place.position[:-1]
            inside = position[: len(stem)] == stem and len(position) > len(stem) + 1
            if inside and position[len(stem)] in (1, 2):
                found.append(guard)
    return found


def accesses_of(model: Model, statement: StatementModel) -> list[AccessModel]:
    """Return the accesses of a statement in order."""
    return [access for access in model.accesses if access.statement is statement]


def check_opaque_constraints(made: Correspondence) -> None:
    """Check that constraints with opaque terms hold of an instance and of its image alike.

    Together with `check_instances`, which sees the other constraints, every instance is then there
    exactly once.

    Raises:
        NotAStep: It cannot be seen.
    """
    for pair in made.pairs:
        if len(pair.values) != pair.before.depth:
            raise NotAStep(f"the iterations of {pair.after.label} cannot be compared")
        one = opaque_constraints(made.before, pair.before, pair.values)
        other = opaque_constraints(made.after, pair.after, {})
        ends = (made.after, pair.after)
        if not follow(one, other, *ends) or not follow(other, one, *ends):
            raise NotAStep(f"the iterations of {pair.after.label} cannot be compared")
