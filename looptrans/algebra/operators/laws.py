"""The laws a combine operator must obey, and their proofs.

With `.` for joining, `unit(x)` for the result of one iteration and ⊥ for that of none:

    one iteration    s . unit(x) = step(s, x)
    continuation     s . (b . unit(x)) = step(s . b, x)
    associativity    (a . b) . d = a . (b . d)
    no iteration     ⊥ . b = b,  a . ⊥ = a,  and ⊥ . ⊥ = ⊥ unless ⊥ is a case of its own
    first iteration  step(first state, x) = unit(x), where the first state is ⊥; else
    start            the first two laws where s is the first state
    signs            the components said to be positive are, in every part that is not empty
    coordinates      phi(step(s, x)) = phi(s) + h(x), where the operator has them
    masked iteration step(s, x) = s where an input is -inf; listed where it holds
    commutativity    a . b = b . a; not required, for parts are joined in order
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product

from looptrans.algebra.iterations.order import inputs_of
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.normal_forms.atoms import Undefined
from looptrans.algebra.normal_forms.normal import (
    Answer,
    Assumptions,
    Equality,
    equality,
    is_the_same,
)
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.operators.operator import Operator
from looptrans.algebra.positional.numbers import Domain
from looptrans.algebra.positional.values import names_of, put
from looptrans.ir.value import Binary, Call, Compare, Const, Real, Value


@dataclass(frozen=True, slots=True)
class Equation:
    """Two values that a law says are equal.

    Attributes:
        of: What of, `c2` or `s1`.
        left: One side.
        right: The other.
        proof: What was found.
    """

    of: str
    left: Value
    right: Value
    proof: Equality


@dataclass(frozen=True, slots=True)
class Law:
    """A law with the equations it consists of, decided.

    Attributes:
        name: One of the names above.
        statement: The law as a formula.
        equations: One for each component or state variable.
        is_required: Whether the operator is none without it.
        by_definition: Where not empty, why nothing is to be shown.
    """

    name: str
    statement: str
    equations: tuple[Equation, ...]
    is_required: bool = True
    by_definition: str = ""

    @property
    def answer(self) -> Answer:
        """Return `proved` if every equation is, `refuted` if one is, else `unknown`."""
        answers = {equation.proof.answer for equation in self.equations}
        if "refuted" in answers:
            return "refuted"
        return "unknown" if "unknown" in answers else "proved"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return what the proofs take for granted."""
        return tuple(
            dict.fromkeys(a for equation in self.equations for a in equation.proof.assumptions)
        )


def neutral_law(
    statement: str,
    equations: tuple[Equation, ...],
    none: Iterable[str],
    why: str = "is no number there, nor is it in the listing",
) -> Law:
    """Return the law that an element at the infinity adds nothing.

    Args:
        statement: The law as a formula.
        equations: Its equations.
        none: The states whose updates are no numbers there.
        why: Why nothing is lost by that.
    """
    names = ", ".join(dict.fromkeys(none))
    if not names:
        return Law("neutral", statement, equations)
    said = f"{names} {why}"
    return Law(
        "neutral",
        f"{statement}; {said}" if equations else statement,
        equations,
        by_definition="" if equations else said,
    )


def ways_to(term: Value, infinity: Const) -> tuple[dict[str, Value], ...]:
    """Return the smallest sets of inputs that, at infinities, make a term the infinity."""
    names = [name for name in dict.fromkeys(names_of(term)) if name.startswith("x")]
    ways: list[dict[str, Value]] = []
    for size in range(1, len(names) + 1):
        for chosen in combinations(names, size):
            if any(set(way) <= set(chosen) for way in ways):
                continue
            for signs in product((infinity, Const(-infinity.value)), repeat=size):
                infinite: dict[str, Value] = dict(zip(chosen, signs, strict=True))
                if is_the_same(put(term, infinite), infinity):
                    ways.append(infinite)
    return tuple(ways)


def step_of(recurrence: Recurrence, states: dict[str, Value]) -> dict[str, Value]:
    """Return the states after one more iteration."""
    return {state.name: put(state.update, states) for state in recurrence.states}


def laws(recurrence: Recurrence, operator: Operator) -> tuple[Law, ...]:
    """Decide every law for an operator, in a fixed order."""
    return _Laws(recurrence, operator).all()


def completed(recurrence: Recurrence, operator: Operator) -> Operator:
    """Return the operator with what can be said of its signs, and whether ⊥ is its own case."""
    positive, nonnegative = _signs(recurrence, operator)
    signed = replace(operator, positive=positive, nonnegative=nonnegative)
    law = _Laws(recurrence, replace(signed, guarded=False)).no_iteration()
    return replace(signed, guarded=law.answer != "proved")


