"""From a listing to definitions: every array and scalar defined once.

A statement makes a new version of what it writes. Loops whose variable is a subscript of the
target become indices of the definition; the others either give each iteration a version of its
own (a scalar set anew in every iteration of `i` becomes indexed by `i`), or, where the statement is
`x = x + …`, are what is summed over. What is read is always the version written last in the text.
That it is also the one written last when the listing runs is checked loop by loop, and a listing in
which it is not (a recurrence other than a plain sum, maximum or minimum) is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from looptrans.adjoint.accumulating import IDENTITIES, accumulation, arrays_in
from looptrans.adjoint.apart import added
from looptrans.adjoint.definitions import (
    Definition,
    Names,
    System,
    full,
    refreshed,
)
from looptrans.adjoint.facts import Facts, bounds_of
from looptrans.adjoint.lets import (
    cell_without_lets,
    condition_without_lets,
    value_without_lets,
)
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.cells import condition_moved, moved, plain, value_moved
from looptrans.algebra.values import is_number, negative
from looptrans.ir.affine import Form, form_of, index_of, is_same, simplified
from looptrans.ir.condition import (
    ALWAYS,
    Condition,
    Data,
    Every,
    Not,
    Relation,
    Some,
    conjunction,
    is_data_dependent,
    negation,
)
from looptrans.ir.index import Arith, Index, Int, Var, substitute, variables
from looptrans.ir.program import (
    Assign,
    Declaration,
    If,
    Loop,
    Node,
    Program,
)
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    WHOLE,
    Access,
    Binary,
    Call,
    Const,
    Create,
    Generator,
    Holds,
    Range,
    Read,
    Reduce,
    Select,
    Value,
    Whole,
    rank_of,
    walk_value,
)
from looptrans.ir.walk import Placed, placed, written

Position = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop around a place: where it stands, and its variable and range in the system's names."""

    position: Position
    name: str
    generator: Generator

    @property
    def variable(self) -> str:
        return self.generator.variable


@dataclass(frozen=True, slots=True)
class _Around:
    loops: tuple[_Loop, ...] = ()
    conditions: tuple[Condition, ...] = ()

    @property
    def facts(self) -> Facts:
        return Facts(self.conditions).inside(loop.generator for loop in self.loops)

    @property
    def renaming(self) -> dict[str, Index]:
        return {loop.name: Var(loop.variable) for loop in self.loops}


@dataclass(frozen=True, slots=True)
class _Version:
    """What an array holds from a statement on.

    Attributes:
        name: The definition or the input; None where it is a number or nothing.
        number: The number every cell holds, if that is known.
        loops: The loops around the statement.
        dimensions: For each dimension, the loop whose variable is its subscript.
        expanded: The loops each iteration of which has a version of its own, in order.
        operator: `sum`, `max` or `min` where it accumulates over loops.
        inner: The definition that holds where `needs` does, in terms of `indices`.
        needs: See `inner`.
        indices: The variables `needs` is written in.
    """

    name: str | None = None
    number: Const | None = None
    loops: tuple[Position, ...] = ()
    dimensions: tuple[Position | None, ...] = ()
    expanded: tuple[Position, ...] = ()
    operator: str = ""
    inner: str | None = None
    needs: tuple[Condition, ...] = ()
    indices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """Where a statement works out a definition.

    Attributes:
        array: What it writes.
        target: The cell, in the listing's own names.
        position: The statement's place.
        path: The loops around it, outermost first.
        indices: The loop of each index of the definition; None where it has none.
    """

    array: str
    target: Access
    position: Position
    path: tuple[Position, ...]
    indices: tuple[Position | None, ...]

    def behind(self, count: int) -> Position:
        """Return the node the statement is in, in the body of the innermost of `count` loops."""
        depth = len(self.path[count - 1]) if count else 0
        return self.position[: depth + 1]


@dataclass(frozen=True, slots=True)
class Reading:
    """A listing as definitions.

    Attributes:
        system: The definitions.
        outputs: For each output, the definition of what it holds in the end.
        sites: Where the listing works out a definition.
        last: The definition of what each array holds in the end.
    """

    system: System
    outputs: dict[str, str]
    sites: dict[str, Site]
    last: dict[str, str]


def definitions_of(program: Program) -> Reading:
    """Read a listing as definitions.

    Raises:
        NotDifferentiated: It is no chain of values, sums, maxima and minima.
    """
    return _Reader(program).run()


