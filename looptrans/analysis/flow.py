"""Dependences of accesses that are affine, computed by isl.

Memory-based dependences are all pairs that touch one cell, one of them writing. Where they are
asked for, value-based flow is what remains of the flow pairs when those are taken out between which
the cell is written again; else, and where one instance writes many cells (a row), isl's dataflow
analysis finds the last writers cell by cell, which is quicker than finding all pairs first, but not
to be trusted with strides. An access that only the running program decides on (a *may* access)
overwrites nothing for certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeAlias

import islpy as isl

from looptrans.analysis.constraints import whatever_the_data
from looptrans.analysis.decided import Decided
from looptrans.analysis.formula import FALSE
from looptrans.analysis.killing import Killer, is_killed, killer
from looptrans.analysis.model import AccessModel, Model, StatementModel
from looptrans.analysis.polyhedra import (
    access_map,
    access_text,
    before,
    order_map,
    schedule_map,
    union_of,
)
from looptrans.analysis.relation import Relation, Uncovered
from looptrans.ir.facts import KINDS, Basis, DependenceKind
from looptrans.ir.value import Whole

_IN, _OUT = isl.dim_type.in_, isl.dim_type.out
_Texts: TypeAlias = tuple[tuple[str, bool], ...]
_PairsKey: TypeAlias = tuple[_Texts, _Texts, tuple[str, str], int]
MOST_JOINED = 60
MOST_AT_ONCE = 150
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
) -> tuple[list[Relation], list[Uncovered]]:
    """Find the dependences over arrays whose accesses have no opaque terms.

    Args:
        model: The program.
        arrays: The arrays.
        bases: `value` for last-writer flow, `memory` for all pairs on one cell.
        kinds: Which of those on one cell.
    """
    wanted = kinds if "memory" in bases else ()
    needed = {*wanted, *(_OF_WRITES if "value" in bases else ())}
    relations: list[Relation] = []
    uncovered: list[Uncovered] = []
    orders = Orders(model, Decided(model))
    rows: list[_Group] = []
    for array in arrays:
        groups = _groups(model, array)
        trusted = not any(_has_strides(group) for group in groups)
        # A write under a condition on data hides that of an earlier iteration only from what is
        # under the same one, which isl's dataflow analysis does not know.
        if "memory" not in bases and trusted and not any(g.may is not None for g in groups):
            rows += groups
            continue
        # What is not asked for need not be found: what a read gets is in an iteration of its own.
        levels = 0 if "memory" in bases else _levels(groups)
        memory = {kind: _memory(kind, groups, orders, levels) for kind in KINDS if kind in needed}
        relations += [relation for kind in wanted for relation in memory[kind].values()]
        if "value" not in bases:
            continue
        if all(group.single_cell for group in groups if group.is_write):
            relations += _last_writers(groups, memory["flow"], memory["output"], orders.decided)
            uncovered += _uncovered(groups, orders)
        elif trusted:
            rows += groups
        else:
            flow, output = (
                _memory(kind, groups, orders, levels, cells=True) for kind in _OF_WRITES
            )
            last = _last_writers(groups, flow, output, orders.decided)
            relations += map(_without_cells, last)
            uncovered += _uncovered(groups, orders)
    if rows:
        found, missing = _value_flow(model, rows, orders.decided)
        relations += found
        uncovered += missing
    return relations, uncovered


@dataclass(slots=True)
class _Group:
    """All reads, or all writes, of one array by one statement.

    Attributes:
        statement: The statement.
        array: The array.
        is_write: Whether they are writes.
        single_cell: Whether an instance touches one cell only.
        exact: What is accessed for certain.
        may: What only the running program decides on, or None.
        last: For reads, the write that comes before all of them in an iteration, if any.
        texts: What is accessed, written out, with whether only the running program decides on it.
    """

    statement: StatementModel
    array: str
    is_write: bool
    single_cell: bool
    exact: isl.Map | None = None
    may: isl.Map | None = None
    last: Killer | None = None
    texts: _Texts = ()

    def without_may(self) -> _Group:
        """Return what is accessed for certain, for a group that has such."""
        texts = tuple(text for text in self.texts if not text[1])
        return replace(self, may=None, texts=texts)

    @property
    def all(self) -> isl.Map:
        """Everything that may be accessed."""
        if self.exact is None:
            assert self.may is not None
            return self.may
        return self.exact if self.may is None else self.exact.union(self.may)


def _groups(model: Model, array: str) -> list[_Group]:
    accesses = [access for access in model.accesses if access.array == array]
    writes = [access for access in accesses if access.is_write]
    number = next(n for n, a in enumerate(model.program.arrays) if a.name == array)
    kept = _varying_dimensions(accesses)
    groups: dict[tuple[int, bool], _Group] = {}
    for access in accesses:
        key = (access.statement.number, access.is_write)
        single = not access.generators and not any(
            isinstance(access.subscripts[dimension], Whole) for dimension in kept
        )
        touched = access_map(model, access, number)
        if key not in groups:
            last = None if access.is_write else killer(access, writes)
            groups[key] = _Group(access.statement, array, access.is_write, single, last=last)
        else:
            groups[key].single_cell = False
            if groups[key].last != killer(access, writes):
                groups[key].last = None
        group = groups[key]
        group.texts += ((access_text(model, access), access.is_may),)
        if access.is_may:
            group.may = touched if group.may is None else group.may.union(touched)
            certain = whatever_the_data(access)
            if certain is None:
                continue
            touched = access_map(model, certain, number)
            group.texts += ((access_text(model, certain), False),)
            group.exact = touched if group.exact is None else group.exact.union(touched)
        else:
            group.exact = touched if group.exact is None else group.exact.union(touched)
    for group in groups.values():
        if group.may is not None and group.exact is not None:
            # A cell that is accessed in any case is, whatever a condition decides besides.
            rest = group.may.subtract(group.exact)
            group.may = None if rest.is_empty() else rest
    return list(groups.values())


def _varying_dimensions(accesses: list[AccessModel]) -> list[int]:
    """Return the dimensions that are not accessed as a whole by every access."""
    count = len(accesses[0].subscripts)
    return [
        d for d in range(count) if not all(isinstance(a.subscripts[d], Whole) for a in accesses)
    ]


@dataclass(slots=True)
class Orders:
    """Which instances of one statement run before which of another, made once and kept.

    Attributes:
        model: The program.
        decided: What tests of unchanged data say.
        made: The orders, by statements.
        pairs: The pairs on one cell, without names, by what is accessed and by the order.
    """

    model: Model
    decided: Decided
    made: dict[tuple[int, int], isl.Map | None] = field(default_factory=dict)
    pairs: dict[_PairsKey, isl.Map] = field(default_factory=dict)

    def of(self, first: StatementModel, second: StatementModel) -> isl.Map | None:
        """Map instances of the first to later ones of the second that may run as well.

        None if there are none.
        """
        key = (first.number, second.number)
        if key not in self.made:
            never = before(first, second, ("s", "t")) == FALSE
            self.made[key] = None if never else self._order(first, second)
        return self.made[key]

    def _order(self, first: StatementModel, second: StatementModel) -> isl.Map:
        order = order_map(self.model, first, second)
        return self.decided.without_impossible(order, first, second)

    def pairs_of(self, source: _Group, sink: _Group, levels: int) -> isl.Map | None:
        """Return the pairs that touch one cell, the first running earlier; None if never.

        Args:
            source: What runs earlier.
            sink: What runs later.
            levels: Both are to be in one iteration of so many of the outermost loops.
        """
        order = self.within(source, sink, levels)
        if order is None:
            return None
        # Scalars of one nest have the same pairs; only the statements' names differ.
        ends = source.statement, sink.statement
        way = before(*ends, ("s", "t")), self.decided.never_both(*ends)
        key = (source.texts, sink.texts, way, levels)
        if key not in self.pairs:
            found = tidied(source.all.apply_range(sink.all.reverse()).intersect(order))
            self.pairs[key] = found.reset_tuple_id(_IN).reset_tuple_id(_OUT)
        named = self.pairs[key].set_tuple_name(_IN, f"s{source.statement.number}")
        return named.set_tuple_name(_OUT, f"s{sink.statement.number}")

    def within(self, source: _Group, sink: _Group, levels: int) -> isl.Map | None:
        """Return the order of two in one iteration of so many loops; None if there is none."""
        if source.statement.shared_depth(sink.statement) < levels:
            return None
        order = self.of(source.statement, sink.statement)
        return None if order is None else _in_one_iteration(order, levels)

    def points_of(self, source: _Group, sink: _Group, levels: int) -> isl.Map | None:
        """Return the pairs that touch one cell, each end with the cell; None if never.

        Args:
            source: What runs earlier.
            sink: What runs later.
            levels: Both are to be in one iteration of so many of the outermost loops.
        """
        order = self.within(source, sink, levels)
        if order is None:
            return None
        same = isl.Map.identity(source.all.get_space().range().map_from_set())
        both = order.product(same).intersect_domain(source.all.wrap())
        return tidied(both.intersect_range(sink.all.wrap()))


def _memory(
    kind: DependenceKind,
    groups: list[_Group],
    orders: Orders,
    levels: int = 0,
    *,
    cells: bool = False,
) -> dict[tuple[int, int], Relation]:
    """Return the pairs of accesses to one cell, by source and sink statement.

    Args:
        kind: Which of the two writes.
        groups: The accesses of an array.
        orders: What runs before what.
        levels: Both ends are to be in one iteration of so many of the outermost loops.
        cells: Whether both ends are to have the cell beside them.
    """
    _, source_writes, sink_writes = next(row for row in _MEMORY if row[0] == kind)
    found = {}
    for source in groups:
        for sink in groups:
            if source.is_write == source_writes and sink.is_write == sink_writes:
                relation = _pairs(kind, source, sink, orders, levels, cells)
                if relation is not None:
                    found[source.statement.number, sink.statement.number] = relation
    return found


def _pairs(
    kind: DependenceKind, source: _Group, sink: _Group, orders: Orders, levels: int, cells: bool
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
    return _relation(kind, "memory", numbers, source.array, pairs, certain if may else pairs)


def _relation(
    kind: DependenceKind,
    basis: Basis,
    ends: tuple[int, int],
    array: str,
    pairs: isl.Map,
    certain: isl.Map | None,
) -> Relation:
    """Return a relation of pairs of which some, or all, or none are known to occur."""
    if certain is None or certain.is_empty():
        return Relation(kind, basis, *ends, array, pairs, may=True)
    if certain is pairs or pairs.is_subset(certain):
        return Relation(kind, basis, *ends, array, pairs, may=False)
    return Relation(kind, basis, *ends, array, pairs, may=True, certain=certain)


def _levels(groups: list[_Group]) -> int:
    """Return in one iteration of how many outermost loops every read gets what it gets."""
    reads = [group.last for group in groups if not group.is_write]
    return min((0 if last is None else last.levels for last in reads), default=0)


def _without_cells(relation: Relation) -> Relation:
    pairs = relation.pairs.factor_domain()
    certain = None if relation.certain is None else relation.certain.factor_domain()
    ends = relation.source, relation.sink
    known = certain if relation.may else pairs
    return _relation(relation.kind, relation.basis, ends, relation.array, pairs, known)


def _has_strides(group: _Group) -> bool:
    """Tell whether what is accessed is said with remainders or floor divisions.

    isl's dataflow analysis loses last writers among such, or fails.
    """
    parts = group.all.get_basic_map_list()
    return any(parts.get_at(n).dim(isl.dim_type.div) for n in range(parts.n_basic_map()))


def tidied(pairs: isl.Map) -> isl.Map:
    """Join convex parts where that is cheap."""
    return pairs.coalesce() if 1 < pairs.n_basic_map() <= MOST_JOINED else pairs


def _last_writers(
    groups: list[_Group],
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
        pairs = _in_one_iteration(relation.pairs, levels)
        doubtful: list[isl.Map] = []
        for write in writes:
            number = write.statement.number
            first, second = output.get((source, number)), flow.get((number, sink))
            if first is None or second is None:
                continue
            if write.statement.shared_depth(statements[sink]) < levels:
                continue
            written = _in_one_iteration(first.pairs, levels)
            read = _in_one_iteration(second.pairs, levels)
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
        found.append(_relation("flow", "value", ends, relation.array, pairs, certain))
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


def _in_one_iteration(pairs: isl.Map, levels: int) -> isl.Map:
    """Return the pairs of instances that are in one iteration of the outermost loops."""
    for level in range(levels):
        pairs = pairs.equate(_IN, level, _OUT, level)
    return pairs


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


def _uncovered(groups: list[_Group], orders: Orders) -> list[Uncovered]:
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


_Key = tuple[int, int, int]


def _value_flow(
    model: Model, groups: list[_Group], decided: Decided
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
            relations.append(_relation("flow", "value", (source, sink), array, pairs, sure))
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
