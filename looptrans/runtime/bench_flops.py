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
from typing import Any, TypeAlias

import numpy as np

from looptrans.blocks.program import (
    BlockProgram,
    Branch,
    Dim,
    Dot,
    ElementLoop,
    Expr,
    Kernel,
    Let,
    Load,
    Name,
    Op,
    TileLoop,
    Where,
    children,
    exprs_of,
    walk,
)
from looptrans.ir.condition import (
    Condition,
    Every,
    Not,
    Relation,
    Some,
    Truth,
    is_data_dependent,
    walk_condition,
)
from looptrans.ir.index import Arith, Extremum, Index, Int, Let as IndexLet, Neg, Opaque, Param, Var
from looptrans.ir.index import variables as variables_of
from looptrans.ir.walk import placed
from looptrans.runtime.bench_results import Product

Values: TypeAlias = np.ndarray[Any, Any]
Operands: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]

# How many iterations are looked at together: a few arrays of as many integers.
CHUNK = 1 << 21


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
            k
            for k in kernels
            if len(k) == len(most) and sum(p.multiply_adds for p in k) == fewest
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
        if isinstance(op, TileLoop | ElementLoop | Branch):
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
        if isinstance(op, Branch):
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


def iterations(
    dims: Sequence[Dim],
    conditions: Sequence[Condition],
    sizes: Mapping[str, int],
    integers: Mapping[str, Values],
) -> int:
    """Return how many iterations loops have together.

    Loops that have nothing to do with each other are counted apart, the others iteration by
    iteration, the innermost of them at once.

    Args:
        dims: The loops; the bounds of each may mention the others.
        conditions: What must hold besides; what mentions other loops is left out.
        sizes: The value of every size.
        integers: The integer arrays.
    """
    names = {dim.name for dim in dims}
    ordered = _ordered(dims)
    facts = [
        part
        for condition in conditions
        for part in (condition.parts if isinstance(condition, Every) else (condition,))
        if _mentioned(part) <= names
    ]
    total = 1
    for group in _groups(ordered, facts):
        own = {dim.name for dim in group}
        about = [fact for fact in facts if _mentioned(fact) and _mentioned(fact) <= own]
        total *= _Count(sizes, integers).of(group, about, {}, 1)
    fixed = [fact for fact in facts if not _mentioned(fact)]
    holds = all(bool(_Count(sizes, integers).holds(fact, {})) for fact in fixed)
    return total if holds else 0


def _bounds(dim: Dim) -> set[str]:
    return {*variables_of(dim.start), *variables_of(dim.stop)}


def _mentioned(condition: Condition) -> set[str]:
    found: set[str] = set()
    for part in walk_condition(condition):
        if isinstance(part, Relation):
            found |= {*variables_of(part.left), *variables_of(part.right)}
    return found


def _ordered(dims: Sequence[Dim]) -> list[Dim]:
    """Return loops so that each comes after those its bounds mention."""
    left, found = list(dims), list[Dim]()
    while left:
        waiting = {dim.name for dim in left}
        ready = [dim for dim in left if not (_bounds(dim) & waiting)] or left[:1]
        found += ready
        left = [dim for dim in left if dim not in ready]
    return found


def _groups(dims: Sequence[Dim], facts: Sequence[Condition]) -> list[list[Dim]]:
    """Return loops that have to do with each other together."""
    groups: list[set[str]] = [{dim.name, *_bounds(dim)} for dim in dims]
    groups += [_mentioned(fact) for fact in facts if _mentioned(fact)]
    joined: list[set[str]] = []
    for group in groups:
        apart = [other for other in joined if not (other & group)]
        joined = [*apart, group.union(*(other for other in joined if other & group))]
    return [[dim for dim in dims if dim.name in group] for group in joined]


@dataclass(frozen=True, slots=True)
class _Count:
    sizes: Mapping[str, int]
    integers: Mapping[str, Values]

    def of(
        self,
        dims: Sequence[Dim],
        facts: Sequence[Condition],
        known: Mapping[str, Values],
        points: int,
    ) -> int:
        """Return how many iterations `dims` have for all of the `points` known so far."""
        if not dims:
            return points
        dim, rest = dims[0], dims[1:]
        start, stop = (
            np.broadcast_to(np.asarray(self.index(end, known), dtype=np.int64), (points,))
            for end in (dim.start, dim.stop)
        )
        if dim.step < 0:
            lengths = np.maximum((start - stop - dim.step - 1) // -dim.step, 0)
        else:
            lengths = np.maximum((stop - start + dim.step - 1) // dim.step, 0)
        if not rest and not facts:
            return int(lengths.sum())
        total, first = 0, 0
        ends = np.cumsum(lengths)
        while first < points:
            done = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, done + CHUNK, side="right")), first + 1)
            part = slice(first, last)
            total += self._expanded(dim, rest, facts, known, part, start, lengths)
            first = last
        return total

    def _expanded(
        self,
        dim: Dim,
        rest: Sequence[Dim],
        facts: Sequence[Condition],
        known: Mapping[str, Values],
        part: slice,
        start: Values,
        lengths: Values,
    ) -> int:
        many = lengths[part]
        count = int(many.sum())
        before = np.repeat(np.cumsum(many) - many, many)
        place = np.repeat(start[part], many) + dim.step * (np.arange(count) - before)
        inner = {name: np.repeat(values[part], many) for name, values in known.items()}
        inner[dim.name] = place
        decided = [fact for fact in facts if _mentioned(fact) <= inner.keys()]
        if decided:
            keep = np.ones(count, dtype=bool)
            for fact in decided:
                keep &= self.holds(fact, inner)
            inner = {name: values[keep] for name, values in inner.items()}
            count = int(keep.sum())
        left = [fact for fact in facts if fact not in decided]
        return self.of(rest, left, inner, count)

    def index(self, index: Index, known: Mapping[str, Values]) -> Any:
        """Return the values of an index expression, for all points at once."""
        match index:
            case Int(value):
                return value
            case Var(name):
                return known[name]
            case Param(name):
                return self.sizes[name]
            case Neg(operand):
                return -self.index(operand, known)
            case IndexLet(_, value):
                return self.index(value, known)
            case Opaque(array, arguments):
                return self.integers[array][tuple(self.index(a, known) for a in arguments)]
            case Extremum(op, arguments):
                values = [self.index(argument, known) for argument in arguments]
                function = np.minimum if op == "min" else np.maximum
                result = values[0]
                for value in values[1:]:
                    result = function(result, value)
                return result
            case Arith(op, left, right):
                one, other = self.index(left, known), self.index(right, known)
                match op:
                    case "+":
                        return one + other
                    case "-":
                        return one - other
                    case "*":
                        return one * other
                    case "//":
                        return one // other
                    case "%":
                        return one % other

    def holds(self, condition: Condition, known: Mapping[str, Values]) -> Any:
        """Return where an exact condition holds."""
        match condition:
            case Truth(value):
                return value
            case Relation(op, left, right):
                return _COMPARE[op](self.index(left, known), self.index(right, known))
            case Not(part):
                return np.logical_not(self.holds(part, known))
            case Every(parts) | Some(parts):
                function = np.logical_and if isinstance(condition, Every) else np.logical_or
                result = self.holds(parts[0], known)
                for part in parts[1:]:
                    result = function(result, self.holds(part, known))
                return result
            case _:
                return True


_COMPARE: Mapping[str, Any] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
