"""Where values live during a run: flat lists of scalars, with the shape beside them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from looptrans.executor.errors import InputMismatch, NoValue, SubscriptOutside, Trap, not_yet_set
from looptrans.ir.program import Array, Element

# A numpy scalar of the run's type, a Python int or a Python bool.
Scalar: TypeAlias = Any
Shape: TypeAlias = tuple[int, ...]

MOST_CELLS = 10**8


@dataclass(slots=True)
class Block:
    """A value with dimensions: a row, or a whole array; its cells in row-major order."""

    shape: Shape
    cells: list[Scalar]


@dataclass(slots=True)
class Store:
    """An array or scalar during a run.

    Attributes:
        name: Its name in the listing.
        convert: Brings a scalar to the type of the cells.
        is_local: Whether the listing makes it; else it comes from outside.
        shape: The extents; None until something sets it.
        data: The cells in row-major order; a scalar has one.
    """

    name: str
    convert: Callable[[Scalar], Scalar]
    is_local: bool = True
    shape: Shape | None = None
    data: list[Scalar] = field(default_factory=list)

    def unset(self) -> Trap:
        """Return the failure of reading it too early."""
        return not_yet_set(self.name)

    def outside(self, cell: Sequence[int | None]) -> Trap:
        """Return the failure of a subscript that is not inside; None stands for `:`."""
        shape = self.shape or ()
        text = ", ".join(":" if at is None else str(at) for at in cell)
        for dimension, (at, extent) in enumerate(zip(cell, shape, strict=True)):
            if at is not None and not 0 <= at < extent:
                what = "is negative" if at < 0 else f"is not below {extent}"
                return Trap(
                    SubscriptOutside,
                    f"{self.name}[{text}] is outside the array: "
                    f"subscript {dimension} is {at}, which {what}",
                    why=f"{self.name} has the shape {shape}",
                    remedy="change the bounds of the loop, or guard the access",
                )
        raise AssertionError(f"{self.name}[{text}] is inside {shape}")

    def offset(self, cell: Sequence[int]) -> int:
        """Return the place of one cell, each of whose subscripts is a number."""
        if self.shape is None:
            raise self.unset()
        place = 0
        for at, extent in zip(cell, self.shape, strict=True):
            if not 0 <= at < extent:
                raise self.outside(cell)
            place = place * extent + at
        return place

    def offsets(self, cell: Sequence[int | None]) -> tuple[Shape, list[int]]:
        """Return the shape and the places of the cells that subscripts name; None is `:`."""
        shape = self.shape
        if shape is None:
            raise self.unset()
        fixed = [at for at in cell if at is not None]
        if any(
            at is not None and not 0 <= at < extent for at, extent in zip(cell, shape, strict=True)
        ):
            raise self.outside(cell)
        kept = tuple(e for at, e in zip(cell, shape, strict=True) if at is None)
        if all(at is not None for at in cell[: len(fixed)]):
            start = 0
            for at, extent in zip(fixed, shape, strict=False):
                start = start * extent + at
            count = math.prod(kept)
            return kept, list(range(start * count, (start + 1) * count))
        strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        choices = [
            range(0, extent * stride, stride) if at is None else (at * stride,)
            for at, extent, stride in zip(cell, shape, strides, strict=True)
        ]
        return kept, [sum(parts) for parts in itertools.product(*choices)]

    def cells_at(self, cell: Sequence[int | None]) -> Iterator[tuple[int, ...]]:
        """Yield the subscripts of every cell that `offsets` names, in the same order."""
        shape = self.shape or ()
        choices = [
            range(extent) if at is None else (at,) for at, extent in zip(cell, shape, strict=True)
        ]
        return itertools.product(*choices)


def converter(element: Element, real: type[Any]) -> Callable[[Scalar], Scalar]:
    """Return what brings a scalar to the type of an array's cells."""
    if element == "int":
        return to_integer
    if element == "bool":
        return bool
    return lambda value: value if type(value) is real else real(value)


def to_integer(value: Scalar) -> int:
    """Truncate toward zero, as NumPy stores a float into an integer array.

    Raises:
        Trap: The value is nan or infinite, or needs more than 64 bits.
    """
    if type(value) is not int:
        if not math.isfinite(value):
            raise Trap(NoValue, f"{float(value)} is no integer", remedy="guard the conversion")
        value = int(value)
    if not -(1 << 63) <= value < 1 << 63:
        raise Trap(NoValue, f"{value} does not fit in 64 bits", remedy="choose smaller numbers")
    return int(value)


def cell_count(shape: Shape, name: str) -> int:
    """Return the number of cells of a new array.

    Raises:
        Trap: An extent is negative, or the array is too large to be worth trying.
    """
    if any(extent < 0 for extent in shape):
        raise Trap(
            InputMismatch,
            f"the shape {shape} of {name!r} has a negative extent",
            remedy="choose sizes for which every extent is at least 0",
        )
    count = math.prod(shape)
    if count > MOST_CELLS:
        raise Trap(NoValue, f"{name!r} would have {count} cells", remedy="choose smaller sizes")
    return count


def cells_of(array: np.ndarray[Any, Any], element: Element, real: type[Any]) -> list[Scalar]:
    """Return the cells of a NumPy array as scalars of the run."""
    if element == "float":
        return list(array.astype(real).ravel())
    return list(array.astype(np.int64 if element == "int" else np.bool_).ravel().tolist())


def as_array(store: Store, array: Array, real: type[Any]) -> np.ndarray[Any, Any]:
    """Return what a store holds as a NumPy array; a scalar as one without dimensions."""
    if store.shape is None:
        raise store.unset()
    types: dict[Element, type[Any]] = {"float": real, "int": np.int64, "bool": np.bool_}
    cells = [store.convert(cell) for cell in store.data]
    result: np.ndarray[Any, Any] = np.array(cells, dtype=types[array.element])
    return result.reshape(store.shape)
