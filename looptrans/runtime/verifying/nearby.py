"""What rounding may do to a listing in float32, its inputs' and that of each operation."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs
from looptrans.runtime.executed.reference import Outputs, Reference, known_reference_of
from looptrans.runtime.verifying.errors import DRAWS

Values: TypeAlias = np.ndarray[Any, Any]


def run_nearby(reference: Reference, inputs: Inputs, number: int) -> Outputs:
    """Execute a listing in float32 on inputs off by a rounding, each operation off by one as well.

    From `DRAWS` on it is the nest of the kernels that is executed. A score that two kernels work
    out, each for itself, is not rounded in the same way twice, and where it is large that is much
    of its weight. Only how far its results move counts: whether they are right the listing says.

    Args:
        reference: The listing.
        inputs: What it starts from.
        number: Which roundings, the same for the same number.
    """
    if number >= DRAWS and reference.nest is not None:
        nest = known_reference_of(reference.nest)
        exact, own = reference.run(inputs), nest.run(inputs)
        try:
            near = run_nearby(nest, inputs, number)
        except ExecutionError:
            return exact
        return {name: _moved(exact[name], near.get(name), own.get(name)) for name in exact}
    return reference.run(neighbours(inputs, number), "float32", random=roundings_of(number))


def _moved(exact: Values, near: Values | None, own: Values | None) -> Values:
    if near is None or own is None or exact.dtype.kind != "f" or near.shape != exact.shape:
        return exact
    moved: Values = exact + (near.astype(np.float64) - own)
    return moved


def roundings_of(number: int) -> np.random.Generator:
    """Return what the roundings of operations are drawn from, the same for the same number."""
    return np.random.default_rng([number, 3])


def neighbours(inputs: Inputs, number: int) -> Inputs:
    """Return inputs that differ by a rounding: each number is one of three next to it in float32.

    Zeros and infinities stay, and so do integers.

    Args:
        inputs: The inputs.
        number: Which of them, the same for the same number.
    """
    random = np.random.default_rng([number, 2])

    def moved(values: Values) -> Values:
        own = np.asarray(values, dtype=np.float32)
        towards = random.choice([-np.inf, np.nan, np.inf], own.shape)
        there = np.isfinite(own) & (own != 0) & ~np.isnan(towards)
        return np.where(there, np.nextafter(own, towards.astype(np.float32)), values)

    arrays = {n: moved(v) if v.dtype.kind == "f" else v for n, v in inputs.arrays.items()}
    reals = {name: float(moved(np.asarray(value))) for name, value in inputs.reals.items()}
    return Inputs(inputs.integers, reals, arrays)
