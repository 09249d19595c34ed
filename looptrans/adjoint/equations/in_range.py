"""What reads of a value stay inside their arrays, found without solving anything.

    if i + 1 < N: s[i] = sum(v[i + 1, d] for d)      ->      s[i] for i + 1 < N only

A listing reads an element under its guards. What is worked out for a whole row beforehand is worked
out only where what it reads is there: nobody looks at it elsewhere. What is read in one branch, or
behind an `or`, says nothing of the others: it is asked for there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from looptrans.adjoint.equations.facts import Facts
from looptrans.algebra.positional.values import ZERO
from looptrans.ir.affine import form_of
from looptrans.ir.condition import (
    Condition,
    Data,
    Every,
    Not,
    Relation,
    Some,
    compared,
    conjunction,
    negation,
)
from looptrans.ir.index import (
    Arith,
    Index,
    Int,
    Opaque,
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
    Binary,
    BinaryOperator,
    Call,
    Generator,
    Holds,
    Read,
    Reduce,
    Select,
    Unary,
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
        starts: Where the indices of what an access reads begin: at -2 for what each iteration of
            `for d in range(-2, 3)` has for itself.
        known: The variables that a condition may mention.
        tested: The sizes that a variable is multiplied by where the listing tests it.
    """

    extents: Extents
    starts: Callable[[Access], tuple[Index, ...]]
    known: frozenset[str]
    tested: frozenset[str] = frozenset()

    def value(
        self, value: Value, facts: Facts, *, is_sum: bool = True
    ) -> tuple[Value, tuple[Condition, ...]]:
        """Return a value, and when what it reads is there, but for what holds anyway.

        Args:
            value: What is read.
            facts: What holds where it is.
            is_sum: Whether summands come from different statements, some of which are not
                executed where others are; else the listing works out all of the value, or nothing.
        """
        needed: Needed = {}
        return self._value(value, facts, needed, factor=is_sum), tuple(needed)

    def condition(self, condition: Condition, facts: Facts) -> tuple[Condition, ...]:
        """Return a condition, behind what says that what it reads is there.

        Args:
            condition: What is asked.
            facts: What holds where it is.
        """
        needed: Needed = {}
        tested = self._condition(condition, facts, needed)
        return *needed, tested

    def _value(self, value: Value, facts: Facts, needed: Needed, *, factor: bool = False) -> Value:
        """Ask of a part of a value; of a factor: where it is 0, all that is asked for is 0."""

        def inner(part: Value) -> Value | None:
            if part is value:
                return None
            return self._value(part, facts, needed, factor=factor and part in _factors(value))

        match value:
            case Read(access):
                self._read(access, facts, needed)
                return value
            case Select(condition, chosen, otherwise):
                tested = self._condition(condition, facts, needed)
                rest = facts.and_(negation(condition))
                first = needed if factor and otherwise == ZERO else None
                second = needed if factor and chosen == ZERO else None
                chosen = self._branch(chosen, facts.and_(condition), first)
                return Select(tested, chosen, self._branch(otherwise, rest, second))
            case Call("where", (Holds(condition), chosen, otherwise)):
                select = Select(condition, chosen, otherwise)
                made = self._value(select, facts, needed, factor=factor)
                assert isinstance(made, Select)
                arguments = Holds(made.condition), made.chosen, made.otherwise
                return replace(value, arguments=arguments)
            case Binary("+" | "-" as op, left, right) if factor:
                return self._sum(op, left, right, facts, needed)
            case Holds(condition):
                return Holds(self._condition(condition, facts, needed))
            case Reduce(function, generators, body):
                inside, bound = facts, list[Generator]()
                for g in generators:
                    tested = self._condition(g.condition, inside, needed)
                    bound.append(replace(g, condition=tested))
                    inside = inside.inside((g,))
                factor = factor and function == "sum"
                body = self._value(body, inside, needed, factor=factor)
                return Reduce(function, tuple(bound), body)
            case _:
                return replaced(value, inner) if value_children(value) else value

    def _sum(
        self, op: BinaryOperator, left: Value, right: Value, facts: Facts, needed: Needed
    ) -> Value:
        """Ask of all what both summands ask for, and of each what it asks for alone."""
        asked: tuple[Needed, Needed] = ({}, {})
        parts = [
            self._value(part, facts, own, factor=True)
            for part, own in zip((left, right), asked, strict=True)
        ]
        needed |= {each: None for each in asked[0] if each in asked[1]}
        for n, own in enumerate(asked):
            alone = [each for each in own if each not in needed]
            parts[n] = Select(conjunction(*alone), parts[n], ZERO) if alone else parts[n]
        return Binary(op, *parts)

    def _read(self, access: Access, facts: Facts, needed: Needed, *, tests: bool = False) -> None:
        """Ask of a read; where it tests what it reads, also of what is found by integers."""
        for index in access.indices:
            for part in opaque_terms(index):
                self._read(Access(part.array, part.arguments), facts, needed, tests=tests)
        extents, starts = self.extents(access), self.starts(access)
        for index, extent, start in zip(access.indices, extents, starts, strict=False):
            if extent is None or not self._is_plain(index, tests=tests):
                continue
            first = Int(0) if facts.imply(Relation(">=", start, Int(0))) else start
            for condition in (Relation(">=", index, first), Relation("<", index, extent)):
                if not facts.imply(condition) and not _is_left_open(index, facts):
                    needed[condition] = None

    def _is_plain(self, index: Index, *, tests: bool) -> bool:
        """Tell whether a subscript is a sum of variables and sizes, or of products as tested."""
        return set(variables(index)) <= self.known and all(
            isinstance(term, Var | Param)
            or (tests and isinstance(term, Opaque))
            or (isinstance(term, Arith) and term.op == "*" and set(parameters(term)) <= self.tested)
            for term in form_of(index).terms
        )

    def _branch(self, value: Value, facts: Facts, needed: Needed | None) -> Value:
        """Ask in one branch; of all where the other is 0, as what is not there is."""
        own: Needed = {} if needed is None else needed
        made = self._value(value, facts, own, factor=True)
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
            case Relation(_, left, right):
                for read in (*opaque_terms(left), *opaque_terms(right)):
                    self._read(Access(read.array, read.arguments), facts, needed, tests=True)
                return condition
            case _:
                return condition


def _factors(value: Value) -> tuple[Value, ...]:
    """Return the parts of a value which is 0 where one of them is."""
    match value:
        case Binary("*", left, right):
            return left, right
        case Binary("/", part, _) | Unary("-", part):
            return (part,)
        case _:
            return ()


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
            for side in compared(condition):
                for term in walk(side):
                    if isinstance(term, Arith) and term.op == "*" and variables(term):
                        found.update(parameters(term))
    return frozenset(found)
