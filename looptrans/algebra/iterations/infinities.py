"""Tests against an infinity, left out where they say nothing of numbers.

    l = l * exp(m - n) + exp(x - n) if n > -inf else l     with n = max(m, x)
 -> l = l * exp(m - n) + exp(x - n)

All else in this folder takes names for numbers, of which such a test holds or does not hold. It may
be left out where the update is the same without it for every choice of names that are -inf instead:

    x alone, or m alone    both give one value, or the one with the test is no number either
    m and x                nothing has been seen yet: the one with the test keeps what there is, and
                           the one without does so, too, or is no number: then a guard goes there
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations, product
from math import isinf

from looptrans.algebra.iterations.inputs import Input
from looptrans.algebra.iterations.order import inputs_of
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.normal_forms.atoms import COMPARED, OO, NotANumber, Undefined
from looptrans.algebra.normal_forms.normal import Assumptions, equality
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.positional.numbers import Domain
from looptrans.algebra.positional.values import put, without_repeats
from looptrans.ir.condition import Condition, Data, Every, Not, Some, Truth, opposite
from looptrans.ir.program import Assign, Declaration, Program
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Call,
    Compare,
    Const,
    Holds,
    IndexValue,
    Read,
    Real,
    Reduce,
    Select,
    Unary,
    Value,
    infinity,
    walk_value,
)
from looptrans.ir.walk import nodes

MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class Extreme:
    """A maximum or minimum from an infinity on.

    Attributes:
        name: Its name.
        term: What one iteration offers.
        start: The infinity.
        is_final: Whether the name stands for what is left at the end, which no term exceeds.
    """

    name: str
    term: Value
    start: float
    is_final: bool = False


def extremes(
    updates: Mapping[str, Value],
    bottoms: Mapping[str, float | None],
    final: Mapping[str, str] | None = None,
) -> tuple[Extreme, ...]:
    """Return the states that are the greatest or the smallest of what iterations offer.

    Args:
        updates: The next value of each state.
        bottoms: The infinity that each may start from.
        final: The names of what is left of states, where these are meant.
    """
    found = []
    for name, update in updates.items():
        match update, bottoms[name]:
            case Call("max" | "min" as which, parts), float(start):
                others = tuple(part for part in parts if part != Real(name))
                if len(others) + 1 == len(parts) and (start < 0) == (which == "max"):
                    term = others[0] if len(others) == 1 else Call(which, others)
                    named = name if final is None else final[name]
                    found.append(Extreme(named, term, start, final is not None))
            case _:
                pass
    return tuple(found)


def with_tests(value: Value, inputs: Iterable[Input]) -> Value:
    """Write in full what is an input only as the test whether another input is an infinity.

    s + exp(x1 - t) if x2 else s    ->    s + exp(x1 - t) if x1 > -inf else s
    """
    names: dict[Value, Value] = {given.value: Real(given.name) for given in inputs}
    tests: dict[str, Value] = {}
    for tested, name in names.items():
        match tested, name:
            case Compare(op, left, right), Real(of):
                sides = (names.get(left, left), names.get(right, right))
                if any(
                    infinity(a) is not None and isinstance(b, Real) for a, b in permutations(sides)
                ):
                    tests[of] = Compare(op, *sides)
            case _:
                pass
    return put(value, tests)


def with_masks_tested(value: Value) -> Value:
    """Write what is chosen as a mask is as chosen by whether the mask has left anything.

    exp(x - n) if c else 0.0, with x = s if c else -inf    ->    exp(x - n) if x > -inf else 0.0

    Where c holds and s is -inf all the same, the two are one value, or the first is no number.
    """

    def change(part: Value) -> Value | None:
        if not isinstance(part, Select):
            return None
        condition = part.condition
        for holds, one, other in (
            (condition, part.chosen, part.otherwise),
            (opposite(condition), part.otherwise, part.chosen),
        ):
            for mask, bound in _masks(holds, one):
                if _is_left(_at(one, {mask: bound}), other):
                    test = Data(Compare(">" if bound < 0 else "<", mask, Const(bound)))
                    return Select(test, replaced(one, change), replaced(other, change))
        return None

    return replaced(value, change)


def _masks(condition: Condition, value: Value) -> Iterator[tuple[Select, float]]:
    """Yield what a value is made of that is an infinity where a condition does not hold."""
    for part in walk_value(value):
        if isinstance(part, Select):
            if part.condition == condition:
                bound = infinity(part.otherwise)
            elif opposite(part.condition) == condition:
                bound = infinity(part.chosen)
            else:
                continue
            if bound is not None:
                yield part, bound


def _is_left(value: Value, other: Value) -> bool:
    """Tell whether a value is another one, whatever numbers stand in what both are made of."""
    names: dict[Value, Value] = {}

    def named(part: Value) -> Value | None:
        if isinstance(part, Read | Reduce | Select | IndexValue):
            return names.setdefault(part, Real(f"@value{len(names)}"))
        return None

    one, two = replaced(value, named), replaced(other, named)
    return one == two or equality(one, two, Assumptions(Domain())).answer == "proved"


def tests_infinity(value: Value) -> bool:
    """Tell whether a value looks whether something is an infinity."""
    return any(True for _ in _tests(value))


def for_numbers(
    value: Value,
    state: str,
    initial: Value,
    known: tuple[Extreme, ...],
    domain: Domain | None = None,
) -> Value | None:
    """Return an update without its tests against infinities; None where it is another one.

    Args:
        value: The update of a state.
        state: The name of the state.
        initial: What it starts from.
        known: The extremes that the tests may be of.
        domain: What is known of the names.
    """
    without = _resolved(value)
    if without is None or without == value:
        return without
    places: dict[Value, float] = {}
    for tested, bound in _tests(value):
        for part in _parts(tested):
            places[part] = bound
    looked_at = tuple(e for e in known if places.keys() & {Real(e.name), *_parts(e.term)})
    for extreme in looked_at:
        places[Real(extreme.name)] = extreme.start
        places |= dict.fromkeys(_parts(extreme.term), extreme.start)
    if len(places) > MOST_NAMES:
        return None
    check = _Check(value, without, state, initial, domain or Domain())
    for which in product((False, True), repeat=len(places)):
        infinite = {part: places[part] for part, taken in zip(places, which, strict=True) if taken}
        left = [e for e in looked_at if Real(e.name) not in infinite]
        seen = [e for e in looked_at if not set(_parts(e.term)) <= infinite.keys()]
        if not infinite or any(e.is_final and e not in left for e in seen):
            continue
        nothing = bool(looked_at) and not left and not seen
        if not check.is_same(infinite, nothing=nothing):
            return None
    return without


def without_tests(step: Recurrence) -> dict[str, Value]:
    """Return the updates of a recurrence whose tests against infinities may be left out, so."""
    updates = {state.name: without_repeats(state.update) for state in step.states}
    known = extremes(
        {state.name: state.update for state in step.states},
        {state.name: state.bottom for state in step.states},
    )
    found = {}
    for state in step.states:
        written = with_tests(updates[state.name], step.inputs)
        made = for_numbers(written, state.name, state.initial, known, inputs_of(step))
        if made is not None:
            found[state.name] = state.update if made == written else made
    return found


@dataclass(frozen=True, slots=True)
class _Check:
    value: Value
    without: Value
    state: str
    initial: Value
    domain: Domain

    def is_same(self, infinite: Mapping[Value, float], *, nothing: bool) -> bool:
        """Tell whether an update is the same without its tests where some parts are infinite.

        Args:
            infinite: The parts.
            nothing: Whether nothing but infinities has been seen.
        """
        first = isinstance(self.initial, Const) and nothing
        names = {self.state: self.initial} if first else {}
        old = self.initial if first else Real(self.state)
        tested = _resolved(put(_at(self.value, infinite), names))
        if tested is None:
            return False
        plain = put(_at(self.without, infinite), names)
        if self._is_no_number(tested):
            return True
        if not nothing:
            return self._is_number(plain) and self._equal(tested, plain)
        return self._equal(tested, old) and (not self._is_number(plain) or self._equal(plain, old))

    def _equal(self, left: Value, right: Value) -> bool:
        return left == right or equality(left, right, Assumptions(self.domain)).answer == "proved"

    def _is_number(self, value: Value) -> bool:
        try:
            Terms(self.domain).normal(value)
        except Undefined:
            return False
        return True

    def _is_no_number(self, value: Value) -> bool:
        if any(isinstance(part, Select | Holds | Compare) for part in walk_value(value)):
            return False  # what is not taken may be what is no number
        try:
            Terms(self.domain).normal(value)
        except NotANumber:
            return True
        except Undefined:
            return False
        return False


def bottom_of(initial: Value, infinite: Mapping[str, frozenset[float]]) -> float | None:
    """Return the infinity that a state may start from.

    Args:
        initial: What it starts from.
        infinite: The infinities that cells of arrays may be.
    """
    found = may_be(initial, infinite)
    return next(iter(found)) if len(found) == 1 else None


def infinite_arrays(program: Program) -> dict[str, frozenset[float]]:
    """Return the infinities that a program itself puts into arrays, also from one into another."""
    found: dict[str, frozenset[float]] = {}
    given = [
        (node.array, node.creation.fill)
        for node in nodes(program.body)
        if isinstance(node, Declaration) and node.creation.fill is not None
    ]
    for node in nodes(program.body):
        if isinstance(node, Assign):
            given += zip((t.array for t in node.targets), node.values, strict=False)
    while True:
        before = dict(found)
        for array, value in given:
            found[array] = found.get(array, frozenset()) | may_be(value, found)
        if found == before:
            return found


def may_be(value: Value, infinite: Mapping[str, frozenset[float]]) -> frozenset[float]:
    """Return the infinities that a value may be by its form, where its inputs are numbers."""
    match value:
        case Const(float(number)) if isinf(number):
            return frozenset({number})
        case Unary("-", operand):
            return frozenset(-number for number in may_be(operand, infinite))
        case Read(access):
            return infinite.get(access.array, frozenset())
        case Select(_, one, other) | Call("where", (_, one, other)):
            return may_be(one, infinite) | may_be(other, infinite)
        case Call("max" | "min", (first, *others)) if others:
            common = may_be(first, infinite)
            for each in others:
                common &= may_be(each, infinite)
            return common
        case _:
            return frozenset()


def _tests(value: Value) -> Iterator[tuple[Value, float]]:
    """Yield what is compared with an infinity, and with which."""
    for part in walk_value(value):
        if isinstance(part, Compare):
            for side, other in ((part.left, part.right), (part.right, part.left)):
                bound = infinity(other)
                if bound is not None and infinity(side) is None:
                    yield side, bound


def _parts(value: Value) -> Iterator[Value]:
    """Yield what a maximum or minimum is taken of."""
    match value:
        case Call("max" | "min", arguments) if len(arguments) > 1:
            for argument in arguments:
                yield from _parts(argument)
        case Const():
            pass
        case _:
            yield value


def _at(value: Value, infinite: Mapping[Value, float]) -> Value:
    def change(part: Value) -> Value | None:
        return Const(infinite[part]) if part in infinite else None

    return replaced(value, change)


def at_infinities(value: Value, infinite: Mapping[Value, float]) -> Value | None:
    """Return a value where some of what it is made of is infinite, tests of that decided.

    None where one is part of something that is no choice.
    """
    return _resolved(_at(value, infinite))


def _resolved(value: Value) -> Value | None:
    """Return a value with its tests against infinities decided, as of numbers where none is put in.

    None where one is part of something that is no choice.
    """
    failed = False

    def change(part: Value) -> Value | None:
        nonlocal failed
        match part:
            case Select(condition, chosen, otherwise):
                made = _condition(condition)
                if isinstance(made, Truth):
                    return replaced(chosen if made.value else otherwise, change)
                return Select(made, replaced(chosen, change), replaced(otherwise, change))
            case Call("where", (tested, chosen, otherwise)):
                made = _condition(Data(tested))
                if isinstance(made, Truth):
                    return replaced(chosen if made.value else otherwise, change)
                return None
            case Compare():
                decided = _decided(part)
                failed = failed or (decided is None and tests_infinity(part))
                return None if decided is None else Const(decided)
            case Holds(condition):
                made = _condition(condition)
                return Const(made.value) if isinstance(made, Truth) else Holds(made)
            case _:
                return None

    def _condition(condition: Condition) -> Condition:
        match condition:
            case Data(Holds(inner)):
                return _condition(inner)
            case Data(tested):
                made = replaced(tested, change)
                if isinstance(made, Const):
                    return Truth(bool(made.value))
                return Data(made)
            case Not(part):
                made_part = _condition(part)
                return (
                    Truth(not made_part.value) if isinstance(made_part, Truth) else Not(made_part)
                )
            case Every(parts) | Some(parts):
                decides = isinstance(condition, Some)
                found = [_condition(part) for part in parts]
                if Truth(decides) in found:
                    return Truth(decides)
                open_ = tuple(part for part in found if not isinstance(part, Truth))
                if not open_:
                    return Truth(not decides)
                return open_[0] if len(open_) == 1 else type(condition)(open_)
            case _:
                return condition

    made = replaced(value, change)
    return None if failed else made


def _decided(test: Compare) -> bool | None:
    """Decide a comparison with an infinity; None for any other."""
    sides = (test.left, test.right)
    if all(infinity(side) is None for side in sides):
        return None
    forms = []
    for side in sides:
        try:
            form = Terms().normal(side)
        except NotANumber:
            return test.op == "!="
        except Undefined:
            return None
        forms.append(form if form in (OO, -OO) else 0)
    return bool(COMPARED[test.op](*forms))
