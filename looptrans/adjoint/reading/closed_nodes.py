"""The nodes that stand in the place of a loop whose closed form is known.

for j: …    ->    for j: m = max(m, x[j])            what the loop leaves in its state
for j: l = l + exp(x[j] - m)
for j: S[j] = x[j]                 its other statements
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from looptrans.adjoint.normalizing.lets import (
    condition_without_lets,
    unread_integers,
    value_without_lets,
)
from looptrans.algebra.iterations.inputs import Input
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.operators.closed import ClosedFold, FoldComponent
from looptrans.algebra.operators.finding import Finding
from looptrans.algebra.operators.laws import joined
from looptrans.algebra.positional.cells import is_own_cell
from looptrans.algebra.positional.values import is_number, names_of, number, put
from looptrans.ir.affine import difference
from looptrans.ir.condition import Condition
from looptrans.ir.index import Int
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.monoids import IDENTITIES
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Const,
    IndexValue,
    Range,
    Read,
    Real,
    Value,
    walk_value,
)
from looptrans.ir.walk import accesses_in, live_out, nodes, sets_only, written_in
from looptrans.transforms.editing.naming import fresh_name
from looptrans.transforms.editing.tree import loops_around


class NotClosed(Exception):
    """A loop has no closed form here; the message says why."""


@dataclass(slots=True)
class ClosedNodes:
    """Writes the nodes that stand in the place of a loop.

    Attributes:
        program: The listing.
        iteration: One iteration of it, carried out.
        step: The loop as a recurrence.
        finding: The operator of that recurrence.
        fold: The closed form.
        around: Loops around that one which hold nothing else, outermost first: one fold goes
            through the iterations of all of them.
        below_maximum: Whether logarithms of sums of powers are those of powers below the largest,
            as they have to be where the nodes are to run.
        made: The scalars that are new.
    """

    program: Program
    iteration: Iteration
    step: Recurrence
    finding: Finding
    fold: ClosedFold
    around: tuple[Loop, ...] = ()
    below_maximum: bool = False
    made: list[str] = field(default_factory=list)

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes: a loop for each state, and one with what else the loop does.

        Raises:
            NotClosed: Something looks at the state in between, or the closed form needs what is
                not known.
        """
        rest = self._rest()
        inside: tuple[Node, ...] = ()
        found: list[Node] = []
        if self._is_rest_read():
            if self._changes_in_place():
                found.append(self._loop(rest))
                rest = ()
            else:
                inside = _without_notes(rest)
        finals: dict[str, Value] = {}
        firsts = self._firsts(found)
        operator = self.finding.operator
        assert operator is not None
        for count, (component, own) in enumerate(
            zip(self.fold.components, operator.components, strict=True), 1
        ):
            assert own.state is not None
            if own.state not in {state.name for state in self.step.states}:
                finals[f"c{count}"] = self._count(component)
                continue
            state = self.step.state(own.state)
            finals[f"c{count}"] = Read(state.access)
            found += self._component(component, state, {**firsts, **finals}, inside)
        if rest:
            found.append(self._loop(rest))
        return tuple(found)

    def formulas(self) -> tuple[str, ...]:
        """Return the final states as text."""
        words = {"+": "sum", "max": "max", "min": "min"}
        finals: dict[str, Value] = {}
        for number_, component in enumerate(self.fold.components, 1):
            known = [s for s in self.step.states if s.name == component.state]
            finals[f"c{number_}"] = Read(known[0].access) if known else self._count(component)
        lines = []
        for component in self.fold.components:
            state = [s for s in self.step.states if s.name == component.state]
            if not state:
                continue
            names = {**self._given(), **finals, **self._initials()}
            term = value_text(put(component.term, names))
            loops = ",".join((*(loop.variable for loop in self.around), self.step.loop))
            joined_: Value = Real(f"{words[component.monoid]}_{loops}({term})")
            nothing = Const(IDENTITIES[component.monoid])
            if component.start is not None and component.start != nothing:
                joined_ = joined(component.monoid, put(component.start, names), joined_)
            value = put(put(component.finish, {"y": joined_}), names)
            lines.append(f"{access_text(state[0].access)} = {value_text(value)}")
        return tuple(lines)

    def _initials(self) -> dict[str, Value]:
        return {state.name: state.initial for state in self.step.states}

    def _given(self) -> dict[str, Value]:
        given: tuple[Input, ...] = (*self.finding.recurrence.inputs, *self.step.parameters)
        if not self._sets_indices():
            return {item.name: item.value for item in given}
        # Their statements stay behind in a loop of their own.
        return {item.name: value_without_lets(item.value) for item in given}

    def _condition(self) -> Condition | None:
        condition = self.step.condition
        if condition is None or not self._sets_indices():
            return condition
        return condition_without_lets(condition)

    def _sets_indices(self) -> bool:
        """Tell whether the loop sets integer scalars, which index expressions may read."""
        written = written_in(self.iteration.loop.body)
        return any(a.element == "int" and a.name in written for a in self.program.arrays)

    # The statements that stay

    def _rest(self) -> tuple[Node, ...]:
        """Return the body of the loop without what depends on its state."""
        iteration, cells = self.iteration, {s.access.array for s in self.step.states}
        gone = {label for state in self.step.states for label in state.statements}
        for label, values in iteration.computed:
            if any(iteration.depends_on_state(value) for value in values):
                gone.add(label)
        gone |= self._decided_by(gone)
        unread = unread_integers(self.program)
        for node in nodes(iteration.loop.body):
            if sets_only(node, unread) and node.label:
                gone.add(node.label)
        alive = set(live_out(self.program))
        for node in nodes(iteration.loop.body):
            if isinstance(node, Assign) and node.label in gone:
                for target in node.targets:
                    if target.array in alive - cells:
                        raise NotClosed(f"{node.label} hands out {target.array} in between")
        for edge in iteration.edges:
            if edge.source not in gone or edge.sink in gone:
                continue
            if edge.kind == "leaving" and edge.array in cells:
                continue
            if edge.sink in {n.label for n in nodes(iteration.loop.body) if isinstance(n, If)}:
                continue
            raise NotClosed(f"{edge.sink} looks at {edge.array} in between")
        body = _without(iteration.loop.body, gone)
        kept = {n.label for n in nodes(body) if isinstance(n, Assign | If)}
        for edge in iteration.edges:
            if edge.source in gone and edge.sink in kept:
                raise NotClosed(f"whether a statement runs depends on {edge.array} ({edge.sink})")
        return body

    def _decided_by(self, gone: set[str]) -> set[str]:
        """Return the statements that run or not as what some statements write says."""
        tests = {n.label: n for n in nodes(self.iteration.loop.body) if isinstance(n, If)}
        found: set[str] = set()
        for edge in self.iteration.edges:
            test = tests.get(edge.sink)
            if test is not None and edge.source in gone and edge.kind in ("within", "carried"):
                inside = nodes((*test.body, *test.orelse))
                found |= {n.label for n in inside if isinstance(n, Assign)}
        return found if found <= gone else found | self._decided_by(gone | found)

    def _is_rest_read(self) -> bool:
        """Tell whether an input is what a loop inside makes, so that it stands in its cell only."""
        return bool(self._made_and_read())

    def _made_and_read(self) -> set[str]:
        """Return the arrays in which inputs are found that a loop inside makes."""
        made = {f.family.access.array for f in self.iteration.found.values() if f.made}
        values = [item.value for item in (*self.finding.recurrence.inputs, *self.step.parameters)]
        parts = [part for value in values for part in walk_value(value)]
        return made & {part.access.array for part in parts if isinstance(part, Read)}

    def _changes_in_place(self) -> bool:
        """Tell whether the other statements go on from what they find, and so run but once.

        Then they run ahead of the sums, which look at what is left in cells of each iteration.

        Raises:
            NotClosed: An iteration looks at cells of another one, or at what was there before.
        """
        iteration = self.iteration
        old = {n: f for n, f in iteration.found.items() if not f.made and not f.state}
        if not old:
            return False
        names = ", ".join(sorted({f.family.access.array for f in old.values()}))
        reason = f"it changes {names} in place, and so cannot be run more than once"
        gathering = {label for state in self.step.states for label in state.statements}
        for label, values in iteration.computed:
            if label in gathering and old.keys() & set(names_of(*values)):
                raise NotClosed(reason)
        loops = loops_around(self.program, iteration.position)
        inside = {loop.variable for loop in self.around} | {iteration.loop.variable}
        outside = [loop.variable for loop in loops]
        for array in self._made_and_read():
            uses = [a for a in accesses_in(iteration.loop.body) if a.array == array]
            if not all(is_own_cell(uses, variable, outside) for variable in inside):
                raise NotClosed(reason)
        return True

    # The closed form

    def _firsts(self, found: list[Node]) -> dict[str, Value]:
        """Return what the states hold before the loop; keep it where it is no number."""
        wanted = {
            name
            for component in self.fold.components
            if component.start is not None
            for name in names_of(component.start)
            if name != component.state
        }
        names: dict[str, Value] = {}
        for state in self.step.states:
            if isinstance(state.initial, Const):
                names[state.name] = state.initial
            elif state.name in wanted:
                if state.over:
                    raise NotClosed(f"{access_text(state.access)} does not start from a number")
                first = fresh_name(self.program, f"{state.access.array}_first", self.made)
                self.made.append(first)
                kept = Access(first, ())
                found.append(Assign("S", (kept,), (Read(state.access),)))
                names[state.name] = Read(kept)
        return names

    def _count(self, component: FoldComponent) -> Value:
        """Return how many iterations there are, for a state that counts them."""
        bounds = self.step.range
        one = component.term == number(1) and component.monoid == "+"
        if not one or bounds.step != 1 or self.step.condition is not None or self.around:
            raise NotClosed("it counts iterations, and not all of them")
        if bounds.start == Int(0):
            return IndexValue(bounds.stop)
        return IndexValue(difference(bounds.stop, bounds.start))

    def _component(
        self,
        component: FoldComponent,
        state: StateVariable,
        names: Mapping[str, Value],
        inside: tuple[Node, ...],
    ) -> list[Node]:
        known = {**names, **self._given()}
        cell = Read(state.access)
        found: list[Node] = []
        if self.below_maximum and is_logarithm(component):
            return self._logarithm(component, state, known, inside)
        if component.start is not None:
            start = put(component.start, {state.name: cell, **known})
            found.append(self._over(state, Assign("S", (state.access,), (start,))))
        term = put(component.term, known)
        found.append(self._gathered(state, state.access, component.monoid, term, inside))
        if component.finish != Real("y"):
            finish = put(component.finish, {"y": cell, **known})
            found.append(self._over(state, Assign("S", (state.access,), (finish,))))
        return found

    def _gathered(
        self,
        state: StateVariable,
        cell: Access,
        operator: str,
        term: Value,
        inside: tuple[Node, ...],
    ) -> Node:
        """Return the loop that joins the terms of all iterations to a cell."""
        step = Assign("S", (cell,), (joined(operator, Read(cell), term),))
        condition = self.step.condition
        match inside:
            case (*before, If(own, body, ()) as guard) if own == condition:
                # What is read under a guard is known under that guard only.
                guarded = replace(guard, body=(*body, self._over(state, step)))
                return self._loop((*before, guarded))
            case _:
                inner = self._over(state, step, self._condition())
                return self._loop((*inside, inner))

    def _logarithm(
        self,
        component: FoldComponent,
        state: StateVariable,
        known: Mapping[str, Value],
        inside: tuple[Node, ...],
    ) -> list[Node]:
        """Write the logarithm of a sum of powers, each below the largest.

        for j: L = log(exp(L) + exp(x[j]))    ->    for j: top = max(top, x[j])
                                                    for j: l = l + exp(x[j] - top)
                                                    L = top + log(l)

        Raises:
            NotClosed: There is one for each element of a row.
        """
        if state.over:
            raise NotClosed(f"{access_text(state.access)} is a row of logarithms")
        stem = state.access.array.replace(".", "_")
        for word in ("top", "sum"):
            self.made.append(fresh_name(self.program, f"{stem}_{word}", self.made))
        top, total = (Access(name, ()) for name in self.made[-2:])

        def below(power: Value) -> Value:
            return Call("exp", (Binary("-", power, Read(top)),))

        first: Value = Const(-math.inf)
        begun: Value = Const(0.0)
        if isinstance(component.start, Call):
            own = {state.name: Read(state.access)}
            first = put(component.start.arguments[0], {**own, **known})
            begun = below(first)
        assert isinstance(component.term, Call)
        power = put(component.term.arguments[0], known)
        whole = Binary("+", Read(top), Call("log", (Read(total),)))
        return [
            Assign("S", (top,), (first,)),
            self._gathered(state, top, "max", power, inside),
            Assign("S", (total,), (begun,)),
            self._gathered(state, total, "+", below(power), inside),
            Assign("S", (state.access,), (whole,)),
        ]

    def _loop(self, body: tuple[Node, ...]) -> Loop:
        written = written_in(body)
        inner = _with_body(self.iteration.loop, body, written)
        for loop in reversed(self.around):
            inner = _with_body(loop, (inner,), written)
        return inner

    def _over(
        self, state: StateVariable, statement: Assign, condition: Condition | None = None
    ) -> Node:
        """Put a statement into the loops that its state is a vector over."""
        node: Node = statement if condition is None else If(condition, (statement,))
        ranges: dict[str, Range] = {}
        for known in self.iteration.found.values():
            if known.family.access == state.access:
                ranges |= dict(known.family.over)
        for variable in reversed([name for name in state.over if name != ":"]):
            node = Loop(variable, ranges[variable], (node,))
        return node


