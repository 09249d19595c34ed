"""The comments of a listing, by line; `ast` drops them, so they are read with `tokenize`."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass

LABEL = re.compile(r"^([A-Z][A-Za-z_]*\d+)\s*(?::|$|#)")


@dataclass(frozen=True, slots=True)
class Comments:
    """Comments without their first `#`.

    Attributes:
        trailing: By line number, a comment that follows code on its line.
        own: By line number, a comment that has its line to itself.
    """

    trailing: dict[int, str]
    own: dict[int, str]

    def between(self, first: int, last: int) -> str:
        """Join the comments on lines `first` to `last`, those of a statement over several lines."""
        found = [
            comment
            for line in range(first, last + 1)
            if (comment := self.trailing.get(line) or (line > first and self.own.get(line)))
        ]
        return " # ".join(found)


def read_comments(text: str) -> Comments:
    """Collect the comments of a text that `ast` has already accepted."""
    trailing: dict[int, str] = {}
    own: dict[int, str] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                before = token.line[:column]
                where = trailing if before.strip() else own
                where[line] = token.string[1:].strip()
    except (tokenize.TokenError, IndentationError):
        # ast accepted the text; what was read so far are its comments.
        pass
    return Comments(trailing, own)


def label_of(comment: str) -> str | None:
    """Return the statement label a comment starts with: `S3: …`, or `S3` alone."""
    found = LABEL.match(comment)
    return found[1] if found else None
