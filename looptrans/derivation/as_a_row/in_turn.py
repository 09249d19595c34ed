"""Loops that go over two things in turn, made one loop over both, for the sake of one pass.

    for j in range(0, P):                        for n in range(0, P + N):
        m = max(m, x[j])                ->           m = max(m, x[n] if n < P else y[n - P])
    for j in range(0, N):
        m = max(m, y[j])

Keys of a cache and new keys are one row of keys then, and passes over both one pass. Behind that it
is two loops again, each with its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import difference, extremum, is_same, sides, total
from looptrans.ir.condition import (
    ALWAYS,
    Condition,
    Relation,
    Some,
    negation,
    opposite,
    walk_condition,
)
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.index import Index, Int, Opaque, Param, Var, opaque_terms, variables
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.rewrite import replaced, rewritten, with_accesses
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    IndexValue,
    Range,
    Read,
    Reduce,
    Select,
    Unary,
    Value,
    walk_value,
)
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import accesses, nodes
from looptrans.transforms.editing.naming import fresh_label, fresh_name
from looptrans.transforms.editing.own_scalars import own_scalars
from looptrans.transforms.editing.substitute import substitute_variable
from looptrans.transforms.editing.tree import find_loop, loop_paths, replace_at, statements_in
from looptrans.transforms.over_blocks.whole_loops import is_size


class Differ(Exception):
    """Two loops do not do the same with what they read."""


def concatenated(program: Program) -> DerivationStep:
    """Make one loop of each two that follow each other and do the same with other arrays.

    Args:
        program: The program.

    Raises:
        NotDone: There are no two such pairs over as many iterations.
    """
    work = _Work(program, row_of(program), Counter())
    body = work.block(program.body)
    if not any(count > 1 for count in work.made.values()):
        raise NotDone("no two pairs of loops go over the same two things in turn")
    law = "the iterations are the same, in the same order"
    shown = Certificate("order", law, "legal", "those of the second loop follow those of the first")
    after = done(replace(program, body=body))
    name = f"make {sum(work.made.values())} pairs of loops that follow each other one loop each"
    return DerivationStep(name, "concatenated", (), program, after, (shown,))


def row_of(program: Program) -> str:
    """Return what the variable of a loop over both is called."""
    return fresh_name(program, "n")


def in_turn(program: Program, loop: str) -> DerivationStep:
    """Make two loops of one whose iterations ask whether they are below some size.

        for n in range(0, P + N):                                for n in range(0, P):
            m = max(m, x[n] if n < P else y[n - P])      ->          m = max(m, x[n])
                                                                 for n in range(0, N):
                                                                     m = max(m, y[n])

    Args:
        program: The program.
        loop: The loop.

    Raises:
        NotDone: It is not known to go on to that size at least.
    """
    try:
        path = find_loop(program, loop)
    except Mistake as error:
        raise NotDone(str(error)) from None
    node, variable = path.loop, path.variable
    asked = dict.fromkeys(_asked(node))
    if len(asked) != 1 or node.range.start != Int(0) or node.range.step != 1:
        raise NotDone(f"{loop} does not ask for one size from 0 on")
    (size,) = asked
    rest = difference(node.range.stop, size)
    if not (is_natural(program, size) and is_natural(program, rest)):
        raise NotDone(f"{loop} may end before that size")
    condition = Relation("<", Var(variable), size)
    first = _chosen(node.body, condition, holds=True)
    second = tuple(
        substitute_variable(each, {variable: total(Var(variable), size)})
        for each in _labelled_anew(program, _chosen(node.body, condition, holds=False))
    )
    pair = (
        replace(node, range=Range(Int(0), size), body=first),
        replace(node, range=Range(Int(0), rest), body=second),
    )
    law = "the iterations are the same, in the same order"
    shown = Certificate("order", law, "legal", "first those below the size, then the others")
    after = done(replace_at(program, path.position, pair))
    name = f"see {variable} as two loops in turn, each over its own"
    return DerivationStep(name, "in turn", (loop,), program, after, (shown,))


def loops_over_both(program: Program, variable: str) -> Iterator[str]:
    """Yield the names of the loops over both things that have a variable.

    Args:
        program: The program.
        variable: What `row_of` called it.
    """
    for path in loop_paths(program):
        if path.variable == variable:
            yield f"{variable}@{statements_in((path.loop,))[0]}"


@dataclass(slots=True)
class _Work:
    """Makes loops that follow each other one.

    Attributes:
        program: The program before.
        variable: What the variable of the one loop is called.
        made: How many there are for each two ranges.
    """

    program: Program
    variable: str
    made: Counter[tuple[Range, Range]]

    def block(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return a block whose loops are over both things."""
        found: list[Node] = []
        for node in body:
            before = found[-1] if found else None
            if isinstance(before, Loop) and isinstance(node, Loop):
                one = self.one(before, node)
                if one is not None:
                    found[-1] = one
                    continue
            found.append(node)
        return tuple(self.inside(node) for node in found)

    def inside(self, node: Node) -> Node:
        match node:
            case Loop() if node.variable != self.variable:
                return replace(node, body=self.block(node.body))
            case If():
                return replace(node, body=self.block(node.body), orelse=self.block(node.orelse))
            case _:
                return node

    def one(self, first: Loop, second: Loop) -> Loop | None:
        """Return the loop over both; None where they do not do the same."""
        plain = all(
            loop.execution == "sequential"
            and not loop.private
            and loop.range.start == Int(0)
            and loop.range.step == 1
            for loop in (first, second)
        )
        size = first.range.stop
        if not plain or first.variable == self.variable:
            return None
        if isinstance(size, Opaque | Param) and not is_size(self.program, size):
            # A length that is given or looked up: what is not positive is none.
            size = extremum("max", (Int(0), size))
        elif variables(size) or opaque_terms(size) or not is_size(self.program, size):
            return None
        rest = second.range.stop
        if not is_natural(self.program, rest):
            rest = extremum("max", (Int(0), rest))
        here = Var(self.variable)
        moved = [substitute_variable(n, {first.variable: here}) for n in first.body]
        there = {second.variable: difference(here, size)}
        others = [substitute_variable(n, there) for n in second.body]
        try:
            body = Joined(self.program, first, second, Relation("<", here, size)).block(
                tuple(moved), tuple(others)
            )
        except Differ:
            return None
        self.made[first.range, second.range] += 1
        bounds = Range(Int(0), total(size, rest))
        leading = first.leading + second.leading
        return replace(first, variable=self.variable, range=bounds, body=body, leading=leading)


