"""What the verbs have in common: how one is added, and arguments that several take."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from looptrans.ir.source import as_named

if TYPE_CHECKING:
    from looptrans.ir.program import Program

    Verbs: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Verbs = argparse._SubParsersAction

PASSES = ("forward", "backward", "both")
FORMS = ("kernels", "launch", "atomics")
SECONDS_TO_WARN = 5.0

Implementation: TypeAlias = Callable[[argparse.Namespace], int]


def add_verb(
    verbs: Verbs,
    name: str,
    implementation: Implementation,
    *,
    summary: str,
    description: str = "",
    examples: str,
) -> argparse.ArgumentParser:
    """Add a verb and return its parser, for its arguments.

    Args:
        verbs: The verbs of the command line.
        name: What the user types.
        implementation: Runs it and returns the exit status; imports what it needs itself.
        summary: One line for `looptrans --help`.
        description: What `looptrans VERB --help` says besides.
        examples: Commands, one a line.
    """
    parser = verbs.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{description}".strip(),
        epilog="examples:\n" + "\n".join(f"  {line}" for line in examples.strip().splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=implementation)
    return parser


# The short names of element types, which FlashAttention's world uses, and torch's and NumPy's.
_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}


def element_type(text: str) -> str:
    """Return the full name of an element type, `bfloat16` for `bf16`; other texts as they are."""
    return _SHORT.get(text, text)


def add_listing(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add the argument that names a listing, or `several` of them, or none."""
    parser.add_argument(
        "file",
        nargs="*" if several else None,
        type=_listing,
        metavar="FILE",
        help="a listing: FILE, FILE::FUNCTION, FILE::Class.method, or - for standard input",
    )


def _listing(text: str) -> str:
    return text[1:] if text.startswith(" -::") else text


def add_format(parser: argparse.ArgumentParser, *choices: str) -> None:
    """Add `--format`, with the first choice as the default."""
    parser.add_argument(
        "--format",
        choices=choices,
        default=choices[0],
        help=f"how to print the result (default: {choices[0]})",
    )


def add_placement(parser: argparse.ArgumentParser) -> None:
    """Add `--placement`."""
    parser.add_argument(
        "--placement",
        choices=("literal", "annotated"),
        default="literal",
        help="take statements where they stand, or in the loops their comments say "
        "(default: literal)",
    )


def add_passes(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--pass`; it is called `which`, since `pass` is a word of Python.

    Args:
        parser: The parser of the verb.
        what: What it chooses.
    """
    parser.add_argument(
        "--pass",
        dest="which",
        choices=PASSES,
        default=PASSES[0],
        help=f"{what} (default: {PASSES[0]})",
    )


def add_of(parser: argparse.ArgumentParser) -> None:
    """Add `--of`."""
    parser.add_argument(
        "--of",
        type=names,
        metavar="O,…",
        help="the outputs that receive a gradient (default: all that need no arg-max)",
    )


def add_gradients(parser: argparse.ArgumentParser) -> None:
    """Add `--of` and `--form`: of what gradients are taken, and how their kernels run."""
    add_of(parser)
    parser.add_argument(
        "--form",
        choices=FORMS,
        default=FORMS[0],
        help="how the kernels of a backward pass share the work, as in emit (default: kernels)",
    )


def add_budget(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """Add `--budget`; without it, each of several questions has the usual limit of its own."""
    parser.add_argument(
        "--budget",
        type=_seconds,
        default=None if several else 30.0,
        metavar="SECONDS",
        help="give up on a transformation after this long and say what is unknown (default: 30 for "
        "each question asked about it)"
        if several
        else "give up after this long and say what is unknown (default: 30)",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def load_listing(arguments: argparse.Namespace) -> Program:
    """Read the listing that the arguments name, in the placement they ask for.

    Raises:
        ListingError: With every mistake found.
    """
    from looptrans.frontend import load

    program = load(arguments.file)
    if arguments.placement == "annotated":
        from looptrans.frontend.placement import annotated_placement

        return annotated_placement(program)
    return program


def warn_of_subscripts(program: Program) -> None:
    """Point out, on standard error, each subscript that may be negative.

    In NumPy it would count from the end, and what is said of the listing would not hold there.
    """
    from looptrans.analysis.api import negative_subscripts
    from looptrans.reports.style import printable

    for warning in negative_subscripts(program, budget=SECONDS_TO_WARN):
        print(f"warning: {printable(warning)}", file=sys.stderr)


def add_sizes(parser: argparse.ArgumentParser, flag: str = "--sizes") -> None:
    """Add an argument that sets parameters, `M=4,N=5`; it may be given more than once."""
    parser.add_argument(
        flag,
        type=parameters,
        action="extend",
        default=[],
        metavar="M=4,N=5",
        help="values of sizes, and of real parameters",
    )


def parameters(text: str) -> list[tuple[str, int | float]]:
    """Read `M=4,N=5`.

    Raises:
        argparse.ArgumentTypeError: It is something else.
    """
    found: list[tuple[str, int | float]] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = (each.strip() for each in part.partition("="))
        name = as_named(name)
        if not (name and equals and value):
            raise argparse.ArgumentTypeError(f"{part!r} is not NAME=NUMBER, as in M=4,N=5")
        number = _number(part, value)
        before = dict(found).get(name, number)
        if before != number:
            raise argparse.ArgumentTypeError(
                f"{text!r} gives {name} as {before} and as {number}: give it once"
            )
        found.append((name, number))
    return found


def file_name(text: str) -> str:
    """Read the name of a file or folder.

    Raises:
        argparse.ArgumentTypeError: It is empty, or holds what no name can hold.
    """
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a file")
    return text


def names(text: str) -> tuple[str, ...]:
    """Read names, as in `O,lse`; each counts once.

    Raises:
        argparse.ArgumentTypeError: It is something else.
    """
    found = tuple(as_named(part.strip()) for part in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of names, as in O,lse")
    return tuple(dict.fromkeys(found))


def seed(text: str) -> int:
    """Read what random inputs begin with.

    Raises:
        argparse.ArgumentTypeError: It is no integer from 0 to 2**31 - 1.
    """
    if not (text.isascii() and text.isdecimal()) or int(text) >= 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 0 to 2**31 - 1")
    return int(text)


def _number(part: str, value: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    raise argparse.ArgumentTypeError(f"{part!r}: {value!r} is no number")
