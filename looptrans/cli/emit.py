"""`looptrans emit`: the Triton modules of listings."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from looptrans.cli.terminal import refused
from looptrans.cli.verb import FORMS, PASSES, Verbs, add_listing, add_of, add_verb, file_name

if TYPE_CHECKING:
    from looptrans.emit.backward import EmittedBackward
    from looptrans.emit.listing import Emitted
    from looptrans.emit.split import EmittedSplit
    from looptrans.ir.program import Program

    Made: TypeAlias = Emitted | EmittedBackward | EmittedSplit

SHELF = "generated"
LISTINGS = "specs"
SUFFIXES = {"forward": "", "backward": "_backward", "split": "_split"}

DESCRIPTION = """\
A module needs only torch and triton: kernels, configurations to tune over, and a launcher that
checks its inputs. It goes to standard output, or with -o to DIR/NAME.py, written whole or not at
all. A listing that cannot be run in blocks is refused with the statement and the reason: nothing is
written for it, and the exit status is 1.

--pass backward gives one module with both passes, DIR/NAME_backward.py: NAME_forward,
NAME_backward, and NAME, which is differentiable; backward and both mean the same.

--split gives a module that runs a long loop of few rows in parts, each in a program of its own, and
joins them with the derived operator, DIR/NAME_split.py: NAME, and NAME_split, which chooses the
number of parts unless it is given one.

