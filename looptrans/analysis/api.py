"""What the command line asks of the analysis: plain data in, plain data out, within a budget.

Every question is answered in a process of its own that is ended when its time is up; the answer
then says so and why, and nothing is concluded from what was not computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from looptrans.analysis.budget import DEFAULT_SECONDS, BudgetExceeded, ran_out, within_budget
from looptrans.analysis.dependence.lookups import told_alike
from looptrans.analysis.ranges.scan import Scan, Scanned
from looptrans.analysis.statements import statement_facts
from looptrans.ir.facts import (
    KINDS,
    Basis,
    ClaimFact,
    ComponentReport,
    DependenceKind,
    DependenceReport,
    LoopFacts,
    LoopVerdict,
)
from looptrans.ir.index import Index
from looptrans.ir.program import Program
from looptrans.ir.step import Images
from looptrans.ir.value import Range
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import loops

Contents = Mapping[str, Mapping[tuple[int, ...], int]]


ONCE_SECONDS = 10.0
"""How long it may take to see that no cell of an array is written twice."""
FOR_ALL = 0.9
"""The part of its budget after which a report goes without a list of all dependences."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the analysis says about a program."""

    dependences: DependenceReport
    components: ComponentReport
    all_components: ComponentReport
    loops: tuple[LoopFacts, ...]
    claims: tuple[ClaimFact, ...]


def dependences(
    program: Program,
    *,
    bases: tuple[Basis, ...] = ("value", "memory"),
    kinds: tuple[DependenceKind, ...] = KINDS,
    arrays: Collection[str] | None = None,
    at: Mapping[str, int] | None = None,
    contents: Contents | None = None,
    witnesses: bool = True,
    budget: float = DEFAULT_SECONDS,
) -> DependenceReport:
    """List the dependences of a program.

    Args:
        program: The program.
        bases: Value-based flow, memory-based dependences, or both.
        kinds: Which kinds to list.
        arrays: The only arrays that are asked about; by default all are.
        at: Sizes at which every dependence also lists its instance pairs.
        contents: Contents of integer arrays for those sizes, cell by cell.
        witnesses: Whether each is to have its smallest example; without, nothing is warned of.
        budget: Seconds.
    """

    def work() -> DependenceReport:
        from looptrans.analysis.dependence.dependences import analyse, dependence_report

        analysis = analyse(program, bases=bases, kinds=kinds, arrays=arrays)
        return dependence_report(
            analysis, kinds=kinds, arrays=arrays, at=at, contents=contents, witnesses=witnesses
        )

    try:
        return within_budget(work, budget)
    except BudgetExceeded as error:
        return _no_dependences(program, str(error))


def divisors(program: Program, *, budget: float = DEFAULT_SECONDS) -> tuple[Index, ...]:
    """Return the expressions of sizes that bounds, guards and subscripts divide by.

    Raises:
        BudgetExceeded: They could not be found in time.
    """

    def work() -> tuple[Index, ...]:
        from looptrans.analysis.dependence.dependences import divisors as find
        from looptrans.analysis.isl_model.model import build_model

        return find(build_model(program))

    return within_budget(work, budget)


def negative_subscripts(program: Program, *, budget: float = DEFAULT_SECONDS) -> tuple[str, ...]:
    """Warn of every subscript that may be negative; of none where they are not found in time.

    Args:
        program: The program.
        budget: Seconds.
    """

    def work() -> tuple[str, ...]:
        from looptrans.analysis.isl_model.model import build_model
        from looptrans.analysis.ranges.subscripts import negative_subscripts as find

        return find(build_model(program))

    try:
        return within_budget(work, budget)
    except BudgetExceeded:
        return ()


def is_written_once(
    program: Program, array: str, *, again: bool = False, budget: float = ONCE_SECONDS
) -> bool:
    """Tell whether no cell of an array is written twice, as y[2 * f] and y[2 * f + 1] are not.

    Args:
        program: The program.
        array: The array.
        again: Whether one iteration of all loops that two statements share may write a cell twice,
            as with s[i, j] and s[j, i].
        budget: Seconds.
    """
    found = dependences(
        program,
        bases=("memory",),
        kinds=("output",),
        arrays=(array,),
        witnesses=False,
        budget=budget,
    )
    return found.unknown is None and all(
        again and each.carried_by is None for each in found.dependences
    )


def components(
    program: Program,
    *,
    graph: Literal["flow", "all"] = "flow",
    budget: float = DEFAULT_SECONDS,
) -> ComponentReport:
    """Find the strongly connected components of the dependence graph."""

    def work() -> ComponentReport:
        from looptrans.analysis.cycles.graph import components as find
        from looptrans.analysis.dependence.dependences import analyse

        bases: tuple[Basis, ...] = ("value",) if graph == "flow" else ("value", "memory")
        return find(analyse(program, bases=bases), graph)

    try:
        return within_budget(work, budget)
    except BudgetExceeded as error:
        return ComponentReport(graph, (), str(error))


