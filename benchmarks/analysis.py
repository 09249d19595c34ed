"""`python benchmarks/analysis.py`: time of the analysis against the number of statements."""

from __future__ import annotations

import argparse
import sys
import time

from looptrans.analysis.cycles.graph import components
from looptrans.analysis.cycles.loops import loop_facts
from looptrans.analysis.dependence.dependences import analyse, dependence_report
from looptrans.frontend import parse
from looptrans.ir.source import Source

SIZES = (10, 20, 50, 100, 200, 400)
HEAD = "for i in range(M):\n    for j in range(N):\n        for k in range(K):\n"


def chain(count: int) -> str:
    """Each statement reads what the two before it wrote, so that few share an array."""
    lines = [
        f"            A{n}[i, j, k] = A{n - 1}[i, j, k] + A{n - 2}[i, j - 1, k]\n"
        for n in range(2, count + 2)
    ]
    return HEAD + "".join(lines)


def scalars(count: int) -> str:
    """The same through scalars, which are one cell in all iterations."""
    first = "            t0 = x[i, j]\n            t1 = t0\n"
    lines = [f"            t{n} = t{n - 1} + t{n - 2}\n" for n in range(2, count)]
    return HEAD + first + "".join(lines)


def writers(count: int) -> str:
    """All statements write the same array, so that the pairs grow with the square."""
    lines = [f"            A[i, j, k + {n}] = x[i, j, {n}]\n" for n in range(count)]
    return HEAD + "".join(lines)


def measure(text: str) -> tuple[float, float, float, float, int]:
    """Return the seconds of dependences, loops, components and the sum, and the dependences."""
    program = parse(Source("generated.py", text))
    start = time.perf_counter()
    analysis = analyse(program)
    found = dependence_report(analysis)
    listed = time.perf_counter()
    loop_facts(analysis)
    judged = time.perf_counter()
    components(analysis, "flow")
    components(analysis, "all")
    end = time.perf_counter()
    return listed - start, judged - listed, end - judged, end - start, len(found.dependences)


def main() -> int:
    """Print one table for each shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the most statements")
    most = parser.parse_args().most
    for title, make, sizes in (
        ("a chain of arrays", chain, SIZES),
        ("a chain of scalars", scalars, SIZES),
        ("many writers of one array", writers, (5, 10, 20, 40, 80)),
    ):
        print(f"\n{title}")
        print("statements   dependences s   loops s   components s   total s   listed   ms/listed")
        for count in sizes:
            if count > most:
                continue
            first, second, third, total, listed = measure(make(count))
            print(
                f"{count:10}   {first:13.2f}   {second:7.2f}   {third:12.2f}   {total:7.2f}"
                f"   {listed:6}   {1000 * total / max(listed, 1):9.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
