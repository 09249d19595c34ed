"""What a loop inside makes, in a cell of its own where the cell is changed afterwards.

s = 0.0                                       s_made = 0.0
for e: s = s + Q[i, e] * K[j, e]       ->     for e: s_made = s_made + Q[i, e] * K[j, e]
s = s / sqrt(E)                               s = s_made
                                              s = s / sqrt(E)

A closed form reads what a loop inside makes where the loop has left it: it must still be there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from looptrans.algebra.iteration import Iteration
from looptrans.ir.index import variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Access, Read, walk_value
from looptrans.ir.walk import nodes
from looptrans.transforms.accesses import with_accesses
from looptrans.transforms.naming import fresh_name


def with_cells_kept(program: Program, body: tuple[Node, ...], taken: list[str]) -> tuple[Node, ...]:
    """Return a block in which nothing is changed that a loop of it has made.

    Args:
        program: The program that the block is part of.
        body: The block.
        taken: New names; gets those that are given here.
    """
    found = tuple(
        replace(
            node,
            body=with_cells_kept(program, node.body, taken),
            orelse=with_cells_kept(program, node.orelse, taken),
        )
        if isinstance(node, If)
        else node
        for node in body
    )
    first = 0
    while first < len(found):
        cell = _set_anew(found[first])
        last = None if cell is None else _last_loop(found, first, cell)
        if (
            cell is not None
            and last is not None
            and program.array(cell.array).element == "float"
            and _is_only(found[first + 1 : last + 1], cell)
        ):
            name = fresh_name(program, f"{cell.array}_made", taken)
            taken.append(name)
            kept = Access(name, ())
            made = with_accesses(found[first : last + 1], partial(_instead, cell, kept))
            copy = Assign("S", (cell,), (Read(kept),))
            found = (*found[:first], *made, copy, *found[last + 1 :])
        first += 1
    return found


def changed_arrays(iteration: Iteration) -> frozenset[str]:
    """Return the arrays that a statement writes behind a loop inside that has made something."""
    made = {f.family.access.array for f in iteration.found.values() if f.made}
    return frozenset(name for name in made if _scanned(iteration.loop.body, name, False)[0])


def _scanned(body: tuple[Node, ...], array: str, made: bool) -> tuple[bool, bool]:
    """Tell whether what loops make is changed in a block, and whether a loop has made something."""
    changed = False
    for node in body:
        if isinstance(node, If):
            sides = [_scanned(side, array, made) for side in (node.body, node.orelse)]
            changed = changed or any(side[0] for side in sides)
            made = any(side[1] for side in sides)
        elif _writes(node, array):
            changed = changed or (made and not isinstance(node, Loop))
            made = made or isinstance(node, Loop)
    return changed, made


def _set_anew(node: Node) -> Access | None:
    """Return the cell that a statement sets, whatever was in it."""
    if not isinstance(node, Assign) or len(node.targets) != 1 or node.targets[0].rank:
        return None
    cell = node.targets[0]
    read = {p.access.array for v in node.values for p in walk_value(v) if isinstance(p, Read)}
    return None if cell.array in read else cell


def _last_loop(body: tuple[Node, ...], first: int, cell: Access) -> int | None:
    """Return the last loop that goes on with a cell, where what it leaves is changed behind it."""
    last = None
    for number in range(first + 1, len(body)):
        node = body[number]
        if not _writes(node, cell.array):
            continue
        if not isinstance(node, Loop):
            return last
        last = number
    return None


def _writes(node: Node, array: str) -> bool:
    return any(
        isinstance(inner, Assign) and any(t.array == array for t in inner.targets)
        for inner in nodes((node,))
    )


def _instead(cell: Access, kept: Access, access: Access) -> Access:
    return kept if access == cell else access


def _is_only(body: tuple[Node, ...], cell: Access) -> bool:
    """Tell whether all that nodes touch of an array is one cell."""
    inner = {each.variable for each in nodes(body) if isinstance(each, Loop)}
    if inner & {v for index in cell.indices for v in variables(index)}:
        return False
    touched: list[Access] = []

    def seen(access: Access) -> Access:
        touched.append(access)
        return access

    with_accesses(body, seen)
    return all(access == cell for access in touched if access.array == cell.array)
