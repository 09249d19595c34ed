"""How much work a listing is: the multiply-adds of its matrix products, each counted once.

What is counted are the products of the block program, over the iterations that its ranges and the
guards of their statements leave: masked blocks that are never visited do not count, and neither do
the masked elements of those that are. A product that several kernels work out again (scores, in a
backward pass) is needed once: that is the usual way to count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from looptrans.blocks.block_ir.expr import Dim, Dot, Expr, Load, Name, Where, children, walk
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, Let, Op, RowBlock, TileLoop, exprs_of
from looptrans.blocks.block_ir.program import BlockProgram, Kernel
from looptrans.ir.condition import Condition, is_data_dependent
from looptrans.ir.walk import placed
from looptrans.runtime.benching.iterations import Values, iterations
from looptrans.runtime.benching.results import Product

Operands: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]


def products_of(
    program: BlockProgram, sizes: Mapping[str, int], integers: Mapping[str, Values] | None = None
) -> tuple[Product, ...]:
    """Return the matrix products of a program at given sizes.

    Args:
        program: The kernels.
        sizes: The value of every size.
        integers: The integer arrays that stand in bounds and guards.

    Returns:
        Each product once, in order of first appearance. Two are the same where their operands are
        worked out from the same arrays, and they stand in different kernels.
    """
    guards = _guards(program)
    found: dict[Operands, list[list[Product]]] = {}
    for kernel in program.kernels:
        own: dict[Operands, list[Product]] = {}
        for seen in _dots(kernel):
            conditions = [c for label in seen.labels[:1] for c in guards.get(label, ())]
            count = iterations(seen.dims, conditions, sizes, integers or {})
            names = tuple(dim.name for dim in seen.dims)
            own.setdefault(seen.operands, []).append(
                Product(kernel.name, seen.labels, names, count)
            )
        for operands, several in own.items():
            found.setdefault(operands, []).append(several)
    result: list[Product] = []
    for kernels in found.values():
        most = max(kernels, key=len)
        fewest = min(sum(p.multiply_adds for p in k) for k in kernels if len(k) == len(most))
        # Where one kernel's ranges say less than another's, the closer count is the work needed.
        closest = next(
            k for k in kernels if len(k) == len(most) and sum(p.multiply_adds for p in k) == fewest
        )
        result += [
            replace(product, kernel=first.kernel, labels=first.labels, dims=first.dims)
            for first, product in zip(most, closest, strict=True)
        ]
    return tuple(result)


def _guards(program: BlockProgram) -> dict[str, tuple[Condition, ...]]:
    """Return for each statement the guards around it, those that are exact."""
    return {
        place.label: tuple(c for c in place.conditions if not is_data_dependent(c))
        for place in placed(program.scheduled)
    }


@dataclass(frozen=True, slots=True)
class _Seen:
    """A matrix product where it stands: the loops around it and its own, what it is made of."""

    dims: tuple[Dim, ...]
    labels: tuple[str, ...]
    operands: Operands


def _dots(kernel: Kernel) -> list[_Seen]:
    """Return the products of a kernel; one in several runs of blocks of a loop comes once."""
    floats = {array.name for array in kernel.arrays if array.element == "float"}
    values: dict[str, list[Expr]] = {}
    for op in _ops(kernel.body):
        if isinstance(op, Let):
            values.setdefault(op.name, []).append(op.value)
    arrays = _Arrays(floats, values)
    return _dots_in(kernel.body, tuple(kernel.grid), arrays)


def _ops(body: Sequence[Op]) -> Iterator[Op]:
    for op in body:
        yield op
        if isinstance(op, TileLoop | ElementLoop | Branch | RowBlock):
            yield from _ops(op.body)


@dataclass(frozen=True, slots=True)
class _Arrays:
    floats: set[str]
    values: Mapping[str, list[Expr]]

    def of(self, expr: Expr, inside: frozenset[str] = frozenset()) -> frozenset[str]:
        """Return the arrays that a value is worked out from; masks do not count."""
        match expr:
            case Load(array):
                return frozenset({array} & self.floats)
            case Name(name):
                if name in inside:
                    return frozenset()
                parts = [self.of(value, inside | {name}) for value in self.values.get(name, ())]
                return frozenset().union(*parts)
            case Where(_, chosen, otherwise):
                return self.of(chosen, inside) | self.of(otherwise, inside)
            case _:
                return frozenset().union(*(self.of(child, inside) for child in children(expr)))

    def operands(self, dot: Dot) -> Operands:
        left, right = sorted(tuple(sorted(self.of(each))) for each in (dot.left, dot.right))
        return left, right


def _dots_in(body: Sequence[Op], around: tuple[Dim, ...], arrays: _Arrays) -> list[_Seen]:
    found: list[_Seen] = []
    runs: dict[Dim, list[_Seen]] = {}
    for op in body:
        if isinstance(op, Branch | RowBlock):
            found += _dots_in(op.body, around, arrays)
        elif isinstance(op, ElementLoop):
            found += _dots_in(op.body, (*around, op.dim), arrays)
        elif isinstance(op, TileLoop):
            inner = _dots_in(op.body, (*around, op.dim), arrays)
            have = Counter(map(_key, runs.get(op.dim, ())))
            for seen in inner:
                if have[_key(seen)]:
                    have[_key(seen)] -= 1
                else:
                    runs.setdefault(op.dim, []).append(seen)
                    found.append(seen)
        else:
            labels = getattr(op, "labels", ())
            for dot in (e for expr in exprs_of(op) for e in walk(expr) if isinstance(e, Dot)):
                own = (*around, dot.rows, dot.columns, dot.over)
                last = [dim for dim in dict.fromkeys(own) if dim != dot.over]
                found.append(_Seen((*last, dot.over), labels, arrays.operands(dot)))
    return found


def _key(seen: _Seen) -> tuple[object, ...]:
    return seen.dims, seen.labels, seen.operands
