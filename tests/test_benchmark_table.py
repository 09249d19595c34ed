"""The table of README.md is what was measured."""

import json
from pathlib import Path

from benchmarks.table import HEAD, rows, table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def test_the_readme_has_what_was_measured() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    paths = [RESULTS / f"nvidia-h100-{name}.json" for name in ("4096", "16384", "bias-16384")]
    measured = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    made = table(paths)
    count = len(made.split("\n")) - len(HEAD.split("\n"))
    assert count == sum(len(each["results"]) for each in measured) > 0
    assert f"\n\n{made}\n\n" in readme


def test_what_could_not_be_timed_has_no_number() -> None:
    row = {"name": "looptrans", "median_ms": 1.0, "tflops": 100.0}
    other = {"name": "FlexAttention", "median_ms": None, "tflops": None}
    case = {"program": "f", "pass": "forward", "sizes": {"N": 8}, "rows": [row, other]}
    assert list(rows({"results": [case]})) == ["| f | 8 | forward | 100 | – |  | – |  |"]
