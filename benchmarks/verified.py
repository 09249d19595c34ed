"""All listings verified on a GPU: forward and backward kernels in every type, side by side.

    .venv/bin/python -m benchmarks.verified                         all of specs/
    .venv/bin/python -m benchmarks.verified FILE … --output benchmarks/results/FILE.json

It is `looptrans verify --pass both` for each listing in a process of its own, with normal inputs,
at two of the sets of sizes that it finds: one beyond blocks, with odd sizes, and one in whole
blocks. Set OMP_NUM_THREADS=1, or the processes' threads are in each other's way. Prints what is
wrong; the exit status is 1 where something is, and 3 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from looptrans.cli.output import write_text
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.emit.refusal import Refused
from looptrans.frontend import load
from looptrans.runtime.benching.machine import NoGpu, gpu, versions
from looptrans.runtime.executed.reference import reference_of
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.verifying.backward import gradient_launcher, verify_gradients
from looptrans.runtime.verifying.sizes import SizeSet, size_sets
from looptrans.runtime.verifying.verification import Report
from looptrans.runtime.verifying.verify import DTYPES, launcher_of, verify_launcher

SPECS = Path(__file__).parent.parent / "specs"
KINDS = ("crossing", "whole")


def sets_of(found: Sequence[SizeSet]) -> tuple[SizeSet, ...]:
    """Return the first set of sizes of each kind, as one that is tried with normal inputs only."""
    first: dict[str, SizeSet] = {}
    for each in found:
        first.setdefault(each.kind, each)
    chosen = [first[kind] for kind in KINDS if kind in first] or [found[0]]
    return tuple(SizeSet("far", each.sizes) for each in chosen)


def reports(path: str, dtypes: Sequence[str]) -> Iterator[Report]:
    """Yield what `verify` finds of the forward and of the backward kernels of a listing."""
    program = load(path)
    device = prepare_device("cuda")
    made = emitted(program)
    launcher = launcher_of(made.text, made.launcher, made.blocks)
    sets = sets_of(size_sets(program, made.blocks))
    yield verify_launcher(reference_of(program), launcher, sets, dtypes, device)
    both = emitted_with_backward(program)
    sets = sets_of(size_sets(program, both.backward, (both.forward,)))
    yield verify_gradients(gradient_launcher(both), sets, dtypes, device)


def verified(job: tuple[str, tuple[str, ...]]) -> list[dict[str, Any]]:
    """Verify one listing; return an entry for each pass and type.

    An entry keeps for each output the run that came closest to failing.
    """
    path, dtypes = job
    entries: list[dict[str, Any]] = []
    started = time.monotonic()
    try:
        for report in reports(path, dtypes):
            entries += [entry(report, dtype) for dtype in dtypes]
    except Exception as error:  # one listing's failure is no other's
        which = "backward" if entries else "forward"
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        entries.append({"pass": which, "passed": isinstance(error, Refused), "reason": reason})
    seconds = round(time.monotonic() - started, 1)
    return [{"program": Path(path).stem, **each, "seconds": seconds} for each in entries]


def entry(report: Report, dtype: str) -> dict[str, Any]:
    """Return what is kept of the runs in one type."""
    own = replace(report, runs=tuple(run for run in report.runs if run.dtype == dtype))
    sizes = {str(run.sizes): dict(run.sizes) for run in own.runs}
    return {
        "pass": report.direction,
        "dtype": dtype,
        "passed": bool(own.runs) and all(run.passed for run in own.runs),
        "sizes": list(sizes.values()),
        "outputs": [
            {
                "name": each.name,
                "error": each.error if math.isfinite(each.error) else "inf",
                "tolerance": each.tolerance,
            }
            for each in own.outputs
        ],
        "wrong": wrong(own),
    }


def facts(_: object) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what there is to say about the GPU, and versions."""
    return gpu().facts(), versions()


def wrong(report: Report) -> list[str]:
    """Say what is wrong in the runs of a report."""
    found = []
    for run in report.runs:
        where = f"{run.inputs} {run.layout} {dict(run.sizes)}"
        found += [f"{where}: {text}" for text in run.problems]
        found += [
            f"{where}: {out.name} {out.problem or f'{out.error:.2e} > {out.tolerance:.2e}'}"
            for out in run.outputs
            if not out.passed
        ]
    return found


def main() -> int:
    """Verify, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="*", default=sorted(map(str, SPECS.glob("*.py"))))
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--output", help="write the results as JSON")
    arguments = parser.parse_args()
    dtypes = tuple(arguments.dtype or DTYPES)
    entries: list[dict[str, Any]] = []
    # The GPU is met in processes of their own: what has met it cannot be forked, and a kernel that
    # fails can leave it such that its process can do no more.
    context = multiprocessing.get_context("fork")
    with context.Pool(arguments.jobs, maxtasksperchild=1) as pool:
        try:
            device, software = pool.apply(facts, (None,))
        except NoGpu as error:
            print(f"error: {error}", file=sys.stderr)
            return 3
        jobs = [(path, dtypes) for path in arguments.file]
        for made in pool.imap_unordered(verified, jobs):
            entries += made
            for each in made:
                mark = "✓" if each["passed"] else "✗"
                what = f"{each['program']} {each['pass']} {each.get('dtype', '')}".strip()
                state = each.get("reason", "right" if each["passed"] else "wrong")
                lines = [f"{mark} {what}: {state}", *each.get("wrong", ())]
                print("\n    ".join(lines), flush=True)
            if arguments.output:
                _write(arguments.output, device, software, entries)
    failed = sum(not each["passed"] for each in entries)
    print(f"{len(entries)} verified, {failed} wrong")
    return 1 if failed else 0


def _place(each: dict[str, Any]) -> tuple[str, str, str]:
    return each["program"], each["pass"], each.get("dtype", "")


def _write(
    path: str,
    device: dict[str, Any],
    software: dict[str, str],
    entries: list[dict[str, Any]],
) -> None:
    document = {
        "schema": "looptrans.verified/1",
        "command": shlex.join(["python", "-m", "benchmarks.verified", *sys.argv[1:]]),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "versions": software,
        "results": sorted(entries, key=_place),
    }
    write_text(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
