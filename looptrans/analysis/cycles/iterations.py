"""What ties the iterations of one loop together, as plain data for who wants them in parallel."""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.analysis.budget import DEFAULT_SECONDS, within_budget
from looptrans.ir.facts import DependenceKind
from looptrans.ir.program import Program


@dataclass(frozen=True, slots=True)
class Tie:
    """Two statements whose instances in different iterations touch one cell, one of them writing.

    Attributes:
        kind: What the earlier and the later instance do.
        source: Label of the statement that comes first.
        sink: Label of the one that comes later.
        array: What they share.
    """

    kind: DependenceKind
    source: str
    sink: str
    array: str


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction that the loop carries.

    Attributes:
        array: What is reduced into.
        operator: `+`, `*`, `max`, `min`, `and` or `or`.
        statements: Labels of the statements that make the new value of a cell from the old one.
    """

    array: str
    operator: str
    statements: tuple[str, ...]

    def explains(self, tie: Tie) -> bool:
        """Tell whether a tie is one between updates of the reduction."""
        ends = tie.source in self.statements and tie.sink in self.statements
        return ends and tie.array == self.array


@dataclass(frozen=True, slots=True)
class Iterations:
    """What a loop carries.

    Attributes:
        private: The names that tie iterations only because they share the memory: each iteration
            may have its own. In order of first appearance.
        folds: The reductions.
        ties: All that ties iterations on memory as the program uses it, also by way of `private`
            and within `folds`; sorted by statement.
    """

    private: tuple[str, ...] = ()
    folds: tuple[Fold, ...] = ()
    ties: tuple[Tie, ...] = ()

    @property
    def unexplained(self) -> tuple[Tie, ...]:
        """The ties that remain once `private` is private and the reductions may be reordered."""
        return tuple(tie for tie in self.kept if not any(f.explains(tie) for f in self.folds))

    @property
    def kept(self) -> tuple[Tie, ...]:
        """The ties that remain once `private` is private."""
        return tuple(tie for tie in self.ties if tie.array not in self.private)


def iterations_of(
    program: Program, loop: tuple[int, ...], *, budget: float = DEFAULT_SECONDS
) -> Iterations:
    """Find what ties the iterations of the loop at a position together.

    Raises:
        BudgetExceeded: It could not be found in time.
    """

    def work() -> Iterations:
        return _iterations(program, loop)

    return within_budget(work, budget)


def _iterations(program: Program, loop: tuple[int, ...]) -> Iterations:
    from looptrans.analysis.cycles.loops import may_be_private
    from looptrans.analysis.cycles.reductions import reductions_of
    from looptrans.analysis.dependence.dependences import analyse

    analysis = analyse(program)
    carried = [
        each.relation for each in analysis.carried("memory") if analysis.carrier(each) == loop
    ]
    names = {relation.array for relation in carried}
    labels = {statement.number: statement.label for statement in analysis.model.statements}
    ties = [Tie(r.kind, labels[r.source], labels[r.sink], r.array) for r in carried]
    folds = [
        Fold(r.array, r.operator, tuple(labels[number] for number in sorted(r.statements)))
        for r in sorted(reductions_of(analysis, loop), key=lambda r: min(r.statements))
    ]
    return Iterations(
        tuple(
            array.name
            for array in program.arrays
            if array.name in names and may_be_private(analysis, loop, array.name)
        ),
        tuple(folds),
        tuple(dict.fromkeys(ties)),
    )
