"""The table of README.md is what was measured."""

import json
from pathlib import Path

from benchmarks.table import HEAD, rows, table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


NAMES = ("4096", "16384", "bias-16384")


def measured(gpu: str) -> list[Path]:
    return [RESULTS / f"nvidia-{gpu}-{name}.json" for name in NAMES]


def below(made: str) -> list[str]:
    """Return the rows of a table."""
    return made.split("\n")[len(HEAD.split("\n")) :]


def case(row: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row.split("|")[1:4])


def test_the_readme_has_what_was_measured() -> None:
    """All of the newer GPU, and of the older one what the newer one had no time for."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    newer, older = table(measured("h200")), table(measured("h100"))
    for gpu, made in (("h200", newer), ("h100", older)):
        results = [json.loads(path.read_text(encoding="utf-8")) for path in measured(gpu)]
        assert len(below(made)) == sum(len(each["results"]) for each in results) > 0
    done = {case(row) for row in below(newer)}
    rest = "\n".join([HEAD, *(row for row in below(older) if case(row) not in done)])
    assert f"\n\n{newer}\n\n" in readme
    assert f"\n\n{rest}\n\n" in readme


def test_what_could_not_be_timed_has_no_number() -> None:
    row = {"name": "looptrans", "median_ms": 1.0, "tflops": 100.0}
    other = {"name": "FlexAttention", "median_ms": None, "tflops": None}
    result = {"program": "f", "pass": "forward", "sizes": {"N": 8}, "rows": [row, other]}
    assert list(rows({"results": [result]})) == ["| f | 8 | forward | 100 | – |  | – |  |"]
