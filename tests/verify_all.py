"""`python -m tests.verify_all`: every listing with every shape, head size and type.

Listings that are refused are named. Name listings to verify those alone; a full run takes long.
With --pass backward the gradients are verified, with --pass both they are too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from looptrans.blocks.block_ir.program import NotLowered
from looptrans.executor.errors import NoInputsFound
from looptrans.executor.inputs import prepare
from looptrans.frontend import load
from looptrans.ir.program import Program
from looptrans.reports.verify import verification_text
from looptrans.runtime.verifying.verification import Report
from tests.analysis import SPECS

if TYPE_CHECKING:
    from looptrans.runtime.verifying.backward import Pass

LENGTHS = ((113, 203), (128, 217), (256, 512), (1, 77), (0, 5), (5, 0))
DTYPES = ("float32", "float16")
HEADS = (32, 40, 59, 64, 96, 128)
# What a size of a listing in `specs/` is: a length, a head size, a count of batches and heads, or a
# width that fits no block.
COUNTS = {"B": 1, "H": 2, "G": 1, "R": 2, "P": 16, "window_left": 40, "window_right": 7, "kept": 5}
COUNTS |= {"F": 520}
HEAD_SIZES = ("E", "D", "K")


def sizes_of(program: Program, lengths: tuple[int, int], head: int) -> Mapping[str, float]:
    """Return sizes of a listing: its first length and its second one are those given."""
    names = [parameter.name for parameter in program.parameters if parameter.kind == "size"]
    fixed = COUNTS | dict.fromkeys(HEAD_SIZES, head)
    others = (name for name in names if name not in fixed)
    found = fixed | dict(zip(others, lengths, strict=False))
    return {name: found.get(name, 8) for name in names}


def product(program: Program) -> list[Mapping[str, float]]:
    """Return every combination of lengths and head size that makes a difference to a listing."""
    return _possible(
        program, [sizes_of(program, lengths, head) for lengths in LENGTHS for head in HEADS]
    )


def pairs(program: Program, number: int) -> dict[str, list[Mapping[str, float]]]:
    """Return sizes for each type: every length and every head size of `product` once.

    Args:
        program: The listing.
        number: Which one it is. Six listings with numbers that follow one another have every pair
            of lengths, head size and type between them.
    """
    found: dict[str, list[Mapping[str, float]]] = {dtype: [] for dtype in DTYPES}
    for place, lengths in enumerate(LENGTHS):
        head = HEADS[(number + place) % len(HEADS)]
        dtype = DTYPES[(number // 3 + place) % len(DTYPES)]
        found[dtype].append(sizes_of(program, lengths, head))
    return {dtype: _possible(program, sizes) for dtype, sizes in found.items()}


def _possible(program: Program, sizes: Iterable[Mapping[str, float]]) -> list[Mapping[str, float]]:
    """Return sizes without repetitions, and without those for which there are no inputs.

    Only an empty range (a class out of none) leaves a listing of `specs/` without inputs.
    """
    found: list[Mapping[str, float]] = []
    for each in sizes:
        if each in found:
            continue
        try:
            if 0 in each.values():
                prepare(program, each, {}, 0)
        except NoInputsFound:
            continue
        found.append(each)
    return found


def verified(path: str, which: Pass = "forward") -> Report | str:
    """Verify a listing at all sizes, or return why there is nothing to verify."""
    from looptrans.runtime.verifying.backward import verify_pass

    program = load(path)
    try:
        return verify_pass(program, which, product(program), DTYPES)
    except NotLowered as refusal:
        return refusal.reason


def main() -> int:
    """Verify listings, a process each, and say how it went; 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("listings", nargs="*", help="files (default: those in specs/)")
    parser.add_argument(
        "--pass", dest="which", choices=("forward", "backward", "both"), default="forward"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    paths = arguments.listings or [str(path) for path in SPECS]
    failed = 0
    one = partial(verified, which=arguments.which)
    with multiprocessing.get_context("spawn").Pool(arguments.processes, maxtasksperchild=1) as pool:
        for path, found in zip(paths, pool.imap(one, paths), strict=True):
            name = Path(path).stem
            if isinstance(found, str):
                print(f"{name}: refused: {found}", flush=True)
                continue
            wrong = tuple(run for run in found.runs if not run.passed)
            failed += len(wrong)
            print(f"{name}: {len(found.runs)} runs, {len(wrong)} failed", flush=True)
            if wrong:
                print(verification_text(replace(found, runs=wrong)), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
