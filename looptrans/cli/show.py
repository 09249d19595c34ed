"""`looptrans show`: the canonical listing."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from looptrans.cli.verb import (
    Verbs,
    add_budget,
    add_format,
    add_listing,
    add_placement,
    add_verb,
    load_listing,
)

if TYPE_CHECKING:
    from looptrans.ir.program import Program

DESCRIPTION = """\
The listing is read, never executed; printed, it reads back as the same one. --pass backward prints
the listing of its gradients, which is a listing like any other; one without a backward pass is
refused with the reason, and the exit status is 1."""
EXAMPLES = """
looptrans show specs/flash_forward.py
looptrans show nest.py::kernel --format json
looptrans show specs/matmul.py --annotate
looptrans show specs/matmul.py --stage blocks
looptrans show specs/matmul.py --pass backward
looptrans show specs/matmul.py --pass backward | looptrans report -
cat nest.py | looptrans show -
"""


def add_show(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "show",
        show,
        summary="print the canonical listing",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_listing(parser)
    add_format(parser, "text", "json")
    add_placement(parser)
    parser.add_argument(
        "--annotate",
        action="store_true",
        help="write the claims about each statement into its comment",
    )
    parser.add_argument(
        "--stage",
        choices=("listing", "blocks"),
        default="listing",
        help="the listing, or what its kernels do block by block (default: listing)",
    )
    parser.add_argument(
        "--pass",
        dest="which",
        choices=("forward", "backward"),
        default="forward",
        help="the listing itself, or that of its gradients (default: forward)",
    )
    add_budget(parser)


def show(arguments: argparse.Namespace) -> int:
    """Print the listing."""
    from looptrans.ir.listing import listing

    program = load_listing(arguments)
    if arguments.stage == "blocks":
        return _show_blocks(program, arguments)
    if arguments.which == "backward":
        from looptrans.adjoint.backward import backward
        from looptrans.adjoint.refusal import NotDifferentiated
        from looptrans.emit.refusal import Refused

        try:
            program = backward(program).program
        except NotDifferentiated as error:
            print(Refused(error, program, program), file=sys.stderr)
            return 1
    if arguments.annotate:
        from looptrans.analysis.api import annotated
        from looptrans.analysis.budget import BudgetExceeded

        try:
            program = annotated(program, budget=arguments.budget)
        except BudgetExceeded as error:
            print(f"unknown: the claims cannot be written: {error}", file=sys.stderr)
            return 3
    if arguments.format == "json":
        from looptrans.reports.program import program_json

        print(program_json(program))
    else:
        print(listing(program), end="")
    return 0


def _show_blocks(program: Program, arguments: argparse.Namespace) -> int:
    """Print the listing as operations on blocks."""
    if arguments.annotate or arguments.format != "text":
        print("error: --stage blocks is text, without claims", file=sys.stderr)
        return 2
    from looptrans.blocks.block_ir.text import blocks_text
    from looptrans.emit.backward import emitted_with_backward
    from looptrans.emit.listing import lowered
    from looptrans.emit.refusal import Refused

    try:
        if arguments.which == "backward":
            blocks = emitted_with_backward(program).backward
        else:
            blocks = lowered(program)
        print(blocks_text(blocks), end="")
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0
