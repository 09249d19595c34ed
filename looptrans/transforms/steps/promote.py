"""Promotion: an element of an array is kept in a local while a loop runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from looptrans.ir.affine import is_same, simplified
from looptrans.ir.condition import ALWAYS, Condition
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.listing import access_text
from looptrans.ir.program import Array, Assign, Declaration, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import rewritten, with_accesses
from looptrans.ir.step import Step, same_names
from looptrans.ir.value import Access, Create, Range, Read, Subscript, Whole
from looptrans.transforms.editing.accesses import (
    DTYPES,
    AccessSite,
    find_array,
    place_of,
    require_no_index,
    require_one_kind,
    sites_of,
    varies,
)
from looptrans.transforms.editing.errors import NothingToDo, TransformError
from looptrans.transforms.editing.extents import (
    extent,
    extreme,
    is_never_negative,
    runs_at_all,
    stated_extent,
)
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.guards import guarded
from looptrans.transforms.editing.naming import fresh_label, fresh_name, with_array
from looptrans.transforms.editing.privacy import private_around, without_private
from looptrans.transforms.editing.tree import (
    LoopPath,
    find_loop,
    loop_name,
    loops_around,
    node_at,
    ranges_around,
    replace_at,
)
from looptrans.transforms.judging.check import check_storage


def promote(program: Program, array: str, loop: str) -> Step:
    """Keep an element of an array in a local across a loop.

                                           s_i = s[i]                # S3: one load
        for j in range(0, N):              for j in range(0, N):
            s[i] = s[i] + A[i, j]    ->        s_i = s_i + A[i, j]
                                           s[i] = s_i                # S4: one store

    The element is the first one that the loop accesses and that is the same in all its iterations;
    where none is, it is a row, or another part, that inner loops run through, and the local has
    dimensions for them. It is legal if nothing else accesses the element while the local has its
    value. Where the loop only copies the element to one scalar, that scalar is the local. Without a
    write there is no store, and without a read no load.

    Args:
        program: The program.
        array: The array.
        loop: The loop.

    Raises:
        TransformError: There is no such array or loop, the loop does not access the array, or it
            accesses another element in each iteration.
    """
    called = f"promote({array}, {loop})"
    path = find_loop(program, loop)
    element = _element(program, find_array(program, array), path)
    first: Step | None = None
    for plan in _plans(program, path, element):
        step = _promoted(called, program, path, plan)
        if step.verdict.decision == "legal":
            return step
        first = first or step
    assert first is not None
    if first.verdict.decision == "unknown" and not _is_certain(element, path):
        raise TransformError(
            f"cannot keep {array} in a local across {loop_name(program, path.position)}: the loop "
            "need not access it, and then it may be outside the array",
            place_of(element.sites[0].place.node),
            why=f"the load and the store access {access_text(element.sites[0].access)} anyway",
            remedy=f"state the shape of {array}, or put the guards into the subscripts' ranges",
        )
    return first


def can_promote(program: Program, array: Array, path: LoopPath) -> bool:
    """Tell whether there is an element to keep in a local; it need not be legal."""
    try:
        next(_plans(program, path, _element(program, array, path)))
    except TransformError:
        return False
    return True


def _is_certain(element: _Element, path: LoopPath) -> bool:
    """Tell whether every iteration of the loop accesses the element."""
    return any(site.place.position[:-1] == path.position for site in element.sites)


# What is kept


@dataclass(frozen=True, slots=True)
class _Element:
    """An element of an array, or a part of it.

    Attributes:
        array: The array.
        subscripts: For each dimension the subscript, or None where the part is all of it.
        sites: The accesses to it in the loop.
    """

    array: Array
    subscripts: tuple[Index | None, ...]
    sites: tuple[AccessSite, ...]

    @property
    def open(self) -> tuple[int, ...]:
        """The dimensions that are kept in full."""
        return tuple(n for n, subscript in enumerate(self.subscripts) if subscript is None)

    def has(self, access: Access) -> bool:
        """Tell whether an access is one to this element or part."""
        return access.array == self.array.name and all(
            mine is None or (not isinstance(other, Whole) and is_same(mine, other))
            for mine, other in zip(self.subscripts, access.subscripts, strict=True)
        )

    def is_read(self) -> bool:
        """Tell whether the loop reads it."""
        return any(not site.relation.is_write for site in self.sites)

    def is_written(self) -> bool:
        """Tell whether the loop writes it."""
        return any(site.relation.is_write for site in self.sites)


def _element(program: Program, array: Array, path: LoopPath) -> _Element:
    """Choose what is kept: the first element that is the same in all iterations of the loop."""
    loop = loop_name(program, path.position)
    what = f"keep {array.name} in a local across {loop}"
    sites = tuple(
        site for site in sites_of(program, array.name) if path.position in site.place.loop_positions
    )
    if not array.rank:
        raise NothingToDo(f"{array.name} is a scalar already", None, remedy="name an array")
    if not sites:
        raise NothingToDo(
            f"the loop {loop} does not access {array.name}",
            place_of(path.loop),
            remedy="name an array that it reads or writes",
        )
    require_no_index((path.loop,), array.name, what)
    require_one_kind(program, array, (path.loop,), what)
    patterns = [_pattern(site.access, path) for site in sites]
    usable = [pattern for pattern in patterns if pattern is not None]
    if not usable:
        raise TransformError(
            f"cannot {what}: it is another element in each iteration",
            place_of(sites[0].place.node),
            why=f"{access_text(sites[0].access)} changes with {path.variable}",
            remedy="promote across a loop whose variable is not in the subscripts",
        )
    chosen = min(usable, key=lambda pattern: sum(subscript is None for subscript in pattern))
    element = _Element(array, chosen, ())
    return replace(element, sites=tuple(site for site in sites if element.has(site.access)))


def _pattern(access: Access, path: LoopPath) -> tuple[Index | None, ...] | None:
    """Return the subscripts that stay the same, None for others; None where the loop moves it."""
    found: list[Index | None] = []
    for subscript in access.subscripts:
        if isinstance(subscript, Whole):
            found.append(None)
        elif not varies(subscript, path.loop):
            found.append(simplified(subscript))
        elif path.variable in variables(subscript):
            return None
        else:
            found.append(None)
    return tuple(found)


# How it is kept


@dataclass(frozen=True, slots=True)
class _Plan:
    """A way of keeping it.

    Attributes:
        element: What is kept.
        local: The local.
        ranges: For each dimension that is kept in full, what is loaded and stored.
        variables: And the variable of the loop that does it.
        copies: The copies `local = element` that the load replaces.
        loads: Whether there is a load.
        condition: When the load and the store run.
    """

    element: _Element
    local: Array
    ranges: tuple[Range, ...]
    variables: tuple[str, ...]
    copies: tuple[Assign, ...]
    loads: bool
    condition: Condition


def _plans(program: Program, path: LoopPath, element: _Element) -> Iterator[_Plan]:
    """Yield the ways of keeping it, the plainest first."""
    runs = runs_at_all(path.loop.range)
    ranges = tuple(_row_range(program, path, element, dimension) for dimension in element.open)
    variables = _row_variables(program, path, element)
    reused = None if element.open else _copied_to(program, path, element)
    certain = not element.open and not element.is_read() and _is_certain(element, path)
    for copies in (reused, ()) if reused else ((),):
        if copies:
            local = program.array(copies[0].targets[0].array)
        else:
            local = _local(program, path, element, ranges)
        plan = _Plan(element, local, ranges, variables, copies, not certain, ALWAYS)
        if not certain:
            yield plan
        if certain or runs != ALWAYS:
            yield replace(plan, condition=runs)


def _copied_to(program: Program, path: LoopPath, element: _Element) -> tuple[Assign, ...]:
    """Return the copies to one scalar that are all the loop's reads of the element, if so."""
    readers = [site.place for site in element.sites if not site.relation.is_write]
    copies = []
    for place in readers:
        node = place.node
        if not isinstance(node, Assign) or place.position[:-1] != path.position:
            return ()
        if len(node.targets) != 1 or node.targets[0].subscripts or node.augmented:
            return ()
        if not isinstance(node.values[0], Read):
            return ()
        copies.append(node)
    names = {copy.targets[0].array for copy in copies}
    if len(names) != 1:
        return ()
    local = program.array(names.pop())
    if local.role == "input" or local.element != element.array.element:
        return ()
    setters = [site.place.node for site in sites_of(program, local.name) if site.relation.is_write]
    return tuple(copies) if all(node in copies for node in setters) else ()


