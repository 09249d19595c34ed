"""How many iterations loops have together, counted without running through them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from looptrans.blocks.block_ir.expr import Dim
from looptrans.ir.condition import (
    MIRRORED,
    Condition,
    Every,
    Not,
    Relation,
    Some,
    Truth,
    compared,
    conjuncts,
)
from looptrans.ir.index import Arith, Extremum, Index, Int, Neg, Opaque, Param, Var
from looptrans.ir.index import Let as IndexLet
from looptrans.ir.index import variables as variables_of

Values: TypeAlias = np.ndarray[Any, Any]

# How many iterations are looked at together: a few arrays of as many integers.
CHUNK = 1 << 21


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
        for part in conjuncts(condition)
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
    return {name for index in compared(condition) for name in variables_of(index)}


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
        if not dims or not points:
            return points
        dim, rest = dims[0], dims[1:]
        start, stop = (
            np.broadcast_to(np.asarray(self.index(end, known), dtype=np.int64), (points,))
            for end in (dim.start, dim.stop)
        )
        if not rest and dim.step == 1:
            start, stop, facts = self._narrowed(dim, facts, known, start, stop)
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

    def _narrowed(
        self,
        dim: Dim,
        facts: Sequence[Condition],
        known: Mapping[str, Values],
        start: Values,
        stop: Values,
    ) -> tuple[Values, Values, Sequence[Condition]]:
        """Return bounds that say what facts such as `j <= i` say, and the facts they do not say."""
        left: list[Condition] = []
        for fact in facts:
            if not isinstance(fact, Relation) or not _is_linear(fact, dim.name):
                left.append(fact)
                continue
            at = [
                self.index(fact.left, inner) - self.index(fact.right, inner)
                for inner in ({**known, dim.name: np.asarray(value)} for value in (0, 1))
            ]
            slope = at[1] - at[0]
            operator, first = fact.op, -at[0]
            if np.all(slope == -1):
                operator, first = MIRRORED[fact.op], at[0]
            if not np.all(np.abs(slope) == 1) or not np.all(slope == slope.flat[0]):
                left.append(fact)
            elif operator in ("<", "<="):
                stop = np.minimum(stop, first + (operator == "<="))
            else:
                start = np.maximum(start, first + (operator == ">"))
        return start, stop, left

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


def _is_linear(fact: Relation, name: str) -> bool:
    """Tell whether a loop variable stands in sums only, compared by < or >."""

    def inside(index: Index) -> bool:
        match index:
            case Arith("+" | "-", left, right):
                return inside(left) and inside(right)
            case Neg(operand) | IndexLet(_, operand):
                return inside(operand)
            case Var() | Int() | Param():
                return True
            case _:
                return name not in variables_of(index)

    ordered = fact.op in ("<", "<=", ">", ">=")
    return ordered and name in _mentioned(fact) and inside(fact.left) and inside(fact.right)


_COMPARE: Mapping[str, Any] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
