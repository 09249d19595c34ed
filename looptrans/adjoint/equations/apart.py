"""Sums inside values made definitions of their own, so that a value is one sum or has none."""

from __future__ import annotations

from dataclasses import replace

from looptrans.adjoint.equations.definitions import Definition, System, plain_name, refreshed
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.cells import value_moved
from looptrans.ir.condition import ALWAYS, Condition, with_operands
from looptrans.ir.index import Var, substitute, variables
from looptrans.ir.rewrite import range_changed, replaced
from looptrans.ir.value import Access, Generator, Read, Reduce, Select, Value, free_variables


def added(system: System, definition: Definition) -> None:
    """Add a definition, reductions inside its value as definitions of their own.

    Raises:
        NotDifferentiated: It hangs on a loop that its indices say nothing of.
    """
    unknown = [v for v in free_variables(definition.value) if v not in definition.variables]
    if unknown:
        name, variable = definition.array or definition.name, plain_name(unknown[0])
        raise NotDifferentiated(
            f"a cell of {name} hangs on {variable}, which does not follow from the cell",
            definition.label,
        )
    scope = {g.variable: g for g in definition.indices}
    value = definition.value
    if isinstance(value, Reduce):
        inside = scope | {g.variable: g for g in value.generators}
        generators = tuple(
            replace(g, condition=_apart_in(system, g.condition, definition, inside))
            for g in value.generators
        )
        body = _apart(system, value.body, definition, inside)
        value = Reduce(value.function, generators, body)
    else:
        value = _apart(system, value, definition, scope)
    system.add(replace(definition, value=value))


def _apart(system: System, value: Value, of: Definition, scope: dict[str, Generator]) -> Value:
    def change(part: Value) -> Value | None:
        match part:
            case Select(condition, chosen, otherwise):
                return Select(
                    _apart_in(system, condition, of, scope),
                    _apart(system, chosen, of, scope),
                    _apart(system, otherwise, of, scope),
                )
            case Reduce():
                mentioned = free_variables(part)
                indices = tuple(g for name, g in scope.items() if name in mentioned)
                indices = _closed(indices, scope)
                new = {g.variable: system.names.variable(g.variable) for g in indices}
                moved_ = {old: Var(name) for old, name in new.items()}
                own = tuple(
                    Generator(
                        new[g.variable],
                        range_changed(g.range, lambda end: substitute(end, moved_)),
                        ALWAYS,
                    )
                    for g in indices
                )
                name = system.names.array(f"{of.name}_{part.function}")
                inner = refreshed(value_moved(part, moved_), system.names)
                added(system, Definition(name, own, inner, label=of.label))
                return Read(Access(name, tuple(Var(g.variable) for g in indices)))
            case _:
                return None

    return replaced(value, change)


def _apart_in(
    system: System, condition: Condition, of: Definition, scope: dict[str, Generator]
) -> Condition:
    return with_operands(condition, value=lambda value: _apart(system, value, of, scope))


def _closed(indices: tuple[Generator, ...], scope: dict[str, Generator]) -> tuple[Generator, ...]:
    """Add the indices that the ranges of indices mention."""
    wanted = {g.variable for g in indices}
    while True:
        more = {
            name
            for g in scope.values()
            if g.variable in wanted
            for end in g.range.ends
            for name in variables(end)
            if name in scope
        }
        if more <= wanted:
            return tuple(g for name, g in scope.items() if name in wanted)
        wanted |= more
