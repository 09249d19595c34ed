"""Arrays of which only slices are used, as an array for each.

for d: dX[j, 2, d] = dX[j, 2, d] + …          for d: dX_2[j, d] = dX_2[j, d] + …
for d: dX[j, 1, d] = dX[j, 1, d] + …    ->    for d: dX_1[j, d] = dX_1[j, d] + …

for f in range(F): y[i, f] = y[i, f] + …              y_0[i, f] = y_0[i, f] + …
                   y[i, F + f] = y[i, F + f] + …  ->  y_1[i, f] = y_1[i, f] + …

for f in range(F): z[i, 2 * f] = z[i, 2 * f] + …              z_0[i, f] = z_0[i, f] + …
                   z[i, 2 * f + 1] = z[i, 2 * f + 1] + …  ->  z_1[i, f] = z_1[i, f] + …

A program then has a block of registers for each of them. In memory they are one array still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import gcd
from typing import TypeVar

from looptrans.ir.affine import difference, form_of, is_same, product, quotient, total
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Arith, Index, Int, Neg, Param, walk
from looptrans.ir.program import Array, Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.rewrite import rewritten, with_accesses, with_blocks
from looptrans.ir.value import Access, Range, Subscript, Whole
from looptrans.ir.walk import accesses, placed
from looptrans.transforms.editing.extents import extreme, is_never_negative, is_within

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of an array where one subscript is a number, or goes from one size on in steps.

    Attributes:
        array: The array.
        axis: The subscript.
        start: What it is, or at least is.
        count: How many there are of it; None where it is a number.
        step: How far they are apart.
        is_all: Whether the slices of the array surely are all of it.
    """

    array: Array
    axis: int
    start: Index
    count: Index | None = None
    step: int = 1
    is_all: bool = True

    def of(self, subscripts: tuple[T, ...], own: T | None) -> tuple[T, ...]:
        """Return what a slice has of something that there is for each subscript.

        Args:
            subscripts: What there is for each subscript of the array.
            own: What is in the place of that of the slice.
        """
        middle = () if self.count is None or own is None else (own,)
        return (*subscripts[: self.axis], *middle, *subscripts[self.axis + 1 :])


@dataclass(frozen=True, slots=True)
class _Run:
    """Subscripts in steps: the first one, and how many there are."""

    start: Index
    count: Index

    def end(self, step: int) -> Index:
        """Where they end."""
        return total(self.start, product(step, self.count))


@dataclass(frozen=True, slots=True)
class _Use:
    """An access, the ranges of what is around, and whether it may not happen for all of them."""

    access: Access
    ranges: dict[str, Range]
    is_guarded: bool


def sliced(program: Program, *, segments: bool = False) -> tuple[Program, dict[str, Slice]]:
    """Return a program with an array for each slice, and what each of them is a slice of.

    Args:
        program: The program.
        segments: Whether what goes from one size on in steps is a slice, too: of `y[i, f]` and
            `y[i, F + f]`, where `f` stays below F, each has one, as of `y[i, 2 * f + 1]`.
    """
    slices: dict[str, Slice] = {}
    parts: dict[str, list[str]] = {}
    taken = {a.name for a in program.arrays} | {p.name for p in program.parameters}
    for array in program.arrays:
        found = _numbered(program, array)
        if not found and segments:
            found = _segments(program, array)
        for number, part in enumerate(found):
            name = f"{array.name}_{number}"
            while name in taken:
                name += "_"
            taken.add(name)
            slices[name] = part
            parts.setdefault(array.name, []).append(name)
    if not slices:
        return program, {}

    def cell(ranges: Mapping[str, Range], access: Access) -> Access:
        for name in parts.get(access.array, ()):
            part = slices[name]
            subscript = access.subscripts[part.axis]
            if isinstance(subscript, Whole) or (part.count is None and subscript != part.start):
                continue
            if part.count is None:
                return Access(name, part.of(access.subscripts, None))
            if _run(subscript, ranges, part.step) == _Run(part.start, part.count):
                own = quotient(difference(subscript, part.start), part.step)
                return Access(name, part.of(access.subscripts, own))
        return access

    def created(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Declaration) or node.array not in parts:
            return (node,)
        made = node.creation
        shapes = {n: slices[n].of(made.shape, slices[n].count) for n in parts[node.array]}
        return tuple(
            replace(node, array=name, creation=replace(made, shape=shape))
            for name, shape in shapes.items()
        )

    arrays: list[Array] = []
    for array in program.arrays:
        for name in parts.get(array.name, [array.name]):
            made = slices.get(name)
            if made is None:
                arrays.append(array)
                continue
            shape = made.of(array.shape, made.count)
            own = replace(array, name=name, rank=len(shape), shape=shape, annotation=None)
            arrays.append(own)
    return replace(
        program,
        arrays=tuple(arrays),
        body=rewritten(_with_cells(program.body, (), cell), created),
        outputs=tuple(n for output in program.outputs for n in parts.get(output, [output])),
    ), slices


def _numbered(program: Program, array: Array) -> list[Slice]:
    """Return the slices of an array where a subscript is a number wherever it is used."""
    used = _uses(program, array)
    for axis, extent in enumerate(array.shape):
        subscripts = [use.access.subscripts[axis] for use in used]
        numbers = {s.value for s in subscripts if isinstance(s, Int)}
        if not isinstance(extent, Int) or not all(isinstance(s, Int) for s in subscripts):
            continue
        if len(numbers) > 1 and numbers <= set(range(extent.value)):
            return [Slice(array, axis, Int(number)) for number in range(extent.value)]
    return []