def _local(program: Program, path: LoopPath, element: _Element, ranges: Sequence[Range]) -> Array:
    at = [
        each.name if isinstance(each, Var) else str(each.value)
        for each in element.subscripts
        if isinstance(each, Var) or (isinstance(each, Int) and each.value >= 0)
    ]
    stem = element.array.name.rpartition(".")[2]
    name = fresh_name(program, f"{stem}_{''.join(at) or 'local'}")
    around = ranges_around(program, path.position)
    shape: list[Index | None] = []
    for bounds in ranges:
        highest = extreme(bounds.stop, around, "highest")
        assert highest is not None
        shape.append(extent(program, highest))
    return Array(name, len(shape), element.array.element, "local", tuple(shape))


def _row_range(program: Program, path: LoopPath, element: _Element, dimension: int) -> Range:
    """Return the indices of a dimension that are loaded and stored.

    These are the ones that the inner loops run through where these all run through the same, else
    all that the array has.
    """
    around = ranges_around(program, path.position)
    found = [_run_through(site, path, dimension) for site in element.sites]
    one = found[0]
    if one is not None and all(
        other is not None and is_same(one.start, other.start) and is_same(one.stop, other.stop)
        for other in found
    ):
        known = extreme(one.stop, around, "highest") is not None
        if known and is_never_negative(program, one.start, around):
            return one
    whole = stated_extent(program, element.array, dimension)
    if whole is None:
        raise TransformError(
            f"cannot keep {element.array.name} in a local: the extent of its dimension "
            f"{dimension} is not known",
            place_of(element.sites[0].place.node),
            why=f"{access_text(element.sites[0].access)} is a part of it, which is loaded before "
            "the loop",
            remedy=f"create {element.array.name} with its shape, or state the shape of the "
            'argument, A: Float[Array, "M N"]',
        )
    return Range(Int(0), whole)


