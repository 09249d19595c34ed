"""Loops of which the second goes on where the first one ends, made one, for the sake of one pass.

    for j in range(0, C):                        for j in range(0, N):
        m = max(m, x[j])                ->           m = max(m, x[j] if j < C else x[j] - 1)
    for j in range(C, N):
        m = max(m, x[j] - 1)

So near keys and far ones are written, or a prefix and the rest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from looptrans.derivation.as_a_row.in_turn import Differ, Joined
from looptrans.derivation.one_loop.writing import done
from looptrans.derivation.step import DerivationStep, NotDone
from looptrans.ir.affine import difference, extremum, is_same, sides
from looptrans.ir.condition import MIRRORED, Relation, conjuncts
from looptrans.ir.index import Index, Var
from looptrans.ir.listing import contract_text
from looptrans.ir.program import Contract, If, Loop, Node, Program
from looptrans.ir.ranges import ranges_in_common
from looptrans.ir.value import Binary, Const, Range, Select, Value
from looptrans.ir.verdict import Certificate
from looptrans.ir.walk import loops
from looptrans.transforms.editing.extents import is_never_negative
from looptrans.transforms.editing.naming import binders
from looptrans.transforms.editing.substitute import substitute_variable

_NEUTRAL: Final = {"+": 0, "-": 0, "*": 1, "/": 1}
"""What changes nothing, on the right of an operator."""
Place: TypeAlias = tuple[Index, Index, Index]
"""Where the first loop begins, where it ends, and where the second one ends."""


def continued(program: Program) -> DerivationStep:
    """Make one loop of each two of which the second goes on where the first one ends.

    Args:
        program: The program.

    Raises:
        NotDone: There are no two such pairs over as many iterations.
    """
    work = _made(program)
    if work is None:
        raise NotDone("no two pairs of loops go on where the first one ends")
    law = "the iterations are the same, in the same order"
    reason = "the second loop begins where the first one ends"
    shown = Certificate("order", law, "legal", reason, tuple(work.leaning))
    after = done(replace(program, body=work.body))
    name = f"make {sum(work.found.values())} pairs of loops one loop each, over both parts"
    return DerivationStep(name, "continued", (), program, after, (shown,))


def loops_continued(program: Program) -> frozenset[str]:
    """Return the variables of the loops that `continued` makes."""
    work = _made(program)
    return frozenset() if work is None else frozenset(work.variables)


def _made(program: Program) -> _Work | None:
    """Return loops made one where several pairs have the same two ranges."""
    found = _Work(program)
    found.block(program.body)
    several = frozenset(place for place, count in found.found.items() if count > 1)
    if not several:
        return None
    work = _Work(program, several)
    work.body = work.block(program.body)
    return work if work.found else None


@dataclass(slots=True)
class _Work:
    """Makes loops that follow each other one.

    Attributes:
        program: The program before.
        only: Which pairs are made one; None for all.
        found: How many pairs were, for each place.
        variables: The variables of the loops that came of it.
        leaning: The contracts that say that neither loop ends before it begins, as written.
        body: The body afterwards.
    """

    program: Program
    only: frozenset[Place] | None = None
    found: Counter[Place] = field(default_factory=Counter)
    variables: dict[str, None] = field(default_factory=dict)
    leaning: dict[str, None] = field(default_factory=dict)
    body: tuple[Node, ...] = ()

    def block(self, body: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return a block with such loops made one."""
        found: list[Node] = []
        for node in body:
            before = found[-1] if found else None
            one = self.one(before, node)
            if one is not None:
                found[-1] = one
            else:
                found.append(node)
        return tuple(self.inside(node) for node in found)

    def inside(self, node: Node) -> Node:
        match node:
            case Loop():
                return replace(node, body=self.block(node.body))
            case If():
                return replace(node, body=self.block(node.body), orelse=self.block(node.orelse))
            case _:
                return node

    def one(self, first: Node | None, second: Node) -> Loop | None:
        """Return the loop over both parts; None where there is none."""
        if not (isinstance(first, Loop) and isinstance(second, Loop)):
            return None
        plain = all(loop.is_plain and loop.range.step == 1 for loop in (first, second))
        start, middle, stop = first.range.start, first.range.stop, second.range.stop
        place = (start, middle, stop)
        if not plain or not is_same(middle, second.range.start):
            return None
        if self.only is not None and place not in self.only:
            return None
        if first.variable in binders(second) - {second.variable}:
            return None
        here = Var(first.variable)
        others = tuple(substitute_variable(n, {second.variable: here}) for n in second.body)
        asked = Relation("<", here, middle)
        try:
            body = _Sharing(self.program, first, second, asked).block(first.body, others)
        except Differ:
            return None
        begin = start if self.is_at_most(start, middle) else extremum("min", (start, middle))
        end = stop if self.is_at_most(middle, stop) else extremum("max", (middle, stop))
        self.found[place] += 1
        self.variables[first.variable] = None
        leading = first.leading + second.leading
        return replace(first, range=Range(begin, end), body=body, leading=leading)

    def is_at_most(self, least: Index, most: Index) -> bool:
        """Tell whether a number is never larger than another one."""
        ranges = ranges_in_common(loops(self.program))
        if all(
            any(
                is_never_negative(self.program, difference(high, low), ranges)
                for high in sides("max", most)
            )
            for low in sides("max", least)
        ):
            return True
        stated = (c for c in self.program.contracts if not c.generators)
        said = next((c for c in stated if _says(c, least, most)), None)
        if said is not None:
            self.leaning[contract_text(said)] = None
        return said is not None


class _Sharing(Joined):
    """Joins two blocks; a value that one of them changes by a sum or a factor stands there once.

    x[j] if j < C else x[j] - 1    ->    x[j] - (0 if j < C else 1)
    """

    def value(self, one: Value, other: Value) -> Value:
        """Return a value that is either, by which loop it is."""
        found = self.changed(one, other, first=False)
        if found is None:
            found = self.changed(other, one, first=True)
        return super().value(one, other) if found is None else found

    def changed(self, plain: Value, more: Value, *, first: bool) -> Value | None:
        """Return a value with what another one does to it; None where that is no sum or factor.

        Args:
            plain: The value.
            more: The other one.
            first: Whether that is the value of the first loop.
        """
        if plain == more:
            return more
        if not isinstance(more, Binary) or more.op not in _NEUTRAL:
            return None
        neutral = Const(_NEUTRAL[more.op])
        left = self.changed(plain, more.left, first=first)
        if left is not None:
            chosen = (more.right, neutral) if first else (neutral, more.right)
            return Binary(more.op, left, Select(self.asked, *chosen))
        right = self.changed(plain, more.right, first=first) if more.op in "+*" else None
        if right is not None:
            chosen = (more.left, neutral) if first else (neutral, more.left)
            return Binary(more.op, Select(self.asked, *chosen), right)
        return None


def _says(contract: Contract, least: Index, most: Index) -> bool:
    """Tell whether a contract says that a number is at most another one."""
    for part in conjuncts(contract.condition):
        if isinstance(part, Relation):
            op, left, right = part.op, part.left, part.right
            if op in (">", ">="):
                op, left, right = MIRRORED[op], right, left
            if op in ("<", "<=") and is_same(left, least) and is_same(right, most):
                return True
    return False
