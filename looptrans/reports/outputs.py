"""The outputs of a run as text and as JSON; the same numbers always print the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from looptrans.executor.inputs import Inputs
from looptrans.executor.log import AccessLog
from looptrans.ir.program import Program

Values = np.ndarray[Any, Any]

MOST_SHOWN = 1000
EDGE = 3
ROW_LENGTH = 8


def outputs_text(
    program: Program,
    inputs: Inputs,
    outputs: Mapping[str, Values],
    log: AccessLog | None = None,
) -> str:
    """Return every output with its shape, type and values."""
    lines = [program.name]
    numbers = {**inputs.integers, **inputs.reals}
    if numbers:
        lines.append("  " + ", ".join(f"{name}={_number(v)}" for name, v in numbers.items()))
    for name, values in outputs.items():
        shape = f"({', '.join(str(extent) for extent in values.shape)})"
        lines.append("")
        if values.ndim == 0:
            lines.append(f"{name}  {values.dtype}  {_number(values.item())}")
            continue
        lines.append(f"{name}  {shape} {values.dtype}")
        lines.extend(f"  {line}" for line in _block(values))
    if log is not None:
        lines += ["", "accesses     reads    writes"]
        for name, counts in log.counts.items():
            lines.append(f"  {name:<8} {counts.reads:>7} {counts.writes:>9}")
    return "\n".join(lines) + "\n"


def _number(value: float | int | bool) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _block(values: Values) -> list[str]:
    """Return lines of numbers in columns; a large array shows its edges only."""
    if values.size == 0:
        return ["(no elements)"]
    cut = values.size > MOST_SHOWN
    if values.ndim == 1:
        return _rows([values.tolist()], cut)
    if values.ndim == 2:
        kept = _edges(list(range(len(values))), cut)
        rows = _rows([values[at].tolist() for at in kept if at is not None], cut)
        if None in kept:
            rows.insert(EDGE * (len(rows) // (2 * EDGE)), "…")
        return rows
    lines: list[str] = []
    for at in _edges(list(range(len(values))), cut):
        lines.append("…" if at is None else f"[{at}]")
        if at is not None:
            lines.extend(f"  {line}" for line in _block(values[at]))
    return lines


def _edges(items: list[Any], cut: bool) -> list[Any]:
    if cut and len(items) > 2 * EDGE:
        return [*items[:EDGE], None, *items[-EDGE:]]
    return items


def _rows(rows: list[list[float]], cut: bool) -> list[str]:
    texts = [["…" if v is None else _number(v) for v in _edges(row, cut)] for row in rows]
    width = max((len(text) for row in texts for text in row), default=0)
    lines: list[str] = []
    for row in texts:
        for start in range(0, len(row), ROW_LENGTH):
            line = "  ".join(text.rjust(width) for text in row[start : start + ROW_LENGTH])
            lines.append(line if start == 0 else f"  {line}")
    return lines


def outputs_json(
    program: Program,
    inputs: Inputs,
    outputs: Mapping[str, Values],
    log: AccessLog | None = None,
    more: Mapping[str, Any] | None = None,
) -> str:
    """Return the run as JSON, schema `looptrans.run/1`; inf and nan are strings.

    Args:
        program: What was run.
        inputs: What it was run on.
        outputs: What came out.
        log: The accesses, where they were counted.
        more: Further entries, last.
    """
    document: dict[str, Any] = {
        "schema": "looptrans.run/1",
        "program": program.name,
        "parameters": {**inputs.integers, **inputs.reals},
        "outputs": [
            {
                "name": name,
                "shape": list(values.shape),
                "dtype": str(values.dtype),
                "values": _plain(values.tolist()),
            }
            for name, values in outputs.items()
        ],
    }
    if log is not None:
        document["accesses"] = {
            name: {"reads": counts.reads, "writes": counts.writes}
            for name, counts in log.counts.items()
        }
    document.update(more or {})
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(values: Any) -> Any:
    if isinstance(values, list):
        return [_plain(value) for value in values]
    if isinstance(values, float) and not math.isfinite(values):
        return str(values)
    return values
