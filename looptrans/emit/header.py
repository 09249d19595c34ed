"""The header of an emitted module: where it comes from."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.emit.layout import COLUMNS, INDENT, statement, words
from looptrans.ir.listing import listing
from looptrans.ir.program import Program

if TYPE_CHECKING:
    from looptrans.adjoint.derived import Backward

_MARGIN = "#     "


def header(program: BlockProgram, version: str) -> list[str]:
    """Return the header as comment lines."""
    lines = [*_title(version), "#", "# The listing:", "#", *_shown(program.listing)]
    lines += _steps(program, "these kernels", "the code")
    return [*lines, *_notes(program.notes)]


def split_header(program: BlockProgram, parts: BlockProgram, version: str) -> list[str]:
    """Return the header of a module with a loop in parts as comment lines.

    Args:
        program: What is emitted without parts.
        parts: What is emitted with them.
        version: The version of looptrans.
    """
    lines = [*_title(version), "#", "# The listing:", "#", *_shown(program.listing)]
    lines += _steps(program, "the kernels without parts", "those kernels")
    lines += _steps(parts, "the kernels of parts", "those kernels")
    lines += [
        "#",
        "# The kernel gives each part whole blocks instead, as many as all others but the last:",
        "# the parts are runs of iterations in order either way, and that is all the laws ask for.",
    ]
    return [*lines, *_notes((*program.notes, *parts.notes))]


def backward_header(
    found: Backward, forward: BlockProgram, backward: BlockProgram, version: str
) -> list[str]:
    """Return the header of a module with a backward pass as comment lines.

    Args:
        found: The backward pass.
        forward: What is emitted for the forward pass.
        backward: What is emitted for the backward pass.
        version: The version of looptrans.
    """
    lines = [*_title(version), "#", "# The listing:", "#"]
    lines += _shown(replace(found.listing, docstring=None))
    lines += ["#", "# The steps from there to its backward pass, with what each leans on:"]
    for number, step in enumerate(found.steps, 1):
        leans = "; ".join(f"{each.kind}: {each.law}" for each in step.certificates)
        lines += _item(f"{number}.", step.name + (f" ({leans})" if leans else ""))
    lines += ["#", "# Its backward pass:", "#", *_shown(found.program)]
    lines += _steps(forward, "the forward kernels", "the forward kernels")
    lines += _steps(backward, "the backward kernels", "the backward kernels")
    return [*lines, *_notes((*found.notes, *forward.notes, *backward.notes))]


def _title(version: str) -> list[str]:
    return [f"# Made by looptrans {version}. Needs only torch and triton, 3.6 to 3.9."]


def _shown(program: Program) -> list[str]:
    text = listing(program).rstrip("\n")
    return [line for written in text.split("\n") for line in _quoted(written)]


def _steps(program: BlockProgram, end: str, code: str) -> list[str]:
    if not program.steps:
        return []
    lines = ["#", f"# The steps from there to {end}:"]
    for number, step in enumerate(program.steps, 1):
        lines += _item(f"{number}.", step)
    lines += ["#", f"# Where they end; the labels in {code} are those of this nest:", "#"]
    return [*lines, *_shown(program.scheduled)]


def _notes(notes: Sequence[str]) -> list[str]:
    lines = ["#", "# Notes:"] if notes else []
    for note in dict.fromkeys(notes):
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
