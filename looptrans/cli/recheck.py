"""`looptrans recheck`: a saved derivation, proved again."""

from __future__ import annotations

import argparse
import sys

from looptrans.cli.terminal import refused
from looptrans.cli.verb import Verbs, add_verb

DESCRIPTION = """\
Every step is made anew from the listing before it, everything a step of its kind must show is
proved, and the result is compared with the file. Nothing in the file is believed, and nothing is
evaluated. Notes, which say why no more steps were made, are the one thing that is not shown."""
EXAMPLES = """
looptrans recheck derivation.json
looptrans derive specs/attention_naive.py --format json | looptrans recheck -
"""
SAVED = "name a file that looptrans derive has written, with -o FILE or --format json"


def add_recheck(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "recheck",
        recheck,
        summary="prove a saved derivation again",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    parser.add_argument("file", metavar="FILE", help="what derive -o has written, or - for stdin")


def recheck(arguments: argparse.Namespace) -> int:
    """Print what is wrong with a saved derivation, or that nothing is."""
    from looptrans.derivation.saved import Malformed, read
    from looptrans.derivation.saved import recheck as checked

    try:
        text = _text(arguments.file)
        problems = checked(text)
    except (OSError, ValueError, Malformed) as error:
        reason, remedy = str(error), SAVED
        if isinstance(error, OSError):
            reason, remedy = (
                (error.strerror or reason).lower(),
                "check the path and its permissions",
            )
        return refused(f"cannot recheck {arguments.file}: {reason}", remedy)
    for problem in problems:
        print(problem)
    if problems:
        return 1
    found = read(text)
    steps, notes = len(found["steps"]), len(found["notes"])
    shown = f"{steps} step{'' if steps == 1 else 's'}, each made again and proved again"
    print(f"{shown}; nothing differs from the file")
    if notes:
        word = "note says" if notes == 1 else "notes say"
        print(f"its {word} why no more was done, and {'is' if notes == 1 else 'are'} not proved")
    return 0


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.buffer.read().decode("utf-8")
    with open(path, encoding="utf-8") as file:
        return file.read()
