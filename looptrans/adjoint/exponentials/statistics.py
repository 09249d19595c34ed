"""Weights worked out from the one saved number of each sum, its logarithm with what was taken off.

P[i, j] = exp(S[i, j] - m[i]) / l[i]    ->    P[i, j] = exp(S[i, j] - lse[i])
                                              lse[i]  = m[i] + log(l[i])

Where a mask may be part of S, m is as large as the mask in rows that are masked throughout, and
the sum would lose the logarithm: there two numbers are saved, what is taken off and the logarithm.

                                              P[i, j] = exp(S[i, j] - top[i] - log_l[i])

In rows that see nothing they are 0 and infinity, which makes P 0 without a question.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from looptrans.adjoint.equations.definitions import (
    Definition,
    System,
    plain_name,
    refreshed_generators,
)
from looptrans.adjoint.equations.recognition import unify
from looptrans.adjoint.exponentials.tops import is_surely_finite
from looptrans.adjoint.exponentials.weights import Prepared, Weight, log_sum
from looptrans.algebra.makeup import makeup_of_value
from looptrans.algebra.positional.cells import value_moved
from looptrans.algebra.positional.values import (
    INFINITY,
    MINUS_INFINITY,
    ZERO,
    add,
    subtract,
    summands,
)
from looptrans.ir.condition import Data
from looptrans.ir.index import Index, Var
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Generator,
    Read,
    Select,
    Unary,
    Value,
    cells_read,
)

LOST: Final = 1024.0
"""A logarithm that is added to what is larger loses digits that are missed."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A number of each sum that is saved.

    Attributes:
        name: Its definition.
        cell: The number, in the variables of a weight.
        value: What it is where the sum has terms.
    """

    name: str
    cell: Value
    value: Value


@dataclass(frozen=True, slots=True)
class LogSum:
    """A weight and the saved numbers it is worked out from.

    Attributes:
        weight: The weight.
        kept: The saved numbers, which are taken off one after the other.
        before: The weight as a quotient.
        after: The weight from the saved numbers.
        logarithm: The sum of the saved numbers.
    """

    weight: Weight
    kept: tuple[Kept, ...]
    before: Value
    after: Value
    logarithm: Value

    @property
    def alone(self) -> str | None:
        """The definition of the logarithm, where nothing is added to it."""
        *before, last = self.kept
        return last.name if before else None


def with_log_sums(
    prepared: Prepared, outputs: Collection[str], set_to: Collection[str]
) -> tuple[LogSum, ...]:
    """Work weights out from the logarithms of their sums; those that are tested may be of 0.

    Args:
        prepared: The definitions with their weights.
        outputs: The definitions of outputs.
        set_to: Those that something in the listing is set to, and which it can hand over.
    """
    system = prepared.system
    found: list[LogSum] = []
    for weight in prepared.weights.values():
        if not weight.is_own and (weight.total in set_to or not _is_by_rows(system, weight)):
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
        guarded = weight.total in prepared.tested or not is_surely_finite(system, add(*inside))
        *taken, last = summands(logarithm, 1)
        if taken and _may_be_masked(system, inside):
            off = add(*(part if sign > 0 else Unary("-", part) for sign, part in taken))
            stem = f"log_{plain_name(weight.total)}"
            kept = tuple(
                _added(system, own, outer, name, value, nothing if guarded else None, last[1])
                for name, value, nothing in (("top", off, ZERO), (stem, last[1], INFINITY))
            )
            guarded = False
        else:
            # A sum inside of its logarithm is handed over as that alone.
            named = () if weight.total in set_to else tuple(set_to)
            known = _known(prepared, logarithm, free, (*outputs, *named))
            kept = (known or _added(system, own, outer, "lse", logarithm),)
        found.append(_from(prepared, weight, add(*inside), kept, logarithm, guarded))
    return tuple(found)


def _is_by_rows(system: System, weight: Weight) -> bool:
    """Tell whether the first indices of a weight are those of its sum."""
    own = system.definitions[weight.name]
    first = own.variables[: len(system.definitions[weight.total].variables)]
    reads = cells_read(own.value)
    return Access(weight.total, tuple(map(Var, first))) in reads


def _may_be_masked(system: System, inside: tuple[Value, ...]) -> bool:
    """Tell whether a mask may be part of what is summed, so that its maximum may be as large."""
    made = {d.name: d.value for d in system.definitions.values() if d.origin != "adjoint"}
    return makeup_of_value(add(*inside), made, LOST).given


def _added(
    system: System,
    own: Definition,
    outer: tuple[Generator, ...],
    wish: str,
    value: Value,
    nothing: Value | None = None,
    logarithm: Value | None = None,
) -> Kept:
    """Define a number of each sum that is saved.

    Args:
        system: The definitions.
        own: The weight.
        outer: The indices of its sum.
        wish: What it had better be called.
        value: The number.
        nothing: What it is where the sum is 0, if that is asked.
        logarithm: The logarithm of the sum.
    """
    name = system.names.array(wish)
    saved = value
    if nothing is not None:
        assert isinstance(logarithm, Call)
        saved = Select(Data(Compare(">", logarithm.arguments[0], ZERO)), value, nothing)
    indices, new = refreshed_generators(outer, system.names)
    system.add(Definition(name, indices, value_moved(saved, new), "forward", own.label))
    return Kept(name, Read(Access(name, tuple(Var(g.variable) for g in outer))), value)


def _from(
    prepared: Prepared,
    weight: Weight,
    score: Value,
    kept: tuple[Kept, ...],
    logarithm: Value,
    guarded: bool,
) -> LogSum:
    """Work a weight out from what is saved; it is asked, if need be, whether there is any."""
    own = prepared.system.definitions[weight.name]
    for each in kept:
        score = subtract(score, each.cell)
    after: Value = Call(weight.function, (score,))
    if guarded:
        above = Data(Compare(">", kept[-1].cell, MINUS_INFINITY))
        after = Select(above, after, ZERO)
    prepared.system.add(replace(own, value=after))
    return LogSum(weight, kept, own.value, after, logarithm)


def _beside(prepared: Prepared, weight: Weight, main: LogSum) -> LogSum:
    """Work out what else is divided by a sum from the saved numbers of the sum."""
    system = prepared.system
    own, other = system.definitions[weight.name], system.definitions[main.weight.name]
    here = {v: Var(w) for v, w in zip(other.variables, own.variables, strict=False)}
    logarithm = value_moved(main.logarithm, here)
    saved = tuple(
        replace(each, cell=value_moved(each.cell, here), value=value_moved(each.value, here))
        for each in main.kept
    )
    kept = summands(weight.exponent, 1)
    # The last one is the logarithm of the sum itself, and goes with what is divided by it.
    for sign, part in summands(logarithm, 1)[:-1]:
        if (-sign, part) in kept:
            kept.remove((-sign, part))
        else:
            kept.append((sign, part))
    score = add(*(part if sign > 0 else Unary("-", part) for sign, part in kept))
    guarded = weight.total in prepared.tested or not is_surely_finite(system, score)
    return _from(prepared, weight, score, saved, logarithm, guarded and len(saved) == 1)


def _known(
    prepared: Prepared, value: Value, free: tuple[str, ...], names: tuple[str, ...]
) -> Kept | None:
    """Return what is a value already, such as an output."""
    for name in names:
        definition = prepared.system.definitions.get(name)
        if definition is None:
            continue
        for candidate in _orders(value):
            bound: dict[str, Index] = {}
            if unify(definition.value, candidate, frozenset(definition.variables), bound):
                cells = tuple(bound.get(v) for v in definition.variables)
                if all(isinstance(c, Var) and c.name in free for c in cells):
                    kept = tuple(c for c in cells if c is not None)
                    return Kept(name, Read(Access(name, kept)), value)
    return None


def _orders(value: Value) -> tuple[Value, ...]:
    if isinstance(value, Binary) and value.op == "+":
        return value, Binary("+", value.right, value.left)
    return (value,)
