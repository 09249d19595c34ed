"""What to say about an operand that gets another value than before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import islpy as isl

from looptrans.analysis.dependence.accessed import tidied
from looptrans.analysis.dependence.sources import Operand, Sources, Target, to_instances
from looptrans.analysis.isl_model.model import StatementModel
from looptrans.analysis.isl_model.polyhedra import order_map
from looptrans.analysis.isl_model.relation import Relation
from looptrans.analysis.isl_model.witness import smallest_instance, smallest_pair
from looptrans.analysis.legality.comparison import Difference
from looptrans.analysis.legality.correspondence import Correspondence
from looptrans.analysis.legality.reversals import swapped
from looptrans.analysis.legality.verdicts import Explainer
from looptrans.ir.facts import DependenceKind
from looptrans.ir.verdict import Seen, Verdict, Witness

_SET = isl.dim_type.set


def most_telling(
    made: Correspondence, sources: Sources, differences: Iterable[Difference]
) -> Verdict | None:
    """Return the verdict of the most telling difference; None where there is none.

    A reversed flow comes first, then a reversed anti or output dependence, then a value that is
    not where it is read; an example that is sure comes before one that may occur.

    Args:
        made: The programs.
        sources: The sources of the operands before the step.
        differences: The operands that get other values.
    """
    found = []
    explanation = _Explanation(made, sources)
    for number, difference in enumerate(differences):
        rank, verdict = explanation.of(difference)
        if rank == 0 and verdict.decision == "illegal":
            return verdict
        found.append((verdict.decision != "illegal", rank, number, verdict))
    return min(found, key=lambda each: each[:3])[3] if found else None


@dataclass(frozen=True, slots=True)
class _Explanation:
    made: Correspondence
    sources: Sources

    @property
    def explainer(self) -> Explainer:
        return Explainer(self.made.before, self.made.context)

    def of(self, bad: Difference) -> tuple[int, Verdict]:
        """Return a verdict for a difference, and how telling it is (smaller is better)."""
        flow = self._flow_reversed(bad)
        if flow is not None:
            return int(bad.operand.is_old), flow
        clobbered = self._overwritten(bad)
        if clobbered is not None:
            return 1, clobbered
        return 2, self._storage(bad)

    def _flow_reversed(self, bad: Difference) -> Verdict | None:
        """Name the flow that is reversed: of an old value that is kept, two writes of one cell."""
        if bad.target is None or bad.operand.statement is None:
            return None
        pairs = self._between_instances(bad.pairs.reverse(), bad.target, bad.operand)
        source, sink = bad.target.statement, bad.operand.statement
        left = pairs.intersect(swapped(self.made, source.number, sink.number))
        if left.is_empty():
            return None
        whole = self.sources.flow(bad.operand)
        if bad.target.name in whole:
            every = whole[bad.target.name].reverse()
            pairs = self._between_instances(every, bad.target, bad.operand)
            left = left.intersect(pairs)
            if left.is_empty():
                return None
        may = bad.operand.is_may or bad.target.is_may
        relation = (
            self._memory("output", bad.target, bad.operand, may)
            if bad.operand.is_old
            else Relation(
                "flow", "value", source.number, sink.number, bad.operand.array, pairs, may
            )
        )
        return self.explainer.of_pairs(relation, left)

    def _between_instances(
        self, points: isl.Map, source: Target | Operand, sink: Target | Operand
    ) -> isl.Map:
        """Turn pairs of points into pairs of statement instances."""
        return (
            to_instances(self.made.before, source)
            .reverse()
            .apply_range(points)
            .apply_range(to_instances(self.made.before, sink))
        )

    def _overwritten(self, bad: Difference) -> Verdict | None:
        """Name the anti or output dependence whose reversal gives an operand another source."""
        for now, seen in bad.seen:
            wrong = seen.intersect_domain(bad.pairs.domain())
            for kind, pairs, ends in self._disturbed(bad, now, wrong):
                source, sink = ends
                assert source.statement is not None and sink.statement is not None
                before = self._between_instances(pairs, source, sink)
                ordered = self._ordered_before(source.statement, sink.statement)
                before = before.intersect(ordered)
                numbers = source.statement.number, sink.statement.number
                left = before.intersect(swapped(self.made, *numbers))
                if not left.is_empty() and source.array == sink.array:
                    may = source.is_may or sink.is_may or bad.operand.is_may
                    relation = self._memory(kind, source, sink, may)
                    return self.explainer.of_pairs(relation, left)
        return None

    def _disturbed(
        self, bad: Difference, now: Target, wrong: isl.Map
    ) -> Iterator[tuple[DependenceKind, isl.Map, tuple[Operand | Target, Target]]]:
        """Yield what may be reversed.

        The write that is seen now came after the read, or before the write to be seen.
        """
        if bad.operand.statement is not None:
            yield "output" if bad.operand.is_old else "anti", wrong, (bad.operand, now)
        if bad.target is not None:
            pairs = wrong.reverse().apply_range(bad.pairs)
            yield "output", pairs, (now, bad.target)

    def _ordered_before(self, first: StatementModel, second: StatementModel) -> isl.Map:
        return order_map(self.made.before, first, second)

    def _memory(
        self, kind: DependenceKind, source: Operand | Target, sink: Operand | Target, may: bool
    ) -> Relation:
        """Return the whole dependence in memory between two accesses."""
        assert source.statement is not None and sink.statement is not None
        same = source.touched.apply_range(sink.touched.reverse())
        pairs = self._between_instances(same, source, sink)
        pairs = pairs.intersect(self._ordered_before(source.statement, sink.statement))
        numbers = source.statement.number, sink.statement.number
        return Relation(kind, "memory", *numbers, source.array, tidied(pairs), may)

    def _storage(self, bad: Difference) -> Verdict:
        """Show a read, the write it saw and the write it would see now."""
        model = self.made.before
        source = None if bad.target is None else bad.target.statement
        sink = bad.operand.statement
        ends = (source or sink), (sink or source)
        if ends[0] is None or ends[1] is None:
            return self._overwritten_at_end(bad)
        pairs = self._shown(bad)
        witness = smallest_pair(model, ends[0], ends[1], pairs, self.made.context, "storage")
        if witness is None:
            return Verdict("unknown", reason="isl finds no example of a changed value")
        if source is None:
            witness = Witness("storage", witness.parameters, (), witness.sink)
        if sink is None:
            witness = Witness("storage", witness.parameters, witness.source, ())
        may = bad.operand.is_may or (bad.target is not None and bad.target.is_may)
        array = bad.operand.array
        cell: tuple[int, ...] = ()
        if source is not None and sink is not None:
            relation = Relation("flow", "value", source.number, sink.number, array, pairs, may)
            cell = self.explainer.cell(source, sink, relation, witness)
        what = f"the last value of {array}" if sink is None else f"the value {sink.label} reads"
        return Verdict(
            "unknown" if may else "illegal",
            witness,
            f"{what} is another one than before",
            source="" if source is None else source.label,
            sink="" if sink is None else sink.label,
            array=array,
            cell=cell,
            now=self._seen_now(bad, witness),
        )

    def _overwritten_at_end(self, bad: Difference) -> Verdict:
        """Show sizes at which an array that kept its first value ends with another one."""
        model = self.made.before
        names = list(model.parameters)
        cells = bad.pairs.domain().intersect_params(self.made.context)
        signless = [name in model.sizes for name in names]
        values = smallest_instance(
            model, cells, [*signless, *(True for _ in range(cells.dim(_SET)))]
        )
        array = bad.operand.array
        if values is None:
            return Verdict("unknown", reason=f"isl finds no example of a changed {array}")
        sizes = tuple(zip(names, values[: len(names)], strict=True))
        witness = Witness("storage", sizes, (), ())
        return Verdict(
            "illegal",
            witness,
            f"the last value of {array} is another one than before",
            array=array,
            cell=tuple(values[len(names) :]),
            now=self._seen_now(bad, witness),
        )

    def _shown(self, bad: Difference) -> isl.Map:
        """Return the pairs to choose an example from: a write and a read, or one of them twice."""
        operand: Operand | Target = bad.operand
        if bad.target is None or bad.operand.statement is None:
            only = bad.target or operand
            points = bad.pairs.domain() if bad.target is None else bad.pairs.range()
            twice = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
            return self._between_instances(twice, only, only)
        return self._between_instances(bad.pairs.reverse(), bad.target, operand)

    def _seen_now(self, bad: Difference, witness: Witness) -> Seen | None:
        """Return the write whose value the example's read would get."""
        ends = dict(witness.parameters)
        chosen = witness.sink if bad.operand.statement is not None else ()
        for name, seen in sorted(bad.now.items()):
            points = seen.intersect_domain(bad.pairs.domain())
            for number, parameter in enumerate(self.made.before.parameters):
                if parameter in ends:
                    value = isl.Val(ends[parameter])
                    points = points.fix_val(isl.dim_type.param, number, value)
            for number, (_, coordinate) in enumerate(chosen):
                points = points.fix_val(isl.dim_type.in_, number, isl.Val(coordinate))
            if points.is_empty():
                continue
            statement = bad.now_statements[name]
            point = points.range().sample_point()
            values = [
                int(point.get_coordinate_val(isl.dim_type.set, n).to_python())
                for n in range(statement.depth)
            ]
            variables = [bound.variable for bound in statement.bounds]
            return Seen(statement.label, tuple(zip(variables, values, strict=True)))
        return Seen(None)
