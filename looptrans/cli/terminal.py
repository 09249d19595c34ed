"""What verbs tell besides their data: the exit status, errors, progress, whether in colour."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from looptrans.reports.style import Style

FINE, NEGATIVE, FAILED, UNKNOWN = 0, 1, 2, 3
"""The exit statuses: fine, a negative verdict, a usage or listing error, nothing is known."""
STATUS = {"legal": FINE, "illegal": NEGATIVE, "unknown": UNKNOWN}
WIDTH = 78
"""How much of a line of progress is shown."""


def refused(message: object, remedy: str = "", *, status: int = FAILED) -> int:
    """Say on standard error what is wrong, and return the exit status for it."""
    print(f"error: {message}", file=sys.stderr)
    if remedy:
        print(f"  help: {remedy}", file=sys.stderr)
    return status


def show_progress(text: str) -> None:
    """Show where the work stands, on a terminal; nothing elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text[:WIDTH]}", end="", file=sys.stderr, flush=True)


def clear_progress() -> None:
    """Take away what shows where the work stands."""
    show_progress("")


def style(stream: TextIO | None = None) -> Style:
    """Return how text is printed: in colour on a terminal, unless NO_COLOR says otherwise."""
    from looptrans.reports.style import Style

    stream = stream or sys.stdout
    return Style(colour=stream.isatty() and not os.environ.get("NO_COLOR"))
