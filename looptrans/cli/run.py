"""`looptrans run`: executes a listing on given or random inputs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from looptrans.cli.verb import (
    Verbs,
    add_format,
    add_listing,
    add_sizes,
    add_verb,
    element_type,
    file_name,
)
from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.source import Source
from looptrans.ir.walk import is_parallel

if TYPE_CHECKING:
    from looptrans.executor.log import AccessLog
    from looptrans.ir.program import Program

DESCRIPTION = """\
Scalar operations in the order of the listing, sums from left to right. Sizes that are not given
come from the shapes of the inputs, else they are small numbers; arrays that are not given are
random, within the declared ranges and the contracts. The same seed gives the same numbers.

A listing with parallel loops is run as if they were sequential, a loop with barriers phase by
phase; those are the outputs. Then it is run some times more with the iterations of its parallel
loops interleaved at random, and the outputs are compared. Two accesses to one cell that nothing
orders, one of them a write, are a race, whatever the numbers are: it is shown, and the exit status
is 1, as where the outputs differ by more than rounding."""

EXAMPLES = """
looptrans run specs/flash_forward.py
looptrans run specs/matmul.py --sizes M=2,N=3,K=4 --seed 7 --dtype float32
looptrans run specs/softmax.py --inputs in.npz --out out.npz
looptrans run specs/layernorm.py --sizes eps=1e-5 --log --format json
looptrans run parallel_sum.py --shuffles 20
"""


def add_run(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "run",
        run,
        summary="execute a listing on random or .npz input",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_listing(parser)
    add_sizes(parser)
    parser.add_argument(
        "--inputs", type=file_name, metavar="IN.npz", help="arrays by argument name"
    )
    parser.add_argument("--out", type=file_name, metavar="OUT.npz", help="write the outputs there")
    parser.add_argument("--seed", type=_seed, default=0, help="of random inputs (default: 0)")
    parser.add_argument(
        "--dtype",
        type=element_type,
        choices=("float64", "float32", "float16"),
        default="float64",
        help="the type to compute in (default: float64)",
    )
    parser.add_argument("--log", action="store_true", help="count the accesses to each array")
    parser.add_argument(
        "--shuffles",
        type=_count,
        default=5,
        metavar="N",
        help="run a listing with parallel loops N times more, shuffled (default: 5)",
    )
    add_format(parser, "text", "json")


def _seed(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 0 to 2**64 - 1")
    return number


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 0 to 999999")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Execute the listing and print its outputs."""
    from looptrans.frontend import load

    program = load(arguments.file)
    try:
        return _run(program, arguments)
    except Mistake as mistake:
        source = program.source if mistake.span is not None else Source("", "")
        raise ListingError([mistake], source) from None


def _run(program: Program, arguments: argparse.Namespace) -> int:
    from looptrans.executor import AccessLog, RaceLog, execute_on, prepare
    from looptrans.reports.archive import read_archive, write_archive
    from looptrans.reports.outputs import outputs_json, outputs_text

    given = read_archive(arguments.inputs) if arguments.inputs else {}
    inputs = prepare(program, _unique(arguments.sizes), given, arguments.seed)
    log: AccessLog | None = AccessLog(keep_entries=False) if arguments.log else None
    races = RaceLog() if is_parallel(program) else None
    outputs = execute_on(program, inputs, dtype=arguments.dtype, log=log, races=races)
    if arguments.out:
        write_archive(arguments.out, outputs)
    if races is None:
        report = outputs_json if arguments.format == "json" else outputs_text
        print(report(program, inputs, outputs, log), end="")
        return 0

    from looptrans.executor.agreement import compare_shuffled
    from looptrans.reports.races import agreement_document, agreement_text, races_text

    agreement = compare_shuffled(
        program, inputs, outputs, arguments.shuffles, dtype=arguments.dtype, races=races
    )
    if arguments.format == "json":
        more = agreement_document(agreement, races.races)
        print(outputs_json(program, inputs, outputs, log, more), end="")
    else:
        parts = [
            outputs_text(program, inputs, outputs, log),
            agreement_text(agreement, races.races),
            races_text(program, inputs, races.races),
        ]
        print("\n".join(part for part in parts if part), end="")
    return 0 if agreement.is_full and not races.races else 1


def _unique(sizes: list[tuple[str, int | float]]) -> dict[str, int | float]:
    """Return the sizes by name.

    Raises:
        InputMismatch: One has two values.
    """
    from looptrans.executor.errors import InputMismatch

    found: dict[str, int | float] = {}
    for name, value in sizes:
        if name in found and found[name] != value:
            raise InputMismatch(
                f"--sizes gives {name} as {found[name]} and as {value}", None, remedy="give it once"
            )
        found[name] = value
    return found
