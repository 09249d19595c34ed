"""What statements access of one array, and which of their instances run before which."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import islpy as isl

from looptrans.analysis.dependence.decided import Decided
from looptrans.analysis.isl_model.constraints import whatever_the_data
from looptrans.analysis.isl_model.formula import FALSE
from looptrans.analysis.isl_model.model import AccessModel, Model, StatementModel
from looptrans.analysis.isl_model.polyhedra import access_map, access_text, before, order_map
from looptrans.analysis.opaque_terms.killing import Killer, killer
from looptrans.ir.value import Whole

_IN, _OUT = isl.dim_type.in_, isl.dim_type.out
_Texts: TypeAlias = tuple[tuple[str, bool], ...]
_PairsKey: TypeAlias = tuple[_Texts, _Texts, tuple[str, str], int]
MOST_JOINED = 60


@dataclass(slots=True)
class Group:
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

    def without_may(self) -> Group:
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


def groups_of(model: Model, array: str, *, apart: bool = False) -> list[Group]:
    """Gather the accesses to an array, reads and writes of each statement by themselves.

    Args:
        model: The program.
        array: The array.
        apart: Whether reads of a statement before which different writes come are groups of
            their own.
    """
    accesses = [access for access in model.accesses if access.array == array]
    writes = [access for access in accesses if access.is_write]
    number = next(n for n, a in enumerate(model.program.arrays) if a.name == array)
    kept = _varying_dimensions(accesses)
    groups: dict[tuple[int, bool, Killer | None], Group] = {}
    for access in accesses:
        last = None if access.is_write else killer(access, writes)
        key = (access.statement.number, access.is_write, last if apart else None)
        single = not access.generators and not any(
            isinstance(access.subscripts[dimension], Whole) for dimension in kept
        )
        touched = access_map(model, access, number)
        if key not in groups:
            groups[key] = Group(access.statement, array, access.is_write, single, last=last)
        else:
            groups[key].single_cell = False
            if groups[key].last != last:
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


def layers_of(model: Model, array: str, groups: list[Group]) -> list[list[Group]]:
    """Return groups in layers, where a statement reads in one way before which a write comes.

        if c: A[i] = 1          what A[i] gets is told by what stands there, what A[n] gets is not;
        else: A[i] = 2          were both one, A[i] would be taken to see earlier iterations too
        s = A[i] + A[n]

    Every layer has the writes. Where all writes are certain, sets tell as much of all at once.

    Args:
        model: The program.
        array: The array.
        groups: The accesses to it.
    """
    if not any(group.is_write and group.may is not None for group in groups):
        return [groups]
    apart = groups_of(model, array, apart=True)
    if len(apart) == len(groups):
        return [groups]
    writes = [group for group in apart if group.is_write]
    layers: list[list[Group]] = []
    for read in apart:
        if read.is_write:
            continue
        number = read.statement.number
        taken = (all(number != each.statement.number for each in layer) for layer in layers)
        free = next((n for n, is_free in enumerate(taken) if is_free), None)
        if free is None:
            layers.append([read])
        else:
            layers[free].append(read)
    return [[*writes, *layer] for layer in layers]


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

    def pairs_of(self, source: Group, sink: Group, levels: int) -> isl.Map | None:
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

    def within(self, source: Group, sink: Group, levels: int) -> isl.Map | None:
        """Return the order of two in one iteration of so many loops; None if there is none."""
        if source.statement.shared_depth(sink.statement) < levels:
            return None
        order = self.of(source.statement, sink.statement)
        return None if order is None else in_one_iteration(order, levels)

    def points_of(self, source: Group, sink: Group, levels: int) -> isl.Map | None:
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


def in_one_iteration(pairs: isl.Map, levels: int) -> isl.Map:
    """Return the pairs of instances that are in one iteration of the outermost loops."""
    for level in range(levels):
        pairs = pairs.equate(_IN, level, _OUT, level)
    return pairs


def tidied(pairs: isl.Map) -> isl.Map:
    """Join convex parts where that is cheap."""
    return pairs.coalesce() if 1 < pairs.n_basic_map() <= MOST_JOINED else pairs
