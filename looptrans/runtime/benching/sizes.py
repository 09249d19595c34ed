"""Sizes at which a listing is timed, and small ones in the same proportions to try things at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from looptrans.blocks.block_ir.expr import Role
from looptrans.blocks.block_ir.program import BlockProgram
from looptrans.executor.contracts import check_contracts
from looptrans.executor.errors import ExecutionError, InputMismatch, NoInputsFound
from looptrans.executor.inputs import Inputs, declared_shape
from looptrans.executor.sizes import Sizes
from looptrans.ir.evaluate import evaluate
from looptrans.ir.index import opaque_terms, parameters
from looptrans.ir.program import Program
from looptrans.runtime.verifying.inputs import inputs_for

Values: TypeAlias = np.ndarray[Any, Any]
Shapes: TypeAlias = dict[str, tuple[int, ...]]

# What is usual where kernels of attention are timed: as many rows altogether at every length, and
# as many numbers in a row of all heads.
LONG = (4096, 16384)
VECTORS = (64, 128)
ROWS = 16384
WIDTH = 2048
PROGRAMS = 16

REAL = 0.125
"""The value of a real parameter that nobody gives: small, and exact in every type."""

# At a trial, sizes up to the first number stay as they are, and those above become the others.
SMALL_ENOUGH = 16
TRIAL = (5, 8, 11, 14, 18, 22)

_ROLES: tuple[Role, ...] = ("rows", "tile", "lanes", "element", "program")


def usual_sets(program: Program, blocks: BlockProgram) -> tuple[dict[str, int], ...]:
    """Return the sizes a listing is timed at where nobody says which.

    A loop that is rows or tiles has 4096 and 16384 iterations, one that is lanes of a vector 64 and
    128. Loops over programs share what makes 16384 rows, the last of them 2048 divided by the lanes
    (16 where there are none).
    """
    roles = _roles(blocks)
    names = [p.name for p in program.parameters if p.is_integer and p.kind != "seed"]
    long = [name for name in names if roles.get(name) in ("rows", "tile")]
    vectors = [name for name in names if roles.get(name) == "lanes"]
    programs = [name for name in names if roles.get(name) == "program"]
    found = []
    for vector in VECTORS if vectors else (0,):
        for length in LONG if long else (0,):
            chosen = {**dict.fromkeys(vectors, vector), **dict.fromkeys(long, length)}
            counts = [WIDTH // vector if vector else PROGRAMS] if programs else []
            counts += [ROWS // length if length else PROGRAMS] if len(programs) > 1 else []
            counts += [1] * (len(programs) - len(counts))
            chosen.update(zip(reversed(programs), counts, strict=True))
            found.append({name: chosen[name] for name in names if name in chosen})
    return tuple(found)


def _roles(blocks: BlockProgram) -> dict[str, Role]:
    """Return for each size what the loops are that it bounds."""
    found: dict[str, Role] = {}
    ranges = {a.name: a.value_range for a in blocks.listing.arrays if a.value_range is not None}
    for kernel in blocks.kernels:
        for dim in kernel.dims:
            read = [
                ranges[term.array][1] for term in opaque_terms(dim.stop) if term.array in ranges
            ]
            for name in (name for end in (dim.stop, *read) for name in parameters(end)):
                found[name] = min((dim.role, found.get(name, dim.role)), key=_ROLES.index)
    return found


def completed(program: Program, given: Mapping[str, int]) -> dict[str, int]:
    """Return values of all sizes, those not given found as the contracts allow.

    Raises:
        ExecutionError: A name is no size, or a contract does not hold.
    """
    known = Sizes(program)
    names = [p.name for p in program.parameters if p.is_integer]
    for name, value in given.items():
        if name not in names:
            raise InputMismatch(
                f"{name!r} is given, and is no size of {program.name}",
                None,
                why=f"its sizes are {', '.join(names) or 'none'}",
                remedy="leave it out, or correct the name",
            )
        known.put(name, value, "what is given")
    known.complete([])
    sizes = {name: known.values[name] for name in names}
    if not any(array.element == "int" and array.role == "input" for array in program.arrays):
        check_contracts(program, sizes, {})
    return sizes


def filled(
    program: Program, blocks: BlockProgram, given: Mapping[str, float]
) -> tuple[dict[str, int], dict[str, float]]:
    """Return values of all sizes and of all real parameters, the given ones among them.

    Raises:
        ExecutionError: What is given does not fit the listing.
    """
    reals = {p.name: p.default for p in program.parameters if not p.is_integer}
    integers = {}
    for name, value in given.items():
        if name in reals:
            reals[name] = value
        elif isinstance(value, int):
            integers[name] = value
        else:
            raise InputMismatch(f"{name}={value} is no integer", None, remedy="give an integer")
    # What is left out is as in the usual set that is closest, if that fits, else whatever fits.
    usual = max(
        reversed(usual_sets(program, blocks)),
        key=lambda each: sum(each.get(name) == value for name, value in integers.items()),
    )
    for more in ({n: v for n, v in usual.items() if n not in integers}, {}):
        try:
            sizes = completed(program, {**integers, **more})
        except ExecutionError:
            if not more:
                raise
        else:
            break
    return sizes, {n: REAL if value is None else float(value) for n, value in reals.items()}


def shapes_of(program: Program, sizes: Mapping[str, int]) -> Shapes:
    """Return the shape of every input array.

    Raises:
        NoInputsFound: The listing does not say how large one is.
    """
    found: Shapes = {}
    for array in program.arrays:
        if array.role == "input":
            extents = [
                None if extent is None else evaluate(extent, sizes)
                for extent in declared_shape(program, array)
            ]
            if None in extents:
                raise NoInputsFound(
                    f"the listing does not say how large {array.name} is",
                    array.span,
                    remedy=f'annotate it, as in {array.name}: Float[Array, "M N"]',
                )
            found[array.name] = tuple(extent for extent in extents if extent is not None)
    return found


def integers_of(program: Program, sizes: Mapping[str, int], seed: int) -> dict[str, Values]:
    """Return integer arrays of the declared ranges, every number in them as likely as any other.

    Raises:
        ExecutionError: A range is not declared, or the contracts ask for more.
    """
    shapes = shapes_of(program, sizes)
    found: dict[str, Values] = {}
    for number, array in enumerate(program.arrays):
        if array.role != "input" or array.element != "int":
            continue
        ends = [evaluate(end, sizes) for end in array.value_range or ()]
        if len(ends) != 2 or ends[0] is None or ends[1] is None or ends[0] >= ends[1]:
            raise NoInputsFound(
                f"the integers in {array.name} cannot be made up: nothing is said of their range",
                array.span,
                remedy=f'declare it, as in {array.name}: Int[Array, "B", "0:N"]',
            )
        rng = np.random.default_rng([seed, 3, number])
        found[array.name] = rng.integers(ends[0], ends[1], shapes[array.name])
    check_contracts(program, sizes, found)
    return found


def trial_inputs(
    program: Program, sizes: Mapping[str, int], reals: Mapping[str, float], seed: int
) -> Inputs:
    """Return small inputs at which sizes that are equal are equal, and larger ones larger.

    What was found to hold at them holds at the sizes themselves where nothing but such proportions
    decides: `j <= i` and `j <= i + N - M` are the same mask where M = N.

    Raises:
        ExecutionError: There are no such inputs.
    """
    small = _proportional(sizes)
    try:
        return inputs_for(program, {**small, **reals}, "normal", seed)
    except ExecutionError:
        return inputs_for(program, reals, "normal", seed)


def _proportional(sizes: Mapping[str, int]) -> dict[str, int]:
    large = sorted({value for value in sizes.values() if value > SMALL_ENOUGH})
    become = dict(zip(large, _growing(len(large)), strict=True))
    return {name: become.get(value, value) for name, value in sizes.items()}


def _growing(count: int) -> Iterable[int]:
    return [TRIAL[at] if at < len(TRIAL) else TRIAL[-1] + 2 * at for at in range(count)]


def shown(sizes: Mapping[str, float]) -> str:
    """Return sizes as `M=4096 N=4096`."""
    return " ".join(f"{name}={value:g}" for name, value in sizes.items()) or "no sizes"
