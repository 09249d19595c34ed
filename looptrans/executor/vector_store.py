"""Where values live while many iterations run at once: NumPy arrays, with an axis for each loop.

    shared by all iterations    axes of extent 1, then the dimensions of the array
    private to a loop           the axes of that loop and of those around it, then the dimensions

A read gives the axes first, then the dimensions that are taken whole; so does a write take them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from looptrans.executor.errors import SubscriptOutside, Trap, not_yet_set
from looptrans.executor.lanes import Lanes, Ramp, Values, spread
from looptrans.executor.operations import different_lengths
from looptrans.executor.vector_operations import Mask, Value, as_real, kind_of, to_integer, truth

Place = Sequence[Lanes | None]


class NotVectorized(Exception):
    """Something that is run one iteration at a time only; the message says what."""


@dataclass(slots=True)
class VectorStore:
    """An array or scalar.

    Attributes:
        name: Its name in the listing.
        element: What it holds: `float`, `int` or `bool`; a scalar holds whatever it was given.
        real: The type of real numbers.
        is_local: Whether the listing makes it.
        is_scalar: Whether it has no dimensions.
        lanes: The extent of each axis, 1 for the axes of loops it is not private to.
        shape: The extents of its dimensions; None until something sets it.
        data: An array of shape `lanes + shape`; for a scalar a value that broadcasts to `lanes`.
        known: The lanes in which it has been set; None for all, once there is a shape.
        declared: The shape that a creation before the nest gives every private copy.
    """

    name: str
    element: str
    real: type[Any]
    is_local: bool
    is_scalar: bool
    lanes: tuple[int, ...]
    shape: tuple[int, ...] | None = None
    data: Value = None
    known: Mask = None
    declared: tuple[int, ...] | None = None

    # A copy for each iteration

    def begin(self, lanes: tuple[int, ...]) -> tuple[Any, ...]:
        """Give each lane a copy without a value; return what `end` puts back."""
        kept = (self.lanes, self.shape, self.data, self.known)
        self.lanes, self.shape, self.data, self.known = lanes, self.declared, None, None
        if self.declared is not None:
            self.data = np.full((*lanes, *self.declared), self._nothing(), self._dtype())
        return kept

    def end(self, kept: tuple[Any, ...]) -> None:
        """Put back what there was before `begin`."""
        self.lanes, self.shape, self.data, self.known = kept

    def _dtype(self) -> type[Any]:
        types: dict[str, type[Any]] = {"float": self.real, "int": np.int64, "bool": np.bool_}
        return types[self.element]

    def _nothing(self) -> float:
        return math.nan if self.element == "float" else 0

    # Whole values

    def read_whole(self, mask: Mask) -> Value:
        """Return everything it holds: the value of a scalar, the array of an array.

        Raises:
            Trap: It has not been set.
        """
        if self.shape is None:
            raise self.unset()
        if self.known is not None:
            unknown = ~self.known if mask is None else ~self.known & mask
            if unknown.any():
                raise self.unset()
        return self.data

    def write_scalar(self, value: Value, mask: Mask, active: tuple[int, ...]) -> None:
        """Set a scalar; it takes the type of the value.

        Args:
            value: The value.
            mask: The lanes that write.
            active: The extents of all axes.
        """
        is_own = all(own == extent for own, extent in zip(self.lanes, active, strict=True))
        if is_own and mask is None:
            self.shape, self.data, self.known = (), value, None
            return
        if is_own:
            old = self.data if self.shape is not None else value
            self.known = (
                mask if self.shape is None else (None if self.known is None else self.known | mask)
            )
            self.shape, self.data = (), _merged(mask, value, old, self.real)
            return
        self._collapse(value, mask, active)

    def _collapse(self, value: Value, mask: Mask, active: tuple[int, ...]) -> None:
        """Set a scalar that several lanes share, of which at most one writes."""
        writes = np.broadcast_to(True if mask is None else mask, active)
        other = tuple(
            axis
            for axis, (own, extent) in enumerate(zip(self.lanes, active, strict=True))
            if own != extent
        )
        if np.any(np.count_nonzero(writes, axis=other) > 1):
            raise NotVectorized(f"several iterations write {self.name}")
        place = list(np.nonzero(writes))
        written = np.broadcast_to(value, active)[tuple(place)]
        for axis in other:
            place[axis] = np.zeros_like(place[axis])
        new = np.zeros(self.lanes, written.dtype)
        new[tuple(place)] = written
        does = writes.any(axis=other, keepdims=True)
        if math.prod(self.lanes) == 1:
            self.shape, self.data, self.known = (), new.reshape(())[()], None
            if kind_of(self.data) != "f":
                self.data = self.data.item()
            return
        self.write_scalar(new, does, self.lanes)

    def rename(self, value: Value, rank: int, mask: Mask, active: tuple[int, ...]) -> None:
        """Give an array the shape and the cells of a new one.

        Raises:
            NotVectorized: Lanes that share it, or only some of them, would write it.
        """
        value = np.asarray(value)
        shape = value.shape[value.ndim - rank :]
        if tuple(self.lanes) != tuple(active):
            raise NotVectorized(f"several iterations make {self.name}")
        new = np.array(np.broadcast_to(self.converted(value, mask, rank), (*self.lanes, *shape)))
        if mask is not None:
            if self.shape is not None and self.shape != shape:
                raise NotVectorized(f"iterations give {self.name} different shapes")
            whole = np.broadcast_to(mask, self.lanes).reshape((*self.lanes, *(1,) * rank))
            if self.shape is None:
                self.known = mask
            else:
                new = np.where(whole, new, self.data)
                self.known = None if self.known is None else self.known | mask
        else:
            self.known = None
        self.shape, self.data = shape, new

    def converted(self, value: Value, mask: Mask, rank: int = 0) -> Value:
        """Return a value as one of the array's type.

        Raises:
            Trap: It is no integer where one is needed.
        """
        if self.element == "int":
            looked = mask
            if mask is not None and rank:
                looked = mask.reshape((*mask.shape, *(1,) * rank))
            return to_integer(value, looked)
        if self.element == "bool":
            return truth(value)
        return as_real(value, self.real)

    # Cells

    def read(self, place: Place, mask: Mask) -> Value:
        """Return the cells that subscripts name; None is a whole dimension.

        Raises:
            Trap: A subscript of a lane that reads is outside, or nothing has set the array.
        """
        self.read_whole(mask)
        view = self._window(place)
        if view is None:
            cells, index = self._gather(place, mask)
            return cells[index]
        if view.size == 1 and view.ndim == len(self.lanes):
            number = view.reshape(())[()]
            return number if self.element == "float" else number.item()
        return view

    def write(
        self, place: Place, value: Value, rank: int, mask: Mask, active: tuple[int, ...]
    ) -> None:
        """Set the cells that subscripts name; None is a whole dimension.

        Args:
            place: The subscripts.
            value: The value; axes first, then its own dimensions.
            rank: How many dimensions of its own it has: 0 for a number, which goes to every cell.
            mask: The lanes that write.
            active: The extents of all axes.

        Raises:
            Trap: A subscript of a lane that writes is outside, the row has another length, or
                nothing has set the array.
        """
        if self.shape is None:
            raise self.unset()
        whole = tuple(e for at, e in zip(place, self.shape, strict=True) if at is None)
        if rank:
            shape = np.shape(value)[np.ndim(value) - rank :]
            if shape != whole:
                raise different_lengths(shape, whole)
        value = self.converted(value, mask, rank)
        if not rank and whole and np.ndim(value):
            value = value.reshape((*value.shape, *(1,) * len(whole)))
        looked = mask
        if mask is not None and whole:
            looked = mask.reshape((*mask.shape, *(1,) * len(whole)))
        view = self._window(place)
        if view is not None and view.shape[: len(active)] == tuple(active):
            np.copyto(view, value, where=True if looked is None else looked)
            return
        cells, index = self._gather(place, mask)
        value = np.broadcast_to(value, (*active, *whole))
        if mask is not None:
            taken = np.broadcast_to(mask, active)
            value = value[taken]
            index = tuple(np.broadcast_to(each, active)[taken] for each in index)
        cells[index] = value

    def _axes(self) -> tuple[int, ...]:
        return (1,) * len(self.lanes)

    def _window(self, place: Place) -> Values | None:
        """Return a view of the cells, or None: each axis must be a slice of one dimension."""
        found = self.slices(place)
        if found is None:
            return None
        where, source = found
        view: Values = self.data[(*where, ...)]  # a view even of a single cell
        if source != sorted(source):
            view = view.transpose(sorted(range(len(source)), key=source.__getitem__))
        axes = range(len(self.lanes))
        there = tuple(slice(None) if axis in source else None for axis in axes)
        return view[there] if None in there else view

    def slices(self, place: Place) -> tuple[tuple[int | slice, ...], list[int]] | None:
        """Return what indexes the data at a place, where that makes a view.

        Returns:
            An index for every axis and dimension, and for each that stays the axis it belongs to,
            whole dimensions behind all axes; None where an axis is no slice of one dimension.
        """
        shape, axes = self.shape or (), len(self.lanes)
        used = [axis for axis, extent in enumerate(self.lanes) if extent > 1]
        where: list[int | slice] = [slice(None) if axis in used else 0 for axis in range(axes)]
        source = list(used)
        for at, extent in zip(place, shape, strict=True):
            match at:
                case None:
                    where.append(slice(None))
                    source.append(axes + len(source))
                case Ramp():
                    part = at.slice_of(extent)
                    if part is None or at.axis in source:
                        return None
                    where.append(part)
                    source.append(at.axis)
                case int():
                    if not 0 <= at < extent:
                        return None
                    where.append(at)
                case _:
                    return None
        return tuple(where), source

    def _gather(self, place: Place, mask: Mask) -> tuple[Values, tuple[Any, ...]]:
        """Return the data with whole dimensions last, and what indexes the dimensions before.

        Raises:
            Trap: A subscript of a lane that runs is outside.
        """
        shape, axes = self.shape or (), len(self.lanes)
        index: list[Any] = []
        for axis, extent in enumerate(self.lanes):
            if extent > 1:
                index.append(Ramp(0, 1, extent, axis, axes).array)
            else:
                index.append(np.zeros((1,) * axes, np.int64))
        whole = [axes + at for at, index_at in enumerate(place) if index_at is None]
        for at, extent in zip(place, shape, strict=True):
            if at is None:
                continue
            numbers = spread(at)
            outside = np.less(numbers, 0) | np.greater_equal(numbers, extent)
            if np.any(outside):
                if mask is None or np.any(outside & mask):
                    raise self._outside(place, outside, mask)
                numbers = np.where(outside, 0, numbers)
            index.append(numbers)
        front = [axis for axis in range(axes + len(shape)) if axis not in whole]
        return self.data.transpose([*front, *whole]), tuple(index)

    def _outside(self, place: Place, outside: Value, mask: Mask) -> Trap:
        lanes = outside if mask is None else outside & mask
        # Where a number is outside it is so in every lane of the other subscripts.
        spans = [np.shape(spread(at)) for at in place if at is not None]
        lanes = np.asarray(lanes)
        lanes = np.broadcast_to(lanes, np.broadcast_shapes(lanes.shape, *spans))
        first = tuple(int(at) for at in np.argwhere(lanes)[0]) if lanes.ndim else ()
        texts, numbers = [], []
        for at in place:
            if at is None:
                texts.append(":")
                numbers.append(0)
                continue
            each = np.asarray(spread(at))
            number = int(np.broadcast_to(each, lanes.shape)[first]) if lanes.ndim else int(each)
            texts.append(str(number))
            numbers.append(number)
        shape = self.shape or ()
        for dimension, (at, extent) in enumerate(zip(numbers, shape, strict=True)):
            if place[dimension] is not None and not 0 <= at < extent:
                what = "is negative" if at < 0 else f"is not below {extent}"
                return Trap(
                    SubscriptOutside,
                    f"{self.name}[{', '.join(texts)}] is outside the array: "
                    f"subscript {dimension} is {at}, which {what}",
                    why=f"{self.name} has the shape {shape}",
                    remedy="change the bounds of the loop, or guard the access",
                )
        raise AssertionError(f"{self.name}[{', '.join(texts)}] is inside {shape}")

    def unset(self) -> Trap:
        """Return the failure of reading it too early."""
        return not_yet_set(self.name)


def _merged(mask: Mask, new: Value, old: Value, real: type[Any]) -> Value:
    if kind_of(new) != kind_of(old):
        new, old = as_real(new, real), as_real(old, real)
    return np.where(mask, new, old)