def edges_inside(
    program: Program, depth: int, *, budget: float = DEFAULT_SECONDS
) -> frozenset[tuple[str, str]]:
    """Return the labels of sources and sinks that depend on each other below some loops.

    Only the loops that carry a dependence are looked for, not its directions and distances.

    Args:
        program: The program.
        depth: Of how many outermost loops source and sink are to be in the same iteration.
        budget: Seconds.

    Raises:
        BudgetExceeded: They could not be found in time.
    """

    def work() -> frozenset[tuple[str, str]]:
        from looptrans.analysis.dependence.dependences import analyse

        analysis = analyse(program)
        return frozenset(
            (
                analysis.statement(each.relation.source).label,
                analysis.statement(each.relation.sink).label,
            )
            for each in analysis.carried()
            if each.level is None or each.level >= depth
        )

    return within_budget(work, budget)


def groups(count: int, edges: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], ...]:
    """Return what waits for each other, in order; see `looptrans.analysis.cycles.graph.groups`."""
    from looptrans.analysis.cycles.graph import groups as find

    return find(count, edges)


def loop_facts(
    program: Program,
    *,
    assumptions: bool = True,
    witnesses: bool = True,
    budget: float = DEFAULT_SECONDS,
) -> tuple[LoopFacts, ...]:
    """Judge every loop, in textual order.

    Args:
        program: The program.
        assumptions: Whether verdicts are to name the contracts they lean on.
        witnesses: Whether sequential loops are to have their smallest examples.
        budget: Seconds.
    """

    def work() -> tuple[LoopFacts, ...]:
        from looptrans.analysis.cycles.loops import loop_facts as judge
        from looptrans.analysis.dependence.dependences import analyse

        return judge(analyse(program), assumptions=assumptions, witnesses=witnesses)

    try:
        return within_budget(work, budget)
    except BudgetExceeded as error:
        return _no_verdicts(program, str(error))


def claims(program: Program, *, budget: float = DEFAULT_SECONDS) -> tuple[ClaimFact, ...]:
    """Judge every claim of the comments, in the order of the text."""

    def work() -> tuple[ClaimFact, ...]:
        from looptrans.analysis.cycles.judge import judge_claims
        from looptrans.analysis.dependence.dependences import analyse

        return judge_claims(analyse(program))

    try:
        return within_budget(work, budget)
    except BudgetExceeded as error:
        return _no_judgements(program, str(error))


def everything(
    program: Program,
    *,
    shown: tuple[Basis, ...] = ("value", "memory"),
    budget: float = DEFAULT_SECONDS,
) -> Report:
    """Answer all questions at once.

    Args:
        program: The program.
        shown: The bases whose dependences are to have their smallest examples.
        budget: Seconds.
    """

    def work() -> Report:
        from looptrans.analysis.cycles.graph import components as find
        from looptrans.analysis.cycles.judge import judge_claims
        from looptrans.analysis.cycles.loops import loop_facts as judge
        from looptrans.analysis.dependence.dependences import analyse, dependence_report

        begun = time.process_time()

        def proceed() -> None:
            if time.process_time() - begun > FOR_ALL * budget:
                raise ran_out(budget)

        analysis = analyse(program)
        flow, whole = find(analysis, "flow"), find(analysis, "all")
        verdicts, judgements = judge(analysis), judge_claims(analysis)
        # To list every dependence may take longest: what else is known is said without the list.
        try:
            listed = dependence_report(analysis, shown=shown, proceed=proceed)
        except BudgetExceeded as error:
            listed = _no_dependences(program, str(error))
        return Report(listed, flow, whole, verdicts, judgements)

    try:
        return within_budget(work, budget)
    except BudgetExceeded as error:
        reason = str(error)
        return Report(
            _no_dependences(program, reason),
            ComponentReport("flow", (), reason),
            ComponentReport("all", (), reason),
            _no_verdicts(program, reason),
            _no_judgements(program, reason),
        )


def annotated(program: Program, *, budget: float = DEFAULT_SECONDS) -> Program:
    """Return the program with generated annotations.

    Raises:
        BudgetExceeded: The dependences could not be found in time.
    """

    def work() -> Program:
        from looptrans.analysis.annotate import annotate
        from looptrans.analysis.dependence.dependences import analyse

        # Of what is on one cell, only what is written twice is looked at.
        return annotate(analyse(program, kinds=("output",)))

    return within_budget(work, budget)


def iteration_points(
    program: Program,
    at: Mapping[str, int],
    contents: Contents | None = None,
    budget: float = DEFAULT_SECONDS,
) -> dict[str, list[tuple[int, ...]]]:
    """Return the iterations of every statement at given sizes.

    Raises:
        BudgetExceeded: There are too many to list in time.
    """

    def work() -> dict[str, list[tuple[int, ...]]]:
        from looptrans.analysis.opaque_terms.instances import points_of

        return points_of(program, at, contents)

    return within_budget(work, budget)


