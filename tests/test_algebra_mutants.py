"""Wrong operators and wrong steps fall, each with numbers or as unknown with what was tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import mpmath
import pytest

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.operators.laws import Law, completed, laws
from looptrans.algebra.operators.operator import Operator
from looptrans.algebra.positional.numbers import NoNumber, evaluate
from looptrans.algebra.positional.values import put
from looptrans.ir.listing import value_text
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Binary, Call, Compare, Const, Real, Select, Unary, Value, walk_value
from tests.algebra import SPLITTABLE, found

NAMES = [
    "sum",
    "product",
    "maximum",
    "several",
    "affine",
    "halved",
    "log-sum-exp",
    "unnormalized",
    "normalized",
    "log-sum-exp and mean",
    "welford",
    "argmax",
    "viterbi",
    "decayed",
]


@dataclass(frozen=True, slots=True)
class Mutant:
    what: str
    step: Recurrence
    operator: Operator


def changes(value: Value) -> Iterator[tuple[str, Value]]:
    """Yield what one change of a value makes of it: one wrong operator, operand or factor."""
    for number, part in enumerate(walk_value(value)):
        for text, new in _changed(part):
            yield f"{text} at {number}", _at(value, number, new)


def _changed(part: Value) -> Iterator[tuple[str, Value]]:
    match part:
        case Binary("+", left, right):
            yield "minus for plus", Binary("-", left, right)
            yield "a term left out", left
            yield "a term left out", right
        case Binary("-", left, right):
            yield "plus for minus", Binary("+", left, right)
        case Binary("*", left, right):
            yield "a factor left out", left
            yield "a factor left out", right
        case Binary("/", left, _):
            yield "a divisor left out", left
        case Call("max", arguments):
            yield "min for max", Call("min", arguments)
        case Call("min", arguments):
            yield "max for min", Call("max", arguments)
        case Call("exp", arguments):
            yield "exp2 for exp", Call("exp2", arguments)
            yield "no rescaling", Const(1.0)
        case Select(condition, chosen, otherwise):
            yield "the branches exchanged", Select(condition, otherwise, chosen)
        case Compare(">", left, right):
            yield "the comparison turned", Compare("<", left, right)
        case _:
            pass


def _at(value: Value, place: int, new: Value) -> Value:
    target = list(walk_value(value))[place]
    count = sum(1 for part in list(walk_value(value))[:place] if part == target)
    seen = -1

    def change(part: Value) -> Value | None:
        nonlocal seen
        if part == target:
            seen += 1
            if seen == count:
                return new
        return None

    return replaced(value, change)


@cache
def operator_mutants(name: str) -> tuple[Mutant, ...]:
    """Return wrong operators for the right step."""
    return tuple(_operator_mutants(name))


def _operator_mutants(name: str) -> Iterator[Mutant]:
    finding = found(SPLITTABLE[name])
    operator = finding.operator
    assert operator is not None
    step = finding.recurrence
    for number, component in enumerate(operator.components, 1):
        for what, combine in list(changes(component.combine))[:8]:
            changed = replace(component, combine=combine)
            parts = [*operator.components]
            parts[number - 1] = changed
            acts = dict(operator.act)
            if component.state is not None:
                names: dict[str, Value] = {}
                for n, other in enumerate(operator.components, 1):
                    if other.state is not None:
                        names[f"a{n}"] = Real(other.state)
                        names[f"c{n}"] = Real("t" + other.state[1:])
                acts[component.state] = put(combine, names)
            wrong = replace(operator, components=tuple(parts), act=tuple(acts.items()))
            yield Mutant(f"c{number}: {what}", step, wrong)
        if component.unit == Const(1.0):
            changed = replace(component, unit=Const(2.0))
            parts = [*operator.components]
            parts[number - 1] = changed
            yield Mutant(f"unit {number}", step, replace(operator, components=tuple(parts)))


@cache
def step_mutants(name: str) -> tuple[Mutant, ...]:
    """Return wrong steps held against the right operator."""
    return tuple(_step_mutants(name))


def _step_mutants(name: str) -> Iterator[Mutant]:
    finding = found(SPLITTABLE[name])
    assert finding.operator is not None
    step = finding.recurrence
    for number, state in enumerate(step.states):
        for what, update in list(changes(state.update))[1:5]:
            states = [*step.states]
            states[number] = replace(state, update=update)
            wrong = replace(step, states=tuple(states))
            yield Mutant(f"{state.name}: {what}", wrong, finding.operator)


def broken(mutant: Mutant) -> list[Law]:
    operator = completed(mutant.step, mutant.operator)
    return [
        law for law in laws(mutant.step, operator) if law.is_required and law.answer != "proved"
    ]


def same_everywhere(left: Value, right: Value) -> bool:
    """Tell whether two formulas agree at some twenty points: the mutant is then no mutant."""
    names = dict.fromkeys(
        p.name for v in (left, right) for p in walk_value(v) if isinstance(p, Real)
    )
    for n in range(20):
        point = {
            name: mpmath.mpf((7 * n + 5 * k) % 11 + 1) / (k + 2) for k, name in enumerate(names)
        }
        try:
            a, b = evaluate(left, point), evaluate(right, point)
        except NoNumber:
            return False
        if abs(a - b) > 1e-9:
            return False
    return True


def test_there_are_enough_mutants() -> None:
    for made in (operator_mutants, step_mutants):
        assert sum(len(made(name)) for name in NAMES) >= 50


@pytest.mark.parametrize("name", NAMES)
def test_wrong_operators_fall(name: str) -> None:
    rejected = 0
    for mutant in operator_mutants(name):
        failed = broken(mutant)
        assert failed, (mutant.what, mutant.operator.text())
        _assert_shown(failed)
        rejected += 1
    assert rejected


@pytest.mark.parametrize("name", NAMES)
def test_wrong_steps_do_not_obey_the_right_operator(name: str) -> None:
    for mutant in step_mutants(name):
        failed = broken(mutant)
        right = {s.name: s.update for s in found(SPLITTABLE[name]).recurrence.states}
        wrong = {s.name: s.update for s in mutant.step.states}
        if all(same_everywhere(right[k], wrong[k]) for k in right):
            continue
        assert failed, (mutant.what, [value_text(v) for v in wrong.values()])
        _assert_shown(failed)


def _assert_shown(failed: list[Law]) -> None:
    """Every refutation has numbers that show it, everything else says what was tried."""
    for law in failed:
        for equation in law.equations:
            proof = equation.proof
            if proof.answer == "unknown":
                assert proof.tried
            if proof.answer == "refuted" and proof.numbers:
                with mpmath.workdps(50):
                    point = {name: mpmath.mpf(text) for name, text in proof.numbers}
                    sides = [evaluate(v, point) for v in (equation.left, equation.right)]
                    assert abs(sides[0] - sides[1]) > 1e-9


def test_an_unary_minus_is_a_mutant_too() -> None:
    finding = found(SPLITTABLE["sum"])
    assert finding.operator is not None
    (component,) = finding.operator.components
    wrong = replace(component, combine=Binary("+", Real("a1"), Unary("-", Real("b1"))))
    mutant = Mutant("", finding.recurrence, replace(finding.operator, components=(wrong,)))
    assert {law.name for law in broken(mutant)} >= {"associativity"}
