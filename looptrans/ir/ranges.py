"""Ranges made of other ranges, and those of loops."""

from __future__ import annotations

from collections.abc import Iterable

from looptrans.ir.affine import difference, product, quotient, total
from looptrans.ir.program import Loop
from looptrans.ir.value import Generator, Range


def reversed_range(limits: Range) -> Range:
    """Return the range with the same values in the opposite order.

    The last value of `range(a, b, s)` is `a + (b - a - 1) // s * s`, for s > 0; for an empty range
    it lies before a, so that the reversed range is empty too.
    """
    step = limits.step
    way = 1 if step > 0 else -1
    if step == way:
        last = total(limits.stop, -way)
    else:
        span = (
            difference(limits.stop, limits.start)
            if step > 0
            else difference(limits.start, limits.stop)
        )
        last = total(limits.start, product(step, quotient(total(span, -1), abs(step))))
    return Range(last, total(limits.start, -way), -step)


def ranges_by_name(binders: Iterable[Loop | Generator]) -> dict[str, Range]:
    """Return the ranges of loops, or of what a reduction binds, by their variables."""
    return {each.variable: each.range for each in binders}


def ranges_in_common(binders: Iterable[Loop | Generator]) -> dict[str, Range]:
    """Return the ranges of variables that have the same one wherever they are bound."""
    found: dict[str, set[Range]] = {}
    for each in binders:
        found.setdefault(each.variable, set()).add(each.range)
    return {name: ranges.pop() for name, ranges in found.items() if len(ranges) == 1}


def upwards(limits: Range) -> Range:
    """Return the range that goes upwards over what a range goes over."""
    return limits if limits.step > 0 else reversed_range(limits)
