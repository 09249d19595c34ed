"""The forward listing, made to return what the backward needs.

for i:                                       for i:
    …                                            …
    l = …              ->                        l = …
    …                                            lse[i] = m + log(l)

A number that is set under a guard only is handed over under the guard: it is read nowhere else.
Cells of an array that its loops leave alone keep what it was made with, and so does what is handed
over: an exponential of cells of `zeros` is 1 there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.adjoint.equations.recognition import unify
from looptrans.adjoint.reading.read import read
from looptrans.adjoint.reading.reading import Reading
from looptrans.adjoint.reading.state import Site
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.cells import value_moved
from looptrans.algebra.positional.numbers import NoNumber, evaluate
from looptrans.algebra.positional.values import is_number
from looptrans.frontend import parse
from looptrans.ir.index import Index, Var
from looptrans.ir.listing import listing
from looptrans.ir.monoids import OF_NOTHING
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.source import Source
from looptrans.ir.value import (
    Access,
    Const,
    Create,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Value,
    walk_value,
)
from looptrans.ir.walk import loops_in, placed
from looptrans.transforms.editing.extents import extent

Position = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Insertion:
    """A statement to be put behind a node, and the array it fills."""

    behind: Position
    statement: Assign
    made: Declaration


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a cell of a definition is known.

    Attributes:
        behind: The node behind which it is.
        cell: Its subscripts, by the variables of the loops there.
        value: What it is.
    """

    behind: Position
    cell: tuple[Index, ...]
    value: Value


