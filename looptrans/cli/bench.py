"""`looptrans bench`: emitted kernels timed on a GPU, beside what else the user could call."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from looptrans.cli.terminal import clear_progress, refused, show_progress, style
from looptrans.cli.verb import (
    FORMS,
    Verbs,
    add_format,
    add_gradients,
    add_listing,
    add_passes,
    add_verb,
    element_type,
    file_name,
    parameters,
    seed,
)

if TYPE_CHECKING:
    from looptrans.ir.program import Program
    from looptrans.runtime.benching.machine import Machine
    from looptrans.runtime.benching.plan import Plan
    from looptrans.runtime.benching.results import Bench, Pass

DTYPES = ("bfloat16", "float16", "float32")

DESCRIPTION = """\
Times the kernels of listings on a GPU. What else there is to call is timed beside them on the same
arguments: scaled_dot_product_attention by cuDNN, by flash and by the memory-efficient kernel, and
FlexAttention, compiled. They are offered where they give the numbers of the listing: arguments are
tried as queries, keys, values, scale, mask, bias, slopes and soft cap at small sizes, in the
proportions of those that are timed, and the numbers at these are compared once more. Where nothing
fits, the reason is printed. A plain matrix product is the ceiling.

Work is counted in the listing: two operations for each multiply-add of a matrix product, in the
iterations that its bounds leave, and once where several kernels work a product out again. Without
a matrix product the rate is the bytes of arguments and results in a second.

Times are taken by CUDA events, after a rest and a warm-up, the L2 cache overwritten before each
call; the table has the median, and low and high, which leave out a fifth of the calls on either
side. The backward pass is timed through torch's autograd for every implementation.

Long loops have 4096 and 16384 iterations, loops inside a block 64 and 128, together 16384 rows,
unless --sizes names one set or, given again, several; what a set leaves out is found. An
implementation for which there is no memory is left out with the reason, and the others go on. The
files of --output and --plot are written whenever a result is there, so that an interrupted run
leaves what it has.

