"""From an iteration on symbols to a recurrence: which cells are its state, and how they begin.

m[i]   holds  max(@0, S[i, j])     ->    s1 <- max(s1, x1), at first what the last statement
                                         before the loop has put into m[i]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from looptrans.algebra.iterations.branches import without_branches
from looptrans.algebra.iterations.edges import Edge, NoRecurrence, edges_of, loop_named
from looptrans.algebra.iterations.held import SPOILT, Found, Known
from looptrans.algebra.iterations.infinities import bottom_of, infinite_arrays, with_masks_tested
from looptrans.algebra.iterations.inputs import Naming
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.recurrence import Elements, Recurrence, StateVariable
from looptrans.algebra.positional.cells import (
    Family,
    is_new_each_time,
    mentions,
    moved,
    same_cell,
    value_moved,
)
from looptrans.algebra.positional.values import names_of, without_repeats
from looptrans.analysis import api, kept_flow
from looptrans.analysis.budget import DEFAULT_SECONDS
from looptrans.analysis.ranges.coarse import coarsened
from looptrans.frontend.appearance import names_in
from looptrans.ir.condition import Condition, conjunction
from looptrans.ir.creation import creation_of, first_value
from looptrans.ir.facts import DependenceReport
from looptrans.ir.index import Arith, Int, Var
from looptrans.ir.index import variables as index_variables
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Create,
    Holds,
    Read,
    Real,
    Select,
    Value,
    Whole,
    condition_variables,
)
from looptrans.ir.walk import Placed, live_out, loops_in, placed


def recurrence(program: Program, loop: str, *, budget: float = DEFAULT_SECONDS) -> Recurrence:
    """Read a loop as a recurrence.

    Args:
        program: The program.
        loop: The loop: `j`, `j@LINE` or `j@S7`.
        budget: Seconds the analysis of the flow may take.

    Raises:
        NoRecurrence: It cannot be read as one; the message says why.
    """
    found = assembled(program, iteration_of(program, loop, flow_of(program, budget)))
    cycles = api.components(program, budget=budget)
    inside = {place.label for place in placed(program) if found.position in place.loop_positions}
    written = {label for state in found.states for label in state.statements}
    return replace(
        found,
        components=tuple(
            component.statements
            for component in cycles.components
            if set(component.statements) <= inside and written & set(component.statements)
        ),
    )


@lru_cache(maxsize=8)
def flow_of(program: Program, budget: float = DEFAULT_SECONDS) -> DependenceReport:
    """Return the exact flow of a program.

    Raises:
        NoRecurrence: It could not be found within the budget.
    """
    report = kept_flow.flow_of(coarsened(program), budget)
    if report.unknown is not None:
        raise NoRecurrence(f"the flow is not known: {report.unknown}")
    return report


def iteration_of(program: Program, loop: str, flow: DependenceReport) -> Iteration:
    """Carry out one iteration of a loop on symbols.

    Raises:
        NoRecurrence: It cannot be told what a statement reads.
    """
    position, node = loop_named(program, loop)
    edges = edges_of(program, flow, position)
    elements = {array.name: array.element for array in program.arrays}
    iteration = Iteration(node, position, edges, flow.assumptions, elements)
    iteration.run()
    return iteration


def assembled(
    program: Program,
    iteration: Iteration,
    finals: tuple[Access, ...] = (),
    definitions: tuple[tuple[Access, Value], ...] = (),
    *,
    guarded: bool = True,
) -> Recurrence:
    """Put together the recurrence of an iteration that was carried out.

    Args:
        program: The program.
        iteration: The iteration.
        finals: Cells that another loop has left values in; they are `y1`, `y2`, … in the updates.
        definitions: What other cells hold throughout the loop.
        guarded: Whether a condition of all updates is taken off them, as that of the iteration.

    Raises:
        NoRecurrence: The loop carries nothing, or not from one iteration to the next.
    """
    return _Assembly(program, iteration, finals, definitions, guarded).recurrence()


@dataclass(slots=True)
class _Assembly:
    program: Program
    iteration: Iteration
    finals: tuple[Access, ...] = ()
    definitions: tuple[tuple[Access, Value], ...] = ()
    guarded: bool = True

    def recurrence(self) -> Recurrence:
        iteration = self.iteration
        self._observe_last_values()
        origins = self._relevant()
        if not origins:
            raise NoRecurrence(f"the loop {iteration.loop.variable} carries no value")
        updates = [with_masks_tested(self._defined(self._next(origin).value)) for origin in origins]
        naming = Naming(
            iteration.loop.variable,
            {found.name: found.family.access for found in iteration.found.values()},
            {origin.name: f"s{n}" for n, origin in enumerate(origins, 1)},
            frozenset(self._inner_variables()),
            self.finals,
        )
        condition: Condition | None = None
        if self.guarded:
            condition, updates = _common_guard(naming, [o.name for o in origins], updates)
        updates = naming.named(updates)
        named = {f"s{number}": update for number, update in enumerate(updates, 1)}
        updates = list(without_branches(named, naming.inputs).values())
        states = []
        infinite = infinite_arrays(self.program)
        for number, (origin, update) in enumerate(zip(origins, updates, strict=True), 1):
            known = self._next(origin)
            initial = self._initial(origin)
            states.append(
                StateVariable(
                    f"s{number}",
                    origin.family.access,
                    _over(origin),
                    initial,
                    update,
                    tuple(sorted(known.labels, key=self._order)),
                    self._read_after(known),
                    bottom_of(initial, infinite),
                )
            )
        return Recurrence(
            iteration.loop.variable,
            iteration.loop.range,
            iteration.position,
            tuple(states),
            naming.inputs,
            naming.parameters,
            condition,
            *self._read_inside(origins),
            assumptions=iteration.assumptions,
            elements=self._elements(),
        )

    def _elements(self) -> tuple[Elements, ...]:
        """Return what the listing says of elements that are no arbitrary numbers."""
        promised = names_in(self.program.contracts, ())
        return tuple(
            Elements(each.name, each.element, each.value_range, each.name in promised)
            for each in self.program.arrays
            if each.element != "float"
        )

    def _defined(self, value: Value) -> Value:
        """Put in what cells hold throughout the loop."""

        def change(part: Value) -> Value | None:
            if isinstance(part, Read):
                for access, known in self.definitions:
                    if access.array == part.access.array and same_cell(access, part.access):
                        return known
            return None

        return replaced(value, change)

    def _order(self, label: str) -> int:
        return [place.label for place in placed(self.program)].index(label)

    def _inner_variables(self) -> list[str]:
        return [n.variable for n in loops_in(self.iteration.loop.body)]

    def _is_observed(self, known: Known) -> bool:
        return bool(self._read_after(known))

    def _read_after(self, known: Known) -> tuple[str, ...]:
        array = known.family.access.array
        readers = {
            edge.sink
            for edge in self.iteration.edges
            if edge.kind == "leaving" and edge.source in known.labels and edge.array == array
        }
        after = sorted(readers, key=self._order)
        return (*after, "return") if array in live_out(self.program) else tuple(after)

    def _observe_last_values(self) -> None:
        """Make states of the fixed cells whose last value is read after the loop.

        Raises:
            NoRecurrence: Which cells these are is another matter in each iteration.
        """
        iteration = self.iteration
        variable = iteration.loop.variable
        for known in list(iteration.known):
            access = known.family.access
            fixed = not mentions(access, variable)
            if fixed and self._is_observed(known) and known.value != Real(SPOILT):
                ends = (end for _, r in known.family.over for end in r.ends)
                if any(variable in index_variables(end) for end in ends):
                    raise NoRecurrence(
                        f"which cells of {access.array} an iteration of {variable} sets depends "
                        f"on {variable}"
                    )
                iteration.origin(known.family, state=True)

    def _next(self, origin: Found) -> Known:
        """Return what the next iteration will find in a cell."""
        loop = self.iteration.loop
        access = origin.family.access
        ahead = moved(access, {loop.variable: Arith("+", Var(loop.variable), Int(loop.range.step))})
        known = self.iteration.holds(ahead, dict(origin.family.over))
        if known is None:
            raise NoRecurrence(
                f"{access_text(access)} comes from an earlier iteration, "
                "but not from the same place of the one before"
            )
        return known

    def _relevant(self) -> list[Found]:
        """Return the states that something depends on: those carried and read, and their like."""
        iteration = self.iteration
        carried = {(e.sink, e.array) for e in iteration.edges if e.kind == "carried"}
        arrays = {array for _, array in carried}
        states = [found for found in iteration.found.values() if found.state]
        wanted: dict[str, Found] = {}
        for found in states:
            access = found.family.access
            last = iteration.holds(access, dict(found.family.over))
            observed = last is not None and self._is_observed(last)
            if access.array in arrays or observed:
                wanted[found.name] = found
        queue = list(wanted.values())
        while queue:
            for name in names_of(self._next(queue.pop()).value):
                found_next = iteration.found.get(name)
                if found_next is not None and found_next.state and name not in wanted:
                    wanted[name] = found_next
                    queue.append(found_next)
        return [found for found in states if found.name in wanted]

    def _initial(self, origin: Found) -> Value:
        """Return what the first iteration finds in a cell; its bare content where unknown."""
        loop, access = self.iteration.loop, origin.family.access
        array = self.program.array(access.array)
        first = moved(access, {loop.variable: loop.range.start})
        outer = [e for e in self.iteration.edges if e.kind == "outer" and e.array == array.name]
        entering = {
            e.source for e in self.iteration.edges if e.kind == "entering" and e.array == array.name
        }
        writers = [
            place
            for place in placed(self.program)
            if isinstance(place.node, Assign)
            and self.iteration.position not in place.loop_positions
            and place.position < self.iteration.position
            and any(target.array == array.name for target in place.node.targets)
            and (place.label in entering or not self._is_otherwise(place))
        ]
        if outer or not entering <= {writers[-1].label if writers else ""}:
            return Read(first)
        if not writers:
            return self._created(array.name) or Read(first)
        return self._assigned(origin, writers[-1], first) or Read(first)

    def _is_otherwise(self, place: Placed) -> bool:
        """Tell whether a statement is in the other branch of a guard that the loop is in."""
        loop = self.iteration.position
        return any(
            loop[: len(branch)] == (*branch[:-1], 3 - branch[-1]) for branch in place.branches
        )

    def _assigned(self, origin: Found, last: Placed, first: Access) -> Value | None:
        """Return what the last statement before the loop has surely assigned to the cells.

        It may stand in loops of its own, if they run through just the cells of the state.
        """
        node = last.node
        if not isinstance(node, Assign) or len(node.targets) != len(node.values):
            return None
        around = last.position[:-1]
        shared = 0
        while around[:shared] == self.iteration.position[:shared] and shared < len(around):
            shared += 1
        shared -= around[:shared] != self.iteration.position[:shared]
        if isinstance(node.values[-1], Create):
            is_anew = shared == len(around) and all(
                isinstance(index, Whole) for index in node.targets[-1].subscripts
            )
            return first_value(node.values[-1]) if is_anew else None
        inner = {
            loop.variable: loop.range
            for loop, position in zip(last.loops, last.loop_positions, strict=True)
            if len(position) > shared
        }
        if len(inner) != len(around) - shared:
            return None
        family = Family(first, origin.family.over)
        bound = family.matched(node.targets[-1], inner)
        names = {index.name for index in (bound or {}).values() if isinstance(index, Var)}
        if bound is None or names != set(inner) or set(bound) != {n for n, _ in family.over}:
            return None
        back = {index.name: Var(name) for name, index in bound.items() if isinstance(index, Var)}
        return value_moved(node.values[-1], back)

    def _created(self, name: str) -> Value | None:
        creation = creation_of(self.program, name)
        return None if creation is None else first_value(creation)

    def _read_inside(self, origins: list[Found]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return which statements look at states in between, and at which."""
        iteration = self.iteration
        slice_: set[str] = set()
        for origin in origins:
            slice_ |= self._next(origin).labels
        slice_ = _closed(slice_, iteration.edges)
        names = {origin.name: f"s{number}" for number, origin in enumerate(origins, 1)}
        readers: set[str] = set()
        seen: set[str] = set()
        for label, values in iteration.computed:
            found = names.keys() & set(names_of(*values))
            if label not in slice_ and found:
                readers.add(label)
                seen |= found
        for known in iteration.known:
            access = known.family.access
            if not is_new_each_time(access, iteration.loop.variable):
                continue
            found = names.keys() & set(names_of(known.value))
            if self._is_observed(known) and found:
                readers |= known.labels
                seen |= found
        return (
            tuple(sorted(readers, key=self._order)),
            tuple(number for name, number in names.items() if name in seen),
        )


