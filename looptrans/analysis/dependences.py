"""All dependences of a program, found, cut into pieces, each with its smallest witness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import islpy as isl

from looptrans.analysis.flow import affine_dependences
from looptrans.analysis.instances import enumerated
from looptrans.analysis.model import Contents, Model, StatementModel, build_model
from looptrans.analysis.opaque import opaque_dependences
from looptrans.analysis.pieces import Counts, Piece, pieces_of
from looptrans.analysis.polyhedra import context_set
from looptrans.analysis.relation import Relation, Uncovered
from looptrans.analysis.statements import statement_facts
from looptrans.analysis.subscripts import negative_subscripts
from looptrans.analysis.supposed import with_supposed_elements
from looptrans.analysis.witness import smallest_pair
from looptrans.ir.facts import (
    Basis,
    Dependence,
    DependenceReport,
    InstancePair,
)
from looptrans.ir.index import parameters as parameters_in
from looptrans.ir.listing import contract_text
from looptrans.ir.program import Contract, Program
from looptrans.ir.verdict import Assignment, Witness

BOTH: tuple[Basis, ...] = ("value", "memory")
TOGETHER = 16
TRIED_SIZES = range(1, 5)
_KINDS = ("flow", "anti", "output")


@dataclass(frozen=True, slots=True)
class Found:
    """One piece of a dependence relation."""

    relation: Relation
    piece: Piece


@dataclass(slots=True)
class Analysis:
    """The dependences of a program in isl's terms; the other analyses start from it.

    Attributes:
        program: The program.
        model: Its normal form.
        context: What is known of the parameters.
        found: Every piece, sorted.
        uncovered: Reads that may see what was there before the program ran.
        bases: What was looked for.
    """

    program: Program
    model: Model
    context: isl.Set
    found: list[Found]
    uncovered: list[Uncovered]
    bases: tuple[Basis, ...]
    _witnesses: dict[int, Witness | None] = field(default_factory=dict)
    _concrete: dict[tuple[int, ...], Analysis] = field(default_factory=dict)

    def carrier(self, found: Found) -> tuple[int, ...] | None:
        """Return the position of the loop that carries a piece; None if loop-independent."""
        level = found.piece.carrier
        if level is None:
            return None
        return self.statement(found.relation.source).place.loop_positions[level]

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
            complete = with_supposed_elements(self.model, relation, witness)
        if complete is None:
            return None
        return replace(complete, parameters=self._all_sizes(complete))

    def _all_sizes(self, witness: Witness) -> Assignment:
        """Add the sizes that were fixed from the start."""
        sizes = dict(self.model.normalizer.sizes) | dict(witness.parameters)
        return tuple((p.name, sizes[p.name]) for p in self.program.parameters if p.name in sizes)

    def _smallest_concrete(self, found: Found, awkward: list[str]) -> Witness | None:
        """Where sizes divide or multiply, give those sizes small values and ask again."""
        relation = found.relation
        key = (relation.kind, relation.basis, relation.source, relation.sink, relation.array)
        best: tuple[tuple[int, ...], Witness] | None = None
        for values in product(TRIED_SIZES, repeat=len(awkward)):
            if values not in self._concrete:
                sizes = dict(zip(awkward, values, strict=True)) | dict(self.model.normalizer.sizes)
                self._concrete[values] = analyse(
                    self.program, bases=self.bases, sizes=sizes, contracts=self.program.contracts
                )
            inner = self._concrete[values]
            for other in inner.found:
                same = other.relation
                if key != (same.kind, same.basis, same.source, same.sink, same.array):
                    continue
                if other.piece.direction != found.piece.direction:
                    continue
                witness = inner.witness(other)
                if witness is None:
                    continue
                rank = tuple(abs(value) for _, value in witness.parameters)
                if best is None or rank < best[0]:
                    best = (rank, witness)
        return None if best is None else best[1]


def _awkward_sizes(model: Model) -> list[str]:
    """Return the sizes that divide or multiply something that varies, in order of appearance."""
    indices = [arithmetic.size for arithmetic in model.normalizer.arithmetic.values()]
    indices += list(model.normalizer.made.values())
    names = {name for index in indices for name in parameters_in(index)}
    return [p.name for p in model.program.parameters if p.name in names]


def analyse(
    program: Program,
    *,
    bases: tuple[Basis, ...] = BOTH,
    sizes: Mapping[str, int] | None = None,
    contracts: tuple[Contract, ...] | None = None,
    contents: Contents | None = None,
) -> Analysis:
    """Find the dependences of a program.

    Args:
        program: The program.
        bases: `value` for last-writer flow, `memory` for all pairs on one cell.
        sizes: Parameters that have a value; the result then holds at those sizes only.
        contracts: The contracts to lean on; by default all of the program's.
        contents: Integer arrays whose contents are given, cell by cell.
    """
    model = build_model(program, sizes, contracts, contents)
    context = context_set(model)
    relations: list[Relation] = []
    uncovered: list[Uncovered] = []
    affine, opaque = _arrays(model)
    for first in range(0, len(affine), TOGETHER):
        more, missing = affine_dependences(model, affine[first : first + TOGETHER], bases)
        relations += more
        uncovered += missing
    more, missing = opaque_dependences(model, opaque, bases)
    relations += more
    uncovered += missing
    counts = Counts(model, context)
    order = {array.name: number for number, array in enumerate(program.arrays)}
    relations.sort(
        key=lambda r: (r.source, r.sink, order[r.array], r.basis == "memory", _KINDS.index(r.kind))
    )
    found = [
        Found(relation, piece)
        for relation in relations
        for piece in pieces_of(model, relation, counts)
    ]
    return Analysis(program, model, context, found, uncovered, bases)


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
    kinds: tuple[str, ...] = _KINDS,
    at: Mapping[str, int] | None = None,
    contents: Contents | None = None,
    witnesses: bool = True,
) -> DependenceReport:
    """Turn dependences into plain data.

    Args:
        analysis: The dependences.
        kinds: Which kinds to list.
        witnesses: Whether to find the smallest example of each, which may take long where sizes
            divide or multiply.
        at: Sizes at which every dependence also lists its instance pairs.
        contents: Contents of integer arrays for those sizes.
    """
    if at is not None and (contents or _awkward_sizes(analysis.model)):
        analysis = analyse(analysis.program, bases=analysis.bases, sizes=at, contents=contents)
    program = analysis.program
    listed = []
    for found in analysis.found:
        if found.relation.kind in kinds:
            dependence = dependence_fact(analysis, found, witnesses=witnesses)
            if dependence is not None and at is not None:
                dependence = replace(dependence, instances=_instances(analysis, found, at))
            if dependence is not None:
                listed.append(dependence)
    return DependenceReport(
        program.name,
        tuple(p.name for p in program.parameters if p.is_integer),
        statement_facts(program),
        tuple(listed),
        tuple(contract_text(contract) for contract in program.contracts),
        warnings=negative_subscripts(analysis.model),
    )


def dependence_fact(
    analysis: Analysis, found: Found, *, witnesses: bool = True
) -> Dependence | None:
    """Turn a piece into plain data; None where no sizes allow it."""
    relation, piece = found.relation, found.piece
    witness = analysis.witness(found) if witnesses else None
    if witness is None and piece.pairs.intersect_params(analysis.context).is_empty():
        return None
    carrier = None if piece.carrier is None else piece.loops[piece.carrier]
    return Dependence(
        relation.kind,
        relation.basis,
        piece.may,
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
    )


def _instances(analysis: Analysis, found: Found, at: Mapping[str, int]) -> tuple[InstancePair, ...]:
    """Enumerate the pairs of a piece at given sizes."""
    pairs = found.piece.pairs
    for number, name in enumerate(analysis.model.parameters):
        pairs = pairs.fix_val(isl.dim_type.param, number, isl.Val(at[name]))
    depth = analysis.statement(found.relation.source).depth
    points = enumerated(pairs.wrap().flatten(), at)
    return tuple((point[:depth], point[depth:]) for point in points)