Without a GPU nothing is run or written, and the exit status is 3; --plan says what would be timed,
beside what, and how much work it is. A listing without kernels is refused with the reason; the
exit status is then 1, as where the kernels fail."""
EXAMPLES = """
looptrans bench specs/attention.py
looptrans bench specs/attention_causal.py --pass both --sizes B=4,H=16,M=4096,N=4096,E=128,D=128
looptrans bench specs/attention*.py --pass both --output benchmarks/results --plot attention.svg
looptrans bench specs/matmul.py --dtype fp16 --sizes M=8192,N=8192,K=8192 --format json
looptrans bench specs/attention_gqa.py --plan
"""


def add_bench(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "bench",
        bench,
        summary="time the kernels on a GPU, beside what else could be called",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_listing(parser, several=True)
    add_passes(parser, "which passes")
    add_gradients(parser)
    parser.add_argument(
        "--sizes",
        type=parameters,
        action="append",
        metavar="M=4096,…",
        help="one set of sizes, and of real parameters, of the listings that have them; may be "
        "given more than once",
    )
    parser.add_argument(
        "--dtype",
        type=element_type,
        choices=DTYPES,
        default=DTYPES[0],
        help=f"the type of floating-point arrays (default: {DTYPES[0]})",
    )
    parser.add_argument("--seed", type=seed, default=0, help="of random inputs (default: 0)")
    parser.add_argument(
        "--output",
        type=file_name,
        metavar="FILE",
        help="write the results as JSON; in a folder the file is named after the GPU",
    )
    parser.add_argument(
        "--plot", type=file_name, metavar="FILE", help="write the rates as an SVG, likewise"
    )
    parser.add_argument(
        "--plan", action="store_true", help="say what would be timed, and time nothing"
    )
    add_format(parser, "text", "json")


def bench(arguments: argparse.Namespace) -> int:
    """Time kernels and print the results."""
    from looptrans.frontend import load
    from looptrans.reports.bench import bench_json, bench_text, plan_text

    if not arguments.file:
        return refused("name a listing, as in looptrans bench specs/attention.py")
    if arguments.plan and (arguments.output or arguments.plot or arguments.format == "json"):
        return refused("--plan times nothing: leave out --output, --plot and --format json")
    programs = [load(file) for file in arguments.file]
    mistake = next(filter(None, (_mistake(each, arguments) for each in programs)), "")
    if mistake or (mistake := _unwritable(arguments)):
        return refused(mistake)
    from looptrans.runtime.benching.machine import NoGpu, gpu

    machine: Machine | None = None
    try:
        if not arguments.plan:
            machine = gpu()
        from looptrans.runtime.benching.plan import foreseen
    except (NoGpu, ModuleNotFoundError) as error:
        return refused(error, status=3)
    passes = _passes(arguments)
    plans, notes = _plans(programs, passes, arguments)
    if machine is None:
        alike = tuple(dict.fromkeys(plan.alike for plan in plans))
        print(plan_text(alike, foreseen(plans, passes, arguments.seed)), end="")
        return 1 if notes else 0
    if not plans:
        return 1
    found = _run(plans, passes, notes, arguments, machine)
    clear_progress()
    if arguments.format == "json":
        print(bench_json(found), end="")
    else:
        print(bench_text(found, style()), end="")
    return 1 if notes or found.failed else 0


def _passes(arguments: argparse.Namespace) -> tuple[Pass, ...]:
    if arguments.which == "both":
        return ("forward", "backward")
    return (cast("Pass", arguments.which),)


def _mistake(program: Program, arguments: argparse.Namespace) -> str:
    """Say what is wrong with --of, --form and --sizes, if anything."""
    from looptrans.ir.outputs import outputs

    if arguments.which == "forward" and (arguments.of or arguments.form != FORMS[0]):
        return "--of and --form are about a backward pass: add --pass backward"
    known = [output.name for output in outputs(program)]
    for name in arguments.of or ():
        if name not in known:
            return f"{program.name} has no output {name}; it has {', '.join(known) or 'none'}"
    sizes = {p.name for p in program.parameters if p.is_integer}
    for name, value in (pair for each in arguments.sizes or () for pair in each):
        if name in sizes and not (isinstance(value, int) and 0 < value < 1 << 31):
            return f"{name}={value} is no integer above 0"
    return ""


def _unwritable(arguments: argparse.Namespace) -> str:
    """Say which of the files could not be written in the end."""
    for path in filter(None, (arguments.output, arguments.plot)):
        folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            return f"cannot write {path}: name a file in a folder that exists and may be written"
    return ""


def _plans(
    programs: list[Program], passes: tuple[Pass, ...], arguments: argparse.Namespace
) -> tuple[list[Plan], list[str]]:
    """Return what is to be timed, and why some of it cannot be, printed already."""
    from looptrans.emit.refusal import Refused
    from looptrans.ir.diagnostic import ListingError, Mistake
    from looptrans.ir.source import Source
    from looptrans.runtime.benching.plan import planned, subject_of

    known = {p.name for program in programs for p in program.parameters}
    plans: list[Plan] = []
    notes: list[str] = []
    for number, program in enumerate(programs):
        _progress(number, len(programs), f"{program.name}: deriving the kernels")
        try:
            subject = subject_of(
                program, passes, arguments.of, arguments.form, load=not arguments.plan
            )
            plans += planned(subject, _sets(program, known, arguments))
        except Refused as refusal:
            clear_progress()
            print(refusal, file=sys.stderr)
            notes.append(f"{program.name} has no kernels")
            continue
        except Mistake as mistake:
            clear_progress()
            source = program.source if mistake.span is not None else Source("", "")
            raise ListingError([mistake], source) from None
        if subject.refused:
            clear_progress()
            print(subject.refused, file=sys.stderr)
            notes.append(f"{program.name} has no kernels of a backward pass")
    clear_progress()
    return plans, notes


def _sets(
    program: Program, known: set[str], arguments: argparse.Namespace
) -> list[dict[str, int | float]] | None:
    """Return the sets of sizes of one listing: what only others have is left out."""
    if arguments.sizes is None:
        return None
    own = {p.name for p in program.parameters}
    sets = [
        {name: value for name, value in each if name in own or name not in known}
        for each in arguments.sizes
    ]
    return [each for number, each in enumerate(sets) if each not in sets[:number]]


def _run(
    plans: list[Plan],
    passes: tuple[Pass, ...],
    notes: list[str],
    arguments: argparse.Namespace,
    machine: Machine,
) -> Bench:
    """Time everything; the files are written anew, whole, whenever some of it is done."""
    from looptrans.runtime.benching.bench import ceiling, timed
    from looptrans.runtime.benching.machine import versions
    from looptrans.runtime.benching.results import Bench

    dtype = arguments.dtype
    total = sum(len(plan.passes(passes)) for plan in plans)
    found = Bench(
        machine.facts(),
        versions(),
        shlex.join(["looptrans", *sys.argv[1:]]),
        datetime.now(UTC).isoformat(timespec="seconds"),
        dtype,
        machine.method,
        ceiling(dtype, machine),
        tuple(dict.fromkeys(plan.alike for plan in plans)),
        (),
        tuple(notes),
    )
    device = found.device
    for case in timed(plans, passes, dtype, machine, arguments.seed, _progress):
        found = replace(found, cases=(*found.cases, case), notes=tuple(notes))
        count = len(found.cases)
        if count < total:
            unfinished = f"not finished: {count} of {total} results"
            _write(replace(found, notes=(*notes, unfinished)), arguments)
    if len(found.cases) < total:
        lost = f"not finished, the GPU was lost: {len(found.cases)} of {total} results"
        found = replace(found, notes=(*notes, lost))
    found = replace(found, device={**device, "at the end": machine.facts()})
    _write(found, arguments)
    return found


def _write(found: Bench, arguments: argparse.Namespace) -> None:
    from looptrans.cli.output import write_text
    from looptrans.reports.bench import bench_json
    from looptrans.reports.bench_svg import bench_svg

    if arguments.output:
        write_text(_target(arguments.output, found, "json"), bench_json(found))
    if arguments.plot:
        write_text(_target(arguments.plot, found, "svg"), bench_svg(found))


def _target(path: str, found: Bench, suffix: str) -> str:
    """Return the file results are written to: in a folder one named after the GPU."""
    if not os.path.isdir(path):
        return path
    name = re.sub(r"[^a-z0-9]+", "-", str(found.device.get("name", "gpu")).lower()).strip("-")
    return os.path.join(path, f"{name or 'gpu'}.{suffix}")


def _progress(done: int, total: int, text: str) -> None:
    """Show a bar on a terminal; nothing elsewhere."""
    bar = "#" * (20 * done // max(total, 1))
    show_progress(f"[{bar:<20}] {done}/{total} {text}")
