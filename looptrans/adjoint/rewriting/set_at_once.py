"""Statements that set several cells at once, which read all of their values before.

    x[i, 0], x[i, 1] = x[i, 0] * c - x[i, 1] * s, x[i, 0] * s + x[i, 1] * c
        ->
    a = x[i, 0] * c - x[i, 1] * s
    b = x[i, 0] * s + x[i, 1] * c
    x[i, 0] = a
    x[i, 1] = b

Where one value does not read what another one sets, an order will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import are_apart
from looptrans.adjoint.carried.recurrences import again
from looptrans.ir.program import Array, Assign, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Access, Read, Value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.naming import fresh_name

Pair = tuple[Access, Value]


@dataclass(frozen=True, slots=True)
class ValuesFirst:
    """A program whose statements set one after the other what they set at once.

    Attributes:
        program: The program afterwards.
        labels: The statements.
    """

    program: Program
    labels: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"work out all that {listed(self.labels)} sets, and then set it"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "all values are worked out before anything is set"
        return Certificate("storage", law, "legal", "that is what the statement means")


def with_values_first(program: Program) -> ValuesFirst | None:
    """Give the values of statements names of their own, where no order will do.

    Args:
        program: The program.
    """
    floats = program.float_names
    labels: list[str] = []
    names: list[str] = []

    def node(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign) or len(node.targets) != len(node.values):
            return (node,)
        pairs = tuple(zip(node.targets, node.values, strict=True))
        single = all(
            t.array in floats and len(t.indices) == len(t.subscripts) for t in node.targets
        )
        if not single or in_order(pairs) is not None:
            return (node,)
        labels.append(node.label)
        own = len(names)
        for _ in pairs:
            names.append(fresh_name(program, "x", names))
        cells = [Access(name, ()) for name in names[own:]]
        worked_out = [
            replace(node, targets=(cell,), values=(value,))
            for cell, (_, value) in zip(cells, pairs, strict=True)
        ]
        set_then = [
            replace(node, targets=(target,), values=(Read(cell),))
            for cell, (target, _) in zip(cells, pairs, strict=True)
        ]
        first, *others = (*worked_out, *set_then)
        bare = [replace(each, labelled=False, comment="", leading=()) for each in others]
        return first, *bare

    body = rewritten(program.body, node)
    if not labels:
        return None
    made = tuple(Array(name, 0, "float", "local", ()) for name in names)
    after = again(replace(program, body=body, arrays=(*program.arrays, *made)))
    return ValuesFirst(after, tuple(labels))


def in_order(pairs: Sequence[Pair]) -> list[Pair] | None:
    """Order what one statement sets so that each value is worked out from what was there before.

    Args:
        pairs: What is set, and to which values.

    Returns:
        None where no order will do, as for a swap.
    """
    left, found = list(pairs), []
    while left:
        ready = next((n for n in range(len(left)) if _may_be_first(n, left)), None)
        if ready is None:
            return None
        found.append(left.pop(ready))
    return found


def _may_be_first(number: int, left: Sequence[Pair]) -> bool:
    """Tell whether no other value reads what is set, and nothing that stands before sets it."""
    target = left[number][0]
    before = [other for other, _ in left[:number]]
    others = (pair for n, pair in enumerate(left) if n != number)
    reads = [
        relation.access
        for other, value in others
        for relation in accesses(Assign("", (other,), (value,)))
        if not relation.is_write
    ]
    return all(are_apart(each, target) for each in (*before, *reads))
