"""Guards that become bounds of the loop around them, so that other blocks are never visited.

    for j in range(0, N):                    for j in range(0, min(N, i + 1)):
        if j <= i: …              ->             …

Of alternatives that bound one end, the widest is the bound: `j <= i or j < P` is
`j < max(i + 1, P)`; where an alternative is about the row alone, rows for which it holds have no
such bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from looptrans.blocks.ranges import Bound, Bounds, Unless
from looptrans.blocks.sites import Path
from looptrans.ir.affine import Form, difference, extremum, form_of, index_of, total
from looptrans.ir.condition import (
    Comparison,
    Condition,
    Every,
    Relation,
    Some,
    conjunction,
)
from looptrans.ir.index import Extremum, Var, variables
from looptrans.ir.program import Assign, If, Node

# What a comparison becomes when both sides change their sign.
_MIRRORED: Final[dict[Comparison, Comparison]] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "==": "==",
}


@dataclass(frozen=True, slots=True)
class Lifted:
    """A guard whose comparisons became bounds of the loop around it.

    Attributes:
        path: Its place, seen from the body of the loop.
        rest: What it still has to test.
    """

    path: Path
    rest: Condition


def lifted(
    variable: str, bounds: Bounds, body: tuple[Node, ...], pure: Iterable[str]
) -> tuple[Bounds, tuple[Lifted, ...]]:
    """Make what every iteration with an effect is guarded by part of the bounds.

        for j in range(0, N):                    for j in range(0, min(N, i + 1)):
            if j <= i: …              ->             …

    Of guards inside one another, each may give bounds.

    Args:
        variable: The variable of the loop.
        bounds: Its bounds.
        body: Its body.
        pure: Names that statements of the body may set for the iteration alone.
    """
    lower, upper = list(bounds.lower), list(bounds.upper)
    found: list[Lifted] = []
    path: Path = ()
    names = set(pure)
    while (number := _guard(body, names)) is not None:
        guard = body[number]
        assert isinstance(guard, If)
        path = (*path, number)
        rest: list[Condition] = []
        for part in _conjuncts(guard.condition):
            ends = _solved(variable, part)
            if ends is None:
                rest.append(part)
                continue
            lower += [index for index in ends.lower if index not in lower]
            upper += [index for index in ends.upper if index not in upper]
        if len(rest) < len(_conjuncts(guard.condition)):
            found.append(Lifted(path, conjunction(*rest)))
        path, body = (*path, 1), guard.body
    return Bounds(tuple(lower), tuple(upper)), tuple(found)


def _guard(body: tuple[Node, ...], pure: set[str]) -> int | None:
    """Return which node of a body guards everything in it that has an effect."""
    guards = [number for number, node in enumerate(body) if isinstance(node, If)]
    if len(guards) != 1:
        return None
    guard = body[guards[0]]
    assert isinstance(guard, If)
    others = [node for node in body if not isinstance(node, If)]
    if guard.orelse or not all(
        isinstance(n, Assign) and {t.array for t in n.targets} <= pure for n in others
    ):
        return None
    return guards[0]


def _conjuncts(condition: Condition) -> tuple[Condition, ...]:
    match condition:
        case Every(parts):
            return tuple(part for each in parts for part in _conjuncts(each))
        case Relation():
            apart = _taken_apart(condition)
            return _conjuncts(apart) if isinstance(apart, Every) else (condition,)
        case _:
            return (condition,)


def _alternatives(condition: Condition) -> tuple[Condition, ...]:
    match condition:
        case Some(parts):
            return tuple(part for each in parts for part in _alternatives(each))
        case Relation():
            apart = _taken_apart(condition)
            return _alternatives(apart) if isinstance(apart, Some) else (condition,)
        case _:
            return (condition,)


def _taken_apart(relation: Relation) -> Condition:
    """Return a comparison with a `max` or a `min` as comparisons with what is inside."""
    op, left, right = relation.op, relation.left, relation.right
    if op in (">", ">="):
        op, left, right = _MIRRORED[op], right, left
    if op not in ("<", "<="):
        return relation
    if isinstance(right, Extremum):
        parts = tuple(Relation(op, left, each) for each in right.arguments)
        return Every(parts) if right.op == "min" else Some(parts)
    if isinstance(left, Extremum):
        parts = tuple(Relation(op, each, right) for each in left.arguments)
        return Every(parts) if left.op == "max" else Some(parts)
    return relation


def _solved(variable: str, part: Condition) -> Bounds | None:
    """Return a condition as bounds of the variable, if it is no more and no less."""
    ends: list[Bounds] = []
    free: list[Condition] = []
    for each in _alternatives(part):
        if not isinstance(each, Relation):
            return None
        if variable not in variables(each.left) + variables(each.right):
            free.append(each)
            continue
        bounds = _solved_alone(variable, each)
        if bounds is None:
            return None
        ends.append(bounds)
    if len(ends) == 1 and not free:
        return ends[0]
    lower = [b for bounds in ends for b in bounds.lower if not isinstance(b, Unless)]
    upper = [b for bounds in ends for b in bounds.upper if not isinstance(b, Unless)]
    if bool(lower) == bool(upper):
        return None  # nothing of the variable, or a gap between two ranges
    index = extremum("min", lower) if lower else extremum("max", upper)
    bound: Bound = index
    if free:
        bound = Unless(index, free[0] if len(free) == 1 else Some(tuple(free)), bool(lower))
    return Bounds((bound,), ()) if lower else Bounds((), (bound,))


def _solved_alone(variable: str, part: Relation) -> Bounds | None:
    """Return a comparison as bounds of the variable, where its factor is 1 or -1."""
    if part.op == "!=":
        return None
    form = form_of(difference(part.left, part.right))
    factor = form.terms.get(Var(variable), 0)
    rest = {term: count for term, count in form.terms.items() if term != Var(variable)}
    if factor not in (1, -1) or any(variable in variables(term) for term in rest):
        return None
    # factor * v + rest op 0, so v op' -rest for 1 and v op'' rest for -1.
    edge = index_of(Form(rest, form.constant).times(-factor))
    match part.op if factor == 1 else _MIRRORED[part.op]:
        case "<":
            return Bounds((), (edge,))
        case "<=":
            return Bounds((), (total(edge, 1),))
        case ">":
            return Bounds((total(edge, 1),), ())
        case ">=":
            return Bounds((edge,), ())
        case _:
            return Bounds((edge,), (total(edge, 1),))
