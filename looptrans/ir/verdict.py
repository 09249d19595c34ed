"""What the tool says about a question, and what it shows for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Decision: TypeAlias = Literal["legal", "illegal", "unknown"]
WitnessKind: TypeAlias = Literal["order", "race", "storage", "numbers"]
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
class Verdict:
    """The answer to a legality question.

    Attributes:
        decision: `legal`, `illegal` (with a witness) or `unknown` (with a reason).
        witness: What shows an `illegal`.
        reason: Why it is unknown, or one sentence that explains the decision.
        assumptions: The contracts the answer leans on, as written.
    """

    decision: Decision
    witness: Witness | None = None
    reason: str = ""
    assumptions: tuple[str, ...] = ()
