"""States that are looked at in between, in a block of iterations: scans of what they take.

    y[j] = r               y[j] = r + the sum of x before j
    r = r + x[j]    ->     r = r + the sum of x

That joining is associative is what `algebra.appending.scanned` leans on. What an iteration takes is
worked out where a state is first looked at, before the statement that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from looptrans.algebra.appending.appended import AppendedState
from looptrans.blocks.block_ir.arithmetic import as_float, plus, times
from looptrans.blocks.block_ir.expr import (
    Binary,
    Call,
    Dim,
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
from looptrans.blocks.lowering.values import Values
from looptrans.blocks.scheduled.serial import RunSerially
from looptrans.blocks.scheduled.sites import Path, Site, sites
from looptrans.ir import value as source
from looptrans.ir.condition import Condition, conjunction, negation
from looptrans.ir.monoids import IDENTITIES, Monoid
from looptrans.ir.program import Assign, If, Loop, Node
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Access, Const, Read, Value
from looptrans.ir.walk import touched

_MOST_DIMS = 2
"""How many dimensions a block of scanned elements has at most, so that registers hold it."""


@dataclass(slots=True)
class _Running:
    """A state that is looked at in between.

    Attributes:
        state: The state.
        update: The place of the statement that hands it on.
        level: Where the list of statements begins in which what it takes is worked out.
        conditions: What stands around the update there.
        takes: What an iteration takes, as a value.
        seen_before: Whether it is looked at before the update.
        seen_after: Whether it is looked at behind it.
        term: What iterations take, those that do not count what changes nothing.
        before: What it is before each iteration.
        upto: What it is after each.
    """

    state: AppendedState
    update: Path
    level: Path
    conditions: tuple[Condition, ...]
    takes: Value
    seen_before: bool
    seen_after: bool
    term: Name | None = None
    before: Name | None = None
    upto: Name | None = None


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
        for array, state in states.items():
            self.running[array] = self._found(array, state, body, found)

    def _found(
        self, array: str, state: AppendedState, body: tuple[Node, ...], found: tuple[Site, ...]
    ) -> _Running:
        update = self._only_write(array, found)
        order = [site.path for site in found]
        readers = [s for s in found if s.array == array and s.path != update.path]
        lists = self._lists(update)
        level = next(
            each for each in reversed(lists) if all(each in self._lists(s) for s in readers)
        )
        inside = lists[lists.index(level) + 1 :]
        if not set(inside) <= set(update.guards):
            raise self._serially(f"{array} is looked at outside of the loop that sets it")
        at = order.index(update.path)
        return _Running(
            state,
            update.path,
            level,
            tuple(_condition(_at(body, side[len(self.path) : -1]), side[-1]) for side in inside),
            self._takes(array, state.operator, body, found),
            any(order.index(reader.path) < at for reader in readers),
            any(order.index(reader.path) > at for reader in readers),
        )

    def _only_write(self, array: str, found: tuple[Site, ...]) -> Site:
        """Return where an array is set, which is one place."""
        writes = [site for site in found if site.array == array and site.is_write]
        if len(writes) != 1 or any(b.execution == "sequential" for b in writes[0].bindings):
            raise self._serially(f"{array}, which is looked at in between, is set several times")
        return writes[0]

    def _lists(self, site: Site) -> list[Path]:
        """Return where the lists of statements begin that a statement stands in."""
        loops = [binding.path for binding in site.bindings if binding.execution != "sum"]
        return [self.path, *sorted([*loops, *site.guards], key=len)]

    def _takes(
        self, array: str, op: Monoid, body: tuple[Node, ...], found: tuple[Site, ...]
    ) -> Value:
        """Return what an iteration takes: the update of what changes nothing."""

        def set_to(name: str) -> Value:
            write = self._only_write(name, found)
            node = _at(body, write.path[len(self.path) :])
            assert isinstance(node, Assign)
            return node.values[[target.array for target in node.targets].index(name)]

        value = set_to(array)
        while isinstance(value, Read) and value.access.array != array:
            value = set_to(value.access.array)

        def is_own(part: Value) -> bool:
            return isinstance(part, Read) and part.access.array == array

        match value:
            case source.Binary("+" | "*", left, right) if is_own(left) or is_own(right):
                taken = right if is_own(left) else left
            case source.Binary("-", left, right) if is_own(left):
                taken = source.Unary("-", right)
            case _:
                taken = value
        nothing = Const(IDENTITIES[op])
        return replaced(taken, lambda part: nothing if is_own(part) else None)

    def _serially(self, why: str) -> RunSerially:
        return RunSerially(self.path, why)

    # While statements are lowered.

    def begin(self) -> None:
        """Begin a run of blocks."""
        for array, each in self.running.items():
            each.term = each.before = each.upto = None
            self.v.instead.pop(array, None)

    def ahead(self, path: Path, rest: tuple[Node, ...]) -> None:
        """Work out what states take before a node looks at them or sets them.

        Args:
            path: The place of the node.
            rest: The node, and what stands behind it in its list.
        """
        for array, each in self.running.items():
            if each.term is not None or path[:-1] != each.level:
                continue
            if array in touched(rest[:1]):
                self._work_out(array, each, path, rest)

    def behind(self, path: Path) -> None:
        """Let what stands behind a node look at states as it has left them."""
        for array, each in self.running.items():
            inside = each.update[: len(path)] == path
            if inside and path[:-1] == each.level and each.upto is not None:
                self.v.instead[array] = each.upto

    def _work_out(self, array: str, each: _Running, path: Path, rest: tuple[Node, ...]) -> None:
        """Work out what iterations take, and what the state is before each of them."""
        self._require_known(array, each, path, rest)
        op = each.state.operator
        conditions = [self.b.condition(c, self.v.truth_of) for c in each.conditions]
        with self.b.guarded(*conditions):
            term = counted(op, self.v.kept(each.takes, array))
            neutral = Number(identity(op, term))
            mask = self.mask()
        if mask is not None:
            term = Where(mask, term, neutral)
        if self.dim not in dims_of(term):
            every = Binary(">=", Position(self.dim), self.b.index(self.dim.start))
            term = Where(every, term, neutral)
        if len(dims_of(term)) > _MOST_DIMS:
            raise self._serially(f"{array} would be kept for each iteration of a block")
        name = self.b.name(f"{array}_taken", ("taken", self.path, array))
        each.term = self.b.named(name, term, note="outside: what changes nothing")
        if each.seen_before:
            name = self.b.name(f"{array}_before", ("before", self.path, array))
            scan = Scan(op, self.dim, each.term, before=True)
            each.before = self.b.named(name, _joined(op, self._old(array), scan))
            self.v.instead[array] = each.before

    def _require_known(
        self, array: str, each: _Running, path: Path, rest: tuple[Node, ...]
    ) -> None:
        """Require that all is known that says what iterations take, as it will be at the update."""
        worked_out = Assign("", (Access("", ()),), (each.takes,))
        read = touched((If(conjunction(*each.conditions), (worked_out,)),), writes=False)
        for name in sorted(read):
            if self.b.storage[name].place == "register" and name not in self.b.values:
                raise self._serially(f"what {array} takes is not known where it is looked at")
        for site in sites(rest, path[:-1]):
            place = (*path[:-1], site.path[len(path) - 1] + path[-1], *site.path[len(path) :])
            if place == each.update:
                return
            if site.is_write and site.array in read:
                raise self._serially(
                    f"{array} is looked at before {site.array} is set, which says what it takes"
                )

    def _old(self, array: str) -> Name:
        return self.b.values[array]

    def taken(self, array: str) -> Expr:
        """Return what a state is after a block."""
        each = self.running[array]
        assert each.term is not None
        op = each.state.operator
        if each.seen_after:
            if each.before is not None:
                upto = _joined(op, each.before, each.term)
            else:
                upto = _joined(op, self._old(array), Scan(op, self.dim, each.term, before=False))
            name = self.b.name(f"{array}_upto", ("upto", self.path, array))
            each.upto = self.b.named(name, upto)
            self.v.instead[array] = each.upto
        return _joined(op, self._old(array), Reduce(op, self.dim, each.term))


def _at(body: tuple[Node, ...], path: Path) -> Node:
    """Return the node at a place in a body."""
    number, *rest = path
    node = body[number]
    while rest:
        if isinstance(node, If):
            side, *rest = rest
            inner = node.body if side == 1 else node.orelse
        else:
            assert isinstance(node, Loop)
            inner = node.body
        number, *rest = rest
        node = inner[number]
    return node


def _condition(node: Node, side: int) -> Condition:
    assert isinstance(node, If)
    return node.condition if side == 1 else negation(node.condition)


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