@dataclass(slots=True)
class _Reader:
    program: Program
    system: System = field(init=False)
    current: dict[str, _Version] = field(default_factory=dict)
    writers: dict[str, list[Placed]] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    rows: dict[tuple[str, int], Index] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = {a.name for a in self.program.arrays} | {p.name for p in self.program.parameters}
        self.system = System(Names(set(taken)))

    def run(self) -> Reading:
        changed = written(self.program)
        for array in self.program.arrays:
            if array.role == "input":
                if array.name in changed and array.element == "float":
                    raise NotDifferentiated(
                        f"{array.name} comes from outside and is written: its first values are "
                        "lost to the backward pass"
                    )
                self.current[array.name] = _Version(array.name)
            else:
                self.current[array.name] = _Version()
        for place in placed(self.program):
            if isinstance(place.node, Assign):
                for target in place.node.targets:
                    self.writers.setdefault(target.array, []).append(place)
        self._body(self.program.body, (), _Around())
        outputs = {}
        for name in self.program.outputs:
            if self.program.array(name).element == "float":
                outputs[name] = self._final(name)
        last = {array: v.name for array, v in self.current.items() if v.name and not v.expanded}
        return Reading(self.system, outputs, self.sites, last)

    def _final(self, name: str) -> str:
        """Return the definition of what an output holds in the end."""
        version = self.current[name]
        if version.expanded:
            raise NotDifferentiated(f"{name} is what the last iteration of a loop leaves")
        if version.name is None:
            array = self.program.array(name)
            indices = tuple(self._index(name, k) for k in range(array.rank))
            value = version.number or Const(0.0)
            return self.system.add(Definition(self.system.names.array(name), indices, value)).name
        return version.name

    def _index(self, array: str, dimension: int, like: str = "x") -> Generator:
        return full(self.system.names.variable(like), self._extent(array, dimension))

    def _extent(self, array: str, dimension: int) -> Index:
        extent = self.program.array(array).shape[dimension]
        extent = self.rows.get((array, dimension)) if extent is None else extent
        if extent is None:
            raise NotDifferentiated(
                f"it is not known how large {array} is: annotate the arguments with their shapes"
            )
        return extent

    # Nodes

    def _body(self, body: tuple[Node, ...], position: Position, around: _Around) -> None:
        for number, node in enumerate(body):
            here = (*position, number)
            match node:
                case Declaration(array, creation):
                    self.current[array] = _Version(number=_filled(creation))
                case Loop():
                    variable = self.system.names.variable(node.variable)
                    bounds = Range(
                        self._plain(node.range.start, around),
                        self._plain(node.range.stop, around),
                        node.range.step,
                    )
                    loop = _Loop(here, node.variable, Generator(variable, bounds, ALWAYS))
                    kept = tuple(x for x in around.loops if x.name != node.variable)
                    if len(kept) != len(around.loops):
                        raise NotDifferentiated(f"two loops around a place are called {loop.name}")
                    self._body(node.body, here, replace(around, loops=(*around.loops, loop)))
                case If():
                    condition = self._condition(node.condition, around, node.label or "")
                    then = replace(around, conditions=(*around.conditions, condition))
                    self._body(node.body, (*here, 1), then)
                    opposite = (*around.conditions, negation(condition))
                    self._body(node.orelse, (*here, 2), replace(around, conditions=opposite))
                case Assign():
                    self._assign(node, here, around)
                case _:
                    raise NotDifferentiated(
                        "atomic parts, block reductions and barriers are a schedule: "
                        "differentiate the listing before it was scheduled"
                    )

    def _plain(self, index: Index, around: _Around) -> Index:
        return substitute(plain(index), around.renaming)

    def _condition(self, condition: Condition, around: _Around, label: str) -> Condition:
        moved_ = condition_moved(condition_without_lets(condition), around.renaming)
        place = _Place(label, (), around)
        return self._resolved_condition(moved_, place, around.facts)

    def _assign(self, node: Assign, position: Position, around: _Around) -> None:
        values = [value_moved(value_without_lets(v), around.renaming) for v in node.values]
        done: list[tuple[Access, Value]] = []
        for number, target in enumerate(node.targets):
            if self.program.array(target.array).element != "float":
                if target.subscripts:
                    raise NotDifferentiated(
                        f"{target.array} holds integers that the listing computes", node.label
                    )
                continue
            value = values[number if len(values) == len(node.targets) else 0]
            done.append((moved(cell_without_lets(target), around.renaming), value))
        if len(done) > 1:
            # All values are worked out before anything is written.
            for target, value in done:
                if any(t.array in arrays_in(value) for t, _ in done if t.array != target.array):
                    raise NotDifferentiated(
                        "it sets several arrays that its values read: write one statement each",
                        node.label,
                    )
        for target, value in done:
            self._write(_Place(node.label, position, around, target), target, value)

    # Writing

    def _write(self, place: _Place, target: Access, value: Value) -> None:
        target, value, place = self._rows(target, value, place)
        around = place.around
        solved = self._solved(target, place)
        rest = [x for x in around.loops if x.position not in solved.dimensions]
        before = self.current[target.array]
        if target.array in arrays_in(value):
            expanded = [x for x in rest if x.position in before.expanded]
            if len(expanded) != len(before.expanded):
                raise NotDifferentiated(
                    f"{target.array} is read here as the last iteration of a loop left it",
                    place.label,
                )
            over = [x for x in rest if x.position not in before.expanded]
        else:
            expanded, over = rest, []
        if over:
            self._accumulated(place, target, value, solved, expanded, over)
            return
        new = self._resolved(value, place, around.facts)
        indices = (*(x.generator for x in expanded), *solved.indices)
        needs = (*around.conditions, *solved.conditions)
        new = value_moved(new, solved.values)
        needs = tuple(condition_moved(c, solved.values) for c in needs)
        needs = tuple(c for c in needs if c != ALWAYS)
        inner_needs = needs
        full_indices = list(indices)
        for number, generator in enumerate(solved.indices, len(expanded)):
            whole = self._extent(target.array, number - len(expanded))
            if not _is_full(generator.range, whole):
                needs = (*needs, *bounds_of(generator.variable, generator.range))
            full_indices[number] = full(generator.variable, whole)
        version = _Version(
            loops=tuple(x.position for x in around.loops),
            dimensions=solved.dimensions,
            expanded=tuple(x.position for x in expanded),
        )
        if not needs and isinstance(new, Const) and not isinstance(new.value, bool):
            self.current[target.array] = replace(version, number=Const(float(new.value)))
            return
        old = self._old(place, target, solved, expanded) if needs else None
        if old is None:
            self._define(target.array, tuple(full_indices), new, place, version)
            return
        if inner_needs and not _affine(inner_needs):
            both = Select(conjunction(*needs), new, old)
            self._define(target.array, tuple(full_indices), both, place, version)
            return
        inner = self._define(target.array, indices, new, place, version)
        access = Access(inner, tuple(Var(g.variable) for g in indices))
        both = Select(conjunction(*needs), Read(access), old)
        version = replace(
            version,
            inner=inner,
            needs=needs,
            indices=tuple(g.variable for g in indices),
        )
        self._define(target.array, tuple(full_indices), both, place, version)

    def _old(
        self, place: _Place, target: Access, solved: _Solved, expanded: list[_Loop]
    ) -> Value | None:
        """Return what a cell holds that a statement under a guard may leave as it is."""
        before = self.current[target.array]
        if before.name is None and not before.expanded:
            return before.number
        if before.expanded != tuple(x.position for x in expanded):
            raise NotDifferentiated(
                f"{target.array} may keep what an earlier iteration left in it", place.label
            )
        cell = Access(target.array, tuple(target.subscripts))
        return value_moved(self._read(cell, place, place.around.facts), solved.values)

    def _accumulated(
        self,
        place: _Place,
        target: Access,
        value: Value,
        solved: _Solved,
        expanded: list[_Loop],
        over: list[_Loop],
    ) -> None:
        found = accumulation(target, value)
        if found is None:
            names = " and ".join(x.name for x in over)
            raise NotDifferentiated(
                f"{target.array} is carried from one iteration of {names} to the next, "
                "and not by a plain sum, maximum or minimum",
                place.label,
            )
        function, term, condition = found
        around = place.around
        facts = around.facts.and_(condition)
        given = self._resolved_condition(condition, place, around.facts)
        body = value_moved(self._resolved(term, place, facts), solved.values)
        # A condition becomes part of the loops; so do the bounds of indices that end early.
        needs = [condition_moved(c, solved.values) for c in (*around.conditions, given)]
        needs += [condition_moved(c, solved.values) for c in solved.conditions]
        indices = [x.generator for x in expanded]
        for number, generator in enumerate(solved.indices):
            whole = self._extent(target.array, number)
            if not _is_full(generator.range, whole):
                needs += bounds_of(generator.variable, generator.range)
            indices.append(full(generator.variable, whole))
        needs = [c for c in needs if c != ALWAYS]
        generators = tuple(
            Generator(
                x.variable,
                Range(
                    simplified(substitute(x.generator.range.start, solved.values)),
                    simplified(substitute(x.generator.range.stop, solved.values)),
                    x.generator.range.step,
                ),
                conjunction(*needs) if number == len(over) else ALWAYS,
            )
            for number, x in enumerate(over, 1)
        )
        reduction = Reduce(function, generators, body)
        version = _Version(
            loops=tuple(x.position for x in around.loops),
            dimensions=solved.dimensions,
            expanded=tuple(x.position for x in expanded),
            operator=function,
        )
        before = self.current[target.array]
        cell = (
            value_moved(self._read(target, place, facts, accumulates=function), solved.values)
            if before.name is not None
            else before.number
        )
        if cell is None:
            raise NotDifferentiated(f"{target.array} has no first value", place.label)
        if is_number(cell, IDENTITIES[function]):
            self._define(target.array, tuple(indices), reduction, place, version)
            return
        wish = self.system.names.array(f"{target.array}_sum")
        part = Definition(wish, tuple(indices), reduction, label=place.label)
        added(self.system, part)
        op = (
            Binary("+", cell, part.cell) if function == "sum" else Call(function, (cell, part.cell))
        )
        self._define(target.array, tuple(indices), op, place, version)

    def _define(
        self,
        array: str,
        indices: tuple[Generator, ...],
        value: Value,
        place: _Place,
        version: _Version,
    ) -> str:
        taken = array in self.system.definitions
        name = self.system.names.array(array) if taken else array
        added(self.system, Definition(name, indices, value, label=place.label, array=array))
        self.current[array] = replace(version, name=name)
        own = {x.variable: Var(x.name) for x in place.around.loops}
        if place.target is not None and not place.around.conditions:
            self.sites[name] = Site(
                array,
                moved(place.target, own),
                place.position,
                tuple(x.position for x in place.around.loops),
                (*version.expanded, *version.dimensions),
            )
        return name

    def _solved(self, target: Access, place: _Place) -> _Solved:
        """Return the indices of a target in terms of the loops around it."""
        free = {x.variable: x for x in place.around.loops}
        count = len(target.subscripts)
        dimensions: list[Position | None] = [None] * count
        indices: list[Generator | None] = [None] * count
        values: dict[str, Index] = {}
        conditions: list[Condition] = []
        for number, index in enumerate(target.indices):
            if isinstance(index, Var) and index.name in free:
                loop = free.pop(index.name)
                dimensions[number] = loop.position
                indices[number] = loop.generator
        for number, index in enumerate(target.indices):
            if indices[number] is not None:
                continue
            open_ = [name for name in variables(index) if name in free]
            own = self._index(target.array, number, open_[0] if open_ else "x")
            indices[number] = own
            here = Var(own.variable)
            if not open_:
                conditions.append(Relation("==", here, index))
                continue
            form = form_of(index)
            unit = [name for name in open_ if abs(form.terms.get(Var(name), 0)) == 1]
            if len(open_) != 1 or not unit:
                raise NotDifferentiated(
                    f"which iteration writes a cell of {target.array} cannot be told from its "
                    "subscripts",
                    place.label,
                )
            loop = free.pop(unit[0])
            factor = form.terms[Var(unit[0])]
            others = form.plus(Form({Var(unit[0]): factor}), -1)
            values[unit[0]] = index_of(form_of(here).plus(others, -1).times(factor))
            conditions += [
                condition_moved(c, values) for c in bounds_of(loop.variable, loop.generator.range)
            ]
            dimensions[number] = loop.position
        found = tuple(g for g in indices if g is not None)
        return _Solved(found, tuple(dimensions), values, tuple(conditions))

    # Rows

    def _rows(self, target: Access, value: Value, place: _Place) -> tuple[Access, Value, _Place]:
        """Write a statement about a row as one about its elements."""
        value = self._scalar_inside(value, place)
        if not any(isinstance(s, Whole) for s in target.subscripts):
            if rank_of(value):
                raise NotDifferentiated("a row is put into a single cell", place.label)
            return target, value, place
        if target.rank != 1:
            raise NotDifferentiated("it sets several rows at once", place.label)
        number = target.subscripts.index(WHOLE)
        if self.program.array(target.array).shape[number] is None and rank_of(value):
            self.rows[target.array, number] = self._row_index(value, place).range.stop
        generator = self._index(target.array, number, "t")
        own = (*place.position, -1)
        loop = _Loop(own, generator.variable, generator)
        around = replace(place.around, loops=(*place.around.loops, loop))
        here = Var(generator.variable)
        subscripts = tuple(here if isinstance(s, Whole) else s for s in target.subscripts)
        element = self._element(value, here, place)
        return Access(target.array, subscripts), element, replace(place, around=around)

    def _scalar_inside(self, value: Value, place: _Place) -> Value:
        """Write products and reductions of rows as sums over an index."""

        def change(part: Value) -> Value | None:
            match part:
                case Binary("@", left, right):
                    body = (left, right)
                    generator = self._row_index(part, place)
                    here = Var(generator.variable)
                    factors = [
                        self._element(self._scalar_inside(p, place), here, place) for p in body
                    ]
                    return Reduce("sum", (generator,), Binary("*", *factors))
                case Call("sum" | "max" | "min" as name, (row,)):
                    generator = self._row_index(row, place)
                    here = Var(generator.variable)
                    body_ = self._element(self._scalar_inside(row, place), here, place)
                    return Reduce(name, (generator,), body_)
                case _:
                    return None

        return replaced(value, change)

    def _row_index(self, value: Value, place: _Place) -> Generator:
        for part in walk_value(value):
            if isinstance(part, Read) and part.access.rank == 1:
                return self._index(part.access.array, part.access.subscripts.index(WHOLE), "t")
        raise NotDifferentiated("it is not known how long a row is", place.label)

    def _element(self, value: Value, index: Index, place: _Place) -> Value:
        def change(part: Value) -> Value | None:
            if isinstance(part, Read) and part.access.rank:
                if part.access.rank != 1:
                    raise NotDifferentiated("it reads several rows at once", place.label)
                subscripts = part.access.subscripts
                cell = tuple(index if isinstance(s, Whole) else s for s in subscripts)
                return Read(Access(part.access.array, cell))
            return None

        return replaced(value, change)

    # Reading

    def _resolved(self, value: Value, place: _Place, facts: Facts) -> Value:
        """Return a value over definitions and inputs."""

        def change(part: Value) -> Value | None:
            match part:
                case Read(access):
                    return self._read(access, place, facts)
                case Select(condition, chosen, otherwise):
                    tested = self._resolved_condition(condition, place, facts)
                    return Select(
                        tested,
                        self._resolved(chosen, place, facts.and_(tested)),
                        self._resolved(otherwise, place, facts.and_(negation(tested))),
                    )
                case Reduce(function, generators, body):
                    inside = facts.inside(generators)
                    found = tuple(
                        replace(g, condition=self._resolved_condition(g.condition, place, inside))
                        for g in generators
                    )
                    fresh = Reduce(function, found, self._resolved(body, place, inside))
                    return refreshed(fresh, self.system.names)
                case Holds(condition):
                    return Holds(self._resolved_condition(condition, place, facts))
                case _:
                    return None

        return replaced(value, change)

    def _resolved_condition(self, condition: Condition, place: _Place, facts: Facts) -> Condition:
        match condition:
            case Data(value):
                return Data(self._resolved(value, place, facts))
            case Every(parts):
                return Every(tuple(self._resolved_condition(p, place, facts) for p in parts))
            case Some(parts):
                return Some(tuple(self._resolved_condition(p, place, facts) for p in parts))
            case Not(part):
                return Not(self._resolved_condition(part, place, facts))
            case _:
                return condition

    def _read(self, access: Access, place: _Place, facts: Facts, accumulates: str = "") -> Value:
        """Return what a read gets."""
        array = self.program.array(access.array)
        if array.role == "input":
            return Read(access)
        if array.element != "float":
            raise NotDifferentiated(
                f"{access.array} holds integers that the listing computes", place.label
            )
        if access.rank:
            raise NotDifferentiated(f"the whole row {access.array} is read", place.label)
        version = self.current[access.array]
        self._check(access, version, place, accumulates)
        if version.name is None:
            if version.number is None:
                raise NotDifferentiated(f"{access.array} is read before it is set", place.label)
            return version.number
        loops = {x.position: x for x in place.around.loops}
        leading = tuple(Var(loops[position].variable) for position in version.expanded)
        subscripts = (*leading, *access.indices)
        name = version.name
        if version.inner is not None:
            here = dict(zip(version.indices, subscripts, strict=True))
            if all(facts.imply(condition_moved(c, here)) for c in version.needs):
                name = version.inner
        return Read(Access(name, subscripts))

    def _check(self, access: Access, version: _Version, place: _Place, accumulates: str) -> None:
        """Refuse a read that may get something else than the version written last in the text."""
        mine = {x.position: x for x in place.around.loops}
        fresh: set[Position] = set()
        for position in version.loops:
            if position not in mine:
                continue
            if position in version.expanded:
                fresh.add(position)
                continue
            if position in version.dimensions:
                dimension = version.dimensions.index(position)
                if access.subscripts[dimension] == Var(mine[position].variable):
                    fresh.add(position)
                    continue
                raise NotDifferentiated(
                    f"{access.array} is read where another iteration of {mine[position].name} "
                    "may have written it",
                    place.label,
                )
            if accumulates and version.operator == accumulates:
                continue
            raise NotDifferentiated(
                f"{access.array} is read in between, while {mine[position].name} still gathers it",
                place.label,
            )
        for position in version.expanded:
            if position not in mine:
                raise NotDifferentiated(
                    f"{access.array} is read as the last iteration of a loop left it", place.label
                )
        self._check_later(access, place, mine, fresh, accumulates)

    def _check_later(
        self,
        access: Access,
        place: _Place,
        mine: dict[Position, _Loop],
        fresh: set[Position],
        accumulates: str,
    ) -> None:
        """Refuse a read that may get what a statement further down wrote an iteration before."""
        for writer in self.writers.get(access.array, ()):
            if writer.position < place.position or not isinstance(writer.node, Assign):
                continue
            if accumulates and self._also(writer, access.array, accumulates):
                continue
            names = [loop.variable for loop in writer.loops]
            for position, loop in zip(writer.loop_positions, writer.loops, strict=True):
                if position not in mine or position in fresh:
                    continue
                own = Var(mine[position].variable)
                apart = any(
                    written_ == Var(loop.variable) and read == own
                    for target in writer.node.targets
                    if target.array == access.array
                    for written_, read in zip(target.subscripts, access.subscripts, strict=True)
                )
                if not apart or names.count(loop.variable) > 1:
                    raise NotDifferentiated(
                        f"{access.array} is read as an earlier iteration of {loop.variable} left "
                        f"it ({writer.label})",
                        place.label,
                    )

    def _also(self, writer: Placed, array: str, function: str) -> bool:
        """Tell whether a statement only adds to an array, by the same operator."""
        assert isinstance(writer.node, Assign)
        if len(writer.node.targets) != 1 or len(writer.node.values) != 1:
            return False
        found = accumulation(writer.node.targets[0], writer.node.values[0])
        return found is not None and found[0] == function and writer.node.targets[0].array == array


@dataclass(frozen=True, slots=True)
class _Place:
    label: str
    position: Position
    around: _Around
    target: Access | None = None


@dataclass(frozen=True, slots=True)
class _Solved:
    """A target's indices: their ranges, their loops, what loop variables are, what must hold."""

    indices: tuple[Generator, ...]
    dimensions: tuple[Position | None, ...]
    values: dict[str, Index]
    conditions: tuple[Condition, ...]


def _filled(creation: Create) -> Const | None:
    match creation.function:
        case "zeros":
            return Const(0.0)
        case "ones":
            return Const(1.0)
        case "full":
            fill = creation.fill
            if isinstance(fill, Const):
                return Const(float(fill.value))
            negated = None if fill is None else negative(fill)
            return Const(-float(negated.value)) if isinstance(negated, Const) else None
        case _:
            return None


def _is_full(bounds: Range, extent: Index) -> bool:
    if bounds.step == -1:
        return is_same(bounds.stop, Int(-1)) and is_same(bounds.start, Arith("-", extent, Int(1)))
    return bounds.step == 1 and is_same(bounds.start, Int(0)) and is_same(bounds.stop, extent)


def _affine(conditions: Iterable[Condition]) -> bool:
    return not any(is_data_dependent(c) for c in conditions)
