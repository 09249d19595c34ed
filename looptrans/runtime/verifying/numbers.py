"""Numbers to try for sizes: small odd ones, ones that go beyond blocks, ones that fill them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle
from typing import TypeAlias

from looptrans.blocks.block_ir.expr import Role

Table: TypeAlias = Mapping[Role, tuple[int, ...]]
Wanted: TypeAlias = Mapping[str, tuple[int, ...]]
"""For each size the numbers to try, the best one first."""

# What a loop is in the kernel decides how far its size has to go to show a mistake: beyond a block
# or two for rows and tiles, off a power of two for lanes.
CROSSING: Table = {
    "rows": (150, 203, 137, 170),
    "tile": (150, 203, 137, 170),
    "lanes": (40, 59, 33, 20),
    "element": (5, 7, 3, 6),
    "program": (1, 2, 3, 1),
}
WHOLE: Table = {
    "rows": (128, 256, 64, 128),
    "tile": (128, 256, 64, 128),
    "lanes": (64, 32, 16, 64),
    "element": (4, 3, 4, 3),
    "program": (2, 1, 2, 1),
}
SMALL = (7, 5, 9, 3, 11, 2, 13)
# What a program each works out is not needed often: the interpreter takes its time.
FEW: Table = {"program": (2, 3, 1, 2)}
# Sizes that others must divide, or be multiples of: what is tried for the first, the second, …
TIED = ((6, 12, 4, 3, 2, 1), (2, 3, 6, 1, 4), (3, 2, 12, 6, 1, 4))
TIED_LARGE = ((4, 6, 2, 1), (2, 1, 4), (2, 4, 1))
NEARBY = (1, 2, 3, 4, 5, 6, 8)
ROLES: tuple[Role, ...] = ("rows", "tile", "lanes", "element", "program")


def few(roles: Mapping[str, set[Role]]) -> dict[str, set[Role]]:
    """Return roles such that what is a program's anywhere is that alone."""
    return {name: {"program"} if "program" in each else each for name, each in roles.items()}


def wanted(
    names: Sequence[str],
    roles: Mapping[str, set[Role]],
    table: Table,
    tied: Collection[str],
) -> dict[str, tuple[int, ...]]:
    """Return for each size the numbers to try, the best one first."""
    large = "rows" in table
    series = {role: cycle(numbers) for role, numbers in table.items()}
    if large:
        series["tile"] = series["rows"]  # one series for both
    small, together = cycle(SMALL), cycle(TIED_LARGE if large else TIED)
    found: dict[str, tuple[int, ...]] = {}
    for name in names:
        role = min(roles.get(name, set()), key=ROLES.index, default=None)
        if name in tied and (not large or role in (None, "program", "element")):
            found[name] = next(together)
        else:
            best = next(small if role is None else series.get(role, small))
            found[name] = (best, *(n for n in _near(best) if n != best))
    return found


def _near(number: int) -> tuple[int, ...]:
    """Return numbers to try where one does not fit: multiples of what sizes are divided by."""
    return (*(number - number % k for k in (2, 3, 4, 8, 16, 64) if number >= k), *NEARBY)


def filling(
    numbers: Sequence[int], block: int, table: Table, *, near: bool = False
) -> tuple[int, ...]:
    """Return numbers to try for a size that bounds a loop in blocks.

    of blocks of 4       (150, …)    ->    (150, …), near (9, …)
    of blocks of 512     (150, …)    ->    (662, …), near (662, …)

    Args:
        numbers: What would be tried for blocks of any size.
        block: The most iterations that a block has where nothing is timed; 0 if that is not known.
        table: What they are from: `WHOLE` for blocks that are all full, else the last one is not.
        near: Whether it should be a few blocks only.
    """
    best = numbers[0]
    if block:
        least = beyond(block, table)
        while table is not WHOLE and best <= block:
            best += block
        if table is WHOLE:
            best = -(-best // block) * block
        best = min(best, least) if near else best
    return (best, *(n for n in (*_near(best), *numbers) if n != best))


def beyond(block: int, table: Table, least: int = 0) -> int:
    """Return how far a loop should go at least: for `WHOLE` blocks, else two and part of a third.

    Args:
        block: The iterations of a block.
        table: Which of both.
        least: What whole blocks should not go below.
    """
    if table is WHOLE:
        return max(-(-least // block), 1) * block
    return 2 * block + (block // 3 | 1)
