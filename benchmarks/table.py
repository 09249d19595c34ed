"""The table of README.md, from what `looptrans bench` has written.

    .venv/bin/python -m benchmarks.table benchmarks/results/FILE.json …

It is for listings of attention, whose length is N, of all files together. No GPU is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HEAD = """\
| | length | pass | looptrans | FlexAttention | of it | cuDNN | of it |
|---|---|---|---|---|---|---|---|"""
OURS, FLEX, CUDNN = "looptrans", "FlexAttention", "SDPA cuDNN"


def rows(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield a row for each result of attention: TFLOP/s, and what part of the others' that is."""
    for each in results["results"]:
        rates = {row["name"]: row["tflops"] for row in each["rows"] if row["median_ms"] is not None}
        own = rates.get(OURS)
        if own is None or "N" not in each["sizes"]:
            continue
        cells = [each["program"], str(each["sizes"]["N"]), each["pass"], f"{own:.0f}"]
        for name in (FLEX, CUDNN):
            other = rates.get(name)
            cells += ["–", ""] if other is None else [f"{other:.0f}", f"{own / other:.2f}"]
        yield f"| {' | '.join(cells)} |"


def table(paths: Sequence[Path]) -> str:
    """Return the rows of some files as one table: by listing, length and pass."""
    every = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    found = sorted((each for results in every for each in results["results"]), key=_place)
    return "\n".join([HEAD, *rows({"results": found})])


def _place(each: Mapping[str, Any]) -> tuple[str, int, bool]:
    return each["program"], each["sizes"].get("N", 0), each["pass"] != "forward"


def main() -> int:
    """Print the table."""
    print(table([Path(path) for path in sys.argv[1:]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
