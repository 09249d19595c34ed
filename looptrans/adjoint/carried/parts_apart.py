"""Nests in as many as have nothing to do with each other.

    for t: s = x[t] * y[t]                for t: s = x[t] * y[t]
           u[t] = s * du[t + 1]    ->            u[t] = s * du[t + 1]
           w[t] = s * v[t]                for t: s = x[t] * y[t]
                                                 w[t] = s * v[t]

A scalar that only one body sets and reads is worked out in each of the parts that need it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

from looptrans.adjoint.carried.recurrences import Tied
from looptrans.analysis.api import groups
from looptrans.ir.program import Assign, If, Loop, Node
from looptrans.ir.rewrite import rewritten, with_blocks
from looptrans.ir.walk import assignments, read_in, relations_in, written_in


def taken_apart(nests: tuple[Node, ...], tied: Tied, *, opened: bool = False) -> tuple[Node, ...]:
    """Return nests with one for each of their parts that has nothing to do with the others.

    Args:
        nests: The nests, open.
        tied: What comes in, and what it is.
        opened: Whether parts need to have nothing to do with each other only as they are, open.
    """

    def apart(nest: Node) -> tuple[Node, ...]:
        own = _own_scalars(nest) if opened else frozenset()

        def change(node: Node) -> tuple[Node, ...]:
            if isinstance(node, Loop) or (isinstance(node, If) and not node.orelse):
                parts = _independent(node.body, own, lambda n: n if opened else tied.closed(n))
                return tuple(replace(node, body=part) for part in parts)
            return (node,)

        return rewritten((nest,), change)

    return tuple(each for nest in nests for each in apart(nest))


def _own_scalars(nest: Node) -> frozenset[str]:
    """Return the scalars that one statement sets, and that only its body reads, behind it."""
    total = _reads_of_scalars((nest,))
    setting = Counter(
        node.targets[0].array for node in assignments((nest,)) if not node.targets[0].subscripts
    )
    found: set[str] = set()

    def look(body: tuple[Node, ...]) -> tuple[Node, ...]:
        for n, node in enumerate(body):
            if isinstance(node, Assign) and not node.targets[0].subscripts:
                name = node.targets[0].array
                behind = _reads_of_scalars(body[n + 1 :])
                if setting[name] == 1 and behind[name] == total[name]:
                    found.add(name)
        return with_blocks(body, look)

    look((nest,))
    return frozenset(found)


def _independent(
    body: tuple[Node, ...], scalars: Collection[str], closed: Callable[[Node], Node]
) -> list[tuple[Node, ...]]:
    """Return the parts of a body of which none touches what another one writes.

    Args:
        body: The body.
        scalars: Those that each part may work out for itself.
        closed: What a statement stands for.
    """
    own = {
        node.targets[0].array: n
        for n, node in enumerate(body)
        if isinstance(node, Assign) and node.targets[0].array in scalars
    }
    left = [n for n in range(len(body)) if n not in own.values()]
    if not left:
        return [body]
    touches = [_both(closed(body[n])) for n in left]
    touches = [(reads - {*scalars}, writes - {*scalars}) for reads, writes in touches]
    edges = [
        pair
        for n, one in enumerate(touches)
        for m in range(n)
        if conflict(one, touches[m])
        for pair in ((n, m), (m, n))
    ]
    found = []
    for part in groups(len(left), edges):
        needed = {left[n] for n in part}
        waiting = [*needed]
        while waiting:
            more = {own[name] for name in read_in((body[waiting.pop()],)) if name in own} - needed
            needed |= more
            waiting += more
        found.append(tuple(body[n] for n in sorted(needed)))
    return found


def _reads_of_scalars(body: tuple[Node, ...]) -> Counter[str]:
    """Return how often scalars are read in a block."""
    return Counter(
        each.access.array
        for each in relations_in(body)
        if not each.is_write and not each.access.subscripts
    )


def _both(node: Node) -> tuple[set[str], set[str]]:
    return read_in((node,)), written_in((node,))


def conflict(one: tuple[set[str], set[str]], other: tuple[set[str], set[str]]) -> bool:
    """Tell whether one of two writes what the other touches, by what each reads and writes."""
    return bool(one[1] & (other[0] | other[1]) or one[0] & other[1])
