"""What a loop inside makes, kept where the iteration changes it afterwards.

for e: s = s + q[e] * k[e]        for e: s = s + q[e] * k[e]
s = s * scale               ->    s_made = s
m = max(m, s)                     s = s * scale
                                  m = max(m, s)              m is max_j(s_made * scale)

A closed form stands behind the iteration: there `s` is no longer what the loop has made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from looptrans.adjoint.closed_nodes import NotClosed
from looptrans.algebra.cells import Family
from looptrans.algebra.iteration import Found, Iteration, NoRecurrence, Position
from looptrans.algebra.recurrence import Recurrence
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.value import Access, Const, Read, Real, walk_value
from looptrans.transforms.naming import fresh_name


def keep(program: Program, iteration: Iteration) -> dict[str, str]:
    """Let an iteration keep what its loops make under names of their own, where it changes that.

    Args:
        program: The listing.
        iteration: The iteration, carried out; its loop and the cells of what it found change.

    Returns:
        The names of what would have to be kept for each iteration of a loop inside, with the cell.
    """
    names: dict[tuple[Position, Access], str] = {}
    copies: dict[Position, list[Assign]] = {}
    lost: dict[str, str] = {}
    for found in list(iteration.found.values()):
        if not found.made or not _is_changed(found, iteration):
            continue
        access = found.family.access
        key = (found.maker, access)
        if key not in names:
            wish = f"{access.array}_made"
            names[key] = fresh_name(program, wish, names.values())
            if found.family.over or access.rank or _is_inside(found.maker, iteration):
                lost[names[key]] = access_text(access)
            copy = Assign("S", (Access(names[key], ()),), (Read(access),))
            copies.setdefault(found.maker, []).append(copy)
        kept = Family(Access(names[key], ()), ())
        iteration.found[found.name] = replace(found, family=kept)
    if copies:
        body = _with(iteration.loop.body, iteration.position, copies)
        firsts = tuple(
            replace(copy, values=(Const(0.0),))
            for maker, made in copies.items()
            if len(maker) > len(iteration.position) + 1
            for copy in made
        )
        iteration.loop = replace(iteration.loop, body=(*firsts, *body))
    return lost


def require_kept(step: Recurrence, lost: Mapping[str, str]) -> None:
    """Require that a recurrence reads nothing that could not be kept.

    Raises:
        NotClosed: It does.
    """
    for item in (*step.inputs, *step.parameters):
        for part in walk_value(item.value):
            if isinstance(part, Read) and part.access.array in lost:
                cell = lost[part.access.array]
                raise NotClosed(f"a loop inside makes {cell}, and the iteration changes it")


def _is_changed(found: Found, iteration: Iteration) -> bool:
    """Tell whether a cell holds something else at the end of the iteration."""
    try:
        last = iteration.holds(found.family.access, dict(found.family.over))
    except NoRecurrence:
        return True
    return last is None or last.value != Real(found.name)


def _is_inside(maker: Position, iteration: Iteration) -> bool:
    """Tell whether a loop stands in another one of the iteration."""
    body: tuple[Node, ...] = iteration.loop.body
    rest = list(maker[len(iteration.position) :])
    while len(rest) > 1:
        node = body[rest.pop(0)]
        if not isinstance(node, If):
            return True
        body = node.body if rest.pop(0) == 1 else node.orelse
    return False


def _with(
    body: tuple[Node, ...], position: Position, copies: Mapping[Position, list[Assign]]
) -> tuple[Node, ...]:
    """Return a block with copies behind the loops that make what they hold."""
    found: list[Node] = []
    for number, node in enumerate(body):
        here = (*position, number)
        inner = node
        if isinstance(node, If):
            then = _with(node.body, (*here, 1), copies)
            inner = replace(node, body=then, orelse=_with(node.orelse, (*here, 2), copies))
        found += [inner, *copies.get(here, ())]
    return tuple(found)
