"""Tensors inside guard zones: what a kernel writes beside its outputs shows.

guard │ x ░ x ░ x ░ x ░ │ guard      x the elements of the tensor, ░ elements between them
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

Values: TypeAlias = np.ndarray[Any, Any]
Layout: TypeAlias = Literal["contiguous", "padded", "transposed", "strided"]
ODD_LAYOUTS: tuple[Layout, ...] = ("padded", "transposed", "strided")

GUARD: dict[Layout, int] = {"contiguous": 64, "padded": 67, "transposed": 67, "strided": 67}
"""Elements before and after a tensor. Where the layout is as usual, so is the alignment of its
beginning: Triton compiles other code, without vectors and asynchronous copies, where it is odd."""

_BITS: dict[int, torch.dtype] = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# A nan that no arithmetic makes, and integers that are no subscripts.
SENTINEL = {1: 0x55, 2: 0x7FED, 4: 0x7FDEAD01, 8: 0x7FF8DEAD01020304}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A tensor inside a larger buffer.

    Attributes:
        tensor: The tensor.
        buffer: All of the memory, one-dimensional.
        before: The bits of the buffer before the kernel ran.
    """

    tensor: torch.Tensor
    buffer: torch.Tensor
    before: torch.Tensor

    def changed_outside(self) -> int:
        """Return how many elements have changed that are not the tensor's."""
        inside = torch.zeros(self.buffer.shape, dtype=torch.bool, device=self.buffer.device)
        _same_place(inside, self.tensor).fill_(True)
        return int(((_bits(self.buffer) != self.before) & ~inside).sum())

    def changed(self) -> int:
        """Return how many elements have changed, those of the tensor included."""
        return int((_bits(self.buffer) != self.before).sum())


def guarded(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    layout: Layout,
    values: torch.Tensor | None,
) -> Guarded:
    """Make a tensor in a buffer that holds nothing but a sentinel besides.

    Args:
        shape: Its shape.
        dtype: Its element type.
        device: Where it lives.
        layout: How its elements lie: one after the other; with unused elements at the end of each
            row; with the dimensions in reverse order, the first one being the fastest; with every
            other element unused.
        values: What it holds; None for the sentinel, a nan or an integer that is out of place.
    """
    strides = _strides(shape, layout)
    reach = sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
    guard = GUARD[layout]
    length = 2 * guard + (reach + 1 if math.prod(shape) else 0)
    buffer = torch.empty(length, dtype=dtype, device=device)
    _bits(buffer).fill_(SENTINEL[buffer.element_size()])
    tensor = torch.as_strided(buffer, shape, strides, guard)
    if values is not None:
        tensor.copy_(values)
    return Guarded(tensor, buffer, _bits(buffer).clone())


def _strides(shape: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    order = list(range(len(shape)))
    if layout != "transposed":
        order.reverse()
    strides = [0] * len(shape)
    step = 2 if layout == "strided" else 1
    for number, axis in enumerate(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
        if number == 0 and layout in ("padded", "transposed"):
            step += 5
    return tuple(strides)


def _same_place(buffer: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(buffer, tensor.shape, tensor.stride(), tensor.storage_offset())


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_BITS[tensor.element_size()])


def to_tensor(values: Values, dtype: torch.dtype) -> torch.Tensor:
    """Return an array as a tensor of a type, rounded once."""
    return torch.from_numpy(np.ascontiguousarray(values).reshape(values.shape)).to(dtype)


def to_array(tensor: torch.Tensor) -> Values:
    """Return what a tensor holds: floating-point numbers in float64, others as they are."""
    moved = tensor.detach().cpu()
    if moved.dtype.is_floating_point:
        moved = moved.to(torch.float64)
    values: Values = moved.numpy()
    return values
