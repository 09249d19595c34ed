"""`--at M=2,N=3,n=[2,0,1]`: the sizes, and contents of integer arrays, to list instances for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TypeAlias

from looptrans.ir.source import as_named

Given: TypeAlias = "int | list[Given]"

DEEPEST = 8
LARGEST = 2**63 - 1
EXAMPLE = "as in M=2,N=3 or n=[2,0,1]"


def add_at(parser: argparse.ArgumentParser) -> None:
    """Add `--at`; it may be given more than once."""
    parser.add_argument(
        "--at",
        type=assignments,
        action="extend",
        metavar="M=2,N=3",
        help='list every instance at these sizes ("" where a listing has none); '
        "integer arrays as n=[2,0,1]",
    )


def assignments(text: str) -> list[tuple[str, Given]]:
    """Read `M=2,n=[2,0,1],t=[[0,1],[2,3]]`.

    Raises:
        argparse.ArgumentTypeError: It is something else.
    """
    found: list[tuple[str, Given]] = []
    for part in _parts(text):
        name, equals, value = (each.strip() for each in part.rpartition("="))
        if not (name and equals and value):
            raise argparse.ArgumentTypeError(f"{part!r} is not NAME=INTEGER, {EXAMPLE}")
        found.append((as_named(name), _value(value, part)))
    return found


def _parts(text: str) -> Iterator[str]:
    """Split at the commas that stand in no bracket."""
    depth, start = 0, 0
    for position, sign in enumerate(text):
        depth += {"[": 1, "]": -1}.get(sign, 0)
        if not 0 <= depth <= DEEPEST:
            raise argparse.ArgumentTypeError(f"the brackets of {text!r} do not match")
        if sign == "," and depth == 0:
            yield text[start:position].strip()
            start = position + 1
    if depth:
        raise argparse.ArgumentTypeError(f"the brackets of {text!r} do not match")
    if text[start:].strip():
        yield text[start:].strip()


def _value(text: str, part: str) -> Given:
    if text.startswith("[") and text.endswith("]"):
        return [_value(item, part) for item in _parts(text[1:-1])]
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{part!r}: {text!r} is no integer, {EXAMPLE}") from None
    if abs(number) > LARGEST:
        raise argparse.ArgumentTypeError(f"{part!r}: the integer has more than 64 bits")
    return number
