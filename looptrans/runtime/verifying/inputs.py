"""Inputs a kernel is verified on: normal, ten times as large, and with maxima that rise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from looptrans.executor.inputs import Inputs, prepare
from looptrans.ir.program import Program

Values: TypeAlias = np.ndarray[Any, Any]
InputKind: TypeAlias = Literal["normal", "x10", "rising"]
KINDS: tuple[InputKind, ...] = ("normal", "x10", "rising")

# How far the numbers rise from the first to the last element of a dimension.
RISE = 2.0


def inputs_for(program: Program, sizes: Mapping[str, float], kind: InputKind, seed: int) -> Inputs:
    """Make inputs of a kind.

    normal   standard normal numbers
    x10      the same times ten
    rising   positive numbers that rise along every dimension: so does every row's maximum, and
             what is worked out of a row's beginning has to be corrected again and again

    Integers are random within their declared ranges, the contracts and the arrays they point into;
    they are the same for every kind.

    Args:
        program: The listing.
        sizes: Values of sizes; real parameters may stand here too.
        kind: What the floating-point arrays hold.
        seed: Decides the random numbers.

    Raises:
        ExecutionError: No inputs of these sizes exist.
    """
    made = prepare(program, sizes, seed=seed)
    floats = program.float_names
    arrays = {
        name: _shaped(values, kind) if name in floats else values
        for name, values in made.arrays.items()
    }
    return Inputs(made.integers, made.reals, arrays)


def _shaped(values: Values, kind: InputKind) -> Values:
    match kind:
        case "normal":
            return values
        case "x10":
            return values * 10.0
        case "rising":
            result: Values = np.abs(values) / 2
            for axis, extent in enumerate(values.shape):
                ramp = np.arange(extent) * (RISE / max(extent, 1))
                shape = [1] * values.ndim
                shape[axis] = extent
                result = result + ramp.reshape(shape)
            return result


def with_arrays(inputs: Inputs, arrays: Mapping[str, Values]) -> Inputs:
    """Return inputs with other arrays in place of some."""
    return Inputs(inputs.integers, inputs.reals, {**inputs.arrays, **arrays})
