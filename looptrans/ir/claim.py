"""What the comments of a listing claim, before anyone has judged it.

A claim is read from text and is never trusted; `ClaimFact` says whether it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

TouchKind: TypeAlias = Literal["RAW", "WAR", "WAW"]


@dataclass(frozen=True, slots=True)
class SelfDependence:
    """`No self dependency`, `Self dependency over j`.

    Attributes:
        statement: Label of the statement whose comment makes the claim.
        line: The line it stands on.
        text: The claim as one phrase.
        present: Whether the claim is that there is one.
        loops: The loops it is about; empty for all of them.
    """

    statement: str
    line: int
    text: str
    present: bool
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceLoops:
    """`SLoop: …` for one operand: the loops that its value changes with.

    Attributes:
        statement: Label of the statement whose comment makes the claim.
        line: The line it stands on.
        text: The claim as one phrase.
        operand: Which of `looptrans.frontend.operands.operands`, from 0.
        name: The operand as the listing writes it.
        loops: The loops that are claimed.
    """

    statement: str
    line: int
    text: str
    operand: int
    name: str
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetLoops:
    """`TLoop: …`: the loops that the value of the target changes with."""

    statement: str
    line: int
    text: str
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Touches:
    """`RAW on m`: the statement is the later one of such a dependence on this array or scalar."""

    statement: str
    line: int
    text: str
    kind: TouchKind
    name: str


@dataclass(frozen=True, slots=True)
class Aggregation:
    """`Aggregation over j`: what the statement writes gathers the iterations of these loops."""

    statement: str
    line: int
    text: str
    loops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A claim that cannot be judged as it is written, and so does not hold.

    Attributes:
        reason: Why, as one sentence.
    """

    statement: str
    line: int
    text: str
    reason: str


Claim: TypeAlias = SelfDependence | SourceLoops | TargetLoops | Touches | Aggregation | Malformed
