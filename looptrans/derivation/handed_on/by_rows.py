"""Totals that rows add to, by way of what each row adds.

    for b: for t: s = 0.0                        for b: for t: s = 0.0
                  for v: s = s + …                             for v: s = s + …
                  loss = loss + log(s)    ->                   loss_part[b * T + t] = log(s)
                                                 for n: loss = loss + loss_part[n]

Rows that add to one number wait for each other, so one program would go over all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.algebra.free import freed
from looptrans.derivation.one_loop.writing import Writer, done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import about, multiplied, total
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Arith, Index, Int, Var, opaque_terms, variables
from looptrans.ir.listing import index_text
from looptrans.ir.monoids import MONOID_OF, OF_NOTHING, Folding
from looptrans.ir.operator import LEFT, OPERATORS, RIGHT
from looptrans.ir.program import Assign, Declaration, Loop, Node, Program
from looptrans.ir.rewrite import replaced, with_accesses
from looptrans.ir.value import Access, Const, Create, Range, Read, Reduce, Value, walk_value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import nodes, written, written_in
from looptrans.transforms.editing.accesses import listed, sites_of
from looptrans.transforms.editing.extents import is_never_negative
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import LoopPath, find_loop, loop_paths, replace_at


@dataclass(frozen=True, slots=True)
class Total:
    """A cell that rows only add to, or take the maximum or minimum of.

    Attributes:
        cell: The cell, the same for all rows.
        name: What it gathers: `sum`, `max` or `min`.
        updates: Labels of the statements that do so.
    """

    cell: Access
    name: Folding
    updates: tuple[str, ...]


def nests_with_totals(program: Program) -> Iterator[Loop]:
    """Yield the outermost loops whose rows gather something in one cell.

    Args:
        program: The program.
    """
    for path in loop_paths(program):
        is_outermost = len(path.position) == 1 and path.loop.execution == "sequential"
        if is_outermost and _rows(program, path) and _totals(program, path):
            yield path.loop


def by_rows(program: Program, loop: str) -> DerivationStep:
    """Let each row of a nest keep what it adds to a total, and add that up in a loop of its own.

    Args:
        program: The program.
        loop: The outermost loop of the nest. The rows are the iterations of it and of the loops
            that are the only thing in it, as far as there is a loop or a sum inside.

    Raises:
        NotDone: There are no rows, nothing that they only add to, or they wait for each other
            nevertheless.
    """
    path = find_loop(program, loop)
    rows = _rows(program, path) if len(path.position) == 1 else ()
    totals = _totals(program, path)
    if not rows or not totals:
        raise NotDone(f"{path.variable} has no rows that gather something in one cell")
    writer = Writer(program)
    place, count = _numbered(rows)
    declared: list[Declaration] = []
    cells: dict[Access, Access] = {}
    for each in totals:
        array = program.array(each.cell.array)
        name = writer.array(f"{array.name.replace('.', '_')}_part", (count,), array.element)
        cells[each.cell] = Access(name, (place,))
        declared.append(Declaration(name, _creation(each, count, array.element)))
    number = fresh_name(writer.program, "n")
    joins = tuple(_joined(writer, each, cells[each.cell].array, number) for each in totals)
    body = with_accesses(rows[-1].body, lambda access: cells.get(access, access))
    body = _set_once(body, {cell.array: cell for cell in cells.values()})
    inner: Node = replace(rows[-1], body=body)
    for row in reversed(rows[:-1]):
        inner = replace(row, body=(inner,))
    gather = Loop(number, Range(Int(0), count), joins)
    after = replace_at(writer.program, path.position, (inner, gather))
    after = done(replace(after, body=(*declared, *after.body)))
    for variable in (row.variable for row in rows):
        _require_free(after, variable, cells)
    names = listed([each.cell.array for each in totals])
    over = listed([row.variable for row in rows])
    operators = dict.fromkeys(MONOID_OF[each.name] for each in totals)
    shown = [
        Certificate(
            "storage",
            f"what an iteration of {over} adds to {names} is added once, by way of its own part",
            "legal",
            "from the text: nothing else in the nest looks at it",
        )
    ]
    for operator in operators:
        known = OPERATORS[operator].certificate
        assert known is not None
        shown.append(known)
    why = "equal over the reals, not bit for bit in floating point"
    law = f"values joined by {listed(tuple(operators))} may be joined in any order"
    shown.append(Certificate("rounding", law, "legal", why))
    text = f"each iteration of {over} keeps what it adds to {names}, which is added up afterwards"
    return DerivationStep(text, "by rows", (loop,), program, after, tuple(shown))


def _rows(program: Program, path: LoopPath) -> tuple[Loop, ...]:
    """Return the loops whose iterations are rows, outermost first.

    Pairs of rows, of which no argument or result has one number each, are no rows.
    """
    found: list[Loop] = []
    loop = path.loop
    while _counts(program, loop) and _holds_a_loop(loop):
        if found and not _has_room(program, (*found, loop)):
            break
        found.append(loop)
        match loop.body:
            case (Loop(execution="sequential") as inner,):
                loop = inner
            case _:
                break
    return tuple(found)


def _counts(program: Program, loop: Loop) -> bool:
    """Tell whether a loop counts from 0 to what is the same wherever it stands."""
    bounds = loop.range
    return (
        bounds.start == Int(0)
        and bounds.step == 1
        and not variables(bounds.stop)
        and not opaque_terms(bounds.stop)
        and is_never_negative(program, bounds.stop, {})
    )


def _has_room(program: Program, loops: tuple[Loop, ...]) -> bool:
    """Tell whether an argument or a result has the dimensions of some loops."""
    wanted = Counter(factor for loop in loops for factor in _factors(loop.range.stop))
    return any(
        wanted <= Counter(factor for extent in array.shape for factor in _factors(extent))
        for array in program.arrays
        if array.role == "input" or array.name in program.outputs
    )


def _factors(extent: Index | None) -> Iterator[str]:
    """Yield what is multiplied in an extent, each give or take a few: `B` and `T` of `B * T`."""
    match extent:
        case None:
            return
        case Arith("*", left, right):
            yield from _factors(left)
            yield from _factors(right)
        case _:
            yield index_text(about(extent))


def _holds_a_loop(loop: Loop) -> bool:
    return any(
        isinstance(node, Loop)
        or (
            isinstance(node, Assign)
            and any(isinstance(part, Reduce) for value in node.values for part in walk_value(value))
        )
        for node in nodes(loop.body)
    )


def _totals(program: Program, path: LoopPath) -> tuple[Total, ...]:
    """Return the cells that a nest only adds to, each in one way."""
    found = []
    for array in program.arrays:
        if array.role != "local" or array.name not in written(program):
            continue
        inside = [s for s in sites_of(program, array.name) if s.place.position[0] in path.position]
        cells = {site.access for site in inside}
        if len(cells) != 1:
            continue
        (cell,) = cells
        if cell.rank or any(variables(i) or opaque_terms(i) for i in cell.indices):
            continue
        ways = {_way(site.place.node, cell) for site in inside}
        (name, *others) = ways
        if name is None or others or (array.element != "float" and name != "sum"):
            continue
        labels = dict.fromkeys(site.place.label for site in inside)
        found.append(Total(cell, name, tuple(labels)))
    return tuple(found)


def _way(node: Node, cell: Access) -> Folding | None:
    """Return what a statement gathers in a cell; None where it does something else with it."""
    if not isinstance(node, Assign) or len(node.targets) != 1 or len(node.values) != 1:
        return None
    if node.targets[0] != cell:
        return None
    found = accumulation(cell, node.values[0])
    return None if found is None else found[0]


def _numbered(rows: tuple[Loop, ...]) -> tuple[Index, Index]:
    """Return which row an iteration is, counted through, and how many there are."""
    place: Index = Var(rows[0].variable)
    count = rows[0].range.stop
    for row in rows[1:]:
        place = total(multiplied(place, row.range.stop), Var(row.variable))
        count = multiplied(count, row.range.stop)
    return place, count


def _joined(writer: Writer, each: Total, parts: str, number: str) -> Assign:
    """Return the statement that joins the part of a row to a total."""
    part = Read(Access(parts, (Var(number),)))
    values: dict[Value, Value] = {LEFT: Read(each.cell), RIGHT: part}
    return writer.assign(each.cell, replaced(OPERATORS[MONOID_OF[each.name]].combine, values.get))


def _creation(each: Total, count: Index, element: str) -> Create:
    kind = None if element == "float" else "int64"
    if each.name == "sum":
        return Create("zeros", (count,), element=kind)
    return Create("full", (count,), Const(OF_NOTHING[each.name]), kind)


def _set_once(body: tuple[Node, ...], cells: dict[str, Access]) -> tuple[Node, ...]:
    """Set the part of a row at once where all that is added to it is one value."""

    def set_(node: Node) -> Node:
        if not isinstance(node, Assign) or node.targets[0].array not in cells:
            return node
        cell = cells[node.targets[0].array]
        every = [n for n in nodes(body) if isinstance(n, Assign) and cell in n.targets]
        added = accumulation(cell, node.values[0])
        if len(every) > 1 or added is None or added[2] != ALWAYS:
            return node
        return replace(node, values=(added[1],), augmented=False)

    return tuple(map(set_, body))


def _require_free(program: Program, variable: str, cells: dict[Access, Access]) -> None:
    """Require that the rows do not wait for each other any more.

    Raises:
        NotDone: The text does not show it.
    """
    parts = {cell.array for cell in cells.values()}
    for path in loop_paths(program):
        inside = written_in(path.loop.body)
        if path.variable == variable and parts <= inside and freed(program, path) is None:
            raise NotDone(f"the iterations of {variable} hand something else to each other")
