"""The results of the analysis, as plain data; reports read these and never the analysis itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from looptrans.ir.verdict import Witness

DependenceKind: TypeAlias = Literal["flow", "anti", "output"]
KINDS: tuple[DependenceKind, ...] = get_args(DependenceKind)
Basis: TypeAlias = Literal["value", "memory"]
Direction: TypeAlias = Literal["<", "=", ">", "*"]
LoopDecision: TypeAlias = Literal["parallel", "privatize", "reduction", "sequential", "unknown"]
ClaimDecision: TypeAlias = Literal["holds", "refuted", "unknown"]
InstancePair: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class StatementFact:
    """A statement as reports show it.

    Attributes:
        label: `S3`, or `G1` for a data-dependent condition.
        text: Its canonical text, without comment.
        line: The line of the source it stands on.
        loops: The variables of the loops around it, outermost first.
    """

    label: str
    text: str
    line: int
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dependence:
    """One piece of a dependence: all its instance pairs have the same direction vector.

    Attributes:
        kind: `flow` write then read, `anti` read then write, `output` write then write.
        basis: `value` the read gets the value of that very write; `memory` both touch one cell.
        may: Only the running program knows whether (all of) it happens, or no sizes were found
            at which it does.
        source: Label of the earlier statement.
        sink: Label of the later statement.
        array: The array or scalar they share.
        loops: The common loops, outermost first.
        distance: For each, sink minus source in iterations in execution order; an expression of
            the parameters, or `*` where it is no function of them.
        direction: For each, `<` (the source is in an earlier iteration), `=` or `>`; `*` for
            any of them inside the loop that carries it, where there are too many vectors to list.
        carried_by: The outermost loop in which the two differ; None if loop-independent.
        carried_line: The line of that loop.
        witness: The smallest example.
        distance_set: The set of distances, where `distance` has a `*`.
        instances: At given sizes, every (source iteration, sink iteration), sorted.
        within: Whether `distance_set` may have distances in it that do not occur.
    """

    kind: DependenceKind
    basis: Basis
    may: bool
    source: str
    sink: str
    array: str
    loops: tuple[str, ...]
    distance: tuple[str, ...]
    direction: tuple[Direction, ...]
    carried_by: str | None
    carried_line: int | None
    witness: Witness | None
    distance_set: str | None = None
    instances: tuple[InstancePair, ...] | None = None
    within: bool = False

    @property
    def level(self) -> int | None:
        """Which of the common loops carries it, by number; None if loop-independent."""
        return next((n for n, sign in enumerate(self.direction) if sign != "="), None)


@dataclass(frozen=True, slots=True)
class DependenceReport:
    """All dependences of a program.

    Attributes:
        program: Its name.
        parameters: Its integer parameters, in order of first appearance.
        statements: Its statements and data-dependent conditions, in textual order.
        dependences: Sorted by source, sink, array, kind, basis and direction.
        assumptions: The contracts that were used, as written.
        unknown: Why the answer is incomplete (a budget that ran out), or None.
        warnings: Things worth pointing out, such as a subscript that may be negative.
        selected: Whether some bases, kinds or arrays were asked for, not all.
    """

    program: str
    parameters: tuple[str, ...]
    statements: tuple[StatementFact, ...]
    dependences: tuple[Dependence, ...]
    assumptions: tuple[str, ...] = ()
    unknown: str | None = None
    warnings: tuple[str, ...] = ()
    selected: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """A strongly connected component of the dependence graph.

    Attributes:
        statements: Its statements, in textual order.
        carried_by: The loops that carry dependences inside it, outermost first.
    """

    statements: tuple[str, ...]
    carried_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComponentReport:
    """The components in condensation order: every dependence runs inside one or to a later one."""

    graph: Literal["flow", "all"]
    components: tuple[Component, ...]
    unknown: str | None = None


@dataclass(frozen=True, slots=True)
class LoopVerdict:
    """Whether the iterations of a loop may run in any order.

    Attributes:
        decision: `parallel`; `privatize`: parallel once `names` are private to an iteration;
            `reduction`: parallel with a combine (or atomics) over `operators`; `sequential`, with
            a witness; `unknown`, with a reason.
        names: What to privatize, in order of first appearance.
        operators: The operators of the reductions: `+`, `*`, `max`, `min`, `and`, `or`.
        reduced: The arrays or scalars the operators reduce into.
        witness: Two iterations that must stay in order.
        because: The dependence the witness is an example of, as one line.
        reason: Why it is unknown.
        assumptions: The contracts the verdict leans on, as written.
        help: What would make another verdict possible, a sentence without a full stop.
    """

    decision: LoopDecision
    names: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    witness: Witness | None = None
    because: str = ""
    reason: str = ""
    assumptions: tuple[str, ...] = ()
    help: str = ""


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """The two verdicts of one loop: on values alone, and on memory as the listing uses it."""

    loop: str
    line: int
    flow: LoopVerdict
    memory: LoopVerdict


@dataclass(frozen=True, slots=True)
class ClaimFact:
    """An annotation, checked.

    Attributes:
        statement: Label of the statement whose comment makes the claim.
        line: The line it stands on.
        claim: The claim as one phrase, e.g. `TLoop: i`.
        decision: Whether it holds.
        fact: What is the case, in one sentence.
        witness: The example, where one shows it.
    """

    statement: str
    line: int
    claim: str
    decision: ClaimDecision
    fact: str
    witness: Witness | None = None
