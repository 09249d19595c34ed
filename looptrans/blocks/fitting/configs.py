"""Which sizes of blocks a kernel is tried with."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import inf, prod

from looptrans.blocks.block_ir.expr import Dim, Dot, Expr, Load, dims_of, walk
from looptrans.blocks.block_ir.ops import ElementLoop, Op, TileLoop, exprs_of, ops_in
from looptrans.blocks.block_ir.program import Choice, Config
from looptrans.blocks.fitting.footprint import MOST_HELD, Footprints, fitted, footprints_of, held
from looptrans.blocks.fitting.strain import Strain, strain, strains_of

# What defaults are chosen for: a head size, and the shared memory of a program on sm_90. On other
# GPUs, and for larger heads, a launch makes of them what fits.
_LANES = 128
_SHARED = 227 * 1024
# Rows and columns of default configurations, eight warps each: the first that leaves enough room is
# taken. The first table is for up to two products in a loop. What is worked on element by element
# is then gone before the next block, and the numbers a thread holds say whether it has room.
_FEW = (128, 64), (128, 32), (64, 64), (64, 32), (64, 16)
_MOST = 112
_DEEP = 64  # how much of what it sums over a plain product takes at once
# How many elements of a block that is summed are enough where nothing is timed, and at all.
_AREA = 4096
_LARGEST_AREA = 16 * 1024
_LEAST = 16
_PLAIN = 64  # a block of a plain product, and nothing beside it
# Of more products, the last need what the first began with: see `strain`, whose limits stand with
# the blocks. Addresses do not become fewer with the blocks, so that less of them fits beside.
# Of eight warps half only share the columns of 64 rows: on an H200, head size 128, dQ took 3.5 ms,
# and with 128 rows 1.3.
_MANY = (128, 32, 185), (64, 32, 120), (64, 16, 112), (32, 32, 80), (32, 16, inf)


def choices(
    rows: tuple[Dim, ...], body: tuple[Op, ...], exact: frozenset[str] = frozenset()
) -> tuple[Choice, Choice]:
    """Return the configurations for 16-bit and for 32-bit inputs.

    Args:
        rows: The dimensions of rows.
        body: What a program does.
        exact: The arrays that are in float32 whatever the inputs are.

    The starting points are those that FlashAttention kernels and plain matrix products use on
    sm_80 to sm_90; what has three dimensions in one block gets small blocks.
    """
    loops = [op.dim for op in ops_in(body) if isinstance(op, TileLoop)]
    seen = [d for e in _all(body) for d in dims_of(e) if d.role == "tile"]
    tiles = tuple(dict.fromkeys((*seen, *loops)))
    blocks = tuple(d.block or "" for d in (*rows, *tiles))
    blocks = tuple(dict.fromkeys(blocks))
    if not blocks:
        only = Config({}, 4, 1)
        return Choice(only, (only,)), Choice(only, (only,))
    products = [part for e in _all(body) for part in walk(e) if isinstance(part, Dot)]
    largest = max((len(dims_of(e)) for e in _everything(body)), default=0)
    if products and largest <= 2:
        needed = footprints_of(body, exact)
        if len(rows) == 2:
            return _of_two_rows(rows, tiles, needed)
        strains = strains_of(body) if _most_in_a_loop(body) > 2 else None
        return _of_rows(rows, tiles, _inside_of_loops(body), needed, strains)
    if not products and largest == 3 and len(rows) == 1 and tiles:
        return (_of_rows_alone(rows[0].block or "", tiles),) * 2
    if products or largest > 2:
        # A side of a matrix product has at least 16; a third dimension fills registers by itself.
        sizes = ((16, 32), (16,)) if products else ((4, 8, 16), (4, 8, 16))
        spaces = tuple(_square(blocks, each) for each in sizes)
        return Choice(spaces[0][0], spaces[0]), Choice(spaces[1][0], spaces[1])
    shapes = {frozenset(d.block for d in dims_of(e) if d.block) for e in _everything(body)}
    return _of_reductions(rows, tiles, _contiguous(body), shapes)


def _of_rows_alone(row: str, tiles: tuple[Dim, ...]) -> Choice:
    """Return the configurations of rows that share nothing: one query on a cache of its own.

    What is loaded has three dimensions, and a program of one row has the longest part of it.
    """
    names = tuple(dict.fromkeys(d.block or "" for d in tiles))
    start = Config({**dict.fromkeys(names, 64), row: 1}, 4, 2)
    sizes = ((1, 16), (1, 32), (1, 64), (1, 128), (4, 4), (4, 16), (8, 8))
    every = tuple(
        Config({**dict.fromkeys(names, tile), row: own}, warps, stages)
        for (own, tile), warps, stages in product(sizes, (4, 8), (1, 2))
    )
    return Choice(start, _with(start, *every))


def _square(blocks: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[Config, ...]:
    """Return configurations with blocks of as many iterations in every dimension."""
    return tuple(
        Config(dict.fromkeys(blocks, size), warps, stages)
        for size, warps, stages in product(sizes, (8, 4), (1, 2))
    )


def _all(body: tuple[Op, ...]) -> list[Expr]:
    return [expr for op in ops_in(body) for expr in exprs_of(op)]


def _everything(body: tuple[Op, ...]) -> list[Expr]:
    return [part for expr in _all(body) for part in walk(expr)]


def _inside_of_loops(body: tuple[Op, ...]) -> frozenset[str]:
    """Return the blocks of loops that stand in others, as of a product for each block of these."""
    loops = (op for op in ops_in(body) if isinstance(op, TileLoop))
    inner = (op for loop in loops for op in ops_in(loop.body) if isinstance(op, TileLoop))
    return frozenset(op.dim.block or "" for op in inner)


def _most_in_a_loop(body: tuple[Op, ...]) -> int:
    """Return how many matrix products the loop with most of them has."""
    return max(
        (
            sum(isinstance(part, Dot) for e in _all(op.body) for part in walk(e))
            for op in ops_in(body)
            if isinstance(op, TileLoop | ElementLoop)
        ),
        default=0,
    )


def _of_two_rows(
    rows: tuple[Dim, ...], tiles: tuple[Dim, ...], needed: Footprints
) -> tuple[Choice, Choice]:
    """Return the configurations of a product whose sides are both split among programs."""
    first, second = (d.block or "" for d in rows)
    inner = tuple(dict.fromkeys(d.block or "" for d in tiles))
    if inner:
        start = Config({first: 128, second: 128, **dict.fromkeys(inner, 64)}, 8, 3)
        if held(needed, start, _lanes(needed)) > _PLAIN:
            start = Config({first: 64, second: 64, **dict.fromkeys(inner, 32)}, 8, 2)
        areas = ((64, 64, 4), (64, 128, 4), (128, 64, 4), (128, 128, 8), (128, 256, 8))
        stages: tuple[int, ...] = (3, 4)
    else:
        start = Config({first: 64, second: 64}, 8, 2)
        if held(needed, start, _lanes(needed)) > _PLAIN:
            start = Config({first: 64, second: 32}, 8, 2)
        areas = ((64, 64, 4), (64, 64, 8), (64, 128, 8), (128, 64, 8), (128, 128, 8))
        stages = (2, 3)
    narrow = fitted(needed, start, _lanes(needed), 2, _SHARED)
    wide = Config({first: 64, second: 64, **dict.fromkeys(inner, 32)}, 4, 2)
    return (
        Choice(
            narrow,
            _with(
                narrow,
                *(
                    Config({first: i, second: j, **dict.fromkeys(inner, k)}, warps, s)
                    for (i, j, warps), k, s in product(areas, (32, 64) if inner else (0,), stages)
                ),
            ),
        ),
        Choice(
            wide,
            _with(
                wide,
                *(
                    Config({first: i, second: j, **dict.fromkeys(inner, k)}, 4, s)
                    for i, j, k, s in product(
                        (32, 64), (32, 64), (16, 32) if inner else (0,), (2, 3)
                    )
                ),
            ),
        ),
    )


def _of_rows(
    rows: tuple[Dim, ...],
    tiles: tuple[Dim, ...],
    inside: frozenset[str],
    needed: Footprints,
    strains: tuple[Strain, ...] | None,
) -> tuple[Choice, Choice]:
    """Return the configurations of products of a block of rows with one block after another.

    Args:
        rows: The dimensions of rows.
        tiles: Those of tiles.
        inside: The blocks of tiles that are gone over for each block of others: a plain product.
        needed: What its loops need.
        strains: What they need registers for, where one has more than two products: the blocks of
            those fill the registers.
    """
    names = tuple(dict.fromkeys(d.block or "" for d in (*rows, *tiles)))
    own = {d.block or "" for d in rows}
    lanes = _lanes(needed)

    def config(row: int, tile: int, warps: int, stages: int) -> Config:
        inner = min(tile, _DEEP)
        sizes = {n: row if n in own else inner if n in inside else tile for n in names}
        return Config(sizes, warps, stages)

    def has_room(each: Config, most: float) -> bool:
        if strains is None:
            return held(needed, each, lanes) <= most
        return strain(strains, each, lanes) <= most and held(needed, each, lanes) <= MOST_HELD

    sizes = [(*size, _MOST) for size in _FEW] if strains is None else _MANY
    # Where nothing leaves enough room, the addresses of a third block on its way are left out, too.
    starts = [(config(row, tile, 8, 3 if most < inf else 2), most) for row, tile, most in sizes]
    roomy = (start for start, most in starts if has_room(start, most))
    narrow = fitted(needed, next(roomy, starts[-1][0]), lanes, 2, _SHARED)
    wide = config(32, 32, 8, 1)
    # Four warps multiply 64 rows at once: of eight, half would only share their columns, which is
    # for sums that fill the registers of four.
    high_and_warps = ((128, 8), (64, 4), (128, 4), *(() if strains is None else ((64, 8),)))
    return (
        Choice(
            narrow,
            _with(
                narrow,
                *(
                    config(row, tile, warps, stages)
                    for (row, warps), tile, stages in product(high_and_warps, (32, 64, 128), (2, 3))
                ),
            ),
        ),
        Choice(
            wide,
            _with(
                wide,
                *(
                    config(row, tile, warps, stages)
                    for (row, warps), tile, stages in product(
                        ((32, 4), (32, 8), (64, 8)), (16, 32, 64), (1, 2)
                    )
                ),
            ),
        ),
    )


def _lanes(needed: Footprints) -> dict[str, int]:
    """Return the head size that defaults are chosen for, for whatever is a side of a block."""
    pieces = [p.sizes for each in needed for p in (*each.resident, *each.staged)]
    sides = [side for sizes in (*pieces, *(h for e in needed for h in e.held)) for side in sizes]
    return dict.fromkeys(sides, _LANES)


def _with(first: Config, *others: Config) -> tuple[Config, ...]:
    """Return configurations, one of them at the front."""
    return (first, *(config for config in others if config != first))


def _contiguous(body: tuple[Op, ...]) -> set[Dim]:
    """Return the dimensions along which arrays are read that usually lie in one piece."""
    loads = [part for part in _everything(body) if isinstance(part, Load) and part.subscripts]
    return {dim for load in loads for dim in dims_of(load.subscripts[-1])}


def _of_reductions(
    rows: tuple[Dim, ...],
    tiles: tuple[Dim, ...],
    contiguous: set[Dim],
    shapes: set[frozenset[str]],
) -> tuple[Choice, Choice]:
    """Return the configurations of rows that are summed, or of what is done element by element.

    Args:
        rows: The dimensions of rows.
        tiles: Those of tiles.
        contiguous: Those along which arrays are read that lie in one piece.
        shapes: The sides of the blocks that are worked with.
    """
    own = tuple(d.block or "" for d in rows)
    inner = tuple(dict.fromkeys(d.block or "" for d in tiles))
    if not inner:
        first = dict.fromkeys(own[:-1], 16) | dict.fromkeys(own[-1:], 128)
        sizes = tuple((4, 16) if n != own[-1] else (128, 256, 512) for n in own)
        start = Config(first, 4, 1)
        return (Choice(start, _tuned(own, sizes, (4, 8), (1,), start)),) * 2
    if contiguous & set(rows) and not contiguous & set(tiles):
        # Neighbouring rows are read together, and summed over what is far apart.
        across = Config({**dict.fromkeys(own, 128), **dict.fromkeys(inner, 32)}, 4, 2)
        sizes = tuple((64, 128, 256) if n in own else (8, 32, 64) for n in (*own, *inner))
        return (Choice(across, _tuned((*own, *inner), sizes, (4, 8), (2,), across)),) * 2
    names = (*own, *inner)
    first = dict.fromkeys(own, 4) | dict.fromkeys(inner, 512)
    while long := [
        side
        for shape in shapes
        if _area(first, shape) > _AREA
        for side in shape
        if first.get(side, 0) > _LEAST
    ]:
        first[max(long, key=lambda side: (first[side], -names.index(side)))] //= 2
    tried = tuple((1, 4, 16) if n in own else _around(first[n]) for n in names)
    start = Config(first, 4, 2)
    every = _tuned(names, tried, (4, 8), (2,), start)
    shaped = [shape for shape in shapes if shape & first.keys()]
    fitting = [
        each
        for each in every
        if each == start or all(_area(each.blocks, shape) <= _LARGEST_AREA for shape in shaped)
    ]
    return (Choice(start, tuple(fitting)),) * 2


def _around(length: int) -> tuple[int, ...]:
    """Return how long blocks are that are tried beside one that long."""
    return (128, 512, 1024) if length == 512 else (length // 2, length, 4 * length)


def _area(blocks: Mapping[str, int], shape: frozenset[str]) -> int:
    """Return how many elements a block of a shape has."""
    return prod(blocks.get(side, _LANES) for side in shape)


def _tuned(
    names: tuple[str, ...],
    sizes: tuple[tuple[int, ...], ...],
    warps: tuple[int, ...],
    stages: tuple[int, ...],
    first: Config,
) -> tuple[Config, ...]:
    found = [
        Config(dict(zip(names, chosen, strict=True)), w, s)
        for chosen in product(*sizes)
        for w, s in product(warps, stages)
    ]
    return tuple(found) if first in found else (first, *found)
