"""Sums of a few terms that several definitions multiply or raise, made definitions of their own.

So is a sum of exponentials to which something is added where it divides.

y[i] = (x[i] - m) * a        z = sum((x[i] - m) ** 2 for i)        t[i] = x[i] - m
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from looptrans.adjoint.equations.definitions import Definition, System, refreshed_generators
from looptrans.adjoint.equations.recognition import read_instead, unify
from looptrans.adjoint.exponentials.totals import parts_of_total
from looptrans.algebra.positional.cells import value_moved
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Index, Var, variables
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Binary,
    Generator,
    Read,
    Reduce,
    Unary,
    Value,
    free_variables,
    walk_value,
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
        indices = _indices(system.definitions[first], free)
        if indices is None:
            continue
        indices = _as_read(part, indices)
        own_part = Definition(first, indices, part)
        alike = [
            other
            for other, p in places[number + 1 :]
            if other != first
            and _is_renamed(part, p)
            and _shared_in(system.definitions[other], own_part) != system.definitions[other]
        ]
        if not alike and parts_of_total(system, own_part) is None:
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
        for known in {first, *alike}:
            system.add(_shared_in(system.definitions[known], made))
    return shared


def _indices(of: Definition, wanted: Sequence[str]) -> tuple[Generator, ...] | None:
    """Return the indices of a part of a definition; None where they end at one it does not have."""
    found = tuple(replace(g, condition=ALWAYS) for g in _bound_in(of) if g.variable in wanted)
    ends = (end for g in found for end in g.range.ends)
    return found if all(set(variables(end)) <= set(wanted) for end in ends) else None


def _as_read(part: Value, indices: tuple[Generator, ...]) -> tuple[Generator, ...]:
    """Return indices in the order in which a cell has them that hangs on all of them."""
    by_name = {g.variable: g for g in indices}
    for read in walk_value(part):
        if isinstance(read, Read):
            names = [s.name for s in read.access.subscripts if isinstance(s, Var)]
            if len(names) == len(indices) and set(names) == set(by_name):
                return tuple(by_name[name] for name in names)
    return indices


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


def _shared_in(definition: Definition, made: Definition) -> Definition:
    """Return a definition that reads another wherever it works out the same over its ranges."""
    scope = ranges_by_name(_bound_in(definition))

    def change(part: Value) -> Value | None:
        return read_instead(made, part, scope) if isinstance(part, Binary) else None

    return replace(definition, value=replaced(definition.value, change))
