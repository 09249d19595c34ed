"""Lines of at most 100 columns.

A statement that is too long is broken inside the brackets that hold most of it; what stands between
them is broken at its commas, else at its loosest operators. Only where there are none, around a
right-hand side, several targets or what is returned, it gets a pair of its own, so that names of
another length move line breaks and change nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

COLUMNS = 100
INDENT = "    "

_TARGET = re.compile(r"\w+(\[[^=]*\])?(, \w+)*")
_COMPREHENSION = re.compile(r"\[([^\[\]]* for [^\[\]]*)\]")
_STRING = re.compile(r'"[^"]*"')
_OPEN, _CLOSE = "([{", ")]}"
_CHOICE = (" if ", " else ")
# The operators a line may be broken before, the loosest first.
_BREAKS = (
    (" for ",),
    _CHOICE,
    (" or ", " and "),
    (" < ", " <= ", " > ", " >= ", " == ", " != "),
    (" | ",),
    (" & ",),
    (" + ", " - "),
    (" * ", " / ", " // ", " % "),
)


def fits(text: str, depth: int, room: int = 0) -> bool:
    """Tell whether a line fits at an indentation, with `room` columns left for a comment."""
    return len(text) + len(INDENT) * depth + room <= COLUMNS


def statement(text: str, depth: int, comment: str = "") -> list[str]:
    """Return a statement as lines, each at most 100 columns.

    Args:
        text: The statement on one line; one that is an assignment has ` = ` or ` += ` in it.
        depth: How often it is indented.
        comment: A short comment for the end of its last line.
    """
    note = f"  # {comment}" if comment else ""
    lines = _broken(text, depth, len(note))
    lines[-1] += note
    return [INDENT * depth + line for line in lines]


def heading(text: str, depth: int) -> list[str]:
    """Return a comment as lines, broken between words."""
    return [f"{INDENT * depth}# {line}" for line in words(text, COLUMNS - len(INDENT) * depth - 2)]


def words(text: str, columns: int) -> list[str]:
    """Return a text as lines of at most `columns`; a word that is longer stands alone."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= columns:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


def filled(items: Sequence[str], depth: int, *, ended: bool = True) -> list[str]:
    """Return arguments as many on a line as fit, with commas; the last one has one if `ended`.

    Where only long names bring a call over several lines, it is not `ended`: the line breaks may
    depend on names, the commas may not.
    """
    lines: list[str] = []
    for item in items:
        if lines and fits(f"{lines[-1]} {item},", depth):
            lines[-1] += f" {item},"
        else:
            lines.append(f"{item},")
    if lines and not ended:
        lines[-1] = lines[-1].removesuffix(",")
    return [INDENT * depth + line for line in lines]


def _broken(text: str, depth: int, room: int) -> list[str]:
    """Return a statement, or an operand, as lines."""
    if fits(text, depth, room):
        return [text]
    head, equals, value = _assignment(text)
    if ", " in head and not fits(f"{head}{equals}(", depth):
        # Several targets, in brackets over several lines.
        first, *others = _broken(value, depth, room + len(equals) + 1)
        targets = (INDENT + line for line in _split(head, depth + 1))
        return ["(", *targets, f"){equals}{first}", *others]
    ended = "," if value.endswith(",") else ""
    comprehension = _COMPREHENSION.fullmatch(value.removesuffix(","))
    if comprehension:
        parts = list(_parts(comprehension[1], (" for ", " if ")))
        body = [line for part in parts for line in _broken(part.strip(), depth + 1, 0)]
        return [f"{head}{equals}[", *(INDENT + line for line in body), f"]{ended}"]
    is_choice = bool(equals) and len(list(_parts(value, _CHOICE))) > 1
    for start, stop in [] if is_choice else _brackets(text, len(head)):
        if fits(text[:start], depth) and fits(text[stop:], depth, room):
            body = _split(text[start:stop], depth + 1)
            return [text[:start], *(INDENT + line for line in body), text[stop:]]
    if equals:
        body = _split(value.removesuffix(","), depth + 1)
        return [f"{head}{equals}(", *(INDENT + line for line in body), f"){ended}"]
    if text.startswith("return "):
        body = _split(text.removeprefix("return "), depth + 1)
        return ["return (", *(INDENT + line for line in body), ")"]
    return [text]


def _split(text: str, depth: int) -> list[str]:
    """Return what stands between brackets as lines."""
    if fits(text, depth):
        return [text]
    parts = [part.removeprefix(", ") for part in _parts(text, (", ",))]
    if len(parts) > 1:
        pieces = [f"{part}," for part in parts[:-1]] + parts[-1:]
        return [line for piece in pieces for line in _split(piece, depth)]
    if not _assignment(text)[1]:
        for operators in _BREAKS:
            parts = list(_parts(text, operators))
            if len(parts) > 1:
                # What is chosen is broken at its own operators, what is combined inside brackets.
                finer = _split if operators is _CHOICE else partial(_broken, room=0)
                return [line for part in parts for line in finer(part.strip(), depth)]
    return _broken(text, depth, 0)


def _parts(text: str, operators: tuple[str, ...]) -> Iterator[str]:
    """Yield the text up to each of the operators outside brackets; they begin the next part."""
    nesting, begin = 0, 0
    plain = _without_strings(text)
    for at, sign in enumerate(plain):
        if sign in _OPEN:
            nesting += 1
        elif sign in _CLOSE:
            nesting -= 1
        elif not nesting and at > begin and plain.startswith(operators, at):
            yield text[begin:at]
            begin = at
    yield text[begin:]


def _brackets(text: str, begin: int) -> list[tuple[int, int]]:
    """Return where the contents of the outermost brackets after `begin` are, the longest first.

    Square brackets are left out: they hold subscripts, which stay on a line.
    """
    found: list[tuple[int, int]] = []
    nesting = 0
    for at, sign in enumerate(_without_strings(text)):
        if sign in _OPEN:
            nesting += 1
            if nesting == 1:
                start = at + 1
        elif sign in _CLOSE:
            nesting -= 1
            if not nesting and sign in ")}" and start > begin and at > start:
                found.append((start, at))
    return sorted(found, key=lambda span: span[0] - span[1])


def _without_strings(text: str) -> str:
    """Return a text with strings blotted out, every sign in its place."""
    return _STRING.sub(lambda found: "_" * len(found[0]), text)


def _assignment(text: str) -> tuple[str, str, str]:
    """Return the target, the sign and the value of an assignment or a keyword argument."""
    for sign in (" = ", " += ", "="):
        head, found, value = text.partition(sign)
        if found and _TARGET.fullmatch(head) and (sign != "=" or head.isidentifier()):
            return head, found, value
    return "", "", text