@dataclass(slots=True)
class Saver:
    """Decides how what is saved leaves the forward listing.

    Attributes:
        program: The forward listing.
        reading: Its definitions as they were read.
        system: The definitions, those found later among them.
    """

    program: Program
    reading: Reading
    system: System

    def can(self, name: str) -> bool:
        """Tell whether the forward listing can hand over a definition."""
        if name in self.reading.outputs.values():
            return True
        return self._place(self.system.definitions[name]) is not None

    def holds(self, name: str) -> bool:
        """Tell whether an array of the forward listing holds a definition in the end."""
        return self._whole(name) is not None

    def extended(self, saved: list[str]) -> tuple[Program, dict[str, str]]:
        """Return the listing with what is saved behind its outputs, and what that is called."""
        names = {definition: name for name, definition in self.reading.outputs.items()}
        insertions = []
        added = []
        for name in saved:
            if name in names:
                continue
            definition = self.system.definitions[name]
            array = self._whole(name)
            if array is not None:
                names[name] = array
                added.append(array)
                continue
            place = self._place(definition)
            if place is None:
                raise NotDifferentiated(f"{name} cannot be handed over by the listing")
            site = self.reading.sites.get(name)
            shown = name if site is None else self.system.names.array(f"{site.array}_kept")
            if shown in self._taken():
                shown = self.system.names.array(f"{shown}_kept")
            names[name] = shown
            added.append(shown)
            statement = Assign("S", (Access(shown, place.cell),), (place.value,))
            extents = tuple(extent(self.program, each) for each in definition.extents)
            shape = Create("zeros", extents, None, "float32")
            insertions.append(_Insertion(place.behind, statement, Declaration(shown, shape)))
        if not added:
            return self.program, names
        wanted = {names[name]: name for name in saved if names[name] in added}
        while True:
            program = self._inserted(insertions, tuple(added))
            other = self._changed(program, wanted)
            if other is None:
                return program, names
            insertions = self._filled(insertions, other, wanted[other])

    def _filled(self, insertions: list[_Insertion], array: str, name: str) -> list[_Insertion]:
        """Let an array hold what a definition is where no iteration sets it.

        Raises:
            NotDifferentiated: That is not known, or is not what is missing.
        """
        fill = self._elsewhere(self.system.definitions[name])
        if not fill or any(i.made.array == array and i.made.creation.fill for i in insertions):
            raise NotDifferentiated(f"{name} changes before it could be handed over")
        made = [
            replace(i.made, creation=replace(i.made.creation, function="full", fill=Const(fill)))
            if i.made.array == array
            else i.made
            for i in insertions
        ]
        return [replace(i, made=own) for i, own in zip(insertions, made, strict=True)]

    def _taken(self) -> set[str]:
        taken = {a.name for a in self.program.arrays} | {p.name for p in self.program.parameters}
        taken |= {n.variable for n in loops_in(self.program.body)}
        return taken

    def _whole(self, name: str) -> str | None:
        """Return the array that holds a definition in the end, where one does.

        One of integers is copied: the backward pass takes what is saved as floating-point numbers.
        """
        site = self.reading.sites.get(name)
        if site is None or self.reading.last.get(site.array) != name:
            return None
        array = self.program.array(site.array)
        own = len(self.system.definitions[name].indices) == array.rank
        fits = array.role == "local" and array.element == "float"
        return site.array if own and array.rank and fits else None

    def _place(self, definition: Definition) -> _Place | None:
        """Return where a cell of a definition is known, and its value."""
        site = self.reading.sites.get(definition.name)
        if site is not None:
            loops = self._loops(site)
            if loops is None:
                return None
            return _Place(self._behind(site, len(loops)), _cell(site, loops), Read(site.target))
        accesses = [a for each in definition.reads().values() for a in each]
        if definition.has_reduction or not accesses:
            return None
        found: list[tuple[Position, tuple[Index, ...]]] = []
        cells: dict[Access, Access] = {}
        for access in accesses:
            own = self.reading.sites.get(access.array)
            if own is None or access.subscripts != definition.cell.access.subscripts:
                return None
            inner = self._loops(own)
            if inner is None:
                return None
            found.append((self._behind(own, len(inner)), _cell(own, inner)))
            cells[access] = own.target
        behind, cell = max(found, key=lambda each: each[0])
        if any(each[1] != cell or each[0][:-1] != behind[:-1] for each in found):
            return None
        if any(self._is_lost(self.reading.sites[access.array], behind) for access in accesses):
            return None

        def change(part: Value) -> Value | None:
            return Read(cells[part.access]) if isinstance(part, Read) else None

        here = dict(zip(definition.variables, cell, strict=True))
        return _Place(behind, cell, value_moved(replaced(definition.value, change), here))

    def _elsewhere(self, definition: Definition) -> float | None:
        """Return what cells of a definition are that no iteration sets.

        It is 0 where that is no number, or where only numbers are read, which are read nowhere
        else; None where it is not known.
        """
        own = definition.name in self.reading.sites
        arrays = [definition.name] if own else list(definition.reads())
        if not any(self.program.array(self.reading.sites[name].array).rank for name in arrays):
            return 0.0
        value = self._left_alone(definition.cell if own else definition.value)
        if any(isinstance(part, Read | Reduce | IndexValue | Real) for part in walk_value(value)):
            return None
        try:
            return float(evaluate(value, {}))
        except NoNumber:
            return 0.0

    def _left_alone(self, value: Value) -> Value:
        """Return a value with what cells are that no iteration sets: what their arrays hold first.

        A definition chooses that behind the bounds of its loops.
        """

        def change(part: Value) -> Value | None:
            match part:
                case Read(access) if access.array in self.reading.sites:
                    inner = self.system.definitions[access.array].value
                    return self._left_alone(inner.otherwise if isinstance(inner, Select) else inner)
                case Reduce(function):
                    return Const(OF_NOTHING[function]) if function in OF_NOTHING else None
            return None

        return replaced(value, change)

    def _behind(self, site: Site, count: int) -> Position:
        """Return the node behind which what a statement works out is read, in `count` loops.

        It is the one the statement is in, or one inside the guards without which nothing in these
        loops sets what it writes.
        """
        behind = site.behind(count)
        if self.program.array(site.array).rank:
            return behind
        own = [
            place.position
            for place in placed(self.program)
            if isinstance(place.node, Assign)
            and any(target.array == site.array for target in place.node.targets)
            and place.position[: len(behind) - 1] == behind[:-1]
        ]
        while len(behind) + 1 < len(site.position):
            arm = site.position[: len(behind) + 1]
            inside = all(position[: len(arm)] == arm for position in own)
            if not inside or not isinstance(_node_at(self.program.body, behind), If):
                break
            behind = site.position[: len(arm) + 1]
        return behind

    def _is_lost(self, site: Site, behind: Position) -> bool:
        """Tell whether what a statement works out is overwritten up to some place."""
        return any(
            other.array == site.array
            and other.position > site.position
            and other.position[: len(behind)] <= behind
            for other in self.reading.sites.values()
        )

    def _loops(self, site: Site) -> tuple[Loop, ...] | None:
        """Return the loops of a site's indices where they are the outermost around it."""
        outer = site.path[: len(site.indices)]
        if None in site.indices or set(outer) != set(site.indices):
            return None
        return tuple(_loop_at(self.program.body, p) for p in site.indices if p is not None)

    def _inserted(self, insertions: list[_Insertion], added: tuple[str, ...]) -> Program:
        by_place: dict[Position, list[Assign]] = {}
        for each in insertions:
            by_place.setdefault(each.behind, []).append(each.statement)
        whole = set(added) - {each.made.array for each in insertions}
        body = _put(precise(self.program.body, whole), (), by_place)
        body = (*(each.made for each in insertions), *body)
        outputs = (*self.program.outputs, *added)
        changed = replace(self.program, body=body, outputs=outputs)
        return parse(Source(f"<{self.program.name}>", listing(changed)))

    def _changed(self, program: Program, wanted: dict[str, str]) -> str | None:
        """Read the new listing again: return an array that is not what was meant, if one is not."""
        again, _ = read(program)
        for shown, name in wanted.items():
            definition = self.system.definitions[name]
            found = again.system.definitions[again.outputs[shown]]
            if self._whole(name) is not None:
                continue
            own = name in self.reading.sites
            meant: Value = definition.cell if own else definition.value
            cell: dict[str, Index] = {
                mine: Var(its)
                for mine, its in zip(definition.variables, found.variables, strict=True)
            }
            free = frozenset(definition.variables)
            held = found.value
            if not unify(meant, held, free, dict(cell)) and isinstance(held, Select):
                held = _guarded(again.system, held, shown, self._elsewhere(definition))
            if not unify(meant, held, free, cell):
                return shown
        return None


