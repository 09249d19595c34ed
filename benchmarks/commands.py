"""`python benchmarks/commands.py`: how long commands take as whole processes, start-up included."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
FLASH = "specs/flash_forward.py"
COMMANDS = (
    ("show", FLASH),
    ("deps", FLASH),
    ("ddg", FLASH),
    ("report", FLASH),
    ("check", FLASH, "promote(m, j)"),
    ("check", FLASH, "hoist(S3, j)"),
    ("check", FLASH, "privatize(i)", "parallelize(i)"),
    ("check", FLASH, "reverse(d)"),
    ("check", "specs/stencil.py", "interchange(i, j)"),
)


def seconds(command: tuple[str, ...]) -> float:
    """Return the time from start to end of one process."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "looptrans", *command], cwd=ROOT, capture_output=True, check=False
    )
    return time.perf_counter() - start


def main() -> int:
    """Print the least and the median time of each command, runs taken in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how often each is run")
    runs = parser.parse_args().runs
    taken: dict[tuple[str, ...], list[float]] = {command: [] for command in COMMANDS}
    for _ in range(runs):
        for command in COMMANDS:
            taken[command].append(seconds(command))
    print(" least s  median s   command")
    for command, times in taken.items():
        shown = " ".join(f'"{part}"' if "(" in part else part for part in command)
        print(f"{min(times):8.2f}  {statistics.median(times):8.2f}   looptrans {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
