"""Choices read where it is known which way they went.

    Y[i, j] = exp(S[i, j] - m[i]) if ok[i, j] else 2
    l[i] = sum(Y[i, j] for j if ok[i, j])        ->    l[i] = sum(exp(S[i, j] - m[i]) for j if ok…)

An array that is set under a guard is a choice between what is set and what was there before. A sum
under the same guard is one of what is set.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.equations.definitions import System
from looptrans.adjoint.equations.sums import held_together
from looptrans.algebra.positional.cells import value_moved
from looptrans.ir.condition import ALWAYS, Condition, negation
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Access, Read, Reduce, Select, Value, has_reduction


def read_where_known(system: System) -> None:
    """Let values read what was chosen, where the condition of a choice holds or fails for sure.

    Args:
        system: The definitions, which are changed.
    """
    for definition in list(system.definitions.values()):
        value = _under(system, definition.value, frozenset())
        if value != definition.value:
            system.add(replace(definition, value=value))


def _under(system: System, value: Value, given: frozenset[Condition]) -> Value:
    """Return a value where conditions hold."""

    def change(part: Value) -> Value | None:
        match part:
            case Select(condition, chosen, otherwise):
                return Select(
                    condition,
                    _under(system, chosen, given | _parts(condition)),
                    _under(system, otherwise, given | _parts(negation(condition))),
                )
            case Reduce(function, bound, body):
                more = frozenset(c for g in bound for c in _parts(g.condition))
                return Reduce(function, bound, _under(system, body, given | more))
            case Read(access) if given:
                way = _way(system, access, given)
                return None if way is None else _under(system, way, given)
            case _:
                return None

    return replaced(value, change)


def _parts(condition: Condition) -> frozenset[Condition]:
    return frozenset(part for part in held_together(condition) if part != ALWAYS)


def _way(system: System, access: Access, given: frozenset[Condition]) -> Value | None:
    """Return what a cell was chosen to be, where that is known and no sum."""
    definition = system.definitions.get(access.array)
    if definition is None or not isinstance(definition.value, Select):
        return None
    if has_reduction(definition.value):
        return None
    here = dict(zip(definition.variables, access.indices, strict=True))
    choice = value_moved(definition.value, here)
    assert isinstance(choice, Select)
    if _parts(choice.condition) <= given:
        return choice.chosen
    return choice.otherwise if _parts(negation(choice.condition)) <= given else None
