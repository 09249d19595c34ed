"""Maxima and minima of what is worked out, written as loops.

y[i] = max(V for j in range(0, N)) + 1.0     ->     y_max = -inf
                                                    for j in range(0, N):
                                                        y_max = max(y_max, V)
                                                    y[i] = y_max + 1.0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from looptrans.adjoint.carried.recurrences import again
from looptrans.adjoint.rewriting.simpler import Simpler
from looptrans.ir.condition import ALWAYS
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.program import Array, Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    Read,
    Reduce,
    Select,
    Value,
    reductions,
    value_children,
)
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.naming import fresh_name

LOOPS: Final = "extremum as loop"


def with_extrema_spelled(program: Program, label: str) -> Simpler | None:
    """Write the maxima and minima in a statement, and what they stand in, as loops.

    Args:
        program: The program.
        label: The statement.

    Returns:
        The program afterwards; None where the statement has none, or only where something is
        chosen, which may be left out.
    """
    work = _Spelling(program)

    def change(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Assign) and node.label == label and len(node.values) == 1:
            return tuple(work.statement(node))
        return (node,)

    body = rewritten(program.body, change)
    if not work.made:
        return None
    arrays = (*program.arrays, *(Array(n, 0, "float", "local", ()) for n in work.made))
    law = "a loop that takes the larger of what it has and what comes works a maximum out"
    shown = Certificate("storage", law, "legal", "from the text")
    text = f"write the maxima and minima in {label} as loops"
    return Simpler(LOOPS, text, again(replace(program, body=body, arrays=arrays)), (shown,))


@dataclass(slots=True)
class _Spelling:
    program: Program
    made: list[str] = field(default_factory=list)

    def statement(self, node: Assign) -> Iterator[Node]:
        """Yield loops and then a statement for one that has extrema."""
        (value,) = node.values
        first = next(_outermost(value), None)
        if first is None:
            yield node
            return
        name = fresh_name(self.program, f"{node.targets[0].array}_{first.function}", self.made)
        self.made.append(name)
        cell = Access(name, ())
        own: Value = Read(cell)
        joined: Value = (
            Binary("+", own, first.body)
            if first.function == "sum"
            else Call(first.function, (own, first.body))
        )
        inner = tuple(self.statement(Assign(node.label, (cell,), (joined,))))
        for generator in reversed(first.generators):
            if generator.condition != ALWAYS:
                inner = (If(generator.condition, inner),)
            inner = (Loop(generator.variable, generator.range, inner),)
        yield Assign(node.label, (cell,), (Const(OF_NOTHING[first.function]),))
        yield from inner

        def change(part: Value) -> Value | None:
            return own if part is first else None

        rest = replaced(value, change)
        yield from self.statement(replace(node, values=(rest,)))


def _outermost(value: Value) -> Iterator[Reduce]:
    """Yield the reductions that are extrema, or have some in them, not what is inside of these."""
    match value:
        case Select():
            return
        case Reduce(function, _, body):
            inside = (function, *(p.function for p in reductions(body)))
            if {"max", "min"} & set(inside):
                yield value
            return
        case _:
            for part in value_children(value):
                yield from _outermost(part)
