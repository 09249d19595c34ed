"""A loop found, while it is lowered, to be better run one iteration at a time."""

from __future__ import annotations

from looptrans.blocks.sites import Path


class RunSerially(Exception):
    """A loop that cannot be run in blocks after all, or had better not be.

    Attributes:
        path: Its place.
        reason: Why.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason
