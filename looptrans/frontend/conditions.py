"""From syntax to conditions: what guards, ternaries and contracts test."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from looptrans.frontend.indices import Indices
from looptrans.frontend.mistakes import (
    LoopNotOverRange,
    LoopVariableAssigned,
    UnsupportedExpression,
    WrongRank,
)
from looptrans.frontend.syntax import called, short, span_of
from looptrans.ir.condition import (
    ALWAYS,
    Comparison,
    Condition,
    Data,
    Every,
    Not,
    Relation,
    Some,
    Truth,
)
from looptrans.ir.index import Int
from looptrans.ir.value import Compare, Const, Generator, Holds, IndexValue, Value, rank_of

COMPARISONS: dict[type[ast.cmpop], Comparison] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


class Conditions(Indices, ABC):
    """Reads conditions: comparisons of index expressions stay exact, the rest is `Data`."""

    __slots__ = ()

    @abstractmethod
    def value(self, node: ast.expr) -> Value:
        """Read a value."""

    def condition(self, node: ast.expr) -> Condition:
        """Read a test."""
        match node:
            case ast.Constant(value=bool(value)):
                return Truth(value)
            case ast.BoolOp(op=operator, values=values):
                parts = tuple(self.condition(v) for v in values)
                return Every(parts) if isinstance(operator, ast.And) else Some(parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Not(self.condition(operand))
            case ast.Compare(left=first, ops=operators, comparators=others):
                pairs = zip([first, *others], operators, others, strict=False)
                parts = tuple(self._comparison(node, *pair) for pair in pairs)
                return parts[0] if len(parts) == 1 else Every(parts)
            case _:
                return self._truth(node)

    def _truth(self, node: ast.expr) -> Condition:
        """Read a number or boolean that is tested by itself."""
        found = self.value(node)
        match found:
            case Holds(condition):
                return condition
            case IndexValue(index):
                return Relation("!=", index, Int(0))
            case Const(number) if type(number) is int:
                return Relation("!=", Int(number), Int(0))
            case _:
                self.require_rank(found, 0, node)
                return Data(found)

    def _comparison(
        self, whole: ast.expr, left: ast.expr, operator: ast.cmpop, right: ast.expr
    ) -> Condition:
        symbol = COMPARISONS.get(type(operator))
        if symbol is None:
            raise UnsupportedExpression(
                f"{short(whole)} uses a comparison outside the language",
                span_of(whole),
                why="numbers are compared, nothing else",
                remedy="compare with its ends, as in start <= i and i < stop"
                if isinstance(operator, ast.In | ast.NotIn) and _is_range(right)
                else "compare with ==, joined by or"
                if isinstance(operator, ast.In | ast.NotIn)
                else "leave the case out: a listing has all its arguments"
                if any(isinstance(n, ast.Constant) and n.value is None for n in (left, right))
                else "compare with <, <=, >, >=, == or !=",
            )
        left_index, right_index = self.try_index(left), self.try_index(right)
        if left_index is not None and right_index is not None:
            return Relation(symbol, left_index, right_index)
        left_value, right_value = self.value(left), self.value(right)
        self.require_rank(left_value, 0, left)
        self.require_rank(right_value, 0, right)
        return Data(Compare(symbol, left_value, right_value))

    @contextmanager
    def bound(self, comprehensions: list[ast.comprehension]) -> Iterator[tuple[Generator, ...]]:
        """Bring the variables of `for e in range(E)` clauses into scope."""
        generators: list[Generator] = []
        depth = len(self.scope.loops)
        try:
            for clause in comprehensions:
                if not isinstance(clause.target, ast.Name) or clause.is_async:
                    raise LoopNotOverRange(
                        f"{short(clause.target)} is bound to more than an index",
                        span_of(clause.target),
                        why="a reduction runs over one variable and a range",
                        remedy="sum(… for e in range(E))",
                    )
                variable = clause.target.id
                self.require_free(variable, clause.target)
                limits = self.range(clause.iter, variable)
                self.scope.loops.append(variable)
                tests = tuple(self.condition(test) for test in clause.ifs)
                condition: Condition = Every(tests) if len(tests) > 1 else ALWAYS
                if len(tests) == 1:
                    condition = tests[0]
                generators.append(Generator(variable, limits, condition))
            yield tuple(generators)
        finally:
            del self.scope.loops[depth:]

    def require_free(self, variable: str, node: ast.expr) -> None:
        """Require that a name may become a loop variable here."""
        if variable in self.scope.loops:
            raise LoopVariableAssigned(
                f"{variable!r} is already the variable of a loop around this one",
                span_of(node),
                why="the inner loop would change the outer one's variable",
                remedy="choose another name",
            )
        names = self.names
        # What is assigned as well is pointed out where it is assigned.
        if variable not in names.assigned and names.is_bound(variable, loops=False):
            raise LoopVariableAssigned(
                f"the loop variable {variable!r} is also an argument or a size",
                span_of(node),
                why="the iterations are the ones its range says",
                remedy="choose another name for one of the two",
            )

    def require_rank(self, value: Value, rank: int, node: ast.expr) -> None:
        """Require that a value is a number (0) or a row (1)."""
        found = rank_of(value)
        if found != rank:
            kinds = {0: "a number", 1: "a row"}
            raise WrongRank(
                f"{short(node)} is {kinds.get(found, 'more than a row')} where {kinds[rank]} is "
                "needed",
                span_of(node),
                why="" if found < 2 else "only numbers and rows are values",
                remedy="write a loop over the rows, and use one row, Q[i, :]"
                if rank
                else "subscript the array fully, or write a loop over the elements",
            )


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called(node.func) == "range"
