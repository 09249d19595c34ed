"""Whether a listing's numbers are those of softmax attention with options that torch knows.

Nothing is read off the listing but the shapes of its arguments. Arrays are tried as queries, keys
and values, numbers as scales, integers and further arrays as masks, biases and slopes, and what
gives the numbers of the listing, executed in float64 at small sizes, is what it computes. It is
what a user could call in its place; whether it is the same at the sizes that are timed is looked at
there once more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product

import numpy as np
import torch

from looptrans.executor.errors import ExecutionError
from looptrans.executor.inputs import Inputs
from looptrans.ir.index import parameters
from looptrans.ir.program import Program
from looptrans.runtime.benching.recipe import (
    LAYOUTS,
    Axes,
    Change,
    Mask,
    Recipe,
    changed,
    seen_by,
    viewed,
)
from looptrans.runtime.benching.sizes import trial_inputs
from looptrans.runtime.executed.reference import Reference

SEEDS = (0, 1)
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Trial:
    """Small inputs of a listing, and what it gives on them, in float64.

    Attributes:
        arrays: Its input arrays.
        reals: Its real parameters.
        sizes: Its sizes.
        outputs: Its results.
    """

    arrays: Mapping[str, torch.Tensor]
    reals: Mapping[str, float]
    sizes: Mapping[str, int]
    outputs: Mapping[str, torch.Tensor]


def trials(
    reference: Reference, sizes: Mapping[str, int], reals: Mapping[str, float]
) -> tuple[Trial, ...]:
    """Execute a listing at small sizes in the proportions of those given.

    Raises:
        ExecutionError: It cannot be executed.
    """
    inputs = [trial_inputs(reference.program, sizes, reals, seed) for seed in SEEDS]
    return tuple(_trial(reference, each) for each in inputs)


def _trial(reference: Reference, inputs: Inputs) -> Trial:
    found = reference.run(inputs)
    return Trial(
        {name: torch.from_numpy(np.array(values)) for name, values in inputs.arrays.items()},
        dict(inputs.reals),
        dict(inputs.integers),
        {name: torch.from_numpy(np.array(values)) for name, values in found.items()},
    )


def recipe_of(
    reference: Reference, sizes: Mapping[str, int], reals: Mapping[str, float]
) -> Recipe | str:
    """Return what a listing computes as softmax attention, or a phrase on why it is none.

    Args:
        reference: The listing.
        sizes: The sizes that will be timed: their proportions decide what is the same.
        reals: Its real parameters.
    """
    try:
        made = trials(reference, sizes, reals)
    except ExecutionError as error:
        return f"the listing cannot be executed at small sizes: {error.message}"
    return recipe_in(reference.program, made)


def recipe_in(program: Program, made: Sequence[Trial]) -> Recipe | str:
    """Return what all the trials of a listing are, or a phrase on why they are no attention."""
    first, *others = made
    tried = 0
    for recipe in _recipes(program, first):
        tried += 1
        if all(agrees(recipe, trial) for trial in (first, *others)):
            return recipe
    if not tried:
        return "no three of its arrays have the shapes of queries, keys and values"
    return (
        f"none of {tried} ways to read its arguments as queries, keys and values gives its numbers"
    )


def agrees(recipe: Recipe, trial: Trial) -> bool:
    """Tell whether a recipe gives the numbers of a listing, where those are numbers."""
    exact = viewed(trial.outputs[recipe.output], recipe.layout)
    return close(dense(recipe, trial), exact, TOLERANCE)


def close(found: torch.Tensor, exact: torch.Tensor, tolerance: float) -> bool:
    """Tell whether results are the same, by a relative Frobenius norm; nan in most is no answer."""
    asked = ~torch.isnan(exact)
    if found.shape != exact.shape or asked.sum() * 2 <= exact.numel():
        return False
    gone = (found - exact)[asked].norm()
    return bool(gone <= tolerance * exact[asked].norm())


def dense(recipe: Recipe, trial: Trial) -> torch.Tensor:
    """Work a recipe out with every score in memory; (batch, head, query, column)."""
    q, k, v = (
        viewed(trial.arrays[name], recipe.layout)
        for name in (recipe.query, recipe.key, recipe.value)
    )
    shared = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    scores = q @ k.transpose(-1, -2) * recipe.factor(trial.reals, q.shape[-1])
    scores = changed(recipe, scores, trial.arrays, trial.reals)
    seen = seen_by(recipe, scores.shape, {**trial.sizes, **trial.arrays}, scores.device)
    scores = scores.masked_fill(~seen, -math.inf)
    # A row that is masked throughout has no weights.
    return torch.nan_to_num(torch.softmax(scores, -1), nan=0.0) @ v


def _recipes(program: Program, trial: Trial) -> Iterator[Recipe]:
    """Yield what could be, the plainest first."""
    kinds = {array.name: array.element for array in program.arrays}
    floats = [name for name in trial.arrays if kinds[name] == "float"]
    results = [name for name in trial.outputs if kinds[name] == "float" and name not in floats]
    for output, layout, names in _roles(floats, results, trial):
        shapes = [viewed(trial.arrays[name], layout).shape for name in names]
        (batches, heads, rows, _), keys = shapes[0], shapes[1][2]
        plain = Recipe(*names, output, layout, "1/sqrt(E)")
        others = [name for name in floats if name not in names]
        changes: list[Change | None] = [None]
        changes += list(_changes(others, trial, (batches, heads, rows, keys)))
        widths = [name for name in trial.sizes if name not in _extents(program)]
        masks = list(_masks(kinds, trial, widths, batches, rows, keys))
        for change, mask, scale in product(changes, masks, ("1/sqrt(E)", "1", *trial.reals)):
            if change is None or change.name != scale:
                yield replace(plain, scale=scale, mask=mask, change=change)


def _roles(
    floats: Sequence[str], results: Sequence[str], trial: Trial
) -> Iterator[tuple[str, Axes, tuple[str, str, str]]]:
    """Yield an output, a layout, and arrays with the shapes of queries, keys and values."""
    for output in results:
        rank = trial.outputs[output].ndim
        same = [name for name in floats if trial.arrays[name].ndim == rank]
        for layout, names in product(LAYOUTS.get(rank, ()), permutations(same, 3)):
            q, k, v = (viewed(trial.arrays[name], layout).shape for name in names)
            o = viewed(trial.outputs[output], layout).shape
            fits = (
                q[0] == k[0] == v[0] == o[0]
                and k[1] == v[1]
                and k[1] > 0
                and q[1] % k[1] == 0
                and q[3] == k[3]
                and k[2] == v[2]
                and o[1:] == (q[1], q[2], v[3])
            )
            if fits:
                yield output, layout, names


def _changes(
    others: Sequence[str], trial: Trial, shape: tuple[int, int, int, int]
) -> Iterator[Change]:
    for name in others:
        own = trial.arrays[name].shape
        for axes in combinations(range(4), len(own)):
            if len(own) > 1 and own == tuple(shape[axis] for axis in axes):
                yield Change("bias", name, axes)
        if own == (shape[1],):
            yield Change("slopes", name)
            yield Change("slopes", name, even=True)
        if own == (shape[1], shape[2] + shape[3] - 1):
            yield Change("relative", name)
    for name in trial.reals:
        yield Change("softcap", name)


def _extents(program: Program) -> frozenset[str]:
    """Return the sizes that arrays have: the width of a window is none of them."""
    shapes = [array.shape for array in program.arrays if array.role == "input"]
    indices = [extent for shape in shapes for extent in shape if extent is not None]
    return frozenset(name for index in indices for name in parameters(index))


def _masks(
    kinds: Mapping[str, str],
    trial: Trial,
    widths: Sequence[str],
    batches: int,
    rows: int,
    keys: int,
) -> Iterator[Mask]:
    yield Mask()
    yield Mask("upper_left")
    if rows != keys:
        yield Mask("lower_right")
    for name, values in trial.arrays.items():
        if kinds[name] != "int":
            continue
        if values.shape == (batches,):
            yield Mask("lengths", name)
            yield Mask("prefix", name)
        if rows == keys and values.shape in ((rows,), (batches, rows)):
            yield Mask("documents", name)
            yield Mask("documents", name, causal=True)
    for name in widths:
        for beyond in (0, 1):
            yield Mask("window", name, beyond)
            yield Mask("two_sided", name, beyond)
    for one, other in permutations(widths, 2):
        yield Mask("band", one, other=other)
