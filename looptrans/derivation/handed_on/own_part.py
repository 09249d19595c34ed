"""Parts of a table that an iteration fills and looks at, in an array of its own.

    for c: for i:                         for c: for r: U_part[r] = 0.0
        U[c * 64 + i] = b - sum(                 for i: U_part[i] = b - sum(
            U[c * 64 + j]          ->                       U_part[j]
            for j in range(i))                              for j in range(i))
                                                        U[c * 64 + i] = U_part[i]

What an iteration keeps of a table is then no longer than the part.
"""

from __future__ import annotations

from dataclasses import replace

from looptrans.analysis.api import is_written_once
from looptrans.analysis.kept_flow import flow_of
from looptrans.derivation.handed_on.row_by_row import Table, table_of
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import difference, is_same, total
from looptrans.ir.creation import creation_of, first_value
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.step import same_names
from looptrans.ir.value import Access, Const, Range, Read
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import live_out
from looptrans.transforms.editing.accesses import AccessSite, sites_of
from looptrans.transforms.editing.extents import extreme, is_never_negative
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_label, fresh_name
from looptrans.transforms.editing.tree import block_at, node_at, replace_at, statements_in


def own_part(program: Program, name: str) -> DerivationStep:
    """Keep the part of a table that an iteration fills in an array of its own.

    Args:
        program: The program.
        name: The table.

    Raises:
        NotDone: No iteration fills a part that it alone looks at, or it is not known what the cells
            hold before.
    """
    array = program.array(name)
    table = table_of(program, array)
    if table is None or not variables(table.base):
        raise NotDone(f"no iteration fills a part of {name} row by row")
    if not _waits(program, table):
        raise NotDone(f"no iteration that fills a part of {name} waits for the one before")
    rows = table.rows
    ends = (rows.start, rows.stop)
    if any(variables(end) for end in ends) or not is_never_negative(program, rows.start, {}):
        raise NotDone(f"how long a part of {name} is changes from iteration to iteration")
    created = creation_of(program, name)
    fill = None if created is None else first_value(created)
    writes = [site for site in sites_of(program, name) if site.relation.is_write]
    if not isinstance(fill, Const) or len(writes) > 1 or not is_written_once(program, name):
        raise NotDone(f"what {name} holds before a part is filled is not one number")
    made = _parted(program, table, fill)
    after, _ = finished(made, same_names(program, made))
    law = f"what an iteration looks at in its part of {name} it has set, or nobody has"
    reason = "no cell is set twice, and each iteration looks at cells of its own part"
    shown = Certificate("storage", law, "legal", reason)
    text = f"keep the part of {name} that an iteration fills in an array of its own"
    return DerivationStep(text, "own part", (name,), program, done(after), (shown,))


def _waits(program: Program, table: Table) -> bool:
    """Tell whether iterations that fill parts of a table find what others have left."""
    around = set(variables(table.base))
    labels = set(statements_in((node_at(program, table.loop[:1]),)))
    flow = flow_of(program)
    return flow.unknown is not None or any(
        each.carried_by in around and {each.source, each.sink} <= labels
        for each in flow.dependences
    )


def _parted(program: Program, table: Table, fill: Const) -> Program:
    """Return a program with an array for what an iteration fills of a table."""
    array, axis = table.array, table.axis
    sites = sites_of(program, array.name)
    parted: dict[tuple[str, Access], bool] = {}
    for site in sites:
        key = (site.place.label, site.access)
        parted[key] = parted.get(key, True) and _is_own(program, table, site)
    shape = tuple(table.rows.stop if n == axis else e for n, e in enumerate(array.shape))
    name = fresh_name(program, f"{array.name.replace('.', '_')}_part")
    part = Array(name, array.rank, "float", "local", shape)
    seen = array.name in live_out(program) or not all(parted.values())
    number = int(fresh_label(program)[1:])

    def moved(access: Access) -> Access:
        row = difference(access.indices[axis], table.base)
        return Access(name, (*access.indices[:axis], row, *access.indices[axis + 1 :]))

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign | If):
            return (node,)
        label = node.label or ""
        body, orelse = (node.body, node.orelse) if isinstance(node, If) else ((), ())
        bare = replace(node, body=(), orelse=()) if isinstance(node, If) else node
        (new,) = with_accesses((bare,), lambda a: moved(a) if parted.get((label, a)) else a)
        if isinstance(new, If):
            return (replace(new, body=body, orelse=orelse),)
        assert isinstance(new, Assign) and isinstance(node, Assign)
        new = replace(new, augmented=False)
        if label != table.write.place.label or not seen:
            return (new,)
        kept = Assign(f"S{number}", node.targets, (Read(new.targets[0]),))
        return (new, kept)

    *around, place = table.loop
    cell = moved(table.write.access)
    after = program
    for each in reversed(range(place, len(block_at(program, table.loop)))):
        at = (*around, each)
        after = replace_at(after, at, rewritten((node_at(program, at),), change))
    first = _filled(program, table, cell, shape, Assign(f"S{number + 1}", (cell,), (fill,)))
    after = replace_at(after, table.loop, (first, node_at(after, table.loop)))
    created = creation_of(program, array.name)
    assert created is not None
    creation = replace(created, shape=tuple(e for e in shape if e is not None), element=None)
    body, arrays = after.body, after.arrays
    if not seen:
        body = tuple(n for n in body if not isinstance(n, Declaration) or n.array != array.name)
        arrays = tuple(each for each in arrays if each.name != array.name)
    return replace(after, arrays=(*arrays, part), body=(Declaration(name, creation), *body))


def _filled(
    program: Program,
    table: Table,
    cell: Access,
    shape: tuple[Index | None, ...],
    node: Assign,
) -> Node:
    """Return loops over what an iteration sets of its part, that set it as it was created."""
    depth = len(table.loop)
    inner = {
        loop.variable
        for at, loop in zip(table.write.place.loop_positions, table.write.place.loops, strict=True)
        if len(at) >= depth
    }
    subscripts = list(cell.indices)
    loops: list[tuple[str, Range]] = []
    names: list[str] = []
    for axis, index in enumerate(cell.indices):
        own = [name for name in variables(index) if name in inner]
        extent = shape[axis]
        if own and extent is not None:
            names.append(fresh_name(program, own[0], names))
            subscripts[axis] = Var(names[-1])
            loops.append((names[-1], Range(Int(0), extent)))
    body: Node = replace(node, targets=(Access(cell.array, tuple(subscripts)),))
    for name, bounds in reversed(loops):
        body = Loop(name, bounds, (body,))
    return body


def _is_own(program: Program, table: Table, site: AccessSite) -> bool:
    """Tell whether an access is to the part that the iteration around the table's loop fills."""
    write, place = table.write, site.place
    *around, number = table.loop
    depth = len(around)
    if place.position[:depth] != (*around,) or place.position[depth] < number or site.access.rank:
        return False
    outer = zip(write.place.loop_positions, write.place.loops, strict=True)
    fixed = {loop.variable for at, loop in outer if len(at) <= depth}
    pairs = zip(write.access.indices, site.access.indices, strict=True)
    if not all(
        axis == table.axis or not set(variables(mine)) <= fixed or is_same(mine, index)
        for axis, (mine, index) in enumerate(pairs)
    ):
        return False
    row = difference(site.access.indices[table.axis], table.base)
    ranges = ranges_by_name((*place.loops, *site.relation.generators))
    room = (difference(row, table.rows.start), total(difference(table.rows.stop, row), -1))
    least = [extreme(end, ranges, "lowest") for end in room]
    return all(end is not None and is_never_negative(program, end, {}) for end in least)
