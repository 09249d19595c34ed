"""The error of a gradient, and what it may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from looptrans.runtime.verifying.errors import (
    DRAWS,
    ROUNDING_TIMES,
    beside_roundings,
    fits_float32,
    negligible,
    norm,
    plain_nearby,
    relative_error,
    too_large,
)
from looptrans.runtime.verifying.verification import OutputError

Values: TypeAlias = np.ndarray[Any, Any]

# The relative Frobenius error that is always allowed: for float32 what issue 7 asks for, for the
# others that of rounding each element of the result once.
LEAST_TOLERANCE = {"float32": 5e-6, "float16": 2.0**-11, "bfloat16": 2.0**-8}
PLAIN_TIMES = 3
"""How many times the plain error may be."""

HANDED_OVER_TIMES = {"float32": 4.0, "float16": 1.25, "bfloat16": 1.25}
"""How many roundings there are of the size of a saved value's own: in 16 bits hardly another."""

MOST_STRAY = 64
"""Of how many elements that should be 0 it is asked how far what is saved moves each."""

ROUNDING = 2.0**-24
"""Half the distance of two neighbours in float32, relative to them: one rounding."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a gradient is compared with.

    Attributes:
        exact: The gradient in float64.
        other: The same where at ties of `max` and `min` the last operand has the derivative; None
            where there are no ties.
        elsewhere: The same where kernels found an extremum at another place, by a rounding; None
            where they did not.
        plain: The gradient in float32, rounded to its type once; with True, sums are added from
            right to left. Asked only where it may matter.
        absolute: What comes back where no derivative has a sign: for each element the sum of the
            absolute values of its terms. Asked only where it may matter.
        terms: For a real parameter the sum of the absolute values of its terms; else None.
        handed_over: How far some elements of the gradient move, in the Frobenius norm, because what
            the forward pass saves is rounded to the type it is kept in, and in 16 bits what is
            multiplied in matrix products. Asked only where it may matter.
        nearby: The plain gradient on the inputs of some number next to the given ones. Asked only
            where it may matter.
        undefined: Which elements hang on something saved that is nan in the listing itself, or too
            large for its type. Asked only where it may matter.
        is_rounded: Whether operands of products are rounded to the inputs' type.
    """

    exact: Values
    other: Values | None
    plain: Callable[[bool], Values]
    absolute: Callable[[], Values]
    terms: float | None
    handed_over: Callable[[Values], float] = lambda _: 0.0
    nearby: Callable[[int], Values] | None = None
    undefined: Callable[[], Values] = lambda: np.asarray(False)
    is_rounded: bool = False
    elsewhere: Values | None = None


