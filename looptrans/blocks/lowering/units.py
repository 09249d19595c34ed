"""Which running maxima are looked at in exponents only, so that their unit is free to choose."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from looptrans.algebra.makeup import makeup_of_value
from looptrans.algebra.positional.values import summands
from looptrans.blocks.block_ir.arithmetic import LARGEST
from looptrans.ir.condition import Condition, Data, walk_condition
from looptrans.ir.index import lets
from looptrans.ir.program import Assign, If, Loop, Node
from looptrans.ir.value import (
    Call,
    Compare,
    Const,
    Holds,
    Read,
    Reduce,
    Select,
    Value,
    value_children,
    walk_value,
)
from looptrans.ir.walk import assignments, inner_bodies


@dataclass(frozen=True, slots=True)
class Units:
    """Names that are kept in units of log2(e).

    Attributes:
        members: The state and what is set from it.
        folded: Names of an iteration whose only use is beside members.
    """

    members: frozenset[str]
    folded: frozenset[str]


def in_units(body: tuple[Node, ...], state: str, pure: set[str]) -> Units | None:
    """Decide whether a running maximum may be kept in units of log2(e) inside a loop.

    Args:
        body: The body of the loop.
        state: The array that holds the maximum.
        pure: What each iteration sets for itself.
    """
    statements = assignments(body)
    if any(_is_too_large(part) for n in statements for v in n.values for part in walk_value(v)):
        return None
    members = {state}
    for node in statements:
        if len(node.values) != 1:
            return None
        value = node.values[0]
        targets = {target.array for target in node.targets}
        if _is_member(value, members):
            members |= targets
    if members - {state} - pure:
        return None
    uses = list(_uses(body, members))
    if any(kind == "other" for kind, name in uses if name in members):
        return None
    if not any(kind == "exp" for kind, name in uses if name in members):
        return None
    beside = {name for kind, name in uses if kind in ("exp", "max")} & pure - members
    spoilt = {name for kind, name in uses if kind == "other"}
    written = [t.array for node in statements for t in node.targets]
    folded = {n for n in beside - spoilt if written.count(n) == 1}
    if not _is_summed(statements, members, beside, pure):
        return None
    made = {
        t.array: n.values[0] for n in statements for t in n.targets if t.array in pure - members
    }
    taken = [n.values[0] for n in statements if _takes(n, members)]
    scores = [*(each for value in taken for each in value_children(value))]
    scores += [made[name] for name in beside if name in made]
    # A bias, too, had better be multiplied by log2(e) once the maximum was taken off.
    if any(makeup_of_value(s, made, LARGEST).given for s in scores if not _is_read(s, members)):
        return None
    return Units(frozenset(members), frozenset(folded))


def is_taken_off_elements(block: tuple[Node, ...], body: tuple[Node, ...], state: str) -> bool:
    """Tell whether a loop beside that of a maximum reads it elsewhere than in exponents.

    Of scores close to the maximum their difference is exact there; a maximum that went to units of
    log2(e) and back would leave it an error of the size of the maximum.

    Args:
        block: Nodes in which, or inside which, the loop of the maximum stands.
        body: Its body.
        state: The array that holds the maximum.
    """
    if any(isinstance(node, Loop) and node.body is body for node in block):
        return any(
            ("other", state) in _uses(node.body, {state})
            for node in block
            if isinstance(node, Loop) and node.body is not body
        )
    return any(
        is_taken_off_elements(inner, body, state) for node in block for inner in inner_bodies(node)
    )


def _is_too_large(value: Value) -> bool:
    """Tell whether a number would be infinite in units of log2(e), such as the least float32."""
    return isinstance(value, Const) and LARGEST < abs(value.value) < math.inf


def _is_read(value: Value, names: set[str]) -> bool:
    return isinstance(value, Read) and value.access.array in names


def _is_summed(
    statements: list[Assign], members: set[str], beside: set[str], pure: set[str]
) -> bool:
    """Tell whether what the maximum is taken of is itself a sum, so that the time goes there.

    Where the elements are only read, memory sets the pace, and the maximum had better stay exact.
    """
    looked_at = {t.array for n in statements for t in n.targets if _takes(n, members)} | beside
    while True:
        values = [
            value
            for node in statements
            for value in node.values
            if {target.array for target in node.targets} & looked_at or _takes(node, members)
        ]
        parts = [part for value in values for part in walk_value(value)]
        if any(isinstance(part, Reduce) for part in parts):
            return True
        # What an iteration sets for itself on the way there belongs to it.
        read = {part.access.array for part in parts if isinstance(part, Read)} & pure
        if read <= looked_at:
            return False
        looked_at |= read


def _takes(node: Assign, members: set[str]) -> bool:
    """Tell whether a statement takes the maximum."""
    return any(_is_member(value, members) for value in node.values)


def _is_member(value: Value, members: set[str]) -> bool:
    if isinstance(value, Read):
        return value.access.array in members
    if isinstance(value, Call) and value.function in ("max", "min"):
        return any(isinstance(a, Read) and a.access.array in members for a in value.arguments)
    return False


def _uses(body: tuple[Node, ...], members: set[str]) -> Iterator[tuple[str, str]]:
    """Yield how each name is used: `copy`, `max`, `exp`, `sign` or `other`."""
    for node in body:
        match node:
            case Assign():
                for value in node.values:
                    if isinstance(value, Read):
                        own = value.access.array in members
                        yield ("copy" if own else "other"), value.access.array
                    elif _is_member(value, members) and isinstance(value, Call):
                        for argument in value.arguments:
                            if isinstance(argument, Read):
                                yield "max", argument.access.array
                            else:
                                yield from _value(argument, members)
                    else:
                        yield from _value(value, members)
                for target in node.targets:
                    for index in target.indices:
                        for let in lets(index):
                            yield "other", let.name
            case If():
                yield from _condition(node.condition, members)
                yield from _uses(node.body, members)
                yield from _uses(node.orelse, members)
            case Loop():
                yield from _uses(node.body, members)
            case _:
                pass


def _condition(condition: Condition, members: set[str]) -> Iterator[tuple[str, str]]:
    for part in walk_condition(condition):
        if isinstance(part, Data):
            yield from _value(part.value, members)


def _value(value: Value, members: set[str]) -> Iterator[tuple[str, str]]:
    match value:
        case Read(access):
            yield "other", access.array
        case Compare(_, Read(access), Const(number)) if isinstance(number, float) and math.isinf(
            number
        ):
            yield "sign", access.array
        case Select(condition, chosen, otherwise):
            yield from _condition(condition, members)
            yield from _value(chosen, members)
            yield from _value(otherwise, members)
        case Holds(condition):
            yield from _condition(condition, members)
        case Call("exp", (argument,)):
            parts = [part for _, part in summands(argument)]
            if any(isinstance(p, Read) and p.access.array in members for p in parts):
                for part in parts:
                    if isinstance(part, Read):
                        yield "exp", part.access.array
                    else:
                        yield from _value(part, members)
            else:
                yield from _value(argument, members)
        case _:
            for child in value_children(value):
                yield from _value(child, members)
