"""Operations of the block IR: what a program does with values, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from looptrans.blocks.block_ir.expr import Cast, Dim, Dot, Expr, Load, Name, dims_of, union, walk
from looptrans.ir.monoids import Folding


@dataclass(frozen=True, slots=True)
class Let:
    """`name = value`. A name may be set again: inside a loop that is how it carries a value.

    Attributes:
        name: The name.
        value: The value.
        labels: The statements it comes from.
        note: What it is, for the reader.
        dims: The dimensions the name has; those of the value may be fewer (it is broadcast).
    """

    name: str
    value: Expr
    labels: tuple[str, ...] = ()
    note: str = ""
    dims: tuple[Dim, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """`array[subscripts] = value` where the mask holds; the value is rounded to the array's type.

    The dimensions of the store are those of the subscripts; the value is broadcast to them.

    Attributes:
        folded: How the value is joined to what is there, in one step; None where it replaces it.
    """

    array: str
    subscripts: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    labels: tuple[str, ...] = ()
    note: str = ""
    folded: Folding | None = None


@dataclass(frozen=True, slots=True)
class TileLoop:
    """A loop over blocks of a tile dimension: `for first in range(start, stop, BLOCK)`.

    Inside it `Position(dim)` is `first + arange(BLOCK)`.

    Attributes:
        dim: The dimension.
        start: The first iteration of the first block, a number.
        stop: What the first iteration of a block stays below, a number.
        kind: `full` blocks need no mask, `boundary` blocks do.
        body: What is done for each block.
        note: Why these blocks are of that kind.
        pause: Where blocks are left out, the first iteration of the first of them and that of the
            first one behind them; None where none are.
    """

    dim: Dim
    start: Expr
    stop: Expr
    kind: Literal["full", "boundary"]
    body: tuple[Op, ...]
    note: str = ""
    pause: tuple[Expr, Expr] | None = None


@dataclass(frozen=True, slots=True)
class ElementLoop:
    """A loop over single iterations: `for i in range(start, stop, step)`.

    Attributes:
        dim: The dimension; its position is a number.
        start: The first iteration.
        stop: What the iterations stay below (above, for a negative step).
        body: What is done for each.
        reason: Why the loop is not run in blocks, a sentence.
    """

    dim: Dim
    start: Expr
    stop: Expr
    body: tuple[Op, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """`if condition:` for a condition that is a number, the same for the whole program."""

    condition: Expr
    body: tuple[Op, ...]
    otherwise: tuple[Op, ...] = ()


@dataclass(frozen=True, slots=True)
class RowBlock:
    """The block of rows of a program, where the bounds of the rows are read from memory.

    There are programs for as many rows as there may be; those beyond the last row do nothing.

    Attributes:
        dim: The dimension, of role `rows`.
        start: The first row of the first block, a number.
        stop: What the rows stay below, a number.
        body: What is done with the block.
    """

    dim: Dim
    start: Expr
    stop: Expr
    body: tuple[Op, ...]


Op: TypeAlias = Let | Store | TileLoop | ElementLoop | Branch | RowBlock


def ops_in(ops: Iterable[Op]) -> Iterator[Op]:
    """Yield operations and those inside them, in the order of the text."""
    for op in ops:
        yield op
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            yield from ops_in(op.body)
        if isinstance(op, Branch):
            yield from ops_in(op.otherwise)


def exprs_of(op: Op) -> tuple[Expr, ...]:
    """Return the expressions an operation works out itself."""
    match op:
        case Let(_, value):
            return (value,)
        case Store(_, subscripts, value, mask):
            return (*subscripts, value) if mask is None else (*subscripts, value, mask)
        case TileLoop(_, start, stop, pause=pause):
            return (start, stop) if pause is None else (start, stop, *pause)
        case ElementLoop(_, start, stop) | RowBlock(_, start, stop):
            return (start, stop)
        case Branch(condition, _):
            return (condition,)


# A matrix product of each of some rows has three dimensions.
MOST_DIMS = 3


def most_dims(ops: Iterable[Op]) -> int:
    """Return how many dimensions the largest block has that is worked with."""
    exprs = (expr for op in ops_in(ops) for expr in exprs_of(op))
    return max((len(dims_of(part)) for expr in exprs for part in walk(expr)), default=0)


def stored_blocks(ops: Iterable[Op]) -> set[str]:
    """Return the arrays of which blocks of rows and columns are stored."""
    stores = (op for op in ops_in(ops) if isinstance(op, Store))
    return {s.array for s in stores if len(union(*map(dims_of, s.subscripts))) > 1}


def has_products(ops: Iterable[Op]) -> bool:
    """Tell whether matrix products are among operations and those inside them."""
    return any(True for _ in products_in(ops))


def products_in(ops: Iterable[Op]) -> Iterator[tuple[Op, Dot]]:
    """Yield the matrix products among operations and those inside them, each with its operation."""
    for op in ops_in(ops):
        for expr in exprs_of(op):
            yield from ((op, part) for part in walk(expr) if isinstance(part, Dot))


def loaded(operand: Expr, values: Mapping[str, Expr]) -> Load | None:
    """Return what loads an operand; None where it is worked out.

    Args:
        operand: The operand of a product.
        values: What names stand for.
    """
    match operand:
        case Load():
            return operand
        case Cast(inner):
            return loaded(inner, values)
        case Name(name) if name in values:
            rest = {other: value for other, value in values.items() if other != name}
            return loaded(values[name], rest)
        case _:
            return None
