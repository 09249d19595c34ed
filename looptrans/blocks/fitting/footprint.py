"""What a program of matrix products needs of a GPU: shared memory, and registers.

Both follow from the operations alone, so that configurations that cannot be any good are left out
before anything is compiled. Of an innermost loop with products

    shared      operands loaded before the loop + stages · blocks loaded in the loop
    registers   accumulators + other products + blocks that meet them element by element

On sm_90 the first is what the compiler asks for, but for vectors and what reductions exchange; of
the second a thread has 255, and other values need the rest. A block that is looked up, at a place
of its own for each element, brings the places with it; so do conditions on two dimensions and what
is worked out of the places of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from looptrans.blocks.block_ir.expr import (
    Binary,
    Cast,
    Dot,
    Expr,
    Load,
    Name,
    Number,
    children,
    dims_of,
    kind_of,
    walk,
)
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    TileLoop,
    exprs_of,
    ops_in,
)
from looptrans.blocks.block_ir.program import Config, Kernel
from looptrans.blocks.passes.described import DESCRIBED, described_loads, has_described
from looptrans.blocks.passes.flipped import is_reversed

MOST_HELD = 144
"""How many numbers of blocks a thread holds at most where nothing is timed: on sm_90 128 were seen
to fit, and 160 to spill."""

MOST_TIMED = 192
"""How many where configurations are timed: on sm_90 most of 160 fit, and some of 192 do or spill a
few bytes outside of loops; the times tell."""

SPARE = 4096
"""The bytes of shared memory that are left for what is no block of an operand."""

LEAST = 16
"""The least iterations of a block that is shrunk: a side of a matrix product has as many."""

Sizes: TypeAlias = tuple[str, ...]
"""A block: the constexprs that say how many iterations each of its dimensions has."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of an array.

    Attributes:
        sizes: Its sides.
        bytes: Those of an element; None where it has as many as the inputs.
    """

    sizes: Sizes
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one loop needs.

    Attributes:
        resident: What lies in shared memory throughout the loop.
        staged: What is loaded in the loop, as often as there are stages.
        held: What a program has in registers, in float32.
        loaded: What it has there besides, where threads load what the GPU may copy by itself.
    """

    resident: tuple[Piece, ...]
    staged: tuple[Piece, ...]
    held: tuple[Sizes, ...]
    loaded: tuple[Sizes, ...] = ()

    def shared(self, sizes: Mapping[str, int], stages: int, width: int) -> int:
        """Return the bytes of shared memory.

        Args:
            sizes: The iterations of each block.
            stages: How many blocks ahead loads are begun.
            width: The bytes of an element of the inputs.
        """
        bytes_ = [
            sum(prod(sizes[s] for s in p.sizes) * (p.bytes or width) for p in pieces)
            for pieces in (self.resident, self.staged)
        ]
        return bytes_[0] + stages * bytes_[1]

    def renamed(self, names: Mapping[str, str]) -> Footprint:
        """Return it with other names for the sizes of blocks."""

        def block(sizes: Sizes) -> Sizes:
            return tuple(names[size] for size in sizes)

        resident, staged = (
            tuple(replace(piece, sizes=block(piece.sizes)) for piece in pieces)
            for pieces in (self.resident, self.staged)
        )
        held, loaded = (tuple(map(block, blocks)) for blocks in (self.held, self.loaded))
        return Footprint(resident, staged, held, loaded)

    def numbers(self, sizes: Mapping[str, int]) -> int:
        """Return the numbers that the threads of a program hold together."""
        blocks = self.held if sizes.get(DESCRIBED) else (*self.held, *self.loaded)
        return sum(prod(sizes[s] for s in block) for block in blocks)


Footprints: TypeAlias = tuple[Footprint, ...]


def footprints(kernel: Kernel) -> Footprints:
    """Return what the innermost loops of a kernel with matrix products need, each once."""
    exact = frozenset(array.name for array in kernel.arrays if array.dtype == "float32")
    may_copy = described_loads(kernel) if has_described(kernel) else ()
    across = frozenset(load for _, load, _ in may_copy if is_reversed(load))
    return footprints_of(kernel.body, exact, across)


def footprints_of(
    body: tuple[Op, ...], exact: frozenset[str], copied: frozenset[Load] = frozenset()
) -> Footprints:
    """Return what innermost loops with matrix products need, each once.

    Args:
        body: What a program does.
        exact: The arrays that are in float32 whatever the inputs are.
        copied: The loads across that the GPU may do by itself: threads then hold nothing of them.
    """
    found = [needs_of(loop, exact, copied) for loop in loops_of(body)]
    return tuple(dict.fromkeys(found))


