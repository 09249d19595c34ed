"""Which dependences still run forward after a step, whatever their iterations have become."""

from __future__ import annotations

from collections.abc import Iterator

import islpy as isl

from looptrans.analysis.concurrency import memory_relations, surely_before_map
from looptrans.analysis.correspondence import Correspondence, Pair
from looptrans.analysis.formula import conjunction
from looptrans.analysis.relation import Relation


def reversed_pairs(made: Correspondence) -> Iterator[tuple[Relation, isl.Map]]:
    """Yield what is no longer sure to run in order, as pairs of instances of `before`."""
    for relation in memory_relations(made.before):
        pairs = relation.pairs.intersect_params(made.context)
        left = pairs.subtract(still_ordered(made, relation.source, relation.sink, pairs))
        if not left.is_empty():
            yield relation, left


def still_ordered(made: Correspondence, source: int, sink: int, pairs: isl.Map) -> isl.Map:
    """Return the pairs of instances of `before` that surely run in this order afterwards."""
    found = pairs.subtract(pairs)
    for first in made.of_before(source):
        for second in made.of_before(sink):
            ordered = surely_before_map(made.after, first.after, second.after, ("t", "t"))
            one, other = _instances(made, first), _instances(made, second)
            found = found.union(one.reverse().apply_range(ordered).apply_range(other))
    return found


def _instances(made: Correspondence, pair: Pair) -> isl.Map:
    """Return the instance map of a pair; without bounds where opaque terms are in them."""
    if pair.instances is not None:
        return pair.instances
    names = {bound.variable: f"j{level}" for level, bound in enumerate(pair.after.bounds)}
    left = ", ".join(names.values())
    right = ", ".join(f"i{level}" for level in range(pair.before.depth))
    equal = [
        f"i{level} = {names[_variable(pair, bound.variable)]}"
        for level, bound in enumerate(pair.before.bounds)
    ]
    ends = f"t{pair.after.number}[{left}] -> s{pair.before.number}[{right}]"
    return isl.Map(f"{made.after.prefix}{{ {ends} : {conjunction(equal)} }}")


def _variable(pair: Pair, name: str) -> str:
    """Return the variable afterwards that has the value of one before."""
    _, terms = pair.values[name]
    return str(terms[0][0][1])
