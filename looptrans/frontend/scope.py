"""What is known at one point of the text while a listing is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from looptrans.ir.index import Index


@dataclass(frozen=True, slots=True)
class Block:
    """A loop, a guard, or an atomic or reducing block around a point of the text.

    Attributes:
        kind: Which of them; `parallel` is a loop too.
        variable: The variable of a loop.
        stores: What a loop sets.
        private: What a loop makes private.
    """

    kind: Literal["loop", "parallel", "guard", "atomic", "reduce"]
    variable: str = ""
    stores: frozenset[str] = frozenset()
    private: tuple[str, ...] = ()

    @property
    def is_loop(self) -> bool:
        """Whether it is a loop, parallel or not."""
        return self.kind in ("loop", "parallel")


GUARD = Block("guard")


@dataclass(slots=True)
class Scope:
    """What is known at one point of the text.

    Attributes:
        loops: The variables of the loops around this point.
        lets: Integer scalars that stand for an index expression here.
        spelled_out: Whether such a scalar is replaced by what it stands for (in contracts, which
            stand above all statements).
        set_so_far: Arrays and scalars that something above has set.
        pending: Everything the loops around this point set, with the last line that does.
        maybe_set: What an earlier iteration may have set before this point is first reached.
        blocks: The loops, guards and sections around this point, outermost first.
        line: The line of the statement this point is in.
    """

    loops: list[str] = field(default_factory=list)
    lets: dict[str, Index] = field(default_factory=dict)
    spelled_out: bool = False
    set_so_far: set[str] = field(default_factory=set)
    pending: Mapping[str, int] = field(default_factory=dict)
    maybe_set: frozenset[str] = frozenset()
    blocks: list[Block] = field(default_factory=list)
    line: int = 0

    @property
    def depth(self) -> int:
        """The number of loops, guards and sections around this point."""
        return len(self.blocks)

    def is_set(self, name: str) -> bool:
        """Whether something may have set a name before this point is reached."""
        return name in self.set_so_far or name in self.maybe_set

    def now_set(self, name: str, index: Index | None) -> None:
        """Note that a name is set, to an index expression or to something else."""
        self.set_so_far.add(name)
        if index is None:
            self.lets.pop(name, None)
        else:
            self.lets[name] = index

    def forget(self, names: Iterable[str]) -> None:
        """Note that names may or may not have been set anew."""
        for name in names:
            self.lets.pop(name, None)

    @contextmanager
    def guarded(self, last: int) -> Iterator[None]:
        """Enter what may first be reached in a later iteration of the loops around it.

        Args:
            last: The line that ends it; what is set further down may then have been set.
        """
        before = self.maybe_set
        self.maybe_set = before | {name for name, line in self.pending.items() if line > last}
        try:
            yield
        finally:
            self.maybe_set = before

    @contextmanager
    def section(self, block: Block) -> Iterator[None]:
        """Enter what runs wherever the point before it is reached."""
        self.blocks.append(block)
        try:
            yield
        finally:
            self.blocks.pop()

    @contextmanager
    def block(self, block: Block, last: int) -> Iterator[None]:
        """Enter the body of a loop or guard that ends on line `last`."""
        with self.section(block), self.guarded(last):
            yield

    @contextmanager
    def loop(
        self, block: Block, variables: list[str], stores: Mapping[str, int], last: int
    ) -> Iterator[None]:
        """Enter the body of a loop; `stores` says on which line it last sets each name."""
        self.forget(stores)
        self.forget(block.private)
        before, outside = self.pending, len(self.loops)
        with self.block(block, last):
            self.pending = {**before, **stores}
            self.loops += variables
            try:
                yield
            finally:
                del self.loops[outside:]
                self.pending = before
        self.forget(stores)
