"""Closed forms: the result of a whole block of iterations at once.

    c1 = max_j x1          c2 = sum_j exp(x1 - c1)          c3 = sum_j exp(x1 - c1) * x2 / c2

Appending the block to a state is then one application of the operator.
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.normal_forms.atoms import Undefined
from looptrans.algebra.normal_forms.normal import Assumptions, Equality, equality
from looptrans.algebra.normal_forms.readable import factored
from looptrans.algebra.normal_forms.terms import Terms
from looptrans.algebra.operators.laws import Equation, Law, domain_of, joined, starts_empty
from looptrans.algebra.operators.operator import Operator
from looptrans.algebra.positional.numbers import Domain
from looptrans.algebra.positional.values import ZERO, add, put, subtract
from looptrans.ir.listing import value_text
from looptrans.ir.monoids import IDENTITIES
from looptrans.ir.value import Const, Real, Value


@dataclass(frozen=True, slots=True)
class BlockComponent:
    """A component of the result of a block.

    Attributes:
        monoid: What joins the terms of the iterations: `+`, `*`, `max` or `min`.
        term: The term of one iteration, over inputs, parameters and the `c…` before.
        value: The component, over the joined terms `y…` and the `c…` before.
        proof: That this is the coordinate brought back.
    """

    monoid: str
    term: Value
    value: Value
    proof: Equality


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """The result of a block of iterations, none of which looks at another.

    Attributes:
        components: One for each component of the operator.
    """

    components: tuple[BlockComponent, ...]

    def text(self, loop: str) -> str:
        """Return it as lines for a person to read."""
        words = {"+": "sum", "*": "product", "max": "max", "min": "min"}
        lines = []
        for number, component in enumerate(self.components, 1):
            term = value_text(component.term)
            joined = Real(f"{words[component.monoid]}_{loop}({term})")
            value = put(component.value, {f"y{number}": joined})
            lines.append(f"c{number} = {value_text(value)}")
        return "\n".join(lines)


def closed_form(recurrence: Recurrence, operator: Operator) -> ClosedForm | None:
    """Return the closed form of a block; None where the operator has no coordinates.

    The law `coordinates` says that every iteration only joins its term to the coordinate. What is
    left is to bring the coordinates of a block back. Where the inverse is affine, `y * factor +
    rest`, that is done inside the sum, since the factor is the same for the whole block; so
    exponentials are only taken of differences.
    """
    found = []
    for number, component in enumerate(operator.components, 1):
        term, inverse = component.contribution, component.inverse
        if not component.monoid or term is None or inverse is None:
            return None
        y = f"y{number}"
        inside = _inside(recurrence, operator, inverse, term, y)
        if component.monoid == "+" and inside is not None:
            found.append(inside)
        else:
            found.append(BlockComponent(component.monoid, term, inverse, equality(term, term)))
    return ClosedForm(tuple(found))


def _inside(
    recurrence: Recurrence, operator: Operator, inverse: Value, term: Value, y: str
) -> BlockComponent | None:
    """Bring the inverse inside the sum; None where it is not affine."""
    domain = domain_of(recurrence, operator, operator.positive, operator.nonnegative)
    terms = Terms(domain)
    try:
        rest = factored(terms.normal(put(inverse, {y: ZERO})), terms)
        scaled = factored(terms.normal(subtract(put(inverse, {y: term}), rest)), terms)
    except Undefined:
        return None
    other = Real("z" + y[1:])
    both = put(inverse, {y: add(Real(y), other)})
    apart = add(inverse, subtract(put(inverse, {y: other}), rest))
    proof = equality(both, apart, Assumptions(domain))
    return (
        BlockComponent("+", scaled, add(Real(y), rest), proof) if proof.answer == "proved" else None
    )


@dataclass(frozen=True, slots=True)
class FoldComponent:
    """A state variable after the whole loop, as one sum, product, maximum or minimum.

        cell = start; for each iteration: cell = cell + term; cell = finish

    Attributes:
        state: The state variable.
        monoid: What joins the terms: `+`, `*`, `max` or `min`.
        start: What is joined with the terms, over the states before the loop `s…` and the final
            states `c…` before this one; None where it is what the cell holds before the loop.
        term: The term of one iteration, over inputs, parameters and the `c…` before.
        finish: The final state, over what was gathered `y` and the `c…` before.
    """

    state: str
    monoid: str
    start: Value | None
    term: Value
    finish: Value


@dataclass(frozen=True, slots=True)
class ClosedFold:
    """What a whole loop leaves in its state, none of whose iterations looks at another.

    Attributes:
        components: One for each state variable, each over the final values of those before it.
        law: That they are what the loop leaves behind, decided.
    """

    components: tuple[FoldComponent, ...]
    law: Law


def closed_fold(recurrence: Recurrence, operator: Operator) -> ClosedFold | None:
    """Return the closed form of a loop with all its iterations.

    By the law `coordinates` an iteration only joins its term h(x) to phi(s); so the whole loop adds
    them all to phi of what it started from. Two things are shown besides: a loop that starts from
    nothing (⊥) has the coordinate h(x) after its first iteration, and with no iteration at all the
    closed form gives the first state; a loop that starts from anything else obeys `coordinates`
    there too, and its first state can be told from its coordinates.

    Returns:
        The closed form; None where the operator has no coordinates.
    """
    block = closed_form(recurrence, operator)
    if block is None or any(component.state is None for component in operator.components):
        return None
    empty = starts_empty(recurrence, operator)
    domain = domain_of(recurrence, operator, operator.positive, operator.nonnegative)
    found, equations = [], []
    first = {state.name: state.initial for state in recurrence.states}
    first = {n: v if isinstance(v, Const) else Real(n) for n, v in first.items()}
    ahead = {state.name: put(state.update, first) for state in recurrence.states}
    units = {c.state: c.unit for c in operator.components if c.state is not None}
    nothing: dict[str, Value] = {}
    for number, (own, part) in enumerate(
        zip(operator.components, block.components, strict=True), 1
    ):
        phi, gain, inverse = own.coordinate, own.contribution, own.inverse
        if own.state is None or phi is None or gain is None or inverse is None:
            return None
        name = f"c{number}"
        if part.proof.answer != "proved":
            return None
        finish = put(part.value, {f"y{number}": Real("y")})
        start: Value | None = Const(IDENTITIES[part.monoid])
        initial = first[own.state]
        equations.append(Equation(name, part.term, part.term, part.proof))
        if empty:
            equations.append(_equation(name, put(phi, units), gain, domain))
            nothing[name] = initial
            equations.append(_none_at_all(name, finish, part.monoid, nothing, initial))
        else:
            free = domain_of(recurrence, operator, ())
            left, right = put(phi, ahead), joined(part.monoid, put(phi, first), gain)
            equations.append(_equation(name, left, right, free))
            start, finish = _started(part, inverse, number, put(phi, first), domain, finish)
            nothing |= {f"y{number}": put(phi, first), name: initial}
            equations.append(_equation(name, put(inverse, nothing), initial, free))
        if start == initial or (start == Real(own.state) and finish == Real("y")):
            start = None
        found.append(FoldComponent(own.state, part.monoid, start, part.term, finish))
    statement = "after all iterations phi(s) is what it was at first and every h(x), joined"
    law = Law("closed form", statement, tuple(equations))
    return ClosedFold(tuple(found), law)


def _started(
    part: BlockComponent,
    inverse: Value,
    number: int,
    coordinate: Value,
    domain: Domain,
    finish: Value,
) -> tuple[Value, Value]:
    """Return what a gathered component starts from and ends as, for a loop with a first state."""
    y = f"y{number}"
    if part.term is not None and finish != put(inverse, {y: Real("y")}):
        # The terms were brought back one by one; so is the first of them.
        terms = Terms(domain)
        return factored(terms.normal(put(inverse, {y: coordinate})), terms), Real("y")
    return coordinate, finish


def _equation(of: str, left: Value, right: Value, domain: Domain) -> Equation:
    return Equation(of, left, right, equality(left, right, Assumptions(domain)))


def _none_at_all(
    of: str, finish: Value, monoid: str, nothing: dict[str, Value], initial: Value
) -> Equation:
    """Show what the closed form gives where there is no iteration."""
    left = put(finish, {**nothing, "y": Const(IDENTITIES[monoid])})
    if left == initial:
        text = value_text(initial)
        return Equation(of, left, initial, Equality("proved", text, text))
    return Equation(of, left, initial, equality(left, initial))
