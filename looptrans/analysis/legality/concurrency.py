"""What orders the instances of a program with parallel loops, and what races.

Two instances that differ first in a sequential loop run in its order. In a parallel loop nothing
orders two iterations but

- a barrier: it divides the body into phases, and a phase is over before the next begins;
- a turn: of two iterations, the earlier one is through a block `with atomic(turn=j):` before the
  later one enters it, and so is everything before the block in the one before everything after it
  in the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from looptrans.analysis.dependence.flow import affine_dependences
from looptrans.analysis.isl_model.model import Among, Model, StatementModel
from looptrans.analysis.isl_model.relation import Relation
from looptrans.analysis.opaque_terms.opaque import opaque_dependences
from looptrans.ir.program import Assign, Atomic, BlockReduce


def memory_relations(model: Model, among: Among | None = None) -> list[Relation]:
    """Return all pairs that touch one cell, one of them writing, in the sequential reading.

    Args:
        model: The program.
        among: Tells of two statements whether their pairs are asked for; by default all are.
    """
    opaque = {access.array for access in model.accesses if access.all_terms}
    names = [
        n for n in dict.fromkeys(a.array for a in model.accesses) if _is_shared(model, n, among)
    ]
    plain = [n for n in names if n not in opaque]
    found, _ = affine_dependences(model, plain, ("memory",), among=among)
    more, _ = opaque_dependences(model, [n for n in names if n in opaque], ("memory",), among=among)
    return [*found, *more]


def _is_shared(model: Model, array: str, among: Among | None) -> bool:
    """Tell whether an array is written, and there by one of two statements that are asked for."""
    statements = {a.statement.number: a.statement for a in model.accesses if a.array == array}
    writing = {a.statement.number for a in model.accesses if a.array == array and a.is_write}
    return any(
        among is None or among(statements[number], other)
        for number in writing
        for other in statements.values()
    )


@dataclass(frozen=True, slots=True)
class Conflict:
    """Pairs that touch one cell, one of them writing, and that nothing orders.

    Attributes:
        relation: What they are in the sequential reading.
        pairs: Those of its pairs that nothing orders.
        level: The level of the parallel loop that leaves their order open.
        guarded: Whether both are atomic, or both updates of one kind of block reduction; they then
            do not race, but their order is open.
    """

    relation: Relation
    pairs: isl.Map
    level: int
    guarded: bool


def conflicts(model: Model, context: isl.Set) -> Iterator[Conflict]:
    """Find what nothing orders in a program with parallel loops."""
    if not is_parallel(model):
        return
    for relation in memory_relations(model, _share_parallel):
        pairs = relation.pairs.intersect_params(context)
        for conflict in _conflicts(model, relation, pairs):
            if not conflict.pairs.is_empty():
                yield conflict


def _share_parallel(first: StatementModel, second: StatementModel) -> bool:
    """Tell whether two statements stand in one parallel loop."""
    shared = first.loops[: first.shared_depth(second)]
    return any(loop.execution == "parallel" for loop in shared)


def _conflicts(model: Model, relation: Relation, pairs: isl.Map) -> Iterator[Conflict]:
    first, second = (model.statements[n] for n in (relation.source, relation.sink))
    operators = [_reducing(statement, relation.array) for statement in (first, second)]
    alike = operators[0] is not None and operators[0] == operators[1]
    shared = first.shared_depth(second)
    ends = [
        level
        for statement, operator in zip((first, second), operators, strict=True)
        if operator is not None and (level := _innermost_parallel(statement)) < shared
    ]
    for level in range(shared if alike else min(ends, default=shared)):
        loop = first.loops[level]
        if loop.execution == "sequential" or _take_turns(first, second, level):
            continue
        guarded = alike or all(
            _is_atomic(statement, level, operator)
            for statement, operator in zip((first, second), operators, strict=True)
        )
        yield Conflict(relation, differing_at(pairs, level), level, guarded)
    if ends and not alike:
        # What a block reduction updates is there when its phase ends, and not before.
        level = min(ends)
        yield Conflict(relation, agreeing_above(pairs, level), level, guarded=False)


def agreeing_above(pairs: isl.Map, level: int) -> isl.Map:
    """Return the pairs whose iterations are the same in the loops around the one at a level."""
    for number in range(level):
        pairs = pairs.equate(isl.dim_type.in_, number, isl.dim_type.out, number)
    return pairs


def differing_at(pairs: isl.Map, level: int) -> isl.Map:
    """Return the pairs that agree in the outer loops and differ in the one at a level."""
    pairs = agreeing_above(pairs, level)
    return pairs.subtract(pairs.equate(isl.dim_type.in_, level, isl.dim_type.out, level))


def is_parallel(model: Model) -> bool:
    """Tell whether any loop is parallel."""
    return any(
        loop.execution == "parallel" for statement in model.statements for loop in statement.loops
    )


def _take_turns(first: StatementModel, second: StatementModel, level: int) -> bool:
    """Tell whether a turn of a loop puts the first before the second in every later iteration."""
    loop = first.loops[level]
    depth = len(first.place.loop_positions[level])
    start, end = first.place.position[depth], second.place.position[depth]
    return any(
        isinstance(node, Atomic) and node.turn == loop.variable
        for node in loop.body[start : end + 1]
    )


def _reducing(statement: StatementModel, array: str) -> str | None:
    """Return the operator by which a statement updates an array in a reducing block."""
    node = statement.place.node
    if not isinstance(node, Assign) or all(target.array != array for target in node.targets):
        return None
    sections = statement.place.sections
    return next((s.operator for s in reversed(sections) if isinstance(s, BlockReduce)), None)


def _innermost_parallel(statement: StatementModel) -> int:
    levels = [n for n, loop in enumerate(statement.loops) if loop.execution == "parallel"]
    return levels[-1]


def _is_atomic(statement: StatementModel, level: int, operator: str | None) -> bool:
    """Tell whether an atomic block inside the loop at a level is around a statement.

    Where it is an update of a reducing block, the block must be around the loop that reduces.
    """
    positions = statement.place.loop_positions
    outside = len(positions[level])
    inside = None if operator is None else len(positions[_innermost_parallel(statement)])
    return any(
        isinstance(section, Atomic)
        and len(position) > outside
        and (inside is None or len(position) < inside)
        for section, position in zip(
            statement.place.sections, statement.place.section_positions, strict=True
        )
    )