def compared_gradient(name: str, found: Values, expected: Expected, dtype: str) -> OutputError:
    """Compare a gradient with what autograd finds in float64.

    The error is relative to the whole gradient, as an output's is. It may be the largest of

        LEAST_TOLERANCE    of the inputs' type
        3 x plain          three times the error of autograd in float32, rounded once; before an
                           error counts as too large, sums are added in either order, and it is
                           made on inputs that are each off by a rounding at most
        cancellation       where a gradient is a sum whose terms nearly cancel, rounding the terms
                           is large beside the sum, and how large is luck

    For an array the last one is a single rounding in float32 of each term, where terms are counted
    along every path from the outputs (`Expected.absolute`): dX of a softmax over one element is
    0 = p * (dy - p * dy), and who works out p anew has it to one rounding. A real parameter gets
    one number from all iterations, which are terms of alternating signs; a single number has no
    Frobenius norm in which errors average out. Each of its terms may be off by as much, relative to
    itself, as the elements of a gradient are allowed to be, so the sum may be by LEAST_TOLERANCE
    of the terms' absolute sum.

    To the largest is added what rounding the saved values does (`Expected.handed_over`): no kernel
    can know better than what it is handed. In 16 bits, where delta comes from a rounded O, and for
    large scores, where P comes from a log-sum-exp in float32, that is often most of the error. In
    16 bits the operands of products are rounded besides, as matrix instructions want them. In
    float32 it is added four times: what is worked out anew beside a saved value, as a score beside
    the log-sum-exp, is rounded to the same type, and both are again as products with log2(e), while
    autograd has their difference from one rounding.

    An element that no path leads to is exactly 0: rows that are masked throughout have such ones.
    One that only a factor of 0 leads to is 0 but for what roundings make of that factor, and one
    that a maximum is not taken from but for what rounding the saved values makes of that.
    Elements for which there are several subgradients are not compared, and counted; so are those
    that are nan because something saved is nan in the listing itself, such as the mean of nothing,
    or no numbers because something saved, or an operand of a product, is too large for its type.

    Args:
        name: The gradient.
        found: What the kernels made of it, in float64.
        expected: What it should be.
        dtype: The type of the floating-point inputs.
    """
    exact = expected.exact
    if found.shape != exact.shape:
        return OutputError(name, np.inf, 0.0, problem=f"the shape is {found.shape}")
    asked = ~np.isnan(exact) & ~too_large(exact, dtype) & ~_ambiguous(exact, expected.other)
    asked &= ~_ambiguous(exact, expected.elsewhere)
    if np.any(asked & (np.isnan(found) | np.isinf(found) & np.isfinite(exact))):
        asked &= ~expected.undefined()
    overflown = (exact == 0) & ~np.isfinite(found) | np.isinf(exact) & (found != exact)
    if np.any(asked & overflown):
        # What overflows in float32 is no number there, though it be multiplied by 0 later, or be
        # infinite in float64 as well.
        plain = expected.plain(False)
        asked &= fits_float32(plain, exact)
        # Which of two orders overflows in front of a 0 is luck, where autograd's does elsewhere.
        if np.any(~np.isfinite(plain) & np.isfinite(exact)):
            asked &= (exact != 0) | np.isfinite(found)
    skipped = int(np.count_nonzero(~asked))
    stray = asked & (exact == 0) & (found != 0)
    if stray.any():
        stray &= expected.absolute() == 0
        if stray.any() and expected.nearby is not None:
            # A factor is 0 as the difference of equal numbers, which roundings keep from being 0.
            near = np.max([np.abs(expected.nearby(number)) for number in range(DRAWS)], axis=0)
            stray &= ~(np.abs(found) <= ROUNDING_TIMES * near)
        for cell in np.argwhere(stray)[:MOST_STRAY]:
            # What is saved is rounded, and may be the larger of two numbers for that alone.
            only = np.zeros(stray.shape, dtype=bool)
            only[tuple(cell)] = True
            most = HANDED_OVER_TIMES[dtype] * expected.handed_over(only)
            stray[tuple(cell)] = not abs(found[tuple(cell)]) <= most
        wrong = int(np.count_nonzero(stray))
        if wrong:
            problem = f"{wrong} elements to which no output leads are not 0"
            return OutputError(name, np.inf, 0.0, skipped, problem)
    whole = norm(exact[asked & np.isfinite(exact)])
    if whole == 0:
        return _beside_terms(name, found, expected, dtype, asked, skipped)
    error, problem = relative_error(found, exact, asked)
    least = LEAST_TOLERANCE[dtype]
    tolerance = least
    if expected.terms is not None:
        tolerance = max(tolerance, least * expected.terms / whole)
    if not problem and error <= tolerance and dtype == "float32":
        return OutputError(name, error, tolerance, skipped)
    plain = expected.plain(False)
    asked &= fits_float32(plain, exact)
    finite = asked & np.isfinite(exact)
    # What autograd has no number for in float32 is not asked for, and may have been all but some.
    whole = norm(exact[finite])
    if whole == 0:
        return _beside_terms(name, found, expected, dtype, asked, int(np.count_nonzero(~asked)))
    error, problem = relative_error(found, exact, asked)
    own, _ = relative_error(plain, exact, finite)
    tolerance = max(tolerance, PLAIN_TIMES * own)
    if not problem and error > tolerance:
        other = expected.plain(True)
        own, _ = relative_error(other, exact, finite & np.isfinite(other))
        tolerance = max(tolerance, PLAIN_TIMES * own)
    if not problem and error > tolerance and expected.nearby is not None:
        own = plain_nearby(expected.nearby, exact, asked)
        tolerance = max(tolerance, PLAIN_TIMES * own)
    if not problem and error > tolerance:
        tolerance += HANDED_OVER_TIMES[dtype] * expected.handed_over(finite) / whole
    if not problem and error > tolerance and expected.is_rounded:
        tolerance = max(tolerance, 2 * least)
    if not problem and error > tolerance:
        tolerance = max(tolerance, ROUNDING * norm(expected.absolute()[finite]) / whole)
    if not problem and error > tolerance:
        asked &= ~negligible(found, exact)
        error, problem = relative_error(found, exact, asked)
    return OutputError(name, error, tolerance, int(np.count_nonzero(~asked)), problem)


def _ambiguous(exact: Values, other: Values | None) -> Values:
    """Return where there are several subgradients."""
    if other is None:
        return np.zeros(exact.shape, dtype=bool)
    largest = np.max(np.abs(exact), initial=0.0, where=np.isfinite(exact))
    different: Values = ~np.isclose(exact, other, rtol=1e-9, atol=1e-9 * largest, equal_nan=True)
    return different


def _beside_terms(
    name: str, found: Values, expected: Expected, dtype: str, asked: Values, skipped: int
) -> OutputError:
    """Compare a gradient that is 0 wherever it is a number: its error is relative to its terms.

    What is saved is rounded here as elsewhere: p * (dy - delta) with dy the same number as delta,
    which comes from a rounded output.
    """
    finite = asked & np.isfinite(expected.exact)
    _, problem = relative_error(found, expected.exact, asked & ~finite)
    if problem:
        return OutputError(name, np.inf, 0.0, skipped, problem)
    if not np.isfinite(found[finite]).all():
        return OutputError(name, np.inf, 0.0, skipped, "0 is met as nan or infinity")
    difference = norm(found[finite])
    if difference == 0:
        return OutputError(name, 0.0, 0.0, skipped)
    terms = norm(expected.absolute()[finite])
    if terms == 0:
        assert expected.nearby is not None  # else what is found would be stray
        error = beside_roundings(found, expected.nearby, finite)
        return OutputError(name, error, ROUNDING_TIMES, skipped)
    error, tolerance = difference / terms, ROUNDING
    if error > tolerance:
        tolerance += HANDED_OVER_TIMES[dtype] * expected.handed_over(finite) / terms
    return OutputError(name, error, tolerance, skipped)
