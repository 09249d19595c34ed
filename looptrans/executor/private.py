"""Private names: every iteration of the loop that makes a name private has a copy of its own.

A copy starts without a value and ends with its iteration. Reading what the iteration has not set is
a failure, never the value of another iteration and never a zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from looptrans.executor.errors import NotYetSet, Trap
from looptrans.executor.storage import Scalar, Shape, Store
from looptrans.ir.program import Loop, Program
from looptrans.ir.walk import nodes

# What a cell holds that its iteration has not set.
UNSET: Scalar = object()


@dataclass(slots=True, eq=False)
class Copy:
    """What one iteration has under a private name.

    Attributes:
        number: Tells the copies of one name apart.
        shape: The extents; None until something sets it.
        data: The cells in row-major order.
    """

    number: int = 0
    shape: Shape | None = None
    data: list[Scalar] = field(default_factory=list)


class PrivateStore(Store):
    """A private name; it stands for the copy that belongs to the iteration that is running.

    Attributes:
        loop: The variable of a loop that makes it private, for messages.
        copy: The copy that is in use.
        declared: The shape that a creation before the nest gives every copy.
        copies: How many there have been.
    """

    __slots__ = ("copies", "copy", "declared", "loop")

    def __init__(self, store: Store, loop: str) -> None:
        self.loop = loop
        self.copy = Copy()
        self.declared: Shape | None = None
        self.copies = 0
        super().__init__(store.name, store.convert, store.is_local, store.shape, store.data)

    @property
    def shape(self) -> Shape | None:
        """The extents of the copy in use; None until something sets it."""
        return self.copy.shape

    @shape.setter
    def shape(self, shape: Shape | None) -> None:
        self.copy.shape = shape

    @property
    def data(self) -> list[Scalar]:
        """The cells of the copy in use."""
        return self.copy.data

    @data.setter
    def data(self, data: list[Scalar]) -> None:
        self.copy.data = data

    def fresh(self) -> Copy:
        """Return a copy that nothing has set yet."""
        self.copies += 1
        shape = self.declared
        return Copy(self.copies, shape, [] if shape is None else [UNSET] * math.prod(shape))

    def declare(self, shape: Shape) -> None:
        """Give all later copies a shape; a creation before the nest gives them no values."""
        self.declared = shape

    def unset(self, cell: Sequence[int | None] = ()) -> Trap:
        """Return the failure of reading it, or one cell of it, before its iteration has set it."""
        what = f"{self.name}[{', '.join(map(str, cell))}]" if cell else repr(self.name)
        return Trap(
            NotYetSet,
            f"{what} is read before its iteration has set it",
            why=f"{self.name} is private to each iteration of the loop {self.loop} and starts "
            "without a value",
            remedy=f"set it earlier in the same iteration, or do not make {self.name} private",
        )

    def check(self, cell: Sequence[int | None], values: Sequence[Scalar]) -> None:
        """Make sure that the cells which were read, in the order of `cells_at`, have been set.

        Raises:
            Trap: One has not.
        """
        for number, value in enumerate(values):
            if value is UNSET:
                raise self.unset(list(self.cells_at(cell))[number])


def private_loops(program: Program) -> dict[str, str]:
    """Return the private names, each with the variable of the first loop that makes it private."""
    found: dict[str, str] = {}
    for node in nodes(program.body):
        if isinstance(node, Loop):
            for name in node.private:
                found.setdefault(name, node.variable)
    return found
