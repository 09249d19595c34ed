"""Derivatives: from the adjoint of a value to the adjoints of what it reads.

    y = f(a, b)      a receives  ybar * df/da,      b receives  ybar * df/db

At a tie of `max` or `min` the first argument that attains it gets the whole, where a value is
chosen by a condition the chosen one does, and `abs` has the derivative 0 at 0: each a subgradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.values import (
    ONE,
    ZERO,
    divide,
    is_number,
    multiply,
    negative,
    power,
)
from looptrans.ir.condition import ALWAYS, Condition, Data, conjunction, negation
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Const,
    Create,
    Generator,
    Holds,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
    condition_of,
    walk_value,
)

LOG_2 = Const(math.log(2.0))
THROUGH = ("float", "float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")
NOTHING = ("stop_gradient", "uniform", "int", "bool", "int64", "int32")


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one read adds to the adjoint of the cell it reads.

    Attributes:
        access: The cell; a real parameter is an array without subscripts.
        value: What is added.
        conditions: When.
        generators: For each value of these.
    """

    access: Access
    value: Value
    conditions: tuple[Condition, ...] = ()
    generators: tuple[Generator, ...] = ()


class _Down(Protocol):
    """Goes on with a part of a value, its adjoint, and conditions under which it counts."""

    def __call__(self, part: Value, more: Value, *when: Condition) -> Iterator[Contribution]: ...


