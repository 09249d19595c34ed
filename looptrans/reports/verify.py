"""What `verify` found: a table of runs, and the same as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

from looptrans.reports.style import PLAIN, Style, block, pad, paragraph, printable
from looptrans.reports.words import counted
from looptrans.runtime.verifying.verification import NORM, OutputError, Report, Run

HEAD = ("sizes", "dtype", "inputs", "output", "error", "tolerance", "ok")


def verification_text(report: Report, style: Style = PLAIN) -> str:
    """Return the runs as a table, an output a line, and what is wrong with a run below it."""
    title = f"{printable(report.name)}: {report.direction}, {report.device}, seed {report.seed}"
    lines = [style.paint("bold", title), ""]
    rows = [(run, _rows(run)) for run in report.runs]
    texts = [HEAD, *(row for _, each in rows for row in each)]
    widths = [max(len(row[at]) for row in texts) for at in range(len(HEAD))]
    if rows:
        lines.append(style.paint("dim", _line(HEAD, widths)))
    before: tuple[str, ...] = ()
    for run, each in rows:
        for row in each:
            same = 1 if row[:1] == before[:1] else 0
            text = _line(("",) * same + row[same:], widths)
            lines.append(text if row[-1] == "yes" else style.paint("bad", text))
            before = row
        for problem in _problems(run):
            lines += [style.paint("bad", text) for text in paragraph(problem, "    ! ")]
    lines += [text for note in report.notes for text in ["", *paragraph(note)]]
    if report.refused:
        text = f"There are no kernels of the backward pass: {report.refused}"
        lines += ["", *(style.paint("bad", line) for line in paragraph(text))]
    lines += ["", style.paint("good" if report.passed else "bad", _summary(report))]
    return block(lines)


def _rows(run: Run) -> list[tuple[str, ...]]:
    sizes = " ".join(f"{printable(name)}={value}" for name, value in run.sizes.items())
    inputs = run.inputs if run.layout == "contiguous" else f"{run.inputs}, {run.layout} strides"
    found: list[tuple[str, ...]] = []
    for output in run.outputs:
        passed = output.passed and not run.problems
        found.append(
            (
                sizes or "none",
                run.dtype,
                inputs,
                printable(output.name),
                _number(output.error),
                _number(output.tolerance),
                "yes" if passed else "NO",
            )
        )
    return found


def _number(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}" if math.isfinite(value) else "inf"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(pad(text, width) for text, width in zip(row, widths, strict=True))


def _problems(run: Run) -> list[str]:
    found = [f"{output.name}: {output.problem}" for output in run.outputs if output.problem]
    return [*run.problems, *found]


def _summary(report: Report) -> str:
    if not report.runs:
        return "nothing was run"
    failed = sum(not run.passed for run in report.runs)
    total = counted(len(report.runs), "run")
    text = f"{failed} of {total} failed" if failed else f"{total}, all right"
    skipped = sum(output.skipped for run in report.runs for output in run.outputs)
    if skipped:
        text += f"; {counted(skipped, 'element')} not compared: nan in the listing itself, "
        text += "too large or small for the type, or decided by a tie"
    return text


def verification_json(report: Report) -> str:
    """Return the runs as JSON, schema `looptrans.verify/1`.

    `outputs` has for each output the run that came closest to its tolerance or went furthest beyond
    it; `runs` has them all. Of a backward pass they are the gradients. An error that is infinite is
    the string "inf". `refused` says why a pass that was asked for has no kernels.
    """
    document = {
        "schema": "looptrans.verify/1",
        "program": report.name,
        "passed": report.passed,
        "pass": report.direction,
        "device": report.device,
        "seed": report.seed,
        "outputs": [_output(output) for output in report.outputs],
        "runs": [
            {
                "sizes": dict(run.sizes),
                "dtype": run.dtype,
                "inputs": run.inputs,
                "strides": run.layout,
                "passed": run.passed,
                "problems": list(run.problems),
                "outputs": [_output(output) for output in run.outputs],
            }
            for run in report.runs
        ],
        "notes": list(report.notes),
        "refused": report.refused or None,
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def _output(output: OutputError) -> dict[str, Any]:
    return {
        "name": output.name,
        "error": output.error if math.isfinite(output.error) else "inf",
        "tolerance": output.tolerance,
        "norm": NORM,
        "passed": output.passed,
        "not_compared": output.skipped,
        "problem": output.problem or None,
    }