def _cell(site: Site, loops: tuple[Loop, ...]) -> tuple[Index, ...]:
    """Return the subscripts of a definition's cell: loops it is apart for, and its own."""
    own = site.target.indices
    return (*(Var(loop.variable) for loop in loops[: len(loops) - len(own)]), *own)


def _guarded(system: System, value: Select, array: str, elsewhere: float | None) -> Value:
    """Return what an array holds where a guard holds, if it holds what it should elsewhere."""
    if elsewhere is None or not is_number(value.otherwise, elsewhere):
        return value
    match value.chosen:
        case Read(access) if access.array in system.definitions:
            if system.definitions[access.array].array == array:
                return system.instance(access.array, access.indices)
    return value.chosen


def precise(body: tuple[Node, ...], names: Collection[str]) -> tuple[Node, ...]:
    """Return a block in which some arrays, that are only handed on, are not rounded as outputs."""
    return tuple(
        replace(node, creation=replace(node.creation, element="float32"))
        if isinstance(node, Declaration) and node.array in names and node.creation.element is None
        else node
        for node in body
    )


def _put(
    body: tuple[Node, ...], position: Position, statements: dict[Position, list[Assign]]
) -> tuple[Node, ...]:
    found: list[Node] = []
    for number, node in enumerate(body):
        here = (*position, number)
        match node:
            case Loop():
                found.append(replace(node, body=_put(node.body, here, statements)))
            case If():
                then = _put(node.body, (*here, 1), statements)
                other = _put(node.orelse, (*here, 2), statements)
                found.append(replace(node, body=then, orelse=other))
            case _:
                found.append(node)
        found += statements.get(here, ())
    return tuple(found)


def _loop_at(body: tuple[Node, ...], position: Position) -> Loop:
    node = _node_at(body, position)
    assert isinstance(node, Loop)
    return node


def _node_at(body: tuple[Node, ...], position: Position) -> Node:
    number, *rest = position
    node = body[number]
    if not rest:
        return node
    if isinstance(node, If):
        arm, *rest = rest
        return _node_at(node.body if arm == 1 else node.orelse, tuple(rest))
    assert isinstance(node, Loop)
    return _node_at(node.body, tuple(rest))
