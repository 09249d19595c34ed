"""Dependences of accesses that are affine, computed by isl.

Memory-based dependences are all pairs that touch one cell, one of them writing. Where they are
asked for, value-based flow is what remains of the flow pairs when those are taken out between which
the cell is written again; else, and where one instance writes many cells (a row), isl's dataflow
analysis finds the last writers cell by cell, which is quicker than finding all pairs first, but not
to be trusted with strides. An access that only the running program decides on (a *may* access)
overwrites nothing for certain.
"""

from __future__ import annotations

import islpy as isl

from looptrans.analysis.dependence.accessed import Group, Orders, groups_of, layers_of
from looptrans.analysis.dependence.dataflow import value_flow
from looptrans.analysis.dependence.decided import Decided
from looptrans.analysis.dependence.last_writers import last_writers, uncovered_reads
from looptrans.analysis.isl_model.model import Among, Model
from looptrans.analysis.isl_model.relation import Relation, Uncovered, joined, relation_of_pairs
from looptrans.ir.facts import KINDS, Basis, DependenceKind

_MEMORY: tuple[tuple[DependenceKind, bool, bool], ...] = (
    ("flow", True, False),
    ("anti", False, True),
    ("output", True, True),
)
_OF_WRITES: tuple[DependenceKind, DependenceKind] = ("flow", "output")


def affine_dependences(
    model: Model,
    arrays: list[str],
    bases: tuple[Basis, ...],
    kinds: tuple[DependenceKind, ...] = KINDS,
    among: Among | None = None,
) -> tuple[list[Relation], list[Uncovered]]:
    """Find the dependences over arrays whose accesses have no opaque terms.

    Args:
        model: The program.
        arrays: The arrays.
        bases: `value` for last-writer flow, `memory` for all pairs on one cell.
        kinds: Which of those on one cell.
        among: Between which statements those on one cell are asked for; by default all, as must be
            for `value`.
    """
    wanted = kinds if "memory" in bases else ()
    needed = {*wanted, *(_OF_WRITES if "value" in bases else ())}
    relations: list[Relation] = []
    uncovered: list[Uncovered] = []
    orders = Orders(model, Decided(model))
    rows: list[Group] = []
    for array in arrays:
        groups = groups_of(model, array)
        trusted = not any(_has_strides(group) for group in groups)
        # A write under a condition on data hides that of an earlier iteration only from what is
        # under the same one, which isl's dataflow analysis does not know.
        if "memory" not in bases and trusted and not any(g.may is not None for g in groups):
            rows += groups
            continue
        # What is not asked for need not be found: what a read gets is in an iteration of its own.
        levels = 0 if "memory" in bases else _levels(groups)
        memory = {
            kind: _memory(kind, groups, orders, levels, among=among)
            for kind in KINDS
            if kind in needed
        }
        relations += [relation for kind in wanted for relation in memory[kind].values()]
        if "value" not in bases:
            continue
        if all(group.single_cell for group in groups if group.is_write):
            layers = layers_of(model, array, groups)
            found = []
            for layer in layers:
                flow = memory["flow"]
                if layer is not groups:
                    flow = _memory(
                        "flow", layer, orders, 0 if "memory" in bases else _levels(layer)
                    )
                found += last_writers(layer, flow, memory["output"], orders.decided)
                uncovered += uncovered_reads(layer, orders)
            relations += joined(found)
        elif trusted:
            rows += groups
        else:
            flow, output = (
                _memory(kind, groups, orders, levels, cells=True) for kind in _OF_WRITES
            )
            last = last_writers(groups, flow, output, orders.decided)
            relations += map(_without_cells, last)
            uncovered += uncovered_reads(groups, orders)
    if rows:
        found, missing = value_flow(model, rows, orders.decided)
        relations += found
        uncovered += missing
    return relations, uncovered


def _memory(
    kind: DependenceKind,
    groups: list[Group],
    orders: Orders,
    levels: int = 0,
    *,
    cells: bool = False,
    among: Among | None = None,
) -> dict[tuple[int, int], Relation]:
    """Return the pairs of accesses to one cell, by source and sink statement.

    Args:
        kind: Which of the two writes.
        groups: The accesses of an array.
        orders: What runs before what.
        levels: Both ends are to be in one iteration of so many of the outermost loops.
        cells: Whether both ends are to have the cell beside them.
        among: Between which statements; by default all.
    """
    _, source_writes, sink_writes = next(row for row in _MEMORY if row[0] == kind)
    found = {}
    for source in groups:
        for sink in groups:
            wanted = among is None or among(source.statement, sink.statement)
            if wanted and source.is_write == source_writes and sink.is_write == sink_writes:
                relation = _pairs(kind, source, sink, orders, levels, cells)
                if relation is not None:
                    found[source.statement.number, sink.statement.number] = relation
    return found


def _pairs(
    kind: DependenceKind, source: Group, sink: Group, orders: Orders, levels: int, cells: bool
) -> Relation | None:
    """Return the pairs of two groups that touch one cell, the first running earlier."""
    found = orders.points_of if cells else orders.pairs_of
    pairs = found(source, sink, levels)
    if pairs is None or pairs.is_empty():
        return None
    may = source.may is not None or sink.may is not None
    certain = None
    if may and source.exact is not None and sink.exact is not None:
        certain = found(source.without_may(), sink.without_may(), levels)
    numbers = source.statement.number, sink.statement.number
    return relation_of_pairs(
        kind, "memory", numbers, source.array, pairs, certain if may else pairs
    )


def _levels(groups: list[Group]) -> int:
    """Return in one iteration of how many outermost loops every read gets what it gets."""
    reads = [group.last for group in groups if not group.is_write]
    return min((0 if last is None else last.levels for last in reads), default=0)


def _without_cells(relation: Relation) -> Relation:
    pairs = relation.pairs.factor_domain()
    certain = None if relation.certain is None else relation.certain.factor_domain()
    ends = relation.source, relation.sink
    known = certain if relation.may else pairs
    return relation_of_pairs(relation.kind, relation.basis, ends, relation.array, pairs, known)


def _has_strides(group: Group) -> bool:
    """Tell whether what is accessed is said with remainders or floor divisions.

    isl's dataflow analysis loses last writers among such, or fails.
    """
    parts = group.all.get_basic_map_list()
    return any(parts.get_at(n).dim(isl.dim_type.div) for n in range(parts.n_basic_map()))
