"""What `bench` found as a picture: a bar for each implementation, a group for each case.

attention forward: B=4 H=16 M=4096 …
looptrans   ████████████████████ 401.2      ┆
SDPA flash  ██████████████████ 370.0        ┆ a plain matrix product
"""

from __future__ import annotations

from looptrans.reports.style import shorten
from looptrans.reports.svg import (
    FAINT,
    FRAME,
    INK,
    MARK,
    element,
    number,
    picture,
    text,
    text_width,
)
from looptrans.runtime.benching.results import Bench, Case, Row

OURS, OTHER = "#1b5e9e", "#a9b4bf"
MARGIN, BAR, GAP, GROUP = 24.0, 15.0, 4.0, 24.0
ROOM = 460.0
SIZE, TITLE = 11.0, 12.0
WIDEST = 100


def bench_svg(found: Bench) -> str:
    """Return the rates of all cases as bars; those of matrix products have the ceiling marked."""
    names = [row.name for case in found.cases for row in case.rows] or [""]
    left = MARGIN + max(text_width(name, SIZE) for name in names) + 10
    most = found.ceiling.teraflops(found.ceiling.rows[0]) if found.ceiling is not None else None
    body: list[str] = []
    titles = [_title(case) for case in found.cases]
    device = str(found.device.get("name", "an unknown device"))
    heading = f"{device}, {found.dtype}: rate of each implementation, more is better"
    y = MARGIN + TITLE
    body.append(text(MARGIN, y, heading, 14, INK, font_weight="bold"))
    y += GROUP
    # One scale for everything that has matrix products, so that bars can be compared.
    rates = [case.teraflops(row) for case in found.cases for row in case.rows]
    longest = max(
        [rate for rate in rates if rate is not None] + ([most] if most else []), default=0
    )
    for case, title in zip(found.cases, titles, strict=True):
        y += TITLE
        body.append(text(MARGIN, y, title, TITLE, INK))
        y += 8
        own = longest if case.flops else max([case.gigabytes(r) or 0.0 for r in case.rows] or [0.0])
        top = y
        for row in case.rows:
            body += _bar(case, row, left, y, own)
            y += BAR + GAP
        if most and case.flops and own:
            at = left + ROOM * most / own
            body.append(
                element(
                    "path",
                    d=f"M{number(at)},{number(top - 2)} V{number(y)}",
                    fill="none",
                    stroke=MARK,
                    stroke_width=1.5,
                    stroke_dasharray="4 3",
                )
            )
        y += GROUP - TITLE
    if most:
        body.append(text(MARGIN, y, f"┆ a plain matrix product: {most:.0f} TFLOP/s", SIZE, FAINT))
        y += GROUP
    width = max(
        [left + ROOM + 110, MARGIN * 2 + text_width(heading, 14)]
        + [MARGIN * 2 + text_width(title, TITLE) for title in titles]
    )
    return picture(width, y, "looptrans bench", heading, body)


def _title(case: Case) -> str:
    sizes = " ".join(f"{name}={value:g}" for name, value in case.sizes.items())
    return shorten(f"{case.program} {case.direction}: {sizes}", WIDEST)


def _bar(case: Case, row: Row, left: float, y: float, longest: float) -> list[str]:
    base = y + BAR - 3.5
    name = text(left - 10 - text_width(row.name, SIZE), base, row.name, SIZE, INK)
    rate = case.teraflops(row) if case.flops else case.gigabytes(row)
    if rate is None or not longest:
        return [name, text(left, base, shorten(row.reason or "not run", 66), SIZE, FAINT)]
    unit = "TFLOP/s" if case.flops else "GB/s"
    length = ROOM * rate / longest
    bar = element(
        "rect",
        x=left,
        y=y,
        width=length,
        height=BAR,
        fill=OURS if row.kind == "emitted" else OTHER,
        stroke=FRAME,
        stroke_width=0.5,
    )
    return [name, bar, text(left + length + 6, base, f"{rate:,.1f} {unit}", SIZE, INK)]
