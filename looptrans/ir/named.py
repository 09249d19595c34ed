"""The statements that labels stand for: `S3` is `y[i] = h`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from looptrans.ir.listing import assign_text, if_text
from looptrans.ir.program import Assign, If, Program
from looptrans.ir.walk import nodes

_LABEL = re.compile(r"\b[SG]\d+\b")


def unlabelled_in(text: str, program: Program) -> list[str]:
    """Return what the labels in a text stand for, each as `S3 is y[i] = h`.

    Labels that the author of the listing wrote are left out: the reader knows them. So are those
    that are no label of it.
    """
    named = set(_LABEL.findall(text)) - {a.name for a in program.arrays}
    found = []
    for node in nodes(program.body):
        match node:
            case Assign() if node.label in named and not node.labelled:
                found.append(f"{node.label} is {assign_text(node)}")
            case If() if node.label in named:
                found.append(f"{node.label} is {if_text(node).removesuffix(':')}")
            case _:
                pass
    return found


def relabelled(text: str, within: Program, program: Program) -> str:
    """Return a text about one listing with the labels of another that means the same.

    Statements that the other one does not have are written out.

    Args:
        text: The text.
        within: The listing that its labels are of.
        program: The other listing.
    """
    names = {a.name for a in within.arrays} | {p.name for p in within.parameters}
    texts = {label: said for label, said in _texts(within) if label not in names}
    labels: dict[str, list[str]] = {}
    for label, each in _texts(program):
        labels.setdefault(each, []).append(label)

    def named(match: re.Match[str]) -> str:
        said = texts.get(match[0])
        known = [] if said is None else labels.get(said, [])
        if len(known) == 1:
            return known[0]
        return match[0] if said is None else f"`{said}`"

    return _LABEL.sub(named, text)


def _texts(program: Program) -> Iterator[tuple[str, str]]:
    for node in nodes(program.body):
        match node:
            case Assign(label=str(label)):
                yield label, assign_text(node)
            case If(label=str(label)):
                yield label, if_text(node).removesuffix(":")
            case _:
                pass
