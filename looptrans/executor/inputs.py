"""What a run starts from: every parameter and every input array, given or made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from looptrans.executor.contracts import check_contracts, check_sizes
from looptrans.executor.errors import InputMismatch, numbers_from
from looptrans.executor.random_inputs import make_arrays
from looptrans.executor.sizes import Extent, Sizes
from looptrans.ir.evaluate import Evaluator
from looptrans.ir.index import Index, Param
from looptrans.ir.program import Array, Assign, If, Parameter, Program
from looptrans.ir.value import Call, Compare, Real, Value, data_of, walk_value
from looptrans.ir.walk import nodes

Values = np.ndarray[Any, Any]
KINDS = {"float": "fiub", "int": "iufb", "bool": "bui"}


@dataclass(frozen=True, slots=True)
class Inputs:
    """Values for everything a program takes from outside.

    Attributes:
        integers: The integer parameters, in order of first appearance.
        reals: The real parameters.
        arrays: The input arrays and scalars, in order of first appearance.
    """

    integers: Mapping[str, int]
    reals: Mapping[str, float]
    arrays: Mapping[str, Values]


def prepare(
    program: Program,
    sizes: Mapping[str, float] | None = None,
    inputs: Mapping[str, ArrayLike] | None = None,
    seed: int = 0,
) -> Inputs:
    """Complete the given sizes and inputs, check them, and check the contracts.

    Sizes that are not given come from the shapes of given arrays, or are small numbers that satisfy
    the contracts. Arrays that are not given are random: standard normal floats, and integers that
    satisfy the declared ranges and the contracts and keep every subscript inside.

    Args:
        program: The listing.
        sizes: Values of integer parameters.
        inputs: Values of arrays, and of parameters too.
        seed: Decides what is made up; every array has a stream of its own.

    Raises:
        ExecutionError: What is given does not fit, or nothing that fits is found.
    """
    given_sizes, given_reals, arrays = _sorted_out(program, sizes or {}, inputs or {})
    known = Sizes(program)
    for name, value in given_sizes.items():
        known.put(name, value, "what is given")
    for parameter in program.parameters:
        if parameter.kind == "seed" and parameter.name not in given_sizes:
            default = parameter.default
            known.put(parameter.name, default if isinstance(default, int) else seed, "default")
    extents = [
        Extent(array, dimension, declared, arrays[array.name].shape[dimension])
        for array in program.arrays
        if array.name in arrays
        for dimension, declared in enumerate(declared_shape(program, array))
        if declared is not None
    ]
    known.infer(extents)
    known.check(extents)
    known.complete(extents)
    integers = {p.name: known.values[p.name] for p in program.parameters if p.is_integer}
    declared = {a.name: declared_shape(program, a) for a in program.arrays}
    # No integer arrays make up for sizes that do not fit each other.
    check_sizes(program, integers)
    complete = make_arrays(program, integers, arrays, declared, seed)
    _check_ranges(program, integers, arrays)
    index_arrays = {
        array.name: complete[array.name]
        for array in program.arrays
        if array.element == "int" and array.role == "input"
    }
    check_contracts(program, integers, index_arrays)
    return Inputs(integers, _reals(program, given_reals, seed), complete)


def declared_shape(program: Program, array: Array) -> tuple[Index | None, ...]:
    """Return the extents of an array as far as the listing names them."""
    names = {parameter.name for parameter in program.parameters}
    return tuple(
        Param(text) if extent is None and text in names else extent
        for dimension, extent in enumerate(array.shape)
        for text in (f"{array.name}.shape[{dimension}]",)
    )


def _sorted_out(
    program: Program, sizes: Mapping[str, float], inputs: Mapping[str, ArrayLike]
) -> tuple[dict[str, int], dict[str, float], dict[str, Values]]:
    """Tell parameters from arrays among what is given, and check what each is by itself."""
    parameters = {parameter.name: parameter for parameter in program.parameters}
    taken = {array.name: array for array in program.arrays if array.role == "input"}
    integers: dict[str, int] = {}
    reals: dict[str, float] = {}
    arrays: dict[str, Values] = {}
    for name, value in [*sizes.items(), *inputs.items()]:
        if name in taken:
            arrays[name] = _as_input(taken[name], value)
        elif name not in parameters:
            known = ", ".join([*parameters, *taken]) or "nothing"
            raise InputMismatch(
                f"{name!r} is given, and is no argument or size of {program.name}",
                None,
                why=f"it takes {known}",
                remedy="leave it out, or correct the name",
            )
        else:
            number = _as_number(parameters[name], value)
            if parameters[name].is_integer:
                if integers.setdefault(name, int(number)) != number:
                    raise InputMismatch(
                        f"{name} is given twice, as {integers[name]} and as {number}",
                        parameters[name].span,
                        remedy="give it once",
                    )
            else:
                reals[name] = number
    return integers, reals, arrays


def _as_number(parameter: Parameter, value: ArrayLike) -> float:
    array = np.asarray(value)
    if isinstance(value, int) and array.dtype.kind == "O":
        raise InputMismatch(
            f"{parameter.name} is given as {value}, an integer of more than 64 bits",
            parameter.span,
            remedy="give a smaller one",
        )
    if array.ndim or array.dtype.kind not in "fiub":
        raise InputMismatch(
            f"{parameter.name} is a number, and an array of shape {array.shape} is given",
            parameter.span,
            remedy="give one number",
        )
    whole = array.dtype.kind != "f" or (np.isfinite(array) and array == np.floor(array))
    if parameter.is_integer and not whole:
        raise InputMismatch(
            f"{parameter.name} is an integer, and {array.item()} is given",
            parameter.span,
            remedy="give an integer",
        )
    number: float = int(array) if parameter.is_integer else float(array)
    return number


def _as_input(array: Array, value: ArrayLike) -> Values:
    try:
        values = np.asarray(value)
    except ValueError as error:
        raise InputMismatch(f"{array.name} is no array: {error}", array.span) from None
    if values.dtype.kind not in KINDS[array.element]:
        raise InputMismatch(
            f"{array.name} holds {array.element}s, and an array of {values.dtype} is given",
            array.span,
            remedy=f"give an array of {array.element}s",
        )
    if values.ndim != array.rank:
        raise InputMismatch(
            f"{array.name} has {array.rank} dimensions in the listing, and {values.ndim} "
            f"are given, shape {values.shape}",
            array.span,
            remedy="give an array of that many dimensions, or correct the annotation",
        )
    if array.element == "int" and values.dtype.kind == "f":
        if not np.all(np.isfinite(values) & (values == np.floor(values))):
            raise InputMismatch(
                f"{array.name} holds integers, and not all given numbers are whole",
                array.span,
                remedy="give an array of integers",
            )
        values = values.astype(np.int64)
    return values


def _check_ranges(
    program: Program, integers: Mapping[str, int], arrays: Mapping[str, Values]
) -> None:
    for array in program.arrays:
        if array.value_range is None or array.name not in arrays:
            continue
        try:
            low, high = (Evaluator(integers).index(end, {}) for end in array.value_range)
        except ZeroDivisionError:
            continue
        values = arrays[array.name]
        outside = np.argwhere((values < low) | (values >= high))
        if outside.size:
            cell = tuple(int(at) for at in outside[0])
            text = ", ".join(map(str, cell))
            raise InputMismatch(
                f"{array.name}[{text}] is {values[cell]}, outside the declared range {low}:{high}",
                array.span,
                remedy=numbers_from(low, high),
            )


def _reals(program: Program, given: Mapping[str, float], seed: int) -> dict[str, float]:
    found: dict[str, float] = {}
    chances = _chances(program)
    for number, parameter in enumerate(program.parameters):
        if parameter.is_integer:
            continue
        random = np.random.default_rng([seed, 1, number]).uniform(0.5, 1.5)
        if parameter.name in chances:
            # Sixteenths from 2 to 6, so that what is worked out of them is exact in 32 bits too.
            random = np.round(4 * random) / 16
        default = parameter.default if parameter.default is not None else float(random)
        found[parameter.name] = given.get(parameter.name, default)
    return found


def _chances(program: Program) -> set[str]:
    """Return the real parameters that random numbers are compared with."""
    found: set[str] = set()
    for node in nodes(program.body):
        values: tuple[Value, ...] = ()
        if isinstance(node, Assign):
            values = node.values
        elif isinstance(node, If):
            values = data_of(node.condition)
        for part in (p for value in values for p in walk_value(value)):
            if isinstance(part, Compare):
                sides = [*walk_value(part.left), *walk_value(part.right)]
                if any(isinstance(side, Call) and side.function == "uniform" for side in sides):
                    found |= {side.name for side in sides if isinstance(side, Real)}
    return found
