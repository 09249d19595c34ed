"""What a read gets: the pairs of a write and a read between which the cell is not written again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import islpy as isl

from looptrans.analysis.dependence.accessed import (
    MOST_JOINED,
    Group,
    Orders,
    in_one_iteration,
    tidied,
)
from looptrans.analysis.dependence.decided import Decided
from looptrans.analysis.isl_model.model import StatementModel
from looptrans.analysis.isl_model.relation import Relation, Uncovered, relation_of_pairs
from looptrans.analysis.opaque_terms.killing import is_killed

MOST_AT_ONCE = 150


def last_writers(
    groups: list[Group],
    flow: dict[tuple[int, int], Relation],
    output: dict[tuple[int, int], Relation],
    decided: Decided,
) -> list[Relation]:
    """Take out of the memory-based flow the pairs between which the cell is written again.

    A write touches one cell, so whatever writes the cell after the source, and is read by the
    sink after that, comes between the two: the composition of an output and a flow dependence.
    Where a write may not happen it takes nothing out, but makes the pairs around it uncertain; if
    it happens whenever the source or the sink does, it takes out the pairs around it.
    """
    found = []
    writes = [group for group in groups if group.is_write]
    statements = {group.statement.number: group.statement for group in groups}
    lasts = {group.statement.number: group.last for group in groups if not group.is_write}
    for (source, sink), relation in flow.items():
        last = lasts[sink]
        if last is not None and is_killed(statements[source], statements[sink], last):
            continue
        # What is written and read in one iteration of loops, is written in it in between.
        levels = 0 if last is None else last.levels
        pairs = in_one_iteration(relation.pairs, levels)
        doubtful: list[isl.Map] = []
        for write in writes:
            number = write.statement.number
            first, second = output.get((source, number)), flow.get((number, sink))
            if first is None or second is None:
                continue
            if write.statement.shared_depth(statements[sink]) < levels:
                continue
            written = in_one_iteration(first.pairs, levels)
            read = in_one_iteration(second.pairs, levels)
            if write.may is not None:
                doubtful.append(written.apply_range(read))
                both = statements[source], statements[sink]
                for gone in _surely_between(decided, write.statement, both, written, read):
                    pairs = without(pairs, gone)
                if write.exact is None:
                    continue
                has_cells = written.get_space().range().is_wrapping()
                sure = write.exact.wrap() if has_cells else write.exact.domain()
                written = written.intersect_range(sure)
            pairs = without(pairs, written.apply_range(read))
        pairs = tidied(pairs)
        if pairs.is_empty():
            continue
        certain = relation.certain if relation.may else pairs
        if certain is not None:
            certain = reduce(without, doubtful, certain.intersect(pairs))
        ends = (source, sink)
        found.append(relation_of_pairs("flow", "value", ends, relation.array, pairs, certain))
    return found


def _surely_between(
    decided: Decided,
    write: StatementModel,
    ends: tuple[StatementModel, StatementModel],
    written: isl.Map,
    read: isl.Map,
) -> Iterator[isl.Map]:
    """Yield the pairs of a source and a sink between which a write happens if they do.

    Args:
        decided: What tests of unchanged data say.
        write: The statement that writes.
        ends: The source and the sink.
        written: The source's instances to those of the write that come later.
        read: The write's instances to those of the sink that come later.
    """
    source, sink = (decided.runs_as_well(end, write) for end in ends)
    if written.get_space().range().is_wrapping():
        return  # with cells beside the instances
    if source is not None:
        yield written.intersect(source).apply_range(read)
    if sink is not None:
        yield written.apply_range(read.intersect(sink.reverse()))


def without(pairs: isl.Map, gone: isl.Map) -> isl.Map:
    """Subtract; where both sides have many convex parts, one part at a time, joined in between."""
    if pairs.n_basic_map() * gone.n_basic_map() <= MOST_AT_ONCE:
        return pairs.subtract(gone)
    parts = gone.get_basic_map_list()
    for number in range(parts.n_basic_map()):
        pairs = pairs.subtract(isl.Map.from_basic_map(parts.get_at(number)))
        if pairs.n_basic_map() <= MOST_JOINED // 2:
            pairs = pairs.coalesce()
    return pairs


def uncovered_reads(groups: list[Group], orders: Orders) -> list[Uncovered]:
    """Return the reads that may see what was in a cell before the program ran."""
    found = []
    for read in groups:
        if read.is_write or read.last is not None:
            continue
        cells = read.all
        for write in groups:
            order = orders.of(write.statement, read.statement) if write.is_write else None
            if order is None:
                continue
            if write.exact is not None:
                cells = cells.subtract(order.reverse().apply_range(write.exact))
            as_well = orders.decided.runs_as_well(read.statement, write.statement)
            if write.may is not None and as_well is not None:
                earlier = order.reverse().intersect(as_well)
                cells = cells.subtract(earlier.apply_range(write.may))
        if not cells.is_empty():
            found.append(Uncovered(read.statement.number, read.array, cells.domain()))
    return found
