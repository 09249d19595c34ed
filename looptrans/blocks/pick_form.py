"""Statements that keep what attains a maximum or minimum, in the form blocks take them in.

if s > best:                  k = j if s > best else k
best = s           ->     best = max(best, s)
k = j

best = s if s > best else best           ->     best = max(best, s)
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.algebra.append import Append
from looptrans.ir.condition import Condition, Data, Every, conjunction
from looptrans.ir.program import Assign, If, Node
from looptrans.ir.value import Call, Compare, Holds, Read, Select, Value, walk_value


def in_pick_form(body: tuple[Node, ...], fact: Append) -> tuple[Node, ...]:
    """Return the body of a fold in this form, as far as it can be brought to it.

    Args:
        body: The body.
        fact: What is known of the loop: blocks of its iterations may be appended.
    """
    picks = {s.access.array: s.pick.of for s in fact.states if s.pick is not None}
    extrema: dict[str, str] = {
        s.access.array: s.operator
        for s in fact.states
        if s.is_plain and s.operator in ("max", "min") and s.state.name in picks.values()
    }
    if not extrema:
        return body
    return tuple(part for node in body for part in _formed(node, set(picks), extrema))


def _formed(node: Node, picked: set[str], extrema: dict[str, str]) -> tuple[Node, ...]:
    match node:
        case If(orelse=()) if (found := _opened(node, picked, extrema)) is not None:
            return found
        case If():
            body = tuple(part for each in node.body for part in _formed(each, picked, extrema))
            return (replace(node, body=body),)
        case Assign(targets=(target,), values=(Select(Data(test), chosen, otherwise),)):
            array = target.array
            if (
                array in extrema
                and otherwise == Read(target)
                and _is_moved(test, chosen, target.array)
            ):
                return (replace(node, values=(Call(extrema[array], (otherwise, chosen)),)),)
    return (node,)


def _opened(node: If, picked: set[str], extrema: dict[str, str]) -> tuple[Node, ...] | None:
    """Return a guard that waits for an extremum to move as statements; None for any other."""
    states = picked | set(extrema)
    parts = node.condition.parts if isinstance(node.condition, Every) else (node.condition,)
    deciding = [part for part in parts if _reads(part) & states]
    if len(deciding) != 1 or not isinstance(deciding[0], Data):
        return None
    test = deciding[0]
    first: list[Node] = []
    last: list[Node] = []
    for each in node.body:
        match each:
            case Assign(targets=(target,), values=(value,)):
                array, old = target.array, Read(target)
            case _:
                return None
        if _read_in(value) & states:
            return None
        if array in extrema and _is_moved(test.value, value, array):
            last.append(replace(each, values=(Call(extrema[array], (old, value)),)))
        elif array in picked:
            first.append(replace(each, values=(Select(test, value, old),)))
        else:
            return None
    rest = conjunction(*(part for part in parts if part is not test))
    found = (*first, *last)
    return found if len(parts) == 1 else (replace(node, condition=rest, body=found),)


def _is_moved(test: Value, value: Value, array: str) -> bool:
    """Tell whether it is tested how a value compares with an extremum."""
    match test:
        case Compare(">" | ">=" | "<" | "<=", left, right):
            sides = (left, right) if left == value else (right, left)
            return (
                sides[0] == value and isinstance(sides[1], Read) and sides[1].access.array == array
            )
        case _:
            return False


def _reads(condition: Condition) -> set[str]:
    return _read_in(Holds(condition))


def _read_in(value: Value) -> set[str]:
    return {part.access.array for part in walk_value(value) if isinstance(part, Read)}
