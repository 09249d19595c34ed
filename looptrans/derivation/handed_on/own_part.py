"""Parts of a table that an iteration works on, in an array of its own.

    for c: for i:                         for c: for r: U_part[r] = U[c * 64 + r]
        U[c * 64 + i] = b - sum(                 for i: U_part[i] = b - sum(
            U[c * 64 + j]          ->                       U_part[j]
            for j in range(i))                              for j in range(i))
                                                 for r: U[c * 64 + r] = U_part[r]

What an iteration keeps of a table is then no longer than the part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.analysis.api import is_written_once
from looptrans.analysis.kept_flow import flow_of
from looptrans.derivation.handed_on.handed import has_own_cells
from looptrans.derivation.handed_on.row_by_row import Table, along, row_exists, table_of
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import difference, is_same, total
from looptrans.ir.condition import ALWAYS, Condition
from looptrans.ir.creation import creation_of, first_value
from looptrans.ir.index import Index, Int, Var, substitute, variables
from looptrans.ir.program import Array, Assign, Declaration, If, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.step import same_names
from looptrans.ir.value import Access, Const, Range, Read, Value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import live_out
from looptrans.transforms.editing.accesses import AccessSite, sites_of
from looptrans.transforms.editing.extents import is_never_negative, stays_at_least_0
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_label, fresh_name
from looptrans.transforms.editing.tree import (
    LoopPath,
    in_loops,
    loops_around,
    replace_at,
    statements_in,
)


def own_part(program: Program, name: str) -> DerivationStep:
    """Keep the part of a table that an iteration works on in an array of its own.

    Args:
        program: The program.
        name: The table.

    Raises:
        NotDone: No iteration that waits for others works on a part of it alone.
    """
    part = _own(program, program.array(name))
    if part is None:
        raise NotDone(f"no iteration that waits for others has a part of {name} of its own")
    made = _parted(program, part)
    after, _ = finished(made, same_names(program, made))
    law = f"an iteration finds in its part of {name} what it would find in {name}"
    reason = "it is given what is there, looks at no other part, and leaves what it has made"
    shown = Certificate("storage", law, "legal", reason)
    text = f"keep the part of {name} that an iteration works on in an array of its own"
    return DerivationStep(text, "own part", (name,), program, done(after), (shown,))


@dataclass(frozen=True, slots=True)
class _Part:
    """What each iteration of a loop works on of a table.

    Attributes:
        table: The table.
        loop: The loop.
        outer: The variables of the loops around what that loop holds.
    """

    table: Table
    loop: LoopPath
    outer: frozenset[str]

    @property
    def kept(self) -> list[int]:
        """The dimensions that a part has."""
        indices = self.table.write.access.indices
        return [
            n
            for n, index in enumerate(indices)
            if n == self.table.axis or self.loop.variable not in variables(index)
        ]

    @property
    def shape(self) -> tuple[Index, ...]:
        """The extents of a part."""
        shape = [
            self.table.rows.stop if n == self.table.axis else self.table.array.shape[n]
            for n in self.kept
        ]
        return tuple(extent for extent in shape if extent is not None)

    def moved(self, access: Access, name: str) -> Access:
        """Return an access to the part for one to the table."""
        own = list(access.indices)
        own[self.table.axis] = difference(own[self.table.axis], self.table.base)
        return Access(name, tuple(own[n] for n in self.kept))

    def is_apart(self, program: Program) -> bool:
        """Tell whether parts of different iterations surely have no cell in common.

        So it is where, of the variables of the loops around, one after the other is the only new
        one of a subscript, and moves that at least as far as a part reaches there.
        """
        around = loops_around(program, self.table.loop)
        steps = {p.variable: p.loop.range.step for p in around if p.variable in self.outer}
        told: set[str] = set()
        while new := {v for v in steps.keys() - told if self._is_told(program, v, steps[v], told)}:
            told |= new
        return told == steps.keys()

    def _is_told(self, program: Program, name: str, step: int, told: set[str]) -> bool:
        """Tell whether parts are apart where a variable of a loop around differs."""
        table = self.table
        for n, index in enumerate(table.write.access.indices):
            first: Index = index
            length: Index = Int(1)
            if n == table.axis:
                first, length = table.base, difference(table.rows.stop, table.rows.start)
            if set(variables(first)) - told != {name}:
                continue
            moved = substitute(first, {name: total(Var(name), step)})
            for far in (difference(moved, first), difference(first, moved)):
                if is_never_negative(program, difference(far, length), {}):
                    return True
        return False

    def is_looked_at(self, program: Program) -> bool:
        """Tell whether something in the loop reads rows of the part in another loop than sets them.

        Where it is one loop, each of its iterations may have a row of its own.
        """
        depth, axis = len(self.loop.position), self.table.axis
        own = self.table.write.access.indices[axis]
        return any(
            not site.relation.is_write
            and site.place.position[:depth] == self.loop.position
            and (
                self.table.loop not in site.place.loop_positions or site.access.indices[axis] != own
            )
            for site in sites_of(program, self.table.array.name)
        )

    def is_own(self, program: Program, site: AccessSite) -> bool:
        """Tell whether an access inside of the loop is surely to the part."""
        if site.access.rank:
            return False
        pairs = enumerate(zip(self.table.write.access.indices, site.access.indices, strict=True))
        if not all(
            n == self.table.axis or not set(variables(own)) <= self.outer or is_same(own, index)
            for n, (own, index) in pairs
        ):
            return False
        row = difference(site.access.indices[self.table.axis], self.table.base)
        ranges = ranges_by_name((*site.place.loops, *site.relation.generators))
        rows = self.table.rows
        room = (difference(row, rows.start), total(difference(rows.stop, row), -1))
        return all(stays_at_least_0(program, end, ranges) for end in room)


def _own(program: Program, array: Array) -> _Part | None:
    """Return what each iteration of a loop works on of an array, rows of which look at others."""
    table = table_of(program, array)
    if table is not None:
        return _part(program, table)
    if not has_own_cells(program, array):
        return None
    for site in sites_of(program, array.name):
        if site.relation.is_write and not site.access.rank:
            for position, loop in zip(site.place.loop_positions, site.place.loops, strict=True):
                rows = along(array, site, position, loop)
                part = None if rows is None else _part(program, rows)
                if part is not None and part.is_looked_at(program):
                    return part
    return None


def _part(program: Program, table: Table) -> _Part | None:
    """Return what the iterations of a loop that wait for each other work on, each alone."""
    rows, name = table.rows, table.array.name
    if any(variables(end) for end in (rows.start, rows.stop)):
        return None
    if not is_never_negative(program, rows.start, {}):
        return None
    indices, own = table.write.access.indices, table.write.access.variables
    around = loops_around(program, table.loop)
    for path in reversed(around):
        if path.variable not in own or not _waits(program, path):
            continue
        depth = len(path.position)
        outer = frozenset(p.variable for p in around if len(p.position) <= depth)
        others = [
            i for n, i in enumerate(indices) if n != table.axis and path.variable in variables(i)
        ]
        if not all(outer.issuperset(variables(each)) for each in (table.base, *others)):
            return None
        found = _Part(table, path, outer)
        inside = [s for s in sites_of(program, name) if s.place.position[:depth] == path.position]
        return found if all(found.is_own(program, site) for site in inside) else None
    return None


def _waits(program: Program, path: LoopPath) -> bool:
    """Tell whether iterations of a loop find what others have left."""
    labels = set(statements_in((path.loop,)))
    flow = flow_of(program)
    return flow.unknown is not None or any(
        each.carried_by == path.variable and {each.source, each.sink} <= labels
        for each in flow.dependences
    )


def _parted(program: Program, part: _Part) -> Program:
    """Return a program with an array for the part of a table that an iteration works on."""
    table, path = part.table, part.loop
    array, depth = table.array, len(path.position)
    name = fresh_name(program, f"{array.name.replace('.', '_')}_part")
    sites = sites_of(program, array.name)
    elsewhere = any(site.place.position[:depth] != path.position for site in sites)
    first = _first(program, array.name, sites) if part.is_apart(program) else None
    seen = elsewhere or array.name in live_out(program) or first is None
    inside = with_accesses(
        path.loop.body, lambda each: part.moved(each, name) if each.array == array.name else each
    )
    number = int(fresh_label(program)[1:])
    own, whole, loops, asked = _cells(program, part, name)
    begun: tuple[Node, ...] = (Assign(f"S{number}", (own,), (first or Read(whole),)),)
    kept: tuple[Node, ...] = (Assign(f"S{number + 1}", (whole,), (Read(own),)),)
    if asked != ALWAYS:
        begun = begun if first is not None else (If(asked, begun),)
        kept = (If(asked, kept),)
    body = (*in_loops(loops, *begun), *inside, *(in_loops(loops, *kept) if seen else ()))
    after = replace_at(program, path.position, (replace(path.loop, body=body),))
    created = creation_of(program, array.name)
    assert created is not None
    creation = replace(created, shape=part.shape, element=None)
    body, arrays = after.body, after.arrays
    if not seen:
        body = tuple(n for n in body if not isinstance(n, Declaration) or n.array != array.name)
        arrays = tuple(each for each in arrays if each.name != array.name)
    made = Array(name, len(part.shape), "float", "local", part.shape)
    return replace(after, arrays=(*arrays, made), body=(Declaration(name, creation), *body))


def _first(program: Program, name: str, sites: tuple[AccessSite, ...]) -> Value | None:
    """Return what every cell of a table holds when an iteration begins; None if it is not known."""
    created = creation_of(program, name)
    fill = None if created is None else first_value(created)
    writes = [site for site in sites if site.relation.is_write]
    if isinstance(fill, Const) and len(writes) == 1 and is_written_once(program, name):
        return fill
    return None


def _cells(
    program: Program, part: _Part, name: str
) -> tuple[Access, Access, list[tuple[str, Range]], Condition]:
    """Return a cell of a part, the one of the table, the loops over all, and where there is one."""
    table = part.table
    subscripts = list(table.write.access.indices)
    loops: list[tuple[str, Range]] = []
    asked: Condition = ALWAYS
    for n, index in enumerate(subscripts):
        extent = table.array.shape[n]
        assert extent is not None
        taken = [each for each, _ in loops]
        if n == table.axis:
            row = fresh_name(program, "r", taken)
            loops.append((row, table.rows))
            subscripts[n] = substitute(index, {table.variable: Var(row)})
            asked = row_exists(program, table, subscripts[n], row)
        elif not set(variables(index)) <= part.outer:
            inner = next(each for each in variables(index) if each not in part.outer)
            loops.append((fresh_name(program, inner, taken), Range(Int(0), extent)))
            subscripts[n] = Var(loops[-1][0])
    whole = Access(table.array.name, tuple(subscripts))
    return part.moved(whole, name), whole, loops, asked
