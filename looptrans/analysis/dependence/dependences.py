"""All dependences of a program, found, cut into pieces, each with its smallest witness."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice, product
from typing import TypeAlias

import islpy as isl

from looptrans.analysis.dependence.flow import affine_dependences
from looptrans.analysis.dependence.pieces import Counts, Piece, carriers_of, pieces_of
from looptrans.analysis.isl_model.model import Bound, Contents, Model, StatementModel, build_model
from looptrans.analysis.isl_model.polyhedra import context_set
from looptrans.analysis.isl_model.relation import Relation, Supposed, Uncovered
from looptrans.analysis.isl_model.witness import TRIED_SIZES, smallest_pair
from looptrans.analysis.opaque_terms.instances import enumerated
from looptrans.analysis.opaque_terms.opaque import flow_between, opaque_dependences
from looptrans.analysis.opaque_terms.supposed import with_some_elements
from looptrans.analysis.ranges.subscripts import negative_subscripts
from looptrans.analysis.statements import reported
from looptrans.ir.evaluate import evaluate
from looptrans.ir.facts import (
    KINDS,
    Basis,
    Dependence,
    DependenceKind,
    DependenceReport,
    Direction,
    InstancePair,
)
from looptrans.ir.index import Arith, Index, Param, walk
from looptrans.ir.index import parameters as parameters_in
from looptrans.ir.program import Contract, Loop, Program
from looptrans.ir.verdict import Assignment, Witness

BOTH: tuple[Basis, ...] = ("value", "memory")
TOGETHER = 16
MOST_FURTHER = 16


_End: TypeAlias = tuple[tuple[Bound, ...], frozenset[str]]
_Pairs: TypeAlias = tuple[_End, _End, isl.Map, tuple[Supposed, ...]]


@dataclass(frozen=True, slots=True)
class Found:
    """One piece of a dependence relation."""

    relation: Relation
    piece: Piece


@dataclass(frozen=True, slots=True)
class Carried:
    """The pairs of a dependence relation that one loop carries, or none.

    Attributes:
        relation: The relation.
        loops: The loops that source and sink share, outermost first.
        level: The level of the loop that carries the pairs; None where they are loop-independent.
    """

    relation: Relation
    loops: tuple[Loop, ...]
    level: int | None

    @property
    def variable(self) -> str | None:
        """The variable of the loop that carries the pairs."""
        return None if self.level is None else self.loops[self.level].variable


@dataclass(slots=True)
class Analysis:
    """The dependences of a program in isl's terms; the other analyses start from it.

    Attributes:
        program: The program.
        model: Its normal form.
        context: What is known of the parameters.
        relations: Every relation, sorted.
        uncovered: Reads that may see what was there before the program ran.
        bases: What was looked for.
        kinds: Which kinds were looked for, of those on one cell.
    """

    program: Program
    model: Model
    context: isl.Set
    relations: list[Relation]
    uncovered: list[Uncovered]
    bases: tuple[Basis, ...]
    kinds: tuple[DependenceKind, ...]
    _counts: Counts
    _pieces: dict[int, list[Found]] = field(default_factory=dict)
    _levels: dict[int, list[Carried]] = field(default_factory=dict)
    _witnesses: dict[int, Witness | None] = field(default_factory=dict)
    _smallest_of: dict[_Pairs, Witness | None] = field(default_factory=dict)
    _concrete: dict[tuple[tuple[int, ...], str, Basis], Analysis] = field(default_factory=dict)

    def pieces(self, relation: Relation) -> list[Found]:
        """Return the pieces of one of the relations, in order of direction and distance."""
        key = id(relation)
        if key not in self._pieces:
            cut = pieces_of(self.model, relation, self._counts)
            self._pieces[key] = [Found(relation, piece) for piece in cut]
        return self._pieces[key]

    def carried(self, basis: Basis | None = None) -> list[Carried]:
        """Return which loops carry the relations, of one basis or of all, sorted.

        That is told without cutting them into pieces.
        """
        return [
            each
            for relation in self.relations
            if basis is None or relation.basis == basis
            for each in self._by_level(relation)
        ]

    def _by_level(self, relation: Relation) -> list[Carried]:
        key = id(relation)
        if key not in self._levels:
            shared = self.statement(relation.source).shared_depth(self.statement(relation.sink))
            loops = self.statement(relation.source).loops[:shared]
            levels = (
                dict.fromkeys(found.piece.carrier for found in self._pieces[key])
                if key in self._pieces
                else carriers_of(self.model, relation, self._counts)
            )
            self._levels[key] = [Carried(relation, loops, level) for level in levels]
        return self._levels[key]

    def pieces_at(self, carried: Carried) -> list[Found]:
        """Return the pieces that a loop carries."""
        return [f for f in self.pieces(carried.relation) if f.piece.carrier == carried.level]

    def carrier(self, carried: Carried) -> tuple[int, ...] | None:
        """Return the position of the loop that carries some pairs; None if loop-independent."""
        if carried.level is None:
            return None
        return self.statement(carried.relation.source).place.loop_positions[carried.level]

    def statement(self, number: int) -> StatementModel:
        """Return a statement by its number."""
        return self.model.statements[number]

    def witness(self, found: Found) -> Witness | None:
        """Return the smallest example of a piece."""
        key = id(found)
        if key not in self._witnesses:
            self._witnesses[key] = self._smallest(found)
        return self._witnesses[key]

    def _smallest(self, found: Found) -> Witness | None:
        awkward = _awkward_sizes(self.model)
        if awkward:
            return self._smallest_concrete(found, awkward)
        # Scalars of one nest have the same pairs; only the statements differ.
        key = self._key(found)
        if key not in self._smallest_of:
            self._smallest_of[key] = self._smallest_symbolic(found)
        return self._smallest_of[key]

    def _key(self, found: Found) -> _Pairs:
        """Return all that an example of a piece depends on."""
        bare = found.piece.pairs.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(isl.dim_type.out)
        source, sink = (
            (self.statement(number).bounds, self.model.mentioned[number])
            for number in (found.relation.source, found.relation.sink)
        )
        return source, sink, bare, found.relation.supposed

    def _smallest_symbolic(self, found: Found) -> Witness | None:
        relation = found.relation
        witness = smallest_pair(
            self.model,
            self.statement(relation.source),
            self.statement(relation.sink),
            found.piece.pairs,
            self.context,
        )
        if witness is None:
            return None
        complete: Witness | None = witness
        if relation.supposed:
            contents = with_some_elements(self.model, relation, witness)
            complete = next((each for each in contents if self._may_occur(relation, each)), None)
        if complete is None:
            return None
        return replace(complete, parameters=self._all_sizes(complete))

    def _may_occur(self, relation: Relation, witness: Witness) -> bool:
        """Tell whether the contents that an example supposes leave it possible.

        By value, that is: they may be those at which another write comes in between.
        """
        writes = [a for a in self.model.accesses if a.is_write and a.array == relation.array]
        if relation.basis == "memory" or not any(a.all_terms and not a.is_may for a in writes):
            return True
        contents: dict[str, dict[tuple[int, ...], int]] = {}
        for name, value in witness.elements:
            array, _, cell = name.removesuffix("]").partition("[")
            contents.setdefault(array, {})[tuple(map(int, cell.split(", ")))] = value
        sizes = dict(self.model.normalizer.sizes) | dict(witness.parameters)
        inner = build_model(self.program, sizes, self.program.contracts, contents)
        values = [value for _, value in (*witness.source, *witness.sink)]
        for other in flow_between(inner, relation.array, relation.source, relation.sink):
            pairs = other.pairs.wrap().flatten()
            for number, value in enumerate(values):
                pairs = pairs.fix_val(isl.dim_type.set, number, isl.Val(value))
            if not pairs.is_empty():
                return True
        return False

    def _all_sizes(self, witness: Witness) -> Assignment:
        """Add the sizes that were fixed from the start."""
        sizes = dict(self.model.normalizer.sizes) | dict(witness.parameters)
        return tuple((p.name, sizes[p.name]) for p in self.program.parameters if p.name in sizes)

    def _smallest_concrete(self, found: Found, awkward: list[str]) -> Witness | None:
        """Where sizes divide or multiply, give those sizes small values and ask again."""
        relation = found.relation
        key = (relation.kind, relation.basis, relation.source, relation.sink)
        best: tuple[tuple[int, ...], Witness] | None = None
        dividing, least = _dividing_sizes(self.model), self._least_sizes(found)
        tried = (TRIED_SIZES if name in dividing else (*TRIED_SIZES, 0) for name in awkward)
        small = product(*tried)
        for values in chain(small, _further_sizes([least.get(name, 1) for name in awkward])):
            if best is not None and max(values) > TRIED_SIZES[-1]:
                break
            given = dict(zip(awkward, values, strict=True))
            if not self._may_divide(given):
                continue
            if best is not None:  # where none at these sizes can be smaller, none is looked for
                sizes = [name for name, _ in best[1].parameters]
                at_least = tuple(given.get(name, least.get(name, 0)) for name in sizes)
                if (values.count(0), *at_least) >= best[0]:
                    continue
            inner = self._at_sizes(awkward, values, relation)
            for other in inner.relations:
                if key != (other.kind, other.basis, other.source, other.sink):
                    continue
                for piece in inner.pieces(other):
                    if not _is_among(piece.piece.direction, found.piece.direction):
                        continue
                    if piece.piece.may and not found.piece.may:
                        continue
                    same = inner._within(piece, found.piece, self.model)
                    witness = None if same is None else inner._smallest(same)
                    if witness is None:
                        continue
                    # A size of zero is told only where no other shows the dependence.
                    rank = tuple(abs(value) for _, value in witness.parameters)
                    rank = (values.count(0), *rank)
                    if best is None or rank < best[0]:
                        best = (rank, witness)
        return None if best is None else best[1]

    def _least_sizes(self, found: Found) -> dict[str, int]:
        """Return how large sizes are at least where a piece has pairs."""
        points = found.piece.pairs.params().intersect(self.context)
        count = points.dim(isl.dim_type.param)
        points = points.move_dims(isl.dim_type.set, 0, isl.dim_type.param, 0, count)
        lowest = [points.dim_min_val(number) for number in range(count)]
        return {
            name: int(value.to_python())
            for name, value in zip(self.model.parameters, lowest, strict=True)
            if value.is_pos() and value.is_int()
        }

    def _within(self, found: Found, whole: Piece, model: Model) -> Found | None:
        """Return what of a piece at given sizes is in a piece for all sizes; None if nothing is."""
        sizes = dict(self.model.normalizer.sizes)
        for name, index in model.normalizer.made.items():
            value = evaluate(index, sizes)
            if value is not None:
                sizes[name] = value
        pairs = whole.pairs
        left: list[str] = []
        for number, name in reversed(list(enumerate(model.parameters))):
            if name in self.model.parameters:
                left.insert(0, self.model.parameters[name])
                continue
            if name in sizes:
                pairs = pairs.fix_val(isl.dim_type.param, number, isl.Val(sizes[name]))
            pairs = pairs.project_out(isl.dim_type.param, number, 1)
        for number, called in enumerate(left):
            pairs = pairs.set_dim_name(isl.dim_type.param, number, called)
        same = found.piece.pairs.intersect(pairs)
        return None if same.is_empty() else Found(found.relation, replace(found.piece, pairs=same))

    def _may_divide(self, given: dict[str, int]) -> bool:
        """Tell whether no divisor is below 1 at some sizes, as `H // G` may be."""
        sizes = given | dict(self.model.normalizer.sizes)
        values = (evaluate(divisor, sizes) for divisor in divisors(self.model))
        return all(value is None or value >= 1 for value in values)

    def _at_sizes(self, awkward: list[str], values: tuple[int, ...], like: Relation) -> Analysis:
        """Return what is like a relation, over its array and of its basis, at some sizes."""
        key = (values, like.array, like.basis)
        if key not in self._concrete:
            sizes = dict(zip(awkward, values, strict=True)) | dict(self.model.normalizer.sizes)
            self._concrete[key] = analyse(
                self.program,
                bases=(like.basis,),
                sizes=sizes,
                contracts=self.program.contracts,
                arrays=(like.array,),
                kinds=self.kinds,
                beside=next((a for (at, *_), a in self._concrete.items() if at == values), None),
            )
        return self._concrete[key]


def _is_among(direction: tuple[Direction, ...], whole: tuple[Direction, ...]) -> bool:
    """Tell whether a direction vector is one of those that another stands for."""
    return all(other in (sign, "*") for sign, other in zip(direction, whole, strict=True))


def _awkward_sizes(model: Model) -> list[str]:
    """Return sizes, in order of appearance, that when given leave nothing that is not affine.

    Those that divide or multiply something that varies, and of the sizes in a product all but one.
    """
    indices = [arithmetic.size for arithmetic in model.normalizer.arithmetic.values()]
    names = {name for index in indices for name in parameters_in(index)}
    for name, index in model.normalizer.made.items():
        factors = model.normalizer.factors.get(name, ())
        if factors and all(isinstance(factor, Param) for factor in factors):
            left = [n for n in parameters_in(index) if n not in names]
            names |= set(left[:-1])
        else:
            names |= set(parameters_in(index))
    return [p.name for p in model.program.parameters if p.name in names]


def divisors(model: Model) -> tuple[Index, ...]:
    """Return the expressions of sizes that something is divided by, which are never 0."""
    made = model.normalizer.made
    indices = [
        made.get(a.size.name, a.size) if isinstance(a.size, Param) else a.size
        for a in model.normalizer.arithmetic.values()
        if a.op != "*"
    ]
    indices += [
        node.right
        for index in model.normalizer.made.values()
        for node in walk(index)
        if isinstance(node, Arith) and node.op in ("//", "%")
    ]
    return tuple(dict.fromkeys(indices))


def _further_sizes(least: list[int]) -> Iterable[tuple[int, ...]]:
    """Return some values of a few sizes beyond the small ones, none below its least."""
    if len(least) > 3:
        return ()
    tried = (range(low, max(low, TRIED_SIZES[-1]) + 5) for low in least)
    beyond = (values for values in product(*tried) if max(values) > TRIED_SIZES[-1])
    return islice(sorted(beyond, key=sum), MOST_FURTHER)


def _dividing_sizes(model: Model) -> set[str]:
    """Return the sizes that something is divided by."""
    return {name for index in divisors(model) for name in parameters_in(index)}


def analyse(
    program: Program,
    *,
    bases: tuple[Basis, ...] = BOTH,
    sizes: Mapping[str, int] | None = None,
    contracts: tuple[Contract, ...] | None = None,
    contents: Contents | None = None,
    arrays: Collection[str] | None = None,
    kinds: tuple[DependenceKind, ...] = KINDS,
    beside: Analysis | None = None,
) -> Analysis:
    """Find the dependences of a program.

    Args:
        program: The program.
        bases: `value` for last-writer flow, `memory` for all pairs on one cell.
        sizes: Parameters that have a value; the result then holds at those sizes only.
        contracts: The contracts to lean on; by default all of the program's.
        contents: Integer arrays whose contents are given, cell by cell.
        arrays: The only arrays that are asked about; by default all are.
        kinds: Which pairs on one cell are asked for.
        beside: What was found over another array of the same program with all else the same, whose
            model and examples serve again: scalars of one nest have the same pairs.
    """
    model = build_model(program, sizes, contracts, contents) if beside is None else beside.model
    context = context_set(model) if beside is None else beside.context
    relations: list[Relation] = []
    uncovered: list[Uncovered] = []
    affine, opaque = _arrays(model)
    if arrays is not None:
        affine, opaque = ([name for name in names if name in arrays] for names in (affine, opaque))
    for first in range(0, len(affine), TOGETHER):
        more, missing = affine_dependences(model, affine[first : first + TOGETHER], bases, kinds)
        relations += more
        uncovered += missing
    more, missing = opaque_dependences(model, opaque, bases, kinds)
    relations += more
    uncovered += missing
    order = {array.name: number for number, array in enumerate(program.arrays)}
    relations.sort(
        key=lambda r: (r.source, r.sink, order[r.array], r.basis == "memory", KINDS.index(r.kind))
    )
    counts = Counts(model, context) if beside is None else beside._counts
    found = Analysis(program, model, context, relations, uncovered, bases, kinds, counts)
    return found if beside is None else replace(found, _smallest_of=beside._smallest_of)


def _arrays(model: Model) -> tuple[list[str], list[str]]:
    """Return the written arrays without opaque terms, and those with."""
    written = {access.array for access in model.accesses if access.is_write}
    opaque = {access.array for access in model.accesses if access.all_terms}
    names = list(dict.fromkeys(access.array for access in model.accesses))
    affine = [name for name in names if name in written and name not in opaque]
    return affine, [name for name in names if name in written and name in opaque]


def dependence_report(
    analysis: Analysis,
    *,
    kinds: tuple[DependenceKind, ...] = KINDS,
    arrays: Collection[str] | None = None,
    at: Mapping[str, int] | None = None,
    contents: Contents | None = None,
    witnesses: bool = True,
    shown: tuple[Basis, ...] = BOTH,
    proceed: Callable[[], None] | None = None,
) -> DependenceReport:
    """Turn dependences into plain data.

    Args:
        analysis: The dependences.
        kinds: Which kinds to list.
        arrays: The arrays that the analysis is about; None for all.
        witnesses: Whether to find the smallest example of each, which may take long where sizes
            divide or multiply, and to warn of subscripts, which is an example as well.
        at: Sizes at which every dependence also lists its instance pairs.
        contents: Contents of integer arrays for those sizes.
        shown: The bases of which anybody looks at the examples.
        proceed: Called before each dependence; it may raise an exception to stop.
    """
    if at is not None and (contents or _awkward_sizes(analysis.model)):
        analysis = analyse(
            analysis.program,
            bases=analysis.bases,
            sizes=at,
            contents=contents,
            arrays=arrays,
            kinds=kinds,
        )
    program = analysis.program
    listed = []
    for relation in (r for r in analysis.relations if r.kind in kinds):
        for found in analysis.pieces(relation):
            if proceed is not None:
                proceed()
            looked_at = witnesses and relation.basis in shown
            dependence = dependence_fact(analysis, found, witnesses=looked_at)
            if dependence is not None and at is not None:
                dependence = replace(dependence, instances=_instances(analysis, found, at))
            if dependence is not None:
                listed.append(dependence)
    warnings = negative_subscripts(analysis.model) if witnesses else ()
    is_whole = set(kinds) >= set(KINDS) and set(analysis.bases) >= set(BOTH) and arrays is None
    return replace(reported(program, listed, warnings), selected=not is_whole)


def dependence_fact(
    analysis: Analysis, found: Found, *, witnesses: bool = True
) -> Dependence | None:
    """Turn a piece into plain data; None where no sizes allow it."""
    relation, piece = found.relation, found.piece
    witness = analysis.witness(found) if witnesses else None
    if witness is None and piece.pairs.intersect_params(analysis.context).is_empty():
        return None
    carrier = None if piece.carrier is None else piece.loops[piece.carrier]
    shown = witness is not None or not witnesses
    return Dependence(
        relation.kind,
        relation.basis,
        piece.may or (piece.within and not shown),
        analysis.statement(relation.source).label,
        analysis.statement(relation.sink).label,
        relation.array,
        tuple(loop.variable for loop in piece.loops),
        piece.distance,
        piece.direction,
        None if carrier is None else carrier.variable,
        None if carrier is None else carrier.span.line,
        witness,
        piece.distances,
        within=piece.within,
    )


def _instances(analysis: Analysis, found: Found, at: Mapping[str, int]) -> tuple[InstancePair, ...]:
    """Enumerate the pairs of a piece at given sizes."""
    pairs = found.piece.pairs
    for number, name in enumerate(analysis.model.parameters):
        pairs = pairs.fix_val(isl.dim_type.param, number, isl.Val(at[name]))
    depth = analysis.statement(found.relation.source).depth
    points = enumerated(pairs.wrap().flatten(), at)
    return tuple((point[:depth], point[depth:]) for point in points)
