"""What the tool says about a question, and what it shows for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from looptrans.ir.facts import Dependence

Decision: TypeAlias = Literal["legal", "illegal", "unknown"]
WitnessKind: TypeAlias = Literal["order", "race", "storage", "numbers"]
CertificateKind: TypeAlias = Literal["order", "storage", "algebra", "rounding"]
Assignment: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """Two statement instances at given sizes that a person can replay.

    Attributes:
        kind: `order` a source and its sink; `race` two instances nothing orders; `storage` a read
            and the write it saw; `numbers` inputs on which two expressions differ.
        parameters: The sizes, by name, in order of first appearance; only those that matter.
        source: The loop variables' values of the earlier instance, outermost first.
        sink: Those of the later instance.
        elements: The values of integer arrays that the example supposes, e.g. `("n[0]", 1)`.
    """

    kind: WitnessKind
    parameters: Assignment
    source: Assignment
    sink: Assignment
    elements: Assignment = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """The write whose value a read gets.

    Attributes:
        statement: The label of the writing statement; None for what was there before the run.
        iteration: The values of its loop variables, outermost first.
    """

    statement: str | None
    iteration: Assignment = ()


@dataclass(frozen=True, slots=True)
class Certificate:
    """One fact a step leans on, and whether it was shown.

    Attributes:
        kind: `order` no dependence is reversed; `storage` every read gets the value it got before;
            `algebra` two expressions are equal; `rounding` equal over the reals, not bit for bit.
        law: What was shown, in one sentence.
        verdict: Whether it was.
        reason: By what, or why not.
        assumptions: The contracts it leans on, as written.
    """

    kind: CertificateKind
    law: str
    verdict: Decision
    reason: str = ""
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a legality question.

    Attributes:
        decision: `legal`, `illegal` (with a witness) or `unknown` (with a reason).
        witness: What shows an `illegal`: two instances of `before` for `order` and `storage`, two
            of `after` for `race`.
        reason: Why it is unknown, or one sentence that explains the decision.
        assumptions: The contracts the answer leans on, as written.
        source: The label of the witness's source statement.
        sink: The label of its sink statement.
        array: The array or scalar the two share.
        cell: The cell of it they share in the example.
        dependence: The dependence that the example is an instance of, where it is one.
        now: For a `storage` witness, the write the read (the sink) would see afterwards.
        help: What to do instead, in one sentence.
        certificates: What a `legal` leans on.
    """

    decision: Decision
    witness: Witness | None = None
    reason: str = ""
    assumptions: tuple[str, ...] = ()
    source: str = ""
    sink: str = ""
    array: str = ""
    cell: tuple[int, ...] = ()
    dependence: Dependence | None = None
    now: Seen | None = None
    help: str = ""
    certificates: tuple[Certificate, ...] = ()