@dataclass(frozen=True, slots=True)
class _Laws:
    recurrence: Recurrence
    operator: Operator

    def all(self) -> tuple[Law, ...]:
        found = [
            self.one_iteration(),
            self.continuation(),
            self.associativity(),
            self.no_iteration(),
        ]
        found.append(self.first_iteration() if self.starts_empty() else self.start())
        found.append(self.signs())
        if all(component.monoid for component in self.operator.components):
            found.append(self.coordinates())
        found += self.masked()
        found.append(self.commutativity())
        return tuple(found)

    def starts_empty(self) -> bool:
        return starts_empty(self.recurrence, self.operator)

    @property
    def _states(self) -> dict[str, Value]:
        return {state.name: Real(state.name) for state in self.recurrence.states}

    def _assumed(self) -> Assumptions:
        operator = self.operator
        return Assumptions(
            domain_of(self.recurrence, operator, operator.positive, operator.nonnegative)
        )

    def _decided(
        self, left: Value, right: Value, positive: frozenset[str] = frozenset()
    ) -> Equality:
        """Decide an equation; the signs are used only where it is not clear without them."""
        inputs = inputs_of(self.recurrence)
        plain = equality(left, right, Assumptions(_with(inputs, positive)))
        if not (self.operator.positive or self.operator.nonnegative):
            return plain
        if plain.answer == "proved" and not plain.needs:
            return plain
        return equality(left, right, Assumptions(_with(self._assumed().domain, positive)))

    def _components(
        self, left: Iterable[Value], right: Iterable[Value], letter: str = "c"
    ) -> tuple[Equation, ...]:
        return tuple(
            Equation(f"{letter}{number}", a, b, self._decided(a, b))
            for number, (a, b) in enumerate(zip(left, right, strict=True), 1)
        )

    def _of_states(
        self,
        left: dict[str, Value],
        right: dict[str, Value],
        positive: frozenset[str] = frozenset(),
    ) -> tuple[Equation, ...]:
        return tuple(
            Equation(
                name, left[name], right[name], self._decided(left[name], right[name], positive)
            )
            for name in self._states
        )

    def one_iteration(self) -> Law:
        left = self.operator.acted(self._states, self.operator.unit)
        right = step_of(self.recurrence, self._states)
        return Law("one iteration", "s . unit(x) = step(s, x)", self._of_states(left, right))

    def continuation(self) -> Law:
        part = self.operator.names("b")
        left = self.operator.acted(self._states, self.operator.combined(part, self.operator.unit))
        right = step_of(self.recurrence, self.operator.acted(self._states, part))
        statement = "s . (b . unit(x)) = step(s . b, x)"
        return Law("continuation", statement, self._of_states(left, right))

    def associativity(self) -> Law:
        a, b, d = (self.operator.names(letter) for letter in "abd")
        left = self.operator.combined(self.operator.combined(a, b), d)
        right = self.operator.combined(a, self.operator.combined(b, d))
        return Law("associativity", "(a . b) . d = a . (b . d)", self._components(left, right))

    def no_iteration(self) -> Law:
        statement = "⊥ . b = b, a . ⊥ = a, ⊥ . ⊥ = ⊥"
        if self.operator.guarded:
            why = "⊥ is a case of its own, in which the other side is taken as it is"
            return Law("no iteration", statement, (), by_definition=why)
        a, b, nothing = self.operator.names("a"), self.operator.names("b"), self.operator.identity
        equations = (
            *self._components(self.operator.combined(nothing, b), b, "⊥ . b, "),
            *self._components(self.operator.combined(a, nothing), a, "a . ⊥, "),
            *self._components(self.operator.combined(nothing, nothing), nothing, "⊥ . ⊥, "),
        )
        return Law("no iteration", statement, equations)

    def first_iteration(self) -> Law:
        first = {state.name: state.initial for state in self.recurrence.states}
        left = step_of(self.recurrence, first)
        right: dict[str, Value] = {
            component.state: component.unit
            for component in self.operator.components
            if component.state is not None
        }
        equations = self._of_states(left, right)
        if any(equation.proof.answer == "unknown" for equation in equations):
            # A factor of -inf must have a sign; a parameter may then have to be positive.
            positive = frozenset(p.name for p in self.recurrence.parameters if not p.is_truth)
            equations = self._of_states(left, right, positive)
        return Law("first iteration", "step(⊥, x) = unit(x)", equations)

    def start(self) -> Law:
        """Show the first two laws for the values the loop starts from, which may lack the signs."""
        first = {state.name: state.initial for state in self.recurrence.states}
        first = {n: v if isinstance(v, Const) else Real(n) for n, v in first.items()}
        part, one = self.operator.names("b"), self.operator.unit
        step = step_of(self.recurrence, first)
        longer = self.operator.acted(first, self.operator.combined(part, one))
        after = step_of(self.recurrence, self.operator.acted(first, part))
        equations = (
            *self._of_states(self.operator.acted(first, one), step),
            *self._of_states(longer, after),
        )
        statement = "the first two laws where s is what the loop starts from"
        return Law("start", statement, equations)

    def signs(self) -> Law:
        equations = []
        one = Const(1)
        together = self.operator.combined(self.operator.names("a"), self.operator.names("b"))
        signs = [(number, True) for number in self.operator.positive]
        signs += [(number, False) for number in self.operator.nonnegative]
        for number, strict in signs:
            for value in (self.operator.unit[number - 1], together[number - 1]):
                positive = Compare(">" if strict else ">=", value, Const(0))
                equations.append(
                    Equation(f"c{number}", positive, one, equality(positive, one, self._assumed()))
                )
        return Law(
            "signs", "unit(x) and a . b have the signs they are said to have", tuple(equations)
        )

    def coordinates(self) -> Law:
        states = self._states
        ahead = step_of(self.recurrence, states)
        equations = []
        for component in self.operator.components:
            coordinate, gain = component.coordinate, component.contribution
            if coordinate is None or gain is None or component.state is None:
                continue
            left = put(coordinate, ahead)
            right = joined(component.monoid, put(coordinate, states), gain)
            equations.append(Equation(component.state, left, right, self._decided(left, right)))
            if component.inverse is not None:
                back, own = put(component.inverse, self._coordinates_in()), Real(component.state)
                equations.append(Equation(component.state, back, own, self._decided(back, own)))
        statement = "phi(step(s, x)) = phi(s) + h(x), and phi can be undone"
        return Law("coordinates", statement, tuple(equations))

    def _coordinates_in(self) -> dict[str, Value]:
        """Return `y…` and `c…` over the states."""
        found: dict[str, Value] = {}
        for number, component in enumerate(self.operator.components, 1):
            if component.coordinate is not None and component.state is not None:
                found[f"y{number}"] = component.coordinate
                found[f"c{number}"] = Real(component.state)
        return found

    def masked(self) -> list[Law]:
        """Find the inputs at -inf for which an iteration changes nothing."""
        found = []
        for given in self.recurrence.inputs:
            if given.is_truth:
                continue
            masked = frozenset({given.name})
            equations = []
            for name, value in step_of(self.recurrence, self._states).items():
                assumed = Assumptions(self._assumed().domain, masked)
                proof = equality(value, Real(name), assumed)
                equations.append(Equation(name, value, Real(name), proof))
                if proof.answer != "proved":
                    break
            else:
                statement = f"step(s, x) = s where {given.name} is -inf and s is not ⊥"
                found.append(
                    Law("masked iteration", statement, tuple(equations), is_required=False)
                )
        return found

    def commutativity(self) -> Law:
        a, b = self.operator.names("a"), self.operator.names("b")
        left, right = self.operator.combined(a, b), self.operator.combined(b, a)
        equations = self._components(left, right)
        return Law("commutativity", "a . b = b . a", equations, is_required=False)


