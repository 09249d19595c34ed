"""Loops of a block that have the same iterations, in other words, written alike.

    for j in range(max(0, i - w), min(N, i + 1)):           for j in range(max(0, i - w), …):
        m = max(m, S[i, j])                                     m = max(m, S[i, j])
    for j in range(0, N):                            ->     for j in range(max(0, i - w), …):
        if not (j > i or j < i - w):                            l = l + exp(S[i, j] - m)
            l = l + exp(S[i, j] - m)

Passes become one where their ranges and guards are written alike; all are written as the one with
the fewest guards. What they say is told from their comparisons, each by itself, but for those that
follow from another and from the loops around: `j < N` from `j <= i` where `i` stays below `N`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from looptrans.adjoint.normalizing.one_form import said
from looptrans.ir.affine import Form, form_of, sides
from looptrans.ir.condition import (
    MIRRORED,
    Condition,
    Every,
    Relation,
    Some,
    is_data_dependent,
    negation_normal,
)
from looptrans.ir.index import Var, plain, substitute
from looptrans.ir.program import If, Loop, Node, Program
from looptrans.ir.rewrite import condition_changed
from looptrans.ir.value import Range
from looptrans.ir.verdict import Certificate

_OWN = Var("@")
"""What stands for the variable of a loop that is compared with others."""


@dataclass(frozen=True, slots=True)
class SameIterations:
    """A program whose loops are written alike where they have the same iterations.

    Attributes:
        program: The program afterwards.
    """

    program: Program
    text: str = "write loops alike that have the same iterations"

    @property
    def certificate(self) -> Certificate:
        """What shows that the two mean the same."""
        law = "every statement runs in the iterations it ran in, in the same order"
        return Certificate("order", law, "legal", "ranges and guards make the same comparisons")


def with_same_iterations_alike(program: Program) -> SameIterations | None:
    """Write loops of a block alike where they have the same iterations.

    Args:
        program: The program.
    """
    after = replace(program, body=_block(program.body, ()))
    return None if after == program else SameIterations(after)


def _block(body: tuple[Node, ...], around: tuple[Loop, ...]) -> tuple[Node, ...]:
    inner = tuple(_inside(node, around) for node in body)
    found = [_iterations(node, around) if isinstance(node, Loop) else None for node in inner]
    best: dict[object, _Iterations] = {}
    for own in found:
        if own is not None and len(best.setdefault(own.said, own).guards) > len(own.guards):
            best[own.said] = own
    return tuple(
        node if own is None else best[own.said].of(own)
        for node, own in zip(inner, found, strict=True)
    )


def _inside(node: Node, around: tuple[Loop, ...]) -> Node:
    match node:
        case Loop():
            return replace(node, body=_block(node.body, (*around, node)))
        case If():
            then, other = _block(node.body, around), _block(node.orelse, around)
            return replace(node, body=then, orelse=other)
        case _:
            return node


@dataclass(frozen=True, slots=True)
class _Iterations:
    """The iterations of a loop.

    Attributes:
        loop: The loop.
        guards: What the guards around all of its body ask, the outermost first.
        body: What stands inside them.
        said: What range and guards say together.
    """

    loop: Loop
    guards: tuple[Condition, ...]
    body: tuple[Node, ...]
    said: object

    def of(self, other: _Iterations) -> Loop:
        """Return another loop with the range and the guards of this one."""
        variable = Var(other.loop.variable)
        guards = tuple(_about(guard, self.loop.variable, variable) for guard in self.guards)
        if other is self or (self.loop.range == other.loop.range and guards == other.guards):
            return other.loop
        body = other.body
        for guard in reversed(guards):
            body = (If(guard, body),)
        start, stop = plain(self.loop.range.start), plain(self.loop.range.stop)
        return replace(other.loop, range=Range(start, stop), body=body)


def _about(condition: Condition, variable: str, other: Var) -> Condition:
    return condition_changed(condition, lambda index: substitute(plain(index), {variable: other}))


def _iterations(loop: Loop, around: tuple[Loop, ...]) -> _Iterations | None:
    """Return the iterations of a loop; None where they do not go up one by one."""
    if loop.range.step != 1 or loop.execution != "sequential":
        return None
    guards: list[Condition] = []
    body = loop.body
    while len(body) == 1:
        (node,) = body
        if not isinstance(node, If) or node.orelse or is_data_dependent(node.condition):
            break
        guards.append(node.condition)
        body = node.body
    tests: list[Condition] = [*_ranging(loop, _OWN)]
    for guard in guards:
        tests += _tests(negation_normal(_about(guard, loop.variable, _OWN)))
    outer = [
        bound
        for each in around
        if each.range.step == 1
        for relation in _ranging(each, Var(each.variable))
        for bound in _bound(relation)
    ]
    return _Iterations(loop, tuple(guards), body, _said(tests, outer))


def _ranging(loop: Loop, variable: Var) -> Iterator[Relation]:
    """Yield what the range of a loop says of its variable."""
    for start in sides("max", loop.range.start):
        yield Relation("<=", start, variable)
    for stop in sides("min", loop.range.stop):
        yield Relation("<", variable, stop)


def _tests(condition: Condition) -> Iterator[Condition]:
    """Yield what a condition in negation normal form is joined of, each side by itself."""
    match condition:
        case Every(parts):
            for part in parts:
                yield from _tests(part)
        case Relation(">" | ">=" as op, left, right):
            yield from _tests(Relation(MIRRORED[op], right, left))
        case Relation("<" | "<=" as op, left, right):
            for one in sides("max", left):
                for other in sides("min", right):
                    yield Relation(op, one, other)
        case _:
            yield condition


def _bound(test: Condition) -> list[Form]:
    """Return the form that a comparison says to be at most 0, where it is one of size."""
    match test:
        case Relation("<" | "<=" as op, left, right):
            return [form_of(left).plus(form_of(right), -1).plus(Form({}, int(op == "<")))]
        case _:
            return []


def _said(tests: list[Condition], outer: list[Form]) -> object:
    """Return what tests say together, without those that follow from others."""
    bounds = {_key(test): bound for test in tests for bound in _bound(test)}
    kept = {_key(test) for test in tests}
    for key, bound in bounds.items():
        others = [other for name, other in bounds.items() if name in kept - {key}]
        if any(_follows(bound, one, two) for one in others for two in outer):
            kept.discard(key)
    return frozenset(kept)


def _follows(bound: Form, one: Form, two: Form) -> bool:
    """Tell whether a form is at most 0 where two others are."""
    rest = bound.plus(one, -1).plus(two, -1)
    return rest.is_constant and rest.constant <= 0


def _key(test: Condition) -> object:
    match test:
        case Relation(op, left, right):
            return said(op, left, right)
        case Every(parts) | Some(parts):
            return type(test), frozenset(map(_key, parts))
        case _:
            return test
