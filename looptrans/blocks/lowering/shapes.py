"""Which dimensions blocks have where a statement stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from looptrans.blocks.block_ir.expr import Dim, Position, union
from looptrans.blocks.block_ir.program import NotCounted, NotLowered
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.places.storage import Storage
from looptrans.blocks.scheduled.sites import Binding, Path
from looptrans.ir.index import Arith, Extremum, Index, Int, Neg, Param, variables, walk

SUM: Path = (-1,)
"""The place of a loop that a sum is done in, block by block."""
EACH: Path = (-2,)
"""The place of a loop over iterations each of which is a sum in blocks."""


@dataclass(slots=True)
class Shapes:
    """Knows the loops around what is being lowered.

    Attributes:
        b: The kernel.
        rows: The dimensions of rows.
        around: The loops in the kernel, outermost first, by place; with their dimensions, None for
            a loop whose iterations are one after the other in the text.
        free: Loops over blocks that carry nothing: what is inside goes over blocks as outside.
    """

    b: Builder
    rows: tuple[Dim, ...]
    around: list[tuple[Path, Dim | None]] = field(default_factory=list)
    free: set[Path] = field(default_factory=lambda: {EACH})

    @property
    def vectors(self) -> list[Dim]:
        """The dimensions of the loops around that blocks have."""
        return [dim for _, dim in self.around if dim is not None and dim.is_vector]

    @property
    def is_deep(self) -> bool:
        """Whether a loop around goes over elements, or over blocks that it carries values along."""
        loops = [dim for path, dim in self.around if dim is not None and path not in self.free]
        return any(dim.role in ("tile", "element") for dim in loops)

    def lanes(self, variable: str, start: Index, stop: Index) -> Dim:
        """Return the dimension of a loop all of whose iterations are in one block.

        Raises:
            NotCounted: How many there are is known only inside the kernel.
        """
        for index in (start, stop):
            if not all(is_of_sizes(part) for part in walk(index)):
                raise NotCounted(
                    f"all iterations of {variable} must be in one block, and how many there are is "
                    "known only inside the kernel"
                )
        return self.b.dim(variable, "lanes", start, stop)

    @contextmanager
    def bound(self, storage: Storage) -> Iterator[None]:
        """Let the variables of a block's cells stand for its lanes."""
        before = dict(self.b.places)
        for binding in storage.lanes:
            self.b.places[binding.variable] = Position(self._lane(binding))
        yield
        self.b.places.clear()
        self.b.places.update(before)

    def of(self, storage: Storage) -> tuple[Dim, ...]:
        """Return the dimensions of a block that is carried."""
        lanes = [self._lane(binding) for binding in storage.lanes]
        inside = [d for p, d in self.around if d is not None and len(p) <= len(storage.scope)]
        vectors = [d for d in inside if d.is_vector]
        return union(self.rows, vectors, [d for d in lanes if d.is_vector])

    def _lane(self, binding: Binding) -> Dim:
        return self.lanes(binding.variable, binding.range.start, binding.range.stop)

    def turned(self, storage: Storage, subscripts: tuple[Index, ...]) -> dict[Dim, Dim]:
        """Return the lanes of a block for which an access has others, and these.

        Raises:
            NotLowered: It cannot be told which.
        """
        found: dict[Dim, Dim] = {}
        for own, subscript in zip(storage.subscripts, subscripts, strict=True):
            for binding in storage.lanes:
                if binding.variable not in variables(own):
                    continue
                dim = self._lane(binding)
                places = [self.b.places.get(name) for name in variables(subscript)]
                dims = [p.dim for p in places if isinstance(p, Position) and p.dim.is_vector]
                alike = [d for d in dims if (d.start, d.stop) == (dim.start, dim.stop)]
                if dim in alike:
                    continue
                if len(alike) != 1:
                    raise NotLowered(f"lanes of {storage.array} are not told apart")
                (other,) = alike
                if dim.contracted != other.contracted:  # blocks over both are of one size
                    self.b.contract(dim, other)
                found[dim] = other
        return found


def is_of_sizes(index: Index) -> bool:
    """Tell whether an index says nothing but sizes and numbers."""
    return isinstance(index, Int | Param | Arith | Neg | Extremum)
