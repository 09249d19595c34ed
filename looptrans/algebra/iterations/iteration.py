"""One iteration of a loop, carried out on symbols.

    for j: m_i = m[i]                       m[i]   holds  max(@0, S[i, j])
           m_ij = max(m_i, S[i, j])   ->           where @0 is what m[i] held before the iteration
           m[i] = m_ij

Which cell a read gets its value from is decided by comparing subscripts, and what is decided is
then held against the exact flow dependences: where the two differ there is no recurrence to speak
of, and the reason is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from looptrans.algebra.iterations.edges import Edge, NoRecurrence, Position
from looptrans.algebra.iterations.held import SPOILT, Found, Known, family_of
from looptrans.algebra.positional.cells import (
    ALL,
    Family,
    is_new_each_time,
    mentions,
    moved,
    same_cell,
    value_moved,
)
from looptrans.frontend.elements import element_of
from looptrans.ir.condition import Condition, opposite
from looptrans.ir.creation import first_value
from looptrans.ir.index import Index, Int, Var
from looptrans.ir.listing import access_text
from looptrans.ir.program import (
    Assign,
    Atomic,
    Barrier,
    BlockReduce,
    Declaration,
    Element,
    If,
    Loop,
    Node,
)
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.rewrite import replaced, replaced_in_condition
from looptrans.ir.value import (
    Access,
    Call,
    Const,
    Create,
    Range,
    Read,
    Real,
    Reduce,
    Select,
    Value,
    Whole,
    rank_of,
    shared_parts,
)
from looptrans.ir.walk import assignments, nodes, written_in


@dataclass(slots=True)
class Iteration:
    """The symbolic machine: what the cells hold, and what was found out on the way.

    Attributes:
        loop: The loop.
        position: Its place in the program.
        edges: The flow dependences that touch it.
        assumptions: The contracts the flow leans on, as written.
        elements: What every array holds.
        known: What cells hold, latest last.
        found: What the iteration found when it began, by name.
        computed: For every statement, its label and the values it writes.
        fills: What arrays hold that nothing but this iteration writes, where it is a number.
    """

    loop: Loop
    position: Position
    edges: tuple[Edge, ...]
    assumptions: tuple[str, ...] = ()
    elements: Mapping[str, Element] = field(default_factory=dict)
    known: list[Known] = field(default_factory=list)
    found: dict[str, Found] = field(default_factory=dict)
    computed: list[tuple[str, tuple[Value, ...]]] = field(default_factory=list)
    fills: Mapping[str, Value] = field(default_factory=dict)
    _written: frozenset[str] = frozenset()
    _carried: frozenset[tuple[str, str]] = frozenset()
    _expected: dict[tuple[str, str], tuple[Access, frozenset[str], bool]] = field(
        default_factory=dict
    )
    _sealed: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Carry out the iteration.

        Raises:
            NoRecurrence: What a statement reads cannot be told, or a loop inside carries the state.
        """
        self._written = frozenset(written_in(self.loop.body))
        self._carried = frozenset((e.sink, e.array) for e in self.edges if e.kind == "carried")
        self._body(self.loop.body, self.position, {})
        self._check()

    def plain(self, value: Value) -> Value:
        """Return a value over the listing's names."""

        def change(part: Value) -> Value | None:
            if isinstance(part, Real) and part.name in self.found:
                return Read(self.found[part.name].family.access)
            return None

        return replaced(value, change)

    def depends_on_state(self, value: Value) -> bool:
        """Tell whether a value mentions what an earlier iteration left behind."""
        return any(True for _ in self.states_in(value))

    def states_in(self, value: Value) -> Iterator[Access]:
        """Yield the cells, as an earlier iteration left them, that a value mentions."""
        for part in shared_parts(value):
            if isinstance(part, Real) and part.name in self.found and self.found[part.name].state:
                yield self.found[part.name].family.access

    def holds(self, access: Access, ranges: Mapping[str, Range]) -> Known | None:
        """Return what a cell holds now, if this iteration has written it."""
        known = self._found(access, ranges)
        if known is not None and known.value == Real(SPOILT):
            raise NoRecurrence(
                f"{access_text(access)} is left behind by a loop inside, "
                "from values that depend on the state"
            )
        return known

    def _found(self, access: Access, ranges: Mapping[str, Range]) -> Known | None:
        """Return what a cell holds now, known or not, if this iteration has written it."""
        for known in reversed(self.known):
            bound = known.family.matched(access, ranges)
            if bound is not None:
                return replace(known, value=self._moved(known.value, bound))
        return None

    def _body(self, body: tuple[Node, ...], position: Position, ranges: dict[str, Range]) -> None:
        for number, node in enumerate(body):
            here = (*position, number)
            match node:
                case Assign():
                    self._assign(node, ranges)
                case Loop():
                    self._loop(node, here, ranges)
                case If():
                    self._guard(node, here, ranges)
                case Atomic() | BlockReduce():
                    self._body(node.body, here, ranges)
                case Barrier():
                    raise NoRecurrence("a barrier stands in the loop")
                case Declaration():
                    raise NoRecurrence(f"{node.array} is created in the loop")

    def _assign(self, node: Assign, ranges: dict[str, Range]) -> None:
        values = tuple(
            self._value(self._stored(node, number), node.label, ranges)
            for number in range(len(node.values))
        )
        self.computed.append((node.label, values))
        for number, target in enumerate(node.targets):
            value = values[number if len(values) == len(node.targets) else 0]
            family, label = family_of(target, ranges), frozenset({node.label})
            match value:
                case Create(shape=shape) if (fill := first_value(value)) is not None:
                    self.known.append(Known(_all_of(family, shape), fill, label))
                case _:
                    self.known.append(Known(family, value, label))

    def _stored(self, node: Assign, number: int) -> Value:
        """Return a value as its target holds it: an array of integers rounds toward 0."""
        value, kinds = node.values[number], self.elements
        whole = all(kinds.get(target.array) == "int" for target in node.targets)
        if not whole or isinstance(value, Const) or rank_of(value):
            return value
        return Call("int64", (value,)) if element_of(value, kinds) == "float" else value

    def _value(self, value: Value, label: str, ranges: dict[str, Range]) -> Value:
        def change(part: Value) -> Value | None:
            if isinstance(part, Read):
                return self._read(part.access, label, ranges)
            if isinstance(part, Reduce):
                inside = ranges | ranges_by_name(part.generators)
                body = self._value(part.body, label, inside)
                if self.depends_on_state(body):
                    raise NoRecurrence(f"{label} sums over the state")
                return Reduce(part.function, part.generators, body)
            return None

        return replaced(value, change)

    def _condition(self, condition: Condition, label: str, ranges: dict[str, Range]) -> Condition:
        def change(part: Value) -> Value | None:
            return self._value(part, label, ranges)

        return replaced_in_condition(condition, change)

    def _read(self, access: Access, label: str, ranges: dict[str, Range]) -> Value:
        if access.array not in self._written:
            return Read(access)
        known = self.holds(access, ranges)
        if known is None:
            state = (label, access.array) in self._carried and self._may_be_carried(access)
            fill = None if state else self.fills.get(access.array)
            value = fill or self.origin(family_of(access, ranges), state=state)
            self._expect(access, label, frozenset(), old=True)
            return value
        self._expect(access, label, known.labels, old=known.old)
        return known.value

    def _may_be_carried(self, access: Access) -> bool:
        """Tell whether an earlier iteration may have written the cell.

        Not where the loop writes only this very cell, and a new one in each iteration.
        """
        targets = (
            target
            for node in assignments(self.loop.body)
            for target in node.targets
            if target.array == access.array
        )
        own = all(same_cell(target, access) for target in targets)
        return not (own and is_new_each_time(access, self.loop.variable))

    def _expect(self, access: Access, label: str, labels: frozenset[str], *, old: bool) -> None:
        if label in self._sealed:
            return
        key = (label, access.array)
        if key in self._expected:
            before, earlier, was_old = self._expected[key]
            if not same_cell(before, access) and (earlier, was_old) != (labels, old):
                moving = mentions(before, self.loop.variable) or mentions(
                    access, self.loop.variable
                )
                if not moving:
                    raise NoRecurrence(
                        f"{label} reads {access_text(before)} and {access_text(access)}, "
                        "which may be the same cell"
                    )
            labels, old = labels | earlier, old or was_old
        self._expected[key] = (access, labels, old)

    def origin(self, family: Family, *, state: bool, maker: Position = ()) -> Real:
        """Return the name for what the iteration finds in a cell, or for what a loop makes."""
        for found in self.found.values():
            if not maker and not found.made and same_cell(found.family.access, family.access):
                if state and not found.state:
                    self.found[found.name] = replace(found, state=True)
                return Real(found.name)
        name = f"@{len(self.found)}"
        self.found[name] = Found(name, family, state, maker)
        return Real(name)

    def _moved(self, value: Value, bound: Mapping[str, Index]) -> Value:
        if not bound:
            return value

        def change(part: Value) -> Value | None:
            if isinstance(part, Real) and part.name in self.found:
                found = self.found[part.name]
                access = moved(found.family.access, bound)
                if same_cell(access, found.family.access):
                    return part
                over = tuple(
                    (index.name if isinstance(index, Var) else name, bounds)
                    for name, bounds in found.family.over
                    for index in (bound.get(name),)
                )
                return self.origin(Family(access, over), state=found.state, maker=found.maker)
            return None

        return value_moved(replaced(value, change), bound)

    def _loop(self, node: Loop, position: Position, ranges: dict[str, Range]) -> None:
        inside = ranges | {node.variable: node.range}
        carries = any(e.kind == "within" and e.inner == position for e in self.edges)
        before, count = list(self.known), len(self.computed)
        if carries:
            self._seal(node)
        self._body(node.body, position, inside)
        made = self.known[len(before) :]
        values = [v for _, written in self.computed[count:] for v in written]
        if carries and any(map(self.depends_on_state, values)):
            raise NoRecurrence(f"the loop {node.variable} inside carries values of the state")
        self.known = before
        for known in made:
            if not carries and mentions(known.family.access, node.variable):
                self.known.append(known)
            else:
                self._leave(known, made, ranges, position)

    def _seal(self, node: Loop) -> None:
        """Take what a loop with a recurrence of its own makes as it is; the state may not enter."""
        labels = {
            inner.label
            for inner in nodes(node.body)
            if isinstance(inner, Assign | If) and inner.label is not None
        }
        tainted = {
            label for label, values in self.computed if any(map(self.depends_on_state, values))
        }
        for edge in self.edges:
            within = edge.kind == "within" and edge.source in tainted
            if edge.sink in labels and (within or edge.kind == "carried"):
                raise NoRecurrence(f"the loop {node.variable} inside carries values of the state")
        self._sealed |= labels

    def _leave(
        self, known: Known, made: list[Known], ranges: dict[str, Range], maker: Position
    ) -> None:
        """Keep what the last iteration of an inner loop leaves in a cell as a value of its own.

        The loop may be empty, so what was there before may still be there.
        """
        access = known.family.access
        earlier = self._found(access, ranges | dict(known.family.over))
        labels = {
            label for k in made if k.family.access.array == access.array for label in k.labels
        }
        if earlier is not None:
            labels |= earlier.labels
        values = [known.value] if earlier is None else [known.value, earlier.value]
        stateful = any(v == Real(SPOILT) or self.depends_on_state(v) for v in values)
        value = Real(SPOILT) if stateful else self.origin(known.family, state=False, maker=maker)
        old = earlier is None or earlier.old
        self.known.append(Known(known.family, value, frozenset(labels), old))

    def _guard(self, node: If, position: Position, ranges: dict[str, Range]) -> None:
        condition = self._condition(node.condition, node.label or "", ranges)
        before = list(self.known)
        branches = []
        for number, body in ((1, node.body), (2, node.orelse)):
            self.known = list(before)
            self._body(body, (*position, number), ranges)
            branches.append(self.known)
        self.known = before
        changed: list[Family] = []
        for branch in branches:
            for known in branch[len(before) :]:
                if not any(same_cell(f.access, known.family.access) for f in changed):
                    changed.append(known.family)
        for family in changed:
            self.known.append(self._merged(condition, family, branches, ranges))

    def _merged(
        self,
        condition: Condition,
        family: Family,
        branches: list[list[Known]],
        ranges: dict[str, Range],
    ) -> Known:
        left = []
        around = ranges | dict(family.over)
        for branch in branches:
            kept, self.known = self.known, branch
            left.append(self._found(family.access, around))
            self.known = kept
        if any(side is not None and side.value == Real(SPOILT) for side in left):
            labels = frozenset(label for side in left if side for label in side.labels)
            old = any(side is None or side.old for side in left)
            return Known(family, Real(SPOILT), labels, old)
        sides = [side or self._left_alone(family) for side in left]
        then, other = sides
        if isinstance(then.value, Real) and not isinstance(other.value, Real):
            # What a condition leaves as it is stands behind: x if not c else the old one.
            condition, then, other = opposite(condition), other, then
        value = (
            then.value if then.value == other.value else Select(condition, then.value, other.value)
        )
        return Known(family, value, then.labels | other.labels, then.old or other.old)

    def _left_alone(self, family: Family) -> Known:
        """Return what a branch leaves in a cell that it does not write."""
        fill = self.fills.get(family.access.array)
        fixed = fill is None and not mentions(family.access, self.loop.variable)
        value = fill or self.origin(family, state=fixed)
        return Known(family, value, frozenset(), old=True)

    def _check(self) -> None:
        """Hold what was read off the subscripts against the exact flow.

        Raises:
            NoRecurrence: The two differ.
        """
        tested = self._under_data()
        for edge in self.edges:
            if edge.kind not in ("within", "carried") or edge.sink in self._sealed:
                continue
            expected = self._expected.get((edge.sink, edge.array))
            if expected is None:
                continue
            access, labels, old = expected
            if edge.source in tested and not access.indices and not access.rank:
                # The flow does not know that one of two branches is taken, nor that both of two
                # tests hold; the machine does, and of a scalar there is one cell only.
                continue
            fits = old if edge.kind == "carried" else edge.source in labels
            if not fits:
                raise NoRecurrence(
                    f"{edge.sink} reads {access_text(access)}, which {edge.source} may have "
                    "written under another subscript"
                )

    def _under_data(self) -> set[str]:
        """Return the statements that run or not as data says."""
        return {
            node.label
            for test in nodes(self.loop.body)
            if isinstance(test, If) and test.label is not None
            for node in assignments((*test.body, *test.orelse))
        }


def _all_of(family: Family, shape: tuple[Index, ...]) -> Family:
    """Return the cells of what is made anew, one for each index there is."""
    extents = iter(enumerate(shape))
    over = dict(family.over)
    subscripts: list[Index | Whole] = []
    for index in family.access.subscripts:
        if isinstance(index, Whole):
            number, extent = next(extents)
            each = Var(f"{ALL}{number}")
            over[each.name] = Range(Int(0), extent)
            subscripts.append(each)
        else:
            subscripts.append(index)
    return Family(replace(family.access, subscripts=tuple(subscripts)), tuple(over.items()))
