"""In which order state variables are taken: each after those it depends on."""

from __future__ import annotations

from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.positional.numbers import Domain
from looptrans.algebra.positional.values import names_of


def inputs_of(recurrence: Recurrence) -> Domain:
    """Return what is known of the inputs and parameters: signs, and what is true or false."""
    given = (*recurrence.inputs, *recurrence.parameters)
    return Domain(
        nonnegative=frozenset(item.name for item in given if item.is_nonnegative),
        truths=frozenset(item.name for item in given if item.is_truth),
    )


def needs_of(recurrence: Recurrence) -> dict[str, set[str]]:
    """Return the state variables each update reads."""
    names = {state.name for state in recurrence.states}
    return {s.name: set(names_of(s.update)) & names for s in recurrence.states}


def all_needed(recurrence: Recurrence, names: set[str]) -> set[str]:
    """Return state variables with all that they depend on, however far."""
    needs = needs_of(recurrence)
    found, size = set(names), 0
    while size != len(found):
        size = len(found)
        found |= {other for name in found for other in needs[name]}
    return found


def in_order(
    recurrence: Recurrence, joint: tuple[frozenset[str], ...]
) -> list[tuple[StateVariable, ...]]:
    """Return the state variables in groups, each after those it depends on."""
    reach = {s.name: all_needed(recurrence, {s.name}) for s in recurrence.states}
    group: dict[str, frozenset[str]] = {}
    for state in recurrence.states:
        mutual = {n for n in reach[state.name] if state.name in reach[n]} | {state.name}
        for together in joint:
            if mutual & together:
                mutual |= together
        group[state.name] = frozenset(mutual)
    groups = list(dict.fromkeys(group[s.name] for s in recurrence.states))
    ordered: list[frozenset[str]] = []
    while groups:
        done = frozenset(n for g in ordered for n in g)
        ready = next((g for g in groups if all(reach[n] <= done | g for n in g)), groups[0])
        ordered.append(ready)
        groups.remove(ready)
    return [tuple(s for s in recurrence.states if s.name in g) for g in ordered]
