"""Transformed nests as text: the last one, all of them, or what each step changes."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from typing import Final

from looptrans.ir.listing import listing
from looptrans.ir.step import Step
from looptrans.reports.style import PLAIN, Style, printable

_ROLES: Final = {"+": "good", "-": "bad", "@": "dim"}


def stages_text(steps: Sequence[Step]) -> str:
    """Return the listing after each step, a comment that names the step above it."""
    parts = (
        f"# {number}: {printable(step.name)}\n{listing(step.after)}"
        for number, step in enumerate(steps, start=1)
    )
    return "\n".join(parts)


def changes_text(steps: Sequence[Step], style: Style = PLAIN) -> str:
    """Return what each step changes in the listing, as unified diffs."""
    lines: list[str] = []
    name = steps[0].before.name if steps else ""
    for step in steps:
        before, after = listing(step.before).splitlines(), listing(step.after).splitlines()
        changes = unified_diff(before, after, printable(name), printable(step.name), lineterm="")
        lines += [
            style.paint(_ROLES[line[0]], line) if line[0] in _ROLES else line for line in changes
        ]
        name = step.name
    return "".join(f"{line}\n" for line in lines)
