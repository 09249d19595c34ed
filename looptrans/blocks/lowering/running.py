"""States that are looked at in between, in a block of iterations: scans of what they take.

    y[j] = r               y[j] = r + the sum of x before j
    r = r + x[j]    ->     r = r + the sum of x

That joining is associative is what `algebra.appending.scanned` leans on. What an iteration takes is
worked out where a state is first looked at, before the statement that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from looptrans.algebra.appending.affine import factor_and_term
from looptrans.algebra.appending.append_state import AppendedState
from looptrans.algebra.positional.values import ONE, ZERO
from looptrans.blocks.block_ir.arithmetic import as_float, plus, times
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Dim,
    Edge,
    Expr,
    Name,
    Number,
    Position,
    Reduce,
    Scan,
    Where,
    dims_of,
    kind_of,
)
from looptrans.blocks.block_ir.identities import counted, identity
from looptrans.blocks.lowering.builder import Builder
from looptrans.blocks.lowering.magnitude import bounds, is_at_most_one
from looptrans.blocks.lowering.values import Values
from looptrans.blocks.scheduled.serial import RunSerially
from looptrans.blocks.scheduled.sites import Path, Site, sites
from looptrans.ir import value as source
from looptrans.ir.condition import Condition, conjunction, negation
from looptrans.ir.monoids import IDENTITIES, Monoid
from looptrans.ir.program import Assign, If, Node
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Access, Const, Read, Select, Value
from looptrans.ir.walk import read_in, touched
from looptrans.transforms.editing.tree import node_in

_MOST_DIMS = 2
"""How many dimensions a block of scanned elements has at most, so that registers hold it."""


@dataclass(slots=True)
class _Running:
    """A state that is looked at in between.

    Attributes:
        state: The state.
        update: The place of the statement that hands it on, or of the guard that two stand in.
        level: Where the list of statements begins in which what it takes is worked out.
        conditions: What stands around the update there.
        takes: What an iteration takes, as a value, and what the state is multiplied by before;
            None where that is 1.
        seen_before: Whether it is looked at before the update.
        seen_after: Whether it is looked at behind it.
        term: What iterations take, those that do not count what changes nothing.
        factor: What the state is multiplied by before; None where that is 1.
        before: What it is before each iteration.
        upto: What it is after each.
        is_done: Whether it was handed on.
    """

    state: AppendedState
    update: Path
    level: Path
    conditions: tuple[Condition, ...]
    takes: tuple[Value | None, Value]
    seen_before: bool
    seen_after: bool
    term: Name | None = None
    factor: Name | None = None
    before: Name | None = None
    upto: Name | None = None
    is_done: bool = False


@dataclass(slots=True)
class Scans:
    """The states of a fold that are looked at in between.

    Attributes:
        b: The kernel.
        v: Its values.
        dim: The dimension of the loop.
        path: The place of the loop.
        mask: Which iterations count.
        running: The states, by array.
    """

    b: Builder
    v: Values
    dim: Dim
    path: Path
    mask: Callable[[], Expr | None]
    running: dict[str, _Running] = field(default_factory=dict)

    def find(self, body: tuple[Node, ...], states: Mapping[str, AppendedState]) -> None:
        """Find where the loop hands states on and looks at them.

        Args:
            body: The body of the loop.
            states: The states that are looked at in between, by array.

        Raises:
            RunSerially: One is handed on, or looked at, in a way that has no form in blocks.
        """
        found = sites(body, self.path)
        for array in states:
            self.running[array] = self._found(array, states, body, found)

    def _found(
        self,
        array: str,
        states: Mapping[str, AppendedState],
        body: tuple[Node, ...],
        found: tuple[Site, ...],
    ) -> _Running:
        state = states[array]
        updates = self._writes(array, body, found)
        order = [site.path for site in found]
        own = {site.path for site in updates}
        readers = [s for s in found if s.array == array and s.path not in own]
        lists = self._lists(updates[0])
        everywhere = [self._lists(site) for site in (*updates, *readers)]
        level = next(each for each in reversed(lists) if all(each in way for way in everywhere))
        around = lists[lists.index(level) + 1 :]
        if len(updates) > 1:
            around = around[:-1]  # the guard of which both sides set it
        if not set(around) <= set(updates[0].guards):
            raise self._serially(f"{array} is looked at outside of the loop that sets it")
        sides = [site.path[:-1] for site in updates]
        for reader in readers:
            if len(updates) > 1 and any(
                reader.path[: len(side)] == side and reader.path < update.path
                for side, update in zip(sides, updates, strict=True)
            ):
                raise self._serially(f"{array} is looked at before one of two statements sets it")
        at = order.index(updates[0].path)
        factor, term = self._takes(array, state, updates, body, found)
        if readers:
            first = min(reader.path for reader in readers)
            between = [s for s in found if s.is_write and first < s.path < updates[0].path]
            late = [s for s in between if s.path[:-1] == level and s.array not in states]
            factor = factor and self._opened(factor, late, body, found)
            term = self._opened(term, late, body, found)
        return _Running(
            state,
            updates[0].path if len(updates) == 1 else sides[0][:-1],
            level,
            tuple(self._condition(body, side) for side in around),
            (factor, term),
            any(order.index(reader.path) < at for reader in readers),
            any(order.index(reader.path) > at for reader in readers),
        )

    def _condition(self, body: tuple[Node, ...], side: Path) -> Condition:
        """Return what holds on a side of a guard."""
        guard = node_in(body, side[len(self.path) : -1])
        assert isinstance(guard, If)
        return guard.condition if side[-1] == 1 else negation(guard.condition)

    def _writes(self, array: str, body: tuple[Node, ...], found: tuple[Site, ...]) -> list[Site]:
        """Return where an array is set: in one place, or on both sides of one guard."""
        writes = [site for site in found if site.array == array and site.is_write]
        sides = {site.path[:-1] for site in writes}
        guards = {guard for site in writes for guard in site.guards}
        beside = len(writes) == len(sides) == 2 and sides <= guards
        beside = beside and len({side[:-1] for side in sides}) == 1
        if any(b.execution == "sequential" for site in writes for b in site.bindings) or not (
            len(writes) == 1 or beside
        ):
            raise self._serially(f"{array}, which is looked at in between, is set several times")
        if self.b.storage[array].place != "register":
            raise self._serially(f"{array}, which is looked at in between, is kept in memory")
        for site in writes:
            node = node_in(body, site.path[len(self.path) :])
            if isinstance(node, Assign) and len(node.targets) > 1:
                raise self._serially(f"{array} is set together with others")
        return writes

    def _lists(self, site: Site) -> list[Path]:
        """Return where the lists of statements begin that a statement stands in."""
        loops = [binding.path for binding in site.bindings if binding.execution != "sum"]
        return [self.path, *sorted([*loops, *site.guards], key=len)]

    def _takes(
        self,
        array: str,
        state: AppendedState,
        updates: list[Site],
        body: tuple[Node, ...],
        found: tuple[Site, ...],
    ) -> tuple[Value | None, Value]:
        """Return the factor and the term of an update; the factor only where it is not 1."""

        def set_at(site: Site, name: str) -> Value:
            node = node_in(body, site.path[len(self.path) :])
            assert isinstance(node, Assign)
            if len(node.values) > 1 or len(node.targets) > 1:
                raise self._serially(f"{name} is set beside others")
            (value,) = node.values
            if isinstance(value, Read) and value.access.array != array:
                writes = [s for s in found if s.array == value.access.array and s.is_write]
                if len(writes) == 1 and writes[0].path[:-1] in self._lists(site):
                    return set_at(writes[0], value.access.array)
            return value

        def is_own(part: Value) -> bool:
            return isinstance(part, Read) and part.access.array == array

        value = set_at(updates[0], array)
        if len(updates) > 1:
            guard = node_in(body, updates[0].path[len(self.path) : -2])
            assert isinstance(guard, If)
            value = Select(guard.condition, value, set_at(updates[1], array))
        if state.operator == "+":
            sides = factor_and_term(value, is_own)
            # What the text says here has to agree with what the algebra made of the iteration.
            factors = {ONE: None, ZERO: ZERO}
            alike = sides is not None and all(
                (sides[0] == number) == (state.factor == factor)
                for number, factor in factors.items()
            )
            if sides is None or not alike:
                raise self._serially(f"what {array} takes is not known by itself")
            factor, term = map(self._of_kind(array), sides)
            return (None if state.factor is None else factor), term
        nothing = Const(IDENTITIES[state.operator])
        match value:
            case source.Binary("*", left, right) if is_own(left) or is_own(right):
                value = right if is_own(left) else left
            case source.Call("max" | "min", (left, right)) if is_own(left) or is_own(right):
                value = right if is_own(left) else left
        taken = replaced(value, lambda part: nothing if is_own(part) else None)
        return None, self._of_kind(array)(taken)

    def _of_kind(self, array: str) -> Callable[[Value], Value]:
        """Return what makes the 0 and 1 of a step those of what an array holds."""
        return _as_integer if self.b.program.array(array).element == "int" else lambda value: value

    def _opened(
        self, value: Value, late: list[Site], body: tuple[Node, ...], found: tuple[Site, ...]
    ) -> Value:
        """Return a value with what numbers are that are set only behind where it is needed."""

        def change(part: Value) -> Value | None:
            if not isinstance(part, Read) or part.access.subscripts:
                return None
            name = part.access.array
            own = [s for s in late if s.array == name]
            if len(own) != 1 or sum(s.is_write and s.array == name for s in found) != 1:
                return None
            node = node_in(body, own[0].path[len(self.path) :])
            assert isinstance(node, Assign)
            if len(node.values) != 1:
                return None
            before = [site for site in late if site.path < own[0].path]
            return self._opened(node.values[0], before, body, found)

        return replaced(value, change)

    def _serially(self, why: str) -> RunSerially:
        return RunSerially(self.path, why)

    # While statements are lowered.

    def begin(self) -> None:
        """Begin a run of blocks."""
        for array, each in self.running.items():
            each.term = each.factor = each.before = each.upto = None
            each.is_done = False
            self.v.instead.pop(array, None)

    def ahead(self, path: Path, rest: tuple[Node, ...]) -> None:
        """Work out what states take before a node looks at them or sets them.

        Args:
            path: The place of the node.
            rest: The node, and what stands behind it in its list.
        """
        looked_at = touched(rest[:1])
        for array, each in self.running.items():
            if array in looked_at and each.term is None and path[:-1] == each.level:
                self._work_out(array, each, path, rest)

    def behind(self, path: Path) -> None:
        """Let what stands behind a node look at states as it has left them."""
        for array, each in self.running.items():
            inside = each.update[: len(path)] == path
            if inside and path[:-1] == each.level and each.upto is not None:
                self.v.instead[array] = each.upto

    def _work_out(self, array: str, each: _Running, path: Path, rest: tuple[Node, ...]) -> None:
        """Work out what iterations take, and what the state is before each of them."""
        for name in self._read_by(each):
            other = self.running.get(name)
            if other is None or other.term is not None or name == array:
                continue
            # It is looked at here, although no statement has done so yet.
            if other.level != each.level or array in self._read_by(other):
                raise self._serially(f"what {array} takes is not known where it is looked at")
            self._work_out(name, other, path, rest)
        self._require_known(array, each, path, rest)
        op = each.state.operator
        factor, taken = each.takes
        conditions = [self.b.condition(c, self.v.truth_of) for c in each.conditions]
        with self.b.guarded(*conditions):
            mask = self.mask()
            term = counted(op, self.v.kept(taken, array))
            is_integer = kind_of(term) == "int"
            if is_integer != (self.b.program.array(array).element == "int"):
                raise self._serially(f"what {array} takes is no integer in every iteration")
            each.term = self._counting(f"{array}_taken", term, identity(op, term), mask)
            if factor is not None:
                lowered = self.v.kept(factor, array)
                if kind_of(lowered) != kind_of(term):
                    raise self._serially(f"what {array} is multiplied by is no integer")
                one = 1 if is_integer else 1.0
                found = self._counting(f"{array}_factor", lowered, one, mask)
                if not is_at_most_one(self.b, found):
                    raise self._serially(f"what {array} is multiplied by may be large")
                each.factor = found
        if each.seen_before:
            name = self.b.name(f"{array}_before", ("before", self.path, array))
            each.before = self.b.named(name, self._scan(array, each, before=True))
            self.v.instead[array] = each.before

    def _counting(self, stem: str, value: Expr, neutral: float, mask: Expr | None) -> Name:
        """Give a name to what iterations take, those that do not count what changes nothing."""
        if mask is not None:
            value = Where(mask, value, Number(neutral))
        if self.dim not in dims_of(value):
            every = Binary(">=", Position(self.dim), self.b.index(self.dim.start))
            value = Where(every, value, Number(neutral))
        if len(dims_of(value)) > _MOST_DIMS:
            raise self._serially("it would be kept for each iteration of a block")
        name = self.b.name(stem, (stem, self.path))
        note = "outside: what changes nothing" if mask is not None else ""
        made = self.b.named(name, value, note=note)
        self.b.ranges[name] = bounds(self.b, value)
        return made

    def _scan(self, array: str, each: _Running, *, before: bool) -> Expr:
        """Return what a state is before each iteration of a block, or after it."""
        assert each.term is not None
        op, old = each.state.operator, self._old(array)
        if each.factor is None:
            return _joined(op, old, Scan(op, self.dim, each.term, before))
        # The first step of a block is from what was there before.
        is_first = Binary("==", Position(self.dim), Edge(self.dim, "first"))
        term = Where(is_first, self._stepped(each.factor, old, each.term), each.term)
        start = (Where(is_first, old, _zero(each.term)),) if before else ()
        return Scan("+", self.dim, term, before, (each.factor, *start))

    def _stepped(self, factor: Expr, old: Expr, term: Expr) -> Expr:
        """Return what a step makes of a number, which it may leave out whatever it is."""
        after = plus(times(factor, old), term)
        low, high = bounds(self.b, factor)
        if low > 0.0 or high < 0.0:
            return after
        return Where(Binary("==", factor, _zero(factor)), term, after)

    def _require_known(
        self, array: str, each: _Running, path: Path, rest: tuple[Node, ...]
    ) -> None:
        """Require that all is known that says what iterations take, as it will be at the update."""
        read = self._read_by(each)
        for name in read:
            if self.b.storage[name].place == "register" and name not in self.b.values:
                raise self._serially(f"what {array} takes is not known where it is looked at")
        for site in sites(rest, path[:-1]):
            place = (*path[:-1], site.path[len(path) - 1] + path[-1], *site.path[len(path) :])
            if place[: len(each.update)] == each.update:
                return
            if site.is_write and site.array in read:
                raise self._serially(
                    f"{array} is looked at before {site.array} is set, which says what it takes"
                )

    def _read_by(self, each: _Running) -> list[str]:
        """Return the arrays that say what a state takes."""
        values = tuple(value for value in each.takes if value is not None)
        worked_out = Assign("", (Access("", ()),) * len(values), values)
        return sorted(read_in((If(conjunction(*each.conditions), (worked_out,)),)))

    def _old(self, array: str) -> Name:
        return self.b.values[array]

    def taken(self, array: str) -> Expr:
        """Return what a state is after a block, where a statement hands it on."""
        each = self.running[array]
        assert each.term is not None
        op = each.state.operator
        old = self._old(array)
        if each.is_done:
            # The other side of a guard has handed it on.
            if each.upto is not None:
                self.v.instead[array] = each.upto
            return old
        each.is_done = True
        if each.seen_after or each.factor is not None:
            if each.before is None:
                upto = self._scan(array, each, before=False)
            elif each.factor is None:
                upto = _joined(op, each.before, each.term)
            else:
                upto = self._stepped(each.factor, each.before, each.term)
            name = self.b.name(f"{array}_upto", ("upto", self.path, array))
            each.upto = self.b.named(name, upto)
            self.v.instead[array] = each.upto
        if each.factor is None:
            return _joined(op, old, Reduce(op, self.dim, each.term))
        assert each.upto is not None
        last = Reduce("max", self.dim, Position(self.dim))
        is_last = Binary("==", Position(self.dim), last)
        chosen = Where(is_last, each.upto, _zero(each.upto))
        return Reduce("+", self.dim, chosen)


def _as_integer(value: Value) -> Value:
    """Return an integer with its numbers written as integers, not those of conditions."""
    match value:
        case Const(float(number)) if number.is_integer():
            return Const(int(number))
        case Select(condition, chosen, otherwise):
            return Select(condition, _as_integer(chosen), _as_integer(otherwise))
        case source.Unary("-", operand):
            return replace(value, operand=_as_integer(operand))
        case source.Binary("+" | "-" | "*", left, right):
            return replace(value, left=_as_integer(left), right=_as_integer(right))
        case _:
            return value


def _zero(like: Expr) -> Number:
    return Number(0 if kind_of(like) == "int" else 0.0)


def _joined(op: Monoid, left: Expr, right: Expr) -> Expr:
    if kind_of(right) != "int":
        left = as_float(left)
    match op:
        case "+":
            return plus(left, right)
        case "*":
            return times(left, right) if kind_of(right) != "int" else Binary("*", left, right)
        case _:
            return Call(op, (left, right))
