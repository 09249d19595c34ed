"""Loops whose iterations have nothing to do with each other, told from the text.

    for i: m = -inf                       every iteration of i sets its own m before it reads it,
           for j: m = max(m, x[i, j])     and y[i] is touched by that iteration only:
           y[i] = m                       i is free once m is private to it

    for b: for i in range(cu[b], …):      rows of two b are never the same, where a contract says
               y[i] = …                   that cu does not fall: b is free

What is said here holds; what is not said may hold as well, and is then asked of isl.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from looptrans.algebra.positional.cells import is_own_cell
from looptrans.analysis.opaque_terms.killing import goes_over_before
from looptrans.ir.affine import Form, difference, form_of, index_of, product, sides, total
from looptrans.ir.condition import ALWAYS
from looptrans.ir.facts import DependenceReport
from looptrans.ir.index import Arith, Index, Int, Param, Var
from looptrans.ir.index import variables as index_variables
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.value import Create, Range, Subscript, Whole
from looptrans.ir.walk import live_out, nodes, placed
from looptrans.transforms.editing.accesses import AccessSite, sites_of
from looptrans.transforms.editing.extents import extreme, is_never_negative
from looptrans.transforms.editing.own_scalars import own_scalars
from looptrans.transforms.editing.tree import LoopPath, Position, loop_paths, loops_around
from looptrans.transforms.rows.segments import Rows, Segments, is_over_all, rows_of, segments_of

_PLAIN = (Assign, Declaration, If, Loop)


@dataclass(frozen=True, slots=True)
class Free:
    """A loop whose iterations may run in any order.

    Attributes:
        path: The loop.
        private: What must be private to its iterations, in order of first appearance.
        own: The arrays whose cells each iteration has to itself.
        contracts: What that leans on, as written.
    """

    path: LoopPath
    private: tuple[str, ...]
    own: tuple[str, ...]
    contracts: tuple[str, ...] = ()


def free_loops(program: Program, flow: DependenceReport) -> tuple[Free, ...] | None:
    """Return the sequential loops that carry no flow, where the text shows that they are free.

    Args:
        program: The program.
        flow: Its exact flow.

    Returns:
        The loops in the order of the text; None where the text does not tell of one of them.
    """
    carrying = carrying_loops(program, flow)
    found = []
    for path in loop_paths(program):
        if path.loop.execution != "sequential":
            continue
        # Flow through rows that are chosen by arrays is not exact: the text may know better.
        if path.position not in carrying or carrying[path.position]:
            each = freed(program, path)
            if each is not None:
                found.append(each)
            elif path.position not in carrying:
                return None
    return tuple(found)


def carrying_loops(program: Program, flow: DependenceReport) -> dict[Position, bool]:
    """Return the places of the loops that carry flow, and whether none of it is certain.

    Args:
        program: The program.
        flow: Its exact flow.
    """
    places = {place.label: place for place in placed(program)}
    found: dict[Position, bool] = {}
    for dependence in flow.dependences:
        level = dependence.level
        if level is not None:
            position = places[dependence.source].loop_positions[level]
            found[position] = found.get(position, True) and dependence.may
    return found


def freed(
    program: Program,
    path: LoopPath,
    private: Iterable[str] | None = None,
    gathered: Collection[str] = (),
) -> Free | None:
    """Tell what makes a loop free; None where the text does not show that it can be.

    Args:
        program: The program.
        path: The loop.
        private: What is to be private to it; found where not given.
        gathered: What its iterations may have in common, since they only add to it.
    """
    if not _is_plain(program.body[path.position[0]]):
        return None
    outer = {around.variable for around in loops_around(program, path.position)}
    outside = set(live_out(program))
    known = segments_of(program)
    kept: list[str] = []
    own: list[str] = []
    contracts: dict[str, None] = {}
    for array in program.arrays:
        sites = sites_of(program, array.name)
        inside = [site for site in sites if path.position in site.place.loop_positions]
        if not any(site.relation.is_write for site in inside):
            continue
        wanted = private is not None and array.name in private
        if not wanted and (
            is_own_cell([s.access for s in inside], path.variable, outer)
            or _is_own_part(program, inside, path)
            or _is_own_residue(inside, path)
        ):
            own.append(array.name)
            continue
        segments = None if wanted else _own_rows(inside, path, known)
        if segments is not None:
            own.append(array.name)
            contracts |= dict.fromkeys(segments.contracts)
            continue
        if array.name in gathered:
            continue
        if array.name in outside:
            return None
        if len(inside) != len(sites) and array.name not in own_scalars(program, path.loop):
            return None
        if private is not None and not wanted:
            return None
        if not _is_set_first(tuple(inside), path.position):
            return None
        kept.append(array.name)
    return Free(path, tuple(kept), tuple(own), tuple(contracts))


def _is_own_part(program: Program, inside: list[AccessSite], path: LoopPath) -> bool:
    """Tell whether a dimension is cut into parts of one length, a part for each iteration.

    So it is with `O[i, h * D + d]` and 0 <= d < D for the loop over h, and with `O[i]` and
    t <= i < t + 16 for the loop over t in steps of 16.
    """
    return any(
        len(found) == 1 and None not in found
        for number in range(len(inside[0].access.subscripts))
        for found in ({_length_of_part(program, site, number, path) for site in inside},)
    )


def _length_of_part(
    program: Program, site: AccessSite, number: int, path: LoopPath
) -> Index | None:
    """Return the length of the part of a dimension that a subscript lies in, by its text."""
    subscript = site.access.subscripts[number]
    if isinstance(subscript, Whole):
        return None
    around = ranges_by_name((*site.place.loops, *site.relation.generators))
    if len(around) < len(site.place.loops) + len(site.relation.generators):
        return None  # two loops have one variable
    subscript = _from_start_of_block(subscript, around, path)
    form = form_of(subscript)
    moving = [term for term in form.terms if path.variable in index_variables(term)]
    if len(moving) != 1:
        return None
    (term,) = moving
    step = abs(path.loop.range.step)
    length: Index
    match term, form.terms[term]:
        case Var(), count if count > 0:
            length = Int(count * step)
        case Arith("*", Var(name), size), 1 if name == path.variable and _is_size(size):
            length = product(step, size)
        case Arith("*", size, Var(name)), 1 if name == path.variable and _is_size(size):
            length = product(step, size)
        case _:
            return None
    rest = index_of(form.plus(Form({term: 1}), -form.terms[term]))
    last = extreme(rest, around, "highest")
    if last is None or not is_never_negative(program, rest, around):
        return None
    room = form_of(difference(length, last))
    return length if room.is_constant and room.constant >= 1 else None


def _is_size(index: Index) -> bool:
    """Tell whether an index is a size, or a quotient of sizes."""
    match index:
        case Param():
            return True
        case Arith("//", left, right):
            return _is_size(left) and _is_size(right)
        case _:
            return False


def _from_start_of_block(index: Index, around: dict[str, Range], path: LoopPath) -> Index:
    """Return a position that runs through a block of a loop's as counted from the block's start.

    Args:
        index: The position.
        around: The ranges of the variables in it; then that of the place in the block.
        path: The loop over blocks.
    """
    if not isinstance(index, Var) or index.name not in around or index.name == path.variable:
        return index
    bounds = around[index.name]
    if bounds.step != 1 or path.variable not in index_variables(bounds.start):
        return index
    for stop in sides("min", bounds.stop):
        width = difference(stop, bounds.start)
        if not index_variables(width):
            around[index.name] = Range(Int(0), width)
            return total(bounds.start, index)
    return index


def _is_own_residue(inside: list[AccessSite], path: LoopPath) -> bool:
    """Tell whether the elements of an iteration are those of one remainder, by one divisor.

    So it is with `O[r * G + g]` for the loop over g in 0 .. G.
    """
    bounds = path.loop.range
    if bounds.start != Int(0) or bounds.step != 1 or not _is_size(bounds.stop):
        return False
    return any(
        all(
            _has_residue(site.access.subscripts[number], path.variable, bounds.stop)
            for site in inside
        )
        for number in range(len(inside[0].access.subscripts))
    )


def _has_residue(subscript: Subscript, variable: str, divisor: Index) -> bool:
    """Tell whether a subscript is a variable and multiples of a divisor without it."""
    if isinstance(subscript, Whole):
        return False
    terms = dict(form_of(subscript).terms)
    if form_of(subscript).constant or terms.pop(Var(variable), 0) != 1:
        return False
    return all(
        isinstance(term, Arith)
        and term.op == "*"
        and divisor in (term.left, term.right)
        and variable not in index_variables(term)
        for term in terms
    )


def _own_rows(
    inside: list[AccessSite], path: LoopPath, known: Mapping[str, Segments]
) -> Segments | None:
    """Return what divides the rows of an array among the iterations of a loop, if anything does."""
    for number in range(len(inside[0].access.subscripts)):
        rows = [_rows(site, number, path, known) for site in inside]
        ends = {None if each is None else each.ends for each in rows}
        (name, *others) = ends
        if name is not None and not others and is_over_all(path.loop.range, known[name]):
            return known[name]
    return None


def _rows(
    site: AccessSite, number: int, path: LoopPath, known: Mapping[str, Segments]
) -> Rows | None:
    """Return the rows of an iteration of a loop that a subscript is one of."""
    subscript = site.access.subscripts[number]
    if not isinstance(subscript, Var):
        return None
    around: list[tuple[str, Range]] = [(g.variable, g.range) for g in site.relation.generators]
    depth = site.place.loop_positions.index(path.position) + 1
    around = [(loop.variable, loop.range) for loop in site.place.loops[depth:]] + around
    names = [name for name, _ in around]
    if path.variable in names or names.count(subscript.name) != 1:
        return None
    found = rows_of(dict(around)[subscript.name], known)
    return found if found is not None and found.sequence == path.variable else None


def _is_plain(nest: Node) -> bool:
    return all(isinstance(node, _PLAIN) for node in nodes((nest,)))


def _is_set_first(sites: tuple[AccessSite, ...], loop: Position) -> bool:
    """Tell whether every read of an array in a loop has a write before it in the same iteration."""
    writes = [s for s in sites if s.relation.is_write and loop in s.place.loop_positions]
    return all(
        any(
            is_overwritten(read, write)
            or is_made_anew(read, write)
            or _is_gone_over(read, write, loop)
            for write in writes
        )
        for read in sites
        if not read.relation.is_write
    )


def _is_gone_over(read: AccessSite, write: AccessSite, loop: Position) -> bool:
    """Tell whether a write in loops of its own sets what is read in an iteration of a loop."""
    mine, other = write.place, read.place
    pairs = zip(mine.loop_positions, other.loop_positions, strict=False)
    shared = next((n for n, (a, b) in enumerate(pairs) if a != b), len(mine.loops))
    return (
        loop in mine.loop_positions[:shared]
        and write.access == read.access
        and write.relation.condition == ALWAYS
        and not (write.relation.generators or read.relation.generators)
        and goes_over_before(mine, other, shared)
    )


def is_overwritten(read: AccessSite, write: AccessSite) -> bool:
    """Tell by the text whether a cell is always written just before it is read.

    The write stands before the read in a block that is around both, it always happens when the
    block runs, and both name one cell by variables of the loops around the block.
    """
    mine, other = write.place, read.place
    block = mine.position[:-1]
    named = write.access.variables
    inner = {loop.variable for loop in other.loops[len(mine.loops) :]}
    return (
        write.access == read.access
        and write.relation.condition == ALWAYS
        and not write.relation.generators
        and other.position[: len(block)] == block
        and other.position[len(block)] > mine.position[-1]
        and named <= {loop.variable for loop in mine.loops}
        and not inner & named
        and not {g.variable for g in read.relation.generators} & named
    )


def is_made_anew(read: AccessSite, write: AccessSite) -> bool:
    """Tell by the text whether an array is always made anew just before a cell of it is read."""
    mine, other = write.place, read.place
    block = mine.position[:-1]
    return (
        is_creation(write)
        and write.relation.condition == ALWAYS
        and other.position[: len(block)] == block
        and other.position[len(block)] > mine.position[-1]
    )


def is_creation(site: AccessSite) -> bool:
    """Tell whether an access is that of a statement that makes a whole array."""
    node = site.place.node
    return (
        site.relation.is_write
        and isinstance(node, Assign)
        and len(node.values) == 1
        and isinstance(node.values[0], Create)
    )
