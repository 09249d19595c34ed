"""Rows that two names share: where NumPy's views would differ from the listing's values."""

from __future__ import annotations

from dataclasses import dataclass, field

from looptrans.frontend.mistakes import SharedRow
from looptrans.ir.condition import Condition
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.source import Span
from looptrans.ir.value import Access, Read, Value, data_of, walk_value


def shared_rows(program: Program) -> list[SharedRow]:
    """Find rows bound to a name whose memory is written while the name is still read.

    `q = A[i]` means the values of the row at that moment. NumPy binds a view instead, which is
    the same thing unless the row is written before the last use of `q`, or `q` is written in
    place.
    """
    locals_ = {array.name for array in program.arrays if array.role == "local"}
    walker = _Walker(locals_)
    walker.body(program.body)
    return list(walker.found.values())


@dataclass(slots=True)
class _Walker:
    """Follows the text in order, a loop body again where one pass changed what is known.

    Attributes:
        locals: The names that an assignment can bind to a row.
        owner: For each bound name, what owns its memory: an array, or the statement that made it.
        stale: Names whose memory was written under another name.
    """

    locals: set[str]
    owner: dict[str, str] = field(default_factory=dict)
    stale: dict[str, str] = field(default_factory=dict)
    found: dict[Span, SharedRow] = field(default_factory=dict)

    def body(self, body: tuple[Node, ...]) -> None:
        for node in body:
            match node:
                case Loop():
                    before = dict(self.owner), dict(self.stale)
                    self.body(node.body)
                    if before != (self.owner, self.stale):
                        # What one iteration leaves behind, the next one finds.
                        self.body(node.body)
                case If():
                    self.condition(node.condition, node.span)
                    self.body(node.body)
                    self.body(node.orelse)
                case Atomic() | BlockReduce():
                    self.body(node.body)
                case Assign():
                    self.assign(node)
                case _:
                    pass

    def condition(self, condition: Condition, span: Span) -> None:
        for value in data_of(condition):
            self.reads(value, span)

    def reads(self, value: Value, span: Span) -> None:
        for inner in walk_value(value):
            if isinstance(inner, Read) and inner.access.array in self.stale:
                name = inner.access.array
                self.found.setdefault(
                    span,
                    SharedRow(
                        f"{name!r} is read after its memory was written as {self.stale[name]!r}",
                        span,
                        why="in NumPy both names are the same memory; the listing means the "
                        "values from before",
                        remedy=f"take a copy where {name} is set: {name} = ….copy()",
                    ),
                )

    def assign(self, statement: Assign) -> None:
        for value in statement.values:
            self.reads(value, statement.span)
        for number, target in enumerate(statement.targets):
            value = statement.values[min(number, len(statement.values) - 1)]
            rebinds = (
                target.array in self.locals
                and bool(target.subscripts)
                and not target.indices
                and not statement.augmented
            )
            if rebinds:
                self.bind(target.array, value, statement)
            elif target.subscripts:
                self.write(target, statement)

    def bind(self, name: str, value: Value, statement: Assign) -> None:
        self.stale.pop(name, None)
        if isinstance(value, Read) and value.access.rank:
            source = value.access.array
            self.owner[name] = self.owner.get(source, source)
        else:
            self.owner[name] = f"{name} of {statement.label}"

    def write(self, target: Access, statement: Assign) -> None:
        name = target.array
        memory = self.owner.get(name, name)
        shared = [other for other, owner in self.owner.items() if owner == memory and other != name]
        if memory != name and not memory.startswith(f"{name} of "):
            self.found.setdefault(
                statement.span,
                SharedRow(
                    f"writing {name!r} in place would write {_shown(memory)!r} as well",
                    statement.span,
                    why="in NumPy the name is a view of the other array's row",
                    remedy=f"take a copy where {name} is set: {name} = ….copy()",
                ),
            )
        for other in shared:
            self.stale[other] = name


def _shown(memory: str) -> str:
    """Return the array's name of an owner."""
    return memory.partition(" of ")[0]
