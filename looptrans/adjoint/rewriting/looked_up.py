"""Products with what is looked up, told apart from the other terms of a sum.

Q[i, e] * (K[j, e] + R[min(j - i, c), e])    Q[i, e] is multiplied with K[j, e], and with a row of R
"""

from __future__ import annotations

from dataclasses import dataclass

from looptrans.algebra.positional.cells import added_up
from looptrans.algebra.positional.values import factors_in, summands
from looptrans.ir.index import Var, variables
from looptrans.ir.value import Access, Binary, Read, Unary, Value, free_variables, walk_value


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
) -> tuple[tuple[Value, ...], list[tuple[int, Value, LookedUp | None]]]:
    """Return the factors of what is summed, of which one is a sum, and the terms of that.

    With each term come its sign and what is looked up in it. There are no terms where nothing is.

    Args:
        body: What is summed.
        over: The variable it is summed over.
    """
    factors = factors_in(body)
    for number, factor in enumerate(factors):
        others = (*factors[:number], *factors[number + 1 :])
        terms = [
            (sign, term, _looked_up(factors_in(term), others, over))
            for sign, term in summands(factor)
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


def total_of(terms: list[tuple[int, Value]]) -> Value:
    """Return the sum of one term or more, each with its sign."""
    (sign, value), *more = terms
    value = Unary("-", value) if sign < 0 else value
    for sign, term in more:
        value = Binary("-" if sign < 0 else "+", value, term)
    return value


def _looked_up(factors: tuple[Value, ...], others: tuple[Value, ...], over: str) -> LookedUp | None:
    """Return what is looked up among factors, and what it is multiplied with, of all factors."""
    for number, factor in enumerate(factors):
        if not isinstance(factor, Read) or factor.access.rank:
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
