"""Operand by operand: does it still get its value from the same write?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import islpy as isl

from looptrans.analysis.dependence.sources import Operand, Sources, Target
from looptrans.analysis.isl_model.model import StatementModel
from looptrans.analysis.legality.correspondence import Correspondence, NotAStep, Pair
from looptrans.analysis.legality.observed import unobserved
from looptrans.ir.creation import creation_of, first_value
from looptrans.ir.walk import live_out


@dataclass(frozen=True, slots=True)
class Difference:
    """Operand points of `before` with the writes they no longer get their values from.

    Attributes:
        operand: The operand.
        target: The write; None for first values.
        pairs: Points of the operand to those of the write, or to cells.
        seen: The writes of `before` whose values it may get instead, with the points.
        now: Points of the operand to those of the writes of `after` they get their values from.
        now_statements: The statements of those writes.
    """

    operand: Operand
    target: Target | None
    pairs: isl.Map
    seen: list[tuple[Target, isl.Map]]
    now: dict[str, isl.Map] = field(default_factory=dict)
    now_statements: dict[str, StatementModel] = field(default_factory=dict)


@dataclass(slots=True)
class Comparison:
    """Two programs and the sources of their operands.

    Attributes:
        made: The programs and what stands for what.
        before: The sources of the program before the step.
        after: Those afterwards.
        without: Arrays whose values are compared elsewhere.
    """

    made: Correspondence
    before: Sources
    after: Sources
    without: frozenset[str] = frozenset()

    def differences(self) -> Iterator[Difference]:
        """Yield the operands, and what can be seen at the end, that get other values.

        Raises:
            NotAStep: The operands of two statements cannot be compared.
        """
        unseen = unobserved(self.before, live_out(self.made.before.program))
        for pair in self.made.pairs:
            theirs = [o for o in self.before.operands if o.statement is pair.before]
            mine = [o for o in self.after.operands if o.statement is pair.after]
            if [o.is_old for o in theirs] != [o.is_old for o in mine]:
                raise NotAStep(f"{pair.after.label} has other operands than before")
            for one, other in zip(theirs, mine, strict=True):
                if one.array in self.without or one.name in unseen:
                    continue
                yield from self._compared(one, other, self.lifted(pair, one, other))
        for array in live_out(self.made.before.program):
            if array in self.without:
                continue
            one, other = self.before.at_end(array), self.after.at_end(array)
            if len(self.made.before.shapes[array]) != len(self.made.after.shapes[array]):
                raise NotAStep(f"{array} has other dimensions than before")
            rank = one.touched.dim(isl.dim_type.in_)
            same = identity_map(self.made, rank, other.name, one.name)
            yield from self._compared(one, other, same)

    def lifted(self, pair: Pair, one: Operand | Target, other: Operand | Target) -> isl.Map:
        """Map points of an access afterwards to the points they stand for."""
        more = one.touched.dim(isl.dim_type.in_) - pair.before.depth
        if more != other.touched.dim(isl.dim_type.in_) - pair.after.depth:
            raise NotAStep(f"{pair.after.label} has other operands than before")
        same = identity_map(self.made, more, "", "")
        whole = pair.instances.flat_product(same)
        return whole.set_tuple_name(isl.dim_type.in_, other.name).set_tuple_name(
            isl.dim_type.out, one.name
        )

    def _compared(self, one: Operand, other: Operand, stands: isl.Map) -> Iterator[Difference]:
        expected, first = self._resolved(self.before, one, self.made.removed)
        actual, first_now = self._resolved(self.after, other, self.made.added)
        back = stands.reverse().intersect_params(self.made.context)
        now = {name: back.apply_range(source) for name, source in actual.items()}
        for name, source in expected.items():
            target = target_named(self.before, name)
            left = source.intersect_params(self.made.context)
            for later, reached in now.items():
                counterpart = self.counterpart(later)
                if counterpart is not None and counterpart[0] is target:
                    left = left.subtract(reached.apply_range(counterpart[1]))
            if not left.is_empty():
                yield self._difference(one, target, left, now)
        for array, cells in first.items():
            left = cells.intersect_params(self.made.context)
            for later, theirs in first_now.items():
                alike = later == array or self.made.created
                if alike and self.starts_constant(array, later):
                    left = left.subtract_domain(back.apply_range(theirs).domain())
                elif later == array and self.starts_alike(array):
                    left = left.subtract(back.apply_range(theirs))
            if not left.is_empty():
                yield self._difference(one, None, left, now)

    def _difference(
        self, operand: Operand, target: Target | None, pairs: isl.Map, now: dict[str, isl.Map]
    ) -> Difference:
        counterparts = {name: self.counterpart(name) for name in sorted(now)}
        seen = [
            (known[0], now[name].apply_range(known[1]))
            for name, known in counterparts.items()
            if known is not None
        ]
        statements = {name: target_named(self.after, name).statement for name in now}
        return Difference(operand, target, pairs, seen, now, statements)

    def starts_alike(self, array: str) -> bool:
        """Tell whether an array has the same first values in both programs."""
        one, other = self.made.before, self.made.after
        private = any(a.private for m in (one, other) for a in m.accesses if a.array == array)
        roles = [model.program.array(array).role for model in (one, other)]
        same = creation_of(one.program, array) == creation_of(other.program, array)
        return not private and roles[0] == roles[1] and same

    def starts_constant(self, array: str, later: str) -> bool:
        """Tell whether all cells of an array and of one afterwards start with one same value."""
        found = []
        for model, name in ((self.made.before, array), (self.made.after, later)):
            if any(a.private for a in model.accesses if a.array == name):
                return False
            creation = creation_of(model.program, name)
            value = None if creation is None else first_value(creation)
            found.append((value, model.program.array(name).element))
        return found[0][0] is not None and found[0] == found[1]

    def counterpart(self, name: str) -> tuple[Target, isl.Map] | None:
        """Return the write before that a write afterwards stands for; None for a new one."""
        target = target_named(self.after, name)
        pair = self.made.of_after(target.statement.number)
        if pair is None:
            return None
        place = _targets(self.after, pair.after).index(target)
        others = _targets(self.before, pair.before)
        if place >= len(others):
            raise NotAStep(f"{pair.after.label} has other targets than before")
        return others[place], self.lifted(pair, others[place], target)

    def _resolved(
        self, sources: Sources, operand: Operand, copies: list[StatementModel]
    ) -> tuple[dict[str, isl.Map], dict[str, isl.Map]]:
        """Follow the sources of an operand through copies.

        Returns:
            Its sources by target, and the first values it may get by array, with their cells.
        """
        points = operand.touched.domain()
        same = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
        reached = {operand.name: same}
        written: dict[str, isl.Map] = {}
        first: dict[str, isl.Map] = {}
        inner = {target.name: _copied(sources, target) for target in _of(sources, copies)}
        for name, way in self._through(sources, operand, inner).items():
            _join(reached, name, way)
        for at in (operand, *inner.values()):
            if at.name not in reached:
                continue
            for name, source in sources.flow(at).items():
                if name not in inner:
                    _join(written, name, reached[at.name].apply_range(source))
            cells = reached[at.name].apply_range(sources.initial(at))
            _join(first, at.array, cells.set_tuple_name(isl.dim_type.out, "cell"))
        return written, first

    def _through(
        self, sources: Sources, operand: Operand, inner: dict[str, Operand]
    ) -> dict[str, isl.Map]:
        """Map the points of an operand to the points of all copies its value comes through."""
        found: dict[str, isl.Map] = {}
        latest: dict[str, isl.Map] = {}
        for name, source in sources.flow(operand).items():
            if name in inner:
                way = source.set_tuple_name(isl.dim_type.out, inner[name].name)
                _join(latest, inner[name].name, way)
        for _ in range(len(inner) + 1):
            if not latest:
                return found
            further: dict[str, isl.Map] = {}
            for copy in inner.values():
                if copy.name not in latest:
                    continue
                _join(found, copy.name, latest[copy.name])
                for name, source in sources.flow(copy).items():
                    if name in inner:
                        way = latest[copy.name].apply_range(source)
                        next_ = inner[name].name
                        _join(further, next_, way.set_tuple_name(isl.dim_type.out, next_))
            latest = further
        return self._around(sources, inner, found)

    def _around(
        self, sources: Sources, inner: dict[str, Operand], begun: dict[str, isl.Map]
    ) -> dict[str, isl.Map]:
        """Follow values that are copied around a loop, any number of times."""
        steps = isl.UnionMap(f"{sources.model.prefix}{{ }}")
        for copy in inner.values():
            for name, source in sources.flow(copy).items():
                if name in inner:
                    way = source.set_tuple_name(isl.dim_type.out, inner[name].name)
                    steps = steps.union(way.to_union_map())
        closure, exact = steps.intersect_params(self.made.context).transitive_closure()
        if not exact:
            raise NotAStep("a value is copied around a loop, and isl cannot follow it")
        found = dict(begun)
        for way in begun.values():
            further = way.to_union_map().apply_range(closure).get_map_list()
            for number in range(further.n_map()):
                each = further.get_at(number)
                _join(found, each.get_tuple_name(isl.dim_type.out), each)
        return found


def _join(into: dict[str, isl.Map], name: str, more: isl.Map) -> None:
    if not more.is_empty():
        into[name] = into[name].union(more) if name in into else more


def _of(sources: Sources, copies: list[StatementModel]) -> list[Target]:
    return [t for t in sources.targets if any(t.statement is copy for copy in copies)]


def _copied(sources: Sources, target: Target) -> Operand:
    """Return what a copy copies."""
    return next(o for o in sources.operands if o.statement is target.statement)


def identity_map(made: Correspondence, rank: int, left: str, right: str) -> isl.Map:
    """Map points of one tuple to the same points of another."""
    dims = ", ".join(f"y{number}" for number in range(rank))
    return isl.Map(f"{made.after.prefix}{{ {left}[{dims}] -> {right}[{dims}] }}")


def target_named(sources: Sources, name: str) -> Target:
    """Return the write whose points are called `name`."""
    return next(target for target in sources.targets if target.name == name)


def _targets(sources: Sources, statement: StatementModel) -> list[Target]:
    return [target for target in sources.targets if target.statement is statement]
