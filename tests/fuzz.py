"""`python -m tests.fuzz`: random nests against the trace oracle, for as long as one likes."""

from __future__ import annotations

import argparse
import sys
import time
from itertools import count

from hypothesis import HealthCheck, Phase, given, seed, settings

from looptrans.analysis.budget import BudgetExceeded
from tests.oracle.compare import compare
from tests.oracle.nests import Nest, nests

VARIANTS = {"plain": (False, False), "guards": (True, False), "opaque": (False, True)}
VARIANTS["both"] = (True, True)
ROUND = 25


class _OutOfTime(BaseException):
    """Ends a round; no Exception, so that hypothesis does not take it for a failure."""


class _Progress:
    def __init__(self, limit: float | None) -> None:
        self.start = time.monotonic()
        self.limit = limit
        self.compared = self.over = 0
        self.slowest = 0.0
        self.terminal = sys.stderr.isatty()
        self.shown = 0.0

    def check(self, nest: Nest) -> None:
        begun = time.monotonic()
        if self.limit is not None and begun - self.start >= self.limit:
            raise _OutOfTime
        try:
            compare(
                nest.source,
                nest.sizes,
                nest.arrays,
                nest.features,
                witnesses=self.compared % 4 == 0,
            )
        except BudgetExceeded:
            self.over += 1
        self.compared += 1
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.show(final=False)

    def show(self, *, final: bool) -> None:
        now = time.monotonic()
        if not final and now - self.shown < (0.5 if self.terminal else 10.0):
            return
        self.shown = now
        rate = self.compared / max(now - self.start, 1e-9)
        text = f"{self.compared} nests, {rate:.1f}/s, slowest {self.slowest:.1f} s"
        text += f", {self.over} over the budget"
        end = "\n" if final or not self.terminal else ""
        print(f"\r{text}" if self.terminal else text, end=end, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Compare until a mismatch, the end of the time, or an interrupt."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after so long (default: never)")
    parser.add_argument("--seed", type=int, default=0, help="where to begin")
    parser.add_argument("--variant", choices=VARIANTS, help="only this kind of nest")
    chosen = parser.parse_args(arguments)
    variants = [chosen.variant] if chosen.variant else list(VARIANTS)
    progress = _Progress(chosen.seconds)
    try:
        for number in count(chosen.seed):
            for variant in variants:
                problem = _round(progress, variant, number)
                if problem is not None:
                    progress.show(final=True)
                    print(problem)
                    again = f"python -m tests.fuzz --variant {variant} --seed {number}"
                    print(f"\nto see it again: {again}")
                    return 1
    except (KeyboardInterrupt, _OutOfTime):
        progress.show(final=True)
    return 0


def _round(progress: _Progress, variant: str, number: int) -> str | None:
    """Compare some nests; return the message about a mismatch, shrunk."""
    data_guards, opaque = VARIANTS[variant]

    @seed(number)
    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(nests(data_guards=data_guards, opaque=opaque))
    def check(nest: Nest) -> None:
        progress.check(nest)

    try:
        check()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main())
