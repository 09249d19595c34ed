"""Reductions, recognized by what a cycle of statements computes, not by how it is written.

In one iteration the statements of the cycle turn the old value of a cell into a new one. If that
is `old op x` with an associative and commutative `op` and an `x` that does not depend on the old
value, and nobody else in the loop looks at the values in between, the loop is a reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import islpy as isl
import networkx as nx

from looptrans.analysis.dependence.dependences import Analysis, Carried
from looptrans.analysis.isl_model.model import StatementModel
from looptrans.analysis.isl_model.polyhedra import access_map
from looptrans.analysis.isl_model.relation import Uncovered
from looptrans.frontend.elements import element_of
from looptrans.ir.condition import Data, Every, Some
from looptrans.ir.program import Assign
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Access,
    Binary,
    Call,
    Compare,
    Holds,
    Read,
    Select,
    Unary,
    Value,
    data_of,
    truth_of,
    walk_value,
)
from looptrans.ir.walk import accesses, live_out

Position: TypeAlias = tuple[int, ...]
Parts: TypeAlias = Callable[[Value], list[Value] | None]
_Updates: TypeAlias = list[tuple[StatementModel, Assign]]
DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Reduction:
    """A cycle that a loop carries and that only folds values into cells.

    Attributes:
        array: What is reduced into.
        operator: `+`, `*`, `max`, `min`, `and` or `or`.
        statements: The numbers of the statements of the cycle.
    """

    array: str
    operator: str
    statements: frozenset[int]

    def explains(self, carried: Carried) -> bool:
        """Tell whether a dependence is one between updates of the reduction."""
        relation = carried.relation
        return (
            relation.array == self.array
            and relation.source in self.statements
            and relation.sink in self.statements
        )


def inside(statement: StatementModel, loop: Position) -> bool:
    """Tell whether a statement stands in the loop at a position."""
    return loop in statement.place.loop_positions


def reductions_of(analysis: Analysis, loop: Position) -> list[Reduction]:
    """Find the reductions that a loop carries."""
    edges = [
        each
        for each in analysis.carried("value")
        if inside(analysis.statement(each.relation.source), loop)
        and inside(analysis.statement(each.relation.sink), loop)
    ]
    level = loop_level(analysis, loop)
    # What another phase of the loop reads, after a barrier, is the result and nothing in between.
    edges = [e for e in edges if len(e.loops) > level]
    within = [e for e in edges if e.level is None or e.level >= level]
    graph = nx.DiGraph((e.relation.source, e.relation.sink) for e in within)
    found = []
    for members in nx.strongly_connected_components(graph):
        inner = [e for e in within if e.relation.source in members and e.relation.sink in members]
        carried = [e for e in inner if analysis.carrier(e) == loop]
        leaving = [
            e for e in edges if e.relation.source in members and e.relation.sink not in members
        ]
        arrays = {e.relation.array for e in carried}
        if not carried or leaving or len(arrays) != 1:
            continue
        reduction = _Cycle(analysis, frozenset(members), inner, arrays.pop()).reduction(loop)
        if reduction is not None:
            found.append(reduction)
    return found


def loop_level(analysis: Analysis, loop: Position) -> int:
    """Return how many loops are around a loop."""
    for statement in analysis.model.statements:
        if inside(statement, loop):
            return statement.place.loop_positions.index(loop)
    return 0


@dataclass(frozen=True, slots=True)
class _Cycle:
    analysis: Analysis
    members: frozenset[int]
    edges: list[Carried]
    array: str

    def reduction(self, loop: Position) -> Reduction | None:
        updates: _Updates = []
        others: _Updates = []
        for statement in self.analysis.model.statements:
            node = statement.place.node
            if not inside(statement, loop) or not isinstance(node, Assign):
                if statement.number in self.members:
                    return None
                continue
            writes = any(target.array == self.array for target in node.targets)
            if writes and statement.number in self.members:
                updates.append((statement, node))
            elif writes and self._same_phase(statement, loop):
                others.append((statement, node))
        if any(self._overwrites(*other, updates, loop) for other in others):
            return None
        if self._shows_values_in_between(loop):
            return None
        operators = {self._operator(statement, node, updates, loop) for statement, node in updates}
        if len(operators) != 1:
            return None
        operator = operators.pop()
        return None if operator is None else Reduction(self.array, operator, self.members)

    def _shows_values_in_between(self, loop: Position) -> bool:
        """Tell whether anybody sees what the cycle keeps beside the cell: `y[j] = s + x; s = y[j]`.

        Inside the loop no one does, or the cycle would not have been looked at.
        """
        beside = {
            target.array
            for number in self.members
            if isinstance(node := self.analysis.statement(number).place.node, Assign)
            for target in node.targets
        } - {self.array}
        return bool(beside.intersection(live_out(self.analysis.program))) or any(
            each.relation.array in beside
            and each.relation.source in self.members
            and not inside(self.analysis.statement(each.relation.sink), loop)
            for each in self.analysis.carried("value")
        )

    def _same_phase(self, statement: StatementModel, loop: Position) -> bool:
        """Tell whether no barrier of the loop is between a statement and the cycle."""
        member = self.analysis.statement(min(self.members)).place
        level = member.loop_positions.index(loop)
        return statement.place.phases[level] == member.phases[level]

    def _overwrites(
        self, statement: StatementModel, node: Assign, updates: _Updates, loop: Position
    ) -> bool:
        """Tell whether a statement beside the cycle may set an element that the loop updates."""
        targets = [target for target in node.targets if target.array == self.array]
        return not all(self._apart(statement, target, updates, loop) for target in targets)

    def _operator(
        self, statement: StatementModel, node: Assign, updates: _Updates, loop: Position
    ) -> str | None:
        """Return the operator of `cell = cell op x`, temporaries put in; None if it is no such."""
        if len(node.targets) != 1:
            return None
        cell = node.targets[0]
        value = self._expanded(node.values[0], statement, 0)
        if value is None or self._is_rounded(value):
            return None
        others = {
            v.access
            for v in walk_value(value)
            if isinstance(v, Read) and v.access.array == self.array and v.access != cell
        }
        if not all(self._apart(statement, other, updates, loop) for other in others):
            return None
        for operator, parts in _OPERATORS.items():
            if _folds(value, cell, operator, parts):
                return operator
        return None

    def _is_rounded(self, value: Value) -> bool:
        """Tell whether the array is of integers and the value is none: it rounds at each update."""
        elements = {array.name: array.element for array in self.analysis.program.arrays}
        return elements.get(self.array) == "int" and element_of(value, elements) == "float"

    def _apart(
        self, statement: StatementModel, other: Access, updates: _Updates, loop: Position
    ) -> bool:
        """Tell whether another element, read or set, is never one that the loop updates."""
        read = self._touched(statement, other)
        level = statement.place.loop_positions.index(loop)
        for update, node in updates:
            cell = self._touched(update, node.targets[0])
            if read is None or cell is None:
                return False
            together = cell.apply_range(read.reverse())
            for number in range(level):
                together = together.equate(isl.dim_type.in_, number, isl.dim_type.out, number)
            if not together.intersect_params(self.analysis.context).is_empty():
                return False
        return True

    def _touched(self, statement: StatementModel, access: Access) -> isl.Map | None:
        """Map instances of a statement to the cells an access touches; None if not told exactly."""
        model = self.analysis.model
        found = [a for a in model.accesses if a.statement is statement and a.array == self.array]
        if any(each.all_terms or each.generators for each in found):
            return None
        relations = [r for r in accesses(statement.place.node) if r.access.array == self.array]
        maps = [
            access_map(model, each, 0)
            for relation, each in zip(relations, found, strict=True)
            if relation.access == access
        ]
        return reduce(isl.Map.union, maps) if maps else None

    def _uncovered(self) -> list[Uncovered]:
        context = self.analysis.context
        return [
            read
            for read in self.analysis.uncovered
            if not read.instances.intersect_params(context).is_empty()
        ]

    def _expanded(self, value: Value, at: StatementModel, depth: int) -> Value | None:
        """Put the values of the cycle's temporaries in; None where one is not unique."""
        if depth > DEEPEST:
            return None
        lost: list[Read] = []

        def change(part: Value) -> Value | None:
            if not isinstance(part, Read) or part.access.array == self.array:
                return None
            found = self._temporary(part, at, depth)
            if found is None:
                lost.append(part)
            return found

        expanded = replaced(value, change)
        return None if lost else expanded

    def _temporary(self, value: Read, at: StatementModel, depth: int) -> Value | None:
        name = value.access.array
        if not any(e.relation.sink == at.number and e.relation.array == name for e in self.edges):
            return value
        # Outside the cycle, too: an outer loop, or what was there before, may have set it.
        sources = [
            e
            for e in self.analysis.carried("value")
            if e.relation.sink == at.number and e.relation.array == name
        ]
        before = any(r.sink == at.number and r.array == name for r in self._uncovered())
        if before or len(sources) > 1 or sources[0].relation.may or sources[0].level is not None:
            return None
        source = self.analysis.statement(sources[0].relation.source)
        node, around = source.place.node, source.place.loop_positions
        if not isinstance(node, Assign) or node.targets != (value.access,):
            return None
        if around != at.place.loop_positions[: len(around)]:
            return None  # what another loop has left is not of this iteration
        return self._expanded(node.values[0], source, depth + 1)


