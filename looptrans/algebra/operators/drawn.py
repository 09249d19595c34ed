"""Numbers that the inputs of iterations may have: worked out from elements that may be anything.

    x1 = X[j] * X[j]      r1 = X[j] is drawn, and x1 is r1 * r1: never below 0
    x2 = X[j] > 0.0       and x2 is what r1 says
    x3 = j <= i           the place of the iteration says

A sum over a row is one of a single element, or of as many as it is known to have, all of them the
same. Inputs drawn each by itself could be such as no listing ever sees, and would refute what is
true of all that it does see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import mpmath

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.positional.numbers import NoNumber, Number, evaluate
from looptrans.ir.condition import ALWAYS, Condition, Data, Relation, with_tests
from looptrans.ir.evaluate import evaluate as index_at
from looptrans.ir.index import Arith, Index, Param, parameters, variables, walk
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Generator,
    Holds,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Value,
    Whole,
    walk_value,
)

Row = dict[str, Number]
FLOATS: Final = (0, 1, -1, 2, mpmath.mpf(1) / 2)
"""Small numbers that are drawn from."""
_INTEGERS: Final = (0, 1, -1, 2, 3)
_SIZE: Final = 20
_GIVEN: Final = 2


class NotDrawn(Exception):
    """It cannot be told which numbers the inputs may have together."""


@dataclass(slots=True)
class Drawn:
    """How the inputs of an iteration come from numbers that may be drawn.

    Attributes:
        recurrence: The recurrence.
        outer: What the variables of loops around are.
        free: What is drawn anew for each iteration, and from which numbers.
        fixed: What stays the same.
        places: Indices, whose values the place of an iteration gives.
        parameters: The parameters.
    """

    recurrence: Recurrence
    outer: int
    free: dict[str, tuple[Number, ...]] = field(default_factory=dict)
    fixed: dict[str, Number] = field(default_factory=dict)
    places: dict[str, Index] = field(default_factory=dict)
    parameters: dict[str, Number] = field(default_factory=dict)
    _names: dict[Value, str] = field(default_factory=dict)
    _values: dict[str, Value] = field(default_factory=dict)
    _condition: Value | None = None

    def read(self) -> None:
        """Read what inputs and parameters are made of.

        Raises:
            NotDrawn: That cannot be told.
        """
        given = {item.name: self._made(item.value, _GIVEN) for item in self.recurrence.parameters}
        self._values = {item.name: self._made(item.value, 1) for item in self.recurrence.inputs}
        if self.recurrence.condition is not None:
            self._condition = self._made(Holds(self.recurrence.condition), 1)
        self._require_apart()
        try:
            point = self._point({}, 0)
            self.parameters = {name: evaluate(value, point) for name, value in given.items()}
        except NoNumber as error:
            raise NotDrawn(str(error)) from None

    def given(self, row: Row, number: int) -> dict[str, Number] | None:
        """Return the inputs of an iteration; None where it changes nothing.

        Args:
            row: What is drawn.
            number: The number of the iteration, from 0 on.

        Raises:
            NoNumber: An input is none.
        """
        point = self._point(row, number)
        if self._condition is not None and not evaluate(self._condition, point):
            return None
        return {name: evaluate(value, point) for name, value in self._values.items()}

    def inputs(self, row: Row, number: int) -> dict[str, Number]:
        """Return the inputs of an iteration, also of one that changes nothing."""
        point = self._point(row, number)
        return {name: evaluate(value, point) for name, value in self._values.items()}

    def _point(self, row: Row, number: int) -> dict[str, Number]:
        found = {**self.fixed, **row}
        if self.places:
            bounds = self.recurrence.range
            known = {
                name: self.outer
                for index in (bounds.start, bounds.stop, *self.places.values())
                for name in variables(index)
            }
            known |= {
                part.name: _SIZE
                for index in (bounds.start, bounds.stop, *self.places.values())
                for part in walk(index)
                if isinstance(part, Param)
            }
            start, stop = index_at(bounds.start, known), index_at(bounds.stop, known)
            if start is None or stop is None:
                raise NoNumber("where the loop goes is not known")
            known[self.recurrence.loop] = at = start + number * bounds.step
            if not (at < stop if bounds.step > 0 else at > stop):
                raise NoNumber("there is no such iteration")
            for name, index in self.places.items():
                value = index_at(index, known)
                if value is None:
                    raise NoNumber("an index is not known")
                found[name] = mpmath.mpf(value)
        return found

    def _made(self, value: Value, fixed: int) -> Value:
        """Return a value over what is drawn."""

        def made(part: Value) -> Value:
            return self._made(part, fixed)

        def change(part: Value) -> Value | None:
            match part:
                case Read(access):
                    return self._element(part, access, fixed)
                case Real(name):
                    return self._given(part, name, fixed)
                case IndexValue(index):
                    return self._place(index)
                case Reduce(function, generators, body):
                    one = made(body)
                    terms = _terms(generators, body) if function == "sum" else 1
                    return one if terms == 1 else Binary("*", Const(float(terms)), one)
                case Binary("@", left, right):
                    return Binary("*", made(left), made(right))
                case Call("sum" | "max" | "min", (row,)):
                    return made(row)
                case Holds(condition):
                    return Holds(self._tested(condition, fixed))
                case Select(condition, chosen, otherwise):
                    return Select(self._tested(condition, fixed), made(chosen), made(otherwise))
                case _:
                    return None

        return replaced(value, change)

    def _tested(self, condition: Condition, fixed: int) -> Condition:
        def each(test: Condition) -> Condition:
            match test:
                case Relation(op, left, right):
                    return Data(Compare(op, self._place(left), self._place(right)))
                case Data(value):
                    return Data(self._made(value, fixed))
                case _:
                    return test

        return with_tests(condition, each)

    def _element(self, read: Value, access: Access, fixed: int) -> Value:
        if not any(self.recurrence.loop in variables(index) for index in access.indices):
            return self._given(read, access.array, fixed)
        if read not in self._names:
            name = self._names[read] = f"r{len(self._names) + 1}"
            self.free[name] = self._numbers(access.array)
        return Real(self._names[read])

    def _numbers(self, array: str) -> tuple[Number, ...]:
        """Return numbers that elements of an array may be."""
        known = next((each for each in self.recurrence.elements if each.array == array), None)
        if known is None:
            return FLOATS
        if known.kind == "bool":
            return (0, 1)
        if known.is_promised:
            raise NotDrawn(f"a contract tells what {array} may hold")
        if known.value_range is None:
            return _INTEGERS
        sizes = {name: _SIZE for end in known.value_range for name in parameters(end)}
        least, stop = (index_at(end, sizes) for end in known.value_range)
        found = [
            n for n in _INTEGERS if least is not None and stop is not None and least <= n < stop
        ]
        if len(found) < 2:
            raise NotDrawn(f"which numbers {array} may hold is not known")
        return tuple(found)

    def _given(self, value: Value, array: str, fixed: int) -> Value:
        if value not in self._names:
            name = self._names[value] = f"r{len(self._names) + 1}"
            numbers = self._numbers(array)
            self.fixed[name] = mpmath.mpf(fixed if fixed in numbers else max(numbers))
        return Real(self._names[value])

    def _place(self, index: Index) -> Value:
        if IndexValue(index) not in self._names:
            name = self._names[IndexValue(index)] = f"r{len(self._names) + 1}"
            self.places[name] = index
        return Real(self._names[IndexValue(index)])

    def _require_apart(self) -> None:
        """Require that no two iterations look at one element, nor at one under two names."""
        loop = self.recurrence.loop
        seen: dict[str, tuple[object, ...]] = {}
        for value in self._names:
            if not isinstance(value, Read):
                continue
            indices = value.access.indices
            parts = (part for index in indices for part in walk(index))
            if any(
                isinstance(part, Arith) and part.op in ("//", "%") and loop in variables(part)
                for part in parts
            ):
                raise NotDrawn("iterations may share an element")
            moving = tuple(
                index if isinstance(index, Whole) or loop in variables(index) else None
                for index in value.access.subscripts
            )
            if seen.setdefault(value.access.array, moving) != moving:
                raise NotDrawn("an element of one iteration may be one of another")


def _terms(generators: tuple[Generator, ...], body: Value) -> int:
    """Return how many terms a sum has, 1 where its elements may be what one is.

    Raises:
        NotDrawn: It adds up no elements, and how many terms it has is not known.
    """
    counts = not any(isinstance(part, Read) for part in walk_value(body))
    found = 1
    for each in generators:
        sizes = (
            {name: _SIZE for end in each.range.ends for name in parameters(end)} if counts else {}
        )
        start, stop = (index_at(end, sizes) for end in each.range.ends)
        if start is not None and stop is not None and each.condition == ALWAYS:
            found *= len(range(start, stop, each.range.step))
        elif counts:
            raise NotDrawn("how many terms a sum has is not known")
        else:
            return 1
    return found


def drawn_of(recurrence: Recurrence, outer: int) -> Drawn:
    """Return how the inputs of a recurrence are drawn.

    Args:
        recurrence: The recurrence.
        outer: What the variables of loops around are.

    Raises:
        NotDrawn: It cannot be told which numbers they may have together.
    """
    found = Drawn(recurrence, outer)
    found.read()
    return found
