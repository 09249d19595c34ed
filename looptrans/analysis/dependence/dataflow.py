"""isl's dataflow analysis, which finds the last writer of every cell that is read."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from looptrans.analysis.dependence.accessed import Group
from looptrans.analysis.dependence.decided import Decided
from looptrans.analysis.isl_model.model import Model
from looptrans.analysis.isl_model.polyhedra import order_map, schedule_map, union_of
from looptrans.analysis.isl_model.relation import Relation, Uncovered, relation_of_pairs

_Key = tuple[int, int, int]


def value_flow(
    model: Model, groups: list[Group], decided: Decided
) -> tuple[list[Relation], list[Uncovered]]:
    """Ask isl for the last writer of every cell read."""
    arrays = [array.name for array in model.program.arrays]
    statements = {group.statement.number: group.statement for group in groups}
    schedule = schedule_map(model, statements.values())
    must_writes, may_writes, must_reads, may_reads = (
        union_of(
            (
                part
                for group in groups
                if group.is_write == is_write
                and (part := group.may if is_may else group.exact) is not None
            ),
            model,
        )
        for is_write in (True, False)
        for is_may in (False, True)
    )
    total: dict[_Key, isl.Map] = {}
    certain: dict[_Key, isl.Map] = {}
    uncovered: list[Uncovered] = []
    for reads in (must_reads, may_reads):
        if reads.is_empty():
            continue
        flow = (
            isl.UnionAccessInfo.from_sink(reads)
            .set_must_source(must_writes)
            .set_may_source(may_writes)
            .set_schedule_map(schedule)
            .compute_flow()
        )
        must = flow.get_full_must_dependence()
        everything = flow.get_full_may_dependence().union(must)
        _collect(everything, total)
        if reads is must_reads:
            _collect(must, certain)
        for each in _maps(flow.get_may_no_source()):
            array = arrays[_number(each.get_tuple_name(isl.dim_type.out))]
            sink = _number(each.get_tuple_name(isl.dim_type.in_))
            uncovered.append(Uncovered(sink, array, each.domain()))
    relations = []
    for key in sorted(total):
        source, sink, written = key
        pairs = total[key]
        if statements[source].excludes(statements[sink]):
            # The order of time has both branches of a guard run, one after the other.
            pairs = pairs.intersect(order_map(model, statements[source], statements[sink]))
        pairs = decided.without_impossible(pairs, statements[source], statements[sink])
        if not pairs.is_empty():
            sure = certain[key].intersect(pairs) if key in certain else None
            array = arrays[written]
            relations.append(relation_of_pairs("flow", "value", (source, sink), array, pairs, sure))
    return relations, uncovered


def _maps(union: isl.UnionMap) -> Iterator[isl.Map]:
    parts = union.get_map_list()
    return (parts.get_at(number) for number in range(parts.n_map()))


def _number(name: str) -> int:
    return int(name[1:])


def _collect(full: isl.UnionMap, into: dict[_Key, isl.Map]) -> None:
    """Add `source -> [sink -> cell]` relations by source, sink and array."""
    for each in _maps(full):
        array = _number(each.range_factor_range().get_tuple_name(isl.dim_type.out))
        pairs = each.range_factor_domain()
        key = (
            _number(pairs.get_tuple_name(isl.dim_type.in_)),
            _number(pairs.get_tuple_name(isl.dim_type.out)),
            array,
        )
        into[key] = into[key].union(pairs) if key in into else pairs
