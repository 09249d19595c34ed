"""Cells that an iteration sets in several steps, kept in a scalar until the last of them.

    for t: h[t] = x[t]                                    for t: s = x[t]
           if t > 0: h[t] = h[t] + a[t] * h[t - 1]   ->          if t > 0: s = s + a[t] * h[t - 1]
                                                                 h[t] = s

One statement sets what the next iteration reads then, and sets it once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.affine import difference
from looptrans.ir.condition import is_data_dependent
from looptrans.ir.creation import creation_of
from looptrans.ir.index import Int
from looptrans.ir.program import Assign, If, Node, Program
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.value import Access, Read, Whole
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, nodes, written_in
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.naming import fresh_label, fresh_name
from looptrans.transforms.editing.tree import loop_paths, replace_at


@dataclass(frozen=True, slots=True)
class CellsInSteps:
    """A program whose iterations set each cell once.

    Attributes:
        program: The program afterwards.
        arrays: What they are cells of.
    """

    program: Program
    arrays: tuple[str, ...]

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"set cells of {listed(self.arrays)} once in each iteration"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "every read gets the value that it got before"
        reason = "no other cell is written in between, and the first step reads nothing of this one"
        return Certificate("storage", law, "legal", reason)


def with_cells_set_once(program: Program) -> CellsInSteps | None:
    """Keep in scalars what iterations set in steps under guards, and hand on.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there are no such cells.
    """
    changed: list[str] = []
    for array in program.arrays:
        creation = creation_of(program, array.name)
        if array.role != "local" or array.element != "float" or not array.rank:
            continue
        if creation is None or creation.element is not None:
            continue
        for path in loop_paths(program):
            steps = _steps(path.loop.body, array.name)
            if steps is None or path.loop.execution != "sequential":
                continue
            scalar = fresh_name(program, f"{array.name.replace('.', '_')}_now")
            body = _with_scalar(path.loop.body, steps, scalar, fresh_label(program))
            own = replace(array, name=scalar, rank=0, shape=(), annotation=None)
            program = replace_at(program, path.position, (replace(path.loop, body=body),))
            program = replace(program, arrays=(*program.arrays, own))
            changed.append(array.name)
    return CellsInSteps(program, tuple(dict.fromkeys(changed))) if changed else None


@dataclass(frozen=True, slots=True)
class _Steps:
    """What sets a cell in a block.

    Attributes:
        cell: The cell.
        first: The number of the first statement or guard that does.
        last: That of the last one.
    """

    cell: Access
    first: int
    last: int


def _steps(body: tuple[Node, ...], array: str) -> _Steps | None:
    """Return the steps that set one cell of an array in a block, some under a guard, if any do."""
    at = [n for n, node in enumerate(body) if array in written_in((node,))]
    if not at or not any(isinstance(body[n], If) for n in at):
        return None
    first = body[at[0]]
    if len(at) == 1 and not (isinstance(first, If) and is_data_dependent(first.condition)):
        return None
    inside = tuple(nodes(body[at[0] : at[-1] + 1]))
    if not all(isinstance(node, Assign | If) for node in inside):
        return None
    sites = [
        each
        for node in inside
        if isinstance(node, Assign | If)
        for each in accesses(node)
        if each.access.array == array
    ]
    cells = {each.access for each in sites if each.is_write}
    others = {each.access for each in sites} - cells
    if len(cells) != 1 or not others or not _sets(body[at[0] : at[-1] + 1], *cells):
        return None
    (cell,) = cells
    return _Steps(cell, at[0], at[-1]) if all(_is_apart(cell, each) for each in others) else None


def _is_apart(one: Access, other: Access) -> bool:
    """Tell whether two cells are plainly two."""
    if any(isinstance(each, Whole) for each in (*one.subscripts, *other.subscripts)):
        return False
    apart = (difference(a, b) for a, b in zip(one.indices, other.indices, strict=True))
    return any(isinstance(each, Int) and each.value for each in apart)


def _sets(body: tuple[Node, ...], cell: Access) -> bool:
    """Tell whether a block sets a cell, whatever its guards say, before it reads it."""
    for node in body:
        if not isinstance(node, Assign | If):
            return False
        sites = [each for each in accesses(node) if each.access == cell]
        if any(not each.is_write for each in sites):
            return False
        if isinstance(node, Assign) and sites:
            return True
        if isinstance(node, If) and cell.array in written_in((node,)):
            return _sets(node.body, cell) and _sets(node.orelse, cell)
    return False


def _with_scalar(
    body: tuple[Node, ...], steps: _Steps, scalar: str, label: str
) -> tuple[Node, ...]:
    """Return a block whose steps set a scalar, and then the cell."""
    inside = with_accesses(
        body[steps.first : steps.last + 1],
        lambda access: Access(scalar, ()) if access == steps.cell else access,
    )
    kept = Assign(label, (steps.cell,), (Read(Access(scalar, ())),))
    return (*body[: steps.first], *inside, kept, *body[steps.last + 1 :])
