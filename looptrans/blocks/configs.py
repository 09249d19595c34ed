"""Which sizes of blocks a kernel is tried with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from looptrans.blocks.program import (
    Choice,
    Config,
    Dim,
    Dot,
    ElementLoop,
    Expr,
    Load,
    Op,
    TileLoop,
    dims_of,
    exprs_of,
    ops_in,
    walk,
)

# What lanes are taken to be, as their number is known only at the launch.
_LANES = 64
# How many bytes of blocks may be on their way at a time: less than what sm_90 has, 227 KB.
_SHARED = 200_000
# How many elements the largest block of a program may have where it is no operand of a product.
_MOST = 16384


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
        return _of_products(rows, tiles, _most_in_a_loop(body), _Loads(body, exact))
    if products or largest > 2:
        small = dict.fromkeys(blocks, 16)
        return (
            Choice(Config(small, 4, 1), _space(blocks, ((16, 32),), (4, 8), (1, 2))),
            Choice(Config(small, 4, 1), _space(blocks, ((16,),), (4,), (1, 2))),
        )
    return _of_reductions(rows, tiles, _contiguous(body))


def _all(body: tuple[Op, ...]) -> list[Expr]:
    return [expr for op in ops_in(body) for expr in exprs_of(op)]


def _everything(body: tuple[Op, ...]) -> list[Expr]:
    return [part for expr in _all(body) for part in walk(expr)]


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


@dataclass(frozen=True, slots=True)
class _Loads:
    """What loops over blocks load.

    Attributes:
        body: What a program does.
        exact: The arrays that are in float32 whatever the inputs are.
    """

    body: tuple[Op, ...]
    exact: frozenset[str]

    def fit(self, config: Config) -> bool:
        """Tell whether the blocks of 16-bit inputs that are on their way fit in shared memory."""
        most = 0
        for op in ops_in(self.body):
            if isinstance(op, TileLoop):
                parts = {p for e in _all(op.body) for p in walk(e) if isinstance(p, Load)}
                own = [p for p in parts if op.dim in dims_of(p)]
                most = max(most, sum(self._bytes(load, config) for load in own))
        return most * config.stages <= _SHARED

    def _bytes(self, load: Load, config: Config) -> int:
        sizes = [config.blocks.get(dim.block or "", _LANES) for dim in dims_of(load)]
        return prod(sizes) * (4 if load.array in self.exact else 2)


def _of_products(
    rows: tuple[Dim, ...], tiles: tuple[Dim, ...], most: int, loads: _Loads
) -> tuple[Choice, Choice]:
    """Return the configurations of a kernel of matrix products.

    Args:
        rows: Its dimensions of rows.
        tiles: Its dimensions of tiles.
        most: How many products one loop has: with more than two their blocks fill the registers.
        loads: What its loops load.
    """
    if len(rows) == 2:
        first, second = (d.block or "" for d in rows)
        inner = {d.block or "": 64 for d in tiles}
        narrow = Config({first: 128, second: 128, **inner}, 8, 3)
        if not inner:
            narrow = Config({first: 64, second: 64}, 8, 2)
        elif not loads.fit(narrow):
            narrow = Config({first: 128, second: 64, **dict.fromkeys(inner, 32)}, 8, 2)
        wide = Config({first: 64, second: 64, **dict.fromkeys(inner, 32)}, 4, 2)
        sizes = ((64, 128, 256), (64, 128), *((32, 64) for _ in inner))
        names = (first, second, *inner)
        return (
            Choice(narrow, _tuned(names, sizes, (4, 8), (3, 4), narrow)),
            Choice(
                wide,
                _tuned(names, ((32, 64), (32, 64), *((16, 32) for _ in inner)), (4,), (2, 3), wide),
            ),
        )
    names = tuple(dict.fromkeys(d.block or "" for d in (*rows, *tiles)))
    own = {d.block or "" for d in rows}
    high, low = (128, 64) if most <= 2 else (64, 32)
    narrow = Config({n: high if n in own else low for n in names}, 8, 3)
    wide = Config(dict.fromkeys(names, 32), 8, 1)
    return (
        Choice(
            narrow,
            _tuned(
                names,
                tuple((64, 128) if n in own else (32, 64, 128) for n in names),
                (4, 8),
                (2, 3, 4),
                narrow,
            ),
        ),
        Choice(
            wide,
            _tuned(
                names,
                tuple((32, 64, 128) if n in own else (16, 32, 64) for n in names),
                (4, 8),
                (1, 2, 3),
                wide,
            ),
        ),
    )


def _contiguous(body: tuple[Op, ...]) -> set[Dim]:
    """Return the dimensions along which arrays are read that usually lie in one piece."""
    loads = [part for part in _everything(body) if isinstance(part, Load) and part.subscripts]
    return {dim for load in loads for dim in dims_of(load.subscripts[-1])}


def _of_reductions(
    rows: tuple[Dim, ...], tiles: tuple[Dim, ...], contiguous: set[Dim]
) -> tuple[Choice, Choice]:
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
    first = dict.fromkeys(own, 4) | dict.fromkeys(inner, 512)
    sizes = tuple((1, 4, 16) if n in own else (128, 512, 1024) for n in (*own, *inner))
    start = Config(first, 4, 2)
    return (Choice(start, _tuned((*own, *inner), sizes, (4, 8), (2,), start)),) * 2


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


def _space(
    names: tuple[str, ...],
    sizes: tuple[tuple[int, ...], ...],
    warps: tuple[int, ...],
    stages: tuple[int, ...],
) -> tuple[Config, ...]:
    every = sizes * len(names) if len(sizes) == 1 else sizes
    return tuple(
        Config(dict(zip(names, chosen, strict=True)), w, s)
        for chosen in product(*every)
        for w, s in product(warps, stages)
    )
