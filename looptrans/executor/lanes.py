"""Index expressions of many iterations at once: a number, a ramp over one axis, or an array.

Every parallel loop has an axis of its own; an iteration of all of them is a lane. What differs
between lanes is an array that has every axis, of extent 1 where it does not differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from looptrans.ir.index import ArithmeticOperator

Values: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Ramp:
    """The integers `start`, `start + step`, … along one axis.

    Attributes:
        start: The first.
        step: The distance between two; not 0.
        count: How many there are.
        axis: The axis they lie on.
        axes: How many axes there are.
    """

    start: int
    step: int
    count: int
    axis: int
    axes: int

    @property
    def last(self) -> int:
        """The last integer."""
        return self.start + (self.count - 1) * self.step

    @property
    def array(self) -> Values:
        """The integers as an array that has every axis."""
        shape = [1] * self.axes
        shape[self.axis] = self.count
        numbers: Values = np.arange(self.count, dtype=np.int64) * self.step + self.start
        return numbers.reshape(shape)

    def slice_of(self, extent: int) -> slice | None:
        """Return the slice of a dimension that has these subscripts; None where one is outside."""
        low, high = sorted((self.start, self.last))
        if low < 0 or high >= extent:
            return None
        stop = self.last + (1 if self.step > 0 else -1)
        return slice(self.start, None if stop < 0 else stop, self.step)

    def plus(self, number: int) -> Ramp:
        """Return the ramp that starts later by a number."""
        return Ramp(self.start + number, self.step, self.count, self.axis, self.axes)

    def times(self, number: int) -> Ramp:
        """Return the ramp multiplied by a number that is not 0."""
        return Ramp(self.start * number, self.step * number, self.count, self.axis, self.axes)


Lanes: TypeAlias = int | Ramp | Values


def spread(index: Lanes) -> int | Values:
    """Return an index as a number or an array."""
    return index.array if isinstance(index, Ramp) else index


def add(left: Lanes, right: Lanes) -> Lanes:
    """Return `left + right`."""
    match left, right:
        case int(), int():
            return left + right
        case Ramp(), int():
            return left.plus(right)
        case int(), Ramp():
            return right.plus(left)
        case _:
            return spread(left) + spread(right)


def multiply(left: Lanes, right: Lanes) -> Lanes:
    """Return `left * right`."""
    match left, right:
        case int(), int():
            return left * right
        case Ramp(), int() if right:
            return left.times(right)
        case int(), Ramp() if left:
            return right.times(left)
        case _:
            return spread(left) * spread(right)


def subtract(left: Lanes, right: Lanes) -> Lanes:
    """Return `left - right`."""
    return add(left, multiply(right, -1))


def divide(left: Lanes, right: Lanes) -> Lanes:
    """Return `left // right`, rounded toward minus infinity.

    Raises:
        ZeroDivisionError: A divisor is 0. The caller sees to it that a lane that does not run has
            none.
    """
    a, b = spread(left), spread(right)
    _no_zeros(b)
    return a // b


def modulo(left: Lanes, right: Lanes) -> Lanes:
    """Return `left % right`, with the sign of the divisor.

    Raises:
        ZeroDivisionError: A divisor is 0.
    """
    a, b = spread(left), spread(right)
    _no_zeros(b)
    return a % b


def _no_zeros(divisor: int | Values) -> None:
    if np.any(np.equal(divisor, 0)):
        raise ZeroDivisionError


ARITHMETIC: dict[ArithmeticOperator, Callable[[Lanes, Lanes], Lanes]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "//": divide,
    "%": modulo,
}