def lacking(
    footprints: Footprints,
    config: Config,
    lanes: Mapping[str, int],
    width: int,
    room: int,
    threads: int = 32,
    most: int = MOST_HELD,
) -> str:
    """Say what a program has no room for; nothing where it has room for all its blocks.

    Args:
        footprints: What its loops need.
        config: The configuration.
        lanes: The iterations of what is no part of a configuration.
        width: The bytes of an element of the inputs.
        room: The bytes of shared memory that a program of the GPU may have.
        threads: The threads of a warp.
        most: How many numbers of blocks a thread may hold.
    """
    sizes = {**lanes, **config.blocks}
    shared = max((each.shared(sizes, config.stages, width) for each in footprints), default=0)
    each_holds = held(footprints, config, lanes, threads)
    if shared > room - SPARE:
        return f"its blocks fill {shared} bytes of shared memory, and there are {room - SPARE}"
    if each_holds > most:
        return f"a thread holds {each_holds:g} numbers of blocks, more than {most}"
    return ""


def held(
    footprints: Footprints, config: Config, lanes: Mapping[str, int], threads: int = 32
) -> float:
    """Return how many numbers of blocks a thread holds; the arguments are those of `lacking`."""
    sizes = {**lanes, **config.blocks}
    most = max((each.numbers(sizes) for each in footprints), default=0)
    return most / (threads * config.warps)


def fits(
    footprints: Footprints,
    config: Config,
    lanes: Mapping[str, int],
    width: int,
    room: int,
    threads: int = 32,
    most: int = MOST_HELD,
) -> bool:
    """Tell whether a program has room for its blocks; the arguments are those of `lacking`."""
    return not lacking(footprints, config, lanes, width, room, threads, most)


