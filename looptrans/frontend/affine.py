"""Small questions about index expressions."""

from __future__ import annotations

from looptrans.ir.affine import form_of
from looptrans.ir.index import Arith, Extremum, Index, Int, Let, Neg, opaque_terms, plain, variables


def constant_of(index: Index) -> int | None:
    """Return the integer an index expression always is, or None."""
    match index:
        case Int(value):
            return value
        case Let(_, value):
            return constant_of(value)
        case Neg(operand):
            number = constant_of(operand)
            return None if number is None else -number
        case Arith(op, left, right):
            first, second = constant_of(left), constant_of(right)
            if first is None or second is None:
                return None
            match op:
                case "+":
                    return first + second
                case "-":
                    return first - second
                case "*":
                    return first * second
                case "//":
                    return first // second if second else None
                case "%":
                    return first % second if second else None
        case _:
            return None


def is_fixed(index: Index) -> bool:
    """Tell whether an index expression has the same value throughout a run."""
    bare = plain(index)
    return not variables(bare) and not opaque_terms(bare)


def chosen_extremum(
    symbol: str, left: Index, right: Index, chosen: Index, otherwise: Index
) -> Extremum | None:
    """Return a choice between two indices as the smaller or larger of them, where it is one.

    i - w if i >= w else 0    ->    max(i - w, 0)

    Args:
        symbol: `<`, `<=`, `>` or `>=`.
        left: What is tested on its left.
        right: What it is compared with.
        chosen: The index where the test holds.
        otherwise: The index where it does not.
    """
    sign = 1 if symbol in (">", ">=") else -1
    # What is 1 at least where the test holds, and 0 at most elsewhere.
    test = form_of(plain(left)).plus(form_of(plain(right)), -1).times(sign)
    least = 1 if symbol in ("<", ">") else 0
    apart = form_of(plain(chosen)).plus(form_of(plain(otherwise)), -1)
    above, below = apart.plus(test, -1), apart.plus(test)
    if above.is_constant and above.constant + least >= 0 >= above.constant + least - 1:
        return Extremum("max", (chosen, otherwise))
    if below.is_constant and below.constant - least <= 0 <= below.constant - least + 1:
        return Extremum("min", (chosen, otherwise))
    return None
