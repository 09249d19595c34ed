"""Arrays seen in blocks of which the last is in part: nothing is touched behind their end.

    for c in range(0, (N + 63) // 64):            for c in range(0, (N + 63) // 64):
        for i in range(0, 64):                        for i in range(0, 64):
            T[c, i] = T[c, i] + Q[c, i] * S[c]  ->        if 64 * c + i < N:
                                                              T[c, i] = T[c, i] + Q[64 * c + i] * …

A listing that stays within the end has the same results and gradients whatever stands behind it in
the blocks as they are seen: so what an array is filled with does there, 0 for one that is given,
and what would be put there is put nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from looptrans.adjoint.carried.accumulating import accumulation
from looptrans.adjoint.equations.facts import Facts
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.algebra.positional.values import summands
from looptrans.ir.affine import sides
from looptrans.ir.condition import ALWAYS, Condition, Relation, conjunction, negation
from looptrans.ir.creation import creation_of, first_value
from looptrans.ir.index import Index
from looptrans.ir.program import Assign, Atomic, BlockReduce, If, Loop, Node, Program
from looptrans.ir.rewrite import values_replaced
from looptrans.ir.value import Access, Binary, Const, Generator, Read, Select, Value
from looptrans.ir.walk import accesses, written_in


def within_ends(program: Program, arrays: Collection[str], listed: Program) -> Program:
    """Return a program that touches nothing behind the end of some arrays.

    Args:
        program: The program; it has the results it should have whatever is read there.
        arrays: The arrays. What is put there is read nowhere.
        listed: The listing, which says what arrays are filled with that are handed over.

    Raises:
        NotDifferentiated: What is read there may be what the program has put there.
    """
    made = written_in(program.body)
    fills: dict[str, Const] = {}
    for array in program.arrays:
        creation = creation_of(listed, array.name)
        fill = Const(0.0) if creation is None else first_value(creation)
        if array.role == "input" and array.name not in made and isinstance(fill, Const):
            fills[array.name] = fill
    work = _Work(program, frozenset(arrays), fills)
    return replace(program, body=work.body(program.body, Facts()))


@dataclass(frozen=True, slots=True)
class _Work:
    """Keeps a program within the ends of some arrays.

    Attributes:
        program: The program.
        arrays: The arrays.
        fills: What stands behind the end of those that it does not change.
    """

    program: Program
    arrays: frozenset[str]
    fills: Mapping[str, Const]

    def body(self, body: tuple[Node, ...], facts: Facts) -> tuple[Node, ...]:
        return tuple(self.node(node, facts) for node in body)

    def node(self, node: Node, facts: Facts) -> Node:
        match node:
            case Loop():
                own = Generator(node.variable, node.range, ALWAYS)
                return replace(node, body=self.body(node.body, facts.inside((own,))))
            case If():
                if any(True for _ in self._outside(node, facts)):
                    raise NotDifferentiated("a guard may ask for what is behind the end of a block")
                then = self.body(node.body, facts.and_(node.condition))
                other = self.body(node.orelse, facts.and_(negation(node.condition)))
                return replace(node, body=then, orelse=other)
            case Assign():
                return self._assign(node, facts)
            case Atomic() | BlockReduce():
                return replace(node, body=self.body(node.body, facts))
            case _:
                return node

    def _assign(self, node: Assign, facts: Facts) -> Node:
        written = [inside for _, inside, is_write in self._outside(node, facts) if is_write]
        guards = dict.fromkeys(written)
        facts = facts.and_(*guards)
        outside = {access: inside for access, inside, _ in self._outside(node, facts)}
        for access, inside in outside.items():
            if access.array not in self.fills:
                raise NotDifferentiated(f"{access.array} may be looked at behind its end")
            if self.fills[access.array] == Const(0.0) and _is_added_product(node, access):
                guards[inside] = None

        chosen = {access: inside for access, inside in outside.items() if inside not in guards}

        def read(value: Value) -> Value | None:
            if not isinstance(value, Read) or value.access not in chosen:
                return None
            return Select(chosen[value.access], value, self.fills[value.access.array])

        after = values_replaced(node, read)
        if not guards:
            return after
        if len(node.targets) > 1:
            raise NotDifferentiated("a statement sets cells behind the end of a block and others")
        return If(conjunction(*guards), (after,))

    def _outside(self, node: Assign | If, facts: Facts) -> Iterator[tuple[Access, Condition, bool]]:
        """Yield the accesses that may be behind an end, where they are not, and if they write."""
        for relation in accesses(node):
            access = relation.access
            if access.array not in self.arrays:
                continue
            known = facts.inside(relation.generators).and_(relation.condition)
            ends = zip(access.indices, self.program.array(access.array).shape, strict=True)
            asked = tuple(
                Relation("<", index, end)
                for index, end in ends
                if end is not None and not _is_below(known, index, end)
            )
            if asked:
                yield access, conjunction(*asked), relation.is_write


def _is_below(known: Facts, index: Index, end: Index) -> bool:
    return any(known.imply(Relation("<", side, end)) for side in sides("min", index))


def _is_added_product(node: Assign, access: Access) -> bool:
    """Tell whether what is read is a factor of the one product that a statement adds."""
    if len(node.targets) != 1:
        return False
    found = accumulation(node.targets[0], node.values[0])
    if found is None or found[0] != "sum" or len(summands(found[1])) != 1:
        return False
    waiting = [found[1]]
    while waiting:
        part = waiting.pop()
        match part:
            case Read(own) if own == access:
                return True
            case Binary("*", left, right):
                waiting += [left, right]
            case _:
                pass
    return False
