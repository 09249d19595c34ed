"""Why a listing has no backward pass."""

from __future__ import annotations


class NotDifferentiated(Exception):
    """A listing, or a part of one, whose backward pass is not derived.

    Attributes:
        reason: Why, as a sentence without a full stop.
        label: The statement it is about, or an empty string.
        remedy: What to do about it, where that is known, or an empty string.
    """

    def __init__(self, reason: str, label: str = "", remedy: str = "") -> None:
        super().__init__(f"{label}: {reason}" if label else reason)
        self.reason = reason
        self.label = label
        self.remedy = remedy


class OnExtreme(NotDifferentiated):
    """What would need to know which of several rounded numbers was the largest or smallest."""
