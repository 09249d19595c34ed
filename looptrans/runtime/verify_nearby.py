"""What rounding may do to a listing in float32, its inputs' and that of each operation."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from looptrans.executor.inputs import Inputs
from looptrans.runtime.reference import Outputs, Reference

Values: TypeAlias = np.ndarray[Any, Any]


def run_nearby(reference: Reference, inputs: Inputs, number: int) -> Outputs:
    """Execute a listing in float32 on inputs off by a rounding, each operation off by one as well.

    Args:
        reference: The listing.
        inputs: What it starts from.
        number: Which roundings, the same for the same number.
    """
    return reference.run(neighbours(inputs, number), "float32", random=roundings_of(number))


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
