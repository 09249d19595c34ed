"""Sums and maxima in the order in which they stand elsewhere, so that they are seen as one.

    max(m, s + b), exp(b + s - m)          ->   max(m, s + b), exp(s + b - m)
    max(m, s + b), exp(m - max(b + s, m))  ->   max(m, s + b), exp(m - max(m, s + b))

A normal form has an order of its own; what is written back from it does not say which sum a
statement has worked out already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from looptrans.algebra.recurrence import Recurrence
from looptrans.algebra.values import add, negative, summands
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
        return None

    states = tuple(
        replace(s, update=replaced(with_sums(s.update, arguments), change)) for s in step.states
    )
    return replace(step, states=states)


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
