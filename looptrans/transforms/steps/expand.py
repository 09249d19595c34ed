"""Expansion: a local gets a dimension for each of some loops, an element for each iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace

from looptrans.ir.affine import difference, total
from looptrans.ir.index import Index, Var, plain
from looptrans.ir.program import Array, Declaration, Node, Program
from looptrans.ir.rewrite import with_accesses
from looptrans.ir.step import Step, same_names
from looptrans.ir.value import Access, Create
from looptrans.ir.walk import live_out
from looptrans.transforms.editing.accesses import (
    DTYPES,
    find_array,
    place_of,
    require_no_index,
    require_one_kind,
    sites_of,
)
from looptrans.transforms.editing.errors import NothingToDo, RangeNotFound, TransformError
from looptrans.transforms.editing.extents import (
    declared_range,
    extent,
    extents_of,
    extreme,
    is_never_negative,
)
from looptrans.transforms.editing.finish import finished
from looptrans.transforms.editing.privacy import without_private
from looptrans.transforms.editing.tree import LoopPath, find_loop, loop_name, loops_around
from looptrans.transforms.judging.check import check_storage


@dataclass(frozen=True, slots=True)
class Dimension:
    """A new dimension of an array.

    Attributes:
        extent: How many elements it has, in parameters.
        subscript: Which one belongs to an iteration.
    """

    extent: Index
    subscript: Index


def expand(program: Program, name: str, *loops: str) -> Step:
    """Give a local an element for each iteration of some loops.

                                           t = empty(N)
        for j in range(0, N):              for j in range(0, N):
            t = 2.0 * x[j]        ->           t[j] = 2.0 * x[j]
            y[j] = t + t                       y[j] = t[j] + t[j]

    It is legal if no value of the local passes from one of these iterations to another. The new
    dimensions come first, the outermost loop's before the others'.

    Args:
        program: The program.
        name: The local, a scalar or an array.
        loops: The loops; all uses of the local are inside each of them.

    Raises:
        TransformError: There is no such loop or local, it comes from outside or is seen there, or
            it is used outside one of the loops.
        RangeNotFound: How far a loop runs cannot be said in terms of the parameters.
    """
    called = f"expand({', '.join((name, *loops))})"
    array = find_array(program, name)
    paths = sorted((find_loop(program, loop) for loop in loops), key=lambda p: p.position)
    _require_expandable(program, array, tuple(paths))
    dimensions = tuple(dimension(program, path) for path in paths)
    own = extents_of(program, array)
    shape = (*(d.extent for d in dimensions), *own)
    subscripts = tuple(d.subscript for d in dimensions)

    def expanded(access: Access) -> Access:
        if access.array != name:
            return access
        return Access(name, (*subscripts, *access.subscripts))

    after = program
    for path in paths:
        after = without_private(after, path.position, (name,))
    grown = replace(array, rank=len(shape), shape=shape)
    after = replace(
        after,
        arrays=tuple(grown if each.name == name else each for each in after.arrays),
        body=_declared(with_accesses(after.body, expanded), grown),
    )
    done, images = finished(after, same_names(program, after))
    return Step(called, program, done, check_storage(program, done, images), images)


def _declared(body: tuple[Node, ...], array: Array) -> tuple[Node, ...]:
    """Let an array be created with its new shape, as before or else without first values."""
    shape = array.extents
    for number, node in enumerate(body):
        if isinstance(node, Declaration) and node.array == array.name:
            creation = replace(node.creation, shape=shape)
            return (*body[:number], replace(node, creation=creation), *body[number + 1 :])
    made = Declaration(array.name, Create("empty", shape, element=DTYPES[array.element]))
    first = sum(1 for node in body if isinstance(node, Declaration))
    return (*body[:first], made, *body[first:])


def _require_expandable(program: Program, array: Array, paths: tuple[LoopPath, ...]) -> None:
    name = array.name
    what = f"expand {name}"
    sites = sites_of(program, name)
    if not sites:
        raise NothingToDo(f"{name} is not used", None, remedy="name a local that the loop sets")
    if array.role == "input" or name in live_out(program):
        raise TransformError(
            f"cannot {what}: it {'comes from outside' if array.role == 'input' else 'is returned'}",
            place_of(sites[0].place.node),
            why="with another dimension it would be another array to the caller",
            remedy=f"use a local, and copy it to {name} at the end",
        )
    for path in paths:
        # Private copies of another loop would have the dimension as well.
        outside = [site for site in sites if path.position not in site.place.loop_positions]
        if outside:
            loop = loop_name(program, path.position)
            raise TransformError(
                f"cannot {what} over {loop}: {outside[0].place.label} uses it outside the loop",
                place_of(outside[0].place.node),
                why=f"outside {loop} there is no iteration whose element that could be",
                remedy=f"name loops that are around all uses of {name}",
            )
    positions = [path.position for path in paths]
    if len(set(positions)) < len(positions):
        raise TransformError(
            f"cannot {what}: a loop is named twice", None, remedy="name each loop once"
        )
    require_no_index(program.body, name, what)
    if not array.rank:
        require_one_kind(program, array, program.body, what)


def dimension(program: Program, path: LoopPath) -> Dimension:
    """Return the dimension in which each iteration of a loop has an element.

    Args:
        program: The program.
        path: The loop.

    Raises:
        RangeNotFound: How far the loop runs cannot be said in terms of the parameters.
    """
    bounds = path.loop.range
    around = {
        p.variable: declared_range(program, p.loop.range)
        for p in loops_around(program, path.position)
    }
    here = {**around, path.variable: declared_range(program, bounds)}
    # Written out: a number by name would be one more thing that the statements read.
    lowest = plain(bounds.start if bounds.step > 0 else total(bounds.stop, 1))
    variable: Index = Var(path.variable)
    if is_never_negative(program, lowest, around):
        subscript, last = variable, extreme(variable, here, "highest")
    else:
        subscript = difference(variable, lowest)
        end = bounds.stop if bounds.step > 0 else total(bounds.start, 1)
        length = extreme(difference(end, lowest), around, "highest")
        last = None if length is None else total(length, -1)
    if last is None:
        raise RangeNotFound(
            f"how far the loop {loop_name(program, path.position)} runs is not known beforehand",
            place_of(path.loop),
            why="the new dimension needs an extent that the sizes alone decide",
            remedy="expand over another loop, or give the loop a bound of sizes and a guard",
        )
    return Dimension(extent(program, total(last, 1)), subscript)
