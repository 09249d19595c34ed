"""Where real numbers live in a differentiated run: torch tensors, with an axis for each loop.

As `looptrans.executor.vector_store`, which keeps the integers. A tensor that is written in place
gives its readers copies, so that what autograd remembers of them stays as it was.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

from looptrans.executor.lanes import Ramp, spread
from looptrans.executor.vector_operations import Mask, to_integer, truth
from looptrans.executor.vector_store import NotVectorized, Place, VectorStore

Number: TypeAlias = Any
"""A Python integer or bool, a NumPy array of them, or a torch tensor of real numbers."""


def as_tensor(value: Number, real: torch.dtype) -> torch.Tensor:
    """Return a value as real numbers."""
    if isinstance(value, torch.Tensor):
        return value
    return torch.tensor(np.asarray(value)).to(real)


def as_numbers(value: Number) -> Any:
    """Return a value for NumPy, without its derivative."""
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def as_mask(mask: Mask, dimensions: int = 0) -> torch.Tensor:
    """Return a mask for torch, with dimensions of extent 1 behind its axes."""
    found = torch.tensor(np.asarray(mask))
    return found.reshape((*found.shape, *(1,) * dimensions))


def selected(condition: Any, yes: Number, no: Number, real: torch.dtype) -> Number:
    """Return `yes` where a condition of NumPy holds, else `no`; each gets its own derivative."""
    if np.ndim(condition) == 0:
        return yes if condition else no
    if not isinstance(yes, torch.Tensor) and not isinstance(no, torch.Tensor):
        return np.where(condition, yes, no)
    return torch.where(as_mask(condition), as_tensor(yes, real), as_tensor(no, real))


@dataclass(slots=True)
class GradientStore(VectorStore):
    """An array or scalar of a differentiated run; a scalar holds whatever it was given.

    Attributes:
        tensor_type: The type of real numbers.
        is_fixed: Whether nothing writes it, so that readers need no copies.
        parts: Of what nothing writes, views that were read before: what comes back through one is
            added up in a tensor of its size, and goes on from there once.
    """

    tensor_type: torch.dtype = torch.float64
    is_fixed: bool = False
    parts: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    @property
    def _is_real(self) -> bool:
        return self.element == "float" and not self.is_scalar

    def begin(self, lanes: tuple[int, ...]) -> tuple[Any, ...]:
        """Give each lane a copy without a value; return what `end` puts back."""
        kept = VectorStore.begin(self, lanes)
        if self._is_real and self.data is not None:
            self.data = as_tensor(self.data, self.tensor_type)
        return kept

    def converted(self, value: Number, mask: Mask, rank: int = 0) -> Number:
        """Return a value as one of the array's type."""
        if self.element == "float":
            return as_tensor(value, self.tensor_type)
        value = as_numbers(value)
        if self.element == "bool":
            return truth(value)
        looked = mask
        if mask is not None and rank:
            looked = mask.reshape((*mask.shape, *(1,) * rank))
        return to_integer(value, looked)

    # Whole values

    def write_scalar(self, value: Number, mask: Mask, active: tuple[int, ...]) -> None:
        """Set a scalar; it takes the type of the value.

        Raises:
            NotVectorized: Lanes share it.
        """
        if tuple(self.lanes) != tuple(active):
            raise NotVectorized(f"several iterations share {self.name}")
        if mask is None:
            self.data, self.known = value, None
        elif self.shape is None:
            self.data, self.known = value, mask
        else:
            self.known = None if self.known is None else self.known | mask
            self.data = selected(mask, value, self.data, self.tensor_type)
        self.shape = ()

    def rename(self, value: Number, rank: int, mask: Mask, active: tuple[int, ...]) -> None:
        """Give an array the shape and the cells of a new one.

        Raises:
            NotVectorized: Lanes that share it would write it, or give it different shapes.
        """
        if not self._is_real:
            VectorStore.rename(self, as_numbers(value), rank, mask, active)
            return
        if tuple(self.lanes) != tuple(active):
            raise NotVectorized(f"several iterations make {self.name}")
        new = as_tensor(value, self.tensor_type)
        shape = tuple(new.shape[new.ndim - rank :])
        new = new.expand((*self.lanes, *shape)).clone()
        known = mask
        if mask is not None and self.shape is not None:
            if self.shape != shape:
                raise NotVectorized(f"iterations give {self.name} different shapes")
            whole = as_mask(np.broadcast_to(mask, self.lanes), rank)
            new = torch.where(whole, new, self.data)
            known = None if self.known is None else self.known | mask
        self.data, self.shape, self.known = new, shape, known

    # Cells

    def read(self, place: Place, mask: Mask) -> Number:
        """Return the cells that subscripts name; None is a whole dimension."""
        if not self._is_real:
            return VectorStore.read(self, place, mask)
        self.read_whole(mask)
        view = self._view(place)
        if view is None:
            cells, index = self._found(place)
            return cells[index]
        return view if self.is_fixed else view.clone()

    def write(
        self, place: Place, value: Number, rank: int, mask: Mask, active: tuple[int, ...]
    ) -> None:
        """Set the cells that subscripts name; None is a whole dimension."""
        if not self._is_real:
            VectorStore.write(self, place, as_numbers(value), rank, mask, active)
            return
        if self.shape is None:
            raise self.unset()
        value = as_tensor(value, self.tensor_type)
        whole = tuple(e for at, e in zip(place, self.shape, strict=True) if at is None)
        if not rank and whole and value.ndim:
            value = value.reshape((*value.shape, *(1,) * len(whole)))
        view = self._view(place)
        if view is not None and tuple(view.shape[: len(active)]) == tuple(active):
            looked = None if mask is None else as_mask(mask, len(whole))
            view.copy_(value if looked is None else torch.where(looked, value, view.clone()))
            return
        cells, index = self._found(place)
        value = value.expand((*active, *whole))
        if mask is not None:
            taken = np.broadcast_to(mask, active)
            value = value[as_mask(taken)]
            index = tuple(each.expand(active)[as_mask(taken)] for each in index)
        else:
            index = tuple(each.expand(active) for each in index)
        cells.index_put_(index, value)

    def _view(self, place: Place) -> torch.Tensor | None:
        """Return a view of the cells, or None: each axis must be a slice of one dimension."""
        found = self.slices(place)
        if found is None or any(isinstance(at, Ramp) and at.step < 0 for at in place):
            return None  # torch has no views that go backwards
        where, source = found
        view = self._part(where) if self.is_fixed else self.data[where]
        view = view.permute(sorted(range(len(source)), key=source.__getitem__))
        for axis in range(len(self.lanes)):
            if axis not in source:
                view = view.unsqueeze(axis)
        return view

    def _part(self, where: tuple[int | slice, ...]) -> torch.Tensor:
        """Return a view of data that nothing writes, always the same one of the same part."""
        data = self.data
        ends = ((at.start, at.stop, at.step) if isinstance(at, slice) else at for at in where)
        key = (id(data), *ends)
        if key not in self.parts:
            numbers = [dimension for dimension, at in enumerate(where) if isinstance(at, int)]
            longest = max(numbers, key=lambda d: int(data.shape[d]), default=None)
            if longest is None:
                self.parts[key] = data[where]
            else:
                rows = (id(data), "rows", longest)
                if rows not in self.parts:
                    self.parts[rows] = data.unbind(longest)
                row = self.parts[rows][where[longest]]
                self.parts[key] = row[where[:longest] + where[longest + 1 :]]
        found: torch.Tensor = self.parts[key]
        return found

    def _found(self, place: Place) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return the data with whole dimensions last, and what indexes the dimensions before.

        A subscript that is outside is one of a lane that does not run: the listing has been
        executed before.
        """
        shape, axes = self.shape or (), len(self.lanes)
        index: list[torch.Tensor] = []
        for axis, extent in enumerate(self.lanes):
            own = Ramp(0, 1, extent, axis, axes).array if extent > 1 else np.zeros((1,) * axes, int)
            index.append(torch.from_numpy(own))
        whole = [axes + at for at, index_at in enumerate(place) if index_at is None]
        for at, extent in zip(place, shape, strict=True):
            if at is None:
                continue
            numbers = np.asarray(spread(at))
            inside = (numbers >= 0) & (numbers < extent)
            index.append(torch.from_numpy(np.where(inside, numbers, 0)))
        front = [axis for axis in range(axes + len(shape)) if axis not in whole]
        return self.data.permute([*front, *whole]), tuple(index)
