"""Index expressions as sums of terms, to see that two of them are the same.

The normal form is a constant and an integer factor for each term; a term is a variable, a
parameter, or a division, extremum or opaque term whose operands are in normal form themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from looptrans.analysis.normal import Normalizer
from looptrans.ir.index import (
    Arith,
    Extremum,
    Index,
    Int,
    Neg,
    Opaque,
    Param,
    Var,
)

Term: TypeAlias = tuple[object, ...]
Linear: TypeAlias = tuple[int, tuple[tuple[Term, int], ...]]


def linear(index: Index, normal: Normalizer, values: Mapping[str, Linear] | None = None) -> Linear:
    """Return the sum of terms an index expression is.

    Args:
        index: The expression.
        normal: What brings it into normal form first.
        values: What variables stand for.
    """
    return _linear(normal.index(index), values or {})


def _linear(index: Index, values: Mapping[str, Linear]) -> Linear:
    match index:
        case Int(value):
            return value, ()
        case Var(name):
            return values[name] if name in values else _term(("var", name))
        case Param(name):
            return _term(("param", name))
        case Neg(operand):
            return _scaled(_linear(operand, values), -1)
        case Arith("+", left, right):
            return _sum(_linear(left, values), _linear(right, values))
        case Arith("-", left, right):
            return _sum(_linear(left, values), _scaled(_linear(right, values), -1))
        case Arith("*", left, right):
            first, second = _linear(left, values), _linear(right, values)
            if not first[1]:
                return _scaled(second, first[0])
            if not second[1]:
                return _scaled(first, second[0])
            return _term(("*", *sorted((first, second), key=repr)))
        case Arith(op, left, right):
            return _term((op, _linear(left, values), _linear(right, values)))
        case Extremum(op, arguments):
            parts = {_linear(argument, values) for argument in arguments}
            return parts.pop() if len(parts) == 1 else _term((op, *sorted(parts, key=repr)))
        case Opaque(array, arguments):
            return _term(("at", array, *(_linear(a, values) for a in arguments)))
        case _:
            raise AssertionError(index)


def _term(term: Term) -> Linear:
    return 0, ((term, 1),)


def _scaled(sum_: Linear, factor: int) -> Linear:
    constant, terms = sum_
    if factor == 0:
        return 0, ()
    return constant * factor, tuple((term, count * factor) for term, count in terms)


def _sum(first: Linear, second: Linear) -> Linear:
    counts: dict[Term, int] = dict(first[1])
    for term, count in second[1]:
        counts[term] = counts.get(term, 0) + count
    kept = sorted(((t, c) for t, c in counts.items() if c), key=repr)
    return first[0] + second[0], tuple(kept)


def summed(first: Linear, second: Linear, factor: int, constant: int) -> Linear:
    """Return `first + factor * second + constant`."""
    total, terms = _sum(first, _scaled(second, factor))
    return total + constant, terms
