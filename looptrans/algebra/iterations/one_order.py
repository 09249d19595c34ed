"""Sums and maxima in the order in which they stand elsewhere, so that they are seen as one.

    max(m, s + b), exp(b + s - m)          ->   max(m, s + b), exp(s + b - m)
    max(m, s + b), exp(m - max(b + s, m))  ->   max(m, s + b), exp(m - max(m, s + b))
    min(m, s), exp(-max(-m, -s) - m)       ->   min(m, s), exp(min(m, s) - m)

A normal form has an order of its own; what is written back from it does not say which sum a
statement has worked out already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.algebra.positional.values import ZERO, add, negative, summands
from looptrans.ir.rewrite import replaced
from looptrans.ir.value import Call, Value


def in_one_order(step: Recurrence) -> Recurrence:
    """Write maxima and minima, and what they are taken of, in one order wherever they stand."""
    taken = [
        state.update
        for state in step.states
        if isinstance(state.update, Call) and state.update.function in ("max", "min")
    ]
    arguments = {argument: argument for extremum in taken for argument in extremum.arguments}

    def change(part: Value) -> Value | None:
        if isinstance(part, Call):
            for extremum in taken:
                own = Counter(part.arguments)
                if part.function == extremum.function and own == Counter(extremum.arguments):
                    return extremum
        terms = [(sign, term, _mirrored(term, taken)) for sign, term in summands(part)]
        if all(other is None for _, _, other in terms):
            return None
        total: Value = ZERO
        for sign, term, other in terms:
            value = replaced(term, change) if other is None else other
            signed = value if (sign > 0) == (other is None) else negative(value)
            total = signed if total == ZERO else add(total, signed)
        return total

    states = tuple(
        replace(s, update=replaced(with_sums(s.update, arguments), change)) for s in step.states
    )
    return replace(step, states=states)


def _mirrored(value: Value, taken: list[Call]) -> Call | None:
    """Return the extremum of which a value is the opposite: min(m, s) of max(-m, -s)."""
    if isinstance(value, Call) and value.function in ("max", "min"):
        own = Counter(_terms(argument, -1) for argument in value.arguments)
        for extremum in taken:
            if extremum.function != value.function and own == Counter(
                map(_terms, extremum.arguments)
            ):
                return extremum
    return None


def _terms(value: Value, sign: int = 1) -> frozenset[tuple[tuple[int, Value], int]]:
    return frozenset(Counter(summands(value, sign)).items())


def with_sums(value: Value, known: Mapping[Value, Value]) -> Value:
    """Replace sums by what they are known as, in whatever order their terms stand.

    Args:
        value: The value.
        known: What stands for sums; other values in it are not looked for.
    """
    sums = {given: terms for given in known if len(terms := summands(given)) > 1}

    def change(part: Value) -> Value | None:
        terms = summands(part)
        for given, wanted in sums.items() if len(terms) > 1 else ():
            left = list(terms)
            for term in wanted:
                if term not in left:
                    break
                left.remove(term)
            else:
                rest = ((sign, with_sums(term, known)) for sign, term in left)
                return add(known[given], *(t if sign > 0 else negative(t) for sign, t in rest))
        return None

    return replaced(value, change) if sums else value
