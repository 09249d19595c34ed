"""Steps of a derivation as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from looptrans.algebra.certificate import OperatorCertificate, ir_certificate
from looptrans.algebra.operators.laws import Law
from looptrans.ir.facts import DependenceReport
from looptrans.ir.program import Program
from looptrans.ir.verdict import Certificate, Decision

if TYPE_CHECKING:
    from looptrans.adjoint.derived import Backward

Goal: TypeAlias = Literal["forward", "split", "fold"]
Form: TypeAlias = Literal["kernels", "launch", "atomics"]
Argument: TypeAlias = str | int

FORMS: Final[tuple[Form, ...]] = ("kernels", "launch", "atomics")


@dataclass(frozen=True, slots=True)
class DerivationStep:
    """One step: what it is called, what it does to the listing, and what it leans on.

    Attributes:
        name: What was done, as a phrase.
        kind: Which move made it; see `looptrans.derivation.moves`.
        arguments: What the move was given beside the program.
        before: The program before.
        after: The program afterwards.
        shown: Certificates of other than laws: order, storage, rounding.
        laws: The laws that were proved, each with its equations.
        operator: The combine operator with its laws, where one is used.
    """

    name: str
    kind: str
    arguments: tuple[Argument, ...]
    before: Program
    after: Program
    shown: tuple[Certificate, ...] = ()
    laws: tuple[Law, ...] = ()
    operator: OperatorCertificate | None = None

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Everything the step leans on; laws that are not required are left out."""
        found = list(self.shown)
        if self.operator is not None:
            found += self.operator.ir()
        found += [ir_certificate(law) for law in self.laws if law.is_required]
        return tuple(found)

    @property
    def decision(self) -> Decision:
        """Whether every certificate was shown."""
        verdicts = {certificate.verdict for certificate in self.certificates}
        if "illegal" in verdicts:
            return "illegal"
        return "unknown" if "unknown" in verdicts or not verdicts else "legal"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way to run a backward pass, and whether the dependences of its listing allow it.

    Attributes:
        form: `kernels` a launch for each nest; `launch` nests that work out the same sums in one
            launch, the program id says which; `atomics` such nests made one.
        decision: Whether it is allowed.
        reason: The facts that say so, as a sentence without a full stop.
    """

    form: Form
    decision: Decision
    reason: str


@dataclass(frozen=True, slots=True)
class Derivation:
    """A listing, a goal, and the steps that lead there.

    Attributes:
        program: The listing.
        goal: Where it was to go.
        steps: The steps, each from where the one before ended.
        decision: `legal` where the goal was reached, or as much of it as there is; `illegal` where
            it was shown that it cannot be; `unknown` where neither.
        notes: What was not done and why, a sentence each.
        flow: The exact flow of the program at the end, where it is known.
        backward: The backward pass, where that is the goal and there is one.
        form: Which of the ways to run it was asked for.
        alternatives: The ways to run it.
    """

    program: Program
    goal: Goal | Literal["backward"]
    steps: tuple[DerivationStep, ...]
    decision: Decision
    notes: tuple[str, ...] = ()
    flow: DependenceReport | None = None
    backward: Backward | None = None
    form: Form = "kernels"
    alternatives: tuple[Alternative, ...] = ()

    @property
    def last(self) -> Program:
        """The program at the end."""
        return self.steps[-1].after if self.steps else self.program


class NotDone(Exception):
    """A move that does not apply here, or that could not be shown to be right.

    Attributes:
        reason: Why, as a sentence without a full stop.
        decision: `illegal` where it was refuted, else `unknown`.
    """

    def __init__(self, reason: str, decision: Decision = "unknown") -> None:
        super().__init__(reason)
        self.reason = reason
        self.decision: Decision = decision


class NotNeeded(NotDone):
    """A move that would change nothing that matters."""
