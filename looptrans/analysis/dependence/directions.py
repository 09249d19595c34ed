"""The directions of a set of distances: in which loops the source is in an earlier iteration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import TypeAlias

import islpy as isl

from looptrans.ir.facts import Direction

Directed: TypeAlias = tuple[tuple[Direction, ...], isl.Set]

_SET = isl.dim_type.set
SIGNS: tuple[tuple[Direction, str], ...] = (("=", "="), ("<", ">"), (">", "<"))
"""The entries of direction vectors in order, with how distances compare with 0."""
MOST_DIRECTIONS = 4096
"""How many direction vectors a relation is cut by; nine free loops have some 9,800."""


def directions_of(distances: isl.Set, depth: int) -> list[Directed]:
    """Cut distances by direction; by the carrier alone where there are too many vectors."""
    found = list(islice(_by_direction(distances, depth), MOST_DIRECTIONS + 1))
    return found if len(found) <= MOST_DIRECTIONS else list(_by_carrier(distances, depth))


def _by_carrier(distances: isl.Set, depth: int) -> Iterator[Directed]:
    """Cut distances by the first sign that is no `=`; behind it a sign that is no other, or `*`."""
    same, parts = distances, list[Directed]()
    equal: list[Direction] = []
    for level in range(depth):
        carried = list[Directed]()
        for sign, relation in SIGNS[1:]:
            part = same.intersect(_half_space(depth, level, relation))
            if not part.is_empty():
                rest = [_only_sign(part, depth, inner) for inner in range(level + 1, depth)]
                carried.append(((*equal, sign, *rest), part))
        parts = carried + parts
        same = same.intersect(_half_space(depth, level, "="))
        equal.append("=")
    if not same.is_empty():
        yield tuple(equal), same
    yield from parts


def _only_sign(distances: isl.Set, depth: int, level: int) -> Direction:
    """Return the sign that all distances have in a loop, or `*`."""
    found = [
        sign
        for sign, relation in SIGNS
        if not distances.intersect(_half_space(depth, level, relation)).is_empty()
    ]
    return found[0] if len(found) == 1 else "*"


def _by_direction(
    distances: isl.Set, depth: int, level: int = 0, prefix: tuple[Direction, ...] = ()
) -> Iterator[Directed]:
    if level == depth:
        yield prefix, distances
        return
    fixed = distances.plain_get_val_if_fixed(_SET, level)
    if not fixed.is_nan():
        number = fixed.to_python()
        sign: Direction = "=" if number == 0 else "<" if number > 0 else ">"
        yield from _by_direction(distances, depth, level + 1, (*prefix, sign))
        return
    for direction, relation in SIGNS:
        part = distances.intersect(_half_space(depth, level, relation))
        if not part.is_empty():
            yield from _by_direction(part, depth, level + 1, (*prefix, direction))


def carriers_in(distances: isl.Set, depth: int, level: int = 0) -> Iterator[int | None]:
    """Yield the levels of the first signs of the directions, without going through the others."""
    if level == depth:
        yield None
        return
    fixed = distances.plain_get_val_if_fixed(_SET, level)
    if not fixed.is_nan():
        if fixed.is_zero():
            yield from carriers_in(distances, depth, level + 1)
        elif any(True for _ in _by_direction(distances, depth, level + 1)):
            yield level
        return
    same, *others = (distances.intersect(_half_space(depth, level, r)) for _, r in SIGNS)
    if not same.is_empty():
        yield from carriers_in(same, depth, level + 1)
    if not all(part.is_empty() for part in others):
        yield level


@cache
def _half_space(depth: int, level: int, relation: str) -> isl.Set:
    names = ", ".join(f"d{number}" for number in range(depth))
    return isl.Set(f"{{ [{names}] : d{level} {relation} 0 }}")


@cache
def orthant(direction: tuple[Direction, ...]) -> isl.Set:
    """Return all distances of one direction vector."""
    relations = dict(SIGNS)
    names = [f"d{number}" for number in range(len(direction))]
    signs = [
        f"{name} {relations[sign]} 0"
        for name, sign in zip(names, direction, strict=True)
        if sign != "*"
    ]
    return isl.Set(f"{{ [{', '.join(names)}] : {' and '.join(signs) or '0 = 0'} }}")
