"""Sums that are read while they grow, written as what they are.

c = 0.0                            c = 0.0
for t:                             for t:
    c = c + x[t]             ->        c = c + x[t]
    F[t] = exp(c)                      F[t] = exp(sum(x[u] for u in range(0, t + 1)))

Reverse mode knows the gradient of a sum. The listing itself is left to run as it is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.cells import mentions, value_moved
from looptrans.algebra.positional.values import add, is_number
from looptrans.ir.affine import total
from looptrans.ir.condition import ALWAYS
from looptrans.ir.index import Index, Int, Var, lets
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, replaced_in_condition, rewritten, values_replaced
from looptrans.ir.value import (
    Access,
    Const,
    Generator,
    IndexValue,
    Range,
    Read,
    Reduce,
    Value,
    arrays_read,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import AccessRelation, accesses, nodes, sets_only
from looptrans.transforms.editing.accesses import listed
from looptrans.transforms.editing.naming import names_used


@dataclass(frozen=True, slots=True)
class Running:
    """A program that reads sums where it read what grows.

    Attributes:
        listing: The program before.
        program: The program afterwards.
        arrays: What was read.
    """

    listing: Program
    program: Program
    arrays: tuple[str, ...]

    def back(self, program: Program) -> Program:
        """Read what grows again, in a program that has more statements that set other arrays.

        Raises:
            NotDifferentiated: It has not the same statements besides: states that it keeps have
                other names there.
        """
        own = {array.name for array in self.listing.arrays}
        before, after, given = (
            _settings(each, own) for each in (self.listing, self.program, program)
        )
        if [node.targets for node in given] != [node.targets for node in after]:
            raise NotDifferentiated(f"what {listed(self.arrays)} has gathered is kept elsewhere")
        pairs = iter(zip(before, after, strict=True))

        def change(node: Node) -> tuple[Node, ...]:
            if not sets_only(node, own):
                return (node,)
            old, new = next(pairs)
            return (node if old.values == new.values else replace(node, values=old.values),)

        return replace(program, body=rewritten(program.body, change))

    @property
    def text(self) -> str:
        """What was done, as a phrase."""
        return f"read what {listed(self.arrays)} has gathered as a sum"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "a cell that each iteration adds to holds the sum of what they have added"
        reason = "it is set before the loop, and nothing else in there writes to it"
        return Certificate("storage", law, "legal", reason)


def with_running_sums(program: Program) -> Running | None:
    """Read sums for cells that a loop adds to and reads in between.

    What is added has to be made of what the loop does not write, or of what the same iteration has
    set before, and hold no sum itself: one for each iteration would be dear.

    Args:
        program: The program.

    Returns:
        The program afterwards; None where there is no such cell.
    """
    work = _Running(set(names_used(program)))
    body = work.block(program.body)
    if not work.found:
        return None
    return Running(program, replace(program, body=body), tuple(dict.fromkeys(work.found)))


def _settings(program: Program, arrays: Collection[str]) -> list[Assign]:
    return [node for node in nodes(program.body) if sets_only(node, arrays)]


class _Moves(Exception):
    """A value may be another one later in the loop."""


@dataclass(slots=True)
class _Running:
    taken: set[str]
    found: list[str] = field(default_factory=list)

    def block(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        made: list[Node] = []
        for number, node in enumerate(body):
            match node:
                case If():
                    then, other = self.block(node.body), self.block(node.orelse)
                    made.append(replace(node, body=then, orelse=other))
                case Loop():
                    inner = replace(node, body=self.block(node.body))
                    made.append(self._loop(inner, body[:number]))
                case _:
                    made.append(node)
        return tuple(made)

    def _loop(self, loop: Loop, before: tuple[Node, ...]) -> Loop:
        if abs(loop.range.step) != 1 or loop.execution != "sequential":
            return loop
        for number, node in enumerate(loop.body):
            if not isinstance(node, Assign) or len(node.targets) != 1 or len(node.values) != 1:
                continue
            cell = node.targets[0]
            added = accumulation(cell, node.values[0])
            start = _set_before(cell, before)
            if added is None or added[0] != "sum" or added[2] != ALWAYS or start is None:
                continue
            if mentions(cell, loop.variable) or not _is_apart(cell, loop.body, number):
                continue
            term = _of_what_stays(added[1], loop, number)
            if term is None:
                continue
            loop = self._read_as_sum(loop, number, cell, start, term)
        return loop

    def _read_as_sum(
        self, loop: Loop, number: int, cell: Access, start: Const, term: Value
    ) -> Loop:
        name = next(n for n in _names(loop.variable) if n not in self.taken)
        self.taken.add(name)
        moved = value_moved(term, {loop.variable: Var(name)})

        def gathered(begin: Index, stop: Index) -> Value:
            over = Generator(name, Range(begin, stop), ALWAYS)
            value = Reduce("sum", (over,), moved)
            return value if is_number(start, 0.0) else add(start, value)

        first, here = loop.range.start, Var(loop.variable)
        after = total(here, Int(1))
        sums = gathered(first, here), gathered(first, after)
        if loop.range.step < 0:
            stop = total(first, Int(1))
            sums = gathered(after, stop), gathered(here, stop)
        body = tuple(
            node if place == number else _reading(node, cell, sums[place > number])
            for place, node in enumerate(loop.body)
        )
        if body != loop.body:
            self.found.append(cell.array)
        return replace(loop, body=body)


def _names(variable: str) -> Iterator[str]:
    return (f"{variable}_{number}" for number in count(2))


def _set_before(cell: Access, before: tuple[Node, ...]) -> Const | None:
    """Return the number that a cell is set to by what stands in front of a loop."""
    for node in reversed(before):
        writes = {r.access.array for n in nodes((node,)) for r in _accesses(n) if r.is_write}
        if cell.array in writes:
            match node:
                case Assign(targets=(target,), values=(Const() as number,)) if target == cell:
                    return number
            return None
    return None


def _accesses(node: Node) -> tuple[AccessRelation, ...]:
    return accesses(node) if isinstance(node, Assign | If) else ()


def _is_apart(cell: Access, body: tuple[Node, ...], number: int) -> bool:
    """Tell whether a block touches an array in one cell alone, and sets it in one statement."""
    for place, node in enumerate(body):
        for inner in nodes((node,)):
            if isinstance(inner, Loop):
                continue
            if not isinstance(inner, Assign | If):
                return False
            for relation in accesses(inner):
                if relation.access.array != cell.array:
                    continue
                if relation.access != cell or (relation.is_write and place != number):
                    return False
    return True


def _of_what_stays(term: Value, loop: Loop, number: int) -> Value | None:
    """Return what is added, over what the loop leaves as it is; None where it is not that."""
    written = {r.access.array for node in nodes(loop.body) for r in _accesses(node) if r.is_write}

    def made(value: Value, place: int) -> Value:
        def change(part: Value) -> Value | None:
            match part:
                case Reduce():
                    raise _Moves
                case Read(access) if access.array in written:
                    earlier = _setting(access, loop.body[:place])
                    if earlier is None:
                        raise _Moves
                    where, set_to = earlier
                    return made(set_to, where)
                case Read(access) if any(lets(index) for index in access.indices):
                    raise _Moves
                case IndexValue(index) if lets(index):
                    raise _Moves
                case _:
                    return None

        return replaced(value, change)

    try:
        return made(term, number)
    except _Moves:
        return None


def _setting(access: Access, body: tuple[Node, ...]) -> tuple[int, Value] | None:
    """Return the statement of a block that sets a cell last, and to what, where that is plain."""
    for place in reversed(range(len(body))):
        node = body[place]
        writes = {r.access.array for n in nodes((node,)) for r in _accesses(n) if r.is_write}
        if access.array in writes:
            match node:
                case Assign(targets=(target,), values=(value,)) if (
                    target == access and access.array not in arrays_read(value)
                ):
                    return place, value
            return None
    return None


def _reading(node: Node, cell: Access, value: Value) -> Node:
    """Read a value for a cell."""

    def change(part: Value) -> Value | None:
        return value if part == Read(cell) else None

    def changed(inner: Node) -> tuple[Node, ...]:
        match inner:
            case Assign():
                return (values_replaced(inner, change),)
            case If():
                condition = replaced_in_condition(inner.condition, change)
                return (replace(inner, condition=condition),)
            case _:
                return (inner,)

    (found,) = rewritten((node,), changed)
    return found
