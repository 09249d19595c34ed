"""The partial results of a reduction: where they are kept, and what runs through them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite

from looptrans.ir.affine import is_same, total
from looptrans.ir.index import Index, Int, Var
from looptrans.ir.listing import access_text, assign_text
from looptrans.ir.operator import Operator
from looptrans.ir.program import Array, Assign, Atomic, BlockReduce, Program
from looptrans.ir.value import Access, Range, Subscript, Whole
from looptrans.ir.walk import Placed, accesses, placed
from looptrans.transforms.editing.accesses import place_of, require_no_index, varies
from looptrans.transforms.editing.errors import RangeNotFound, TransformError
from looptrans.transforms.editing.extents import extent, extreme, stated_extent
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import LoopPath, loop_name, loops_around, ranges_around


@dataclass(frozen=True, slots=True)
class Partials:
    """The partial results of one reduction.

    Attributes:
        operator: What they are joined by.
        array: The array that holds them; its first dimension is the block.
        cell: The element they are joined to, in terms of the variables of `loops`.
        loops: What runs through the elements that one block contributes to.
        kept: Which dimensions of the reduced array the partial results have too.
        updates: Labels of the statements that contribute.
    """

    operator: Operator
    array: Array
    cell: Access
    loops: tuple[tuple[str, Range], ...]
    kept: tuple[int, ...]
    updates: frozenset[str]

    def at(self, block: str, access: Access) -> Access:
        """Return the partial result of a block for an element of the reduced array."""
        own = (access.subscripts[dimension] for dimension in self.kept)
        return Access(self.array.name, (Var(block), *own))


def partials_of(
    program: Program, path: LoopPath, array: Array, operator: Operator, blocks: Index
) -> Partials:
    """Decide what the partial results of a reduction are.

    Args:
        program: The program.
        path: The loop.
        array: What it reduces into.
        operator: What by.
        blocks: How many blocks there are at most, in parameters.

    Raises:
        TransformError: An update is not one statement, or the operator has no identity of the kind
            the array holds.
        RangeNotFound: Which elements a block contributes to is not known beforehand.
    """
    what = f"split the reduction into {array.name}"
    require_no_index((path.loop,), array.name, what)
    _require_identity(path, array, operator, what)
    updates = tuple(_updates(program, path, array, what))
    targets = [target for place, target in updates]
    loops: list[tuple[str, Range]] = []
    subscripts: list[Subscript] = []
    taken = {p.variable for p in (*loops_around(program, path.position), path)}
    for dimension in range(array.rank):
        own = [target.subscripts[dimension] for target in targets]
        fixed = _fixed(own, path)
        if fixed is not None:
            subscripts.append(fixed)
            continue
        bounds = _range_of(program, path, array, dimension, updates)
        names = (s.name for s in own if isinstance(s, Var) and s.name not in taken)
        variable = next(names, None) or fresh_name(program, "x")
        taken.add(variable)
        loops.append((variable, bounds))
        subscripts.append(Var(variable))
    extents = [stated_extent(program, array, dimension) for dimension in range(array.rank)]
    moving = {Var(variable) for variable, _ in loops}
    kept = tuple(
        n
        for n, subscript in enumerate(subscripts)
        if None not in extents or isinstance(subscript, Whole) or subscript in moving
    )
    ranges = dict(loops)
    shape = (
        blocks,
        *(extents[n] or _reach(program, path, array, subscripts[n], ranges) for n in kept),
    )
    stem = array.name.rpartition(".")[2]
    name = fresh_name(program, f"{stem}_part")
    return Partials(
        operator,
        Array(name, len(shape), array.element, "local", shape),
        Access(array.name, tuple(subscripts)),
        tuple(loops),
        kept,
        frozenset(place.label for place, _ in updates),
    )


def _require_identity(path: LoopPath, array: Array, operator: Operator, what: str) -> None:
    """Require that what a partial result starts with is a number of the kind the array holds."""
    whole = array.element == "int" and isfinite(operator.identity)
    if array.element == "float" or (whole and operator.identity == int(operator.identity)):
        return
    kind = {"int": "integers", "bool": "booleans"}[array.element]
    raise TransformError(
        f"cannot {what}: it holds {kind}",
        place_of(path.loop),
        why=f"a partial result starts with {operator.identity:g}, the identity of "
        f"{operator.name}, which is none of them",
        remedy=f"make {array.name} an array of floats",
    )


def _updates(
    program: Program, path: LoopPath, array: Array, what: str
) -> Iterator[tuple[Placed, Access]]:
    """Yield the statements of the loop that write an array, with the element they write."""
    for place in placed(program):
        node = place.node
        if path.position not in place.loop_positions or not isinstance(node, Assign):
            continue
        if all(target.array != array.name for target in node.targets):
            continue
        _require_plain(path, place, what)
        cell = node.targets[0]
        text = assign_text(node)
        reads = [each.access for each in accesses(node) if not each.is_write]
        if len(node.targets) > 1 or cell not in reads:
            raise TransformError(
                f"cannot {what}: {place.label} is no update of it",
                place_of(node),
                why=f"{text} is not {array.name} joined with something, in one statement",
                remedy="write the update as one statement that reads the cell itself",
            )
        other = next((each for each in reads if each.array == array.name and each != cell), None)
        if other is not None:
            raise TransformError(
                f"cannot {what}: {place.label} also reads {access_text(other)}",
                place_of(node),
                why=f"what is joined to {access_text(cell)} may not come from {array.name} itself",
                remedy=f"promote({array.name}, {loop_name(program, path.position)}) first, which "
                "keeps the cell in a local",
            )
        yield place, cell


def _require_plain(path: LoopPath, place: Placed, what: str) -> None:
    """Require that an update is in no block that is about the reduced array itself."""
    for section, position in zip(place.sections, place.section_positions, strict=True):
        inside = position[: len(path.position)] == path.position
        if inside or isinstance(section, BlockReduce):
            raise TransformError(
                f"cannot {what}: {place.label} stands in "
                f"{'an atomic' if isinstance(section, Atomic) else 'a reduce'} block",
                place_of(place.node),
                why="a partial result belongs to one iteration of the loops around, and the joins "
                "would need a block of their own",
                remedy="split the loop before it gets its blocks",
            )


def _fixed(subscripts: list[Subscript], path: LoopPath) -> Subscript | None:
    """Return the one subscript that all updates have throughout the loop; None if there is none."""
    first = subscripts[0]
    if isinstance(first, Whole):
        return first if all(isinstance(s, Whole) for s in subscripts) else None
    if varies(first, path.loop):
        return None
    same = all(not isinstance(s, Whole) and is_same(first, s) for s in subscripts)
    return first if same else None


def _range_of(
    program: Program,
    path: LoopPath,
    array: Array,
    dimension: int,
    updates: tuple[tuple[Placed, Access], ...],
) -> Range:
    """Return the indices of a dimension that the updates in one block may have."""
    found = []
    for place, target in updates:
        inner = place.loops[place.loop_positions.index(path.position) + 1 :]
        subscript = target.subscripts[dimension]
        found += [loop.range for loop in inner if subscript == Var(loop.variable)]
    one = found[0] if len(found) == len(updates) else None
    if one is not None and not any(varies(end, path.loop) for end in one.ends):
        ends = [(one.start, other.start) for other in found]
        ends += [(one.stop, other.stop) for other in found]
        if all(is_same(a, b) for a, b in ends) and all(r.step == one.step for r in found):
            return one
    whole = stated_extent(program, array, dimension)
    if whole is None:
        raise RangeNotFound(
            f"which elements of {array.name} the loop {loop_name(program, path.position)} updates "
            "is not known beforehand",
            place_of(updates[0][0].node),
            why="each of them has a partial result for each block",
            remedy=f"create {array.name} with its shape, or state the shape of the argument",
        )
    return Range(Int(0), whole)


def _reach(
    program: Program,
    path: LoopPath,
    array: Array,
    subscript: Subscript,
    ranges: Mapping[str, Range],
) -> Index:
    """Return the extent of a dimension of partial results whose array does not say its own."""
    around = ranges_around(program, path.position)
    highest = None
    if not isinstance(subscript, Whole):
        highest = extreme(subscript, {**around, **ranges}, "highest")
    if highest is not None:
        return extent(program, total(highest, 1))
    raise RangeNotFound(
        f"how far the loop {loop_name(program, path.position)} goes in {array.name} is not known "
        "beforehand",
        place_of(path.loop),
        why="the partial results are created before the loops, with a shape in terms of sizes",
        remedy=f"create {array.name} with its shape, or state the shape of the argument",
    )
