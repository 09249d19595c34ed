"""Tests of the same data, which are decided alike wherever they stand.

    for i: if x[i] > 0.0: s = y[i]        the second reads what the first has left in the same
           if x[i] > 0.0: z[i] = s        iteration and nothing else; the third never reads that
           else: w[i] = s

Of a test that reads only what the program never writes, equal indices have equal truth. So two
instances that ask for opposite truths never both run, and one that asks for no more than another
runs whenever that one does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import islpy as isl

from looptrans.analysis.dependence.truths import tested_alike
from looptrans.analysis.isl_model.formula import FALSE, conjunction, disjunction
from looptrans.analysis.isl_model.model import Model, StatementModel
from looptrans.analysis.isl_model.normal import Normalizer
from looptrans.analysis.isl_model.polyhedra import dimensions, relation_of
from looptrans.ir.condition import (
    NEGATED,
    Condition,
    Data,
    Not,
    conjuncts,
    is_data_dependent,
    negation_normal,
)
from looptrans.ir.index import Index, opaque_terms
from looptrans.ir.value import Compare
from looptrans.ir.walk import written


@dataclass(frozen=True, slots=True)
class Test:
    """A test that must come out one way for a statement to run.

    Attributes:
        tested: The condition, with numbers where index expressions stood.
        arguments: The index expressions, in order.
        holds: Which way.
    """

    tested: Condition
    arguments: tuple[Index, ...]
    holds: bool

    def denies(self, other: Test) -> bool:
        """Tell whether the two are never both as wanted, where their arguments are equal."""
        if self.tested == other.tested:
            return self.holds != other.holds
        match self.tested, other.tested:
            case Data(Compare(op, left, right)), Data(Compare(against, first, second)):
                # Of a number that is nan neither is true: they may still both be false.
                return (
                    self.holds
                    and other.holds
                    and (left, right) == (first, second)
                    and NEGATED[op] == against
                )
            case _:
                return False

    def is_asked_by(self, other: Test) -> bool:
        """Tell whether it is as wanted where the other is, and their arguments are equal."""
        return (self.tested, self.holds) == (other.tested, other.holds)


@dataclass(slots=True)
class Decided:
    """What tests of unchanged data say about pairs of instances.

    Attributes:
        model: The program.
        tests: By statement number, the tests around it, and whether no other data decide.
    """

    model: Model
    tests: dict[int, tuple[tuple[Test, ...], bool]] = field(default_factory=dict)

    def never_both(self, first: StatementModel, second: StatementModel) -> str:
        """Say, of instances `s` of the first and `t` of the second, which never both run."""
        return disjunction(
            self._equal(first, one, second, other)
            for one in self._of(first)[0]
            for other in self._of(second)[0]
            if one.denies(other)
        )

    def runs_as_well(self, one: StatementModel, other: StatementModel) -> isl.Map | None:
        """Map the instances of one statement to those of another that run whenever they do.

        Which are in the domain of the other is not said. None if there are none.
        """
        formula = disjunction([self._asked(one, other), _in_one_block(one, other)])
        return None if formula == FALSE else self._pairs(one, other, formula)

    def _asked(self, one: StatementModel, other: StatementModel) -> str:
        """Say of which pairs the one asks all that the other asks."""
        tests, alone = self._of(other)
        if not (tests and alone):
            return FALSE
        mine = self._of(one)[0]
        return conjunction(
            disjunction(
                self._equal(one, asking, other, asked)
                for asking in mine
                if asked.is_asked_by(asking)
            )
            for asked in tests
        )

    def without_impossible(
        self, pairs: isl.Map, first: StatementModel, second: StatementModel
    ) -> isl.Map:
        """Take out the pairs of instances that never both run."""
        formula = self.never_both(first, second)
        return pairs if formula == FALSE else pairs.subtract(self._pairs(first, second, formula))

    def _pairs(self, first: StatementModel, second: StatementModel, formula: str) -> isl.Map:
        left, right = (
            ", ".join(dimensions(statement, letter).values())
            for statement, letter in ((first, "s"), (second, "t"))
        )
        bare = relation_of(f"{self.model.prefix}{{ [{left}] -> [{right}] : {formula} }}")
        named = bare.set_tuple_name(isl.dim_type.in_, f"s{first.number}")
        return named.set_tuple_name(isl.dim_type.out, f"s{second.number}")

    def _equal(self, first: StatementModel, one: Test, second: StatementModel, other: Test) -> str:
        mine = self.model.notation(dimensions(first, "s"))
        theirs = self.model.notation(dimensions(second, "t"))
        return conjunction(
            f"{mine.index(left)} = {theirs.index(right)}"
            for left, right in zip(one.arguments, other.arguments, strict=True)
        )

    def _of(self, statement: StatementModel) -> tuple[tuple[Test, ...], bool]:
        if statement.number not in self.tests:
            self.tests[statement.number] = (
                self._found(statement) if statement.is_may else ((), True)
            )
        return self.tests[statement.number]

    def _found(self, statement: StatementModel) -> tuple[tuple[Test, ...], bool]:
        tests, alone = [], True
        for condition in statement.place.conditions:
            for part in conjuncts(negation_normal(condition)):
                test = self._test(part)
                if test is not None:
                    tests.append(test)
                elif is_data_dependent(part):
                    alone = False
        return tuple(dict.fromkeys(tests)), alone

    def _test(self, condition: Condition) -> Test | None:
        asked = condition.part if isinstance(condition, Not) else condition
        if not is_data_dependent(asked):
            return None
        found = tested_alike(asked, written(self.model.program))
        if found is None:
            return None
        tested, indices = found
        normal = Normalizer(dict(self.model.normalizer.sizes))
        arguments = tuple(map(normal.index, indices))
        if normal.made or any(map(opaque_terms, arguments)):
            return None
        return Test(tested, arguments, not isinstance(condition, Not))


def _in_one_block(one: StatementModel, other: StatementModel) -> str:
    """Say of which pairs the other runs in the execution of its block in which the one runs."""
    block = other.place.position[:-1]
    if one.place.position[: len(block)] != block or not other.depth <= one.shared_depth(other):
        return FALSE
    names = dimensions(one, "s").values(), dimensions(other, "t").values()
    return conjunction(f"{left} = {right}" for left, right in zip(*names, strict=False))
