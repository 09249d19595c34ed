"""`looptrans explain`: an error code in plain words."""

from __future__ import annotations

import argparse
import inspect
import sys

from looptrans.cli.verb import Verbs, add_verb
from looptrans.ir.diagnostic import Mistake

EXAMPLES = """
looptrans explain
looptrans explain E012
"""


def add_explain(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "explain",
        explain,
        summary="explain an error code in plain words",
        examples=EXAMPLES,
    )
    parser.add_argument("code", metavar="CODE", nargs="?", help="such as E012; all without one")


def explain(arguments: argparse.Namespace) -> int:
    """Print what a code means, or every code with its title."""
    mistakes = _mistakes()
    if arguments.code is None:
        for code, mistake in mistakes.items():
            print(f"{code}  {mistake.title}")
        return 0
    found = mistakes.get(arguments.code.strip().upper())
    if found is None:
        print(f"error: there is no code {arguments.code!r}", file=sys.stderr)
        print(f"  help: the codes are {', '.join(mistakes)}", file=sys.stderr)
        return 2
    print(f"{found.code}: {found.title}\n\n{inspect.cleandoc(found.__doc__ or '')}")
    return 0


def _mistakes() -> dict[str, type[Mistake]]:
    from looptrans.cli.output import UnwritableFile
    from looptrans.emit.refusal import NoBackward, NoKernel
    from looptrans.executor.errors import EXECUTION_MISTAKES
    from looptrans.frontend.mistakes import MISTAKES
    from looptrans.transforms.mistakes import REFUSALS, SCRIPT_MISTAKES, Undecided
    from looptrans.transforms.nest import NEST_MISTAKES

    found: list[type[Mistake]] = [*MISTAKES, *EXECUTION_MISTAKES, *SCRIPT_MISTAKES, *NEST_MISTAKES]
    found += [*REFUSALS.values(), Undecided, UnwritableFile, NoKernel, NoBackward]
    return {each.code: each for each in sorted(found, key=lambda mistake: mistake.code)}
