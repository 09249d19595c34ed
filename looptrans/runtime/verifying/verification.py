"""What `verify` found, as plain data: no torch, no triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NORM = "relative Frobenius"


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far one output of one run is from the listing's.

    Attributes:
        name: The output.
        error: The Frobenius norm of the difference over that of the exact result; 0 where they are
            the same, inf where numbers stand in the wrong place.
        tolerance: What the error may be; 0 for integers, and where the result is 0 throughout.
        skipped: Elements that were not compared, because nothing is asked of them: the listing's
            own execution is nan there, or they do not fit into the type.
        problem: Where it is more than an error: infinities out of place, a wrong shape.
    """

    name: str
    error: float
    tolerance: float
    skipped: int = 0
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether the output is right."""
        return not self.problem and self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the kernels; the outputs of a backward pass are gradients.

    Attributes:
        sizes: The sizes.
        dtype: The type of the floating-point inputs.
        inputs: What kind of inputs.
        layout: `contiguous`; `odd` where tensors have unusual strides; `expanded` where incoming
            gradients are one row or number that stands for many, with strides of 0.
        outputs: The errors, in the order of the outputs.
        problems: What is wrong beside the numbers: memory written outside, an exception.
    """

    sizes: Mapping[str, int]
    dtype: str
    inputs: str
    layout: str
    outputs: tuple[OutputError, ...]
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything is right."""
        return not self.problems and all(output.passed for output in self.outputs)


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found.

    Attributes:
        name: The listing.
        device: Where the kernels ran, `interpreter` for Triton's.
        seed: What the random inputs were made of.
        runs: The runs, in order.
        notes: What the reader should know: types that were left out, and why.
        direction: `forward`, `backward` or `both`.
        refused: Why there are no kernels of a pass that was asked for besides; empty where there
            are.
    """

    name: str
    device: str
    seed: int
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()
    direction: str = "forward"
    refused: str = ""

    @property
    def passed(self) -> bool:
        """Whether every run is right, and there is one of each pass that was asked for."""
        return bool(self.runs) and not self.refused and all(run.passed for run in self.runs)

    @property
    def outputs(self) -> tuple[OutputError, ...]:
        """For each output the run that came closest to its tolerance, or went furthest beyond."""
        worst: dict[str, OutputError] = {}
        for run in self.runs:
            for output in run.outputs:
                if output.name not in worst or _badness(output) > _badness(worst[output.name]):
                    worst[output.name] = output
        return tuple(worst.values())


def _badness(output: OutputError) -> tuple[bool, float, float]:
    ratio = output.error / output.tolerance if output.tolerance else output.error
    return not output.passed, ratio, output.error
