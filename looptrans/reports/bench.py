"""What `bench` found: a table for each listing and set of sizes, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from looptrans.reports.style import PLAIN, Style, block, pad, paragraph, printable
from looptrans.runtime.benching.results import Alike, Bench, Case, Row

HEAD = ("", "ms", "low", "high", "rate", "of best other", "of matrix product", "memory")
MISSING = "-"


def bench_text(found: Bench, style: Style = PLAIN) -> str:
    """Return the times as tables, one for each case, and above them what they were taken on."""
    versions = ", ".join(f"{name} {value}" for name, value in found.versions.items())
    device = printable(str(found.device.get("name", "an unknown device")))
    lines = [style.paint("bold", f"{device}, {found.dtype}"), *paragraph(versions), ""]
    if found.ceiling is not None:
        lines += [*_ceiling(found.ceiling), ""]
    for alike in found.alike:
        lines += paragraph(_alike(alike))
    for case in found.cases:
        lines += ["", *_case(case, found.ceiling, style)]
    lines += [text for note in found.notes for text in ["", *paragraph(note)]]
    return block(lines)


def plan_text(alike: Sequence[Alike], cases: Sequence[Case]) -> str:
    """Return what would be timed, without times."""
    lines = [line for each in alike for line in paragraph(_alike(each))]
    for case in cases:
        lines += ["", _title(case)]
        for product in case.products:
            loops = ", ".join(product.dims)
            what = f"{product.kernel} {', '.join(product.labels)}"
            lines += paragraph(
                f"{what} over {loops}: {product.multiply_adds:,} multiply-adds", "  "
            )
        for row in case.rows:
            lines += paragraph(f"{row.name}: {row.reason}" if row.reason else row.name, "  ")
    return block(lines)


def _alike(alike: Alike) -> str:
    name = printable(alike.program)
    if alike.found:
        return f"{name} gives the numbers of {printable(alike.found)}"
    return f"{name} has nothing to be compared with: {printable(alike.reason)}"


def _ceiling(case: Case) -> list[str]:
    (row,) = case.rows
    rate = case.teraflops(row)
    extent = " x ".join(f"{value:g}" for value in case.sizes.values())
    if rate is None:
        return paragraph(f"a plain matrix product, {extent}: {row.reason}")
    return paragraph(f"a plain matrix product, {extent}: {rate:.0f} TFLOP/s")


def _title(case: Case) -> str:
    sizes = " ".join(f"{printable(name)}={value:g}" for name, value in case.sizes.items())
    work = f", {case.flops / 1e9:,.1f} GFLOP" if case.flops else ""
    return f"{printable(case.program)} {case.direction}: {sizes}{work}"


def _case(case: Case, ceiling: Case | None, style: Style) -> list[str]:
    rows = [HEAD, *(_row(case, row, ceiling) for row in case.rows)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEAD))]
    lines = [style.paint("bold", _title(case)), style.paint("dim", _line(HEAD, widths))]
    for row, texts in zip(case.rows, rows[1:], strict=True):
        if row.milliseconds:
            lines.append(_line(texts, widths))
        else:
            lines += paragraph(row.reason, f"  {pad(row.name, widths[0])}  ")
    return lines


def _row(case: Case, row: Row, ceiling: Case | None) -> tuple[str, ...]:
    low, high = row.spread or (None, None)
    best = case.best_other
    return (
        printable(row.name),
        _number(row.median, 3),
        _number(low, 3),
        _number(high, 3),
        _rate(case, row),
        MISSING if row is best else _number(case.ratio(row), 2),
        _number(_of_ceiling(case, row, ceiling), 2),
        MISSING if row.peak_bytes is None else f"{row.peak_bytes / 1e6:,.1f} MB",
    )


def _of_ceiling(case: Case, row: Row, ceiling: Case | None) -> float | None:
    own = case.teraflops(row)
    most = None if ceiling is None else ceiling.teraflops(ceiling.rows[0])
    return own / most if own and most else None


def _rate(case: Case, row: Row) -> str:
    own, moved = case.teraflops(row), case.gigabytes(row)
    if own is not None:
        return f"{own:,.1f} TFLOP/s"
    return MISSING if moved is None else f"{moved:,.1f} GB/s"


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    shown = [text.rjust(width) for text, width in zip(texts[1:], widths[1:], strict=True)]
    return "  " + "  ".join([pad(texts[0], widths[0]), *shown])


def bench_json(found: Bench) -> str:
    """Return everything as JSON, schema `looptrans.bench/1`.

    `results` has an entry for each listing, pass and set of sizes; its `flops` are two for each
    multiply-add of `products`, and each implementation of `rows` has `median_ms` or a `reason`.
    """
    document = {
        "schema": "looptrans.bench/1",
        "command": found.command,
        "started": found.started,
        "device": dict(found.device),
        "versions": dict(found.versions),
        "dtype": found.dtype,
        "method": dict(found.method),
        "ceiling": None if found.ceiling is None else _entry(found.ceiling, found.ceiling),
        "programs": [
            {
                "program": each.program,
                "compared_with": each.found or None,
                "reason": each.reason or None,
            }
            for each in found.alike
        ],
        "results": [_entry(case, found.ceiling) for case in found.cases],
        "notes": list(found.notes),
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def _entry(case: Case, ceiling: Case | None) -> dict[str, Any]:
    return {
        "program": case.program,
        "pass": case.direction,
        "sizes": dict(case.sizes),
        "flops": case.flops,
        "products": [
            {
                "kernel": product.kernel,
                "statements": list(product.labels),
                "loops": list(product.dims),
                "multiply_adds": product.multiply_adds,
            }
            for product in case.products
        ],
        "moved_bytes": case.moved_bytes,
        "rows": [_measured(case, row, ceiling) for row in case.rows],
    }


def _measured(case: Case, row: Row, ceiling: Case | None) -> dict[str, Any]:
    low, high = row.spread or (None, None)
    return {
        "name": row.name,
        "kind": row.kind,
        "median_ms": _rounded(row.median),
        "low_ms": _rounded(low),
        "high_ms": _rounded(high),
        "runs": len(row.milliseconds),
        "tflops": _rounded(case.teraflops(row)),
        "gigabytes_per_second": _rounded(case.gigabytes(row)),
        "ratio_to_best_other": None if row is case.best_other else _rounded(case.ratio(row)),
        "ratio_to_matrix_product": _rounded(_of_ceiling(case, row, ceiling)),
        "peak_bytes": row.peak_bytes,
        "difference": None if row.difference is None else _finite(row.difference),
        "configurations": None if row.configurations is None else dict(row.configurations),
        "reason": row.reason or None,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _finite(value: float) -> float | str:
    return float(f"{value:.3g}") if value < float("inf") else "inf"
