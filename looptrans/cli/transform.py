"""`looptrans check` and `looptrans apply`: is it legal, and what does the nest become."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from looptrans.cli.terminal import STATUS, style
from looptrans.cli.verb import (
    Verbs,
    add_budget,
    add_format,
    add_listing,
    add_placement,
    add_verb,
    file_name,
    load_listing,
    warn_of_subscripts,
)

if TYPE_CHECKING:
    from looptrans.ir.step import Step


SYNTAX = """\
A transformation T is a name with arguments, "interchange(i, j)". Quote it: parentheses, ; and *
mean something to the shell. Several are made one after another, each on what the one before left;
they may be several arguments, or one with ; or line ends between them (# begins a comment), so a
file of them is given as "$(cat FILE)".

A loop is named by its variable, j; where several loops have it, by its line in FILE, j@12, or by a
statement in it, j@S7. A statement is named by its label. `looptrans report` lists both."""
CHECK = f"""\
Legal means: the same values for all sizes and inputs; what that was proved by stands beside it.
Illegal comes with the smallest example. Without T, the parallel loops of the listing itself are
checked for races.

{SYNTAX}"""
APPLY = f"""\
The nest goes to standard output, the verdicts to standard error. Where one is not legal nothing is
printed, and the exit status is 1, or 3 if it is unknown.

{SYNTAX}"""
CHECK_EXAMPLES = """
looptrans check specs/stencil.py "interchange(i, j)"
looptrans check specs/stencil.py "skew(j, i, 1)" "interchange(i, j)"
looptrans check specs/matmul.py "privatize(i); parallelize(i)" --format json
looptrans check parallel.py
"""
APPLY_EXAMPLES = """
looptrans apply specs/stencil.py "skew(j, i, 1); interchange(i, j)"
looptrans apply specs/matmul.py "privatize(i); parallelize(i)" | looptrans run -
looptrans apply specs/matmul.py "$(cat steps.txt)" --diff
looptrans apply specs/stencil.py "interchange(i, j)" --show-anyway
"""
CATALOGUE = "see looptrans.transforms.catalogue"


class _Help(argparse.RawDescriptionHelpFormatter):
    """Puts the list of transformations in its place; it is loaded only when help is asked for."""

    def add_text(self, text: str | None) -> None:
        super().add_text(_catalogue() if text == CATALOGUE else text)


def _catalogue() -> str:
    from looptrans.transforms.catalogue import ENTRIES

    width = max(len(entry.signature) for entry in ENTRIES)
    return "\n".join(f"{entry.signature:{width}}  {entry.summary}" for entry in ENTRIES)


def add_check(verbs: Verbs) -> None:
    """Add the verb `check`."""
    parser = add_verb(
        verbs,
        "check",
        check,
        summary="say whether transformations are legal, and why not",
        description=CHECK,
        examples=CHECK_EXAMPLES,
    )
    _add_transformations(parser, "*")
    add_format(parser, "text", "json")
    add_placement(parser)
    add_budget(parser, several=True)


def add_apply(verbs: Verbs) -> None:
    """Add the verb `apply`."""
    parser = add_verb(
        verbs,
        "apply",
        apply,
        summary="transform a nest and print what it becomes",
        description=APPLY,
        examples=APPLY_EXAMPLES,
    )
    _add_transformations(parser, "+")
    add_format(parser, "text", "json")
    add_placement(parser)
    add_budget(parser, several=True)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "-o", "--output", type=file_name, metavar="OUT", help="write the result there"
    )
    shown.add_argument("--steps", action="store_true", help="print the nest after every step")
    shown.add_argument("--diff", action="store_true", help="print what every step changes")
    parser.add_argument(
        "--show-anyway",
        action="store_true",
        help="print the nest also where a step is not legal; the exit status stays what it is",
    )


def _add_transformations(parser: argparse.ArgumentParser, number: str) -> None:
    parser.formatter_class = _Help
    add_listing(parser)
    parser.add_argument(
        "transformations",
        nargs=number,
        default=[],
        metavar="T",
        help='such as "interchange(i, j)"',
    )
    parser.add_argument_group("transformations", CATALOGUE)


def check(arguments: argparse.Namespace) -> int:
    """Print the verdict on each transformation, or on the races of the listing."""
    from looptrans.reports import render_verdict

    steps, untried = _steps(arguments)
    text = render_verdict(steps, arguments.format, style(), untried)
    print(text, end="")
    return _status(steps)


def apply(arguments: argparse.Namespace) -> int:
    """Print the nest after the transformations."""
    from looptrans.reports import render_applied, render_verdict

    steps, untried = _steps(arguments)
    status = _status(steps)
    if arguments.format == "text":
        print(render_verdict(steps, "text", style(sys.stderr), untried), end="", file=sys.stderr)
    text = render_applied(
        steps,
        arguments.format,
        style(),
        "steps" if arguments.steps else "diff" if arguments.diff else "last",
        anyway=arguments.show_anyway,
    )
    if arguments.output is None:
        print(text, end="")
    elif text:
        from looptrans.cli.output import write_text

        write_text(arguments.output, text)
    return status


def _steps(arguments: argparse.Namespace) -> tuple[Sequence[Step], Sequence[str]]:
    """Return the steps that were made, and the transformations that were left out after them."""
    from looptrans.ir.step import Step

    program = load_listing(arguments)
    if not arguments.transformations:
        from looptrans.analysis.budget import sharing
        from looptrans.transforms.judging.check import check_races

        with sharing(arguments.budget):
            step = Step("", program, program, check_races(program), {})
        warn_of_subscripts(program)
        return (step,), ()
    from looptrans.transforms.script import apply_all, parse_script

    calls = parse_script(arguments.transformations)
    steps = apply_all(program, arguments.transformations, budget=arguments.budget)
    warn_of_subscripts(program)
    return steps, [call.text for call in calls[len(steps) :]]


def _status(steps: Sequence[Step]) -> int:
    return next((STATUS[s.verdict.decision] for s in steps if s.verdict.decision != "legal"), 0)
