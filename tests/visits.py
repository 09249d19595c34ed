"""Which blocks a kernel visits and which elements it touches, worked out from the block IR alone.

An interpreter of its integers: bounds of loops, edges, masks and subscripts. What holds real
numbers is passed over, so a mask that depends on data cannot be asked about. `//` and `%` of
integers truncate, as in Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Cast,
    Dim,
    Edge,
    Expr,
    Load,
    Name,
    Number,
    Position,
    Reduce,
    Scalar,
    Unary,
    Where,
    kind_of,
    walk,
)
from looptrans.blocks.block_ir.ops import (
    Branch,
    ElementLoop,
    Let,
    Op,
    RowBlock,
    Store,
    TileLoop,
    exprs_of,
)
from looptrans.blocks.block_ir.program import Kernel
from looptrans.ir.evaluate import evaluate

Integers = NDArray[Any]

_BINARY: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}


@dataclass(frozen=True, slots=True)
class Block:
    """A block that a program visits: of which loop variable, in what kind of loop, from where."""

    variable: str
    kind: str
    first: int


@dataclass(frozen=True, slots=True)
class Touched:
    """Elements of an array that an operation reads or writes: where, and in what kind of loop."""

    array: str
    is_write: bool
    kind: str
    elements: frozenset[tuple[int, ...]]


@dataclass(slots=True)
class Visit:
    """What one program does.

    Attributes:
        places: For each loop of the grid, the iterations that this program has.
        blocks: The blocks it visits, in order.
        touched: What it touches.
    """

    places: dict[str, range]
    blocks: list[Block] = field(default_factory=list)
    touched: list[Touched] = field(default_factory=list)

    def elements(self, array: str, *, is_write: bool = False) -> set[tuple[int, ...]]:
        """Return every element of an array that is read, or written."""
        found: set[tuple[int, ...]] = set()
        for touched in self.touched:
            if touched.array == array and touched.is_write == is_write:
                found |= touched.elements
        return found


def visits(
    kernel: Kernel,
    numbers: Mapping[str, int],
    blocks: Mapping[str, int],
    memory: Mapping[str, Integers] | None = None,
) -> Iterator[Visit]:
    """Yield what each program of a kernel does.

    Args:
        kernel: The kernel.
        numbers: Its sizes.
        blocks: The sizes of its blocks, by constexpr; any number, not just a power of two.
        memory: What the integer arrays hold.
    """
    steps = []
    for dim in kernel.grid:
        if dim.most is not None:
            most, size = evaluate(dim.most, numbers), blocks[dim.block or ""]
            assert most is not None
            steps.append([range(at, at + size) for at in range(0, most, size)])
            continue
        start, stop = evaluate(dim.start, numbers), evaluate(dim.stop, numbers)
        assert start is not None
        assert stop is not None
        size = blocks[dim.block] if dim.block is not None else 1
        steps.append([range(at, min(at + size, stop)) for at in range(start, stop, size)])
    for chosen in product(*steps):
        places = {dim.name: own for dim, own in zip(kernel.grid, chosen, strict=True)}
        visit = Visit(places)
        _Program(kernel, {**numbers, **blocks}, memory or {}, visit).run(kernel.body)
        yield visit


class _Program:
    def __init__(
        self,
        kernel: Kernel,
        numbers: Mapping[str, int],
        memory: Mapping[str, Integers],
        visit: Visit,
    ) -> None:
        self.numbers = numbers
        self.memory = memory
        self.visit = visit
        self.axes = {dim: axis for axis, dim in enumerate(d for d in kernel.dims if d.is_vector)}
        self.named: dict[str, Integers] = {}
        self.firsts: dict[Dim, int] = {d: visit.places[d.name].start for d in kernel.grid}
        self.kind = ""

    def run(self, ops: tuple[Op, ...]) -> None:
        for op in ops:
            for expr in exprs_of(op):
                for part in walk(expr):
                    if isinstance(part, Load):
                        self._touch(part.array, False, part.subscripts, part.mask)
            match op:
                case Let(name, value):
                    if kind_of(value) != "float":
                        self.named[name] = self.of(value)
                case Store(array, subscripts, _, mask):
                    self._touch(array, True, subscripts, mask)
                case TileLoop(dim, start, stop, kind, body, pause=pause):
                    firsts = range(self._number(start), self._number(stop), self._size(dim))
                    left_out = range(*map(self._number, pause)) if pause is not None else range(0)
                    for first in (each for each in firsts if each not in left_out):
                        self.visit.blocks.append(Block(dim.name, kind, first))
                        self._inside(dim, first, kind, body)
                case ElementLoop(dim, start, stop, body):
                    for at in range(self._number(start), self._number(stop), dim.step):
                        self._inside(dim, at, self.kind, body)
                case RowBlock(dim, start, stop, body):
                    first, last = self._number(start) + self.firsts[dim], self._number(stop)
                    rows = range(first, max(first, min(first + self._size(dim), last)))
                    self.visit.places[dim.name] = rows
                    if rows:
                        self._inside(dim, first, self.kind, body)
                case Branch(condition, body):
                    if self.of(condition):
                        self.run(body)

    def _inside(self, dim: Dim, first: int, kind: str, body: tuple[Op, ...]) -> None:
        before, self.kind = self.kind, kind
        self.firsts[dim] = first
        self.run(body)
        self.kind = before

    def _number(self, expr: Expr) -> int:
        return int(self.of(expr).item())

    def _size(self, dim: Dim) -> int:
        assert dim.block is not None
        return self.numbers[dim.block]

    def _touch(
        self, array: str, is_write: bool, subscripts: tuple[Expr, ...], mask: Expr | None
    ) -> None:
        places = [self.of(subscript) for subscript in subscripts]
        where = np.asarray(True) if mask is None else self.of(mask)
        *places, where = np.broadcast_arrays(*places, where)
        found = frozenset(zip(*(place[where].tolist() for place in places), strict=True))
        self.visit.touched.append(Touched(array, is_write, self.kind, found))

    def of(self, expr: Expr) -> Integers:
        """Return an integer or truth value: an array with an axis for each vector dimension."""
        match expr:
            case Number(value):
                return np.asarray(value)
            case Scalar(name):
                return np.asarray(self.numbers[name])
            case Name(name):
                return self.named[name]
            case Position(dim):
                return self._position(dim)
            case Edge(dim, which):
                own = self.visit.places[dim.name]
                return np.asarray(own[0] if which == "first" else own[-1])
            case Unary("-", operand):
                return np.negative(self.of(operand))
            case Unary(_, operand):
                return np.logical_not(self.of(operand))
            case Binary(op, left, right):
                return self._binary(op, self.of(left), self.of(right))
            case Call("max" | "min" as op, (left, right)):
                of: Any = np.maximum if op == "max" else np.minimum
                return np.asarray(of(self.of(left), self.of(right)))
            case Where(condition, chosen, otherwise):
                return np.where(self.of(condition), self.of(chosen), self.of(otherwise))
            case Reduce("max" | "min" as op, over, operand):
                values = self.of(operand)
                choose: Any = np.max if op == "max" else np.min
                return np.asarray(choose(values, axis=self.axes[over], keepdims=True))
            case Cast(operand):
                return self.of(operand)
            case Load():
                return self._loaded(expr)
            case _:
                raise AssertionError(f"not an integer: {expr}")

    def _binary(self, op: str, left: Integers, right: Integers) -> Integers:
        if op in ("//", "%"):
            size = np.abs(left) // np.abs(right)
            quotient = np.where((left < 0) != (right < 0), -size, size)
            return quotient if op == "//" else np.asarray(left - quotient * right)
        if op == "-":
            # NumPy has no difference of truth values.
            left = left.astype(np.int64)
        return np.asarray(_BINARY[op](left, right))

    def _position(self, dim: Dim) -> Integers:
        first = self.firsts.get(dim, 0)
        if not dim.is_vector:
            return np.asarray(first)
        shape = [1] * len(self.axes)
        shape[self.axes[dim]] = -1
        return np.asarray(first + np.arange(self._size(dim))).reshape(shape)

    def _loaded(self, load: Load) -> Integers:
        values = self.memory[load.array]
        places = [self.of(subscript) for subscript in load.subscripts]
        where = np.asarray(True) if load.mask is None else self.of(load.mask)
        *places, where = np.broadcast_arrays(*places, where)
        # What is masked is not read, wherever it would be.
        inside = tuple(np.where(where, place, 0) for place in places)
        return np.where(where, values[inside], 0 if load.other is None else load.other)
