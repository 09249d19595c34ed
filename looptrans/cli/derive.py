"""`looptrans derive`: from the listing as written to a nest that can be run fast."""

from __future__ import annotations

import argparse
import os
import sys

from looptrans.cli.verb import (
    Verbs,
    add_format,
    add_listing,
    add_placement,
    add_verb,
    load_listing,
)

STATUS = {"legal": 0, "illegal": 1, "unknown": 3}

DESCRIPTION = """\
Each step is named, shown as what it changes, and followed by what it leans on: order and storage
by the exact dependences, algebra by proof. forward makes passes one, guards the empty prefix, cuts
the loop into blocks and runs in parallel what is free; split gives partial results and their
joining. What cannot be done is said, with the reason."""
EXAMPLES = """
looptrans derive specs/attention_naive.py
looptrans derive specs/attention_naive.py --to split --parts 7
looptrans derive specs/softmax.py --format md
looptrans derive specs/attention_naive.py -o derivation.json && looptrans recheck derivation.json
"""


def add_derive(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "derive",
        derive,
        summary="derive a nest that can be run fast, every step proved",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_listing(parser)
    parser.add_argument(
        "--to",
        type=_goal,
        default="forward",
        metavar="{forward,split}",
        help="one pass in blocks, or parts that are joined (default: forward)",
    )
    parser.add_argument(
        "--block", type=_size, default=64, metavar="SIZE", help="iterations of a block (64)"
    )
    parser.add_argument(
        "--parts", type=_size, default=4, metavar="COUNT", help="parts of a split (4)"
    )
    add_format(parser, "text", "json", "md")
    add_placement(parser)
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="save the derivation there, for recheck"
    )


def _goal(text: str) -> str:
    if text == "backward":
        raise argparse.ArgumentTypeError(
            "the backward pass cannot be derived yet; use forward or split"
        )
    if text not in ("forward", "split"):
        raise argparse.ArgumentTypeError(f"{text!r} is not forward or split")
    return text


def _size(text: str) -> int:
    try:
        size = int(text)
    except ValueError:
        size = 0
    if not 0 < size < 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer above 0")
    return size


def derive(arguments: argparse.Namespace) -> int:
    """Print the derivation."""
    from looptrans.derivation.derive import derive as derived
    from looptrans.derivation.saved import saved
    from looptrans.reports import Style, render_derivation

    program = load_listing(arguments)
    found = derived(program, arguments.to, block=arguments.block, parts=arguments.parts)
    style = Style(colour=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    print(render_derivation(found, arguments.format, style), end="")
    if arguments.output is not None:
        from looptrans.cli.output import write_text

        write_text(arguments.output, saved(found))
    return STATUS[found.decision]
