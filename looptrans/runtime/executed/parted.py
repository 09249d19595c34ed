"""Loops whose bodies are several things, as loops of one each: what is free or a sum shows then.

    for j in range(N):                         for j in range(N):
        S[i, j] = f(i, j)                          S[i, j] = f(i, j)
        m[i] = max(m[i], S[i, j])      ->      for j in range(N):
        c[i] = c[i] + g(i, j)                      m[i] = max(m[i], S[i, j])
                                               for j in range(N):
                                                   c[i] = c[i] + g(i, j)

This is loop distribution, told from the text: two nodes of a body stay together where they share
what one of them writes, unless each iteration has cells of its own; then the first comes first.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.algebra.positional.cells import is_own_cell
from looptrans.analysis import api
from looptrans.ir.index import lets
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Access
from looptrans.ir.walk import accesses_in, nodes, read_in, written_in
from looptrans.transforms.editing.naming import binders


def with_loops_parted(program: Program) -> Program:
    """Return a program with a sequential loop for each part of a loop's body, as far as that goes.

    Every value is made by the same operations in the same order.
    """

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Loop) or not _is_plain(node):
            return (node,)
        groups = api.groups(len(node.body), _order(node))
        return tuple(replace(node, body=tuple(node.body[n] for n in group)) for group in groups)

    return replace(program, body=rewritten(program.body, change))


def _is_plain(loop: Loop) -> bool:
    """Tell whether a loop has plain statements only, and no range depends on what they set."""
    if loop.execution != "sequential" or len(loop.body) < 2:
        return False
    if any(loop.variable in binders(node) for node in loop.body):
        return False
    for node in nodes((loop,)):
        if not isinstance(node, Assign | If | Loop):
            return False
        if isinstance(node, Loop) and (lets(node.range.start) or lets(node.range.stop)):
            return False
    return True


def _order(loop: Loop) -> list[tuple[int, int]]:
    """Return which nodes of a loop's body must be done before which, by their numbers."""
    uses: dict[str, list[Access]] = {}
    for access in accesses_in(loop.body):
        uses.setdefault(access.array, []).append(access)
    own = {name for name, each in uses.items() if is_own_cell(each, loop.variable, ())}
    writes = [written_in((node,)) for node in loop.body]
    reads = [read_in((node,)) for node in loop.body]
    found = []
    for second in range(len(loop.body)):
        for first in range(second):
            shared = writes[first] & (writes[second] | reads[second])
            shared |= reads[first] & writes[second]
            if shared:
                found.append((first, second))
            if shared - own:
                found.append((second, first))
    return found
