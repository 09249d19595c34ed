"""What `bench` found, as plain data: no torch, no triton."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Pass: TypeAlias = Literal["forward", "backward"]
Kind: TypeAlias = Literal["emitted", "other", "ceiling"]

NO_MEMORY = "there is not enough memory"


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of a listing, and how much work it is.

    Attributes:
        kernel: The kernel it is found in; where several work it out again, the first.
        labels: The statements it comes from.
        dims: The loops it runs over, the one summed over last.
        multiply_adds: How many multiply-adds it takes.
    """

    kernel: str
    labels: tuple[str, ...]
    dims: tuple[str, ...]
    multiply_adds: int


@dataclass(frozen=True, slots=True)
class Row:
    """One implementation at one set of sizes.

    Attributes:
        name: What it is called in the table.
        kind: `emitted` for the kernels of looptrans, `other` for what else could be called.
        milliseconds: The times, one for each run; empty where it was not run.
        peak_bytes: The most memory that was allocated during a call, beyond what was there before.
        difference: The Frobenius norm of the difference from the emitted kernels' results over that
            of those, the largest of the results; None where there is nothing to compare with.
        reason: Why there are no times; empty where there are some.
        configurations: For each emitted kernel, what was chosen by timing.
    """

    name: str
    kind: Kind
    milliseconds: tuple[float, ...] = ()
    peak_bytes: int | None = None
    difference: float | None = None
    reason: str = ""
    configurations: Mapping[str, str] | None = None

    @property
    def median(self) -> float | None:
        """The median time in milliseconds; None without times."""
        return statistics.median(self.milliseconds) if self.milliseconds else None

    @property
    def spread(self) -> tuple[float, float] | None:
        """The times between which the middle 60 % lie; None without times."""
        if not self.milliseconds:
            return None
        ordered = sorted(self.milliseconds)
        last = len(ordered) - 1
        return ordered[round(0.2 * last)], ordered[round(0.8 * last)]


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that was run of one listing at one set of sizes.

    Attributes:
        program: The listing.
        direction: Which pass.
        sizes: Its sizes and real parameters.
        products: The matrix products the pass needs, each once.
        moved_bytes: The bytes of its arguments and results: the least there is to move.
        rows: The implementations, the emitted kernels first.
    """

    program: str
    direction: Pass
    sizes: Mapping[str, float]
    products: tuple[Product, ...]
    moved_bytes: int
    rows: tuple[Row, ...]

    @property
    def flops(self) -> int:
        """Two for each multiply-add of its matrix products."""
        return 2 * sum(product.multiply_adds for product in self.products)

    def teraflops(self, row: Row) -> float | None:
        """Return TFLOP/s; None where the row has no times, or the listing no matrix product."""
        return self.flops / row.median / 1e9 if row.median and self.flops else None

    def gigabytes(self, row: Row) -> float | None:
        """Return GB/s of arguments and results; None where the row has no times."""
        return self.moved_bytes / row.median / 1e6 if row.median else None

    @property
    def best_other(self) -> Row | None:
        """The fastest of the others; None where none was run."""
        timed = [row for row in self.rows if row.kind == "other" and row.median]
        return min(timed, key=lambda row: row.median or 0.0, default=None)

    def ratio(self, row: Row) -> float | None:
        """Return how fast a row is beside the best other: above 1 it is faster."""
        best = self.best_other
        if best is None or not row.median or best.median is None:
            return None
        return best.median / row.median


@dataclass(frozen=True, slots=True)
class Alike:
    """What else the user could call for a listing, or why nothing.

    Attributes:
        program: The listing.
        found: What its numbers were found to be, a phrase; empty where nothing fits.
        reason: Why nothing fits; empty where something does.
    """

    program: str
    found: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Bench:
    """What `bench` found.

    Attributes:
        device: Facts about the GPU: its name, clocks, driver …
        versions: Versions of looptrans, Python, torch, triton, CUDA, cuDNN.
        command: The command line.
        started: When, in UTC, as ISO 8601.
        dtype: The type of floating-point arrays.
        method: How times were taken, names and values.
        ceiling: A plain matrix product, as a case of one row; None where it could not be run.
        alike: For each listing what else could be called.
        cases: What was run.
        notes: What the reader should know besides.
    """

    device: Mapping[str, Any]
    versions: Mapping[str, str]
    command: str
    started: str
    dtype: str
    method: Mapping[str, Any]
    ceiling: Case | None
    alike: tuple[Alike, ...]
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether emitted kernels have no times for another reason than memory."""
        rows = [row for case in self.cases for row in case.rows if row.kind == "emitted"]
        return any(row.reason not in ("", NO_MEMORY) for row in rows)
