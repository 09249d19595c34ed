"""Which program does what: the grid of a kernel as one number, and back.

The last dimension of the grid runs fastest. Where it is a block of rows, the programs of one batch
and head run next to each other, and what they all read stays in the cache. Before it come those on
which an array of rows and columns does not depend, a bias for each head that all batches share: it
is the largest there is, and is read again while it is in the cache. Two dimensions of rows
may instead be visited in groups, so that neighbours share rows of both operands.
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.blocks.block_ir.expr import Dim, Load, Position, walk
from looptrans.blocks.block_ir.ops import exprs_of, ops_in
from looptrans.blocks.block_ir.program import Kernel
from looptrans.emit.expressions import SIGN, SUM, Expressions
from looptrans.ir.index import Int

# How many blocks of rows a group has before the next block of columns is begun.
GROUP = 8
GROUPED = "Blocks in groups, so that neighbouring programs read the same rows and columns."


@dataclass(frozen=True, slots=True)
class Demand:
    """What the body of a kernel needs of the dimensions of its grid.

    Attributes:
        positions: The dimensions whose iterations it mentions.
        first: Those of whose block it needs the first iteration.
        last: Those of whose block it needs the last one.
    """

    positions: frozenset[Dim]
    first: frozenset[Dim]
    last: frozenset[Dim]


def decoded(
    kernel: Kernel, need: Demand, expr: Expressions, program: str = "tl.program_id(0)"
) -> list[str]:
    """Return the statements that turn the program's number into places in each dimension."""
    grid, grouped = kernel.grid, kernel.grouped
    if not grid:
        return []
    order = _order(kernel)
    number = f"{program}.to({expr.index_type()})"
    if len(grid) == 1 and grid[0].role == "program":
        return _start(grid[0], number, need, expr)
    lines = [f"pid = {number}"]
    # The slowest dimension needs no count, unless blocks come in groups or the last one first.
    counted = order[1:]
    if (grouped and len(grid) == 2) or (kernel.last_first and len(grid) == 1):
        counted = order
    counts = {dim: _count(dim, expr) for dim in counted}
    for dim in counted:
        if dim.role == "rows":
            name = expr.scope.name("blocks", dim.name, wanted=f"blocks_{dim.name}")
            lines.append(f"{name} = {counts[dim]}")
            counts[dim] = name
    places = _places(order, counts)
    if kernel.last_first:
        rows = grid[-1]
        lines.append(f"# The last blocks of {expr.dim(rows)} have most to do: they begin first.")
        places[rows] = f"{counts[rows]} - 1 - {places[rows]}"
    if grouped:
        slow, fast = grid[-2:]
        names = [block_number(dim, expr) for dim in (slow, fast)]
        sizes = f"{counts[slow]}, {counts[fast]}, {GROUP}"
        lines.append(f"# {GROUPED}")
        lines.append(f"{', '.join(names)} = tl.swizzle2d({places[slow]}, {places[fast]}, {sizes})")
        places |= dict(zip((slow, fast), names, strict=True))
    for dim in grid:
        if dim.most is None:
            lines += _start(dim, places[dim], need, expr)
        elif not grouped or dim not in grid[-2:]:
            lines.append(f"{block_number(dim, expr)} = {places[dim]}")
    return lines


def _order(kernel: Kernel) -> tuple[Dim, ...]:
    """Return the dimensions of the grid, the slowest first.

    Those of which a program does one iteration come in two parts: first those on which every array
    depends that is loaded in rows of the program and columns of a loop.
    """
    loads = [
        load
        for op in ops_in(kernel.body)
        for expr in exprs_of(op)
        for load in walk(expr)
        if isinstance(load, Load)
    ]
    large = [places for load in loads if _is_large(places := _places_of(load))]
    own = [dim for dim in kernel.grid if dim.role == "program"]
    first = [dim for dim in own if all(dim in set().union(*places) for places in large)]
    rest = [dim for dim in own if dim not in first]
    return (*first, *rest, *(dim for dim in kernel.grid if dim not in own))


def _places_of(load: Load) -> list[set[Dim]]:
    """Return the dimensions whose iterations each subscript mentions."""
    return [{p.dim for p in walk(s) if isinstance(p, Position)} for s in load.subscripts]


def _is_large(places: list[set[Dim]]) -> bool:
    """Tell whether rows are in one subscript and the iterations of a loop in another."""
    found = {number: {dim.role for dim in dims} for number, dims in enumerate(places)}
    rows = {number for number, roles in found.items() if "rows" in roles}
    tiles = {number for number, roles in found.items() if "tile" in roles}
    return any(one != other for one in rows for other in tiles)


def block_number(dim: Dim, expr: Expressions) -> str:
    """Return the identifier of the number of a program's block of rows."""
    return expr.scope.name("at", dim.name, wanted=f"block_{dim.name}")


def _count(dim: Dim, expr: Expressions) -> str:
    """Return how many programs a dimension has."""
    size = expr.from_index(dim.extent)
    if dim.role == "rows":
        return f"tl.cdiv({expr.show(size)}, {expr.block(dim.block or '')})"
    return expr.show(size, needed=SIGN)


def _places(grid: tuple[Dim, ...], counts: dict[Dim, str]) -> dict[Dim, str]:
    """Return the number of each dimension's program or block, as text."""
    places = {}
    rest = "pid"
    for dim in reversed(grid[1:]):
        places[dim] = f"{rest} % {counts[dim]}"
        rest = f"{rest} // {counts[dim]}"
    return {grid[0]: rest} | places


def _start(dim: Dim, place: str, need: Demand, expr: Expressions) -> list[str]:
    start = "" if dim.start == Int(0) else f"{expr.show(expr.from_index(dim.start), needed=SUM)} + "
    if dim.role == "program":
        return [f"{expr.dim(dim)} = {start}{place}"] if dim in need.positions else []
    block = expr.block(dim.block or "")
    place = place if place.isidentifier() else f"({place})"
    first = f"{start}{place} * {block}"
    lines = []
    if dim in need.first or dim in need.last:
        lines.append(f"{expr.first(dim)} = {first}")
        first = expr.first(dim)
    if dim in need.last:
        stop = expr.show(expr.from_index(dim.stop))
        lines.append(f"{expr.last(dim)} = tl.minimum({first} + {block}, {stop}) - 1")
    if dim in need.positions:
        lines.append(f"{expr.dim(dim)} = {first} + tl.arange(0, {block})")
    return lines


def lanes(dim: Dim, is_masked: bool, expr: Expressions) -> list[str]:
    """Return the statements that give lanes their iterations, and the mask of those that exist.

    The mask is a constant where the lanes are exactly the iterations; Triton then drops it.
    """
    name, block = expr.dim(dim), expr.block(dim.block or "")
    start = "" if dim.start == Int(0) else f"{expr.show(expr.from_index(dim.start), needed=SUM)} + "
    lines = [f"{name} = {start}tl.arange(0, {block}).to({expr.index_type()})"]
    if is_masked:
        below = f"{expr.show(Position(dim))} < {expr.show(expr.from_index(dim.stop), needed=SUM)}"
        size = expr.show(expr.from_index(dim.extent), needed=SUM)
        lines.append(f"{expr.inside(dim)} = ({below}) | ({block} == {size})")
    return lines