def fitted(
    footprints: Footprints,
    config: Config,
    lanes: Mapping[str, int],
    width: int,
    room: int,
    threads: int = 32,
) -> Config:
    """Return a configuration with fewer stages, then smaller blocks, until it fits.

    The arguments are those of `lacking`. Where not even the least blocks fit, those are returned.
    """
    while not fits(footprints, config, lanes, width, room, threads):
        name = max(config.blocks, key=lambda each: config.blocks[each], default="")
        if config.stages > 1 and fits(footprints, config, lanes, width, 1 << 60, threads):
            config = Config(config.blocks, config.warps, config.stages - 1)
        elif config.blocks and config.blocks[name] > LEAST:
            smaller = {**config.blocks, name: config.blocks[name] // 2}
            config = Config(smaller, config.warps, config.stages)
        else:
            break
    return config


@dataclass(frozen=True, slots=True)
class Inner:
    """An innermost loop with products.

    Attributes:
        ops: What is done in it, and in branches inside.
        before: What is done before it, and outside of it.
        after: The names that are read behind it, before what it is inside of is over.
        depth: How many loops it is inside of.
    """

    ops: tuple[Op, ...]
    before: tuple[Op, ...]
    after: frozenset[str]
    depth: int

    @property
    def parts(self) -> Iterator[Expr]:
        """Everything that is worked out in it."""
        return _parts(self.ops)

    @property
    def sums(self) -> tuple[Let, ...]:
        """What it adds to blocks that were begun before it."""
        begun = {op.name for op in self.before if isinstance(op, Let)}
        lets = [op for op in self.ops if isinstance(op, Let) and op.name in begun]
        return tuple({op.name: op for op in lets if len(op.dims or dims_of(op.value)) > 1}.values())

    @property
    def kept(self) -> tuple[Let, ...]:
        """The blocks begun before it that other loops add to, and that are read behind it."""
        own = {op.name for op in self.sums}
        lets = [op for op in self.before if isinstance(op, Let) and isinstance(op.value, Number)]
        kept = [op for op in lets if len(op.dims) > 1 and op.name in self.after - own]
        return tuple({op.name: op for op in kept}.values())


def loops_of(
    ops: tuple[Op, ...],
    before: tuple[Op, ...] = (),
    after: frozenset[str] = frozenset(),
    depth: int = 0,
) -> Iterator[Inner]:
    """Yield the innermost loops with products.

    Products outside of all loops are taken to be those of a loop of their own.

    Args:
        ops: What is done.
        before: What is done before that.
        after: The names that are read later.
        depth: How many loops all that is inside of.
    """
    own = tuple(_plain(ops))
    plain = tuple(op for op in own if not isinstance(op, TileLoop | ElementLoop))
    if any(isinstance(part, Dot) for part in _parts(plain)):
        yield Inner(plain, before, after, max(depth - 1, 0))
    for number, loop in enumerate(own):
        if isinstance(loop, TileLoop | ElementLoop):
            later = ops_in(own[number + 1 :])
            names = {p.name for p in _parts(later) if isinstance(p, Name)}
            yield from loops_of(loop.body, (*before, *plain), after | names, depth + 1)


def _plain(ops: Iterable[Op]) -> Iterator[Op]:
    """Yield operations and those inside branches."""
    for op in ops:
        yield op
        if isinstance(op, Branch | RowBlock):
            yield from _plain(op.body)


def _parts(ops: Iterable[Op]) -> Iterator[Expr]:
    for op in ops:
        for expr in exprs_of(op):
            yield from walk(expr)


def needs_of(
    loop: Inner, exact: frozenset[str] = frozenset(), copied: frozenset[Load] = frozenset()
) -> Footprint:
    """Return what one loop needs.

    Args:
        loop: The loop.
        exact: The arrays that are in float32 whatever the inputs are.
        copied: The loads that the GPU may do by itself.
    """
    ops, before = loop.ops, loop.before
    products = list(dict.fromkeys(part for part in _parts(ops) if isinstance(part, Dot)))
    added = {op.name for op in loop.sums}
    into = [op.value for op in ops if isinstance(op, Let) and op.name in added]
    sums = {part for value in into for part in walk(value) if isinstance(part, Dot)}
    sides = [side for product in products for side in (product.left, product.right)]
    operands = {side.operand if isinstance(side, Cast) else side for side in sides}
    names = {side.name for side in operands if isinstance(side, Name)}
    loads = list(dict.fromkeys(_loads(ops)))
    resident = [
        _piece(load, exact) for name, load in dict.fromkeys(_loads(before)) if name in names
    ]
    # An operand that is not multiplied as it was loaded has a copy.
    resident += [Piece(_sizes(side), 4) for side in dict.fromkeys(sides) if _is_widened(side)]
    # One that is worked out as float32 is multiplied as a pair of 16-bit numbers.
    made = [p for p in products if not any(map(_is_of_inputs, (p.left, p.right)))]
    pairs = dict.fromkeys(side for p in made for side in (p.left, p.right))
    resident += [Piece(_sizes(side), 4) for side in pairs]
    staged = [_piece(load, exact) for _, load in loads]
    beside = [load for name, load in loads if name not in names and load not in operands]
    beside = [load for load in beside if len(_sizes(load)) > 1]
    numbers = [sizes_of(op) for op in (*loop.sums, *loop.kept)]
    begun = {product.accumulator for product in products}
    numbers += [_sizes(product) for product in products if product not in sums | begun]
    numbers += [_sizes(load) for load in beside if load not in copied]
    numbers += _places(ops)
    loaded = tuple(_sizes(load) for load in beside if load in copied)
    return Footprint(_blocks(resident), _blocks(staged), tuple(numbers), loaded)


def _places(ops: tuple[Op, ...]) -> list[Sizes]:
    """Return the blocks of integers and conditions that stand beside those of numbers."""
    looked_up, worked, compared = integers_of(ops)
    # The first condition costs little: it is gone before the next product.
    return [_sizes(each) for each in (*looked_up, *worked, *compared[1:])]


def integers_of(ops: tuple[Op, ...]) -> tuple[list[Expr], list[Expr], list[Expr]]:
    """Return places of elements that are looked up, other integers, and conditions: the blocks."""
    looked_up: list[Expr] = []
    worked: dict[Expr, None] = {}
    compared: dict[Expr, None] = {}

    def look(expr: Expr) -> None:
        if isinstance(expr, Load):
            looked_up.extend(each for each in expr.subscripts if len(dims_of(each)) > 1)
            return
        if isinstance(expr, Binary) and len(dims_of(expr)) > 1:
            if expr.op in _COMPARED and kind_of(expr.left) == "int":
                compared[expr] = None
                return
            if kind_of(expr) == "int":
                worked[expr] = None
                return
        for child in children(expr):
            look(child)

    for op in ops:
        for expr in exprs_of(op):
            look(expr)
    return looked_up, list(worked), list(compared)


_COMPARED = ("<", "<=", ">", ">=", "==", "!=")


def _blocks(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return the pieces that are no vectors."""
    return tuple(piece for piece in pieces if len(piece.sizes) > 1)


def _is_widened(side: Expr) -> bool:
    return isinstance(side, Cast) and side.like is None and isinstance(side.operand, Name | Load)


def _is_of_inputs(side: Expr) -> bool:
    """Tell whether an operand has the type of an array: its element, or rounded to it."""
    if isinstance(side, Cast):
        return side.like is not None or isinstance(side.operand, Name | Load)
    return isinstance(side, Load) or (isinstance(side, Name) and side.holds is not None)


def _loads(ops: Iterable[Op]) -> list[tuple[str, Load]]:
    """Return what is loaded, each with the name it is given, or none."""
    found: list[tuple[str, Load]] = []
    for op in ops:
        for expr in exprs_of(op):
            name = op.name if isinstance(op, Let) and isinstance(expr, Load) else ""
            found += [(name, part) for part in walk(expr) if isinstance(part, Load)]
    return found


def _piece(load: Load, exact: frozenset[str]) -> Piece:
    width = {"int": 8, "bool": 1}.get(load.kind, 4 if load.array in exact else None)
    return Piece(_sizes(load), width)


def sizes_of(let: Let) -> Sizes:
    """Return the sides of a block that is named."""
    return tuple(dim.block or "" for dim in let.dims or dims_of(let.value))


def _sizes(expr: Expr) -> Sizes:
    return tuple(dim.block or "" for dim in dims_of(expr))
