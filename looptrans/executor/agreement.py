"""Whether shuffled executions of a parallel program give what its sequential reading gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs
from looptrans.executor.races import RaceLog
from looptrans.executor.run import execute_on
from looptrans.ir.program import Program
from looptrans.ir.walk import accesses, placed

Values = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the outputs of shuffled executions compare with those of the sequential reading.

    Attributes:
        count: The number of shuffled executions.
        equal: How many give the same bits.
        close: How many give the same up to rounding, those that give the same bits included.
        difference: The largest difference; inf where one of two numbers is inf or nan.
        output: The output it is in; empty where there is none.
        failure: What the first execution says that does not run to its end.
    """

    count: int
    equal: int
    close: int
    difference: float = 0.0
    output: str = ""
    failure: ExecutionError | None = None

    @property
    def is_full(self) -> bool:
        """Whether all of them agree."""
        return self.close == self.count


def compare_shuffled(
    program: Program,
    inputs: Inputs,
    outputs: Mapping[str, Values],
    count: int,
    *,
    dtype: str = "float64",
    races: RaceLog | None = None,
) -> Agreement:
    """Run a parallel program under the schedules 0, 1, … and compare what comes out.

    Args:
        program: The program.
        inputs: Its inputs.
        outputs: What the sequential reading gives on them.
        count: How many schedules.
        dtype: The type to compute in.
        races: The races found so far; those of other executions are added where which cells are
            touched depends on data, so that an execution may show one that the others do not.

    Raises:
        ExecutionError: An execution fails, and no race is to blame.
    """
    equal, close, failure = 0, 0, None
    worst, output = 0.0, ""
    watched = races if races is not None and _depends_on_data(program) else None
    for schedule in range(count):
        try:
            found = execute_on(program, inputs, dtype=dtype, schedule=schedule, races=watched)
        except ExecutionError as error:
            if races is None or not races.races:
                raise
            failure = failure or error
            continue
        distances = {name: _distance(values, found[name]) for name, values in outputs.items()}
        equal += all(_same_bits(values, found[name]) for name, values in outputs.items())
        close += all(distances[name] <= _rounding(values) for name, values in outputs.items())
        for name, distance in distances.items():
            if distance > worst:
                worst, output = distance, name
    return Agreement(count, equal, close, worst, output, failure)


def _depends_on_data(program: Program) -> bool:
    """Tell whether only a run knows which cells are touched."""
    return any(
        place.is_may or any(access.is_may for access in accesses(place.node))
        for place in placed(program)
    )


def _same_bits(one: Values, other: Values) -> bool:
    """Compare the bits of numbers; one nan is as good as another."""
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    number = ~np.isnan(one)
    return np.array_equal(one, other, equal_nan=True) and np.array_equal(
        np.signbit(one[number]), np.signbit(other[number])
    )


def _distance(one: Values, other: Values) -> float:
    """Return the largest difference of two numbers in the same place."""
    if one.shape != other.shape:
        return np.inf
    if one.dtype.kind != "f":
        return float(np.max(np.abs(one.astype(float) - other.astype(float)), initial=0.0))
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(all="ignore"):
        apart = np.abs(one.astype(float) - other.astype(float))
    apart = np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))
    return float(np.max(apart, initial=0.0))


def _rounding(values: Values) -> float:
    """Return how far sums may be apart that were added in different orders.

    Sums of n numbers differ by some n roundings of their largest part, which the output, or numbers
    around 1, stand for here; three quarters of the digits have to agree.
    """
    if values.dtype.kind != "f":
        return 0.0
    finite = np.abs(values[np.isfinite(values)].astype(float))
    return float(np.finfo(values.dtype).eps ** 0.75 * np.max(finite, initial=1.0))