@dataclass(frozen=True, slots=True)
class Pull:
    """Derivatives of one definition.

    Attributes:
        known: A value and the read of where it is stored; stands for it in the derivatives.
        wanted: The arrays and parameters that adjoints are worked out for.
        label: The statement, for refusals.
    """

    known: tuple[Value, Value]
    wanted: frozenset[str]
    label: str = ""

    def through(self, value: Value, adjoint: Value) -> Iterator[Contribution]:
        """Yield what a value's reads receive.

        Raises:
            NotDifferentiated: A part of the value has no derivative here.
        """
        yield from self._through(value, adjoint, (), ())

    def _is_read(self, value: Value) -> bool:
        return any(
            (isinstance(part, Read) and part.access.array in self.wanted)
            or (isinstance(part, Real) and part.name in self.wanted)
            for part in walk_value(value)
        )

    def _stored(self, value: Value) -> Value:
        """Return a value by a name it has already, if it has one."""
        return self.known[1] if value == self.known[0] else value

    def _through(
        self,
        value: Value,
        adjoint: Value,
        conditions: tuple[Condition, ...],
        generators: tuple[Generator, ...],
    ) -> Iterator[Contribution]:
        if is_number(adjoint, 0.0) or not self._is_read(value):
            return

        def down(part: Value, more: Value, *when: Condition) -> Iterator[Contribution]:
            return self._through(part, more, (*conditions, *when), generators)

        match value:
            case Read(access):
                if access.array in self.wanted:
                    yield Contribution(access, adjoint, conditions, generators)
            case Real(name):
                if name in self.wanted:
                    yield Contribution(Access(name, ()), adjoint, conditions, generators)
            case Unary(op, operand):
                yield from down(operand, negative(adjoint) if op == "-" else adjoint)
            case Binary("+", left, right):
                yield from down(left, adjoint)
                yield from down(right, adjoint)
            case Binary("-", left, right):
                yield from down(left, adjoint)
                yield from down(right, negative(adjoint))
            case Binary("*", left, right):
                yield from down(left, multiply(adjoint, right))
                yield from down(right, multiply(adjoint, left))
            case Binary("/", left, right):
                yield from down(left, divide(adjoint, right))
                whole = self._stored(value)
                yield from down(right, negative(divide(multiply(adjoint, whole), right)))
            case Binary("**", left, right):
                yield from self._power(value, left, right, adjoint, down)
            case Binary("//", _, _):
                return
            case Binary("%", left, right):
                if self._is_read(right):
                    raise NotDifferentiated("the divisor of % has no derivative", self.label)
                yield from down(left, adjoint)
            case Select(condition, chosen, otherwise):
                yield from down(chosen, adjoint, condition)
                yield from down(otherwise, adjoint, negation(condition))
            case Call("where", (condition_, chosen, otherwise)):
                condition = condition_of(condition_)
                yield from down(chosen, adjoint, condition)
                yield from down(otherwise, adjoint, negation(condition))
            case Call("max" | "min" as name, arguments) if len(arguments) > 1:
                for number, argument in enumerate(arguments):
                    if self._is_read(argument):
                        chosen_ = self._attains(name, arguments, number, value)
                        yield from down(argument, adjoint, chosen_)
            case Call(function, arguments):
                yield from self._call(value, function, arguments, adjoint, down)
            case Reduce("sum", bound, body):
                more = tuple(g.condition for g in bound if g.condition != ALWAYS)
                yield from self._through(body, adjoint, (*conditions, *more), (*generators, *bound))
            case Compare() | Holds() | IndexValue() | Const():
                return
            case Reduce() | Create() | Binary():
                raise NotDifferentiated("a part of it has no derivative", self.label)

    def _attains(
        self, name: str, arguments: tuple[Value, ...], number: int, value: Value
    ) -> Condition:
        """Return when an argument is the first that is as large (small) as the whole."""
        mine = arguments[number]
        more: tuple[Condition, ...] = ()
        others = arguments[:number] + arguments[number + 1 :]
        if len(others) == 1 and isinstance(others[0], Const) and value == self.known[0]:
            # Where the other is a number, the stored result says it, at a tie for the number.
            return Data(Compare(">" if name == "max" else "<", self.known[1], others[0]))
        for k, other in enumerate(arguments):
            if k == number:
                continue
            strict = k < number
            if name == "max":
                compared = Compare(">" if strict else ">=", mine, other)
            else:
                compared = Compare("<" if strict else "<=", mine, other)
            more = (*more, Data(compared))
        return conjunction(*more)

    def _power(
        self, value: Value, left: Value, right: Value, adjoint: Value, down: _Down
    ) -> Iterator[Contribution]:
        exponent = right.value if isinstance(right, Const) else None
        if exponent is not None and not isinstance(exponent, bool):
            if float(exponent).is_integer() and exponent >= 1:
                less = multiply(Const(float(exponent)), power(left, int(exponent) - 1))
            else:
                rest = Binary("**", left, Const(exponent - 1))
                less = multiply(Const(float(exponent)), rest)
            yield from down(left, multiply(adjoint, less))
            return
        if self._is_read(left):
            # With an exponent of 0 it is 1, at a base of 0 too.
            moves = Data(Compare("!=", right, ZERO))
            lower = Binary("-", right, Const(1.0))
            yield from down(left, multiply(adjoint, right, Binary("**", left, lower)), moves)
        if self._is_read(right):
            # At 0 the power is 0 for exponents next to this one: nothing moves.
            moves = Data(Compare("!=", left, ZERO))
            slope = multiply(adjoint, self._stored(value), Call("log", (left,)))
            yield from down(right, slope, moves)

    def _call(
        self,
        value: Value,
        function: str,
        arguments: tuple[Value, ...],
        adjoint: Value,
        down: _Down,
    ) -> Iterator[Contribution]:
        if function in NOTHING:
            return
        if len(arguments) != 1:
            raise NotDifferentiated(f"{function}(…) has no derivative", self.label)
        inner = arguments[0]
        own = self._stored(value)
        match function:
            case "exp":
                found = multiply(adjoint, own)
            case "exp2":
                found = multiply(adjoint, own, LOG_2)
            case "log":
                found = divide(adjoint, inner)
            case "log2":
                found = divide(adjoint, multiply(inner, LOG_2))
            case "sqrt":
                found = divide(multiply(Const(0.5), adjoint), own)
            case "tanh":
                found = multiply(adjoint, Binary("-", ONE, multiply(own, own)))
            case "sin":
                found = multiply(adjoint, Call("cos", (inner,)))
            case "cos":
                found = negative(multiply(adjoint, Call("sin", (inner,))))
            case "abs":
                zero = Const(0.0)
                yield from down(inner, adjoint, Data(Compare(">", inner, zero)))
                yield from down(inner, negative(adjoint), Data(Compare("<", inner, zero)))
                return
            case "copy" | "float" | "float64" | "float32" | "float16" | "bfloat16":
                found = adjoint
            case _ if function in THROUGH:
                found = adjoint
            case _:
                raise NotDifferentiated(f"{function}(…) has no derivative", self.label)
        yield from down(inner, found)
