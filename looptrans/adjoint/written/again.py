"""What a nest of the backward listing works out again: values that are not in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import TypeAlias

from looptrans.adjoint.equations.definitions import System
from looptrans.adjoint.written.standing import Scalar
from looptrans.algebra.positional.values import negative
from looptrans.ir.condition import (
    ALWAYS,
    Condition,
    Some,
    conjunction,
    conjuncts,
    is_data_dependent,
    negation,
    opposite,
)
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Const,
    Holds,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    condition_variables,
)

_Read: TypeAlias = tuple[Access | None, tuple[Condition, ...]]


@dataclass(slots=True)
class WorkedOut:
    """What one nest works out: scalars, and the conditions under which they are read.

    Attributes:
        system: What each definition is.
        is_stored: Tells whether a definition is in memory.
        scalars: What is worked out, each behind what it reads.
        readers: For each of them, which other reads it (None is the update), and under which
            conditions of choices.
    """

    system: System
    is_stored: Callable[[str], bool]
    scalars: dict[Access, Scalar] = field(default_factory=dict)
    readers: dict[Access, list[_Read]] = field(default_factory=dict)

    def out(self, value: Value) -> Value:
        """Replace reads of what is not stored by scalars, and note what those are."""
        return self._out(value, frozenset(), None, ())

    def _out(
        self,
        value: Value,
        bound: frozenset[str],
        reader: Access | None,
        under: tuple[Condition, ...],
    ) -> Value:
        system = self.system

        def change(part: Value) -> Value | None:
            match part:
                case Read(access) if access.array in system.definitions:
                    if self.is_stored(access.array):
                        return None
                    if access.variables & bound:
                        # Inside a sum there is no place for a statement.
                        inner = system.instance(access.array, access.indices)
                        return self._out(inner, bound, reader, under)
                    self.readers.setdefault(access, []).append((reader, under))
                    if access not in self.scalars:
                        inner = system.instance(access.array, access.indices)
                        own = self._out(inner, bound, access, ())
                        self.scalars[access] = Scalar(access.array, access, own)
                    return part
                case Select(condition, chosen, otherwise):
                    tested = only_condition(self._out(Holds(condition), bound, reader, under))
                    ways = _ways(condition, bound)
                    return Select(
                        tested,
                        self._out(chosen, bound, reader, (*under, ways[0])),
                        self._out(otherwise, bound, reader, (*under, ways[1])),
                    )
                case Reduce(function, generators, body):
                    inside = bound | {g.variable for g in generators}
                    found = tuple(
                        replace(
                            g,
                            condition=only_condition(
                                self._out(Holds(g.condition), inside, reader, under)
                            ),
                        )
                        for g in generators
                    )
                    inner = self._out(body, inside, reader, under)
                    if function != "sum":
                        return Reduce(function, found, inner)
                    sign, inner = _without_sign(inner)
                    whole = Reduce(function, found, inner)
                    return whole if sign > 0 else negative(whole)
                case _:
                    return None

        return replaced(value, change)

    def guarded(self) -> dict[Access, Scalar]:
        """Return the scalars, those read only under conditions worked out only where they hold.

        Elsewhere what they read may lie outside its array.
        """
        when: dict[Access | None, Condition] = {None: ALWAYS}
        found: dict[Access, Scalar] = {}
        for access in reversed(self.scalars):
            ways = [conjunction(when[reader], *under) for reader, under in self.readers[access]]
            when[access] = _either(ways)
            scalar = self.scalars[access]
            if when[access] != ALWAYS:
                value = Select(when[access], scalar.value, Const(0.0))
                scalar = replace(scalar, value=value)
            found[access] = scalar
        return {access: found[access] for access in self.scalars}


def _without_sign(value: Value) -> tuple[int, Value]:
    """Return the sign of a product, and the product without it.

    sum(-a[e] * b[e] for e)    ->    -sum(a[e] * b[e] for e), which may be worked out in any case
    """
    match value:
        case Unary("-", operand):
            sign, inner = _without_sign(operand)
            return -sign, inner
        case Binary("*" | "/" as op, left, right):
            (one, left), (other, right) = _without_sign(left), _without_sign(right)
            return one * other, Binary(op, left, right)
        case _:
            return 1, value


def _either(ways: list[Condition]) -> Condition:
    """Join conditions by `or`: `a` or `a and c` is `a`, and so is `a and c` or `a and not c`."""
    found = [tuple(p for p in conjuncts(way) if p != ALWAYS) for way in dict.fromkeys(ways)]
    while True:
        for one, other in permutations(found, 2):
            mine = [part for part in one if part not in other]
            its = [part for part in other if part not in one]
            if not mine:
                found.remove(other)
                break
            if len(mine) == len(its) == 1 and its[0] in (negation(mine[0]), opposite(mine[0])):
                found[found.index(one)] = tuple(part for part in one if part != mine[0])
                found.remove(other)
                break
        else:
            break
    if len(found) == 1:
        return conjunction(*found[0])
    return Some(tuple(conjunction(*parts) for parts in found))


def _ways(condition: Condition, bound: frozenset[str]) -> tuple[Condition, Condition]:
    """Return what holds where one side of a choice is taken, and where the other is.

    Of what loops and sizes say alone: data are not asked before they are worked out.
    """
    parts = conjuncts(condition)
    said = [
        part
        for part in parts
        if not is_data_dependent(part) and not condition_variables(part) & bound
    ]
    if len(said) == len(parts):
        return condition, negation(condition)
    return conjunction(*said), ALWAYS


def only_condition(value: Value) -> Condition:
    """Return the condition of which a value is the number."""
    assert isinstance(value, Holds)
    return value.condition
