"""Where something stands in a listing."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text: lines from 1, columns from 0 in UTF-8 bytes, the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


NOWHERE = Span(0, 0, 0, 0)


def as_named(text: str) -> str:
    """Return names as Python reads them: the micro sign `µ` of a keyboard is the letter `μ`."""
    return unicodedata.normalize("NFKC", text)


@dataclass(frozen=True, slots=True)
class Source:
    """A listing's text and the name it is shown under."""

    name: str
    text: str

    @property
    def plain(self) -> str:
        """The text without a byte order mark, every line ended by a line feed.

        Its lines are Python's: other characters that Unicode calls line breaks do not end one.
        """
        return self.text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")

    def line(self, number: int) -> str:
        """Return line `number` (from 1) without its newline; empty past the end."""
        lines = self.plain.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""