def _closed(labels: set[str], edges: Iterable[Edge]) -> set[str]:
    """Add the statements of the same iteration that others read from."""
    within = [edge for edge in edges if edge.kind == "within"]
    closed, size = set(labels), -1
    while size != len(closed):
        size = len(closed)
        closed |= {edge.source for edge in within if edge.sink in closed}
    return closed


def _over(origin: Found) -> tuple[str, ...]:
    whole = (":",) * origin.family.access.rank
    return (*(name for name, _ in origin.family.over), *whole)


def _common_guard(
    naming: Naming, names: list[str], updates: list[Value]
) -> tuple[Condition | None, list[Value]]:
    """Take off a condition without which no state changes and that no state decides."""
    conditions: list[Condition] = []
    inner: list[Value] = []
    for name, update in zip(names, updates, strict=True):
        tests: list[Condition] = []
        value = without_repeats(update)
        while isinstance(value, Select) and value.otherwise == Real(name):
            if tests and naming.depends(Holds(value.condition)):
                break
            tests.append(value.condition)
            value = value.chosen
        if not tests:
            return None, updates
        conditions.append(conjunction(*tests))
        inner.append(value)
    if any(condition != conditions[0] for condition in conditions):
        return None, updates
    if naming.depends(Holds(conditions[0])):
        return None, updates
    # Cells that are changed or not each for itself have no guard in common.
    if naming.inner & condition_variables(conditions[0]):
        return None, updates
    plain = naming.plain(Holds(conditions[0]))
    return (plain.condition, inner) if isinstance(plain, Holds) else (None, updates)
