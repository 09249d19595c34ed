"""Scalars that a loop has for itself, though others may have a scalar of the same name.

    for p in range(0, P):
        s = x[p] * x[p]
        m = max(m, s)
    for n in range(0, N):
        s = y[n]
        m = max(m, s)

What the first loop has left in s is not looked at: either has its own.
"""

from __future__ import annotations

from collections import Counter

from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Access
from looptrans.ir.walk import inner_bodies, live_out, nodes, read_by, relations_in


def own_scalars(program: Program, loop: Loop) -> set[str]:
    """Return the scalars of a loop whose values nothing else looks at.

    They are used in it alone, or whatever else uses them sets them before, each for itself.

    Args:
        program: The program.
        loop: The loop, one of its nodes.
    """
    inside, outside = Counter(_used((loop,))), Counter(_used(program.body))
    seen = live_out(program)
    return {
        name
        for name in {a.name for a in program.arrays if not a.rank and a.name not in seen}
        if name in inside
        and (
            inside[name] == outside[name]
            or (_sets_first(loop.body, name) and _others_set_first(program.body, loop, name))
        )
    }


def _sets_first(body: tuple[Node, ...], name: str) -> bool:
    """Tell whether a block sets a scalar before it looks at it, or each loop or branch in it."""
    for node in body:
        if name in _used((node,)):
            match node:
                case Assign():
                    return Access(name, ()) in node.targets and name not in _read(node)
                case Loop() | If():
                    if name in _read(node):
                        return False
                    if not all(_sets_first(inside, name) for inside in inner_bodies(node)):
                        return False
                case _:
                    return False
    return True


def _others_set_first(body: tuple[Node, ...], loop: Loop, name: str) -> bool:
    """Tell whether the loops beside one set a scalar before they look at it."""
    for node in body:
        if node is loop or name not in _used((node,)):
            continue
        if isinstance(node, Assign) or name in _read(node):
            return False
        for inside in inner_bodies(node):
            is_around = any(each is loop for each in nodes(inside))
            tell = _others_set_first(inside, loop, name) if is_around else _sets_first(inside, name)
            if not tell:
                return False
    return True


def _read(node: Node) -> set[str]:
    """Return what a statement or a guard looks at."""
    return read_by(node) if isinstance(node, Assign | If) else set()


def _used(body: tuple[Node, ...]) -> list[str]:
    return [each.access.array for each in relations_in(body)]
