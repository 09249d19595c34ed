"""Closed forms: the result of a whole block of iterations at once.

    c1 = max_j x1          c2 = sum_j exp(x1 - c1)          c3 = sum_j exp(x1 - c1) * x2 / c2

Appending the block to a state is then one application of the operator.
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.algebra.atoms import Undefined
from looptrans.algebra.laws import domain_of
from looptrans.algebra.normal import Assumptions, Equality, equality
from looptrans.algebra.operator import Operator
from looptrans.algebra.readable import factored
from looptrans.algebra.recurrence import Recurrence
from looptrans.algebra.terms import Terms
from looptrans.algebra.values import ZERO, add, put, subtract
from looptrans.ir.listing import value_text
from looptrans.ir.value import Real, Value


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
