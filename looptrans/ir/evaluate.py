"""The value of index expressions and exact conditions, computed directly from their trees.

For the few that are asked outside a run: extents, contracts, which cells inputs must have, which
cell an example is about. A run itself uses `looptrans.executor.closures`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from looptrans.ir.condition import Comparison, Condition, Every, Not, Relation, Some, Truth
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, Opaque, Param, Var
from looptrans.ir.value import Generator

ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
COMPARE: dict[Comparison, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


class Unknown(Exception):
    """An index expression asks for something that has no value yet."""


def no_elements(array: str, cell: tuple[int, ...]) -> int:
    """Stand for integer arrays where none is known."""
    raise Unknown(f"{array}{list(cell)}")


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates with parameters and integer arrays as far as they are known.

    Attributes:
        parameters: The values of parameters.
        element: The element of an integer array; it may raise `Unknown`.
    """

    parameters: Mapping[str, int]
    element: Callable[[str, tuple[int, ...]], int] = no_elements

    def index(self, index: Index, variables: Mapping[str, int]) -> int:
        """Return the value of an index expression.

        Raises:
            Unknown: It mentions something that has no value yet.
            ZeroDivisionError: It divides by zero.
        """
        match index:
            case Int(value):
                return value
            case Var(name):
                return variables[name]
            case Param(name):
                if name not in self.parameters:
                    raise Unknown(name)
                return self.parameters[name]
            case Arith(op, left, right):
                return ARITHMETIC[op](self.index(left, variables), self.index(right, variables))
            case Neg(operand):
                return -self.index(operand, variables)
            case Extremum(op, arguments):
                values = [self.index(argument, variables) for argument in arguments]
                return min(values) if op == "min" else max(values)
            case Opaque(array, arguments):
                cell = tuple(self.index(argument, variables) for argument in arguments)
                return self.element(array, cell)
            case Let(_, value):
                return self.index(value, variables)

    def holds(self, condition: Condition, variables: Mapping[str, int]) -> bool:
        """Tell whether an exact condition holds.

        Raises:
            Unknown: It depends on data or on something that has no value yet.
            ZeroDivisionError: It divides by zero.
        """
        match condition:
            case Truth(value):
                return value
            case Relation(op, left, right):
                return COMPARE[op](self.index(left, variables), self.index(right, variables))
            case Every(parts):
                return all(self.holds(part, variables) for part in parts)
            case Some(parts):
                return any(self.holds(part, variables) for part in parts)
            case Not(part):
                return not self.holds(part, variables)
            case _:
                raise Unknown("data")

    def instances(
        self, generators: tuple[Generator, ...], variables: Mapping[str, int]
    ) -> Iterator[dict[str, int]]:
        """Yield the values of generator variables, in order, where their conditions hold."""
        if not generators:
            yield dict(variables)
            return
        first = generators[0]
        start = self.index(first.range.start, variables)
        stop = self.index(first.range.stop, variables)
        for value in range(start, stop, first.range.step):
            inner = {**variables, first.variable: value}
            if self.holds(first.condition, inner):
                yield from self.instances(generators[1:], inner)


def evaluate(index: Index, values: Mapping[str, int]) -> int | None:
    """Return the value of an index expression, or None where it is not determined.

    Args:
        index: The expression.
        values: Values of loop variables and parameters by name; elements of integer arrays under
            names such as `n[0]` and `page[0, 1]`, as in `Witness.elements`.
    """

    def element(array: str, cell: tuple[int, ...]) -> int:
        return values[f"{array}[{', '.join(map(str, cell))}]"]

    try:
        return Evaluator(values, element).index(index, values)
    except (KeyError, Unknown, ZeroDivisionError):
        return None
