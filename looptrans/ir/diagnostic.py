"""Errors for the person who made the mistake: what, where, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

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
        super().__init__("\n".join(mistake.message for mistake in self.mistakes))

    def render(self) -> str:
        """Return all mistakes as text, an empty line between two."""
        return "\n\n".join(mistake.render(self.source) for mistake in self.mistakes)


WIDEST = 160


def _excerpt(source: Source, span: Span) -> list[str]:
    place = f"  {source.name}:{span.line}:{span.column + 1} | "
    encoded = source.line(span.line).encode()
    text = _visible(encoded.decode())
    start = len(encoded[: span.column].decode(errors="ignore"))
    end = len(text)
    if span.end_line == span.line:
        end = len(encoded[: span.end_column].decode(errors="ignore"))
    end = max(start + 1, min(end, len(text)))
    if len(text) > WIDEST:
        left = max(0, start - WIDEST // 4)
        cut = text[left : left + WIDEST]
        text = ("…" if left else "") + cut + ("…" if left + WIDEST < len(text) else "")
        shift = left - (1 if left else 0)
        start, end = start - shift, min(end - shift, len(text))
    margin = len(text) - len(text.lstrip())
    margin = min(margin, start)
    text, start, end = text[margin:], start - margin, max(end - margin, start - margin + 1)
    return [place + text, " " * (len(place) + start) + "^" * (end - start)]


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
