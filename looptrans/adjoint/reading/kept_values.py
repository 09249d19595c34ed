"""What a loop inside makes, kept where the iteration changes it afterwards.

for e: s = s + q[e] * k[e]        for e: s = s + q[e] * k[e]
s = s * scale               ->    s_made = s
m = max(m, s)                     s = s * scale
                                  m = max(m, s)              m is max_j(s_made * scale)

A closed form stands behind the iteration: there `s` is no longer what the loop has made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.reading.closed_nodes import NotClosed
from looptrans.algebra.iterations.edges import NoRecurrence, Position
from looptrans.algebra.iterations.held import Found
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.positional.cells import Family
from looptrans.ir.condition import Condition, opposite
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import Access, Const, Read, Real, Select, Value, walk_value
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import walk_positions


@dataclass(frozen=True, slots=True)
class Kept:
    """What loops inside make and the iteration changes afterwards.

    Attributes:
        copies: For each loop inside the statements that keep what it has made.
        lost: The names of what would have to be kept for each iteration of a loop inside, with the
            cell.
    """

    copies: Mapping[Position, tuple[Assign, ...]]
    lost: Mapping[str, str]

    def written(self, iteration: Iteration, step: Recurrence) -> Loop:
        """Return the loop of an iteration with the copies that a recurrence reads.

        Raises:
            NotClosed: It reads what could not be kept.
        """
        values = [item.value for item in (*step.inputs, *step.parameters)]
        parts = [part for value in values for part in walk_value(value)]
        read = {part.access.array for part in parts if isinstance(part, Read)}
        for name in sorted(read & set(self.lost)):
            cell = self.lost[name]
            raise NotClosed(f"a loop inside makes {cell}, and the iteration changes it")
        copies = {
            maker: [copy for copy in made if copy.targets[0].array in read]
            for maker, made in self.copies.items()
        }
        firsts = tuple(
            replace(copy, values=(Const(0.0),))
            for maker, made in copies.items()
            if len(maker) > len(iteration.position) + 1
            for copy in made
        )
        body = _with(iteration.loop.body, iteration.position, copies)
        return replace(iteration.loop, body=(*firsts, *body))


def keep(program: Program, iteration: Iteration) -> Kept:
    """Let an iteration find what its loops make under names of their own, where it changes that.

    Args:
        program: The listing.
        iteration: The iteration, carried out; the cells of what it found change.
    """
    names: dict[tuple[Position, Access], str] = {}
    copies: dict[Position, tuple[Assign, ...]] = {}
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
            else:
                copy = Assign("S", (Access(names[key], ()),), (Read(access),))
                copies[found.maker] = (*copies.get(found.maker, ()), copy)
        kept = Family(Access(names[key], ()), ())
        iteration.found[found.name] = replace(found, family=kept)
    return Kept(copies, lost)


def _is_changed(found: Found, iteration: Iteration) -> bool:
    """Tell whether a cell holds something else at the end of the iteration."""
    try:
        last = iteration.holds(found.family.access, dict(found.family.over))
    except NoRecurrence:
        return True
    if last is not None and found.family.access.subscripts:
        return _where(last.value, _guards(found.maker, iteration)) != Real(found.name)
    return last is None or last.value != Real(found.name)


def _where(value: Value, holding: Collection[Condition]) -> Value:
    """Return what a value is where some conditions hold, as far as its choices are by them."""
    match value:
        case Select(condition, chosen, _) if condition in holding:
            return _where(chosen, holding)
        case Select(condition, _, otherwise) if opposite(condition) in holding:
            return _where(otherwise, holding)
        case _:
            return value


def _guards(maker: Position, iteration: Iteration) -> tuple[Condition, ...]:
    """Return the conditions under which an iteration comes to a loop inside."""
    return tuple(
        node.condition if maker[len(place)] == 1 else opposite(node.condition)
        for place, node in walk_positions(iteration.loop.body, iteration.position)
        if isinstance(node, If) and place == maker[: len(place)]
    )


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
