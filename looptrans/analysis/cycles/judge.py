"""Claims judged: what an annotation says of a statement against what the dependences say.

Two sets of loops stand behind SLoop and TLoop. A value's *support* are the loops in the
subscripts of the data it is computed from, followed through scalar copies; its *variation* are
all loops with which it can change, including the loops that carry a dependence into it and those
in guards that choose which write is seen. A claim about loops holds when it names all of the
support and nothing outside the variation; TLoop, which says where the statement may stand, must
besides reach down to the innermost loop of the variation: placed in fewer loops the value would be
stale.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import networkx as nx

from looptrans.analysis.cycles.graph import dependence_graph
from looptrans.analysis.cycles.loops import describe
from looptrans.analysis.dependence.dependences import Analysis, Carried, Found, dependence_fact
from looptrans.analysis.isl_model.model import StatementModel
from looptrans.frontend.claims import read_claims
from looptrans.frontend.operands import operands
from looptrans.ir.claim import (
    Aggregation,
    Claim,
    Malformed,
    SelfDependence,
    SourceLoops,
    TargetLoops,
    Touches,
)
from looptrans.ir.condition import Condition, compared
from looptrans.ir.facts import ClaimDecision, ClaimFact
from looptrans.ir.index import Index, variables
from looptrans.ir.program import Assign, If
from looptrans.ir.value import Access, Holds, IndexValue, Select, walk_value
from looptrans.ir.verdict import Witness
from looptrans.ir.walk import accesses

_Judgement: TypeAlias = tuple[ClaimDecision, str, Witness | None]
_KINDS = {"RAW": "flow", "WAR": "anti", "WAW": "output"}
_BASES = {"RAW": "value", "WAR": "memory", "WAW": "memory"}


@dataclass(slots=True)
class Knowledge:
    """What the dependences say of each statement.

    Attributes:
        analysis: The dependences, of both bases.
        into: Value-based flow by sink.
        support: By statement number, the loops its data are subscripted with.
        variation: By statement number, the loops its value can change with.
        guards: By position, the numbers of the conditions on data.
        cycles: By statement number, the pairs inside its component of the flow graph.
    """

    analysis: Analysis
    into: dict[int, list[Found]] = field(default_factory=dict)
    support: dict[int, frozenset[str]] = field(default_factory=dict)
    variation: dict[int, frozenset[str]] = field(default_factory=dict)
    guards: dict[tuple[int, ...], int] = field(default_factory=dict)
    cycles: dict[int, list[Carried]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for relation in self.analysis.relations:
            if relation.basis == "value":
                self.into.setdefault(relation.sink, []).extend(self.analysis.pieces(relation))
        statements = self.analysis.model.statements
        for statement in statements:
            loops = frozenset(loop.variable for loop in statement.loops)
            read = frozenset(name for r in _reads(statement) for name in _variables(r))
            own = (read & loops) | _values_used(statement)
            self.support[statement.number] = self.variation[statement.number] = own
            if isinstance(statement.place.node, If):
                self.guards[statement.place.position[:-1]] = statement.number
        self._close()
        graph, edges = dependence_graph(self.analysis, "flow")
        for members in nx.strongly_connected_components(graph):
            inner = [e for e in edges if {e.relation.source, e.relation.sink} <= members]
            for number in members:
                self.cycles[number] = inner

    def _close(self) -> None:
        changed = True
        while changed:
            changed = False
            for statement in self.analysis.model.statements:
                number = statement.number
                for read in _reads(statement):
                    support = self.support[number] | self.operand_support(statement, read)
                    variation = self.variation[number] | self.operand_variation(statement, read)
                    if support != self.support[number] or variation != self.variation[number]:
                        self.support[number], self.variation[number] = support, variation
                        changed = True

    def operand_support(self, statement: StatementModel, read: Access) -> frozenset[str]:
        """Return the loops in the subscripts of the data a read gives, through scalar copies."""
        own = _variables(read) & {loop.variable for loop in statement.loops}
        if read.indices:
            return own
        for found in self._flows(statement, read):
            shared = frozenset(loop.variable for loop in found.piece.loops)
            own |= self.support[found.relation.source] & shared
        return own

    def operand_variation(self, statement: StatementModel, read: Access) -> frozenset[str]:
        """Return the loops with which what a read gives can change."""
        own = _variables(read) & {loop.variable for loop in statement.loops}
        for found in self._flows(statement, read):
            shared = frozenset(loop.variable for loop in found.piece.loops)
            source = self.analysis.statement(found.relation.source)
            own |= (self.variation[source.number] | self._choice(source, statement)) & shared
            own |= {
                loop.variable
                for loop, sign in zip(found.piece.loops, found.piece.direction, strict=True)
                if sign != "="
            }
        return own

    def _choice(self, source: StatementModel, sink: StatementModel) -> frozenset[str]:
        """Return the loops with which it changes whether a sink's value is that of this source.

        They are those of the guards around the source alone: where one does not hold, the sink
        gets the value of another statement.
        """
        found: frozenset[str] = frozenset()
        for branch, condition in zip(source.place.branches, source.place.conditions, strict=True):
            if branch in sink.place.branches:
                continue
            guard = self.guards.get(branch[:-1])
            found |= _compared(condition) if guard is None else self.variation[guard]
        return found

    def comes_back(self, statement: StatementModel, loop: str) -> bool:
        """Tell whether a statement writes a cell of its target in several iterations of a loop."""
        node = statement.place.node
        assert isinstance(node, Assign)
        return all(loop not in _variables(target) for target in node.targets) or any(
            each.variable == loop
            for each in self.analysis.carried("memory")
            if each.relation.kind == "output"
            and each.relation.source == each.relation.sink == statement.number
        )

    def _flows(self, statement: StatementModel, read: Access) -> list[Found]:
        return [
            found
            for found in self.into.get(statement.number, [])
            if found.relation.array == read.array
        ]


def _reads(statement: StatementModel) -> list[Access]:
    return [a.access for a in accesses(statement.place.node) if not a.is_write]


def _variables(access: Access) -> frozenset[str]:
    return _loops_in(access.indices)


def _loops_in(indices: Iterable[Index]) -> frozenset[str]:
    return frozenset(name for index in indices for name in variables(index))


def _values_used(statement: StatementModel) -> frozenset[str]:
    """Return the loop variables a statement uses as numbers or tests in its values."""
    node = statement.place.node
    values = node.values if isinstance(node, Assign) else (Holds(node.condition),)
    used: frozenset[str] = frozenset()
    for value in (inner for outer in values for inner in walk_value(outer)):
        match value:
            case IndexValue(index):
                used |= _loops_in((index,))
            case Holds(condition) | Select(condition):
                used |= _compared(condition)
            case _:
                pass
    return used & {loop.variable for loop in statement.loops}


def _compared(condition: Condition) -> frozenset[str]:
    """Return the variables in the comparisons of a condition."""
    return _loops_in(compared(condition))


def judge_claims(analysis: Analysis) -> tuple[ClaimFact, ...]:
    """Judge every claim of a program's comments, in the order of the text.

    Args:
        analysis: The dependences, of both bases.
    """
    knowledge = Knowledge(analysis)
    statements = {statement.label: statement for statement in analysis.model.statements}
    return tuple(
        _Judge(knowledge, statements[claim.statement]).judge(claim)
        for claim in read_claims(analysis.program)
    )


@dataclass(frozen=True, slots=True)
class _Judge:
    knowledge: Knowledge
    statement: StatementModel

    def judge(self, claim: Claim) -> ClaimFact:
        match claim:
            case SelfDependence():
                decision, fact, witness = self._self_dependence(claim)
            case SourceLoops():
                decision, fact, witness = self._source_loops(claim)
            case TargetLoops():
                decision, fact, witness = self._target_loops(claim)
            case Touches():
                decision, fact, witness = self._touches(claim)
            case Aggregation():
                decision, fact, witness = self._aggregation(claim)
            case Malformed():
                decision, fact, witness = "refuted", claim.reason, None
        return ClaimFact(claim.statement, claim.line, claim.text, decision, fact, witness)

    def _shown(self, found: Found) -> tuple[str, Witness | None]:
        fact = dependence_fact(self.knowledge.analysis, found)
        return ("no sizes allow it", None) if fact is None else (describe(fact), fact.witness)

    def _self_dependence(self, claim: SelfDependence) -> _Judgement:
        number = self.statement.number
        own = [f for f in self.knowledge.into.get(number, []) if f.relation.source == number]
        if claim.loops:
            own = [f for f in own if self._carrier(f) in claim.loops]
        if not own:
            decision: ClaimDecision = "refuted" if claim.present else "holds"
            return decision, f"no value {claim.statement} computes reaches it again", None
        text, witness = self._shown(own[0])
        return ("holds" if claim.present else "refuted"), text, witness

    @staticmethod
    def _carrier(found: Found) -> str | None:
        level = found.piece.carrier
        return None if level is None else found.piece.loops[level].variable

    def _source_loops(self, claim: SourceLoops) -> _Judgement:
        node = self.statement.place.node
        assert isinstance(node, Assign)
        read = operands(node)[claim.operand]
        support = self.knowledge.operand_support(self.statement, read)
        variation = self.knowledge.operand_variation(self.statement, read)
        claimed = frozenset(claim.loops)
        if support <= claimed <= variation | support:
            return "holds", f"{claim.name} depends on {self._names(support)}", None
        return "refuted", f"{claim.name} depends on {self._names(support)}", None

    def _target_loops(self, claim: TargetLoops) -> _Judgement:
        number = self.statement.number
        support, variation = self.knowledge.support[number], self.knowledge.variation[number]
        claimed = frozenset(claim.loops)
        fact = f"its value changes with {self._names(variation)}"
        if not support <= claimed <= variation:
            return "refuted", fact, None
        if self._deepest(claimed) == self._deepest(variation):
            return "holds", fact, None
        cause = self._cause(variation - claimed)
        if cause is not None:
            text, witness = self._shown(cause)
            return "refuted", f"{fact}: {text}", witness
        return "refuted", fact, None

    def _cause(self, loops: frozenset[str]) -> Found | None:
        """Return the nearest dependence behind the statement that one of the loops carries."""
        waiting, seen = [self.statement.number], {self.statement.number}
        while waiting:
            into = self.knowledge.into.get(waiting.pop(0), [])
            for found in into:
                if self._carrier(found) in loops:
                    return found
            for source in (found.relation.source for found in into):
                if source not in seen:
                    seen.add(source)
                    waiting.append(source)
        return None

    def _deepest(self, names: frozenset[str]) -> int:
        levels = [n for n, loop in enumerate(self.statement.loops) if loop.variable in names]
        return max(levels, default=-1)

    def _names(self, names: frozenset[str]) -> str:
        ordered = [loop.variable for loop in self.statement.loops if loop.variable in names]
        return ", ".join(ordered) if ordered else "no loop"

    def _touches(self, claim: Touches) -> _Judgement:
        analysis = self.knowledge.analysis
        for relation in analysis.relations:
            if (
                relation.sink == self.statement.number
                and relation.array == claim.name
                and relation.kind == _KINDS[claim.kind]
                and relation.basis == _BASES[claim.kind]
                and analysis.pieces(relation)
            ):
                text, witness = self._shown(analysis.pieces(relation)[0])
                return "holds", text, witness
        deed = {
            "RAW": f"reads no value of {claim.name} that a statement wrote",
            "WAR": f"overwrites nothing of {claim.name} that was read before",
            "WAW": f"overwrites nothing of {claim.name} that was written before",
        }
        return "refuted", f"{claim.statement} {deed[claim.kind]}", None

    def _aggregation(self, claim: Aggregation) -> _Judgement:
        shown: tuple[str, Witness | None] = ("", None)
        for loop in claim.loops:
            if not self.knowledge.comes_back(self.statement, loop):
                text = f"{claim.statement} writes another cell in every iteration of {loop}"
                return "refuted", text, None
            cycles = self.knowledge.cycles[self.statement.number]
            carried = [each for each in cycles if each.variable == loop]
            if not carried:
                text = f"no value is carried along {loop} through {claim.statement}"
                return "refuted", text, None
            shown = self._shown(self.knowledge.analysis.pieces_at(carried[0])[0])
        return "holds", *shown
