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

from looptrans.analysis.flow import affine_dependences
from looptrans.analysis.formula import conjunction, disjunction
from looptrans.analysis.model import Model, StatementModel
from looptrans.analysis.opaque import opaque_dependences
from looptrans.analysis.polyhedra import tuple_text
from looptrans.analysis.relation import Relation
from looptrans.ir.program import Assign, Atomic, BlockReduce, Loop


def surely_before(first: StatementModel, second: StatementModel, letters: tuple[str, str]) -> str:
    """Say that an instance of the first statement runs before one of the second, always."""
    shared = first.shared_depth(second)
    options: list[str] = []
    equal: list[str] = []
    for level in range(shared):
        a, b = f"{letters[0]}{level}", f"{letters[1]}{level}"
        sign = "<" if first.bounds[level].range.step > 0 else ">"
        if _is_ordered(first, second, level):
            options.append(conjunction([*equal, f"{a} {sign} {b}"]))
        equal.append(f"{a} = {b}")
    if first.order[shared] < second.order[shared]:
        options.append(conjunction(equal))
    return disjunction(options)


def _is_ordered(first: StatementModel, second: StatementModel, level: int) -> bool:
    """Tell whether an earlier iteration's instance of the first runs before a later's second."""
    loop = first.loops[level]
    if loop.execution == "sequential":
        return True
    depth = len(first.place.loop_positions[level])
    ends = first.place.position[depth], second.place.position[depth]
    return any(ends[0] <= turn <= ends[1] for turn in _turns(loop))


def _turns(loop: Loop) -> Iterator[int]:
    for number, node in enumerate(loop.body):
        if isinstance(node, Atomic) and node.turn == loop.variable:
            yield number


def surely_before_map(
    model: Model, first: StatementModel, second: StatementModel, tuples: tuple[str, str]
) -> isl.Map:
    """Map an instance of the first statement to those of the second that always run later.

    Args:
        model: The program.
        first: The one statement.
        second: The other.
        tuples: The letters their tuples are called after.
    """
    left = tuples[0] + tuple_text(first, "a")[1:]
    right = tuples[1] + tuple_text(second, "b")[1:]
    formula = surely_before(first, second, ("a", "b"))
    return isl.Map(f"{model.prefix}{{ {left} -> {right} : {formula} }}")


def memory_relations(model: Model) -> list[Relation]:
    """Return all pairs that touch one cell, one of them writing, in the sequential reading."""
    written = {access.array for access in model.accesses if access.is_write}
    opaque = {access.array for access in model.accesses if access.all_terms}
    names = [n for n in dict.fromkeys(a.array for a in model.accesses) if n in written]
    found, _ = affine_dependences(model, [n for n in names if n not in opaque], ("memory",))
    more, _ = opaque_dependences(model, [n for n in names if n in opaque], ("memory",))
    return [*found, *more]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Pairs that touch one cell, one of them writing, and that nothing orders.

    Attributes:
        relation: What they are in the sequential reading.
        pairs: Those of its pairs that nothing orders.
        guarded: Whether both are atomic, or both updates of one kind of block reduction; they then
            do not race, but their order is open.
    """

    relation: Relation
    pairs: isl.Map
    guarded: bool


def conflicts(model: Model, context: isl.Set) -> Iterator[Conflict]:
    """Find what nothing orders in a program with parallel loops."""
    if not is_parallel(model):
        return
    for relation in memory_relations(model):
        first, second = (model.statements[n] for n in (relation.source, relation.sink))
        ordered = surely_before_map(model, first, second, ("s", "s"))
        left = relation.pairs.intersect_params(context).subtract(ordered)
        if not left.is_empty():
            yield Conflict(relation, left, _guarded(first, second, relation.array))


def is_parallel(model: Model) -> bool:
    """Tell whether any loop is parallel."""
    return any(
        loop.execution == "parallel" for statement in model.statements for loop in statement.loops
    )


def _guarded(first: StatementModel, second: StatementModel, array: str) -> bool:
    sections = first.place.sections, second.place.sections
    if all(any(isinstance(s, Atomic) for s in own) for own in sections):
        return True
    operators = [{s.operator for s in own if isinstance(s, BlockReduce)} for own in sections]
    return bool(operators[0] & operators[1]) and all(
        _updates(statement, array) for statement in (first, second)
    )


def _updates(statement: StatementModel, array: str) -> bool:
    node = statement.place.node
    return isinstance(node, Assign) and all(target.array == array for target in node.targets)
