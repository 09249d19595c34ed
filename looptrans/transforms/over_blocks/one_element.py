"""What passes over a block do where the block is one element.

    s[j - j0] = x[j] for j …                    s = x[j]
    m = max(m, s[j - j0]) for j …      ->       m = max(m, s)

What holds something for each place in a block is left its place here; see `without_places`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from looptrans.ir.condition import Condition, Truth
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.program import Assign, If, Loop, Node
from looptrans.ir.rewrite import chosen_where, replaced, replaced_part, rewritten, values_replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    Range,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    walk_value,
)
from looptrans.ir.walk import accesses_in, written_in


def masks(node: Node) -> Iterator[Condition]:
    """Yield the conditions without which a value is -inf."""
    values = node.values if isinstance(node, Assign) else ()
    for part in (p for value in values for p in walk_value(value)):
        match part:
            case Select(condition, _, Const(least)) if least == -inf:
                yield condition
            case Select(condition, _, Unary("-", Const(most))) if most == inf:
                yield condition
            case _:
                pass


def where(node: Node, mask: Condition) -> tuple[Node, ...]:
    """Return a statement where a condition holds."""
    if isinstance(node, Assign):
        return (replace(node, values=tuple(chosen_where(v, mask) for v in node.values)),)
    return (node,)


def one_element(
    body: tuple[Node, ...], variable: str, block: Range, condition: Condition | None
) -> tuple[Node, ...]:
    """Return what a block is of one element, for which a condition may be known to hold."""

    def value(part: Value) -> Value | None:
        match part:
            case Reduce(function, (each,), inner) if each.range == block:
                one = replaced(inner, value)
                if each.condition in (Truth(True), condition):
                    return one
                return Select(each.condition, one, Const(OF_NOTHING[function]))
            case _:
                return None

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Loop() if node.variable == variable and node.range == block:
                return node.body
            case If(test, then, _) if test == condition:
                return then
            case Assign():
                return (values_replaced(node, value),)
            case _:
                return (node,)

    return rewritten(body, change)


def set_once(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Leave out first values that the next use of a cell puts another value in the place of.

    t = 0.0; t = t + x    ->    t = x
    """
    found = list(body)
    for number, first in enumerate(body):
        match first:
            case Assign(targets=(cell,), values=(value,)) if not cell.rank:
                after = _next_use(body, number)
                second = body[after] if after is not None else None
                if isinstance(second, Assign) and second.targets == (cell,):
                    assert after is not None
                    put_in = replaced_part(second.values[0], Read(cell), value)
                    if len(second.values) == 1 and not _reads(put_in, cell):
                        found[after] = replace(
                            second, values=(_neutral_left_out(put_in),), augmented=False
                        )
                        del found[number]
                        return set_once(tuple(found))
            case _:
                pass
    return tuple(
        replace(node, body=set_once(node.body))
        if isinstance(node, Loop)
        else replace(node, body=set_once(node.body), orelse=set_once(node.orelse))
        if isinstance(node, If)
        else node
        for node in found
    )


def _next_use(body: tuple[Node, ...], number: int) -> int | None:
    """Return the next node that uses what a statement sets, if what it reads is the same there."""
    first = body[number]
    assert isinstance(first, Assign)
    mine = {access.array for access in accesses_in((first,))}
    (cell,) = first.targets
    for later in range(number + 1, len(body)):
        node = body[later]
        if any(access.array == cell.array for access in accesses_in((node,))):
            return later
        written = written_in((node,))
        if written & mine or not isinstance(node, Assign | If | Loop):
            return None
    return None


def _reads(value: Value, cell: Access) -> bool:
    return any(
        isinstance(part, Read) and part.access.array == cell.array for part in walk_value(value)
    )


def _neutral_left_out(value: Value) -> Value:
    """Leave out what a sum, a maximum or a minimum begins with."""
    match value:
        case Binary("+", Const(0.0), other):
            return other
        case Call("max" | "min" as name, (Const(least), other)) if least == OF_NOTHING[name]:
            return other
        case _:
            return value
