"""The empty prefix: what guards the updates of a recurrence that starts from ⊥ = (-inf, 0, …).

    m_ij = max(m[i], x)                         while m_ij is -inf, nothing but -inf has been seen,
    l[i] = l[i] * exp(m[i] - m_ij) + …    ->    and l[i] = … if m_ij > -inf else l[i]

Without it `exp(-inf - -inf)` is nan. It may be put in where an element at -inf is neutral: what it
would have added later, when the maximum has become a number, is nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from looptrans.algebra.iterations.infinities import without_tests
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.normal_forms.normal import Assumptions, equality, has_value, is_the_same
from looptrans.algebra.operators.laws import Equation, Law, domain_of, neutral_law, ways_to
from looptrans.algebra.operators.operator import Operator
from looptrans.algebra.operators.tried import in_cells
from looptrans.algebra.positional.values import names_of, put, without_repeats
from looptrans.derivation.one_loop.writing import at_least_one, with_next_values
from looptrans.derivation.step import NotDone
from looptrans.ir.condition import Condition, Data, conjuncts
from looptrans.ir.listing import access_text
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import (
    Binary,
    Call,
    Compare,
    Const,
    Real,
    Select,
    Value,
    infinity,
    walk_value,
)
from looptrans.transforms.editing.accesses import listed


@dataclass(frozen=True, slots=True)
class Extremum:
    """A state that is a plain maximum or minimum and starts from an infinity.

    Attributes:
        state: Its name.
        start: The infinity.
        term: What one iteration offers.
    """

    state: str
    start: float
    term: Value

    @property
    def next(self) -> str:
        """The name of its next value."""
        return "t" + self.state[1:]


def extrema(step: Recurrence, operator: Operator) -> tuple[Extremum, ...]:
    """Return the states that are plain maxima and minima from an infinity on."""
    found = []
    for component in operator.components:
        if component.state is None or component.contribution is None:
            continue
        start = step.state(component.state).bottom
        plain = component.coordinate == Real(component.state)
        if component.monoid in ("max", "min") and plain and start is not None:
            term = _as_written(component.contribution, step.state(component.state).update)
            found.append(Extremum(component.state, start, term))
    return tuple(found)


def _as_written(term: Value, update: Value) -> Value:
    """Return what a maximum or minimum is offered in the words of the update: (a + b) / 30."""
    parts = (p for p in walk_value(update) if isinstance(p, Call) and p.function in ("max", "min"))
    offered = (each for part in parts for each in part.arguments if each != term)
    return next((each for each in offered if is_the_same(each, term)), term)


def starts_infinite(step: Recurrence) -> bool:
    """Tell whether a state starts from an infinity that another update may look at."""
    infinite = {s.name for s in step.states if s.bottom is not None}
    return any(
        infinite & set(names_of(state.update)) - {state.name} and state.name not in infinite
        for state in step.states
    )


def divides(step: Recurrence) -> bool:
    """Tell whether an update divides by something that depends on the state."""
    states = {state.name for state in step.states}
    return any(
        isinstance(part, Binary) and part.op == "/" and states & set(names_of(part.right))
        for state in step.states
        for part in walk_value(state.update)
    )


def conditions(
    updates: Mapping[str, Value], step: Recurrence, operator: Operator
) -> dict[str, Condition]:
    """Return the guard of each update that is no number while nothing but infinities was seen.

    Args:
        updates: The updates, over `t…` of others.
        step: The recurrence.
        operator: Its operator.
    """
    known = {extremum.next: extremum for extremum in extrema(step, operator)}
    found: dict[str, Condition] = {}
    for name in updates:
        if any(extremum.state == name for extremum in known.values()):
            continue
        reached = _reached(name, updates) | _offered(step.state(name).update)
        wanted = [known[t] for t in sorted(reached) if t in known]
        if wanted and not _is_number(step, name, wanted):
            condition = at_least_one((extremum.next, extremum.start) for extremum in wanted)
            assert condition is not None
            found[name] = condition
    return found


def _reached(name: str, updates: Mapping[str, Value]) -> set[str]:
    """Return the next values an update reads, and those they read in turn."""
    found: set[str] = set()
    queue = [name]
    while queue:
        for read in names_of(updates[queue.pop()]):
            if read.startswith("t") and read not in found:
                found.add(read)
                if "s" + read[1:] in updates:
                    queue.append("s" + read[1:])
    return found


def _offered(update: Value) -> set[str]:
    """Return the next values that an update works out for itself, in other words than theirs."""
    return {
        "t" + name[1:]
        for part in walk_value(update)
        if isinstance(part, Call) and part.function in ("max", "min")
        for offered in part.arguments
        for name in names_of(offered)
        if name.startswith("s")
    }


def _is_number(step: Recurrence, name: str, wanted: list[Extremum]) -> bool:
    """Tell whether an update has a value while nothing but infinities was seen."""
    nothing: dict[str, Value] = {
        s.name: s.initial if s.bottom is None else Const(s.bottom) for s in step.states
    }
    values = [step.state(name).update]
    for extremum in wanted:
        values = [at for value in values for at in at_infinity(value, extremum)]
    return all(has_value(put(value, nothing)) for value in values)


def at_infinity(value: Value, extremum: Extremum) -> tuple[Value, ...]:
    """Return a value where an iteration offers the infinity, for each way in which it may.

    exp(x1 - s1), where max(s1, x1 + 1.0) is offered    ->    exp(-inf - s1)

    A way in which it has no value at all is left out: there the listing itself gives nan, as
    exp(x1 + x2 - s1) * x1 does where x1 is the infinity.
    """
    start = Const(extremum.start)

    def change(part: Value) -> Value | None:
        return start if part == extremum.term else None

    plain = replaced(value, change)
    if isinstance(extremum.term, Real) or not set(names_of(extremum.term)) & set(names_of(plain)):
        return (plain,)
    made = (put(value, way) for way in ways_to(extremum.term, start))
    return tuple(each for each in made if has_value(each)) or (plain,)


def neutral(step: Recurrence, operator: Operator, guards: Mapping[str, Condition]) -> Law:
    """Show that an element at the infinity changes nothing once there has been a number."""
    equations, none = [], []
    domain = domain_of(step, operator, operator.positive, operator.nonnegative)
    for extremum in extrema(step, operator):
        for name, condition in guards.items():
            if extremum.next not in _tested(condition):
                continue
            for update in at_infinity(step.state(name).update, extremum):
                if not has_value(update):
                    none.append(name)
                    continue
                proof = equality(update, Real(name), Assumptions(domain))
                equations.append(Equation(name, update, Real(name), proof))
    statement = "step(s, x) = s where x is as small as ⊥ and s is not ⊥"
    return neutral_law(statement, tuple(equations), none)


def masked(
    step: Recurrence, operator: Operator, guards: Mapping[str, Condition]
) -> tuple[dict[str, Condition], Law]:
    """Return guards against a first element of -inf, where a later one changes nothing.

    log(exp(g - t) + exp(x - t)) + t with t = max(g, x) is g where x is -inf, and no number where
    g is, too: a part may begin with what the listing finds in between.

    Returns:
        The guards, over inputs, and the law that such an element changes nothing.
    """
    found: dict[str, Condition] = {}
    equations: list[Equation] = []
    domain = domain_of(step, operator, operator.positive, operator.nonnegative)
    start: dict[str, Value] = {state.name: state.initial for state in step.states}
    for state in step.states:
        inputs = [x.name for x in step.inputs if x.name in names_of(state.update)]
        for name in inputs:
            least = {**start, name: Const(-inf)}
            if state.name in guards or has_value(put(state.update, least)):
                continue
            own = Real(state.name)
            proof = equality(state.update, own, Assumptions(domain, frozenset({name})))
            if proof.answer == "proved" and state.name not in found:
                found[state.name] = Data(Compare("!=", Real(name), Const(-inf)))
                equations.append(Equation(state.name, state.update, own, proof))
    statement = "step(s, x) = s where x is -inf and s is not ⊥"
    return found, Law("masked iteration", statement, tuple(equations))


def _tested(condition: Condition) -> set[str]:
    parts = conjuncts(condition)
    return {name for part in parts if isinstance(part, Data) for name in names_of(part.value)}


def unguarded(step: Recurrence) -> tuple[Recurrence, dict[str, Condition]]:
    """Take the guards off the updates of a recurrence, and other tests against infinities.

    A test that says more than that nothing is added to nothing stays where it is.

    Returns:
        The recurrence, and the guard of each update that has one, over `t…`.
    """
    guards: dict[str, Condition] = {}
    updates = {state.name: state.update for state in step.states}
    plain = without_tests(step)
    for state in step.states:
        match without_repeats(state.update):
            case Select(condition, _, Real(old)) if old == state.name and old in plain:
                named = _over_next(condition, updates)
                if named is not None:
                    guards[state.name] = named
            case _:
                pass
    states = tuple(replace(s, update=plain.get(s.name, s.update)) for s in step.states)
    return replace(step, states=states), guards


def _over_next(condition: Condition, updates: Mapping[str, Value]) -> Condition | None:
    """Return a guard over next values; None where the condition is no guard."""
    found = []
    for part in conjuncts(condition):
        match part:
            case Data(Compare(">" | "<" as op, tested, bound)):
                start = infinity(bound)
                name = next((n for n, update in updates.items() if update == tested), None)
                if name is None or start is None or (op == ">") != (start < 0):
                    return None
                found.append(("t" + name[1:], start))
            case _:
                return None
    return at_least_one(found)


def require_proved(law: Law, step: Recurrence, *, decisive: bool = True) -> Law:
    """Return a law that is proved.

    Args:
        law: The law.
        step: The recurrence it is of.
        decisive: Whether there is no other way where it is refuted.

    Raises:
        NotDone: It is not.
    """
    if law.answer != "proved":
        open_ = [e.of for e in law.equations if e.proof.answer != "proved"]
        of = listed([in_cells(step, each) for each in open_])
        statement = in_cells(step, law.statement)
        raise NotDone(
            f"the law {law.name} ({statement}) is {law.answer} for {of}",
            "illegal" if law.answer == "refuted" and decisive else "unknown",
        )
    return law


def guard_laws(
    step: Recurrence, operator: Operator, guards: Mapping[str, Condition]
) -> tuple[Law, Law]:
    """Say what guards leave out, and prove that nothing is lost by it.

    Raises:
        NotDone: That is not proved.
    """
    which = Law(
        "guard",
        "what the guard leaves out is no number",
        (),
        by_definition=f"as long as {listed(names_in_guard(step, guards))} has not moved, the "
        "listing's own update takes an infinity from itself",
    )
    return which, require_proved(neutral(step, operator, guards), step)


def names_in_guard(step: Recurrence, guards: Mapping[str, Condition]) -> list[str]:
    """Return the cells that guards look at, as the listing writes them."""
    tested = dict.fromkeys(n for c in guards.values() for n in sorted(_tested(c)))
    return [access_text(step.state("s" + name[1:]).access) for name in tested]


def next_values(step: Recurrence) -> dict[str, Value]:
    """Return the updates of a recurrence over `t…` of others."""
    return with_next_values({state.name: state.update for state in step.states})