def _sum_parts(value: Value) -> list[Value] | None:
    match value:
        case Binary("+", left, right):
            return [left, right]
        case Binary("-", left, right):
            return [left, Unary("-", right)]
        case _:
            return None


def _product_parts(value: Value) -> list[Value] | None:
    match value:
        case Binary("*", left, right):
            return [left, right]
        case Binary("/", left, right):
            # The divisor is a factor that the cell may not be in.
            return [left, Call("reciprocal", (right,))]
        case _:
            return None


def _max_parts(value: Value) -> list[Value] | None:
    return _chosen_parts(value, "max")


def _min_parts(value: Value) -> list[Value] | None:
    return _chosen_parts(value, "min")


def _chosen_parts(value: Value, function: str) -> list[Value] | None:
    match value:
        case Call(name, arguments) if name == function and len(arguments) > 1:
            return list(arguments)
        case Select(Data(Compare(op, left, right)), chosen, otherwise) | Call(
            "where", (Compare(op, left, right), chosen, otherwise)
        ):
            if op in ("==", "!=") or (chosen, otherwise) not in ((left, right), (right, left)):
                return None
            takes_greater = op in (">", ">=") if chosen == left else op in ("<", "<=")
            return [chosen, otherwise] if takes_greater == (function == "max") else None
        case _:
            return None


