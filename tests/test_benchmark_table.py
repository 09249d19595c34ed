"""The table of README.md is what was measured."""

import json
from pathlib import Path

from benchmarks.table import HEAD, rows

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def test_the_readme_has_what_was_measured() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    measured = json.loads((RESULTS / "nvidia-h200.json").read_text(encoding="utf-8"))
    made = list(rows(measured))
    assert len(made) == len(measured["results"]) > 0
    assert "\n".join([HEAD, *made]) in readme


def test_what_could_not_be_timed_has_no_number() -> None:
    row = {"name": "looptrans", "median_ms": 1.0, "tflops": 100.0}
    other = {"name": "FlexAttention", "median_ms": None, "tflops": None}
    case = {"program": "f", "pass": "forward", "sizes": {"N": 8}, "rows": [row, other]}
    assert list(rows({"results": [case]})) == ["| f | 8 | forward | 100 | – |  | – |  |"]