--check writes nothing and compares DIR with what would be written; a listing that is refused must
have no file there. Without FILE it takes every listing in specs/, the modules of both passes unless
--pass names one, those in parts that DIR has, and DIR may hold nothing else."""
EXAMPLES = """
looptrans emit specs/attention_naive.py
looptrans emit specs/matmul.py specs/softmax.py -o kernels
looptrans emit specs/attention_naive.py --pass backward
looptrans emit specs/attention.py --split
looptrans emit --check
looptrans emit specs/matmul.py --check -o kernels
"""


def add_emit(verbs: Verbs) -> None:
    """Add the verb."""
    parser = add_verb(
        verbs,
        "emit",
        emit,
        summary="write the Triton module of a listing",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    add_listing(parser, several=True)
    parser.add_argument(
        "--pass",
        dest="passes",
        choices=PASSES,
        help="what to emit (default: forward)",
    )
    add_of(parser)
    parser.add_argument(
        "--form",
        choices=FORMS,
        default="kernels",
        help="how the kernels of a backward pass share the work: a launch for each, those that "
        "work out the same sums in one launch, or such made one with atomic additions "
        "(default: kernels)",
    )
    parser.add_argument(
        "--split",
        action="store_true",
        help="a module that computes a loop in parts where rows are few",
    )
    parser.add_argument("-o", "--output", type=file_name, metavar="DIR", help="write DIR/NAME.py")
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail when a file of DIR (default: {SHELF}) is missing or differs",
    )


def emit(arguments: argparse.Namespace) -> int:
    """Print, write or compare the modules."""
    from looptrans.emit.listing import module_name
    from looptrans.frontend import load

    whole = not arguments.file
    if whole and not arguments.check:
        return refused("name a listing, as in looptrans emit specs/matmul.py")
    if arguments.split and arguments.passes not in (None, "forward"):
        return refused("--split is about the forward pass: leave --pass out")
    passes = _passes(arguments, whole)
    if "backward" not in passes and (arguments.of or arguments.form != "kernels"):
        return refused("--of and --form are about a backward pass: add --pass backward")
    targets = arguments.file or sorted(str(path) for path in Path(LISTINGS).glob("*.py"))
    if not targets:
        return refused(f"there are no listings in {LISTINGS}/ here; name a FILE")
    programs = [load(target) for target in targets]
    stems = {module_name(program): program for program in programs}
    if len(stems) < len(programs):
        names = [module_name(program) for program in programs]
        name = min(name for name in names if names.count(name) > 1)
        return refused(f"{names.count(name)} listings are called {name}; emit them apart")
    for program in programs:
        problem = _unknown_output(program, arguments.of or ())
        if problem:
            return refused(problem)

    status = 0
    for program in programs:
        kept = Path(arguments.output or SHELF, f"{module_name(program)}_split.py")
        more = ("split",) if whole and "split" not in passes and kept.exists() else ()
        for each in (*passes, *more):
            status = max(status, 0 if _emit(program, each, arguments) else 1)
    # A folder that is asked about for one pass may hold the modules of the other one.
    known = [name + suffix for name in stems for suffix in SUFFIXES.values()]
    if whole and not _no_strangers(arguments.output or SHELF, known):
        status = 1
    return status


def _passes(arguments: argparse.Namespace, whole: bool) -> tuple[str, ...]:
    if arguments.split:
        return ("split",)
    if arguments.passes is None:
        return ("forward", "backward") if whole else ("forward",)
    return ("forward",) if arguments.passes == "forward" else ("backward",)


def _unknown_output(program: Program, of: tuple[str, ...]) -> str:
    from looptrans.ir.outputs import outputs

    known = [output.name for output in outputs(program)]
    for name in of:
        if name not in known:
            return f"{program.name} has no output {name}; it has {', '.join(known) or 'none'}"
    return ""


def _emit(program: Program, which: str, arguments: argparse.Namespace) -> bool:
    """Print, write or compare one module, and tell whether that went well."""
    from looptrans.emit.listing import module_name
    from looptrans.emit.refusal import Refused

    made: Made | None = None
    try:
        made = _made(program, which, arguments)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
    else:
        for note in _notes(made):
            print(f"note: {made.name}: {note}", file=sys.stderr)
    if arguments.check:
        name = module_name(program) + SUFFIXES[which]
        return _in_step(arguments.output or SHELF, name, made)
    if made is not None:
        _write(arguments.output, made)
    return made is not None


def _made(program: Program, which: str, arguments: argparse.Namespace) -> Made:
    if which == "forward":
        from looptrans.emit.listing import emitted

        return emitted(program)
    if which == "split":
        from looptrans.emit.split import emitted_split

        return emitted_split(program)
    from looptrans.emit.backward import emitted_with_backward

    return emitted_with_backward(program, arguments.of, arguments.form)


def _notes(made: Made) -> list[str]:
    from looptrans.emit.listing import Emitted
    from looptrans.emit.split import EmittedSplit

    if isinstance(made, Emitted):
        return list(made.blocks.notes)
    if isinstance(made, EmittedSplit):
        return list(dict.fromkeys((*made.blocks.notes, *made.parts.notes)))
    notes = (*made.found.notes, *made.forward.notes, *made.backward.notes)
    return list(dict.fromkeys(notes))


def _write(folder: str | None, made: Made) -> None:
    if folder is None:
        print(made.text, end="")
        return
    from looptrans.cli.output import FOLDER_REMEDY, write_text

    path = os.path.join(folder, f"{made.name}.py")
    with contextlib.suppress(OSError):  # write_text says why a file cannot be written there
        os.makedirs(folder, exist_ok=True)
    write_text(path, made.text, FOLDER_REMEDY)
    print(path)


def _in_step(folder: str, name: str, made: Made | None) -> bool:
    """Tell whether the file of a listing is the one that would be written, and say why not."""
    path = Path(folder, f"{name}.py")
    try:
        there: str | None = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        there = None
    except (OSError, UnicodeDecodeError):
        there = ""
    if made is None:
        problem = "is there, but its listing is refused" if there is not None else ""
    elif there is None:
        problem = "is missing"
    else:
        problem = "differs from what its listing gives" if there != made.text else ""
    if problem:
        remedy = "remove it" if made is None else f"looptrans emit FILE -o {folder} writes it"
        print(f"{path} {problem}; {remedy}")
    return not problem


def _no_strangers(folder: str, names: list[str]) -> bool:
    """Tell whether every module of a folder belongs to a listing, and name those that do not."""
    strangers = sorted(path for path in Path(folder).glob("*.py") if path.stem not in names)
    for path in strangers:
        print(f"{path} belongs to no listing in {LISTINGS}/; remove it")
    return not strangers
