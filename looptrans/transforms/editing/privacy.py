"""Which loops make a name private, kept right while statements and values move."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from looptrans.ir.program import Loop, Program
from looptrans.transforms.editing.tree import Position, loops_around, node_at, replace_at


def with_private(program: Program, loop: Position, names: Iterable[str]) -> Program:
    """Make names private to the iterations of the loop at a position, beside those that are."""
    node = _loop(program, loop)
    wanted = {*node.private, *names}
    order = [array.name for array in program.arrays]
    private = tuple(sorted(wanted, key=order.index))
    return replace_at(program, loop, (replace(node, private=private),))


def without_private(program: Program, loop: Position, names: Iterable[str]) -> Program:
    """Let the iterations of the loop at a position share names."""
    node = _loop(program, loop)
    gone = set(names)
    private = tuple(name for name in node.private if name not in gone)
    return replace_at(program, loop, (replace(node, private=private),))


def private_around(program: Program, position: Position, names: Iterable[str]) -> Program:
    """Make names private to the innermost parallel loop around the node at a position, if any.

    So a value that now lives beside that node, or in it and all that stands around it, is not
    shared by iterations that run at once.
    """
    around = [p for p in loops_around(program, position) if p.loop.execution == "parallel"]
    return with_private(program, around[-1].position, names) if around else program


def moved_out(program: Program, loop: Position, names: Iterable[str]) -> Program:
    """Prepare names that the loop at a position makes private for being used around it as well."""
    own = [name for name in names if name in _loop(program, loop).private]
    if not own:
        return program
    return private_around(without_private(program, loop, own), loop, own)


def _loop(program: Program, position: Position) -> Loop:
    node = node_at(program, position)
    assert isinstance(node, Loop)
    return node
