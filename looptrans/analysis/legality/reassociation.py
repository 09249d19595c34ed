"""Whether a reduction that was split still joins the same values, each exactly once.

The updates `cell = cell op x` of a reduction are a set of contributions to whoever reads the cell.
Split, they go into partial cells that start with the operator's identity, and each partial cell is
joined to the cell. With an associative and commutative operator the two give one value if, for
every read of the cell, the contributions that reach it directly before reach it through exactly
one partial cell afterwards, and the value they are joined to is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import islpy as isl

from looptrans.analysis.dependence.accessed import tidied
from looptrans.analysis.dependence.last_writers import without
from looptrans.analysis.dependence.sources import Operand, Sources, Target
from looptrans.analysis.legality.comparison import Comparison, identity_map
from looptrans.analysis.legality.correspondence import (
    Correspondence,
    NotAStep,
    check_instances,
    check_statements,
    correspondence,
)
from looptrans.analysis.legality.explanation import most_telling
from looptrans.analysis.legality.judging import judged
from looptrans.analysis.legality.races import any_order, judge_races
from looptrans.analysis.legality.spare import check_extents, check_spare
from looptrans.ir.creation import creation_of, first_value
from looptrans.ir.monoids import IDENTITIES
from looptrans.ir.program import Assign, Program
from looptrans.ir.step import Images
from looptrans.ir.value import Binary, Call, Const, Read, Unary, Value, walk_value
from looptrans.ir.verdict import Certificate, Verdict
from looptrans.ir.walk import live_out

CONTRIBUTIONS_LAW = "every contribution reaches every read, through exactly one partial result"


def reduction_verdict(
    before: Program,
    after: Program,
    images: Images,
    partials: Mapping[str, str],
    operators: Mapping[str, tuple[str, float]],
) -> Verdict:
    """Judge a reduction that was split into partial results; see `transforms.judging.check`.

    Args:
        before: The program before the step.
        after: The program afterwards.
        images: What stands for what; the statements that set a partial result to the identity and
            those that join it to the cell are not in it.
        partials: The array of partial results to the array they are joined to.
        operators: For each array joined to, the operator's name and its identity.
    """
    new = frozenset((*partials, *partials.values()))
    relate = partial(correspondence, images=images, new=new)
    return judged(_Judge(dict(partials), dict(operators)), relate, before, after)


@dataclass(frozen=True, slots=True)
class _Judge:
    partials: dict[str, str]
    operators: dict[str, tuple[str, float]]

    def __call__(self, made: Correspondence) -> Verdict:
        for name, identity in self.operators.values():
            if IDENTITIES.get(name) != identity:
                raise NotAStep(f"{identity} is not the identity of {name}")
        if not made.is_affine:
            raise NotAStep("contributions are not followed through opaque terms")
        if check_instances(made, bijective=False):
            raise NotAStep("the updates run where they did not")
        check_statements(made, same_cells=False)
        check_extents(made)
        _Split(made, self.partials, self.operators).check()
        comparison = Comparison(made, Sources.of(made.before, "b"), Sources.of(made.after, "a"))
        comparison.without = frozenset(self.partials.values())
        worst = most_telling(made, comparison.before, comparison.differences())
        if worst is not None:
            return worst
        check_spare(made, [])
        races = judge_races(made.after, made.context)
        if races.decision != "legal":
            return races
        certificates = [Certificate("storage", CONTRIBUTIONS_LAW, "legal", "by isl")]
        certificates += [
            any_order(f"values joined by {name} may be joined in any order", name)
            for name in sorted({name for name, _ in self.operators.values()})
        ]
        return Verdict("legal", certificates=tuple(certificates))


@dataclass(frozen=True, slots=True)
class _Reach:
    """What reaches the points of an operand.

    Attributes:
        updates: The updates, by target.
        base: The write that they are joined to, by target.
        first: The points where they are joined to first values, with the cells.
    """

    updates: dict[str, isl.Map]
    base: dict[str, isl.Map]
    first: isl.Map


@dataclass(frozen=True, slots=True)
class _Split:
    made: Correspondence
    partials: dict[str, str]
    operators: dict[str, tuple[str, float]]

    def check(self) -> None:
        """Check the contributions to every read of a reduced array.

        Raises:
            NotAStep: One is lost, doubled or joined to something else.
        """
        before = Sources.of(self.made.before, "b")
        after = Sources.of(self.made.after, "a")
        self._check_forms(before, after)
        comparison = Comparison(self.made, before, after)
        for array in sorted(set(self.partials.values())):
            for one, other, stands in self._readers(comparison, array):
                self._check_reader(comparison, one, other, stands)

    def _check_forms(self, before: Sources, after: Sources) -> None:
        reduced = set(self.partials.values())
        for target in after.targets:
            pair = self.made.of_after(target.statement.number)
            if target.array in self.partials and pair is not None:
                if _written(pair.before.place.node) != self.partials[target.array]:
                    raise NotAStep(f"{pair.after.label} updates another reduction than before")
                self._require_update(target)
                for other in before.targets:
                    if other.statement is pair.before and other.array in reduced:
                        self._require_update(other)
            elif target.array in self.partials:
                self._check_identity(target)
            elif target.array in reduced and pair is None:
                self._require_update(target)

    def _require_update(self, target: Target) -> None:
        if not self._is_update(target):
            name, _ = self.operators[self.partials.get(target.array, target.array)]
            raise NotAStep(f"{target.statement.label} is no update by {name}")

    def _is_update(self, target: Target) -> bool:
        """Tell whether a write is `cell = cell op x`; any other begins a new value.

        That one may be made from the old value is then for who reads it, as by any statement.
        """
        array = self.partials.get(target.array, target.array)
        name, _ = self.operators[array]
        node = target.statement.place.node
        assert isinstance(node, Assign)
        return updates_by(node, name)

    def _check_identity(self, target: Target) -> None:
        node = target.statement.place.node
        assert isinstance(node, Assign)
        name, identity = self.operators[self.partials[target.array]]
        if _constant(node.values[0]) != identity:
            raise NotAStep(f"{target.statement.label} does not set the identity of {name}")

    def _readers(
        self, comparison: Comparison, array: str
    ) -> list[tuple[Operand, Operand, isl.Map]]:
        """Return who reads a reduced array other than its updates, on both sides."""
        found = []
        for pair in self.made.pairs:
            theirs = [o for o in comparison.before.operands if o.statement is pair.before]
            mine = [o for o in comparison.after.operands if o.statement is pair.after]
            if len(theirs) != len(mine):
                raise NotAStep(f"{pair.after.label} has other operands than before")
            for one, other in zip(theirs, mine, strict=True):
                node = pair.before.place.node
                if one.array != array:
                    continue
                name, _ = self.operators[array]
                if isinstance(node, Assign) and _written(node) == array and updates_by(node, name):
                    continue
                if other.array != array:
                    raise NotAStep(f"{pair.after.label} reads {other.array}")
                found.append((one, other, comparison.lifted(pair, one, other)))
        if array in live_out(self.made.before.program):
            one, other = comparison.before.at_end(array), comparison.after.at_end(array)
            rank = one.touched.dim(isl.dim_type.in_)
            found.append((one, other, identity_map(self.made, rank, other.name, one.name)))
        return found

    def _check_reader(
        self, comparison: Comparison, one: Operand, other: Operand, stands: isl.Map
    ) -> None:
        """Compare what reaches a read before with what reaches it through partial results."""
        array = one.array
        expected = self._reach(comparison.before, one)
        actual = self._reach(comparison.after, other)
        back = stands.reverse().intersect_params(self.made.context)
        through = self._through_partials(comparison.after, actual)
        for name, source in expected.updates.items():
            left = source.intersect_params(self.made.context)
            found = left.subtract(left)
            for later, reached in through.items():
                counterpart = comparison.counterpart(later)
                if counterpart is not None and counterpart[0].name == name:
                    found = found.union(back.apply_range(reached).apply_range(counterpart[1]))
            if not left.is_equal(found.intersect_params(self.made.context)):
                raise NotAStep(f"the contributions to {array} are not those of before")
        if not expected.updates and any(not reached.is_empty() for reached in through.values()):
            raise NotAStep(f"{array} gets contributions that it did not get")
        for name, source in expected.base.items():
            left = source.intersect_params(self.made.context)
            for later, reached in actual.base.items():
                counterpart = comparison.counterpart(later)
                if counterpart is not None and counterpart[0].name == name:
                    left = left.subtract(back.apply_range(reached).apply_range(counterpart[1]))
            if not left.is_empty():
                raise NotAStep(f"{array} is joined to another value than before")
        first = expected.first.set_tuple_name(isl.dim_type.out, "cell")
        now = actual.first.set_tuple_name(isl.dim_type.out, "cell")
        first = first.intersect_params(self.made.context)
        if first.is_empty():
            return
        left = first.subtract(back.apply_range(now))
        if not left.is_empty() or not comparison.starts_alike(array):
            raise NotAStep(f"{array} is joined to another first value than before")

    def _through_partials(self, sources: Sources, reach: _Reach) -> dict[str, isl.Map]:
        """Follow the joining updates to the contributions in their partial results."""
        total: dict[str, isl.Map] = {}
        for name, joined in reach.updates.items():
            target = next(t for t in sources.targets if t.name == name)
            if self.made.of_after(target.statement.number) is not None:
                total[name] = joined
                continue
            operands = [
                o
                for o in sources.operands
                if o.statement is target.statement and o.array in self.partials
            ]
            joins = _joined(target.statement.place.node)
            if not isinstance(joins, Read) or joins.access.array not in self.partials:
                raise NotAStep(f"{target.statement.label} does not join a partial result as it is")
            if len(operands) != 1 or operands[0].touched.dim(isl.dim_type.in_) != joined.dim(
                isl.dim_type.out
            ):
                raise NotAStep(f"{target.statement.label} does not join one partial result")
            operand = operands[0]
            at = joined.set_tuple_name(isl.dim_type.out, operand.name)
            inner = self._reach(sources, operand)
            self._check_start(sources, operand, inner)
            for each, contributions in inner.updates.items():
                # [read -> contribution] -> the partial result it came through
                came = at.reverse().range_product(contributions).reverse()
                if not came.intersect_params(self.made.context).is_single_valued():
                    raise NotAStep(f"a contribution to {target.array} is joined twice")
                found = at.apply_range(contributions)
                if each in total:
                    raise NotAStep(f"a contribution to {target.array} is joined twice")
                total[each] = found
        return total

    def _check_start(self, sources: Sources, operand: Operand, reach: _Reach) -> None:
        """Check that a partial result starts with the identity wherever it is joined."""
        name, identity = self.operators[self.partials[operand.array]]
        for base in reach.base:
            target = next(t for t in sources.targets if t.name == base)
            if self.made.of_after(target.statement.number) is not None:
                raise NotAStep(f"{operand.array} starts with {target.statement.label}")
        if reach.first.intersect_params(self.made.context).is_empty():
            return
        creation = creation_of(self.made.after.program, operand.array)
        if creation is None or _constant(first_value(creation)) != identity:
            raise NotAStep(f"{operand.array} does not start with the identity of {name}")

    def _reach(self, sources: Sources, operand: Operand) -> _Reach:
        own = [t for t in sources.targets if t.array == operand.array]
        updates = [t for t in own if self._is_update(t)]
        resets = [t for t in own if t not in updates]
        reach: dict[str, isl.Map] = {}
        base: dict[str, isl.Map] = {}
        earlier = {t.name: sources.earlier(t, operand) for t in own}
        rest = operand.touched.domain()
        for target in own:
            pairs = earlier[target.name]
            for reset in resets:
                again = sources.rewritten(target, reset).apply_range(earlier[reset.name])
                if not again.is_empty():
                    pairs = tidied(without(pairs, again))
            if pairs.is_empty():
                continue
            if target in resets:
                base[target.name] = pairs.reverse()
                rest = rest.subtract(pairs.range())
            else:
                reach[target.name] = pairs.reverse()
        return _Reach(reach, base, operand.touched.intersect_domain(rest))


def updates_by(node: Assign, operator: str) -> bool:
    """Tell whether a statement is `cell = cell op x` with an x that does not read the array."""
    if len(node.targets) != 1 or len(node.values) != 1:
        return False
    target, value = node.targets[0], node.values[0]
    match value:
        case Binary(op, left, right) if op == operator:
            parts = [left, right]
        case Binary("-", left, right) if operator == "+" and left == Read(target):
            parts = [left, right]
        case Call(function, arguments) if function == operator and len(arguments) > 1:
            parts = list(arguments)
        case _:
            return False
    others = [part for part in parts if part != Read(target)]
    return len(others) == len(parts) - 1 and not any(_reads(o, target.array) for o in others)


def _joined(node: object) -> Value | None:
    """Return the x of an update `cell = cell op x`; None where there are several."""
    assert isinstance(node, Assign)
    match node.values[0]:
        case Binary("+" | "*", left, right):
            parts = [left, right]
        case Call(_, arguments):
            parts = list(arguments)
        case _:
            return None
    others = [part for part in parts if part != Read(node.targets[0])]
    return others[0] if len(others) == 1 else None


def _reads(value: Value, array: str) -> bool:
    return any(isinstance(v, Read) and v.access.array == array for v in walk_value(value))


def _written(node: object) -> str:
    assert isinstance(node, Assign)
    return node.targets[0].array


def _constant(value: Value | None) -> float | None:
    match value:
        case Const(number):
            return float(number)
        case Unary("-", Const(number)):
            return -float(number)
        case _:
            return None