def is_logarithm(component: FoldComponent) -> bool:
    """Tell whether a state ends as the logarithm of a sum of powers, from nothing or one on."""
    start = component.start
    return (
        component.monoid == "+"
        and start is not None
        and (is_number(start, 0) or _is_power(start))
        and component.finish == Call("log", (Real("y"),))
        and _is_power(component.term)
    )


def _is_power(value: Value) -> bool:
    return isinstance(value, Call) and value.function == "exp"


def _with_body(loop: Loop, body: tuple[Node, ...], written: set[str]) -> Loop:
    """Return a loop with another body, without comments."""
    private = tuple(name for name in loop.private if name in written)
    return replace(loop, body=body, private=private, comment="", leading=())


def _without_notes(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return nodes without labels and comments, for the second time that they are written."""
    found: list[Node] = []
    for node in body:
        match node:
            case Assign():
                found.append(replace(node, label="S", labelled=False, comment="", leading=()))
            case Loop():
                inner = _without_notes(node.body)
                found.append(replace(node, body=inner, comment="", leading=()))
            case If():
                then, other = _without_notes(node.body), _without_notes(node.orelse)
                bare = replace(node, comment="", else_comment="", leading=())
                found.append(replace(bare, body=then, orelse=other))
            case _:
                found.append(node)
    return tuple(found)


def _without(body: tuple[Node, ...], gone: set[str]) -> tuple[Node, ...]:
    """Return nodes without some statements, and without what is empty then."""
    found: list[Node] = []
    for node in body:
        match node:
            case Assign() if node.label in gone:
                continue
            case Loop():
                inner = _without(node.body, gone)
                if inner:
                    found.append(replace(node, body=inner))
            case If():
                then, other = _without(node.body, gone), _without(node.orelse, gone)
                if then or other:
                    found.append(replace(node, body=then, orelse=other))
            case _:
                found.append(node)
    return tuple(found)