def _run_through(site: AccessSite, path: LoopPath, dimension: int) -> Range | None:
    subscript = site.access.subscripts[dimension]
    if not isinstance(subscript, Var):
        return None
    inner = site.place.loops[site.place.loop_positions.index(path.position) + 1 :]
    ranges = ranges_by_name((*inner, *site.relation.generators))
    bounds = ranges.get(subscript.name)
    if bounds is None or bounds.step != 1:
        return None
    return None if any(varies(end, path.loop) for end in bounds.ends) else bounds


# The program with it


def _promoted(called: str, program: Program, path: LoopPath, plan: _Plan) -> Step:
    element, local = plan.element, plan.local

    def kept(access: Access) -> Access:
        if not element.has(access):
            return access
        return Access(local.name, tuple(access.subscripts[n] for n in element.open))

    loop = _without_copies(path.loop, plan.copies)
    loop = replace(loop, body=with_accesses(loop.body, kept))
    after = replace_at(program, path.position, (loop,))
    position = path.position
    if not plan.copies:
        made = Create("empty", local.extents, element=DTYPES[local.element])
        declaration = Declaration(local.name, made) if local.rank else None
        after, shift = with_array(after, local, declaration)
        position = (position[0] + shift, *position[1:])
    after = without_private(after, position, (local.name,))
    after = private_around(after, position, (local.name,))
    block: list[Node] = [node_at(after, position)]
    if plan.loads:
        block[:0] = guarded(plan.condition, (_transfer(after, plan, to_local=True),))
    if element.is_written():
        within = replace_at(after, position, tuple(block))
        block += guarded(plan.condition, (_transfer(within, plan, to_local=False),))
    after = replace_at(after, position, tuple(block))
    images = same_names(program, after)
    for copy in plan.copies:
        images.pop(copy.label, None)
    done, final = finished(after, images)
    return Step(called, program, done, check_storage(program, done, final), final)


def _without_copies(loop: Loop, copies: tuple[Assign, ...]) -> Loop:
    def kept(node: Node) -> tuple[Node, ...]:
        return () if node in copies else (node,)

    return replace(loop, body=rewritten(loop.body, kept))


def _transfer(program: Program, plan: _Plan, *, to_local: bool) -> Node:
    """Return the load or the store: one statement, in a loop for each dimension kept in full."""
    element = plan.element
    indices = dict(zip(element.open, (Var(name) for name in plan.variables), strict=True))
    subscripts: list[Subscript] = []
    for number, subscript in enumerate(element.subscripts):
        subscripts.append(indices[number] if subscript is None else subscript)
    there = Access(element.array.name, tuple(subscripts))
    here = Access(plan.local.name, tuple(indices.values()))
    target, value = (here, there) if to_local else (there, here)
    label = fresh_label(program)
    node: Node = Assign(label, (target,), (Read(value),))
    if to_local and plan.copies:
        node = plan.copies[0]
    for name, bounds in reversed(list(zip(plan.variables, plan.ranges, strict=True))):
        node = Loop(name, bounds, (node,))
    return node


def _row_variables(program: Program, path: LoopPath, element: _Element) -> tuple[str, ...]:
    """Return a variable for each dimension kept in full, where possible the one it has inside."""
    taken = {p.variable for p in loops_around(program, path.position)}
    found = []
    for dimension in element.open:
        inside = (site.access.subscripts[dimension] for site in element.sites)
        names = (each.name for each in inside if isinstance(each, Var) and each.name not in taken)
        name = next(names, None) or fresh_name(program, "x", taken)
        taken.add(name)
        found.append(name)
    return tuple(found)
