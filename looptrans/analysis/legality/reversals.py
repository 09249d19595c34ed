"""Which dependences still run forward after a step, whatever their iterations have become."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from looptrans.analysis.isl_model.formula import FALSE, conjunction, disjunction
from looptrans.analysis.isl_model.model import StatementModel
from looptrans.analysis.isl_model.polyhedra import before, tuple_text
from looptrans.analysis.isl_model.relation import Relation
from looptrans.analysis.legality.concurrency import memory_relations
from looptrans.analysis.legality.correspondence import Correspondence


def reversed_pairs(made: Correspondence) -> Iterator[tuple[Relation, isl.Map]]:
    """Yield what no longer runs in order, as pairs of instances of `before`."""
    moved = made.moved

    def among(first: StatementModel, second: StatementModel) -> bool:
        return moved is None or (first.label in moved and second.label in moved)

    for relation in memory_relations(made.before, among):
        pairs = relation.pairs.intersect_params(made.context)
        left = pairs.intersect(swapped(made, relation.source, relation.sink))
        if not left.is_empty():
            yield relation, left


def swapped(made: Correspondence, source: int, sink: int) -> isl.Map:
    """Map instances of one statement of `before` to those of another that run first afterwards.

    Loops are taken in order, the parallel ones too. Instances that one instance afterwards stands
    for are in it as well: neither runs before the other.
    """
    key = (source, sink)
    if key not in made.swapped:
        first, second = (made.before.statements[number] for number in key)
        ends = tuple_text(first), tuple_text(second, "t")
        found = isl.Map(f"{made.before.prefix}{{ {ends[0]} -> {ends[1]} : {FALSE} }}")
        for one in made.of_before(source):
            for other in made.of_before(sink):
                later = _not_before(made, one.after, other.after)
                way = one.instances.reverse().apply_range(later)
                found = found.union(way.apply_range(other.instances))
        made.swapped[key] = found
    return made.swapped[key]


def _not_before(made: Correspondence, first: StatementModel, second: StatementModel) -> isl.Map:
    """Map an instance of the first statement afterwards to the instances that run no later."""
    formula = before(second, first, ("b", "a"))
    if first is second:
        same = conjunction(f"a{level} = b{level}" for level in range(first.depth))
        formula = disjunction([formula, same])
    left = "t" + tuple_text(first, "a")[1:]
    right = "t" + tuple_text(second, "b")[1:]
    return isl.Map(f"{made.after.prefix}{{ {left} -> {right} : {formula} }}")
