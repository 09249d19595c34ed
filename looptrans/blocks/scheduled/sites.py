"""Where a nest touches its arrays, in the order in which one iteration does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from looptrans.blocks.block_ir.program import NotLowered
from looptrans.ir.affine import simplified
from looptrans.ir.condition import ALWAYS, Condition, Data, Every, Not, Relation, Some, Truth
from looptrans.ir.index import Index, Let, Opaque, walk
from looptrans.ir.program import Assign, Atomic, Declaration, If, Loop, Node
from looptrans.ir.value import (
    Access,
    Generator,
    Holds,
    IndexValue,
    Range,
    Read,
    Reduce,
    Select,
    Subscript,
    Value,
    value_children,
)

Path = tuple[int, ...]
Span = tuple[Index, Index, int]


@dataclass(frozen=True, slots=True)
class Binding:
    """A loop, or a variable of a `sum(…)`, that stands around an access.

    Attributes:
        path: Its place; for a variable of a sum, that of the statement and a negative number.
        variable: Its variable.
        range: Its range.
        execution: How its iterations are ordered; `sum` for the variable of a sum.
        private: What each iteration has for itself.
    """

    path: Path
    variable: str
    range: Range
    execution: str
    private: tuple[str, ...] = ()

    @property
    def span(self) -> Span:
        """Where its range starts and stops, in normal form, and its step."""
        return simplified(self.range.start), simplified(self.range.stop), self.range.step


@dataclass(frozen=True, slots=True)
class Site:
    """One access.

    Attributes:
        array: The array.
        subscripts: At which cell.
        is_write: A write, else a read.
        path: The place of the statement.
        bindings: What is around it, outermost first.
        guards: The places of the branches of guards it stands in.
        label: The label of the statement.
        atomic: Whether it is to something that the atomic part it stands in changes.
        chosen: Whether a condition of the value it stands in decides if it is read.
    """

    array: str
    subscripts: tuple[Subscript, ...]
    is_write: bool
    path: Path
    bindings: tuple[Binding, ...]
    guards: tuple[Path, ...]
    label: str
    atomic: bool = False
    chosen: bool = field(default=False, compare=False)

    def binding(self, variable: str) -> Binding | None:
        """Return what binds a variable here."""
        for found in reversed(self.bindings):
            if found.variable == variable:
                return found
        return None


def sites(body: tuple[Node, ...], path: Path = ()) -> tuple[Site, ...]:
    """Return the accesses of a block in the order of execution of one iteration."""
    return tuple(_body(body, path, (), ()))


def _body(
    body: tuple[Node, ...], path: Path, bindings: tuple[Binding, ...], guards: tuple[Path, ...]
) -> Iterator[Site]:
    for number, node in enumerate(body):
        here = (*path, number)
        match node:
            case Assign():
                reader = _Reader(here, guards, node.label)
                for value in node.values:
                    yield from reader.value(value, bindings)
                for target in node.targets:
                    for index in target.indices:
                        yield from reader.index(index, bindings)
                for target in node.targets:
                    yield reader.site(target, True, bindings)
            case If():
                reader = _Reader(here, guards, node.label or "")
                yield from reader.condition(node.condition, bindings)
                for branch, inner in ((1, node.body), (2, node.orelse)):
                    side = (*here, branch)
                    yield from _body(inner, side, bindings, (*guards, side))
            case Loop():
                reader = _Reader(here, guards, "")
                yield from reader.range(node.range, bindings)
                around = Binding(here, node.variable, node.range, node.execution, node.private)
                yield from _body(node.body, here, (*bindings, around), guards)
            case Atomic(inner, turn) if turn is None:
                found = tuple(_body(inner, here, bindings, guards))
                changed = {site.array for site in found if site.is_write}
                for site in found:
                    yield replace(site, atomic=site.array in changed)
            case Declaration():
                pass
            case _:
                raise NotLowered(
                    "atomic parts with a turn, reductions of a thread block and barriers are not "
                    "run in blocks"
                )


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path
    guards: tuple[Path, ...]
    label: str
    chosen: bool = False

    def site(self, access: Access, is_write: bool, bindings: tuple[Binding, ...]) -> Site:
        return Site(
            access.array,
            access.subscripts,
            is_write,
            self.path,
            bindings,
            self.guards,
            self.label,
            chosen=self.chosen,
        )

    def index(self, index: Index, bindings: tuple[Binding, ...]) -> Iterator[Site]:
        for part in walk(index):
            if isinstance(part, Opaque):
                yield self.site(Access(part.array, part.arguments), False, bindings)
            elif isinstance(part, Let):
                yield self.site(Access(part.name, ()), False, bindings)

    def range(self, range_: Range, bindings: tuple[Binding, ...]) -> Iterator[Site]:
        yield from self.index(range_.start, bindings)
        yield from self.index(range_.stop, bindings)

    def condition(self, condition: Condition, bindings: tuple[Binding, ...]) -> Iterator[Site]:
        match condition:
            case Data(value):
                yield from self.value(value, bindings)
            case Relation(_, left, right):
                yield from self.index(left, bindings)
                yield from self.index(right, bindings)
            case Not(part):
                yield from self.condition(part, bindings)
            case Every(parts) | Some(parts):
                for number, part in enumerate(parts):
                    side = replace(self, chosen=True) if number else self
                    yield from side.condition(part, bindings)
            case Truth():
                pass

    def value(self, value: Value, bindings: tuple[Binding, ...]) -> Iterator[Site]:
        match value:
            case Read(access):
                for index in access.indices:
                    yield from self.index(index, bindings)
                yield self.site(access, False, bindings)
            case IndexValue(index):
                yield from self.index(index, bindings)
            case Holds(condition):
                yield from self.condition(condition, bindings)
            case Select(condition, chosen, otherwise):
                yield from self.condition(condition, bindings)
                side = replace(self, chosen=True)
                yield from side.value(chosen, bindings)
                yield from side.value(otherwise, bindings)
            case Reduce(_, generators, body):
                around, inside = bindings, self
                for generator in generators:
                    yield from inside.range(generator.range, around)
                    around = (*around, self._bound(generator, around))
                    yield from inside.condition(generator.condition, around)
                    if generator.condition != ALWAYS:
                        inside = replace(self, chosen=True)
                yield from inside.value(body, around)
            case _:
                for child in value_children(value):
                    yield from self.value(child, bindings)

    def _bound(self, generator: Generator, around: tuple[Binding, ...]) -> Binding:
        """Return what binds a variable of a sum, which may stand in other sums."""
        path = (*self.path, -1 - sum(each.execution == "sum" for each in around))
        return Binding(path, generator.variable, generator.range, "sum")
