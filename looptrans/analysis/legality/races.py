"""Whether every execution of a program with parallel loops gives its sequential reading's result.

Nothing may race; and what is atomic or reduced, and so may come in any order, must be updates that
an associative and commutative operator makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING

import islpy as isl

from looptrans.analysis.dependence.flow import affine_dependences
from looptrans.analysis.isl_model.model import Model, build_model
from looptrans.analysis.isl_model.polyhedra import context_set
from looptrans.analysis.isl_model.relation import Relation
from looptrans.analysis.legality.concurrency import Conflict, conflicts, is_parallel
from looptrans.analysis.legality.correspondence import accesses_of
from looptrans.analysis.legality.judging import with_contracts
from looptrans.analysis.legality.multiples import exactly, open_sizes
from looptrans.analysis.legality.verdicts import Explainer
from looptrans.ir.program import Atomic, Contract, Program
from looptrans.ir.verdict import Certificate, Verdict

if TYPE_CHECKING:
    from looptrans.analysis.cycles.reductions import Reduction

RACE = "nothing orders the two"
UNORDERED = "both are atomic, but nothing keeps their order, and it matters"


def race_verdict(program: Program) -> Verdict:
    """Judge whether a program with parallel loops gives its sequential reading's result."""
    verdict = _exact_verdict(program)
    if verdict.decision != "legal":
        return verdict

    def under(contracts: tuple[Contract, ...]) -> Verdict:
        return _exact_verdict(replace(program, contracts=contracts))

    return with_contracts(verdict, program.contracts, under)


def _exact_verdict(program: Program) -> Verdict:
    model = build_model(program)
    verdict = judge_races(model, context_set(model))

    def at(sizes: Mapping[str, int]) -> Verdict:
        concrete = build_model(program, sizes)
        return judge_races(concrete, context_set(concrete))

    return exactly(verdict, open_sizes(model), program, at)


def judge_races(model: Model, context: isl.Set) -> Verdict:
    """Judge whether every execution of a program gives its sequential reading's result."""
    explainer = Explainer(model, context)
    open_: list[Conflict] = []
    doubtful: list[Verdict] = []
    for conflict in conflicts(model, context):
        if conflict.guarded:
            open_.append(conflict)
            continue
        relation, pairs = _valued(model, conflict)
        verdict = explainer.of_pairs(relation, pairs, "race", RACE)
        if verdict.decision == "illegal":
            return verdict
        doubtful.append(verdict)
    if doubtful:
        return doubtful[0]
    return _judge_updates(model, explainer, open_)


def open_updates(model: Model, context: isl.Set) -> Iterator[Conflict]:
    """Yield pairs of updates whose order a program leaves open, and is right to leave open.

    Only those that one statement makes: where a block makes them, its statements keep together.
    """
    if not is_parallel(model) or judge_races(model, context).decision != "legal":
        return
    for conflict in conflicts(model, context):
        ends = {conflict.relation.source, conflict.relation.sink}
        if _update_at_once(model, ends, conflict.relation.array):
            yield conflict


def _valued(model: Model, conflict: Conflict) -> tuple[Relation, isl.Map]:
    """Return the flow of values among some conflicting pairs where there is one, else the pairs."""
    relation = conflict.relation
    if relation.kind != "flow" or relation.supposed:
        return relation, conflict.pairs
    flows, _ = affine_dependences(model, [relation.array], ("value",))
    for flow in flows:
        if (flow.source, flow.sink) == (relation.source, relation.sink):
            pairs = flow.pairs.intersect(conflict.pairs)
            if not pairs.is_empty():
                return flow, pairs
    return relation, conflict.pairs


def _judge_updates(model: Model, explainer: Explainer, open_: list[Conflict]) -> Verdict:
    """Judge what is atomic or reduced: it must be updates whose order is of no account."""
    if not open_:
        return Verdict("legal", reason="nothing races")
    # Seldom needed, and networkx takes a while to load.
    from looptrans.analysis.cycles.reductions import reductions_of
    from looptrans.analysis.dependence.dependences import analyse

    analysis = analyse(model.program)
    used: dict[tuple[str, str], None] = {}
    for conflict in open_:
        relation = conflict.relation
        first = model.statements[relation.source]
        position = first.place.loop_positions[conflict.level]
        reduction = next(
            (
                r
                for r in reductions_of(analysis, position)
                if r.array == relation.array
                and {relation.source, relation.sink} <= r.statements
                and _is_undivided(model, r)
            ),
            None,
        )
        if reduction is None:
            return explainer.of_pairs(relation, conflict.pairs, "order", UNORDERED)
        used[reduction.array, reduction.operator] = None
    certificates = tuple(
        any_order(f"the updates of {array} by {operator} may come in any order", operator)
        for array, operator in used
    )
    return Verdict("legal", reason="nothing races", certificates=certificates)


def any_order(law: str, operator: str) -> Certificate:
    """State that the order of updates is of no account; for sums and products up to rounding."""
    if operator in ("max", "min", "and", "or"):
        reason = f"{operator} is associative and commutative"
        return Certificate("algebra", law, "legal", reason)
    reason = f"{operator} is associative and commutative over the reals, not bit for bit"
    return Certificate("rounding", law, "legal", reason)


def _is_undivided(model: Model, reduction: Reduction) -> bool:
    """Tell whether no other update can come between the read and the write of one.

    Either each statement reads and writes the cell itself, or one atomic block holds them all.
    """
    if _update_at_once(model, reduction.statements, reduction.array):
        return True
    statements = [model.statements[number] for number in sorted(reduction.statements)]
    blocks = [
        {
            position
            for section, position in zip(s.place.sections, s.place.section_positions, strict=True)
            if isinstance(section, Atomic)
        }
        for s in statements
    ]
    return bool(set.intersection(*blocks))


def _update_at_once(model: Model, numbers: Set[int], array: str) -> bool:
    """Tell whether each of some statements reads and writes an array itself."""
    return all(
        {a.is_write for a in accesses_of(model, model.statements[number]) if a.array == array}
        == {True, False}
        for number in numbers
    )
