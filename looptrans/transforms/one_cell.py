"""Arrays of a single cell, as the scalars they are.

    m = full(1, -inf)                               for i in range(0, M):
    for i in range(0, M):                               m = -inf
        m[0] = -inf                         ->          for j in range(0, N):
        for j in range(0, N):                               m = max(m, S[i, j])
            m[0] = max(m[0], S[i, j])

Of a scalar it is seen that each iteration sets one of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from looptrans.ir.condition import ALWAYS
from looptrans.ir.creation import first_value
from looptrans.ir.index import Int
from looptrans.ir.program import Array, Assign, Declaration, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.value import Access, Create
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import live_out
from looptrans.transforms.accesses import AccessSite, listed, sites_of
from looptrans.transforms.naming import fresh_label


@dataclass(frozen=True, slots=True)
class OneCell:
    """A program with scalars in place of arrays of one cell.

    Attributes:
        program: The program afterwards.
        arrays: What is scalars now.
    """

    program: Program
    arrays: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"see {listed(self.arrays)}, of one cell, as what it holds"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "every read gets the value that it got before"
        return Certificate("storage", law, "legal", "an array of one cell is one number")


def with_single_cells_as_scalars(program: Program) -> OneCell | None:
    """Make scalars of local arrays of one cell.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such array.
    """
    made = {node.array: node for node in program.body if isinstance(node, Declaration)}
    outside = live_out(program)
    found = [
        array
        for array in program.arrays
        if array.name in made
        and array.name not in outside
        and made[array.name].creation.element is None
        and _is_cell(program, array)
    ]
    for array in found:
        program = _with_scalar(program, array, made[array.name].creation)
    return OneCell(program, tuple(array.name for array in found)) if found else None


def _is_cell(program: Program, array: Array) -> bool:
    """Tell whether an array of numbers has one cell, and nothing else is done with it."""
    sites = sites_of(program, array.name)
    return (
        array.role == "local"
        and array.element == "float"
        and array.rank > 0
        and all(extent == Int(1) for extent in array.shape)
        and bool(sites)
        and all(set(site.access.subscripts) == {Int(0)} for site in sites)
    )


def _with_scalar(program: Program, array: Array, creation: Create) -> Program:
    is_set = _is_set_first(sites_of(program, array.name))
    value = None if is_set else first_value(creation)
    scalar = Access(array.name, ())
    label = fresh_label(program)

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Declaration) or node.array != array.name:
            return (node,)
        if value is None:
            return ()
        return (Assign(label, (scalar,), (value,), leading=node.leading, comment=node.comment),)

    body = with_accesses(program.body, lambda each: scalar if each.array == array.name else each)
    arrays = tuple(
        replace(each, rank=0, shape=()) if each.name == array.name else each
        for each in program.arrays
    )
    return replace(program, body=rewritten(body, change), arrays=arrays)


def _is_set_first(sites: Sequence[AccessSite]) -> bool:
    """Tell whether a statement sets a cell, always, before anything in its block reads it."""
    first = sites[0]
    block = first.place.position[:-1]
    return (
        first.relation.is_write
        and first.relation.condition == ALWAYS
        and all(site.place.position[: len(block)] == block for site in sites)
    )
