"""The labels of statements (S1, S2, …) and of data-dependent conditions (G1, G2, …)."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from looptrans.frontend.comments import label_of
from looptrans.frontend.mistakes import DuplicateLabel
from looptrans.frontend.syntax import span_of


@dataclass(slots=True)
class Labels:
    """Hands out labels; those that comments state come first.

    Attributes:
        stated: The labels that comments state anywhere in the listing.
    """

    stated: set[str]
    _lines: dict[str, int] = field(default_factory=dict)
    _next: dict[str, int] = field(default_factory=dict)

    def of(self, statement: ast.stmt, comment: str) -> tuple[str, bool]:
        """Return the label of a statement, and whether its comment states it.

        Raises:
            DuplicateLabel: Another statement has it.
        """
        label = label_of(comment)
        if label is None:
            return self.fresh("S"), False
        if label in self._lines:
            raise DuplicateLabel(
                f"the label {label} is used twice",
                span_of(statement),
                why=f"line {self._lines[label]} has it already; reports name statements by label",
                remedy="give every statement a label of its own",
            )
        self._lines[label] = statement.lineno
        return label, True

    def fresh(self, letter: str) -> str:
        """Return the next label of a kind that no comment states."""
        number = self._next.get(letter, 1)
        while f"{letter}{number}" in self.stated:
            number += 1
        self._next[letter] = number + 1
        return f"{letter}{number}"


def labels_in(comments: Iterable[str]) -> Labels:
    """Collect the labels that the comments of a listing's statements state."""
    return Labels({label for comment in comments if (label := label_of(comment)) is not None})
