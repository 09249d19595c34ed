"""A transformation that was made: the program before and after, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from looptrans.ir.index import Index, Var
from looptrans.ir.program import Program
from looptrans.ir.verdict import Verdict
from looptrans.ir.walk import placed


@dataclass(frozen=True, slots=True)
class Image:
    """Which instances of `before` an instance of a statement of `after` stands for.

        for i: for j: S1   ->   for t: for u: S1        Image("S1", (Var("u"), Var("t") - Var("u")))

    Attributes:
        statement: The label of the statement of `before`.
        indices: A value for each of its loop variables, outermost first, over the loop variables of
            the statement of `after`; None where the one instance stands for all values.
    """

    statement: str
    indices: tuple[Index | None, ...]


Images: TypeAlias = Mapping[str, Image]


def same_names(before: Program, after: Program) -> dict[str, Image]:
    """Return the instance map of a step that leaves labels and the meaning of variables alone.

    A statement of `after` stands for the one of `before` with its label, each loop variable for the
    one of its name; a variable that is no longer there stands for all of its values.
    """
    earlier = {place.label: place for place in placed(before)}
    found = {}
    for place in placed(after):
        if place.label in earlier:
            variables = {loop.variable for loop in place.loops}
            found[place.label] = Image(
                place.label,
                tuple(
                    Var(loop.variable) if loop.variable in variables else None
                    for loop in earlier[place.label].loops
                ),
            )
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """One transformation, applied.

    Attributes:
        name: What was done, as one writes it: `interchange(i, j)`.
        before: The program it was applied to.
        after: The rewritten program; also given where the verdict is not `legal`, to look at.
        verdict: Whether `after` may stand for `before`.
        images: Which instances of `before` those of `after` stand for, by label of `after`; a
            statement of `after` that is not in it is a copy that the step put in.
    """

    name: str
    before: Program
    after: Program
    verdict: Verdict
    images: Images
