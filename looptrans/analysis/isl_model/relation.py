"""What the two ways of finding dependences hand on."""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl

from looptrans.ir.facts import Basis, DependenceKind
from looptrans.ir.index import Opaque


@dataclass(frozen=True, slots=True)
class Supposed:
    """Pairs of instances together with the values of opaque terms they suppose.

    Attributes:
        points: Points `(source instance, sink instance, values)`.
        source_terms: The terms of the source whose values follow, in order.
        sink_terms: The terms of the sink whose values come last, in order.
        source_generators: The bound variables of the source access, between instance and values.
        sink_generators: Those of the sink access.
    """

    points: isl.Set
    source_terms: tuple[Opaque, ...]
    sink_terms: tuple[Opaque, ...]
    source_generators: tuple[str, ...]
    sink_generators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """All pairs of one kind between two statements over one array.

    Attributes:
        kind: What the pairs are.
        basis: Whether they were found by value or by memory.
        source: Number of the source statement.
        sink: Number of the sink statement.
        array: The array.
        pairs: Source instance to sink instance.
        may: Whether only the running program knows which of the pairs occur.
        supposed: Where opaque terms are involved, the pairs with the terms' values.
        certain: With `may`, those of the pairs that are known to occur, or None.
        within: Whether the pairs that occur may be fewer: not all is known of `x * P` and `x // P`.
    """

    kind: DependenceKind
    basis: Basis
    source: int
    sink: int
    array: str
    pairs: isl.Map
    may: bool
    supposed: tuple[Supposed, ...] = ()
    certain: isl.Map | None = None
    within: bool = False


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Instances of a statement that may read a cell which nothing before them has written."""

    sink: int
    array: str
    instances: isl.Set


def relation_of_pairs(
    kind: DependenceKind,
    basis: Basis,
    ends: tuple[int, int],
    array: str,
    pairs: isl.Map,
    certain: isl.Map | None,
) -> Relation:
    """Return a relation of pairs of which some, or all, or none are known to occur."""
    if certain is None or certain.is_empty():
        return Relation(kind, basis, *ends, array, pairs, may=True)
    if certain is pairs or pairs.is_subset(certain):
        return Relation(kind, basis, *ends, array, pairs, may=False)
    return Relation(kind, basis, *ends, array, pairs, may=True, certain=certain)


def joined(relations: list[Relation]) -> list[Relation]:
    """Return one relation for those of one kind that have the same ends and array."""
    found: dict[tuple[DependenceKind, Basis, int, int, str], Relation] = {}
    for each in relations:
        key = (each.kind, each.basis, each.source, each.sink, each.array)
        found[key] = _both(found[key], each) if key in found else each
    return list(found.values())


def _both(one: Relation, other: Relation) -> Relation:
    known = [
        certain
        for each in (one, other)
        if (certain := each.certain if each.may else each.pairs) is not None
    ]
    sure = known[0].union(known[-1]) if known else None
    pairs = one.pairs.union(other.pairs).coalesce()
    return relation_of_pairs(one.kind, one.basis, (one.source, one.sink), one.array, pairs, sure)
