"""Whether the iterations of a loop may run in any order, and why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from looptrans.analysis.cycles.graph import loop_order
from looptrans.analysis.cycles.reductions import (
    Position,
    Reduction,
    inside,
    loop_level,
    reductions_of,
)
from looptrans.analysis.dependence.dependences import Analysis, Carried, analyse, dependence_fact
from looptrans.analysis.leaning import leaned_on
from looptrans.ir.facts import Basis, Dependence, LoopFacts, LoopVerdict
from looptrans.ir.program import Contract
from looptrans.ir.walk import live_out, written


def loop_facts(
    analysis: Analysis, *, assumptions: bool = True, witnesses: bool = True
) -> tuple[LoopFacts, ...]:
    """Give both verdicts for every loop, in textual order.

    Args:
        analysis: The dependences, of both bases.
        assumptions: Whether verdicts are to name the contracts they lean on.
        witnesses: Whether to find the smallest example of what makes a loop sequential.
    """
    facts = _facts(analysis, witnesses)
    contracts = analysis.program.contracts if assumptions else ()
    if not contracts:
        return facts
    judged: dict[tuple[Contract, ...], tuple[LoopFacts, ...]] = {}

    def under(kept: tuple[Contract, ...]) -> tuple[LoopFacts, ...]:
        if kept not in judged:
            judged[kept] = _facts(analyse(analysis.program, contracts=kept), witnesses=False)
        return judged[kept]

    def flow(number: int, kept: tuple[Contract, ...]) -> LoopVerdict:
        return under(kept)[number].flow

    def memory(number: int, kept: tuple[Contract, ...]) -> LoopVerdict:
        return under(kept)[number].memory

    return tuple(
        replace(
            fact,
            flow=_assuming(fact.flow, contracts, partial(flow, number)),
            memory=_assuming(fact.memory, contracts, partial(memory, number)),
        )
        for number, fact in enumerate(facts)
    )


def _assuming(
    verdict: LoopVerdict,
    contracts: tuple[Contract, ...],
    under: Callable[[tuple[Contract, ...]], LoopVerdict],
) -> LoopVerdict:
    """Name contracts that make the verdict what it is: so few that none can be left out."""
    needed = leaned_on(contracts, lambda kept: under(kept).decision == verdict.decision)
    return replace(verdict, assumptions=(*verdict.assumptions, *needed))


def _facts(analysis: Analysis, witnesses: bool) -> tuple[LoopFacts, ...]:
    found = []
    for position, loop in loop_order(analysis.program).items():
        judge = _Judge(analysis, position, reductions_of(analysis, position), witnesses)
        found.append(LoopFacts(loop.variable, loop.span.line, judge.flow(), judge.memory()))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Judge:
    analysis: Analysis
    loop: Position
    reductions: list[Reduction]
    witnesses: bool

    def _carried(self, basis: Basis) -> list[Carried]:
        return [e for e in self.analysis.carried(basis) if self.analysis.carrier(e) == self.loop]

    def flow(self) -> LoopVerdict:
        """Judge on values alone: as if every iteration had its own memory."""
        return self._verdict(self._carried("value"), private=())

    def memory(self) -> LoopVerdict:
        """Judge on memory as the listing uses it."""
        carried = self._carried("memory")
        order = [array.name for array in self.analysis.program.arrays]
        names = sorted({each.relation.array for each in carried}, key=order.index)
        private = tuple(n for n in names if may_be_private(self.analysis, self.loop, n))
        return self._verdict(carried, private)

    def _verdict(self, carried: list[Carried], private: tuple[str, ...]) -> LoopVerdict:
        left = [each for each in carried if each.relation.array not in private]
        used = []
        for each in left:
            reduction = next((r for r in self.reductions if r.explains(each)), None)
            if reduction is None:
                verdict = self._sequential(left)
                if verdict is not None:
                    return verdict
            elif reduction not in used:
                used.append(reduction)
        if used:
            operators = tuple(dict.fromkeys(reduction.operator for reduction in used))
            reduced = tuple(dict.fromkeys(reduction.array for reduction in used))
            return LoopVerdict("reduction", private, operators, reduced)
        if private:
            return LoopVerdict("privatize", private)
        return LoopVerdict("parallel")

    def _sequential(self, left: list[Carried]) -> LoopVerdict | None:
        """Name the first dependence that no reduction explains; what carries values comes first."""
        kinds = ("flow", "anti", "output")
        unexplained = [e for e in left if not any(r.explains(e) for r in self.reductions)]
        valued = {e.relation.array for e in self._carried("value")}
        unexplained.sort(
            key=lambda e: (e.relation.array not in valued, kinds.index(e.relation.kind))
        )
        doubtful = None
        for found in (f for each in unexplained for f in self.analysis.pieces_at(each)):
            fact = dependence_fact(self.analysis, found, witnesses=self.witnesses)
            if fact is None:
                continue
            if fact.witness is not None or not (self.witnesses and fact.within):
                return LoopVerdict("sequential", witness=fact.witness, because=describe(fact))
            doubtful = doubtful or fact
        if doubtful is None:
            return None
        reason = f"no sizes were found at which there is a {describe(doubtful)}"
        return LoopVerdict("unknown", reason=reason)


def may_be_private(analysis: Analysis, loop: Position, name: str) -> bool:
    """Tell whether every iteration writes a name before it reads it, and nobody else reads it.

    Then each iteration may have a copy of its own, and no copy is needed before or after.

    Args:
        analysis: The value-based flow over the name, at least.
        loop: Where the loop stands.
        name: The name.
    """
    # A name that nothing writes has the first values it was created with, and no flow.
    if name in live_out(analysis.program) or name not in written(analysis.program):
        return False
    level = loop_level(analysis, loop)
    for each in analysis.carried("value"):
        relation = each.relation
        if relation.array != name:
            continue
        ends = [
            inside(analysis.statement(number), loop) for number in (relation.source, relation.sink)
        ]
        if ends[0] != ends[1]:
            return False
        if all(ends) and each.level is not None and each.level <= level:
            return False
    return not any(
        read.array == name
        and inside(analysis.statement(read.sink), loop)
        and not read.instances.intersect_params(analysis.context).is_empty()
        for read in analysis.uncovered
    )


def describe(dependence: Dependence) -> str:
    """Say what a dependence is in one phrase: `flow S12 → S3 on m, distance (0, 1)`."""
    distance = ", ".join(dependence.distance)
    may = "may " if dependence.may else ""
    ends = f"{dependence.source} → {dependence.sink}"
    text = f"{may}{dependence.kind} {ends} on {dependence.array}, distance ({distance})"
    return f"{text}, direction ({', '.join(dependence.direction)})"
