"""Tables whose rows look at rows made before, kept whole, each row put among the others.

    for i: for d:                        for i: for d:
        X[i, d] = b[i, d] - sum(             row = b[i, d] - sum(
            A[i, j] * X[j, d]      ->            A[i, j] * X[j, d] for j in range(N) if j < i)
            for j in range(i))               for r in range(N):
                                                 X[r, d] = row if r == i else X[r, d]

A row that looks at many others, as in a triangular system, finds them in the registers of one
program if all of them are a block of it, which each iteration sets anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from looptrans.algebra.positional.values import add, negative, summands
from looptrans.analysis.kept_flow import flow_of
from looptrans.derivation.handed_on.handed import has_own_cells
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import difference, is_same, total
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjunction
from looptrans.ir.index import Index, Int, Var, substitute, variables
from looptrans.ir.program import Array, Assign, If, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import replaced, rewritten
from looptrans.ir.step import same_names
from looptrans.ir.value import Access, Generator, Range, Read, Reduce, Select, Value, walk_value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import placed
from looptrans.transforms.editing.accesses import AccessSite, sites_of
from looptrans.transforms.editing.extents import is_never_negative, stays_at_least_0
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.naming import fresh_label, fresh_name
from looptrans.transforms.editing.tree import node_at, replace_at


def tables(program: Program) -> tuple[str, ...]:
    """Return the arrays whose rows look at several that iterations before have set."""
    return tuple(a.name for a in program.arrays if table_of(program, a) is not None)


def is_over_blocks(program: Program, name: str) -> bool:
    """Tell whether the loop that sets a table row by row begins where loops around it say."""
    table = table_of(program, program.array(name))
    loop = None if table is None else node_at(program, table.loop)
    return isinstance(loop, Loop) and bool(variables(loop.range.start))


def row_exists(program: Program, table: Table, at: Index, row: str) -> Condition:
    """Return where a table has a row: the last of several blocks may be in part.

    Args:
        program: The program.
        table: The table.
        at: The subscript of the row.
        row: The variable in it that goes over `table.rows`.
    """
    if table.base == Int(0):
        return ALWAYS
    extent = table.array.shape[table.axis]
    assert extent is not None
    ranges = ranges_by_name(table.write.place.loops)
    first = Relation(">=", at, Int(0))
    is_plain = is_never_negative(program, at, {**ranges, row: table.rows})
    return conjunction(*(() if is_plain else (first,)), Relation("<", at, extent))


def row_by_row(program: Program, name: str) -> DerivationStep:
    """Keep a table whole, and put each row among the others where it is set.

    Args:
        program: The program.
        name: The array.

    Raises:
        NotDone: Its rows do not look at several that iterations before have set.
    """
    table = table_of(program, program.array(name))
    if table is None:
        raise NotDone(f"no row of {name} looks at several that were set before")
    law = "a row that is chosen where it is, and left as it is elsewhere, is set alone"
    shown = Certificate("storage", law, "legal", "each cell is set to what it was, or to itself")
    made = _whole(program, table)
    after, _ = finished(made, same_names(program, made))
    text = f"keep {name} whole, and put each row of it among the others"
    return DerivationStep(text, "row by row", (name,), program, done(after), (shown,))


@dataclass(frozen=True, slots=True)
class Table:
    """An array that a loop sets row by row.

    Attributes:
        array: The array.
        write: Where it is set.
        loop: The position of the loop.
        axis: Which dimension goes with the loop.
        base: What the subscript there adds to the loop's variable.
        rows: What goes over the rows in the place of the loop's variable.
    """

    array: Array
    write: AccessSite
    loop: tuple[int, ...]
    variable: str
    axis: int
    base: Index
    rows: Range


def table_of(program: Program, array: Array) -> Table | None:
    """Return how a loop sets an array row by row, each looking at several set before."""
    if not has_own_cells(program, array):
        return None
    sites = sites_of(program, array.name)
    for site in sites:
        if site.relation.is_write and isinstance(site.place.node, Assign) and not site.access.rank:
            for position, loop in zip(site.place.loop_positions, site.place.loops, strict=True):
                found = along(array, site, position, loop)
                if (
                    found is not None
                    and any(_looks_around(found, each) for each in sites)
                    and _hands_on(program, found)
                ):
                    return found
    return None


def along(array: Array, write: AccessSite, position: tuple[int, ...], loop: Loop) -> Table | None:
    """Return an array as a table that a loop sets row by row, if it can be seen so.

    Args:
        array: The array.
        write: Where it is set.
        position: Where the loop stands.
        loop: The loop.
    """
    node = write.place.node
    if loop.execution == "parallel" or loop.range.step not in (1, -1):
        return None
    if not isinstance(node, Assign) or len(node.targets) > 1:
        return None
    axes = [n for n, i in enumerate(write.access.indices) if loop.variable in variables(i)]
    if len(axes) != 1:
        return None
    (axis,) = axes
    base = difference(write.access.indices[axis], Var(loop.variable))
    depth = len(position)
    inside = {
        each.variable
        for at, each in zip(write.place.loop_positions, write.place.loops, strict=True)
        if len(at) >= depth
    }
    if inside & set(variables(base)):
        return None
    extent = array.shape[axis]
    assert extent is not None
    rows = Range(Int(0), extent) if base == Int(0) else _upward(loop.range)
    return Table(array, write, position, loop.variable, axis, base, rows)


def _upward(bounds: Range) -> Range:
    """Return the range of a loop in steps of 1 or -1 that goes upward over the same."""
    if bounds.step == 1:
        return bounds
    return Range(total(bounds.stop, 1), total(bounds.start, 1))


def _looks_around(table: Table, read: AccessSite) -> bool:
    """Tell whether an iteration looks at several rows of a table."""
    depth = len(table.loop)
    if read.relation.is_write or read.place.position[:depth] != table.loop or read.access.rank:
        return False
    places = zip(read.place.loop_positions, read.place.loops, strict=True)
    inner = {loop.variable for at, loop in places if len(at) > depth}
    inner |= {each.variable for each in read.relation.generators}
    return bool(inner & set(variables(read.access.indices[table.axis])))


def _hands_on(program: Program, table: Table) -> bool:
    """Tell whether rows find what iterations of the loop before have set."""
    flow = flow_of(program, array=table.array.name)
    return flow.unknown is None and any(
        each.source == table.write.place.label and each.carried_by == table.variable
        for each in flow.dependences
    )


def _whole(program: Program, table: Table) -> Program:
    """Return a program that keeps a table whole."""
    loop = node_at(program, table.loop)
    assert isinstance(loop, Loop)
    places = {place.label: place for place in placed(program)}
    row = fresh_name(program, f"{table.array.name.replace('.', '_')}_row")
    number = int(fresh_label(program)[1:])

    def change(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign):
            return (node,)
        around = ranges_by_name(places[node.label].loops)
        values = tuple(_widened(program, table, value, around) for value in node.values)
        node = replace(node, values=values, augmented=False)
        if node.label != table.write.place.label:
            return (node,)
        return _among(program, table, node, row, f"S{number}")

    inside = replace(loop, body=rewritten(loop.body, change))
    after = replace_at(program, table.loop, (inside,))
    scalar = Array(row, 0, "float", "local", ())
    return replace(after, arrays=(*after.arrays, scalar))


def _widened(program: Program, table: Table, value: Value, around: Mapping[str, Range]) -> Value:
    """Return a value with sums over rows of a table as sums over all of them."""

    def change(part: Value) -> Value | None:
        if not isinstance(part, Reduce):
            return None
        found = [_wide(program, table, each, part.body, around) for each in part.generators]
        return Reduce(part.function, tuple(found), replaced(part.body, change))

    return replaced(value, change)


def _wide(
    program: Program, table: Table, generator: Generator, body: Value, around: Mapping[str, Range]
) -> Generator:
    """Return the variable of a sum over rows of a table over all rows, under a condition."""
    name, bounds, rows = generator.variable, generator.range, table.rows
    looks = any(
        isinstance(part, Read)
        and part.access.array == table.array.name
        and not part.access.rank
        and is_same(part.access.indices[table.axis], total(table.base, Var(name)))
        for part in walk_value(body)
    )
    ends = (difference(bounds.start, rows.start), difference(rows.stop, bounds.stop))
    inside = all(stays_at_least_0(program, end, around) for end in ends)
    if not looks or bounds.step != 1 or not inside:
        return generator
    asked = [Relation("<=", bounds.start, Var(name)), Relation("<", Var(name), bounds.stop)]
    kept = [relation for relation, end in zip(asked, ends, strict=True) if end != Int(0)]
    return Generator(name, rows, conjunction(*kept, generator.condition))


def _among(program: Program, table: Table, node: Assign, row: str, label: str) -> tuple[Node, ...]:
    """Return the statement that sets a row as one that puts it among the others."""
    (target,), (value,) = node.targets, node.values
    name = fresh_name(program, "r")
    subscripts: list[Index] = list(target.indices)
    moved = {table.variable: Var(name)}
    subscripts[table.axis] = substitute(subscripts[table.axis], moved)
    cell = Access(target.array, tuple(subscripts))
    scalar = Access(row, ())
    terms = summands(value)
    own = next((n for n, term in enumerate(terms) if term == (1, Read(target))), None)
    chosen: Value = Read(scalar)
    if own is not None and len(terms) > 1:
        rest = [t if sign > 0 else negative(t) for sign, t in (*terms[:own], *terms[own + 1 :])]
        value, chosen = add(*rest), add(Read(cell), Read(scalar))
    chosen = Select(Relation("==", Var(name), Var(table.variable)), chosen, Read(cell))
    made = replace(node, targets=(scalar,), values=(value,))
    put = replace(node, label=label, targets=(cell,), values=(chosen,), comment="", leading=())
    asked = row_exists(program, table, subscripts[table.axis], name)
    inside: Node = put if asked == ALWAYS else If(asked, (put,))
    return (made, Loop(name, table.rows, (inside,)))
