"""What is proved of a step before blocks of it are appended.

one iteration          a block of one iteration is the step
moving of the factor   A(s, t) * A(t, u) = A(s, u)
moving of the terms    B(x, t) * A(t, u) = B(x, u)
neutral                B(x, t) = 0 where x is as small as ⊥, so what a guard leaves out in
single iterations adds nothing in a block
one pick after another what two blocks pick is what the second does after the first
one step after another two steps a * s + b are one
first iteration        A(⊥, t) = 0, so nothing is kept of what was there before the guard held
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from looptrans.algebra.appending.append_state import AppendedState, Pick
from looptrans.algebra.iterations.order import inputs_of
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.normal_forms.normal import Assumptions, equality, has_value
from looptrans.algebra.operators.laws import Equation, Law, joined, neutral_law, ways_to
from looptrans.algebra.positional.values import ZERO, add, multiply, names_of, put
from looptrans.ir.monoids import Monoid
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Binary, Const, Real, Select, Value


def append_laws(step: Recurrence, states: tuple[AppendedState, ...]) -> tuple[Law, ...]:
    """Decide the laws of states that take blocks in.

    Args:
        step: The recurrence.
        states: Its states, in its order.
    """
    moved = [state for state in states if state.is_moved]
    picked = [(state, state.pick) for state in states if state.pick is not None]
    found = [one_iteration(step, states)]
    if picked:
        found.append(_picks_join(step, picked))
    if moved:
        found += [_factor_moves(step, moved), _terms_move(step, moved)]
    if any(state.guard is not None for state in moved):
        found += [_left_out(step, moved, states), _begun(step, moved)]
    return tuple(found)


def one_iteration(step: Recurrence, states: tuple[AppendedState, ...]) -> Law:
    """Prove that the form is the step, where neither condition nor guard forbids it."""
    updates: dict[str, Value] = {}
    for state in states:
        updates["t" + state.state.name[1:]] = state.state.update
    equations = []
    for state in states:
        name = state.state.name
        value: Value
        if state.pick is not None:
            value = Select(state.pick.moves(Real(state.pick.of)), state.term, Real(name))
        elif state.factor is None:
            value = joined(state.operator, Real(name), state.term)
        else:
            value = add(multiply(Real(name), state.factor), state.term)
        if state.guard is not None:
            value = Select(state.guard, value, Real(name))
        if state.condition is not None:
            value = Select(state.condition, value, Real(name))
        full = put(value, updates)
        equations.append(_proved(step, name, full, state.state.update))
    return Law("one iteration", "a block of one iteration is the step", tuple(equations))


def steps_join(step: Recurrence, state: AppendedState) -> Law:
    """Prove that two steps a * s + b are one, so that those of a block may be joined first."""
    a, b, c, d, s = (Real(name) for name in ("a1", "b1", "a2", "b2", state.state.name))
    one_by_one = add(multiply(c, add(multiply(a, s), b)), d)
    together = add(multiply(c, a, s), add(multiply(c, b), d))
    equation = _proved(step, state.state.name, one_by_one, together)
    statement = "c * (a * s + b) + d = (c * a) * s + (c * b + d)"
    return Law("one step after another", statement, (equation,))


def _proved(step: Recurrence, name: str, left: Value, right: Value) -> Equation:
    return Equation(name, left, right, equality(left, right, Assumptions(inputs_of(step))))


def _later(value: Value) -> Value:
    """Return a value one block further on: `t…` for `s…`, `u…` for `t…`."""
    names = {
        n: Real(("t" if n[0] == "s" else "u") + n[1:]) for n in names_of(value) if n[0] in "st"
    }
    return put(value, names)


def _far(value: Value) -> Value:
    """Return a value two blocks on, `u…` for `t…`."""
    return put(value, {n: Real("u" + n[1:]) for n in names_of(value) if n[0] == "t"})


def _factor_moves(step: Recurrence, moved: list[AppendedState]) -> Law:
    equations = []
    for state in moved:
        assert state.factor is not None
        factor = state.factor
        product = Binary("*", factor, _later(factor))
        name = state.state.name
        equations.append(_proved(step, name, product, _far(factor)))
        for other in step.states:
            if other.name in names_of(factor) and other.bottom is not None:
                first: dict[str, Value] = {other.name: Const(other.bottom)}
                left, right = put(product, first), put(_far(factor), first)
                equations.append(_proved(step, name, left, right))
    return Law("moving of the factor", "A(s, t) * A(t, u) = A(s, u)", tuple(equations))


def _terms_move(step: Recurrence, moved: list[AppendedState]) -> Law:
    equations = []
    for state in moved:
        assert state.factor is not None
        left = Binary("*", state.term, _later(state.factor))
        equations.append(_proved(step, state.state.name, left, _far(state.term)))
    return Law("moving of the terms", "B(x, t) * A(t, u) = B(x, u)", tuple(equations))


def _picks_join(step: Recurrence, picked: list[tuple[AppendedState, Pick]]) -> Law:
    """Prove that what a block and an iteration behind it pick is what both together do.

    With m the extremum, k the picked state, b and d what the block and the iteration offer the
    extremum, and p and q what they offer the picked state.
    """
    equations = []
    for state, pick in picked:
        word: Monoid = "max" if pick.comparison in (">", ">=") else "min"
        m, k, b, d, p, q = (Real(name) for name in ("m1", "k1", "b1", "d1", "b2", "d2"))

        def taken(over: Value, by: Value, new: Value, old: Value, pick: Pick = pick) -> Value:
            return Select(replace(pick, offered=by).moves(over), new, old)

        one_by_one = taken(joined(word, m, b), d, q, taken(m, b, p, k))
        together = taken(m, joined(word, b, d), taken(b, d, q, p), k)
        equations.append(_proved(step, state.state.name, one_by_one, together))
    statement = "the pick of two blocks is that of the second where it moves the first"
    return Law("one pick after another", statement, tuple(equations))


def _left_out(
    step: Recurrence, moved: list[AppendedState], states: tuple[AppendedState, ...]
) -> Law:
    """Prove that an iteration that offers an infinity to an extremum adds nothing.

    A term that is no number there, as exp(x - t) * x, is left out by blocks: the listing may have
    passed it by under its guard, and a later iteration of the block may make t a number.
    """
    terms = {state.state.name: state.term for state in states}
    equations, none = [], []
    for state in moved:
        without = dict(left_out(state, states))
        for name, bound in state.waits_for:
            if name in without:
                none.append(state.state.name)
                continue
            value = _at(state.term, terms[name], bound)
            equations.append(_proved(step, state.state.name, value, ZERO))
    statement = "B(x, t) = 0 where x is as small as ⊥"
    return neutral_law(statement, tuple(equations), none, "is given nothing there")


def left_out(
    state: AppendedState, states: Iterable[AppendedState]
) -> tuple[tuple[str, float], ...]:
    """Return the extrema that a term is no number for where an iteration offers them an infinity.

    Args:
        state: The state that the term is added to.
        states: All states.
    """
    terms = {each.state.name: each.term for each in states}
    found = []
    for name, bound in state.waits_for:
        plain = _at(state.term, terms[name], bound)
        cases = [plain]
        if set(names_of(terms[name])) & set(names_of(plain)):
            cases += [put(state.term, way) for way in ways_to(terms[name], Const(bound))]
        if not all(has_value(case) for case in cases):
            found.append((name, bound))
    return tuple(found)


def _begun(step: Recurrence, moved: list[AppendedState]) -> Law:
    """Prove that nothing is kept of what a state was before the guard held."""
    equations = []
    for state in moved:
        assert state.factor is not None
        for name, bound in state.waits_for:
            value = put(state.factor, {name: Const(bound)})
            equations.append(_proved(step, state.state.name, value, ZERO))
    return Law("first iteration", "A(⊥, t) = 0", tuple(equations))


def _at(value: Value, term: Value, bound: float) -> Value:
    """Put an infinity in for what an iteration offers."""
    return replaced(value, lambda part: Const(bound) if part == term else None)
