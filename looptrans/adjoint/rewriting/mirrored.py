"""Statements that write another cell than the one an iteration works on, in a nest of their own.

    for i: for j in range(i, M):                    for i: for j in range(i, M):
        for k: s[i, j] += x[k, i] * x[k, j]             for k: s[i, j] += x[k, i] * x[k, j]
        s[j, i] = s[i, j]                     ->        t[i, j] = s[i, j]
                                                    for i: for j in range(i, M): s[j, i] = t[i, j]

So every nest finds the cells of an array in one way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.adjoint.carried.recurrences import again
from looptrans.analysis.api import dependences
from looptrans.ir.condition import is_of_indices
from looptrans.ir.creation import creation_of
from looptrans.ir.index import Index, Var, lets
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Declaration, If, Node, Program
from looptrans.ir.rewrite import rewritten
from looptrans.ir.value import Access, Create, Read
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import Placed, accesses, placed
from looptrans.transforms.editing.naming import fresh_name


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A program with such a statement in a nest of its own.

    Attributes:
        program: The program afterwards.
        cell: What the statement writes, as text.
        label: The statement.
    """

    program: Program
    cell: str
    label: str

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"set {self.cell} in a nest of its own"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = f"nothing in the nest touches a cell after {self.label} has written it"
        return Certificate("order", law, "legal", "all dependences in memory, by isl")


def with_mirrors_apart(program: Program) -> Mirrored | None:
    """Set cells that are not those of an iteration in a nest behind its own.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such statement, or something in the nest may
        touch a cell afterwards.
    """
    sites = placed(program)
    for site in reversed(sites):
        node = site.node
        if not isinstance(node, Assign) or not _is_of_its_loops(site, node):
            continue
        (cell,) = node.targets
        nest = [each for each in sites if each.position[0] == site.position[0]]
        others = {
            relation.access.subscripts
            for each in nest
            for relation in accesses(each.node)
            if relation.access.array == cell.array
        }
        if others <= {cell.subscripts} or not _comes_last(program, site, nest, cell.array):
            continue
        shape = program.array(cell.array).shape
        if all(extent is not None for extent in shape):
            return _apart(program, site, node, [each for each in shape if each is not None])
    return None


def _is_of_its_loops(site: Placed, node: Assign) -> bool:
    """Tell whether a statement writes one cell in each iteration, which the loops tell."""
    if len(node.targets) != 1 or len(node.values) != 1 or site.sections:
        return False
    (cell,) = node.targets
    names = [index.name for index in cell.indices if isinstance(index, Var)]
    around = [loop.variable for loop in site.loops]
    ends = [end for loop in site.loops for end in loop.range.ends]
    return (
        len(names) == len(cell.subscripts)
        and sorted(names) == sorted(around)
        and len(names) > 1
        and all(loop.is_plain for loop in site.loops)
        and not any(map(lets, ends))
        and all(map(is_of_indices, site.conditions))
    )


def _comes_last(program: Program, site: Placed, nest: list[Placed], array: str) -> bool:
    """Tell whether nothing in a nest touches a cell after a statement wrote it.

    Later iterations of the statement itself may write it again: that order stays.
    """
    found = dependences(program, bases=("memory",), arrays=(array,), witnesses=False)
    labels = {each.label for each in nest}
    behind = [each for each in found.dependences if each.source == site.label]
    return found.unknown is None and not any(
        each.sink in labels and (each.sink != site.label or each.kind == "flow") for each in behind
    )


def _apart(program: Program, site: Placed, node: Assign, shape: list[Index]) -> Mirrored:
    (cell,) = node.targets
    extents = {
        index.name: extent
        for index, extent in zip(cell.indices, shape, strict=True)
        if isinstance(index, Var)
    }
    around = [loop.variable for loop in site.loops]
    name = fresh_name(program, f"{cell.array}_kept")
    kept = Access(name, tuple(Var(variable) for variable in around))
    own = tuple(extents[variable] for variable in around)
    declared = Declaration(name, Create("zeros", own, None, _element(program, cell.array)))
    copied: Node = Assign("S", (cell,), (Read(kept),))
    for condition in reversed(site.conditions):
        copied = If(condition, (copied,))
    for loop in reversed(site.loops):
        copied = replace(loop, body=(copied,))

    def change(each: Node) -> tuple[Node, ...]:
        return (replace(node, targets=(kept,), augmented=False),) if each == node else (each,)

    place = site.position[0]
    before, nest, behind = program.body[:place], program.body[place], program.body[place + 1 :]
    body = (*before, declared, *rewritten((nest,), change), copied, *behind)
    changed = again(replace(program, body=body))
    return Mirrored(changed, access_text(cell), node.label)


def _element(program: Program, array: str) -> str | None:
    """Return what an array is created with that holds what another one does, exactly."""
    made = creation_of(program, array)
    if made is not None and made.element is not None:
        return made.element
    element = program.array(array).element
    return None if element == "float" else "int64" if element == "int" else element
