"""Run a perfect nest in tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from looptrans.analysis.ranges.scan import Dimension, Scan, bounds_of
from looptrans.ir.program import Program
from looptrans.ir.step import Step, same_names
from looptrans.transforms.editing.band import (
    Band,
    find_band,
    rebuilt,
    require_named,
    require_no_phases,
    with_private,
)
from looptrans.transforms.editing.errors import BadNumber
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.scan import ranges_of
from looptrans.transforms.editing.tree import find_loop
from looptrans.transforms.judging.check import reordered
from looptrans.transforms.steps.advice import skew_first
from looptrans.transforms.steps.strip_mine import require_size, strip, strips


def tile(program: Program, *arguments: str | int) -> Step:
    """Run the loops of a perfect nest in tiles: loops over tiles outside, loops in a tile inside.

        for i in range(0, N):             for i0 in range(0, N, 32):
            for j in range(0, M):   ->        for j0 in range(0, M, 64):
                S(i, j)                           for i in range(i0, min(i0 + 32, N)):
                                                      for j in range(j0, min(j0 + 64, M)):
                                                          S(i, j)

    Tiles are boxes that line up; where ranges depend on outer loops, tiles are cut off by the
    bounds, and those wholly outside are left out as far as ranges can say it.

    Legal where the band is fully permutable: for all dependences x -> x' of the nest that loops
    outside it do not carry, every entry of x' - x is at least 0. (The checker decides on the very
    sizes given; with tiles of one iteration, say, less is needed.)

    Args:
        program: The program.
        arguments: The loops of a perfect nest as for `interchange`, then as many sizes, integers
            above 0.

    Raises:
        TransformError: The loops do not exist or are no perfect nest, the sizes do not fit, a loop
            has barriers or turns, or a range cannot be written down.
    """
    names = [argument for argument in arguments if isinstance(argument, str)]
    sizes = [argument for argument in arguments if not isinstance(argument, str)]
    wanted = [find_loop(program, name).loop for name in names]
    if not names or len(names) != len(sizes):
        raise BadNumber(
            f"{_many(names, 'loop')} and {_many(sizes, 'size')} are given",
            wanted[0].span if wanted else None,
            why="a tile has one size for each loop",
            remedy="tile(i, j, 32, 64)",
        )
    for loop, size in zip(wanted, sizes, strict=True):
        require_size(loop, size)
    band = find_band(program, names)
    require_named(band, wanted)
    require_no_phases(band.loops[-1], "tiling")
    by_loop = {loop.variable: size for loop, size in zip(wanted, sizes, strict=True)}
    after = _tiled(band, [by_loop[loop.variable] for loop in band.loops])
    name = f"tile({', '.join(str(argument) for argument in arguments)})"
    return reordered(name, program, after, same_names(program, after), partial(skew_first, program))


def _many(what: Sequence[object], word: str) -> str:
    return f"{len(what)} {word}{'' if len(what) == 1 else 's'}"


def _tiled(band: Band, sizes: Sequence[int]) -> Program:
    tiles: list[str] = []
    for loop in band.loops:
        tiles.append(fresh_name(band.program, f"{loop.variable}0", tiles))
    over = [strips(*each) for each in zip(band.loops, tiles, sizes, strict=True)]
    inside = [replace(loop, leading=()) for loop in band.loops]
    if _is_box(band):
        inside = [
            replace(loop, range=strip(loop.range, tile, size))
            for loop, tile, size in zip(inside, tiles, sizes, strict=True)
        ]
        return rebuilt(band, with_private(band.loops, [*over, *inside]))
    dimensions = [
        *(
            Dimension(tile.variable, tile.range.step, tiles=loop.variable)
            for tile, loop in zip(over, inside, strict=True)
        ),
        *(Dimension(loop.variable, loop.range.step, loop.range.start) for loop in inside),
    ]
    bounds = tuple(b for loop in band.loops for b in bounds_of(loop.variable, loop.range))
    found = ranges_of(band, Scan(tuple(dimensions), bounds))
    loops = [
        replace(loop, range=limits)
        for loop, limits in zip([*over, *inside], found.ranges, strict=True)
    ]
    return rebuilt(band, with_private(band.loops, loops), found.guards)


def _is_box(band: Band) -> bool:
    """Tell whether no range depends on another loop of the band."""
    return not any(loop.range.variables & set(band.variables) for loop in band.loops)