def _logical_parts(kind: type[Every] | type[Some]) -> Parts:
    def parts(value: Value) -> list[Value] | None:
        if isinstance(value, Holds) and isinstance(value.condition, kind):
            return [truth_of(part) for part in value.condition.parts]
        return None

    return parts


_OPERATORS: dict[str, Parts] = {
    "+": _sum_parts,
    "*": _product_parts,
    "max": _max_parts,
    "min": _min_parts,
    "and": _logical_parts(Every),
    "or": _logical_parts(Some),
}


def _leaves(value: Value, parts: Parts) -> Iterator[Value]:
    inner = parts(value)
    if inner is None:
        yield value
        return
    for part in inner:
        yield from _leaves(part, parts)


def _folds(value: Value, cell: Access, operator: str, parts: Parts) -> bool:
    """Tell whether a value is the cell, once, joined by the operator with what is not the cell."""
    if isinstance(value, Select) and parts(value) is None:
        # A branch that leaves the cell as it is adds nothing.
        tested = [inner for outer in data_of(value.condition) for inner in walk_value(outer)]
        if Read(cell) in tested:
            return False
        branches = (value.chosen, value.otherwise)
        return any(branch != Read(cell) for branch in branches) and all(
            branch == Read(cell) or _folds(branch, cell, operator, parts) for branch in branches
        )
    leaves = list(_leaves(value, parts))
    if len(leaves) < 2:
        return False
    others = [leaf for leaf in leaves if leaf != Read(cell)]
    return len(others) == len(leaves) - 1 and not any(
        Read(cell) in walk_value(other) for other in others
    )
