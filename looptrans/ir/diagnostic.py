"""Errors for the person who made the mistake: what, where, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar
from unicodedata import combining, east_asian_width

from looptrans.ir.source import Source, Span


class Mistake(Exception):
    """A user's mistake. Each kind is a subclass with a code that `looptrans explain` knows.

    The subclass's docstring is what `explain` prints.

    Attributes:
        code: `E` and three digits.
        message: What is wrong, in one line.
        span: Where, or None where no place can be named.
        why: Why that cannot be accepted, or an empty string.
        remedy: What to do about it.
    """

    code: ClassVar[str] = "E000"
    title: ClassVar[str] = "mistake"

    def __init__(self, message: str, span: Span | None, *, why: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.why = why
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        """Let it pass from one process to another, whatever arguments the subclass takes."""
        return Exception.__new__, (type(self), self.message), self.__dict__

    def render(self, source: Source) -> str:
        """Return the error as lines of text, the offending text underlined."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.span is not None and self.span.line > 0:
            lines.extend(_excerpt(source, self.span))
        elif source.name:
            lines.append(f"  {source.name}")
        if self.why:
            lines.append(f"  {self.why}")
        if self.remedy:
            lines.append(f"  help: {self.remedy}")
        return "\n".join(lines)


class ListingError(Exception):
    """All mistakes found in one listing.

    Attributes:
        mistakes: One or more, in the order of the text.
        source: The text their spans point into.
    """

    def __init__(self, mistakes: Iterable[Mistake], source: Source) -> None:
        self.mistakes = tuple(mistakes)
        self.source = source
        super().__init__("; ".join(mistake.message for mistake in self.mistakes))

    def __reduce__(self) -> tuple[object, ...]:
        """Let it pass from one process to another."""
        return type(self), (self.mistakes, self.source)

    def render(self) -> str:
        """Return all mistakes as text, an empty line between two."""
        return "\n\n".join(mistake.render(self.source) for mistake in self.mistakes)


WIDEST = 160


def _excerpt(source: Source, span: Span) -> list[str]:
    """Return the line a span starts on, and carets under the part of it that the span covers."""
    place = f"  {source.name}:{span.line}:{span.column + 1} | "
    text = source.line(span.line)
    start = _characters(text, span.column)
    end = len(text) if span.end_line != span.line else _characters(text, span.end_column)
    end = max(start + 1, min(end, len(text)))
    left = min(start, len(text) - len(text.lstrip()))
    if len(text) - left > WIDEST:
        left = max(left, start - WIDEST // 4)
    shown = text[left : left + WIDEST]
    before = "…" if text[:left].strip() else ""
    after = "…" if text[left + WIDEST :].strip() else ""
    end = max(min(end, left + len(shown)), start + 1)
    margin = " " * (len(place) + len(before) + _width(text[left:start]))
    carets = "^" * max(_width(text[start:end]), 1)
    return [f"{place}{before}{_visible(shown)}{after}".rstrip(), margin + carets]


def _characters(text: str, column: int) -> int:
    """Return how many characters the first `column` bytes of a line hold."""
    return len(text.encode(errors="surrogatepass")[:column].decode(errors="ignore"))


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _width(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    return sum(
        0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in _visible(text)
    )
