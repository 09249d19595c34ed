"""Where something stands in a listing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of source text; lines count from 1, columns from 0 in UTF-8 bytes, end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


NOWHERE = Span(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Source:
    """A listing's text and the name it is shown under."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Return line `number` (from 1) without its newline; empty past the end."""
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""
