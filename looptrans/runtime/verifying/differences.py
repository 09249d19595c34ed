"""Gradients against central differences of the listing, executed one statement at a time.

    (L(x + h v) - L(x - h v)) / 2 h  =  <gradient, v>,    L = sum of outputs times what comes in

It is a check beside the one with autograd, and shares nothing with it but the listing: here the
executor runs the statements in their order, in float64, and nothing differentiates them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs
from looptrans.executor.run import execute_on
from looptrans.ir.program import Program
from looptrans.ir.value import Call, walk_value
from looptrans.ir.walk import nodes
from looptrans.runtime.verifying.inputs import with_arrays

Values = np.ndarray[Any, Any]

STEP = 1e-5
DIRECTIONS = 2
"""How many random directions are gone into for each argument."""

SURE = 1e-6
"""How far two differences with different steps may lie apart, relative to what is expected."""

ROUNDING = 2.0**-50
"""How far two results of the listing may lie apart by rounding, relative to them."""

MOST_CELLS = 4_000
"""The largest product of sizes at which the listing is executed one statement at a time."""


@dataclass(frozen=True, slots=True)
class Differences:
    """What central differences say.

    Attributes:
        agreed: Directions in which they agree with a gradient.
        unsure: Directions in which they say nothing: two step lengths differ, as near a kink, or
            what is added to a number near 1 is lost beside it, as in log(1 + exp(-60)).
        problems: Where they do not agree, a sentence each.
    """

    agreed: int = 0
    unsure: int = 0
    problems: tuple[str, ...] = ()

    def joined(self, other: Differences) -> Differences:
        """Return what both say."""
        return Differences(
            self.agreed + other.agreed,
            self.unsure + other.unsure,
            self.problems + other.problems,
        )


def is_small(sizes: Mapping[str, int]) -> bool:
    """Tell whether a listing can be executed often enough at these sizes."""
    return math.prod(max(1, size) for size in sizes.values()) <= MOST_CELLS


def has_differences(program: Program) -> bool:
    """Tell whether a listing's gradients are derivatives of what it computes.

    They are not where it stops a gradient or hands it through a rounding, by convention.
    """
    kept = ("stop_gradient", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "float32")
    return not any(
        isinstance(part, Call) and part.function in kept
        for node in nodes(program.body)
        for value in getattr(node, "values", ())
        for part in walk_value(value)
    )


def differences(
    program: Program,
    inputs: Inputs,
    incoming: Mapping[str, Values],
    gradients: Mapping[str, tuple[str, Values, float]],
    seed: int,
) -> Differences:
    """Compare gradients with central differences in a few random directions of each argument.

    Args:
        program: The listing.
        inputs: Where it is differentiated.
        incoming: Gradients of outputs; 0 where nothing is asked of an output.
        gradients: For each argument what its gradient is called, the gradient, and how far it may
            be from the right one in the Frobenius norm: so far may its product with a direction of
            length 1 be off.
        seed: Decides the directions.
    """
    random = np.random.default_rng([seed, 7])
    found = Differences()
    sizes = [float(np.linalg.norm(gradient)) for gradient in incoming.values()]
    lost = ROUNDING * math.hypot(*sizes) / STEP
    for argument, (name, gradient, allowed) in gradients.items():
        if not gradient.size or not np.isfinite(gradient).all():
            continue
        for _ in range(DIRECTIONS):
            way: Values = np.asarray(random.standard_normal(gradient.shape))
            way = way / np.linalg.norm(way)
            expected = float((gradient * way).sum())
            try:
                slopes = [
                    _slope(program, inputs, incoming, argument, np.asarray(way * step))
                    for step in (STEP, STEP / 2)
                ]
            except ExecutionError:
                continue
            (first, _), (slope, rounding) = slopes
            scale = abs(slope) + float(np.linalg.norm(gradient))
            apart = abs(first - slope) + rounding
            if not math.isfinite(apart) or apart - rounding > SURE * scale:
                found = found.joined(Differences(unsure=1))
            elif abs(expected - slope) <= allowed + apart + SURE * scale:
                found = found.joined(Differences(agreed=1))
            elif abs(expected - slope) <= lost:
                found = found.joined(Differences(unsure=1))
            else:
                text = (
                    f"{name} does not agree with central differences of the listing: along a "
                    f"direction of length 1 it says {expected:.6g}, and they {slope:.6g}"
                )
                found = found.joined(Differences(problems=(text,)))
    return found


def _slope(
    program: Program,
    inputs: Inputs,
    incoming: Mapping[str, Values],
    argument: str,
    step: Values,
) -> tuple[float, float]:
    """Return the slope along a step, which has the shape of the argument, and its rounding."""
    ends = [_loss(program, _moved(inputs, argument, sign * step), incoming) for sign in (1.0, -1.0)]
    width = 2 * float(np.linalg.norm(step))
    return (ends[0] - ends[1]) / width, ROUNDING * max(map(abs, ends)) / width


def _moved(inputs: Inputs, argument: str, step: Values) -> Inputs:
    if argument in inputs.reals:
        return replace(
            inputs, reals={**inputs.reals, argument: float(inputs.reals[argument] + step)}
        )
    return with_arrays(inputs, {argument: inputs.arrays[argument] + step})


def _loss(program: Program, inputs: Inputs, incoming: Mapping[str, Values]) -> float:
    results = execute_on(program, inputs)
    total = 0.0
    for name, gradient in incoming.items():
        used = gradient != 0
        total += float((results[name][used] * gradient[used]).sum())
    return total
