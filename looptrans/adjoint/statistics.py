"""Weights worked out from the one saved number of each sum, its logarithm with what was taken off.

P[i, j] = exp(S[i, j] - m[i]) / l[i]    ->    P[i, j] = exp(S[i, j] - lse[i])
                                              lse[i]  = m[i] + log(l[i])
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.definitions import Definition, refreshed_generators
from looptrans.adjoint.recognition import unify
from looptrans.adjoint.size import Sizes
from looptrans.adjoint.tops import is_surely_finite
from looptrans.adjoint.weights import Prepared, Weight, log_sum, summands
from looptrans.algebra.cells import value_moved
from looptrans.algebra.values import MINUS_INFINITY, ZERO, add, subtract
from looptrans.ir.condition import Data
from looptrans.ir.index import Index, Var
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Read,
    Select,
    Unary,
    Value,
)


@dataclass(frozen=True, slots=True)
class LogSum:
    """A weight and the saved number it is worked out from.

    Attributes:
        weight: The weight.
        name: The definition of the saved number.
        cell: The saved number, in the variables of the weight.
        before: The weight as a quotient.
        after: The weight from the saved number.
        value: What is saved.
    """

    weight: Weight
    name: str
    cell: Value
    before: Value
    after: Value
    value: Value


def with_log_sums(prepared: Prepared, sizes: Sizes, outputs: dict[str, str]) -> tuple[LogSum, ...]:
    """Work weights out from the logarithms of their sums; those that are tested may be of 0."""
    system = prepared.system
    found: list[LogSum] = []
    for weight in prepared.weights.values():
        if not weight.is_own:
            continue
        if weight.beside is not None:
            main = next((each for each in found if each.weight.name == weight.beside), None)
            if main is not None:
                found.append(_beside(prepared, weight, main))
            continue
        own = system.definitions[weight.name]
        total = system.definitions[weight.total]
        inside, logarithm = log_sum(weight, system)
        outer = own.indices[: len(total.indices)]
        free = tuple(g.variable for g in outer)
        known = _known(prepared, logarithm, free, outputs)
        if known is None:
            name = system.names.array("lse")
            indices, new = refreshed_generators(outer, system.names)
            value = value_moved(logarithm, new)
            system.add(Definition(name, indices, value, "forward", own.label))
            cell: Value = Read(Access(name, tuple(Var(v) for v in free)))
        else:
            name, cell = known
        before = own.value
        after: Value = Call(weight.function, (subtract(add(*inside), cell),))
        if weight.total in prepared.tested or not is_surely_finite(system, add(*inside)):
            above = Data(Compare(">", cell, MINUS_INFINITY))
            after = Select(above, after, ZERO)
        system.add(replace(own, value=after))
        found.append(LogSum(weight, name, cell, before, after, logarithm))
    return tuple(found)


def _beside(prepared: Prepared, weight: Weight, main: LogSum) -> LogSum:
    """Work out what else is divided by a sum from the saved number of the sum."""
    system = prepared.system
    own, other = system.definitions[weight.name], system.definitions[main.weight.name]
    here = {v: Var(w) for v, w in zip(other.variables, own.variables, strict=False)}
    logarithm = value_moved(main.value, here)
    cell = value_moved(main.cell, here)
    kept = summands(weight.exponent, 1)
    # The last one is the logarithm of the sum itself, and goes with what is divided by it.
    for sign, part in summands(logarithm, 1)[:-1]:
        if (-sign, part) in kept:
            kept.remove((-sign, part))
        else:
            kept.append((sign, part))
    parts = [part if sign > 0 else Unary("-", part) for sign, part in kept]
    after: Value = Call(weight.function, (subtract(add(*parts), cell),))
    if weight.total in prepared.tested or not is_surely_finite(system, add(*parts)):
        above = Data(Compare(">", cell, MINUS_INFINITY))
        after = Select(above, after, ZERO)
    before = own.value
    system.add(replace(own, value=after))
    return LogSum(weight, main.name, cell, before, after, logarithm)


def _known(
    prepared: Prepared, value: Value, free: tuple[str, ...], outputs: dict[str, str]
) -> tuple[str, Value] | None:
    """Return an output that is a value already, and its cell."""
    for name in outputs.values():
        definition = prepared.system.definitions.get(name)
        if definition is None:
            continue
        for candidate in _orders(value):
            bound: dict[str, Index] = {}
            if unify(definition.value, candidate, frozenset(definition.variables), bound):
                cells = tuple(bound.get(v) for v in definition.variables)
                if all(isinstance(c, Var) and c.name in free for c in cells):
                    kept = tuple(c for c in cells if c is not None)
                    return name, Read(Access(name, kept))
    return None


def _orders(value: Value) -> tuple[Value, ...]:
    if isinstance(value, Binary) and value.op == "+":
        return value, Binary("+", value.right, value.left)
    return (value,)
