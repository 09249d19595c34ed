"""What the text of a kernel calls things, and which of them it mentions so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from looptrans.blocks.block_ir.expr import Dim, Expr, Name, Position
from looptrans.blocks.block_ir.program import Kernel
from looptrans.blocks.passes.described import Described
from looptrans.emit.first_blocks import FirstBlock
from looptrans.emit.identifiers import KERNEL_WORDS, Scope


@dataclass(slots=True)
class Used:
    """What the text of a kernel mentions so far; each becomes an argument of it, or a helper."""

    arrays: set[str] = field(default_factory=set)
    strides: set[tuple[str, int]] = field(default_factory=set)
    scalars: set[str] = field(default_factory=set)
    signs: set[str] = field(default_factory=set)
    blocks: set[str] = field(default_factory=set)
    helpers: set[str] = field(default_factory=set)
    index: bool = False


class Mentions:
    """The identifiers of one kernel.

    Attributes:
        kernel: The kernel.
        scope: Its identifiers.
        used: What the text mentions so far.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.scope = Scope(KERNEL_WORDS)
        self.used = Used()
        self._axis_names: dict[tuple[str, int], str] = {}
        self._blocks = {dim.block for dim in kernel.dims if dim.block is not None}

    def scalar(self, name: str) -> str:
        """Return the identifier of a size, a real parameter or a constexpr."""
        if name in self._blocks:
            return self.block(name)
        self.used.scalars.add(name)
        return self.scope.name("scalar", name, wanted=name)

    def sign(self, name: str) -> str:
        """Return the identifier of what says whether a real parameter is above zero."""
        self.used.signs.add(name)
        return self.scope.name("sign", name, wanted=f"{name.upper()}_POSITIVE")

    def pointer(self, array: str) -> str:
        """Return the identifier of an array's pointer."""
        self.used.arrays.add(array)
        return self.scope.name("array", array, wanted=f"{array}_ptr")

    def stride(self, array: str, axis: int) -> str:
        """Return the identifier of a stride."""
        self.used.strides.add((array, axis))
        suffix = self._axis_names.get((array, axis), str(axis))
        return self.scope.name("stride", array, str(axis), wanted=f"stride_{array}_{suffix}")

    def name_axis(self, array: str, axis: int, subscript: Expr) -> None:
        """Let a dimension be called by the loop that first runs along it, `stride_Q_i`."""
        if isinstance(subscript, Position):
            self._axis_names.setdefault((array, axis), subscript.dim.name)
        elif isinstance(subscript, Name):
            self._axis_names.setdefault((array, axis), subscript.name)
        else:
            self._axis_names.setdefault((array, axis), str(axis))

    def dim(self, dim: Dim) -> str:
        """Return the identifier of a dimension's iterations.

        A loop over numbers and one over blocks have two, though a listing may call both alike.
        """
        return self.scope.name("dim", dim.name, dim.role, wanted=dim.name)

    def first(self, dim: Dim) -> str:
        """Return the identifier of the first iteration of a block."""
        return self.scope.name("first", dim.name, wanted=f"{dim.name}_first")

    def last(self, dim: Dim) -> str:
        """Return the identifier of the last iteration of a block."""
        return self.scope.name("last", dim.name, wanted=f"{dim.name}_last")

    def count(self, dim: Dim) -> str:
        """Return the identifier of what a loop counts with, where a block begins elsewhere."""
        return self.scope.name("count", dim.name, wanted=f"{dim.name}_from")

    def first_block(self, found: FirstBlock) -> str:
        """Return the identifier of the pointers to the first block of a load."""
        key = ("at", found.array, repr(found.subscripts))
        return self.scope.name(*key, wanted=f"{found.array}_at")

    def blocks_of(self, found: Described) -> str:
        """Return the identifier of what the GPU copies blocks of an array by."""
        key = ("described", found.array, repr(found))
        return self.scope.name(*key, wanted=f"{found.array}_blocks")

    def begun(self, dim: Dim) -> str:
        """Return the identifier of the iterations of a block that begins at 0."""
        return self.scope.name("at", dim.name, wanted=f"{dim.name}_at")

    def inside(self, dim: Dim) -> str:
        """Return the identifier of the mask of lanes."""
        return self.scope.name("inside", dim.name, wanted=f"{dim.name}_in")

    def block(self, block: str) -> str:
        """Return the identifier of a block size."""
        self.used.blocks.add(block)
        return self.scope.name("block", block, wanted=block)

    def index_type(self) -> str:
        """Return the identifier of the type of offsets."""
        self.used.index = True
        return "INDEX"

    def shape(self, dims: tuple[Dim, ...]) -> str:
        """Return the shape of a block, `[BLOCK_I, BLOCK_D]`."""
        return f"[{', '.join(self.block(dim.block or '') for dim in dims)}]"
