"""Products with what is looked up, told apart from the other terms of a sum.

Q[i, e] * (K[j, e] + R[min(j - i, c), e])    Q[i, e] is multiplied with K[j, e], and with a row of R
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from looptrans.algebra.positional.cells import added_up
from looptrans.ir.index import (
    Var,
    variables,
)
from looptrans.ir.value import (
    Access,
    Binary,
    Read,
    Unary,
    Value,
    Whole,
    free_variables,
    walk_value,
)


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A product with a row that is looked up.

    Attributes:
        own: What it is multiplied with, of rows that are known.
        access: What is looked up.
        where: The number of the subscript that says where.
        others: Factors that are the same for all that is summed.
    """

    own: Value
    access: Access
    where: int
    others: tuple[Value, ...]


def looked_up_apart(
    body: Value, over: str
) -> tuple[tuple[Value, ...], list[tuple[bool, Value, LookedUp | None]]]:
    """Return the factors of what is summed, of which one is a sum, and the terms of that.

    Of each term it is said whether it is taken away, and what is looked up in it. There are no
    terms where nothing is.

    Args:
        body: What is summed.
        over: The variable it is summed over.
    """
    factors = tuple(_factors(body))
    for number, factor in enumerate(factors):
        others = (*factors[:number], *factors[number + 1 :])
        terms = [
            (is_negative, term, _looked_up(tuple(_factors(term)), others, over))
            for is_negative, term in _added(factor)
        ]
        if any(looked is not None for _, _, looked in terms):
            return others, terms
    return (), []


def product_of(factors: tuple[Value, ...]) -> Value:
    """Return the product of one factor or more, in their order."""
    value = factors[-1]
    for factor in reversed(factors[:-1]):
        value = Binary("*", factor, value)
    return value


def total_of(terms: list[tuple[bool, Value]]) -> Value:
    """Return the sum of one term or more; of each it is said whether it is taken away."""
    (is_negative, value), *more = terms
    value = Unary("-", value) if is_negative else value
    for is_negative, term in more:
        value = Binary("-" if is_negative else "+", value, term)
    return value


def _looked_up(factors: tuple[Value, ...], others: tuple[Value, ...], over: str) -> LookedUp | None:
    """Return what is looked up among factors, and what it is multiplied with, of all factors."""
    for number, factor in enumerate(factors):
        if not isinstance(factor, Read) or any(
            isinstance(s, Whole) for s in factor.access.subscripts
        ):
            continue
        access = factor.access
        rest = (*others, *factors[:number], *factors[number + 1 :])
        own = tuple(each for each in rest if over in free_variables(each))
        rows = set().union(*map(free_variables, own)) - {over}
        at = [index for index in access.indices if over in variables(index)]
        where = [
            n
            for n, index in enumerate(access.indices)
            if (added := set(added_up(index))) & rows and added - rows
        ]
        known = any(isinstance(part, Read) for each in own for part in walk_value(each))
        if at == [Var(over)] and len(where) == 1 and known:
            same = tuple(each for each in rest if over not in free_variables(each))
            return LookedUp(product_of(own), access, where[0], same)
    return None


def _factors(value: Value) -> Iterator[Value]:
    match value:
        case Binary("*", left, right):
            yield from _factors(left)
            yield from _factors(right)
        case _:
            yield value


def _added(value: Value, *, is_negative: bool = False) -> Iterator[tuple[bool, Value]]:
    """Yield what a value is the sum of, and whether it is taken away."""
    match value:
        case Binary("+" | "-" as op, left, right):
            yield from _added(left, is_negative=is_negative)
            yield from _added(right, is_negative=is_negative != (op == "-"))
        case Unary("-", operand):
            yield from _added(operand, is_negative=not is_negative)
        case _:
            yield is_negative, value
