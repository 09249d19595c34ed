"""What reads of a value stay inside their arrays, found without solving anything.

    if i + 1 < N: s[i] = sum(v[i + 1, d] for d)      ->      s[i] for i + 1 < N only

A listing reads an element under its guards. What is worked out for a whole row beforehand is worked
out only where what it reads is there: nobody looks at it elsewhere. What is read in one branch, or
behind an `or`, says nothing of the others: it is asked for there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from looptrans.adjoint.facts import Facts
from looptrans.algebra.values import ZERO
from looptrans.ir.affine import form_of
from looptrans.ir.condition import (
    Condition,
    Data,
    Every,
    Not,
    Relation,
    Some,
    conjunction,
    negation,
    walk_condition,
)
from looptrans.ir.index import (
    Arith,
    Index,
    Int,
    Param,
    Var,
    opaque_terms,
    parameters,
    variables,
    walk,
)
from looptrans.ir.program import Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Call,
    Generator,
    Holds,
    Read,
    Reduce,
    Select,
    Value,
    value_children,
)
from looptrans.ir.walk import accesses, placed

Extents = Callable[[Access], tuple[Index | None, ...]]
Needed = dict[Condition, None]


@dataclass(frozen=True, slots=True)
class Inside:
    """Asks what a value reads to be inside its array.

    Attributes:
        extents: The extents of what an access reads, where it does; None where they are not known.
        known: The variables that a condition may mention.
        tested: The sizes that a variable is multiplied by where the listing tests it.
    """

    extents: Extents
    known: frozenset[str]
    tested: frozenset[str] = frozenset()

    def value(self, value: Value, facts: Facts) -> tuple[Value, tuple[Condition, ...]]:
        """Return a value, and when what it reads is there, but for what holds anyway.

        Args:
            value: What is read.
            facts: What holds where it is.
        """
        needed: Needed = {}
        return self._value(value, facts, needed), tuple(needed)

    def _value(self, value: Value, facts: Facts, needed: Needed) -> Value:
        def inner(part: Value) -> Value | None:
            return None if part is value else self._value(part, facts, needed)

        match value:
            case Read(access):
                self._read(access, facts, needed)
                return value
            case Select(condition, chosen, otherwise):
                tested = self._condition(condition, facts, needed)
                first = self._branch(chosen, facts.and_(condition), otherwise, needed)
                second = self._branch(otherwise, facts.and_(negation(condition)), chosen, needed)
                return Select(tested, first, second)
            case Call("where", (Holds(condition), chosen, otherwise)):
                made = self._value(Select(condition, chosen, otherwise), facts, needed)
                assert isinstance(made, Select)
                arguments = Holds(made.condition), made.chosen, made.otherwise
                return replace(value, arguments=arguments)
            case Holds(condition):
                return Holds(self._condition(condition, facts, needed))
            case Reduce(function, generators, body):
                inside, bound = facts, list[Generator]()
                for g in generators:
                    tested = self._condition(g.condition, inside, needed)
                    bound.append(replace(g, condition=tested))
                    inside = inside.inside((g,))
                return Reduce(function, tuple(bound), self._value(body, inside, needed))
            case _:
                return replaced(value, inner) if value_children(value) else value

    def _read(self, access: Access, facts: Facts, needed: Needed) -> None:
        for index in access.indices:
            for part in opaque_terms(index):
                self._read(Access(part.array, part.arguments), facts, needed)
        for index, extent in zip(access.indices, self.extents(access), strict=False):
            if extent is None or not self._is_plain(index):
                continue
            for condition in (Relation(">=", index, Int(0)), Relation("<", index, extent)):
                if not facts.imply(condition) and not _is_left_open(index, facts):
                    needed[condition] = None

    def _is_plain(self, index: Index) -> bool:
        """Tell whether a subscript is a sum of variables and sizes, or of products as tested."""
        return set(variables(index)) <= self.known and all(
            isinstance(term, Var | Param)
            or (isinstance(term, Arith) and term.op == "*" and set(parameters(term)) <= self.tested)
            for term in form_of(index).terms
        )

    def _branch(self, value: Value, facts: Facts, other: Value, needed: Needed) -> Value:
        """Ask in one branch; of both where the other is 0, as what is not there is."""
        own: Needed = needed if other == ZERO else {}
        made = self._value(value, facts, own)
        return Select(conjunction(*own), made, ZERO) if own and own is not needed else made

    def _condition(self, condition: Condition, facts: Facts, needed: Needed) -> Condition:
        """Ask of a test; of its parts behind the first, where they are asked at all."""
        match condition:
            case Data(value):
                return Data(self._value(value, facts, needed))
            case Not(part):
                return negation(self._condition(part, facts, needed))
            case Every(parts) | Some(parts):
                made = []
                for number, part in enumerate(parts):
                    own: Needed = needed if number == 0 else {}
                    others = (*parts[:number], *parts[number + 1 :])
                    if isinstance(condition, Some):
                        others = tuple(negation(each) for each in parts[:number])
                    tested = self._condition(part, facts.and_(*others), own)
                    made.append(tested if own is needed else conjunction(*own, tested))
                return conjunction(*made) if isinstance(condition, Every) else Some(tuple(made))
            case _:
                return condition


def _is_left_open(index: Index, facts: Facts) -> bool:
    """Tell whether a subscript is a variable whose loop ends at no plain size.

    How far it goes the listing itself says: it may lean on what arrays of integers hold, or on a
    product of sizes.
    """
    if not isinstance(index, Var):
        return False
    ends = [c.right for c in facts.conditions if isinstance(c, Relation) and c.left == index]
    return not all(len(form_of(end).terms) < 2 and not any(opaque_terms(end)) for end in ends)


def tested_products(program: Program) -> frozenset[str]:
    """Return the sizes that a variable is multiplied by in a guard or a condition of a value.

    `if i - R * t >= 0` keeps `K[i - R * t]` inside; of `X[c * P + p]` that nothing tests, the
    shapes say so.
    """
    found: set[str] = set()
    for place in placed(program):
        behind = [relation.condition for relation in accesses(place.node)]
        for condition in (*place.conditions, *behind):
            for part in walk_condition(condition):
                for side in (part.left, part.right) if isinstance(part, Relation) else ():
                    for term in walk(side):
                        if isinstance(term, Arith) and term.op == "*" and variables(term):
                            found.update(parameters(term))
    return frozenset(found)
