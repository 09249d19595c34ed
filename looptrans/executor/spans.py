"""Whether every subscript stays inside its array, told by the least and greatest values of indices.

    for j in range(0, N): K[page[b, j // P], j % P]       j % P is 0 to P - 1, and page[b, j // P]
                                                          no more than the largest of page

Where that is not enough, the cells themselves have to be looked at (`boxes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product, zip_longest
from typing import TypeAlias

from looptrans.executor.contracts import Integers
from looptrans.ir.condition import Condition, Data, Relation, walk_condition
from looptrans.ir.evaluate import ARITHMETIC, Unknown
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, Opaque, Param, Var
from looptrans.ir.program import Assign, Program
from looptrans.ir.value import (
    Holds,
    IndexValue,
    Range,
    Reduce,
    Select,
    Subscript,
    Value,
    Whole,
    walk_value,
)
from looptrans.ir.walk import Placed, accesses, placed

Shape: TypeAlias = tuple[int | None, ...]
Span: TypeAlias = tuple[int, int]
"""The least and the greatest value of an index."""


def stays_inside(
    program: Program,
    sizes: Mapping[str, int],
    integers: Mapping[str, Integers],
    shapes: Mapping[str, Shape],
) -> bool:
    """Tell whether no subscript can leave an array of known shape; False where it is not plain.

    Args:
        program: The listing.
        sizes: The values of its integer parameters.
        integers: Its integer arrays.
        shapes: The shapes of its arrays, as far as they are known.
    """
    try:
        for contract in program.contracts:
            spans = _Spans(sizes, integers)
            for generator in contract.generators:
                spans.enter(generator.variable, generator.range)
                spans.look(generator.condition)
            spans.look(contract.condition)
        return all(_Spans(sizes, integers).is_inside(place, shapes) for place in placed(program))
    except (_Nothing, Unknown):
        return False


class _Nothing(Exception):
    """A variable has no value: what depends on it is never worked out."""


@dataclass(slots=True)
class _Spans:
    """The least and greatest values of what surrounds a statement, and of what is made of it.

    Its methods raise `Unknown` where they cannot tell, or where an element is read that may not be
    there.
    """

    sizes: Mapping[str, int]
    integers: Mapping[str, Integers]
    variables: dict[str, Span] = field(default_factory=dict)

    def is_inside(self, place: Placed, shapes: Mapping[str, Shape]) -> bool:
        """Tell whether a statement, with what surrounds it, accesses what is there."""
        try:
            for loop in place.loops:
                self.enter(loop.variable, loop.range)
        except _Nothing:
            return True
        for condition in place.conditions:
            self.look(condition)
        if isinstance(place.node, Assign):
            for value in place.node.values:
                self.go_through(value)
        else:
            self.look(place.node.condition)
        return all(
            self.are_below(relation.access.subscripts, shapes.get(relation.access.array, ()))
            for relation in accesses(place.node)
        )

    def enter(self, variable: str, bounds: Range) -> None:
        """Let a variable go over a range.

        Raises:
            _Nothing: The range is surely empty.
        """
        start, stop = self.of(bounds.start), self.of(bounds.stop)
        found = (start[0], stop[1] - 1) if bounds.step > 0 else (stop[0] + 1, start[1])
        if found[0] > found[1]:
            raise _Nothing
        if self.variables.setdefault(variable, found) != found:
            raise Unknown(variable)

    def go_through(self, value: Value) -> None:
        """Look at the indices that a value is made of, but for those of its accesses."""
        for part in walk_value(value):
            match part:
                case Reduce(_, generators):
                    for generator in generators:
                        self.enter(generator.variable, generator.range)
                        self.look(generator.condition)
                case IndexValue(index):
                    self.of(index)
                case Select(condition) | Holds(condition):
                    self.look(condition)

    def look(self, condition: Condition) -> None:
        """Look at the indices that a condition compares."""
        for part in walk_condition(condition):
            match part:
                case Relation(_, left, right):
                    self.of(left)
                    self.of(right)
                case Data(value):
                    self.go_through(value)

    def are_below(self, subscripts: tuple[Subscript, ...], shape: Shape) -> bool:
        """Tell whether subscripts are inside a shape, and what they read is there in any case."""
        for subscript, extent in zip_longest(subscripts, shape[: len(subscripts)]):
            if isinstance(subscript, Whole):
                continue
            least, greatest = self.of(subscript)
            if extent is not None and (least < 0 or greatest >= extent):
                return False
        return True

    def of(self, index: Index) -> Span:
        """Return the least and the greatest value of an index, or less and more than those."""
        match index:
            case Int(value):
                return value, value
            case Var(name):
                if name not in self.variables:
                    raise Unknown(name)
                return self.variables[name]
            case Param(name):
                if name not in self.sizes:
                    raise Unknown(name)
                return self.sizes[name], self.sizes[name]
            case Neg(operand):
                least, greatest = self.of(operand)
                return -greatest, -least
            case Extremum(op, arguments):
                spans = [self.of(argument) for argument in arguments]
                choose = min if op == "min" else max
                return choose(least for least, _ in spans), choose(most for _, most in spans)
            case Arith(op, left, right):
                return _joined(op, self.of(left), self.of(right))
            case Opaque(array, arguments):
                values = self.integers.get(array)
                if values is None or not values.size:
                    raise Unknown(array)
                if len(arguments) != values.ndim or not self.are_below(arguments, values.shape):
                    raise Unknown(array)
                return int(values.min()), int(values.max())
            case Let(_, value):
                return self.of(value)


def _joined(op: str, left: Span, right: Span) -> Span:
    if op in ("//", "%") and right[0] <= 0:
        raise Unknown("a divisor that may not be positive")
    if op == "%":
        is_left = left[0] >= 0 and left[1] < right[0]
        return left if is_left else (0, right[1] - 1)
    if op == "-":
        return left[0] - right[1], left[1] - right[0]
    ends = [ARITHMETIC[op](one, other) for one, other in product(left, right)]
    return min(ends), max(ends)
