"""From a listing to definitions: every array and scalar defined once.

The statements are gone through in the order of the text; `versions` says what each of them defines
and `resolving` what it reads. A listing that carries values in any other way than a plain sum,
maximum or minimum is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.equations.definitions import Definition, System
from looptrans.adjoint.normalizing.given_numbers import is_given
from looptrans.adjoint.normalizing.lets import (
    cell_without_lets,
    condition_without_lets,
    value_without_lets,
)
from looptrans.adjoint.reading.resolving import resolved_condition
from looptrans.adjoint.reading.state import (
    Around,
    LoopAround,
    Place,
    Position,
    Site,
    State,
    Version,
)
from looptrans.adjoint.reading.versions import join, write
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.adjoint.rewriting.set_at_once import in_order
from looptrans.algebra.positional.cells import condition_moved, moved, value_moved
from looptrans.algebra.positional.values import is_number, negative
from looptrans.ir.condition import ALWAYS, Condition, negation
from looptrans.ir.creation import first_value
from looptrans.ir.index import Index, plain, substitute
from looptrans.ir.program import Assign, Declaration, If, Loop, Node, Program
from looptrans.ir.ranges import upwards
from looptrans.ir.rewrite import range_changed
from looptrans.ir.value import Access, Const, Create, Generator, Value
from looptrans.ir.walk import accesses, live_out, placed, read_in, written, written_in
from looptrans.transforms.editing.accesses import listed


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
    return _Reader(State(program)).run()


@dataclass(slots=True)
class _Reader:
    state: State
    needed: set[str] = field(init=False)
    for_integers: set[str] = field(init=False)

    def __post_init__(self) -> None:
        program = self.state.program
        returned = {*program.outputs, *live_out(program)}
        floats = program.float_names
        self.needed = _made_of(program, returned & floats)
        self.for_integers = _made_of(program, returned - floats) - self.needed

    def run(self) -> Reading:
        changed = written(self.state.program)
        for array in self.state.program.arrays:
            if array.role == "input":
                if array.name in changed and array.element == "float":
                    raise NotDifferentiated(
                        f"{array.name} comes from outside and is written: its first values are "
                        "lost to the backward pass",
                        remedy="put the result into an array of its own, and return that",
                    )
                self.state.current[array.name] = Version(array.name)
            else:
                self.state.current[array.name] = Version()
        for place in placed(self.state.program):
            if isinstance(place.node, Assign):
                for target in place.node.targets:
                    self.state.writers.setdefault(target.array, []).append(place)
        self._body(self.state.program.body, (), Around())
        outputs = {}
        for name in self.state.program.outputs:
            if self.state.program.array(name).element == "float":
                outputs[name] = self._final(name)
        last = {
            array: v.name for array, v in self.state.current.items() if v.name and not v.expanded
        }
        return Reading(self.state.system, outputs, self.state.sites, last)

    def _final(self, name: str) -> str:
        """Return the definition of what an output holds in the end."""
        version = self.state.current[name]
        if version.expanded:
            raise NotDifferentiated(f"{name} is what the last iteration of a loop leaves")
        if version.lost:
            raise NotDifferentiated(f"{name}: {version.lost}")
        if version.name is None:
            array = self.state.program.array(name)
            indices = tuple(self.state.index(name, k) for k in range(array.rank))
            value = version.number or Const(0.0)
            return self.state.system.add(
                Definition(self.state.system.names.array(name), indices, value)
            ).name
        return version.name

    def _body(self, body: tuple[Node, ...], position: Position, around: Around) -> None:
        for number, node in enumerate(body):
            here = (*position, number)
            if not isinstance(node, Declaration) and self._is_for_integers(node):
                continue
            match node:
                case Declaration(array, creation):
                    self.state.current[array] = Version(number=_filled(creation))
                case Loop():
                    variable = self.state.system.names.variable(node.variable)
                    bounds = range_changed(node.range, lambda end: self._plain(end, around))
                    bounds = upwards(bounds)
                    loop = LoopAround(here, node.variable, Generator(variable, bounds, ALWAYS))
                    kept = tuple(x for x in around.loops if x.name != node.variable)
                    if len(kept) != len(around.loops):
                        raise NotDifferentiated(f"two loops around a place are called {loop.name}")
                    self._body(node.body, here, replace(around, loops=(*around.loops, loop)))
                case If():
                    condition = self._condition(node.condition, around, node.label or "")
                    then = replace(around, conditions=(*around.conditions, condition))
                    before = dict(self.state.current)
                    self._body(node.body, (*here, 1), then)
                    between = dict(self.state.current)
                    opposite = (*around.conditions, negation(condition))
                    self._body(node.orelse, (*here, 2), replace(around, conditions=opposite))
                    for array, one in between.items():
                        if one != before[array] and self.state.current[array] != one:
                            join(self.state, array, one)
                case Assign():
                    self._assign(node, here, around)
                case _:
                    raise NotDifferentiated(
                        "atomic parts, block reductions and barriers are a schedule: "
                        "differentiate the listing before it was scheduled"
                    )

    def _is_for_integers(self, node: Node) -> bool:
        """Tell whether a node serves integers alone that are returned, as where a row is greatest.

        They have no gradient: how they come about does not matter.
        """
        names = written_in((node,))
        return names.isdisjoint(self.needed) and not names.isdisjoint(self.for_integers)

    def _plain(self, index: Index, around: Around) -> Index:
        return substitute(plain(index), around.renaming)

    def _condition(self, condition: Condition, around: Around, label: str) -> Condition:
        moved_ = condition_moved(condition_without_lets(condition), around.renaming)
        place = Place(label, (), around)
        return resolved_condition(self.state, moved_, place, around.facts)

    def _assign(self, node: Assign, position: Position, around: Around) -> None:
        values = [value_moved(value_without_lets(v), around.renaming) for v in node.values]
        done: list[tuple[Access, Value]] = []
        for number, target in enumerate(node.targets):
            value = values[number if len(values) == len(node.targets) else 0]
            cell = moved(cell_without_lets(target), around.renaming)
            if self.state.program.array(target.array).element != "float":
                self._count(node, position, around, cell, value)
                continue
            done.append((cell, value))
        done = _in_order(done, node.label)
        for target, value in done:
            write(self.state, Place(node.label, position, around, target), target, value)

    def _count(
        self, node: Assign, position: Position, around: Around, target: Access, value: Value
    ) -> None:
        """Let what counts what satisfies a condition be a sum of ones.

        Other integers stand for index expressions, or are known to nobody.
        """
        counts = accumulation(target, value)
        if is_number(value, 0.0) or (counts and counts[0] == "sum" and is_number(counts[1], 1.0)):
            try:
                write(self.state, Place(node.label, position, around, target), target, value)
            except NotDifferentiated:
                self.state.current[target.array] = Version()
        else:
            self.state.current[target.array] = Version()


def _made_of(program: Program, names: set[str]) -> set[str]:
    """Return the arrays and scalars of which some are made, these included."""
    found = set(names)
    settings = list(_settings(program.body, frozenset()))
    while True:
        more = {name for sets, reads in settings if sets & found for name in reads}
        if more <= found:
            return found
        found |= more


def _settings(
    body: tuple[Node, ...], asked: frozenset[str]
) -> Iterator[tuple[set[str], frozenset[str]]]:
    """Yield what each statement sets, and what it reads, the conditions around it included."""
    for node in body:
        match node:
            case Assign():
                reads = read_in((node,))
                yield written_in((node,)), asked | reads
            case If():
                inside = asked | {each.access.array for each in accesses(node)}
                yield from _settings((*node.body, *node.orelse), inside)
            case Loop():
                yield from _settings(node.body, asked)
            case _:
                pass


def _filled(creation: Create) -> Value | None:
    fill = first_value(creation)
    if isinstance(fill, Const):
        return Const(float(fill.value))
    negated = None if fill is None else negative(fill)
    if isinstance(negated, Const):
        return Const(-float(negated.value))
    return fill if fill is not None and is_given(fill) else None


def _in_order(done: list[tuple[Access, Value]], label: str) -> list[tuple[Access, Value]]:
    """Order what one statement sets so that each value is worked out from what was there before.

    Raises:
        NotDifferentiated: Two values read what the other sets.
    """
    found = in_order(done)
    if found is None:
        names = tuple(dict.fromkeys(target.array for target, _ in done))
        sets = listed(names) if len(names) > 1 else f"several cells of {names[0]}"
        raise NotDifferentiated(
            f"it sets {sets} at once, and the value of each reads another",
            label,
            remedy="work the values out in names of their own, on a line each, and then set "
            f"{sets} to those, on a line each",
        )
    return found
