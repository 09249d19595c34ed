"""`looptrans emit`: the Triton modules of listings."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from looptrans.cli.verb import Verbs, add_listing, add_verb

if TYPE_CHECKING:
    from looptrans.emit.listing import Emitted

SHELF = "generated"
LISTINGS = "specs"

DESCRIPTION = """\
A module needs only torch and triton: kernels, configurations to tune over, and a launcher that
checks its inputs. It goes to standard output, or with -o to DIR/NAME.py, written whole or not at
all. A listing that cannot be run in blocks is refused with the statement and the reason: nothing is
written for it, and the exit status is 1.

--check writes nothing and compares DIR with what would be written; a listing that is refused must
have no file there. Without FILE it takes every listing in specs/, and DIR may hold nothing else."""
EXAMPLES = """
looptrans emit specs/attention_naive.py
looptrans emit specs/matmul.py specs/softmax.py -o kernels
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
    parser.add_argument("-o", "--output", metavar="DIR", help="write DIR/NAME.py")
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail when a file of DIR (default: {SHELF}) is missing or differs",
    )


def emit(arguments: argparse.Namespace) -> int:
    """Print, write or compare the modules."""
    from looptrans.emit.listing import emitted, module_name
    from looptrans.emit.refusal import Refused
    from looptrans.frontend import load

    whole = not arguments.file
    if whole and not arguments.check:
        return _usage("name a listing, as in looptrans emit specs/matmul.py")
    targets = arguments.file or sorted(str(path) for path in Path(LISTINGS).glob("*.py"))
    if not targets:
        return _usage(f"there are no listings in {LISTINGS}/ here; name a FILE")
    programs = [load(target) for target in targets]
    names = [module_name(program) for program in programs]
    for name in sorted(set(names)):
        if names.count(name) > 1:
            return _usage(f"{names.count(name)} listings are called {name}; emit them apart")

    status = 0
    for program in programs:
        made: Emitted | None = None
        try:
            made = emitted(program)
        except Refused as refusal:
            print(refusal, file=sys.stderr)
        else:
            for note in made.blocks.notes:
                print(f"note: {made.name}: {note}", file=sys.stderr)
        if arguments.check:
            fine = _in_step(arguments.output or SHELF, module_name(program), made)
        else:
            fine = made is not None
            if made is not None:
                _write(arguments.output, made)
        status = max(status, 0 if fine else 1)
    if whole and not _no_strangers(arguments.output or SHELF, names):
        status = 1
    return status


def _usage(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2


def _write(folder: str | None, made: Emitted) -> None:
    if folder is None:
        print(made.text, end="")
        return
    from looptrans.cli.output import write_text

    path = os.path.join(folder, f"{made.name}.py")
    with contextlib.suppress(OSError):  # write_text says why a file cannot be written there
        os.makedirs(folder, exist_ok=True)
    write_text(path, made.text)
    print(path)


def _in_step(folder: str, name: str, made: Emitted | None) -> bool:
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
