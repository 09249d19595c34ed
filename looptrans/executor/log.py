"""The record of which cells a run read and wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Entry(NamedTuple):
    """One cell, read or written once.

    Attributes:
        array: The array or scalar.
        cell: Its subscripts; empty for a scalar.
        is_write: A write, else a read.
        label: The statement, or the guard whose condition reads.
        iteration: The values of the loop variables around it, outermost first.
    """

    array: str
    cell: tuple[int, ...]
    is_write: bool
    label: str
    iteration: tuple[int, ...]


@dataclass(slots=True)
class Counts:
    """How often the cells of one array were read and written."""

    reads: int = 0
    writes: int = 0


@dataclass(slots=True)
class AccessLog:
    """What a run accesses, in order; a row is one entry for each cell.

    As in `looptrans.ir.walk.accesses`, integer arrays inside index expressions are not accesses.

    Attributes:
        keep_entries: Whether `entries` is filled; counting alone needs no memory.
        entries: The accesses in order of execution.
        counts: By array, in order of first access.
    """

    keep_entries: bool = True
    entries: list[Entry] = field(default_factory=list)
    counts: dict[str, Counts] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Record one access."""
        counts = self.counts.setdefault(entry.array, Counts())
        if entry.is_write:
            counts.writes += 1
        else:
            counts.reads += 1
        if self.keep_entries:
            self.entries.append(entry)
