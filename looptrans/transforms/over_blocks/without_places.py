"""Arrays that hold something for each place in a block, without that dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from looptrans.ir.creation import first_value
from looptrans.ir.program import Array, Assign, Declaration, If, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.value import Access, Create
from looptrans.ir.walk import AccessRelation, accesses, nodes

T = TypeVar("T")


def dimensions_gone(
    body: tuple[Node, ...], cells: Mapping[str, int], blocks: list[str]
) -> dict[str, frozenset[int]]:
    """Return which dimensions what holds something for each element or block can do without.

    All of them, where an element sets its only cell before it looks at it.
    """
    found: dict[str, frozenset[int]] = {}
    for array in (*cells, *blocks):
        uses = _uses(body, array)
        if uses[0].is_write and len({use.access for use in uses}) == 1:
            found[array] = frozenset(range(len(uses[0].access.subscripts)))
        elif array in cells:
            found[array] = frozenset((cells[array],))
    return found


def _uses(body: tuple[Node, ...], array: str) -> list[AccessRelation]:
    """Return the accesses to an array in order, but those that make all of it."""
    return [
        relation
        for node in nodes(body)
        if isinstance(node, Assign | If)
        for relation in sorted(accesses(node), key=lambda relation: relation.is_write)
        if relation.access.array == array and not is_made(relation.access)
    ]


def is_made(access: Access) -> bool:
    """Tell whether an access is to a whole array, which is made there."""
    return 0 < access.rank == len(access.subscripts)


def without_places(body: tuple[Node, ...], gone: Mapping[str, frozenset[int]]) -> tuple[Node, ...]:
    """Leave the place in a block out of the subscripts of what holds something for each."""

    def change(access: Access) -> Access:
        if access.array not in gone or is_made(access):
            return access
        return Access(access.array, _without(access.subscripts, gone[access.array]))

    return with_accesses(body, change)


def without_dimensions(program: Program, gone: Mapping[str, frozenset[int]]) -> Program:
    """Take dimensions off arrays, and leave out where they are made if that was all they had.

    What is looked at before it is set keeps its first value.
    """

    def create(created: Create, array: str) -> Create | None:
        shape = _without(created.shape, gone[array])
        return replace(created, shape=shape) if shape else None

    def change(node: Node) -> tuple[Node, ...]:
        match node:
            case Declaration(array, created) if array in gone:
                made = create(created, array)
                return () if made is None else (replace(node, creation=made),)
            case Assign(targets=(target,), values=(Create() as created,)) if target.array in gone:
                made = create(created, target.array)
                if made is None:
                    first = first_value(created)
                    if first is None or _uses(program.body, target.array)[0].is_write:
                        return ()
                    return (replace(node, targets=(Access(target.array, ()),), values=(first,)),)
                whole = Access(target.array, target.subscripts[: len(made.shape)])
                return (replace(node, targets=(whole,), values=(made,)),)
            case _:
                return (node,)

    def array(each: Array) -> Array:
        if each.name not in gone:
            return each
        shape = _without(each.shape, gone[each.name])
        return replace(each, rank=len(shape), shape=shape, annotation=None)

    arrays = tuple(map(array, program.arrays))
    return replace(program, body=rewritten(program.body, change), arrays=arrays)


def _without(parts: tuple[T, ...], gone: frozenset[int]) -> tuple[T, ...]:
    return tuple(part for number, part in enumerate(parts) if number not in gone)