def _segments(program: Program, array: Array) -> list[Slice]:
    """Return the slices of an array where a subscript goes from sizes on wherever it is used."""
    used = _uses(program, array)
    for axis, extent in enumerate(array.shape):
        step = gcd(*(f for use in used for f in _factors(use.access.subscripts[axis]))) or 1
        found: dict[_Run, None] = {}
        met: set[_Run] = set()
        for use in used:
            run = _run(use.access.subscripts[axis], use.ranges, step)
            if run is None or not _is_plain(run.start):
                break
            found[run] = None
            if not use.is_guarded:
                met.add(run)
        else:
            # Where guards keep out what is beside the array, a slice would have it nevertheless.
            if not all(run in met or _is_inside(program, run, step, extent) for run in found):
                continue
            before = {
                run: [o for o in found if o != run and _is_before(program, o, run, step)]
                for run in found
            }
            if len(found) > 1 and all(
                one in before[other] or other in before[one] or _has_other_rest(one, other, step)
                for one, other in combinations(found, 2)
            ):
                is_all = _is_all(program, list(found), extent, step)
                return [
                    Slice(array, axis, run.start, run.count, step, is_all)
                    for run in sorted(found, key=lambda run: len(before[run]))
                ]
    return []


def _factors(subscript: Subscript) -> Iterable[int]:
    return () if isinstance(subscript, Whole) else form_of(subscript).terms.values()


def _run(subscript: Subscript, ranges: Mapping[str, Range], step: int) -> _Run | None:
    """Return the subscripts, in steps, that a subscript goes through at most."""
    if isinstance(subscript, Whole):
        return None
    rest = form_of(subscript).constant % step
    counted = quotient(difference(subscript, Int(rest)), step)
    ends = extreme(counted, ranges, "lowest"), extreme(counted, ranges, "highest")
    if ends[0] is None or ends[1] is None:
        return None
    return _Run(total(product(step, ends[0]), rest), total(difference(ends[1], ends[0]), 1))


def _is_before(program: Program, one: _Run, other: _Run, step: int) -> bool:
    return is_never_negative(program, difference(other.start, one.end(step)), {})


def _is_inside(program: Program, run: _Run, step: int, extent: Index | None) -> bool:
    """Tell whether subscripts, if there are any, are surely those of cells."""
    if extent is None:
        return False
    more = total(run.count, -1)
    last = total(run.start, product(step, more))
    return any(
        is_never_negative(program, difference(run.start, product(n, more)), {}) for n in (0, 1)
    ) and any(is_within(program, total(last, 1, product(n, more)), extent) for n in (0, 1))


def _has_other_rest(one: _Run, other: _Run, step: int) -> bool:
    """Tell whether what is apart by steps never meets."""
    apart = form_of(difference(other.start, one.start))
    return all(f % step == 0 for f in apart.terms.values()) and apart.constant % step != 0


def _is_all(program: Program, found: list[_Run], extent: Index | None, step: int) -> bool:
    """Tell whether slices surely follow each other from 0 to an extent, for each rest by steps."""
    for rest in range(step):
        end: Index = Int(rest)
        while following := [run for run in found if is_same(run.start, end)]:
            end = following[0].end(step)
            found = [run for run in found if run not in following]
        if extent is None or not is_within(program, extent, difference(end, Int(rest))):
            return False
    return not found


def _uses(program: Program, array: Array) -> list[_Use]:
    """Return where an array of the program's own is used."""
    if array.role != "local":
        return []
    return [
        _Use(
            relation.access,
            _ranges(place.loops, place.node),
            any(
                condition != ALWAYS
                for condition in (
                    *place.conditions,
                    relation.condition,
                    *(generator.condition for generator in relation.generators),
                )
            ),
        )
        for place in placed(program)
        for relation in accesses(place.node)
        if relation.access.array == array.name
    ]


def _ranges(around: Iterable[Loop], node: Assign | If) -> dict[str, Range]:
    """Return the ranges of loops, and of the sums in a statement, where names tell them apart."""
    found = {loop.variable: {loop.range} for loop in around}
    for relation in accesses(node):
        for generator in relation.generators:
            found.setdefault(generator.variable, set()).add(generator.range)
    return {name: ranges.pop() for name, ranges in found.items() if len(ranges) == 1}


def _with_cells(
    body: tuple[Node, ...],
    around: tuple[Loop, ...],
    cell: Callable[[Mapping[str, Range], Access], Access],
) -> tuple[Node, ...]:
    """Return a block with every access replaced, for the ranges of what is around it."""
    found: list[Node] = []
    for node in body:
        inner = (*around, node) if isinstance(node, Loop) else around
        (here,) = with_blocks((node,), partial(_with_cells, around=inner, cell=cell))
        if isinstance(here, Assign | If):
            (here,) = with_accesses((here,), partial(cell, _ranges(around, here)))
        found.append(here)
    return tuple(found)


def _is_plain(size: Index) -> bool:
    """Tell whether a size is made of sums and products."""
    return all(
        isinstance(part, Int | Param | Neg) or (isinstance(part, Arith) and part.op in "+-*")
        for part in walk(size)
    )