class Joined:
    """Joins two blocks that do the same with what they read.

    Scalars that only the second loop uses have the names of those of the first one afterwards.
    """

    def __init__(self, program: Program, first: Loop, second: Loop, asked: Condition) -> None:
        self.asked = asked
        self.own = [own_scalars(program, loop) for loop in (first, second)]
        self.names: dict[str, str] = {}

    def block(self, one: tuple[Node, ...], other: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return the block.

        Raises:
            Differ: They do not do the same.
        """
        guarded = self.guarded(one, other)
        if guarded is not None:
            return (guarded,)
        found: list[Node] = []
        first, second = list(one), list(other)
        while first or second:
            if len(first) > len(second) and self.is_update(first[0], 0):
                found.append(self.only(first.pop(0), negation(self.asked)))
            elif len(second) > len(first) and self.is_update(second[0], 1):
                (renamed,) = with_accesses((second.pop(0),), self.renamed)
                found.append(self.only(renamed, self.asked))
            elif not first or not second:
                raise Differ
            else:
                found.append(self.node(first.pop(0), second.pop(0)))
        return tuple(found)

    def is_update(self, node: Node, which: int) -> bool:
        """Tell whether a statement changes a scalar of its own loop, as one that masks it does."""
        match node:
            case Assign(targets=(Access(name, ()),), values=(value,)):
                return name in self.own[which] and Read(Access(name, ())) in walk_value(value)
            case _:
                return False

    def only(self, node: Node, besides: Condition) -> Node:
        """Return a statement that does nothing where a condition holds."""
        assert isinstance(node, Assign)
        match node.values:
            case (Select(asked, value, otherwise),) if value == Read(node.targets[0]):
                made: Value = Select(Some((besides, asked)), value, otherwise)
            case (value,):
                made = Select(besides, Read(node.targets[0]), value)
        return replace(node, values=(made,), augmented=False)

    def guarded(self, one: tuple[Node, ...], other: tuple[Node, ...]) -> Node | None:
        """Return the block of both where only one of them stands under a guard."""
        match one, other:
            case (If(condition=asked, orelse=()) as guard,), _ if not _is_guard(other):
                besides = negation(self.asked)
                body = self.block(guard.body, other)
            case _, (If(orelse=()) as guard,) if not _is_guard(one):
                (renamed,) = with_accesses((guard,), self.renamed)
                assert isinstance(renamed, If)
                asked, besides = renamed.condition, self.asked
                body = self.block(one, guard.body)
            case _:
                return None
        return replace(guard, condition=Some((besides, asked)), body=body)

    def node(self, one: Node, other: Node) -> Node:
        """Return a node that does what either does."""
        (renamed,) = with_accesses((other,), self.renamed)
        if isinstance(other, Assign | If) and any(
            each.access.array in self.names.values() and each.access.array not in self.names
            for each in accesses(other)
        ):
            raise Differ  # It has a scalar of that name besides.
        match one, renamed:
            case Assign(targets=(a,), values=(x,)), Assign(targets=(b,), values=(y,)):
                if a != b:
                    if a.subscripts or b.subscripts or not self.are_own(a.array, b.array):
                        raise Differ
                    self.names[b.array] = a.array
                return replace(one, values=(self.value(x, y),), augmented=False)
            case If(), If() if one.condition == renamed.condition and not one.orelse:
                assert isinstance(other, If)
                if renamed.orelse:
                    raise Differ
                return replace(one, body=self.block(one.body, other.body))
            case Loop(), Loop() if (one.variable, one.range) == (renamed.variable, renamed.range):
                assert isinstance(other, Loop)
                return replace(one, body=self.block(one.body, other.body))
            case _:
                raise Differ

    def are_own(self, one: str, other: str) -> bool:
        """Tell whether a scalar of the second loop may be called what one of the first is.

        No other one is called so: two that differ would be one.
        """
        known = {*self.names, *self.names.values()}
        return one in self.own[0] and other in self.own[1] and known.isdisjoint((one, other))

    def renamed(self, access: Access) -> Access:
        """Return an access of the second loop with the name that a scalar has in the first one."""
        return replace(access, array=self.names.get(access.array, access.array))

    def value(self, one: Value, other: Value) -> Value:
        """Return a value that is either, by which loop it is."""
        if one == other:
            return one
        match one, other:
            case Unary(op, a), Unary(also, b) if op == also:
                return Unary(op, self.value(a, b))
            case Binary(op, a, x), Binary(also, b, y) if op == also:
                return Binary(op, self.value(a, b), self.value(x, y))
            case Call(name, a), Call(also, b) if name == also and len(a) == len(b):
                return Call(name, tuple(map(self.value, a, b)))
            case Select(asked, a, x), Select(also, b, y) if asked == also:
                return Select(asked, self.value(a, b), self.value(x, y))
            case Reduce(function, over, a), Reduce(also, others, b):
                if function != also or over != others:
                    raise Differ
                return Reduce(function, over, self.value(a, b))
            case IndexValue(here), IndexValue(there):
                # Positions go on: t - (n - P) where t + P - n is asked for before.
                if not is_same(here, there):
                    raise Differ
                return one
            case x, Select(also, b, y) if not isinstance(x, Select):
                # What only the second loop masks.
                return Select(Some((self.asked, also)), self.value(x, b), y)
            case Select(asked, a, x), y if not isinstance(y, Select):
                return Select(Some((negation(self.asked), asked)), self.value(a, y), x)
            case _:
                return Select(self.asked, one, other)


def _is_guard(body: tuple[Node, ...]) -> bool:
    return len(body) == 1 and isinstance(body[0], If)


def is_natural(program: Program, size: Index) -> bool:
    """Tell whether a number is surely not negative."""
    return any(is_size(program, each) or each == Int(0) for each in sides("max", size))


def _asked(loop: Loop) -> Iterator[Index]:
    """Yield the sizes that choices in a loop ask its variable to be below."""
    for node in nodes(loop.body):
        conditions = [node.condition] if isinstance(node, If) else []
        for value in node.values if isinstance(node, Assign) else ():
            conditions += [p.condition for p in walk_value(value) if isinstance(p, Select)]
        for asked in (each for condition in conditions for each in walk_condition(condition)):
            match asked:
                case Relation("<", Var(name), size) if name == loop.variable:
                    yield size
                case _:
                    pass


def _left(condition: Condition, asked: Condition, *, holds: bool) -> Condition | None:
    """Return what is left of a condition where another holds, or does not; None for nothing."""
    match condition:
        case Some(parts):
            left = [_left(part, asked, holds=holds) for part in parts]
            kept = tuple(part for part in left if part is not None)
            if not kept or ALWAYS in kept:
                return ALWAYS if kept else None
            return kept[0] if len(kept) == 1 else Some(kept)
        case _ if condition in (asked, negation(asked), opposite(asked)):
            return ALWAYS if (condition == asked) == holds else None
        case _:
            return condition


def _labelled_anew(program: Program, body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return a block with labels that no statement of a program has."""
    first = int(fresh_label(program)[1:])
    labels = {label: f"S{number}" for number, label in enumerate(statements_in(body), first)}

    def changed(node: Node) -> tuple[Node, ...]:
        if not isinstance(node, Assign):
            return (node,)
        return (replace(node, label=labels[node.label], comment="", labelled=False),)

    return rewritten(body, changed)


def _chosen(body: tuple[Node, ...], asked: Condition, *, holds: bool) -> tuple[Node, ...]:
    """Return a block with what a condition chooses where it holds, or does not."""

    def chosen(value: Value) -> Value | None:
        match value:
            case Select(condition, one, other):
                left = _left(condition, asked, holds=holds)
                if left is None or left == ALWAYS:
                    return replaced(other if left is None else one, chosen)
                return Select(left, replaced(one, chosen), replaced(other, chosen))
            case _:
                return None

    def changed(node: Node) -> tuple[Node, ...]:
        match node:
            case Assign():
                values = tuple(replaced(value, chosen) for value in node.values)
                # What does nothing there is left out.
                done_already = values == tuple(map(Read, node.targets)) != node.values
                return () if done_already else (replace(node, values=values),)
            case If():
                left = _left(node.condition, asked, holds=holds)
                if left is None or left == ALWAYS:
                    return node.orelse if left is None else node.body
                return (replace(node, condition=left),)
            case _:
                return (node,)

    return rewritten(body, changed)