def check_order(
    before: Program, after: Program, images: Images, *, budget: float = DEFAULT_SECONDS
) -> Verdict:
    """Judge a step that only changes when instances run, and whether they run in parallel.

    Args:
        before: The program before the step.
        after: The program afterwards.
        images: Which instances of `before` the statements of `after` stand for.
        budget: Seconds.
    """

    def work(one: Program, other: Program) -> Verdict:
        from looptrans.analysis.legality.equivalence import order_verdict

        return order_verdict(one, other, images)

    return _judged_step(work, before, after, budget)


def check_storage(
    before: Program,
    after: Program,
    images: Images,
    *,
    created: bool = False,
    budget: float = DEFAULT_SECONDS,
) -> Verdict:
    """Judge a step that changes where values live; statements not in `images` are copies.

    Args:
        before: The program before the step.
        after: The program afterwards.
        images: Which instances of `before` the statements of `after` stand for.
        created: Whether arrays of other names may have the same first values.
        budget: Seconds.
    """

    def work(one: Program, other: Program) -> Verdict:
        from looptrans.analysis.legality.equivalence import storage_verdict

        return storage_verdict(one, other, images, created=created)

    return _judged_step(work, before, after, budget)


def check_reduction(
    before: Program,
    after: Program,
    images: Images,
    partials: Mapping[str, str],
    operators: Mapping[str, tuple[str, float]],
    *,
    budget: float = DEFAULT_SECONDS,
) -> Verdict:
    """Judge a reduction that was split into partial results and a combine.

    Args:
        before: The program before the step.
        after: The program afterwards.
        images: Which instances of `before` the statements of `after` stand for.
        partials: The array of partial results to the array they are joined to.
        operators: For each array joined to, the operator (`+`, `*`, `max`, `min`) and its identity.
        budget: Seconds.
    """

    def work(one: Program, other: Program) -> Verdict:
        from looptrans.analysis.legality.reassociation import reduction_verdict

        return reduction_verdict(one, other, images, partials, operators)

    return _judged_step(work, before, after, budget)


def check_races(program: Program, *, budget: float = DEFAULT_SECONDS) -> Verdict:
    """Judge whether every execution of a program gives its sequential reading's result."""

    def work() -> Verdict:
        from looptrans.analysis.legality.races import race_verdict

        return race_verdict(program)

    return _judged(work, budget)


def _judged(work: Callable[[], Verdict], budget: float) -> Verdict:
    try:
        return within_budget(work, budget)
    except BudgetExceeded as error:
        return Verdict("unknown", reason=str(error))


def _judged_step(
    work: Callable[[Program, Program], Verdict], before: Program, after: Program, budget: float
) -> Verdict:
    """Judge a step, and in doubt with what is known of data that neither program writes."""
    verdict = _judged(lambda: work(before, after), budget)
    if verdict.decision == "unknown":
        for one, other in told_alike(before, after):
            told = _judged(partial(work, one, other), budget)
            if told.decision == "legal":
                return told
    return verdict


def ranges_of(
    program: Program,
    position: tuple[int, ...],
    scan: Scan,
    budget: float = DEFAULT_SECONDS,
) -> Scanned:
    """Find the ranges of loops that change places; see `looptrans.analysis.ranges.bounds`.

    Raises:
        BudgetExceeded: They could not be found in time.
    """

    def work() -> Scanned:
        from looptrans.analysis.ranges.bounds import scanned

        return scanned(program, position, scan)

    return within_budget(work, budget)


def same_values(
    program: Program,
    position: tuple[int, ...],
    first: Range,
    second: Range,
    budget: float = DEFAULT_SECONDS,
) -> bool:
    """Tell whether two ranges at a place of a program have the same values, in the same order.

    Raises:
        BudgetExceeded: It could not be found out in time.
    """

    def work() -> bool:
        from looptrans.analysis.ranges.bounds import same_values as same

        return same(program, position, first, second)

    return within_budget(work, budget)


# What is said when the budget has run out: the statements and loops, and that nothing is known.


def _no_dependences(program: Program, reason: str) -> DependenceReport:
    names = tuple(p.name for p in program.parameters if p.is_integer)
    return DependenceReport(program.name, names, statement_facts(program), (), unknown=reason)


def _no_verdicts(program: Program, reason: str) -> tuple[LoopFacts, ...]:
    verdict = LoopVerdict("unknown", reason=reason)
    return tuple(
        LoopFacts(loop.variable, loop.span.line, verdict, verdict) for loop in loops(program)
    )


def _no_judgements(program: Program, reason: str) -> tuple[ClaimFact, ...]:
    from looptrans.frontend.claims import read_claims

    return tuple(
        ClaimFact(claim.statement, claim.line, claim.text, "unknown", reason)
        for claim in read_claims(program)
    )
