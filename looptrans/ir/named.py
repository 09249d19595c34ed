"""The statements that a sentence names and the listing does not: `S3` is `y[i] = h`."""

from __future__ import annotations

import re

from looptrans.ir.listing import assign_text, if_text
from looptrans.ir.program import Assign, If, Program
from looptrans.ir.walk import nodes

_LABEL = re.compile(r"\b[SG]\d+\b")


def unlabelled_in(text: str, program: Program) -> list[str]:
    """Return what the labels in a text stand for, each as `S3 is y[i] = h`.

    Labels that the author of the listing wrote are left out: the reader knows them. So are those
    that are no label of it.
    """
    named = set(_LABEL.findall(text))
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
