"""Runs compilations in a process of their own, which the compiler may end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from looptrans.runtime.inspecting.job import LONGEST, MARK, Job, Refusal, Result, read

SECONDS = 300.0


def compiled(text: str, name: str, jobs: Sequence[Job], seconds: float = SECONDS) -> list[Result]:
    """Compile kernels of a module and return what came of each job.

    Where a compilation ends the process, that job is refused and the others go on in a new one.

    Args:
        text: The module.
        name: What it is called.
        jobs: What to compile.
        seconds: How long one compilation may take.
    """
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="looptrans-") as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        while len(results) < len(jobs):
            results += _attempt(path, name, jobs[len(results) :], seconds)
    return results


def _attempt(path: Path, name: str, jobs: Sequence[Job], seconds: float) -> list[Result]:
    """Return the results of one process: at least one, fewer than the jobs where it was ended."""
    request = {"path": str(path), "name": name, "jobs": [asdict(job) for job in jobs]}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "looptrans.runtime.inspecting.compile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=_environment(),
    )
    try:
        output, errors = process.communicate(json.dumps(request), timeout=seconds * len(jobs))
        late = False
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        late = True
    results = [read(json.loads(line)) for line in output.split("\n")[:-1]]
    if len(results) == len(jobs):
        return results
    reason = f"it took more than {seconds:g} s" if late else _reason(process.returncode, errors)
    # Before the first job it is the module that failed, and would fail again.
    lost = 1 if MARK in errors else len(jobs)
    return [*results, *[Refusal(reason)] * lost]


def _environment() -> dict[str, str]:
    """Return the variables of the process: no interpreter, and this very looptrans."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    here = str(Path(__file__).resolve().parents[3])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (here, kept.get("PYTHONPATH"))))
    return kept


def _reason(status: int, errors: str) -> str:
    """Return why a process ended, in one line: the compiler's own words if there are any."""
    lines = [line.strip() for line in errors.rpartition(MARK)[2].splitlines()]
    lines = [line for line in lines if line and not line.isdigit()]
    telling = [line for line in lines if _TELLING.search(line)]
    said = (telling or lines or ["it said nothing"])[-1 if "Traceback" in errors else 0]
    try:
        how = signal.Signals(-status).name
    except ValueError:
        how = f"exit status {status}"
    return " ".join(f"the compiler ended with {how}: {said}".split())[:LONGEST]


_TELLING = re.compile(r"error\b|assert|fatal", re.IGNORECASE)
