"""What cells hold in one iteration of a loop, and what the iteration found in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from looptrans.algebra.iterations.edges import Position
from looptrans.algebra.positional.cells import Family, mentions
from looptrans.ir.value import Access, Range, Value

SPOILT = "@"


@dataclass(frozen=True, slots=True)
class Known:
    """What a cell holds at some point of the iteration.

    Attributes:
        family: The cell or cells.
        value: Its value over what the iteration found.
        labels: The statements that may have written it in this iteration.
        old: Whether it may still hold what the iteration found there.
    """

    family: Family
    value: Value
    labels: frozenset[str]
    old: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """Something the iteration found when it began, or worked out by a loop of its own.

    Attributes:
        name: The name that stands for it in values.
        family: The cell.
        state: Whether an earlier iteration left it there.
        maker: The place of the inner loop of this iteration that makes it, if one does.
    """

    name: str
    family: Family
    state: bool
    maker: Position = ()

    @property
    def made(self) -> bool:
        """Whether an inner loop of this iteration makes it."""
        return bool(self.maker)


def family_of(access: Access, ranges: Mapping[str, Range]) -> Family:
    """Return the cells an access reaches in the loops around it that it mentions."""
    return Family(
        access, tuple((name, bounds) for name, bounds in ranges.items() if mentions(access, name))
    )
