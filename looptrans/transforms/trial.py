"""Whether two programs differ in the numbers, tried on the NumPy executor.

A trial only refutes: where a dependence may or may not happen, inputs on which the results differ
show that it does. That the results agree shows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from looptrans.ir.program import Program

if TYPE_CHECKING:
    from looptrans.executor import Inputs

SEEDS = range(8)
CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """Inputs on which two programs give different results.

    Attributes:
        sizes: The integer parameters.
        seed: What decides the random inputs, as in `looptrans run --seed`.
        output: The first output that differs.
        cell: The first cell of it that does.
        before: Its value by the one program.
        after: Its value by the other; None where that program fails.
    """

    sizes: tuple[tuple[str, int], ...]
    seed: int
    output: str
    cell: tuple[int, ...]
    before: float
    after: float | None


def difference(before: Program, after: Program, sizes: Mapping[str, int]) -> Difference | None:
    """Run two programs on the same random inputs, several times, until their results differ.

    Args:
        before: The one program.
        after: The other, with the same inputs and outputs.
        sizes: Values of integer parameters; the others are small numbers.

    Returns:
        What differs by more than rounding, or None: nothing did, or nothing could be run.
    """
    from looptrans.executor import ExecutionError, prepare

    for seed in SEEDS:
        try:
            inputs = prepare(before, sizes, seed=seed)
        except ExecutionError:
            continue
        found = _on(before, after, inputs, seed)
        if found is not None:
            return found
    return None


def _on(before: Program, after: Program, inputs: Inputs, seed: int) -> Difference | None:
    import numpy as np

    from looptrans.executor import ExecutionError, execute_on

    try:
        expected = execute_on(before, inputs)
    except ExecutionError:
        return None
    sizes = tuple(inputs.integers.items())
    try:
        actual = execute_on(after, inputs)
    except ExecutionError:
        name = next(iter(expected), "")
        return Difference(sizes, seed, name, (), float("nan"), None)
    for name, values in expected.items():
        if np.shape(values) != np.shape(actual[name]):
            return Difference(sizes, seed, name, (), float("nan"), None)
        same = np.isclose(values, actual[name], rtol=CLOSE, atol=CLOSE, equal_nan=True)
        if not same.all():
            cell = tuple(int(index) for index in np.argwhere(~same)[0])
            return Difference(
                sizes, seed, name, cell, float(values[cell]), float(actual[name][cell])
            )
    return None
