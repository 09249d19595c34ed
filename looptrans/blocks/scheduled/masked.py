"""Masks written through a ternary, made guards.

    S_ij = x if j <= i else -inf            S_ij = x
    m_ij = max(m, S_ij)              ->     if j <= i:
    l = l * … + exp(S_ij - m_ij)                m_ij = max(m, S_ij); l = …

    z = z + x if j == y[i] else z    ->     if j == y[i]: z = z + x

Right where such an element leaves every state of the fold as it is, which is tried on numbers for
-inf and 0: a state that an update changes by as much as a rounding is a reason not to. Where the
mask is what keeps x inside of its array, x[j - 1] if j % 4 != 0, the guard stands around it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from looptrans.algebra.appending.append import Append
from looptrans.blocks.block_ir.program import NotLowered, Reach
from looptrans.blocks.scheduled.bottom import Unsure, worked_out
from looptrans.blocks.scheduled.reach import below, reached
from looptrans.blocks.scheduled.sites import Site, sites
from looptrans.ir.condition import Condition, is_data_dependent, opposite
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import (
    Call,
    Const,
    Read,
    Select,
    Value,
    arrays_read,
    arrays_tested,
    condition_of,
    walk_value,
)
from looptrans.ir.walk import assignments, nodes, written_in

Facts = Callable[[Loop], Append | None]


def with_guards(program: Program, facts: Facts) -> Program:
    """Return a program whose masks are guards where that means the same.

    Args:
        program: The program.
        facts: What is known of a sequential loop.
    """
    found = replace(program, body=_body(program.body, facts, program, inside=False))
    if found == program or _outside(found) == _outside(program):
        return found
    return replace(program, body=_body(program.body, facts, program, inside=True))


def _outside(program: Program) -> tuple[Reach, ...] | None:
    """Return how far a program may go beyond its arrays; None where that cannot be told."""
    try:
        return (*reached(program), *below(program))
    except NotLowered:
        return None


def _body(
    body: tuple[Node, ...], facts: Facts, program: Program, *, inside: bool
) -> tuple[Node, ...]:
    return tuple(_node(node, facts, program, inside=inside) for node in body)


def _node(node: Node, facts: Facts, program: Program, *, inside: bool) -> Node:
    match node:
        case If():
            return replace(
                node,
                body=_body(node.body, facts, program, inside=inside),
                orelse=_body(node.orelse, facts, program, inside=inside),
            )
        case Loop():
            changed = replace(node, body=_body(node.body, facts, program, inside=inside))
            fact = facts(node) if node.execution == "sequential" else None
            if fact is None or fact.decision != "legal":
                return changed
            states = {state.access.array for state in fact.states}
            # What is kept of the last of equal maxima is that of -inf too, where all are.
            last = any(s.pick is not None and not s.pick.is_strict for s in fact.states)
            guarded = None if last else _guarded(changed.body, states, program, inside=inside)
            guarded = guarded or changed.body
            return replace(
                changed, body=_under_guards(guarded, states, _following(guarded, states))
            )
        case _:
            return node


def _under_guards(
    body: tuple[Node, ...], states: set[str], following: set[str]
) -> tuple[Node, ...]:
    """Return statements that change a state only at times, with guards that say when."""
    return tuple(_under_guard(node, states, following) for node in body)


def _under_guard(node: Node, states: set[str], following: set[str]) -> Node:
    match node:
        case Loop(execution="parallel"):
            return replace(node, body=_under_guards(node.body, states, following))
        case Assign(targets=(target,), values=(Select(condition, chosen, otherwise),)):
            own = Read(target)
            if otherwise != own:
                condition, chosen, otherwise = opposite(condition), otherwise, chosen
            is_state = otherwise == own and target.array in states
            if is_state and not _looks_at(condition, following):
                return If(condition, (replace(node, values=(chosen,)),))
    return node


def _following(body: tuple[Node, ...], states: set[str]) -> set[str]:
    """Return states, and what is worked out from them or set where they decide on it."""
    found = set(states)
    while True:
        more: set[str] = set()
        for node in nodes(body):
            match node:
                case If(condition) if _looks_at(condition, found):
                    more |= written_in((node,))
                case Assign() if _read_in((node,)) & found:
                    more |= {target.array for target in node.targets}
        if more <= found:
            return found
        found |= more


def _guarded(
    body: tuple[Node, ...], states: set[str], program: Program, *, inside: bool
) -> tuple[Node, ...] | None:
    for number, node in enumerate(body):
        if not isinstance(node, Assign) or len(node.values) != 1 or len(node.targets) != 1:
            continue
        name = node.targets[0].array
        found = _masked(node.values[0])
        if found is None or name in states:
            continue
        condition, value, masked = found
        rest = body[number + 1 :]
        if _looks_at(condition, states | written_in(body)) or name in _read_in(body[:number]):
            continue
        if _is_seen_elsewhere(name, (node, *rest), program):
            continue
        if _leaves(rest, name, masked, states):
            own = replace(node, values=(value,))
            if inside:
                return (*body[:number], If(condition, (own, *rest)))
            return (*body[:number], own, If(condition, rest))
    return None


def _masked(value: Value) -> tuple[Condition, Value, float] | None:
    """Take `x if c else -inf`, or 0, apart, whichever way it is written."""
    match value:
        case Call("where", (condition, chosen, otherwise)):
            return _masked(Select(condition_of(condition), chosen, otherwise))
        case Select(condition, chosen, Const(number)) if _is_mask(condition, number):
            return condition, chosen, float(number)
        case Select(condition, Const(number), otherwise) if _is_mask(condition, number):
            return opposite(condition), otherwise, float(number)
        case _:
            return None


def _is_mask(condition: Condition, number: float) -> bool:
    return number == -math.inf or (number == 0 and not is_data_dependent(condition))


def _read_in(body: tuple[Node, ...]) -> set[str]:
    assigned = assignments(body)
    return {name for node in assigned for value in node.values for name in arrays_read(value)}


def _is_seen_elsewhere(name: str, own: tuple[Node, ...], program: Program) -> bool:
    """Tell whether anyone but these nodes looks at an array, who would miss the -inf in it."""
    if program.array(name).role == "input" or name in program.outputs:
        return True
    return _count(name, sites(program.body)) != _count(name, sites(own))


def _count(name: str, found: tuple[Site, ...]) -> int:
    return sum(site.array == name for site in found)


def _looks_at(condition: Condition, names: set[str]) -> bool:
    return not names.isdisjoint(arrays_tested(condition))


def _statements(body: tuple[Node, ...]) -> Iterator[Assign | None]:
    for node in body:
        if isinstance(node, Assign):
            yield node
        elif isinstance(node, Loop) and node.execution == "parallel":
            yield from _statements(node.body)
        else:
            yield None


def _leaves(body: tuple[Node, ...], name: str, masked: float, states: set[str]) -> bool:
    """Tell whether statements leave the states alone where a name is what is masked."""
    order = sorted(states)
    trials = [{s: 0.375 + (k + turn) % 3 for k, s in enumerate(order)} for turn in range(3)]
    # What is no identity of a maximum or a minimum shows where the state is far below or above.
    trials += [{s: far + k for k, s in enumerate(order)} for far in (-1e9, -3.375, 1e9)]
    for begun in trials:
        held: dict[str, float] = {**begun, name: masked}
        own: set[str] = set()
        for statement in _statements(body):
            if statement is None or len(statement.values) != 1:
                return False
            try:
                value = worked_out(statement.values[0], held)
            except (Unsure, OverflowError):
                return False
            for target in statement.targets:
                held[target.array] = value
                own.add(target.array)
        if any(held[state] != begun[state] for state in states):
            return False
        if own - states - _temporary(body, own - states):
            return False
    return True


def _temporary(body: tuple[Node, ...], names: set[str]) -> set[str]:
    """Return the names that are set before they are read, so that nobody misses them."""
    found: set[str] = set()
    seen: set[str] = set()
    for statement in _statements(body):
        assert statement is not None
        seen |= {
            part.access.array
            for value in statement.values
            for part in walk_value(value)
            if isinstance(part, Read)
        }
        found |= {t.array for t in statement.targets if not t.subscripts} - seen
    return found & names
