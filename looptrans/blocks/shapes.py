"""Which dimensions blocks have where a statement stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from looptrans.blocks.builder import Builder
from looptrans.blocks.expr import Dim, Position, union
from looptrans.blocks.program import NotLowered
from looptrans.blocks.sites import Path
from looptrans.blocks.storage import Storage
from looptrans.ir.index import Arith, Extremum, Index, Int, Neg, Param, walk


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
    free: set[Dim] = field(default_factory=set)

    @property
    def vectors(self) -> list[Dim]:
        """The dimensions of the loops around that blocks have."""
        return [dim for _, dim in self.around if dim is not None and dim.is_vector]

    @property
    def is_deep(self) -> bool:
        """Whether a loop around goes over elements, or over blocks that it carries values along."""
        loops = [dim for _, dim in self.around if dim is not None and dim not in self.free]
        return any(dim.role in ("tile", "element") for dim in loops)

    def lanes(self, variable: str, start: Index, stop: Index) -> Dim:
        """Return the dimension of a loop all of whose iterations are in one block.

        Raises:
            NotLowered: How many there are is known only inside the kernel.
        """
        for index in (start, stop):
            if not all(is_of_sizes(part) for part in walk(index)):
                raise NotLowered(
                    f"all iterations of {variable} must be in one block, and how many there are is "
                    "known only inside the kernel"
                )
        return self.b.dim(variable, "lanes", start, stop)

    @contextmanager
    def bound(self, storage: Storage) -> Iterator[None]:
        """Let the variables of a block's cells stand for its lanes, where no loop binds them."""
        before = dict(self.b.places)
        for binding in storage.lanes:
            if binding.variable not in self.b.places:
                dim = self.lanes(binding.variable, binding.range.start, binding.range.stop)
                self.b.places[binding.variable] = Position(dim)
        yield
        self.b.places.clear()
        self.b.places.update(before)

    def of(self, storage: Storage) -> tuple[Dim, ...]:
        """Return the dimensions of a block that is carried."""
        lanes = []
        for binding in storage.lanes:
            place = self.b.places.get(binding.variable)
            if isinstance(place, Position):
                lanes.append(place.dim)
            else:
                lanes.append(self.lanes(binding.variable, binding.range.start, binding.range.stop))
        inside = [d for p, d in self.around if d is not None and len(p) <= len(storage.scope)]
        vectors = [d for d in inside if d.is_vector]
        return union(self.rows, vectors, [d for d in lanes if d.is_vector])


def is_of_sizes(index: Index) -> bool:
    """Tell whether an index says nothing but sizes and numbers."""
    return isinstance(index, Int | Param | Arith | Neg | Extremum)
