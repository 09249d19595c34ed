"""What `--at` gives, compared with the program: every size, and integer arrays that fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from looptrans.cli.at import Given
from looptrans.ir.condition import compared
from looptrans.ir.diagnostic import ListingError, Mistake
from looptrans.ir.index import Index, opaque_terms
from looptrans.ir.program import Array, Contract, Program
from looptrans.ir.source import Source
from looptrans.ir.walk import written

Cells: TypeAlias = dict[tuple[int, ...], int]


def concrete(
    program: Program, given: list[tuple[str, Given]]
) -> tuple[dict[str, int], dict[str, Cells]]:
    """Return what is given as the program's sizes and as cells of its integer arrays.

    Raises:
        ListingError: A size is missing, a name is not the program's, or what is given does not
            fit the program's shapes and contracts.
    """
    try:
        sizes, contents = _sorted_out(program, given)
        _check(program, sizes, contents)
    except Mistake as mistake:
        source = Source("", "") if mistake.span is None else program.source
        raise ListingError([mistake], source) from None
    return sizes, contents


def _sorted_out(
    program: Program, given: list[tuple[str, Given]]
) -> tuple[dict[str, int], dict[str, Cells]]:
    needed = [parameter.name for parameter in program.parameters if parameter.is_integer]
    changed = written(program)
    arrays = {
        array.name: array
        for array in program.arrays
        if array.role == "input" and array.element == "int" and array.name not in changed
    }
    sizes: dict[str, int] = {}
    contents: dict[str, Cells] = {}
    for name, value in given:
        if name in sizes or name in contents:
            raise _mistake(f"--at gives {name} twice", "give it once")
        if name in needed and isinstance(value, int):
            sizes[name] = value
        elif name in arrays:
            contents[name] = _cells(arrays[name], value)
        elif name in needed:
            raise _mistake(f"{name} is a size, and --at gives a list", f"write {name}=3")
        else:
            known = [*needed, *(f"{each}=[…]" for each in arrays)]
            takes = f"--at takes {', '.join(known)}" if known else "there is nothing to give"
            raise _mistake(f"{name!r} is no size and no integer array of {program.name}", takes)
    missing = [name for name in needed if name not in sizes]
    if missing:
        add = ",".join(f"{name}=3" for name in missing)
        raise _mistake(f"--at does not say {', '.join(missing)}", f"add {add}, or other numbers")
    return sizes, contents


def _cells(array: Array, value: Given) -> Cells:
    """Return the elements of an array by subscript."""
    level: dict[tuple[int, ...], Given] = {(): value}
    for _ in range(array.rank):
        lengths = {len(item) if isinstance(item, list) else -1 for item in level.values()}
        if -1 in lengths or len(lengths) > 1:
            break
        level = {
            (*cell, number): item
            for cell, items in level.items()
            if isinstance(items, list)
            for number, item in enumerate(items)
        }
    cells = {cell: item for cell, item in level.items() if isinstance(item, int)}
    if len(cells) < len(level) or any(len(cell) != array.rank for cell in cells):
        shape = "[" * array.rank + "…" + "]" * array.rank
        raise _mistake(
            f"{array.name} has {array.rank} dimension{'' if array.rank == 1 else 's'}",
            f"give {array.name}={shape}, rows of one length" if array.rank else "give an integer",
        )
    return cells


def _mistake(message: str, remedy: str) -> Mistake:
    from looptrans.executor.errors import InputMismatch

    return InputMismatch(message, None, remedy=remedy)


def _check(program: Program, sizes: Mapping[str, int], contents: Mapping[str, Cells]) -> None:
    """Compare what is given with the shapes, ranges and contracts as far as it decides them."""
    for array in program.arrays:
        _check_extents(array, sizes)
    _check_divisors(program, sizes)
    contracts = tuple(c for c in program.contracts if _arrays_in(c) <= contents.keys())
    if not contents and not contracts:
        return
    import numpy as np

    from looptrans.executor.contracts import check_contracts

    arrays = {}
    for name, cells in contents.items():
        array = program.array(name)
        shape = tuple(max((cell[at] + 1 for cell in cells), default=0) for at in range(array.rank))
        if cells:
            _check_shape(array, shape, sizes)
        _check_range(array, cells, sizes)
        arrays[name] = np.zeros(shape, dtype=object)
        for cell, item in cells.items():
            arrays[name][cell] = item
    check_contracts(replace(program, contracts=contracts), sizes, arrays)


def _arrays_in(contract: Contract) -> set[str]:
    """Return the integer arrays a contract is about."""
    ranges = [generator.range for generator in contract.generators]
    indices = [index for each in ranges for index in each.ends]
    for condition in (contract.condition, *(each.condition for each in contract.generators)):
        indices += compared(condition)
    return {term.array for index in indices for term in opaque_terms(index)}


def _check_extents(array: Array, sizes: Mapping[str, int]) -> None:
    for declared in array.shape:
        extent = None if declared is None else _evaluated(declared, sizes)
        if extent is not None and extent < 0:
            raise _mistake(
                f"an extent of {array.name} is {extent}",
                "choose sizes for which every extent is at least 0",
            )


def _check_divisors(program: Program, sizes: Mapping[str, int]) -> None:
    from looptrans.analysis.api import divisors
    from looptrans.ir.listing import index_text

    for divisor in divisors(program):
        value = _evaluated(divisor, sizes)
        if value is not None and value < 1:
            raise _mistake(
                f"{index_text(divisor)} is {value}, and an index is divided by it",
                "choose sizes for which it is at least 1",
            )


def _check_shape(array: Array, shape: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    for dimension, (declared, actual) in enumerate(zip(array.shape, shape, strict=True)):
        expected = None if declared is None else _evaluated(declared, sizes)
        if expected is not None and expected != actual:
            raise _mistake(
                f"dimension {dimension} of {array.name} is {actual}, and should be {expected}",
                "give a list and sizes that agree",
            )


def _check_range(array: Array, cells: Cells, sizes: Mapping[str, int]) -> None:
    if array.value_range is None:
        return
    low, high = (_evaluated(end, sizes) for end in array.value_range)
    for cell, item in cells.items():
        if low is not None and high is not None and not low <= item < high:
            from looptrans.executor.errors import numbers_from

            where = ", ".join(map(str, cell))
            raise _mistake(
                f"{array.name}[{where}] is {item}, outside the declared range {low}:{high}",
                numbers_from(low, high),
            )


def _evaluated(index: Index, sizes: Mapping[str, int]) -> int | None:
    from looptrans.ir.evaluate import Evaluator, Unknown

    try:
        return Evaluator(sizes).index(index, {})
    except (Unknown, ZeroDivisionError):
        return None
