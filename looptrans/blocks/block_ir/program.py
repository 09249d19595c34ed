"""Block IR: a listing as kernels, and what they are handed.

BlockProgram ─ kernels, launched one after the other; temporaries between them
   └ Kernel ─ grid, arrays, scalars, configurations
       └ Op (`ops`): Let │ Store │ TileLoop │ ElementLoop │ Branch │ RowBlock
           └ Expr (`expr`): Number │ Scalar │ Option │ Sign │ Position │ Edge │ Name │ Load
                   │ Unary │ Binary │ Call │ Where │ Cast │ Reduce │ Dot
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from looptrans.blocks.block_ir.expr import Dim, Kind, Scalar
from looptrans.blocks.block_ir.ops import Op
from looptrans.ir.condition import Condition
from looptrans.ir.index import Index
from looptrans.ir.program import Program


@dataclass(frozen=True, slots=True)
class Rounding:
    """What a backward pass rounds to 16 bits where it is multiplied with 16-bit inputs.

    All but what the forward pass has worked out before, which must come out as it did there: were
    the queries of an exponent rounded in one pass only, weights would not add up to 1.

    Attributes:
        recomputed: Names of values that the forward pass worked out.
        weights: Those that are between 0 and 1.
        logarithms: Arrays of logarithms that it is given.
    """

    recomputed: frozenset[str] = frozenset()
    weights: frozenset[str] = frozenset()
    logarithms: frozenset[str] = frozenset()


ArrayAccess: TypeAlias = Literal["in", "out", "inout", "added"]


@dataclass(frozen=True, slots=True)
class ArrayArgument:
    """An array a kernel is handed.

    Attributes:
        name: Its name in the listing.
        rank: The number of its dimensions.
        element: What it holds.
        access: Whether the kernel reads it, writes it, both, or only adds to it.
        shape: The extent of each dimension where it is known.
        dtype: The element type the listing asks for (`float32`), or None: that of the inputs.
    """

    name: str
    rank: int
    element: Kind
    access: ArrayAccess
    shape: tuple[Index | None, ...]
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of blocks, and how a program is run.

    Attributes:
        blocks: For each constexpr of rows and tiles, the number of iterations.
        warps: The number of warps of a program.
        stages: How many blocks ahead loads are begun.
    """

    blocks: Mapping[str, int]
    warps: int
    stages: int


@dataclass(frozen=True, slots=True)
class Choice:
    """The configurations of a kernel for inputs of one width.

    Attributes:
        default: What is used where nothing is timed.
        tuned: What is tried on a GPU, the default among them.
    """

    default: Config
    tuned: tuple[Config, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel.

    Attributes:
        name: Its name.
        grid: The dimensions of role `program` and `rows`, as the loops stand; `emit.grid` says
            which of them runs fastest.
        dims: All dimensions, by order.
        arrays: The arrays it is handed, in order of first appearance in the listing.
        scalars: The sizes and real parameters it is handed, in order of first appearance.
        constants: Those of them that must be known when it is compiled: sizes of lanes.
        body: What a program does.
        narrow: Configurations for 16-bit inputs.
        wide: Configurations for 32-bit inputs.
        grouped: Whether neighbouring programs should share rows of both operands: two dimensions of
            the grid are rows, and each operand of a matrix product depends on one of them.
        last_first: Whether programs begin with the last block of the fastest dimension of the grid.
        restored: Arrays that are read and written, so that timing must put them back.
        again: Arrays of which two statements may store one element, one after the other.
    """

    name: str
    grid: tuple[Dim, ...]
    dims: tuple[Dim, ...]
    arrays: tuple[ArrayArgument, ...]
    scalars: tuple[Scalar, ...]
    constants: tuple[str, ...]
    body: tuple[Op, ...]
    narrow: Choice
    wide: Choice
    grouped: bool = False
    last_first: bool = False
    restored: tuple[str, ...] = ()
    again: frozenset[str] = frozenset()

    def with_float32(self, names: Collection[str]) -> Kernel:
        """Return the kernel with arrays of these names in float32, whatever the inputs are."""
        arrays = (replace(a, dtype="float32") if a.name in names else a for a in self.arrays)
        return replace(self, arrays=tuple(arrays))


@dataclass(frozen=True, slots=True)
class Filled:
    """An array the launcher makes before the kernels run.

    Attributes:
        array: The array.
        shape: Its shape.
        fill: What it holds at first; None where every element is written by the kernels.
        dtype: The element type asked for (`float32`), or None: that of the inputs.
        element: What it holds.
        rounded: Whether it is returned in the type of the inputs, whatever type it is filled in.
    """

    array: str
    shape: tuple[Index, ...]
    fill: float | int | bool | None
    dtype: str | None = None
    element: Kind = "float"
    rounded: bool = False


Reach: TypeAlias = tuple[str, int, tuple[Index, ...], Index]
"""An array, a dimension, and how far it is gone over where all the numbers are positive."""


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """A listing as kernels.

    Attributes:
        listing: The listing as its author wrote it.
        scheduled: The program that was lowered, at the end of the derivation.
        kernels: The kernels, in the order of their launch.
        made: The arrays that the launcher makes: outputs, and temporaries between kernels.
        outputs: The names returned, in order; arguments that are written are changed in place.
        assumptions: Conditions that the launcher checks.
        steps: The steps of the derivation, a phrase each.
        notes: What the reader should know: loops run one element at a time and why, and the like.
        reached: Dimensions whose extents may be too few.
        below: Dimensions of which subscripts may be negative, with the least one.
    """

    listing: Program
    scheduled: Program
    kernels: tuple[Kernel, ...]
    made: tuple[Filled, ...]
    outputs: tuple[str, ...]
    assumptions: tuple[Condition, ...] = ()
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    reached: tuple[Reach, ...] = ()
    below: tuple[Reach, ...] = ()


class NotLowered(Exception):
    """A nest that cannot be run in blocks.

    Attributes:
        reason: Why, as a sentence without a full stop, with the statement.
        label: The statement, where there is one.
    """

    def __init__(self, reason: str, label: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.label = label


class NotCounted(NotLowered):
    """A loop all of whose iterations must be in one block, and nothing outside says how many."""
