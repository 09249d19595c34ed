"""What is known where a value stands: bounds of loops and guards, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from looptrans.ir.affine import Form, difference, form_of
from looptrans.ir.condition import (
    ALWAYS,
    NEGATED,
    Condition,
    Every,
    Not,
    Relation,
    Some,
    Truth,
    negation,
)
from looptrans.ir.index import Arith, Extremum, Index, Int, Param, Var
from looptrans.ir.program import Program
from looptrans.ir.ranges import ranges_by_name
from looptrans.ir.value import Generator, Range
from looptrans.ir.walk import accesses, placed


@dataclass(frozen=True, slots=True)
class Facts:
    """Conditions that hold.

    Attributes:
        conditions: Each holds.
    """

    conditions: tuple[Condition, ...] = ()

    def and_(self, *conditions: Condition) -> Facts:
        """Return these facts and more."""
        return Facts((*self.conditions, *conditions))

    def inside(self, generators: Iterable[Generator]) -> Facts:
        """Return these facts and what holds inside loops."""
        found = list(self.conditions)
        for g in generators:
            found += [*bounds_of(g.variable, g.range), g.condition]
        return Facts(tuple(found))

    def imply(self, condition: Condition) -> bool:
        """Tell whether a condition surely holds."""
        if condition in self.conditions:
            return True
        match condition:
            case Truth(value):
                return value
            case Every(parts):
                return all(self.imply(part) for part in parts)
            case Some(parts):
                return any(self.imply(part) for part in parts)
            case Not(Relation(op, left, right)):
                return self.imply(Relation(NEGATED[op], left, right))
            case Relation("!=", left, right):
                return self.imply(Relation("<", left, right)) or self.imply(
                    Relation(">", left, right)
                )
            case Relation():
                goals = _forms(condition)
                if goals is None:
                    return condition in self.conditions
                known = self._known()
                return all(_follows(goal, known) for goal in goals)
            case _:
                return condition in self.conditions

    def refute(self, condition: Condition) -> bool:
        """Tell whether a condition surely does not hold."""
        return self.imply(negation(condition))

    def _known(self) -> list[Form]:
        """Return sums that are not negative: t - 1 where t is not, and is not 0."""
        flat = self._flat()
        apart = [form for each in flat for form in _apart(each)]
        known = [form for each in flat for form in _forms(each) or ()]
        return [form.plus(Form({}, 1), -1) if form in apart else form for form in known]

    def _flat(self) -> list[Condition]:
        found: list[Condition] = []
        queue = list(self.conditions)
        while queue:
            each = queue.pop(0)
            if isinstance(each, Every):
                queue += each.parts
            elif isinstance(each, Not) and isinstance(each.part, Some):
                queue += [negation(part) for part in each.part.parts]
            else:
                found.append(each)
        return found


def bounds_of(variable: str, bounds: Range) -> tuple[Condition, ...]:
    """Return the conditions that say a variable is in a range."""
    here = Var(variable)
    if bounds.step == 1:
        return Relation(">=", here, bounds.start), Relation("<", here, bounds.stop)
    if bounds.step > 0:
        ends: tuple[Condition, ...] = (
            Relation(">=", here, bounds.start),
            Relation("<", here, bounds.stop),
        )
    else:
        ends = Relation("<=", here, bounds.start), Relation(">", here, bounds.stop)
    if abs(bounds.step) == 1:
        return ends
    apart = difference(here, bounds.start)
    return *ends, Relation("==", Arith("%", apart, Int(abs(bounds.step))), Int(0))


def _apart(condition: Condition) -> tuple[Form, ...]:
    """Return sums that are not 0 where a comparison holds."""
    match condition:
        case Relation("!=", left, right) | Not(Relation("==", left, right)):
            form = form_of(left).plus(form_of(right), -1)
            return form, Form({}).plus(form, -1)
        case _:
            return ()


@lru_cache(maxsize=4096)
def _forms(condition: Condition) -> tuple[Form, ...] | None:
    """Return sums all of which are not negative where a comparison holds, and only there."""
    if isinstance(condition, Not) and isinstance(condition.part, Relation):
        part = condition.part
        condition = Relation(NEGATED[part.op], part.left, part.right)
    if not isinstance(condition, Relation):
        return None
    match condition.op:
        case ">=":
            pairs = [(condition.left, condition.right, 0)]
        case ">":
            pairs = [(condition.left, condition.right, -1)]
        case "<=":
            pairs = [(condition.right, condition.left, 0)]
        case "<":
            pairs = [(condition.right, condition.left, -1)]
        case "==":
            pairs = [
                (condition.left, condition.right, 0),
                (condition.right, condition.left, 0),
            ]
        case _:
            return None
    found = []
    for more, less, constant in pairs:
        for a in _arguments(more, "min"):
            for b in _arguments(less, "max"):
                found.append(form_of(a).plus(form_of(b), -1).plus(Form({}, constant)))
    return tuple(found)


def _arguments(index: Index, op: str) -> tuple[Index, ...]:
    if isinstance(index, Extremum) and index.op == op:
        return tuple(part for a in index.arguments for part in _arguments(a, op))
    return (index,)


def _follows(goal: Form, known: list[Form]) -> bool:
    """Tell whether a form is never below zero, by at most two that are not."""
    if goal.is_constant:
        return goal.constant >= 0
    least: dict[frozenset[tuple[Index, int]], int] = {}
    for fact in map(_least, known):
        key = frozenset(fact.terms.items())
        least[key] = min(least.get(key, fact.constant), fact.constant)
    nothing: frozenset[tuple[Index, int]] = frozenset()
    for rest in map(_least, (goal, *(goal.plus(fact, -1) for fact in known))):
        key = frozenset(rest.terms.items())
        if key in least and rest.constant >= least[key]:
            return True
        if key == nothing and rest.constant >= 0:
            return True
    return False


def _least(form: Form) -> Form:
    """Return the smallest form that is not negative where one is: t for 3 * t + 2."""
    factor = gcd(*form.terms.values()) if form.terms else 1
    if factor == 1:
        return form
    return Form({t: count // factor for t, count in form.terms.items()}, form.constant // factor)


def said_of_sizes(program: Program) -> Facts:
    """Return what a listing says of its sizes: contracts, and that what is read anyway is there.

    No size is negative. A loop over M that reads C[i] under no guard says that C has M elements;
    inside of a loop over K it says so only where K is no 0, unless C is empty, too, where K is.

    Args:
        program: The listing.
    """
    found: dict[Condition, None] = {}
    for parameter in program.parameters:
        if parameter.kind == "size":
            found[Relation(">=", Param(parameter.name), Int(0))] = None
    found |= dict.fromkeys(program.stated)
    shapes = {array.name: array.shape for array in program.arrays}
    for place in placed(program):
        if place.conditions:
            continue
        for relation in accesses(place.node):
            if relation.condition != ALWAYS:
                continue
            around = ranges_by_name((*place.loops, *relation.generators))
            access = relation.access
            ends = zip(access.indices, shapes[access.array], strict=False)
            pairs = tuple((index, extent) for index, extent in ends if isinstance(index, Var))
            for index, extent in pairs:
                bounds = around.get(index.name)
                if bounds is None or extent is None or bounds.step != 1:
                    continue
                if bounds.start != Int(0) or not isinstance(bounds.stop, Param):
                    continue
                others = around.keys() - {index.name}
                if all(_is_some(around[name]) for name in others):
                    found[Relation("<=", bounds.stop, extent)] = None
    return Facts(tuple(found))


def _is_some(bounds: Range) -> bool:
    """Tell whether a loop has iterations whatever the sizes are."""
    length = difference(bounds.stop, bounds.start)
    return isinstance(length, Int) and length.value * bounds.step > 0
