"""How text is dressed: colour, width, alignment, and names a terminal can show safely."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 100

_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "flow": "34",
    "anti": "33",
    "output": "35",
    "good": "32",
    "bad": "31",
    "doubt": "33",
}


@dataclass(frozen=True, slots=True)
class Style:
    """Whether text is coloured; the command line decides, once.

    Attributes:
        colour: Write ANSI escapes.
    """

    colour: bool = False

    def paint(self, role: str, text: str) -> str:
        """Return `text` in the colour of `role`: bold, dim, good, bad, doubt or a kind."""
        if not self.colour or not text:
            return text
        return f"\x1b[{_CODES[role]}m{text}\x1b[0m"


PLAIN: Final = Style()


def printable(text: str) -> str:
    """Return `text` on one line, with what a terminal would obey written as an escape."""
    if text.isprintable():
        return text
    spaced = text.replace("\r\n", " ").replace("\n", " ").replace("\t", " ")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in spaced)


def columns(text: str) -> int:
    """Return how many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def pad(text: str, width: int) -> str:
    """Return `text` with spaces after it up to `width` columns."""
    return text + " " * max(0, width - columns(text))


def shorten(text: str, width: int) -> str:
    """Return `text`, or its beginning and `…` where it is wider than `width` columns."""
    if columns(text) <= width:
        return text
    return _head(text, max(width - 1, 0)) + "…"


def wrap(text: str, width: int) -> list[str]:
    """Break `text` at spaces, and inside a word only where the word alone is too wide."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        joined = f"{line} {word}" if line else word
        if columns(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        rest = word
        while columns(rest) > width:
            head = _head(rest, width)
            lines.append(head)
            rest = rest[len(head) :]
        line = rest
    if line:
        lines.append(line)
    return lines


def paragraph(text: str, first: str = "", rest: str | None = None, width: int = WIDTH) -> list[str]:
    """Wrap `text` behind the prefix `first`, further lines behind `rest` (default: as deep)."""
    after = " " * columns(first) if rest is None else rest
    room = width - max(columns(first), columns(after))
    lines = wrap(printable(text), max(room, 10))
    if not lines:
        return [first.rstrip()]
    return [first + lines[0], *(after + line for line in lines[1:])]


def block(lines: list[str]) -> str:
    """Join lines into a text: no trailing spaces, one newline at the end."""
    return "\n".join(line.rstrip() for line in lines).rstrip("\n") + "\n"


def _head(text: str, width: int) -> str:
    used = 0
    for position, character in enumerate(text):
        used += columns(character)
        if used > width:
            return text[: max(position, 1)]
    return text
