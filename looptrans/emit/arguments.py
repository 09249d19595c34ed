"""The arguments of an emitted kernel: what each stands for, and where its value is found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from looptrans.blocks.block_ir.expr import Kind
from looptrans.ir.index import Index


@dataclass(frozen=True, slots=True)
class Pointer:
    """The first element of an array.

    Attributes:
        name: The argument.
        array: The array's name in the listing.
        element: What the array holds.
        dtype: The element type the listing asks for, or None: that of the inputs.
    """

    name: str
    array: str
    element: Kind
    dtype: str | None


@dataclass(frozen=True, slots=True)
class Stride:
    """How many elements apart two neighbours of a dimension are; a 32-bit integer, or 64."""

    name: str
    array: str
    axis: int


@dataclass(frozen=True, slots=True)
class Size:
    """An integer parameter of the listing.

    Attributes:
        name: The argument.
        parameter: The parameter's name in the listing.
        is_constant: Whether it is a `constexpr`.
        is_seed: Whether it is the key of random numbers: any other is as good, so that nothing is
            compiled or timed again for it.
    """

    name: str
    parameter: str
    is_constant: bool
    is_seed: bool = False


@dataclass(frozen=True, slots=True)
class RealNumber:
    """A real parameter of the listing; a 32-bit float."""

    name: str
    parameter: str


@dataclass(frozen=True, slots=True)
class Positive:
    """Whether a real parameter is above zero, a constexpr."""

    name: str
    parameter: str


@dataclass(frozen=True, slots=True)
class IndexType:
    """The constexpr `tl.int32`, or `tl.int64` where an offset does not fit into 32 bits."""

    name: str


@dataclass(frozen=True, slots=True)
class BlockSize:
    """A constexpr that the configuration gives: iterations of rows or a tile in a block.

    Attributes:
        name: The argument.
        block: What `Config.blocks` calls it.
    """

    name: str
    block: str


@dataclass(frozen=True, slots=True)
class LaneCount:
    """A constexpr: the next power of two of an extent, and at least `least`.

    Attributes:
        name: The argument.
        extent: The number of iterations of the lanes.
        least: 16 where a matrix product has this dimension, else 1.
        block: What the dimension calls it.
    """

    name: str
    extent: Index
    least: int
    block: str

    def value(self, extent: int) -> int:
        """Return the constexpr for an extent."""
        power: int = 1 << max(0, extent - 1).bit_length()
        return max(self.least, power)


Argument: TypeAlias = (
    Pointer | Stride | Size | RealNumber | Positive | IndexType | BlockSize | LaneCount
)


def decorator(arguments: Iterable[Argument]) -> str:
    """Return what stands above the definition of a kernel."""
    seeds = [f'"{a.name}"' for a in arguments if isinstance(a, Size) and a.is_seed]
    return f"@triton.jit(do_not_specialize=[{', '.join(seeds)}])" if seeds else "@triton.jit"


def is_constexpr(argument: Argument) -> bool:
    """Tell whether an argument is known when the kernel is compiled."""
    match argument:
        case Size(_, _, is_constant):
            return is_constant
        case Pointer() | Stride() | RealNumber():
            return False
        case _:
            return True
