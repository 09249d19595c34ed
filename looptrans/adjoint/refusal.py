"""Why a listing has no backward pass."""

from __future__ import annotations

import re

from looptrans.ir.named import relabelled
from looptrans.ir.program import Array, Assign, Program
from looptrans.ir.walk import assignments, placed


class NotDifferentiated(Exception):
    """A listing, or a part of one, whose backward pass is not derived.

    Attributes:
        reason: Why, as a sentence without a full stop.
        label: The statement it is about, or an empty string.
        remedy: What to do about it, where that is known, or an empty string.
        within: The listing that the statements are of, where it is another that means the same.
    """

    def __init__(self, reason: str, label: str = "", remedy: str = "") -> None:
        super().__init__(f"{label}: {reason}" if label else reason)
        self.reason = reason
        self.label = label
        self.remedy = remedy
        self.within: Program | None = None

    def of(self, program: Program) -> NotDifferentiated:
        """Return the refusal with the labels of the listing that was to be differentiated."""
        if self.within is None or self.within is program:
            return self
        reason = relabelled(self.reason, self.within, program)
        label = relabelled(self.label, self.within, program)
        if any(place.label == label for place in placed(program)):
            return type(self)(reason, label, self.remedy)
        pair = self._in_both(program)
        if pair is None:
            return type(self)(reason, "", self.remedy)
        here, there = pair
        texts = [_renamed(text, here, there, program) for text in (reason, self.remedy)]
        return type(self)(texts[0], there.label, texts[1])

    def _in_both(self, program: Program) -> tuple[Assign, Assign] | None:
        """Return the statement it is about, and the one of a listing that stands in its place."""
        if self.within is None or self.within.source != program.source:
            return None
        here = assignments(self.within.body)
        here = [node for node in here if node.label == self.label]
        there = assignments(program.body)
        there = [node for node in there if here and node.span == here[0].span]
        return (here[0], there[0]) if len(here) == len(there) == 1 else None

    def because(self, more: str) -> NotDifferentiated:
        """Return the refusal with one more part of a sentence in its reason."""
        found = type(self)(f"{self.reason}; {more}", self.label, self.remedy)
        found.within = self.within
        return found


def _renamed(text: str, here: Assign, there: Assign, program: Program) -> str:
    """Call what a statement sets as it is called where it stands in the listing."""
    known = {array.name for array in program.arrays}
    for own, target in zip(here.targets, there.targets, strict=False):
        if own.array not in known:
            text = re.sub(rf"\b{own.array}\b", target.array, text)
    return text


def of_unknown_size(array: Array) -> NotDifferentiated:
    """Return that no annotation says how large an array is."""
    reason = f"it is not known how large {array.name} is"
    if array.annotation is not None:
        reason += f": its annotation {array.annotation} names no shape"
    rank = array.rank or 2
    letters = "MNKLEDFG"[:rank] if rank <= 8 else ""
    shape = " ".join(letters) or "M N"
    return NotDifferentiated(
        reason, remedy=f'write the shape as jaxtyping does, {array.name}: Float[Array, "{shape}"]'
    )


class OnExtreme(NotDifferentiated):
    """What would need to know which of several rounded numbers was the largest or smallest."""
