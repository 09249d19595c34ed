"""`looptrans show`: the canonical listing."""

from __future__ import annotations

import argparse
import sys

from looptrans.cli.verb import (
    Verbs,
    add_budget,
    add_format,
    add_listing,
    add_placement,
    add_verb,
    load_listing,
)

EXAMPLES = """
looptrans show specs/flash_forward.py
looptrans show nest.py::kernel --format json
looptrans show specs/matmul.py --annotate
cat nest.py | looptrans show -
"""


def add_show(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "show",
        show,
        summary="print the canonical listing",
        description="The listing is read, never executed; printed, it reads back as the same one.",
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
    add_budget(parser)


def show(arguments: argparse.Namespace) -> int:
    """Print the listing."""
    from looptrans.ir.listing import listing

    program = load_listing(arguments)
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
