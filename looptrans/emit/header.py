"""The header of an emitted module: where it comes from."""

from __future__ import annotations

import textwrap

from looptrans.blocks.program import BlockProgram
from looptrans.emit.layout import COLUMNS, INDENT, statement, words
from looptrans.ir.listing import listing

_MARGIN = "#     "


def header(program: BlockProgram, version: str) -> list[str]:
    """Return the header as comment lines."""
    title = f"Made by looptrans {version}. Needs only torch and triton, 3.6 to 3.9."
    lines = [f"# {title}", "#", "# The listing:", "#"]
    for line in listing(program.listing).rstrip("\n").split("\n"):
        lines += _quoted(line)
    if program.steps:
        lines += ["#", "# The steps from there to these kernels:"]
        for number, step in enumerate(program.steps, 1):
            lines += _item(f"{number}.", step)
        lines += ["#", "# Where they end; the labels in the code are those of this nest:", "#"]
        for line in listing(program.scheduled).rstrip("\n").split("\n"):
            lines += _quoted(line)
    if program.notes:
        lines += ["#", "# Notes:"]
        for note in program.notes:
            lines += _item("-", note)
    return lines


def _quoted(line: str) -> list[str]:
    """Return a line of the listing; a long one over several lines, its comment above it."""
    if not line.strip():
        return ["#"]
    if len(line) + len(_MARGIN) <= COLUMNS:
        return [_MARGIN + line]
    code, sign, comment = line.partition("  # ")
    if not sign:
        code, comment = ("", line.strip()[2:]) if line.strip().startswith("# ") else (line, "")
    indent = " " * (len(line) - len(line.lstrip()))
    columns = COLUMNS - len(_MARGIN) - len(indent)
    lines = [f"# {text}" for text in words(comment, columns - 2)]
    depth = -(-(len(_MARGIN) + len(indent)) // len(INDENT))
    lines += (
        [text[depth * len(INDENT) :] for text in statement(code.strip(), depth)] if code else []
    )
    return [_MARGIN + indent + text for text in lines]


def _item(mark: str, text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        COLUMNS,
        initial_indent=f"#   {mark} ",
        subsequent_indent="#   " + " " * (len(mark) + 1),
        break_on_hyphens=False,
    )
