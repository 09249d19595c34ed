"""Sums of a few terms that several definitions multiply or raise, made definitions of their own.

So is a sum of exponentials to which something is added where it divides.

y[i] = (x[i] - m) * a        z = sum((x[i] - m) ** 2 for i)        t[i] = x[i] - m
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.definitions import (
    Definition,
    System,
    free_variables,
    refreshed_generators,
)
from looptrans.adjoint.recognition import unify
from looptrans.adjoint.totals import parts_of_total
from looptrans.algebra.cells import value_moved
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Index, Var
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Generator,
    Read,
    Reduce,
    Unary,
    Value,
)


def share(system: System) -> set[str]:
    """Make definitions of sums of terms that several multiply or raise, and of such totals.

    Args:
        system: The definitions, which are changed.

    Returns:
        The new definitions.
    """
    shared: set[str] = set()
    places: list[tuple[str, Value]] = []
    for definition in system.definitions.values():
        places += [(definition.name, part) for part in _sums_in(definition.value)]
    for number, (first, part) in enumerate(places):
        free = free_variables(part)
        alike = [
            (other, p)
            for other, p in places[number + 1 :]
            if other != first and _is_renamed(part, p)
        ]
        scope = {g.variable: g for g in _bound_in(system.definitions[first])}
        indices = tuple(replace(scope[v], condition=ALWAYS) for v in scope if v in free)
        if not alike and parts_of_total(system, Definition(first, indices, part)) is None:
            continue
        if not free or any(_has(system, name, part) for name in shared):
            continue
        own, new = refreshed_generators(indices, system.names)
        name = system.names.array(f"{first}_term")
        shared.add(name)
        before = dict(system.definitions)
        system.definitions.clear()
        for known, each in before.items():
            if known == first:
                system.add(Definition(name, own, value_moved(part, new), label=each.label))
            system.add(each)
        made = system.definitions[name]
        for known in {first, *(other for other, _ in alike)}:
            each = system.definitions[known]
            system.add(replace(each, value=_shared_in(each.value, made)))
    return shared


def _sums_in(value: Value) -> list[Value]:
    """Return sums that are factors or bases, outside of functions."""
    found: list[Value] = []
    match value:
        case Binary("*" | "/", left, right):
            for part in (left, right):
                if isinstance(part, Binary) and part.op in "+-":
                    found.append(part)
            return found + _sums_in(left) + _sums_in(right)
        case Binary("**", base, _):
            if isinstance(base, Binary) and base.op in "+-":
                found.append(base)
            return found + _sums_in(base)
        case Binary("+" | "-", left, right):
            return _sums_in(left) + _sums_in(right)
        case Unary(_, operand):
            return _sums_in(operand)
        case Reduce("sum", _, body):
            return _sums_in(body)
        case _:
            return []


def _is_renamed(a: Value, b: Value) -> bool:
    bound: dict[str, Index] = {}
    return (
        unify(a, b, frozenset(free_variables(a)), bound)
        and all(isinstance(i, Var) for i in bound.values())
        and len(set(bound.values())) == len(bound)
    )


def _has(system: System, name: str, part: Value) -> bool:
    return _is_renamed(system.definitions[name].value, part)


def _bound_in(definition: Definition) -> tuple[Generator, ...]:
    inner = definition.value.generators if isinstance(definition.value, Reduce) else ()
    return (*definition.indices, *inner)


def _shared_in(value: Value, made: Definition) -> Value:
    def change(part: Value) -> Value | None:
        bound: dict[str, Index] = {}
        free = frozenset(made.variables)
        if isinstance(part, Binary) and unify(made.value, part, free, bound):
            return Read(Access(made.name, tuple(bound[v] for v in made.variables)))
        return None

    return replaced(value, change)