def joined(monoid: str, left: Value, right: Value) -> Value:
    """Return `left + right`, `left * right`, or the greater or smaller of the two."""
    if monoid == "+":
        return Binary("+", left, right)
    return Binary("*", left, right) if monoid == "*" else Call(monoid, (left, right))


def starts_empty(recurrence: Recurrence, operator: Operator) -> bool:
    """Tell whether the loop starts from the result of no iteration, not from a value of its own."""
    nothing = {c.state: c.identity for c in operator.components if c.state is not None}
    return all(_same_number(state.initial, nothing[state.name]) for state in recurrence.states)


def _same_number(a: Value, b: Value) -> bool:
    return isinstance(a, Const) and isinstance(b, Const) and a.value == b.value


def domain_of(
    recurrence: Recurrence,
    operator: Operator,
    positive: Iterable[int],
    nonnegative: Iterable[int] = (),
) -> Domain:
    """Return what laws may take for granted: signs of components, and what is true or false."""
    given = inputs_of(recurrence)
    return replace(
        given,
        positive=frozenset(_names(operator, positive)),
        nonnegative=given.nonnegative | frozenset(_names(operator, nonnegative)),
    )


def _with(domain: Domain, positive: frozenset[str]) -> Domain:
    return replace(domain, positive=domain.positive | positive)


def _names(operator: Operator, numbers: Iterable[int]) -> Iterator[str]:
    for number in numbers:
        yield from (f"{letter}{number}" for letter in "abcd")
        state = operator.components[number - 1].state
        if state is not None:
            yield state


def _signs(recurrence: Recurrence, operator: Operator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the components positive, and those not negative, in every part that is not empty."""
    together = operator.combined(operator.names("a"), operator.names("b"))
    alone = domain_of(recurrence, operator, ())
    signs = {number: _sign(unit, alone) for number, unit in enumerate(operator.unit, 1)}
    while True:
        positive = tuple(n for n, sign in signs.items() if sign == "positive")
        others = tuple(n for n, sign in signs.items() if sign == "nonnegative")
        domain = domain_of(recurrence, operator, positive, others)
        found = {}
        for number, sign in signs.items():
            joint = _sign(together[number - 1], domain)
            found[number] = min(sign, joint, key=_ORDER.index)
        if found == signs:
            return positive, others
        signs = found


_ORDER = ("", "nonnegative", "positive")


def _sign(value: Value, domain: Domain) -> str:
    terms = Terms(domain)
    try:
        form = terms.normal(value)
        if terms.sign(form) > 0:
            return "positive"
        return "nonnegative" if terms.is_nonnegative(form) else ""
    except Undefined:
        return ""
