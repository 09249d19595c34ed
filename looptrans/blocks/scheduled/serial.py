"""Loops found, while they are lowered, to be better run one iteration at a time."""

from __future__ import annotations

from looptrans.blocks.block_ir.program import NotLowered
from looptrans.blocks.scheduled.sites import Path


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


class OneRowEach(NotLowered):
    """Rows of a block are not alike, as where a loop has another range for each of them.

    It runs one iteration at a time, or stores a number of the row at places of its own.

    Attributes:
        rows: The variables of these rows; a program that does one of them can do it.
    """

    def __init__(self, rows: frozenset[str], reason: str, label: str) -> None:
        super().__init__(reason, label)
        self.rows = rows
