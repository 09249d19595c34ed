"""The ranges of loops that change places.

The iterations of a nest are the integer points of a polyhedron. To run through them with the loops
in another order, the polyhedron is projected onto the outermost loop, onto the two outermost, and
so on; the range of each loop is what the projection says of its variable, given those outside
(Ancourt and Irigoin, "Scanning polyhedra with DO loops", 1991).

    for i in range(0, N):                        for j in range(0, N):
        for j in range(0, i + 1):      ->            for i in range(j, N):

A projection may be too large: an outer iteration for which nothing is inside does no harm. What
must hold is that every condition is tested, by the range of the innermost loop it mentions or by a
guard inside all of them, and that none is left out but what the tested ones imply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeAlias

import islpy as isl

from looptrans.analysis.ranges.ends import Ends
from looptrans.analysis.ranges.inequalities import (
    Case,
    Reading,
    Space,
    Stride,
    contracts_of,
    facts_about,
    form_text,
)
from looptrans.analysis.ranges.scan import Bound, Dimension, Scan, Scanned, bounds_of
from looptrans.ir.affine import (
    Form,
    difference,
    extremum,
    form_of,
    index_of,
    is_same,
    remainder,
    total,
)
from looptrans.ir.condition import Relation
from looptrans.ir.index import Index, Int, Var, variables
from looptrans.ir.program import Program
from looptrans.ir.value import Range

_SET = isl.dim_type.set
MOST_CASES = 32
Values: TypeAlias = Mapping[str, tuple[Index, Index]]
NOTHING = Range(Int(0), Int(0))


class _UnboundedError(Exception):
    """No range can be found for a loop."""

    def __init__(self, variable: str) -> None:
        super().__init__(variable)
        self.variable = variable


def scanned(program: Program, position: tuple[int, ...], scan: Scan) -> Scanned:
    """Find the ranges of the loops of a scan.

    Args:
        program: The program the nest is a part of; what surrounds the nest is known to hold.
        position: The position of the outermost loop of the nest.
        scan: The iterations, and the order of the loops.
    """
    facts = facts_about(program, position)
    values = {a.name: a.value_range for a in program.arrays if a.value_range is not None}
    try:
        return _Scanner(_with_origins(scan, facts, values), facts, values).scanned()
    except _UnboundedError as error:
        return Scanned(unbounded=error.variable)


def same_values(program: Program, position: tuple[int, ...], first: Range, second: Range) -> bool:
    """Tell whether two ranges have the same values, in the same order.

    Args:
        program: The program, whose contracts are leaned on.
        position: Where the two loops stand, one after the other.
        first: The range of the one.
        second: That of the other.
    """
    if first.step != second.step:
        return False
    facts = [*facts_about(program, position), *contracts_of(program)]
    cases = [_case_of(each) for each in (first, second)]
    if abs(first.step) != 1 and not is_same(first.start, second.start):
        return False
    stride = Stride(abs(first.step), form_of(first.start))
    strides = {} if stride.size == 1 else {"": stride}
    space = Space([""], strides, [form for case in cases for form in case], facts)
    one, other = (space.polyhedron(case).intersect(space.context) for case in cases)
    return bool(one.is_equal(other))


def _case_of(limits: Range) -> Case:
    """Return the values of a range that has no cases."""
    found: Case = []
    for bound in bounds_of("", limits):
        # The ends do not mention the variable, so they are numbers, whatever they are made of.
        cases = Reading(frozenset(("",))).cases(bound.relation)
        assert cases is not None and len(cases) == 1
        found += cases[0]
    return found


# Tiles


def _with_origins(scan: Scan, facts: Sequence[Form], values: Values) -> Scan:
    """Give the loops over tiles their origins, and say which iterations a tile holds.

    All tiles of a loop count from one origin, whatever the loops around it do, so that they line
    up: the first value the variable ever has.
    """
    inner = [d for d in scan.dimensions if d.tiles is None]
    dimensions = []
    added: list[Bound] = []
    for dimension in scan.dimensions:
        if dimension.tiles is None:
            dimensions.append(dimension)
            continue
        point = next(d for d in inner if d.variable == dimension.tiles)
        origin = _first_value(point, inner, scan.bounds, facts, values)
        dimensions.append(replace(dimension, origin=origin))
        tile, way = Var(dimension.variable), 1 if dimension.step > 0 else -1
        added.append(bounds_of(dimension.variable, Range(origin, origin, way))[0])
        added += bounds_of(point.variable, Range(tile, total(tile, dimension.step), way))
    return Scan(tuple(dimensions), (*added, *scan.bounds))


def _first_value(
    point: Dimension,
    inner: list[Dimension],
    bounds: Sequence[Bound],
    facts: Sequence[Form],
    values: Values,
) -> Index:
    names = frozenset(d.variable for d in inner)
    start = next(b.relation.right for b in bounds if b.variable == point.variable)
    if not names.intersection(variables(start)):
        return start
    alone = Dimension(point.variable, 1 if point.step > 0 else -1)
    rest = (Dimension(d.variable, 1) for d in inner if d is not point)
    scanner = _Scanner(Scan((alone, *rest), tuple(bounds)), facts, values)
    return Int(0) if scanner.is_empty() else scanner.range_of(0).start


# Scanning


class _Scanner:
    """Finds the range of one loop after the other, outermost first.

    Attributes:
        guards: What no range can say.
    """

    def __init__(self, scan: Scan, facts: Sequence[Form], values: Values) -> None:
        self.guards: list[Relation] = []
        self._dimensions = scan.dimensions
        self._order = {d.variable: level for level, d in enumerate(scan.dimensions)}
        self._names = frozenset(self._order)
        were = list(dict.fromkeys(bound.variable for bound in scan.bounds))
        self._were_outside = {name: frozenset(were[:n]) for n, name in enumerate(were)}
        self._exact = Reading(self._names)
        self._rough = Reading(self._names, relaxed=True, values=values)
        self._strides: dict[str, Stride] = {}
        # Loops with a step whose origin is not linear; they can only stay as they are.
        self._odd: set[int] = set()
        # Loops that cannot keep their range, and those of which a bound is tested further inside.
        self._unkept: set[int] = set()
        self._moved = {n for n, d in enumerate(scan.dimensions) if d.tiles is not None}
        # By level: inequalities, and ends of ranges that are none but can be written down.
        self._forms: list[Case] = [[] for _ in scan.dimensions]
        self._ends: list[list[Relation]] = [[] for _ in scan.dimensions]
        self._choices: list[list[Case]] = []
        for dimension in scan.dimensions:
            self._place_stride(dimension)
        for bound in scan.bounds:
            self._place(bound)
        all_forms = [form for forms in self._forms for form in forms]
        others = [form for group in self._choices for case in group for form in case]
        self._space = Space(list(self._order), self._strides, [*all_forms, *others], facts)
        # What isl makes of each inequality, to find it again, as it was, in what it answers.
        self._written: dict[str, Form] = {}
        for form in all_forms:
            for made in self._space.inequalities(self._space.polyhedron([form])):
                self._written.setdefault(form_text(made), form)
        self._whole = self._iterations(all_forms)
        self._known = self._space.context

    def scanned(self) -> Scanned:
        """Return the ranges of all loops."""
        if self.is_empty():
            return Scanned(tuple(NOTHING for _ in self._dimensions))
        ranges = tuple(self.range_of(level) for level in range(len(self._dimensions)))
        return Scanned(ranges, tuple(self.guards))

    def is_empty(self) -> bool:
        """Tell whether there are no iterations at all."""
        return bool(self._whole.intersect(isl.Set.from_basic_set(self._known)).is_empty())

    # What is said where

    def _place_stride(self, dimension: Dimension) -> None:
        """Decide which loop has a step other than 1; it may become one further inside."""
        size, origin = abs(dimension.step), dimension.origin
        if size == 1 or origin is None:
            return
        mine = self._order[dimension.variable]
        form = self._modulo(form_of(origin), size)
        varying = [term for term in form.terms if self._names.intersection(variables(term))]
        is_linear = all(isinstance(term, Var) for term in varying)
        last = self._level(index_of(form))
        if last < mine:
            if is_linear:
                self._strides[dimension.variable] = Stride(size, form)
            else:
                self._odd.add(mine)
            return
        self._unkept.add(mine)
        apart = Form({Var(dimension.variable): 1}).plus(form, -1)
        inner = self._dimensions[last]
        count = apart.terms.get(Var(inner.variable), 0)
        is_free = abs(inner.step) == 1 and inner.variable not in self._strides
        if is_linear and is_free and abs(count) == 1:
            # A multiple of the size; solved for the innermost variable in it.
            solved = apart.times(-count).plus(Form({Var(inner.variable): 1}))
            self._strides[inner.variable] = Stride(size, solved)
            self._unkept.add(last)
        else:
            self._guard_stride(dimension)

    def _modulo(self, form: Form, size: int) -> Form:
        """Leave out what is a multiple of a size because variables have strides themselves."""
        for dimension in self._dimensions:
            variable = Var(dimension.variable)
            count = form.terms.get(variable, 0)
            own = dimension.origin
            if count and own is not None and count * dimension.step % size == 0:
                rest = form.plus(Form({variable: 1}), -count)
                return self._modulo(rest.plus(form_of(own), count), size)
        return form

    def _guard_stride(self, dimension: Dimension) -> None:
        assert dimension.origin is not None
        apart = difference(Var(dimension.variable), dimension.origin)
        self.guards.append(Relation("==", remainder(apart, abs(dimension.step)), Int(0)))

    def _level(self, index: Index) -> int:
        """Return the level of the innermost loop an expression mentions; -1 for none."""
        return max((self._order[n] for n in variables(index) if n in self._order), default=-1)

    def _place(self, bound: Bound) -> None:
        """Decide where a bound is tested: in the range of the innermost loop, or in a guard."""
        mine = self._order[bound.variable]
        cases = self._exact.cases(bound.relation)
        if cases is not None and len(cases) == 1:
            for form in cases[0]:
                level = self._level(index_of(form))
                self._forms[level].append(form)
                if level != mine:
                    self._unkept |= {mine, level}
                    self._moved.add(mine)
            return
        if cases is None:
            cases = self._rough.cases(bound.relation)
        if cases is not None:
            self._choices.append(cases)
        if self._level(bound.relation.right) < mine:
            self._ends[mine].append(bound.relation)
        else:
            self._unkept.add(mine)
            self._moved.add(mine)
            self.guards.append(bound.relation)

    # Polyhedra

    def _iterations(self, forms: Case) -> isl.Set:
        """Return all iterations, or more than all where there are too many cases."""
        count = 1
        groups = []
        for group in self._choices:
            if count * len(group) <= MOST_CASES:
                count *= len(group)
                groups.append(group)
        parts = [
            isl.Set.from_basic_set(
                self._space.polyhedron([*forms, *(form for case in chosen for form in case)])
            )
            for chosen in product(*groups)
        ]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.union(part)
        return whole

    def _parts(self, level: int) -> list[Case]:
        """Return what the iterations say of a loop's variable, beside what is known outside it."""
        inside = len(self._dimensions) - level - 1
        seen = self._whole.project_out(_SET, level + 1, inside)
        listed = seen.insert_dims(_SET, level + 1, inside).get_basic_set_list()
        own = self._space.polyhedron(self._forms[level])
        found = []
        for number in range(listed.n_basic_set()):
            part = listed.get_at(number).remove_divs()
            part = part.drop_constraints_not_involving_dims(_SET, level, 1).intersect(own)
            if not part.intersect(self._known).is_empty():
                found.append(self._simple(part, level))
        return found

    def _simple(self, part: isl.BasicSet, level: int) -> Case:
        """Return the inequalities about a variable that do not follow from what is known outside.

        All of the loop's own follow from the ones returned.
        """
        variable = Var(self._dimensions[level].variable)
        simple = part.gist(self._known).remove_redundancies()
        found = [form for form in self._space.inequalities(simple) if variable in form.terms]
        for form in self._forms[level]:
            alone = self._space.polyhedron([form])
            if not self._space.region(found).intersect(self._known).is_subset(alone):
                # isl has put an equal variable in the place of this one.
                found += self._space.inequalities(alone)
        return found

    # Ranges

    def range_of(self, level: int) -> Range:
        """Return the range of a loop, and note what is known inside it; outer loops first."""
        dimension = self._dimensions[level]
        own = self._space.polyhedron(self._forms[level])
        if self._is_kept(level, own):
            self._known = self._known.intersect(own)
            assert dimension.range is not None
            return dimension.range
        if level in self._odd:
            self._guard_stride(dimension)
        ends = Ends(self._space, Var(dimension.variable), dimension.step > 0, self._written)
        parts = [self._simple(own, level)]
        is_enough = level not in self._moved and all(self._side(parts, ends, level))
        if dimension.range is not None or not is_enough:
            found = self._parts(level)
            if len(found) == 1 or not is_enough:
                parts = found
        least, most = self._side(parts, ends, level)
        if least is None or most is None:
            raise _UnboundedError(dimension.variable)
        said = self._space.region(parts[0]) if len(parts) == 1 else own
        self._known = self._known.intersect(said)
        if dimension.step > 0:
            return Range(least, most, ends.stride.size)
        return Range(most, least, -ends.stride.size)

    def _is_kept(self, level: int, own: isl.BasicSet) -> bool:
        """Tell whether a loop may have the range it had, and could not have a smaller one."""
        dimension = self._dimensions[level]
        has_stride = dimension.variable in self._strides or level in self._odd
        is_same_step = has_stride == (abs(dimension.step) != 1)
        if dimension.range is None or level in self._unkept or not is_same_step:
            return False
        inside = {other.variable for other in self._dimensions[level:]}
        if inside & dimension.range.variables:
            # It names a loop it does not depend on, as in range(i - i, N).
            return False
        outside = {other.variable for other in self._dimensions[:level]}
        if level in self._odd or outside <= self._were_outside[dimension.variable]:
            return True
        parts = self._parts(level)
        if len(parts) != 1:
            return True
        return bool(own.intersect(self._known).is_subset(self._space.region(parts[0])))

    def _own(self, level: int) -> Case:
        alone = (self._space.polyhedron([form]) for form in self._forms[level])
        return [form for each in alone for form in self._space.inequalities(each)]

    def _side(self, parts: list[Case], ends: Ends, level: int) -> tuple[Index | None, Index | None]:
        """Return the lower and the upper end of a loop: of each part the tightest, then the widest.

        What one of several parts leaves out may hold only together with the rest of it, so that the
        inequalities of the loop itself are then added.
        """
        found = []
        for below in (True, False):
            inner, outer = ("max", "min") if below else ("min", "max")
            tight = [ends.of(part, below=below) for part in parts]
            all_ends = [
                ends.as_written(relation)
                for relation in self._ends[level]
                if (relation.op in (">=", ">")) == below
            ]
            if len(parts) > 1:
                all_ends += ends.of(self._own(level), below=below)
            if parts and all(tight):
                all_ends.append(extremum(outer, [extremum(inner, each) for each in tight]))
            found.append(extremum(inner, all_ends) if all_ends else None)
        return found[0], found[1]
