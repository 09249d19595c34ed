"""Why a listing has no backward pass."""

from __future__ import annotations

from looptrans.ir.named import relabelled
from looptrans.ir.program import Array, Program
from looptrans.ir.walk import placed


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
        is_known = any(place.label == label for place in placed(program))
        return type(self)(reason, label if is_known else "", self.remedy)

    def because(self, more: str) -> NotDifferentiated:
        """Return the refusal with one more part of a sentence in its reason."""
        found = type(self)(f"{self.reason}; {more}", self.label, self.remedy)
        found.within = self.within
        return found


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
