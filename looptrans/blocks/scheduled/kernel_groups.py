"""What each kernel does: which nests of a scheduled program run in one launch."""

from __future__ import annotations

from dataclasses import replace

from looptrans.blocks.scheduled.sites import sites
from looptrans.ir.condition import is_of_indices
from looptrans.ir.program import If, Loop, Node


def with_loops_outside(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Ask of sizes in each iteration, where loops of programs stand under a guard alone.

    if T > 0: for b: S(b)    ->    for b: if T > 0: S(b)
              for c: R(c)          for c: if T > 0: R(c)
    """
    return tuple(each for node in body for each in _outside(node))


def _outside(node: Node) -> tuple[Node, ...]:
    match node:
        case If(condition, inside, ()) if is_of_indices(condition):
            found = with_loops_outside(inside)
            if any(map(_is_programs, found)):
                return tuple(_guarded(node, each) for each in found)
    return (node,)


def _guarded(guard: If, node: Node) -> Node:
    """Return what stands under a guard, with the guard inside of loops of programs."""
    if isinstance(node, Loop) and _is_programs(node):
        inside = _outside(replace(guard, body=node.body))
        return replace(node, body=inside)
    return replace(guard, body=(node,))


def _is_programs(node: Node) -> bool:
    """Tell whether each iteration is of a program of its own."""
    return isinstance(node, Loop) and node.execution == "parallel"


def groups_of(work: list[tuple[int, Node]]) -> list[list[tuple[int, Node]]]:
    """Return what each kernel does: a parallel loop, or all that stands between two of them.

    What stands before a parallel loop and has nothing to do with it, such as the start of a sum
    that is gathered later, goes to what stands behind it.
    """
    found: list[list[tuple[int, Node]]] = []
    waiting: list[tuple[int, Node]] = []
    for number, node in work:
        if not _is_programs(node):
            waiting.append((number, node))
            continue
        before = [each for each in waiting if not _meet(each[1], node)]
        if len(before) < len(waiting):
            found.append(waiting)
            before = []
        found.append([(number, node)])
        waiting = before
    return [*found, waiting] if waiting else found


def finer(groups: list[list[tuple[int, Node]]]) -> list[list[tuple[int, Node]]]:
    """Return what each kernel does, where what reads what a loop before it writes has its own.

    What stands before a loop goes with it, but for what reads an array that the loop writes:

        state = y[T]
        for t in range(T - 1, -1, -1): state = a[t] * state; y[t] = state
    """
    found: list[list[tuple[int, Node]]] = []
    waiting: list[tuple[int, Node]] = []
    for group in groups:
        found.append([])
        for number, node in group:
            is_handed = any(_hands_over(earlier, node) for _, earlier in found[-1])
            if is_handed:
                found.append([])
            if is_handed or isinstance(node, Loop):
                found[-1] += waiting
                waiting = []
                starts = [each for _, each in found[-1] if not isinstance(each, Loop)]
                if any(_hands_over(node, start) for start in starts):
                    found.append([])
                found[-1].append((number, node))
            else:
                waiting.append((number, node))
        found[-1] += waiting
        waiting = []
    return [group for group in found if group]


def _hands_over(first: Node, second: Node) -> bool:
    """Tell whether a loop writes an array that something else reads."""
    written = {site.array for site in sites((first,)) if site.is_write and site.subscripts}
    read = {site.array for site in sites((second,)) if not site.is_write}
    return isinstance(first, Loop) and bool(written & read)


def _meet(one: Node, other: Node) -> bool:
    """Tell whether one of two writes what the other touches."""
    mine, its = sites((one,)), sites((other,))
    return any(a.array == b.array and (a.is_write or b.is_write) for a in mine for b in its)
