"""Rows that iterations hand on, gone over whole, and looked up by sums, so that each is a block.

    for i in parallel(1, N - 1):           for i in parallel(0, N):
        v[i] = u[i - 1]             ->         if i >= 1 and i < N - 1:
                                                   v[i] = sum(u[e] for e in range(N) if e == i - 1)

    a[0] = 1.0                      ->     for e in parallel(0, N):
                                               if e == 0:
                                                   a[e] = 1.0

A block lies in the registers of many threads: an element that another one needs is found by
looking at all of them. What stands in memory needs none of this.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import difference, is_same, simplified, total
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjunction
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import Array, Assign, If, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import replaced, replaced_in_condition
from looptrans.ir.value import Access, Generator, Range, Read, Reduce, Value
from looptrans.ir.verdict import Certificate
from looptrans.transforms.editing.accesses import AccessSite, sites_of
from looptrans.transforms.editing.naming import binders, fresh_name
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.editing.tree import Position, loops_around, node_at, replace_at


def rows_handed_on(program: Program) -> tuple[str, ...]:
    """Return the arrays that iterations of a loop hand on in whole rows."""
    return tuple(a.name for a in program.arrays if _row_axes(program, a))


def whole_rows(program: Program, name: str) -> DerivationStep:
    """Go over all of a row where what sets it goes over a part, or sets one element.

    Args:
        program: The program, what is free in parallel.
        name: The array.

    Raises:
        NotDone: Iterations do not hand such rows on, or go over all of them.
    """
    law = "a loop over all of a row does what one over a part of it does, under a guard"
    shown = Certificate("order", law, "legal", "each iteration is done once, in the same order")
    text = f"go over the rows of {name} whole"
    return _step(program, name, ("whole rows", text, shown), looks=False)


def looked_up(program: Program, name: str) -> DerivationStep:
    """Write what other lanes hold of a row as a sum over all of it that leaves out all but one.

    Args:
        program: The program, what is free in parallel.
        name: The array.

    Raises:
        NotDone: Iterations do not hand such rows on, or look at what their own lanes hold.
    """
    law = "a sum over the one cell that a condition names is that cell"
    shown = Certificate("algebra", law, "legal", "every cell that is read exists")
    text = f"find an element of a row of {name} among all of them"
    return _step(program, name, ("looked up", text, shown), looks=True)


def _step(
    program: Program, name: str, what: tuple[str, str, Certificate], *, looks: bool
) -> DerivationStep:
    kind, text, shown = what
    array = program.array(name)
    after = program
    for axis, loop in _row_axes(program, array):
        # What stands in another nest finds a row in memory, and what stands behind the loop may.
        place = loop if looks else loop[:1]
        row = _Row(after, array, axis, looks)
        around = {
            path.variable: (path.loop.range, path.loop.execution)
            for path in loops_around(after, place)
        }
        changed = row.body((node_at(after, place),), around)
        after = replace_at(after, place, changed)
    if after.body == program.body:
        raise NotDone(f"no iteration looks at parts of rows of {name}")
    return DerivationStep(text, kind, (name,), program, done(after), (shown,))


def _row_axes(program: Program, array: Array) -> list[tuple[int, Position]]:
    """Return the dimensions of an array that a loop hands on whole, in lanes, and where it is."""
    if array.role != "local" or array.element == "bool" or None in array.shape:
        return []
    sites = sites_of(program, array.name)
    found: dict[tuple[int, Position], None] = {}
    for axis in range(array.rank):
        for site in sites:
            loop = _hands_on(sites, site, axis) if site.relation.is_write else None
            if loop is not None:
                found[axis, loop] = None
    return list(found)


def _hands_on(sites: tuple[AccessSite, ...], write: AccessSite, axis: int) -> Position | None:
    """Return the loop around a write that goes over the same cells in each iteration, in lanes.

    The write itself may go over them one by one, where lanes look at what it has set.
    """
    place = write.place
    if write.access.rank:
        return None
    for position, loop in zip(place.loop_positions, place.loops, strict=True):
        inside = [s for s in sites if s.place.position[: len(position)] == position]
        named = {name for each in inside if not each.access.rank for name in each.access.variables}
        around = _in_lanes(write, axis, position) or (
            _goes_over(write, axis, position)
            and any(_in_lanes(s, axis, position) for s in inside if not s.relation.is_write)
        )
        if loop.execution == "sequential" and around and loop.variable not in named:
            read = any(not each.relation.is_write for each in inside)
            shared = any(_is_part_of_a_program(each, axis, position) for each in inside)
            return position if read and not shared else None
    return None


def _in_lanes(site: AccessSite, axis: int, loop: Position) -> bool:
    """Tell whether parallel iterations inside a loop have cells of a row each."""
    return _goes_over(site, axis, loop, "parallel")


def _goes_over(
    site: AccessSite,
    axis: int,
    loop: Position,
    execution: Literal["sequential", "parallel"] | None = None,
) -> bool:
    """Tell whether a loop inside another one goes over the cells of a row, run as is said."""
    if site.access.rank:
        return False
    place, own = site.place, set(variables(site.access.indices[axis]))
    return any(
        len(position) > len(loop)
        and each.variable in own
        and (execution is None or each.execution == execution)
        for position, each in zip(place.loop_positions, place.loops, strict=True)
    )


def _is_part_of_a_program(site: AccessSite, axis: int, loop: Position) -> bool:
    """Tell whether parallel iterations around a loop have parts of a row each.

    A row that several programs set must not be gone over whole: each would store all of it.
    """
    if site.access.rank:
        return False
    place = site.place
    inner = ranges_by_name((*place.loops, *site.relation.generators))
    depth = place.loop_positions.index(loop)
    programs = {each.variable for each in place.loops[:depth] if each.execution == "parallel"}
    found: set[str] = set()
    waiting = list(variables(site.access.indices[axis]))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            bounds = inner.get(name)
            ends = () if bounds is None else bounds.ends
            waiting += [each for end in ends for each in variables(end)]
    return bool(found & programs)


_Around = Mapping[str, tuple[Range, str]]


@dataclass(frozen=True, slots=True)
class _Row:
    """Goes over a dimension of an array whole.

    Attributes:
        program: The program.
        array: The array.
        axis: The dimension.
        looks: Whether reads are changed, and not loops and what is set.
    """

    program: Program
    array: Array
    axis: int
    looks: bool

    @property
    def extent(self) -> Index:
        """How long a row is."""
        extent = self.array.shape[self.axis]
        assert extent is not None
        return extent

    def body(self, body: tuple[Node, ...], around: _Around) -> tuple[Node, ...]:
        """Return a block; `around` has the ranges of the loops around it, and how they run."""
        return tuple(self._node(node, around) for node in body)

    def _node(self, node: Node, around: _Around) -> Node:
        match node:
            case Loop():
                loop = self._whole(node)
                inner = {**around, loop.variable: (loop.range, loop.execution)}
                return replace(loop, body=self.body(loop.body, inner))
            case If():
                return replace(
                    node,
                    condition=self._condition(node.condition, around),
                    body=self.body(node.body, around),
                    orelse=self.body(node.orelse, around),
                )
            case Assign():
                values = tuple(self._value(value, around) for value in node.values)
                return self._alone(replace(node, values=values), around)
            case _:
                return node

    def _whole(self, loop: Loop) -> Loop:
        """Return a loop over part of a row as one over all of it, with a guard."""
        if self.looks or loop.execution != "parallel" or loop.range.step != 1:
            return loop
        shift = self._shift(loop)
        if shift is None or (shift == Int(0) and self._is_all(loop.range)):
            return loop
        here = Var(loop.variable)
        asked = [
            Relation(">=", here, total(loop.range.start, shift)),
            Relation("<", here, total(loop.range.stop, shift)),
        ]
        moved = {loop.variable: difference(here, shift)}
        body = tuple(substitute_variable(node, moved) for node in loop.body)
        inside = _asked(asked, self.extent)
        if inside != ALWAYS:
            body = (If(inside, body),)
        return replace(loop, range=Range(Int(0), self.extent), body=body)

    def _shift(self, loop: Loop) -> Index | None:
        """Return how far ahead of a loop's variable the cells are that each iteration sets."""
        for node in loop.body:
            if isinstance(node, Assign):
                for target in node.targets:
                    if target.array == self.array.name and not target.rank:
                        shift = difference(target.indices[self.axis], Var(loop.variable))
                        if loop.variable not in variables(shift):
                            return shift
        return None

    def _is_all(self, bounds: Range) -> bool:
        return is_same(bounds.start, Int(0)) and is_same(bounds.stop, self.extent)

    def _is_lane(self, index: Index, around: _Around) -> bool:
        """Tell whether a subscript is the variable of a loop, or a sum, over all of a row."""
        if not isinstance(index, Var) or index.name not in around:
            return False
        bounds, execution = around[index.name]
        return bounds.step == 1 and execution != "sequential" and self._is_all(bounds)

    def _alone(self, node: Assign, around: _Around) -> Node:
        """Return a statement that sets one cell of a row as a loop that looks for it."""
        target = node.targets[0]
        if self.looks or len(node.targets) != 1 or target.array != self.array.name or target.rank:
            return node
        index = target.indices[self.axis]
        if any(around[name][1] == "parallel" for name in variables(index) if name in around):
            return node
        name = self._fresh(around)
        subscripts = list(target.subscripts)
        subscripts[self.axis] = Var(name)
        cell = Access(target.array, tuple(subscripts))
        own = replace(node, targets=(cell,), augmented=False)
        guard = If(Relation("==", Var(name), index), (own,))
        return Loop(name, Range(Int(0), self.extent), (guard,), "parallel")

    def _condition(self, condition: Condition, around: _Around) -> Condition:
        return replaced_in_condition(condition, lambda part: self._part(part, around))

    def _value(self, value: Value, around: _Around) -> Value:
        return replaced(value, lambda part: self._part(part, around))

    def _part(self, part: Value, around: _Around) -> Value | None:
        match part:
            case Reduce(function, generators, body):
                inner = dict(around)
                found = []
                for each in generators:
                    inner[each.variable] = (each.range, "sum")
                    condition = self._condition(each.condition, inner)
                    found.append(Generator(each.variable, each.range, condition))
                return Reduce(function, tuple(found), self._value(body, inner))
            case Read(access) if access.array == self.array.name and not access.rank:
                index = access.indices[self.axis]
                if not self.looks or self._is_lane(index, around):
                    return None
                return self._looked_up(access, around)
            case _:
                return None

    def _looked_up(self, access: Access, around: _Around) -> Value:
        """Return the element of a row at a subscript, as a sum over that one."""
        name = self._fresh(around)
        subscripts = list(access.subscripts)
        subscripts[self.axis] = Var(name)
        cell = Read(Access(access.array, tuple(subscripts)))
        condition = Relation("==", Var(name), access.indices[self.axis])
        return Reduce("sum", (Generator(name, Range(Int(0), self.extent), condition),), cell)

    def _fresh(self, around: Collection[str]) -> str:
        taken = {*around, *(name for node in self.program.body for name in binders(node))}
        return fresh_name(self.program, "e", taken)


def _asked(parts: list[Relation], extent: Index) -> Condition:
    """Return conditions on a variable from 0 to an extent, without those that hold there."""
    start, stop = parts
    kept = [] if simplified(start.right) == Int(0) else [start]
    return conjunction(*kept, *([] if is_same(stop.right, extent) else [stop]))
