"""`looptrans explain`: an error code, or a kind of certificate, in plain words."""

from __future__ import annotations

import argparse
import inspect

from looptrans.cli.terminal import refused
from looptrans.cli.verb import Verbs, add_verb
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.verdict import CertificateKind

EXAMPLES = """
looptrans explain
looptrans explain E012
looptrans explain storage
"""
CERTIFICATES: dict[CertificateKind, tuple[str, str]] = {
    "order": (
        "no dependence is reversed",
        """\
Two accesses to one cell, one of them a write, come in the same order after the step as before it,
for all sizes and inputs. It is shown on the exact sets of iterations; where it does not hold, the
smallest two iterations that would change places are the example.""",
    ),
    "storage": (
        "every read gets the value it got before",
        """\
A value that is kept elsewhere (in a local, a private copy, a larger array, a partial result) or
worked out again is, at every read, the one that the write before the step would have given. It is
shown by the last write before each read, for all sizes and inputs; where it does not hold, the
example is a read, the write it saw and the write it would see now.""",
    ),
    "algebra": (
        "two expressions are equal",
        """\
Equal over the real numbers, for all values: a law of an operator, a rescaled sum, a gradient. It
is shown by bringing both sides to one normal form; where they differ, the example is numbers.""",
    ),
    "rounding": (
        "equal over the reals, not bit for bit",
        """\
Floating-point operations are done in another order or another form, so the last digits may differ.
It is stated wherever it is so, and holds nothing back: what makes the two equal over the reals is
shown by the other certificates of the step.""",
    ),
}


def add_explain(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "explain",
        explain,
        summary="explain an error or certificate code in plain words",
        examples=EXAMPLES,
    )
    parser.add_argument(
        "code",
        metavar="CODE",
        nargs="?",
        help="such as E012, or a kind of certificate; all errors without one",
    )


def explain(arguments: argparse.Namespace) -> int:
    """Print what a code means, or every code with its title."""
    mistakes = _mistakes()
    if arguments.code is None:
        for code, mistake in mistakes.items():
            print(f"{code}  {mistake.title}")
        return 0
    found = mistakes.get(arguments.code.strip().upper())
    for kind, (title, text) in CERTIFICATES.items():
        if kind == arguments.code.strip().lower():
            print(f"{kind}: {title}\n\n{text}")
            return 0
    if found is None:
        known = ", ".join((*mistakes, *CERTIFICATES))
        return refused(f"there is no code {arguments.code!r}", f"the codes are {known}")
    print(f"{found.code}: {found.title}\n\n{inspect.cleandoc(found.__doc__ or '')}")
    return 0


def _mistakes() -> dict[str, type[Mistake]]:
    from looptrans.cli.output import UnwritableFile
    from looptrans.emit.refusal import NoBackward, NoKernel
    from looptrans.executor.errors import EXECUTION_MISTAKES
    from looptrans.frontend.mistakes import MISTAKES
    from looptrans.transforms.editing.errors import NEST_MISTAKES
    from looptrans.transforms.mistakes import REFUSALS, SCRIPT_MISTAKES, Undecided

    found: list[type[Mistake]] = [*MISTAKES, *EXECUTION_MISTAKES, *SCRIPT_MISTAKES, *NEST_MISTAKES]
    found += [*REFUSALS.values(), Undecided, UnwritableFile, NoKernel, NoBackward]
    return {each.code: each for each in sorted(found, key=lambda mistake: mistake.code)}
