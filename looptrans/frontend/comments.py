"""The comments of a listing; `ast` drops them, so they are read with `tokenize`.

Statements take their comments in the order of the text. What nothing takes is handed to the next
statement as lines above it, so that no comment is lost.
"""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass, field

LABEL = re.compile(r"([A-Z][A-Za-z_]*\d+)\s*(?::|$|#)")


@dataclass(slots=True)
class Comments:
    """The comments of a text, without their first `#`, by line.

    Attributes:
        texts: The comments nothing has taken yet; a line has at most one.
        own: The lines that hold nothing but a comment.
    """

    texts: dict[int, str]
    own: set[int]
    _waiting: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._waiting = sorted(self.texts, reverse=True)

    def skip_to(self, line: int) -> None:
        """Forget the comments above a line."""
        self.above(line)

    def above(self, line: int) -> tuple[str, ...]:
        """Take the comments above a line that nothing has taken yet."""
        found = []
        while self._waiting and self._waiting[-1] < line:
            text = self.texts.pop(self._waiting.pop(), None)
            if text is not None:
                found.append(text)
        return tuple(found)

    def beside(self, first: int, last: int, own_until: int) -> str:
        """Take the comments beside the code on lines `first` to `last`, joined.

        Args:
            first: The first line of the code.
            last: Its last line.
            own_until: Comments with a line to themselves are taken up to here.
        """
        found = []
        for line in range(first, last + 1):
            if line in self.texts and (line not in self.own or first < line <= own_until):
                found.append(self.texts.pop(line))
        return " # ".join(text for text in found if text)

    def peek(self, line: int) -> str:
        """Return the comment on a line without taking it."""
        return self.texts.get(line, "")


def read_comments(text: str) -> Comments:
    """Collect the comments of a text that `ast` has already accepted."""
    texts: dict[int, str] = {}
    own: set[int] = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                line, column = token.start
                texts[line] = token.string[1:].strip()
                if not token.line[:column].strip():
                    own.add(line)
    except (tokenize.TokenError, SyntaxError):
        # ast accepted the text; what was read so far are its comments.
        pass
    return Comments(texts, own)


def label_of(comment: str) -> str | None:
    """Return the statement label a comment starts with: `S3: …`, or `S3` alone."""
    found = LABEL.match(comment.lstrip("# "))
    return found[1] if found else None
