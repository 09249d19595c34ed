"""What a block of a loop does, as a step over what is gathered from its elements.

    for j0 in range(0, N, 16):
        n = m                                              s1  <-  max(s1, x1)
        for j in …: n = max(n, s[j])                 ->    s2  <-  s2*exp(s1 - n) + x2*exp(-n)
        l = l * exp(m - n)                                         where n is max(s1, x1)
        for j in …: l = l + exp(s[j] - n)                  x1  max(s[j]), x2  sum(exp(s[j]))
        m = n

A pass over the block is a fold of its own. What it leaves behind is its closed form, in which what
is gathered is told apart from what it is gathered under (`gathered.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from looptrans.algebra.elements.gathered import gathered
from looptrans.algebra.iterations.assembly import assembled, flow_of
from looptrans.algebra.iterations.edges import NoRecurrence, Position, edges_of
from looptrans.algebra.iterations.held import SPOILT, Known
from looptrans.algebra.iterations.iteration import Iteration
from looptrans.algebra.iterations.recurrence import Recurrence, StateVariable
from looptrans.algebra.operators.closed import ClosedFold, closed_fold
from looptrans.algebra.operators.finding import Finding, find_operator
from looptrans.algebra.operators.laws import joined
from looptrans.algebra.positional.cells import Family, mentions, same_cell
from looptrans.algebra.positional.values import add, is_number, put
from looptrans.ir.condition import Condition, Truth
from looptrans.ir.facts import DependenceReport
from looptrans.ir.index import Var
from looptrans.ir.listing import access_text
from looptrans.ir.monoids import FOLDING_OF, IDENTITIES, MONOID_OF
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Generator,
    Range,
    Read,
    Real,
    Reduce,
    Value,
    free_variables,
    walk_value,
)
from looptrans.ir.walk import accesses, assignments, loops_in, nodes
from looptrans.transforms.editing.tree import node_at, statements_in

UNKNOWN = "?"


@dataclass(slots=True)
class BlockIteration(Iteration):
    """One iteration of a loop over blocks, its passes over the block taken as a whole.

    Attributes:
        program: The program.
        flow: Its flow.
        variable: The variable of the passes.
        block: Their range.
        masks: The conditions of what is gathered where other elements have terms that add nothing.
    """

    program: Program = field(kw_only=True)
    flow: DependenceReport = field(kw_only=True)
    variable: str = field(kw_only=True)
    block: Range = field(kw_only=True)
    masks: set[Condition] = field(default_factory=set)

    def is_gathered(self, value: Value) -> bool:
        """Tell whether a value is gathered over the block."""
        match value:
            case Reduce(_, (each,), _):
                return each.variable == self.variable and each.range == self.block
            case _:
                return False

    def _is_later(self, value: Value) -> bool:
        if self.is_gathered(value):
            return True
        return isinstance(value, Real) and value.name in self.found and self.found[value.name].state

    def _varies(self, value: Value) -> bool:
        return self.variable in free_variables(value)

    def _gathered(self, monoid: str, term: Value, each: Generator) -> Value:
        return gathered(monoid, term, each, self._is_later, self._varies, self.masks)

    def _value(self, value: Value, label: str, ranges: dict[str, Range]) -> Value:
        def change(part: Value) -> Value | None:
            if not self.is_gathered(part):
                return None
            assert isinstance(part, Reduce)
            inside = ranges | {self.variable: self.block}
            body = super(BlockIteration, self)._value(part.body, label, inside)
            (each,) = part.generators
            condition = self._condition(each.condition, label, inside)
            monoid = MONOID_OF[part.function]
            return self._gathered(monoid, body, replace(each, condition=condition))

        if not any(map(self.is_gathered, walk_value(value))):
            return super(BlockIteration, self)._value(value, label, ranges)
        kept: dict[str, Value] = {}

        def keep(part: Value) -> Value | None:
            done = change(part)
            if done is None:
                return None
            name = f"@gathered{len(kept)}"
            kept[name] = done
            return Real(name)

        return put(super(BlockIteration, self)._value(replaced(value, keep), label, ranges), kept)

    def _loop(self, node: Loop, position: Position, ranges: dict[str, Range]) -> None:
        if node.variable == self.variable and node.range == self.block:
            self._pass(node, position, ranges)
        else:
            super(BlockIteration, self)._loop(node, position, ranges)

    def _pass(self, node: Loop, position: Position, ranges: dict[str, Range]) -> None:
        """Take a pass over the block as the fold it is."""
        edges = edges_of(self.program, self.flow, position)
        given = {e.array for e in edges if e.kind in ("carried", "entering", "outer")}
        fills = {array: fill for array, fill in self.fills.items() if array not in given}
        inner = Iteration(node, position, edges, self.assumptions, self.elements, fills=fills)
        inner.run()
        with_makers(inner, self.program, self.loop)
        step = _carried(self.program, inner)
        inside = ranges | {node.variable: node.range}
        written: dict[str, set[str]] = {}
        for each in assignments(node.body):
            for target in each.targets:
                written.setdefault(target.array, set()).add(each.label)
        self._look(node.body, inside, written)
        inside |= ranges_by_name(loops_in(node.body))
        states = () if step is None else step.states
        left: list[Known] = []
        for known in inner.known:
            family = known.family
            if any(same_cell(family.access, state.access) for state in states):
                continue
            over = family.over
            value: Value = Real(SPOILT)
            if mentions(family.access, node.variable):
                over = ((node.variable, node.range), *over)
                if not inner.depends_on_state(known.value):
                    value = self._value(inner.plain(known.value), "", inside)
            left.append(self._left(Family(family.access, over), value, known.labels, ranges))
        if step is not None:
            for state, value in self._closed(step, inside):
                family = _family_of(state, inner)
                left.append(self._left(family, value, frozenset(state.statements), ranges))
        self.known += left

    def _left(
        self, family: Family, value: Value, labels: frozenset[str], ranges: dict[str, Range]
    ) -> Known:
        """Return what a pass leaves in a cell; the block may be empty."""
        earlier = self._found(family.access, ranges | dict(family.over))
        if earlier is not None:
            labels |= earlier.labels
        return Known(family, value, labels, earlier is None or earlier.old)

    def _look(
        self, body: tuple[Node, ...], ranges: dict[str, Range], own: Mapping[str, set[str]]
    ) -> None:
        """Take note of what the statements of a pass read that was there before the pass."""
        for node in body:
            match node:
                case Loop():
                    self._look(node.body, ranges | {node.variable: node.range}, own)
                case If():
                    self._look_at(node, ranges, own)
                    self._look(node.body, ranges, own)
                    self._look(node.orelse, ranges, own)
                case Assign():
                    self._look_at(node, ranges, own)
                case _:
                    raise NoRecurrence("a pass over a block holds more than statements")

    def _look_at(
        self, node: Assign | If, ranges: dict[str, Range], own: Mapping[str, set[str]]
    ) -> None:
        for relation in accesses(node):
            access, label = relation.access, node.label
            if relation.is_write or label is None or access.array not in self._written:
                continue
            labels = frozenset(own.get(access.array, ()))
            known = self._found(access, ranges)
            if known is not None:
                self._expect(access, label, labels | known.labels, old=known.old)
                continue
            state = (label, access.array) in self._carried and self._may_be_carried(access)
            if (state or not labels) and access.array not in self.fills:
                over = tuple((n, b) for n, b in ranges.items() if mentions(access, n))
                self.origin(Family(access, over), state=state)
            self._expect(access, label, labels, old=True)

    def _closed(
        self, step: Recurrence, ranges: dict[str, Range]
    ) -> list[tuple[StateVariable, Value]]:
        """Return what a pass leaves in its states."""
        finding, fold = _fold_of(step)
        names: dict[str, Value] = {
            given.name: self._value(given.value, "", ranges)
            for given in (*step.inputs, *step.parameters)
        }
        condition = Truth(True) if step.condition is None else step.condition
        condition = self._condition(condition, "", ranges)
        each = Generator(self.variable, self.block, condition)
        for state in step.states:
            names[state.name] = self._value(Read(state.access), "", ranges)
        found = []
        operator = finding.operator
        assert operator is not None
        for count, (component, own) in enumerate(
            zip(fold.components, operator.components, strict=True), 1
        ):
            if component.monoid not in FOLDING_OF or own.state is None:
                raise NoRecurrence("a pass over a block gathers no sum, maximum or minimum")
            state = step.state(own.state)
            start = names[state.name] if component.start is None else put(component.start, names)
            all_ = self._gathered(component.monoid, put(component.term, names), each)
            value = all_
            if not is_number(start, IDENTITIES[component.monoid]):
                value = (
                    add(start, all_)
                    if component.monoid == "+"
                    else joined(component.monoid, start, all_)
                )
            names[f"c{count}"] = put(
                put(component.finish, {"y": Real("@y"), **names}), {"@y": value}
            )
            found.append((state, names[f"c{count}"]))
        return found


def _fold_of(step: Recurrence) -> tuple[Finding, ClosedFold]:
    finding = find_operator(step)
    if finding.operator is None or len(finding.recurrence.states) != len(step.states):
        raise NoRecurrence("no operator was found for a pass over a block")
    fold = closed_fold(finding.recurrence, finding.operator)
    if fold is None or fold.law.answer != "proved":
        raise NoRecurrence("a pass over a block has no closed form")
    return finding, fold


def _carried(program: Program, inner: Iteration) -> Recurrence | None:
    """Return what a pass carries; None where that is nothing."""
    try:
        step = assembled(program, inner)
    except NoRecurrence as error:
        if str(error).endswith("carries no value"):
            return None
        raise
    if step.is_scan:
        cells = ", ".join(access_text(state.access) for state in step.states)
        raise NoRecurrence(f"{step.read_inside[0]} looks at {cells} in between")
    return step


def _family_of(state: StateVariable, inner: Iteration) -> Family:
    return next(
        found.family
        for found in inner.found.values()
        if found.state and same_cell(found.family.access, state.access)
    )


def with_makers(iteration: Iteration, program: Program, block: Loop) -> None:
    """Name what loops inside of an iteration make by what they are, not by where they keep it.

    Two loops may make different things in one cell, one after the other. What one makes of what
    else the block sets is not known by that name; see `is_known`.

    Args:
        iteration: The iteration.
        program: The program.
        block: The loop over blocks, or over elements.
    """
    sets = assignments(block.body)
    written = {target.array for n in sets for target in n.targets}
    for name, found in iteration.found.items():
        if not found.made:
            continue
        maker = node_at(program, found.maker)
        here = [n for n in nodes((maker,)) if isinstance(n, Assign | If)]
        own = {t.array for n in here if isinstance(n, Assign) for t in n.targets}
        feeding = _feeding(program, {n.label for n in here if n.label}, own)
        beside = [n for n in sets if n not in here and n.label in feeding]
        hangs = any(
            (r.access.array not in own and r.access.array in written)
            for node in (*here, *beside)
            for r in accesses(node)
            if not r.is_write
        )
        over = tuple(v for v, _ in found.family.over if v != iteration.loop.variable)
        variables = (iteration.loop.variable, *over)
        label = statements_in((maker,))[0]
        word = f"{UNKNOWN if hangs else ''}{found.family.access.array}@{label}"
        access = Access(word, tuple(Var(v) for v in variables))
        iteration.found[name] = replace(found, family=Family(access, found.family.over))


def _feeding(program: Program, labels: set[str], arrays: set[str]) -> set[str]:
    """Add the statements that some statements go on from in some arrays, and theirs."""
    flow = flow_of(program).dependences
    before = {d.source for d in flow if d.sink in labels and d.array in arrays}
    return labels if before <= labels else _feeding(program, labels | before, arrays)


def is_known(value: Value) -> bool:
    """Tell whether nothing in a value is made by a loop of what else the block sets."""
    return not any(
        isinstance(part, Read) and part.access.array.startswith(UNKNOWN)
        for part in walk_value(value)
    )
