"""Arrays whose few cells are found by numbers, as the scalars they are.

    s = zeros(2)
    for i in range(0, M):                           for i in range(0, M):
        s[0] = -inf                                     s_0 = -inf
        s[1] = 0.0                          ->          s_1 = 0.0
        for j in range(0, N):                           for j in range(0, N):
            s[0] = max(s[0], S[i, j])                       s_0 = max(s_0, S[i, j])
            s[1] = s[1] + S[i, j]                           s_1 = s_1 + S[i, j]

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
from looptrans.ir.value import Access
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import live_out
from looptrans.transforms.editing.accesses import AccessSite, listed, sites_of
from looptrans.transforms.editing.naming import fresh_label, fresh_name


@dataclass(frozen=True, slots=True)
class OneCell:
    """A program with scalars in place of the cells of arrays.

    Attributes:
        program: The program afterwards.
        arrays: What is scalars now.
    """

    program: Program
    arrays: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"keep each cell of {listed(self.arrays)} in a scalar"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "every read gets the value that it got before"
        return Certificate("storage", law, "legal", "every access names one cell, by its number")


def with_single_cells_as_scalars(program: Program) -> OneCell | None:
    """Make scalars of the cells of local arrays that are found by numbers only.

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
        and _is_of_cells(program, array)
    ]
    for array in found:
        program = _with_scalars(program, array, made[array.name])
    return OneCell(program, tuple(array.name for array in found)) if found else None


def _is_of_cells(program: Program, array: Array) -> bool:
    """Tell whether an array of numbers is accessed cell by cell, each by its number."""
    sites = sites_of(program, array.name)
    return (
        array.role == "local"
        and array.element == "float"
        and array.rank > 0
        and bool(sites)
        and all(
            isinstance(at, Int) and isinstance(extent, Int) and 0 <= at.value < extent.value
            for site in sites
            for at, extent in zip(site.access.subscripts, array.shape, strict=True)
        )
    )


def _with_scalars(program: Program, array: Array, made: Declaration) -> Program:
    sites = sites_of(program, array.name)
    cells = dict.fromkeys(site.access for site in sites)
    names: dict[Access, str] = {}
    filled: list[Assign] = []
    first = int(fresh_label(program)[1:])
    for cell in cells:
        numbers = "_".join(str(at.value) for at in cell.indices if isinstance(at, Int))
        wish = array.name if len(cells) == 1 else f"{array.name}_{numbers}"
        names[cell] = wish if len(cells) == 1 else fresh_name(program, wish, names.values())
        value = first_value(made.creation)
        if value is not None and not _is_set_first([x for x in sites if x.access == cell]):
            label = f"S{first + len(filled)}"
            filled.append(Assign(label, (Access(names[cell], ()),), (value,)))

    def change(node: Node) -> tuple[Node, ...]:
        return tuple(filled) if node == made else (node,)

    def scalar(each: Access) -> Access:
        return Access(names[each], ()) if each in names else each

    body = rewritten(with_accesses(program.body, scalar), change)
    others = tuple(each for each in program.arrays if each.name != array.name)
    scalars = tuple(replace(array, name=name, rank=0, shape=()) for name in names.values())
    return replace(program, body=body, arrays=(*others, *scalars))


def _is_set_first(sites: Sequence[AccessSite]) -> bool:
    """Tell whether a statement sets a cell, always, before anything in its block reads it."""
    first = sites[0]
    block = first.place.position[:-1]
    return (
        first.relation.is_write
        and first.relation.condition == ALWAYS
        and all(site.place.position[: len(block)] == block for site in sites)
    )
