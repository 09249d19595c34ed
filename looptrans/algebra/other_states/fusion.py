"""Reductions that wait for each other, made into one pass.

    for j: m = max(m, x[j])                        F(x, m) = exp(x - m)
    for j: l = l + exp(x[j] - m)             ->    for j: M = max(m, x[j])
                                                          l = l * exp(m - M) + exp(x[j] - M); m = M

The second loop's terms F(x, y) hold the result y of the first. They are separable when

    F(x, y) * F(u, z) = F(x, z) * F(u, y)

for then F(x, z) = F(x, y) * R with R = H(z) / H(y) the same for all x, and the sum over what has
been seen so far moves from one y to the next as a whole. It must be moved only from prefixes that
are not empty: before the first iteration there is nothing to move. Sums of terms move by a factor
(a product distributes over a sum), greatest and smallest terms by an addend.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from looptrans.algebra.iterations.assembly import assembled, flow_of, iteration_of
from looptrans.algebra.iterations.edges import NoRecurrence, loop_named
from looptrans.algebra.iterations.infinities import extremes, for_numbers, with_tests
from looptrans.algebra.iterations.inputs import Input
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.one_order import in_one_order
from looptrans.algebra.iterations.order import inputs_of
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.laws import Law
from looptrans.algebra.operators.search import Search
from looptrans.algebra.operators.tried import tried_text
from looptrans.algebra.other_states.separable import Fusion, Large, Separable
from looptrans.algebra.positional.bound_names import bound, called, nameless
from looptrans.algebra.positional.cells import (
    condition_moved,
    is_new_each_time,
    moved,
    same_cell,
    same_range,
    value_moved,
)
from looptrans.algebra.positional.values import names_of, put
from looptrans.analysis.budget import DEFAULT_SECONDS
from looptrans.ir.facts import DependenceReport
from looptrans.ir.index import Index, Var
from looptrans.ir.listing import access_text
from looptrans.ir.program import Assign, Node, Program
from looptrans.ir.rewrite import cells_put_in
from looptrans.ir.value import Access, Read, Real, Select, Value, arrays_read, walk_value
from looptrans.ir.walk import Placed, inner_bodies, placed, written_in
from looptrans.transforms.editing.naming import fresh_name


def fuse(
    program: Program,
    loops: tuple[str, ...],
    *,
    flow: DependenceReport | None = None,
    budget: float = DEFAULT_SECONDS,
) -> Fusion:
    """Make loops that follow each other into one pass.

    Args:
        program: The program.
        loops: The loops in the order of the text: `j@LINE` or `j@S7`, side by side in one body.
        flow: The exact flow of the program, where it is known already.
        budget: Seconds the analysis of the flow may take.
    """
    try:
        flow = flow_of(program, budget) if flow is None else flow
        first = iteration_of(program, loops[0], flow)
        work = _Work(program, flow, [first], assembled(program, first))
    except NoRecurrence as error:
        return Fusion("unknown", reason=str(error))
    for loop in loops[1:]:
        done = work.take(loop)
        if done is not None:
            return replace(done, laws=(*work.laws, *done.laws))
    large = work.large[0].reason if work.large else ""
    return Fusion("fused", in_one_order(work.recurrence), tuple(work.laws), large=large)


@dataclass(frozen=True, slots=True)
class _Definition:
    """What a cell holds while a later loop runs.

    Attributes:
        access: The cell, in the variables of the later loop.
        value: What it holds.
        labels: The statements that write it.
        is_moving: Whether an earlier loop writes a new one in every iteration.
        is_guarded: Whether it does so only where the condition of its iterations holds.
    """

    access: Access
    value: Value
    labels: frozenset[str]
    is_moving: bool = False
    is_guarded: bool = False


@dataclass(slots=True)
class _Work:
    program: Program
    flow: DependenceReport
    iterations: list[Iteration]
    recurrence: Recurrence
    laws: list[Law] = field(default_factory=list)
    large: list[Large] = field(default_factory=list)

    def take(self, loop: str) -> Fusion | None:
        """Fuse one more loop; return why not where that fails."""
        first = self.iterations[0]
        try:
            position, node = loop_named(self.program, loop)
            beside = position[:-1] == first.position[:-1] and position > first.position
            if not beside or not same_range(node.range, first.loop.range):
                return Fusion("unknown", reason=f"{loop} does not follow with the same range")
            iteration = iteration_of(self.program, loop, self.flow)
            definitions = self._definitions(iteration)
        except NoRecurrence as error:
            return Fusion("unknown", reason=str(error))
        finals = tuple(state.access for state in self.recurrence.states)
        known = tuple((d.access, d.value) for d in definitions)
        foreign = self._foreign(iteration, finals, definitions)
        if foreign:
            return Fusion("unknown", reason=foreign)
        try:
            later = assembled(self.program, iteration, finals, known)
        except NoRecurrence as error:
            forced = self._second_pass(iteration, finals, known)
            return forced or Fusion("unknown", reason=str(error))
        if not self._is_told_apart(iteration, finals, definitions):
            return Fusion("unknown", reason="the loops may run for different iterations")
        stale = self._stale(iteration, later, definitions)
        if stale:
            return Fusion("unknown", reason=stale)
        if later.condition is not None and self.recurrence.condition is None:
            # What a condition leaves out adds nothing.
            later = assembled(self.program, iteration, finals, known, guarded=False)
        later = self._over_first(later)
        if later.condition != self.recurrence.condition:
            return Fusion("unknown", reason="the loops run for different iterations")
        self.iterations.append(iteration)
        return self._join(later)

    def _between(self, iteration: Iteration) -> tuple[Node, ...]:
        """Return what stands from the first loop up to a later one."""
        *outer, last = iteration.position
        return _body_at(self.program, tuple(outer))[self.iterations[0].position[-1] : last]

    def _is_between(self, place: Placed, iteration: Iteration) -> bool:
        """Tell whether a statement stands from the first loop up to the end of a later one."""
        *outer, last = iteration.position
        inside = place.position[: len(outer)] == tuple(outer)
        first = self.iterations[0].position[-1]
        return inside and first <= place.position[len(outer)] <= last

    def _definitions(self, iteration: Iteration) -> list[_Definition]:
        """Return what cells written between the loops, or once in each iteration, hold."""
        found: list[_Definition] = []
        written = written_in(self._between(iteration))
        for earlier in self.iterations:
            variable: dict[str, Index] = {earlier.loop.variable: Var(iteration.loop.variable)}
            for known in earlier.known:
                access = known.family.access
                new = is_new_each_time(access, earlier.loop.variable) and not known.family.over
                if not new or earlier.depends_on_state(known.value):
                    continue
                cell = moved(access, variable)
                value = value_moved(earlier.plain(known.value), variable)
                value, old = self._set(cell, value, known.old, variable)
                guarded = known.old and not old
                parts = [p for p in walk_value(value) if isinstance(p, Read)]
                if old or any(part.access.array in written for part in parts):
                    value = Read(cell)
                found = [d for d in found if d.access != cell]
                found.append(_Definition(cell, value, known.labels, True, guarded))
        for node in self._between(iteration):
            known_here = [(d.access, d.value) for d in found]
            # What a loop writes is not what was written before it, nor is what was made of that.
            anew = written_in((node,))
            found = [d for d in found if d.is_moving or not _is_stale(d, anew)]
            if isinstance(node, Assign) and len(node.targets) == 1:
                value = _defined(node.values[0], known_here)
                found = [d for d in found if d.access != node.targets[0]]
                if node.targets[0].array not in arrays_read(value):
                    found.append(_Definition(node.targets[0], value, frozenset({node.label})))
        return found

    def _is_told_apart(
        self,
        iteration: Iteration,
        finals: tuple[Access, ...],
        definitions: list[_Definition],
    ) -> bool:
        """Tell whether a later loop counts the same iterations without looking at cells set there.

        In the others such a cell holds what it held before.
        """
        if not any(d.is_guarded for d in definitions):
            return True
        plain = tuple((d.access, Read(d.access) if d.is_guarded else d.value) for d in definitions)
        try:
            later = assembled(self.program, iteration, finals, plain)
        except NoRecurrence:
            return False
        return self._over_first(later).condition == self.recurrence.condition

    def _set(
        self, cell: Access, value: Value, old: bool, variable: dict[str, Index]
    ) -> tuple[Value, bool]:
        """Return what a cell holds in the iterations of the one pass, and whether it may be old.

        What is set only where the condition of all iterations holds is set in each of them.
        """
        condition = self.recurrence.condition
        match value:
            case Select(own, chosen, Read(access)) if old and access == cell and condition:
                if own == condition_moved(condition, variable) and Read(cell) not in (
                    set(walk_value(chosen))
                ):
                    return chosen, False
        return value, old

    def _foreign(
        self, iteration: Iteration, finals: tuple[Access, ...], definitions: list[_Definition]
    ) -> str:
        """Return why a cell may hold something else than it is taken for, or nothing."""
        labels: dict[str, list[tuple[Access, frozenset[str]]]] = {}
        between = {
            place.label for place in placed(self.program) if self._is_between(place, iteration)
        }
        for access, state in zip(finals, self.recurrence.states, strict=True):
            # Where updates stand under conditions on data, the state may still be what it began as.
            begun = {
                edge.source
                for earlier in self.iterations
                for edge in earlier.edges
                if edge.kind == "entering" and edge.array == access.array
            }
            by = frozenset((*state.statements, *(begun - between)))
            labels.setdefault(access.array, []).append((access, by))
        for definition in definitions:
            kept = labels.setdefault(definition.access.array, [])
            kept[:] = [(access, by) for access, by in kept if access != definition.access]
            kept.append((definition.access, definition.labels))
        for edge in iteration.edges:
            if edge.array not in labels or edge.kind not in ("entering", "outer"):
                continue
            taken = labels[edge.array]
            inside = {label for label, _ in iteration.computed}
            own = edge.kind == "outer" and edge.source in inside
            if own or len(taken) > 1 or edge.source not in taken[0][1]:
                return f"{edge.sink} may read {edge.array} from {edge.source}"
        return ""

    def _stale(
        self, iteration: Iteration, later: Recurrence, definitions: list[_Definition]
    ) -> str:
        """Return what a later loop reads that is not there yet in the iteration of the one pass."""
        written = written_in(self._between(iteration))
        moving = [d.access for d in definitions if d.is_moving and d.value == Read(d.access)]
        for given in (*later.inputs, *later.parameters):
            for part in walk_value(given.value):
                if not isinstance(part, Read) or part.access.array not in written:
                    continue
                if not any(
                    a.array == part.access.array and same_cell(a, part.access) for a in moving
                ):
                    return f"{access_text(part.access)} is not known before the loop is done"
        return ""

    def _second_pass(
        self,
        iteration: Iteration,
        finals: tuple[Access, ...],
        definitions: tuple[tuple[Access, Value], ...],
    ) -> Fusion | None:
        """Say why a loop that reduces nothing needs a pass of its own, if it does."""
        for label, values in iteration.computed:
            for value in values:
                plain = _defined(iteration.plain(value), list(definitions))
                for final in finals:
                    if any(part == Read(final) for part in walk_value(plain)):
                        sources = [
                            edge.source
                            for edge in iteration.edges
                            if edge.kind == "entering" and edge.sink == label
                        ]
                        by = f", through {sources[-1]} → {label}" if sources else ""
                        return Fusion(
                            "refused",
                            reason=f"{label} writes a value for each {iteration.loop.variable} "
                            f"from {access_text(final)}, which is known only after the last one"
                            f"{by}: a second pass is needed",
                        )
        return None

    def _join(self, later: Recurrence) -> Fusion | None:
        """Add the states of a later loop to those of the one pass."""
        earlier = self.recurrence
        names = self._names(later)
        updates = {s.name: put(s.update, names) for s in later.states}
        renamed = replace(
            later,
            states=tuple(
                replace(s, name=_name(names[s.name]), update=updates[s.name]) for s in later.states
            ),
            inputs=tuple(replace(g, name=_name(names[g.name])) for g in later.inputs),
            parameters=tuple(replace(g, name=_name(names[g.name])) for g in later.parameters),
        )
        try:
            renamed = self._for_numbers(renamed)
        except NoRecurrence as error:
            return Fusion("unknown", reason=str(error))
        search = Search(renamed)
        proposal = search.run()
        waits = {n for s in renamed.states for n in names_of(s.update) if n.startswith("y")}
        states = list(earlier.states)
        for state in renamed.states:
            if not waits:
                states.append(state)
                continue
            components = proposal.components if proposal is not None else ()
            component = next((c for c in components if c.state == state.name), None)
            if (
                component is None
                or component.contribution is None
                or component.coordinate != Real(state.name)
                or (proposal is not None and proposal.is_extended)
            ):
                return Fusion(
                    "unknown",
                    reason=f"{access_text(state.access)} is no plain sum, maximum or minimum of "
                    "terms: " + tried_text(renamed, search.tried),
                )
            separable = Separable(
                self.program, earlier, self._between(self.iterations[-1]), self.laws, self.large
            )
            done = separable.update(state, component.monoid, component.contribution)
            if isinstance(done, Fusion):
                return done
            states.append(done)
        self.recurrence = replace(
            earlier,
            states=tuple(states),
            inputs=_united(earlier.inputs, renamed.inputs),
            parameters=_united(earlier.parameters, renamed.parameters),
            read_inside=tuple(dict.fromkeys((*earlier.read_inside, *later.read_inside))),
            assumptions=tuple(dict.fromkeys((*earlier.assumptions, *later.assumptions))),
        )
        stuck = next((each for each in self.large if not each.is_freed(self.recurrence)), None)
        return None if stuck is None else Fusion("unknown", reason=stuck.reason)

    def _for_numbers(self, later: Recurrence) -> Recurrence:
        """Return a later loop's recurrence without tests whether an earlier result is an infinity.

        Raises:
            NoRecurrence: Such a test says more than that nothing is added to nothing.
        """
        earlier = self.recurrence.states
        known = extremes(
            {s.name: s.update for s in earlier},
            {s.name: s.bottom for s in earlier},
            {s.name: f"y{number}" for number, s in enumerate(earlier, 1)},
        )
        states = []
        for state in later.states:
            written = with_tests(state.update, later.inputs)
            update = for_numbers(written, state.name, state.initial, known, inputs_of(later))
            if update is None:
                raise NoRecurrence(
                    f"{access_text(state.access)} depends on whether something is an infinity"
                )
            states.append(state if update == written else replace(state, update=update))
        return replace(later, states=tuple(states))

    def _over_first(self, later: Recurrence) -> Recurrence:
        """Return what a later loop computes, with the variable of the one pass for its own."""
        variable = self.recurrence.loop
        if later.loop == variable:
            return later
        moved_to: dict[str, Index] = {later.loop: Var(variable)}
        other = fresh_name(self.program, variable)

        def over(given: Input) -> Input:
            names = (other if name == variable else name for name in bound(given.value))
            return replace(given, value=value_moved(called(given.value, names), moved_to))

        condition = later.condition
        return replace(
            later,
            loop=variable,
            inputs=tuple(map(over, later.inputs)),
            parameters=tuple(map(over, later.parameters)),
            condition=None if condition is None else condition_moved(condition, moved_to),
        )

    def _names(self, later: Recurrence) -> dict[str, Value]:
        """Return names for a later loop's states, inputs and parameters that fit the one pass."""
        found: dict[str, Value] = {}
        count = len(self.recurrence.states)
        for number, state in enumerate(later.states, 1):
            found[state.name] = Real(f"s{count + number}")
        for letter, known, given in (
            ("x", self.recurrence.inputs, later.inputs),
            ("p", self.recurrence.parameters, later.parameters),
        ):
            by_value = {nameless(item.value): item.name for item in known}
            fresh = len(known)
            for item in given:
                value = nameless(item.value)
                if value not in by_value:
                    fresh += 1
                    by_value[value] = f"{letter}{fresh}"
                found[item.name] = Real(by_value[value])
        return found


def _is_stale(definition: _Definition, written: set[str]) -> bool:
    """Tell whether a definition no longer holds once some arrays were written."""
    return definition.access.array in written or bool(arrays_read(definition.value) & written)


def _name(value: Value) -> str:
    assert isinstance(value, Real)
    return value.name


def _united(known: tuple[Input, ...], more: tuple[Input, ...]) -> tuple[Input, ...]:
    names = {item.name for item in known}
    return (*known, *(item for item in more if item.name not in names))


def _defined(value: Value, definitions: list[tuple[Access, Value]]) -> Value:
    return cells_put_in(value, dict(definitions))


def _body_at(program: Program, position: tuple[int, ...]) -> tuple[Node, ...]:
    """Return the block whose nodes have the positions below one."""
    body = program.body
    steps = list(position)
    while steps:
        node = body[steps.pop(0)]
        blocks = inner_bodies(node)
        body = blocks[0] if len(blocks) == 1 else blocks[steps.pop(0) - 1]
    return body
