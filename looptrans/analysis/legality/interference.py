"""Whether a reordering brings another write between a read and the write whose value it gets.

The cells are the same before and afterwards, so nothing about the program afterwards has to be
known but in which order its instances run. A read keeps its source if the source still runs first
and no other write of the cell has come in between:

    source  --- another write of the cell? --->  read
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import islpy as isl

from looptrans.analysis.dependence.sources import Operand, Sources, Target, to_instances
from looptrans.analysis.legality.comparison import Difference
from looptrans.analysis.legality.correspondence import Correspondence
from looptrans.analysis.legality.observed import unobserved
from looptrans.analysis.legality.reversals import swapped
from looptrans.ir.walk import live_out


def interferences(made: Correspondence, sources: Sources) -> Iterator[Difference]:
    """Yield the operands, and what can be seen at the end, that get other values.

    Args:
        made: The programs, with the same private copies.
        sources: The sources of the operands before the step.
    """
    search = _Search(made, sources)
    ends = live_out(made.before.program)
    unseen = unobserved(sources, ends)
    for operand in (*sources.operands, *map(sources.at_end, ends)):
        if operand.name not in unseen:
            yield from search.of(operand)


@dataclass(slots=True)
class _Search:
    made: Correspondence
    sources: Sources
    _after: dict[tuple[str, str], isl.Map] = field(default_factory=dict)

    def of(self, operand: Operand) -> Iterator[Difference]:
        targets = [t for t in self.sources.targets if t.array == operand.array]
        flow = self.sources.flow(operand)
        first = self.sources.initial(operand).intersect_params(self.made.context)
        for target in targets:
            if target.name not in flow:
                continue
            pairs = flow[target.name].intersect_params(self.made.context)
            if operand.statement is not None:
                late = self._first(target, operand).intersect(pairs.reverse())
                if not late.is_empty():
                    yield Difference(operand, target, late.reverse(), [])
            for other in targets:
                between = self._in_order(target, other)
                if operand.statement is not None:
                    between = between.apply_range(self._in_order(other, operand))
                    hit = between.intersect(pairs.reverse())
                else:
                    hit = pairs.reverse().intersect_domain(between.domain())
                if not hit.is_empty():
                    seen = other.touched.apply_range(operand.touched.reverse()).reverse()
                    yield Difference(operand, target, hit.reverse(), [(other, seen)])
        if operand.statement is None:
            return
        for other in targets:
            early = self._in_order(other, operand)
            left = first.intersect_domain(early.range())
            if not left.is_empty():
                yield Difference(operand, None, left, [(other, early.reverse())])

    def _in_order(self, source: Target, sink: Target | Operand) -> isl.Map:
        """Map the points of a write to those with the same cell that run later afterwards."""
        key = (source.name, sink.name)
        if key not in self._after:
            self._after[key] = self._ordered(sink, source).reverse()
        return self._after[key]

    def _first(self, source: Target, sink: Operand) -> isl.Map:
        """Map the points of a write to those of a read of the cell that run first afterwards."""
        return self._ordered(source, sink)

    def _ordered(self, source: Target | Operand, sink: Target | Operand) -> isl.Map:
        """Map points to those with the same cell whose instances run before theirs afterwards."""
        assert source.statement is not None and sink.statement is not None
        same = source.touched.apply_range(sink.touched.reverse())
        if same.is_empty():
            return same
        order = swapped(self.made, source.statement.number, sink.statement.number)
        if source.statement is sink.statement:
            order = order.subtract(isl.Map.identity(order.get_space()))
        one = to_instances(self.made.before, source)
        other = to_instances(self.made.before, sink)
        return same.intersect(one.apply_range(order).apply_range(other.reverse()))
