"""The error of an output, and what it may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from looptrans.runtime.verifying.verification import OutputError

Values: TypeAlias = np.ndarray[Any, Any]

# The relative Frobenius error that is always allowed: for float32 what issue 6 asks for, for the
# others that of rounding each element of the result once.
LEAST_TOLERANCE = {"float32": 2e-6, "float16": 2.0**-11, "bfloat16": 2.0**-8}
DRAWS = 3
"""With how many roundings at random the plain computation is made."""
ROUNDINGS = 8
"""In how many ways operands of products are rounded, where those of one kernel decide."""

WORKED_OUT_TIMES = 8.0
"""How many times the error of the listing is believed of numbers that kernels work out anew."""

MOST_ROUNDING = 2.0**-6
"""The largest relative error that roundings in float32 are believed to make."""

ROUNDING_TIMES = 16.0
"""How many times what roundings at random make of a 0 a kernel may have made of it."""

NEGLIGIBLE = 2.0**-100
"""What sums of numbers that float32 has no full precision for, below 2^-126, are below."""

LOST = 2.0**-110
"""What such numbers that come out as 0 can make of a sum, if there are thousands."""

LARGEST = {"float32": 2.0**128, "float16": 65520.0, "bfloat16": (2 - 2.0**-8) * 2.0**127}


def compared(
    name: str,
    found: Values,
    exact: Values,
    plain: Callable[[bool], Values],
    dtype: str,
    *,
    always_plain: bool,
    empty: Values | None = None,
    nearby: Callable[[int], Values] | None = None,
    rounded: Callable[[int], Values] | None = None,
) -> OutputError:
    """Compare an output with the listing's.

    A result that is 0 throughout is met exactly, unless roundings keep it from being 0, and
    infinities where they are. The error of the others may be `LEAST_TOLERANCE` of the output's
    type, or twice that of the plain computation.

    Where few elements decide, as in a softmax of large scores, one plain error is a matter of luck:
    adding the same products from the other end may change it tenfold. So the plain computation is
    made in either order before an error counts as too large, and then on inputs that are each off
    by a rounding at most, with operations that are off by one as well: what those move, no kernel
    can be blamed for. In the nest of the kernels, which may work out the same number twice, they
    may move it `WORKED_OUT_TIMES` as far; a nest where they move it further is a bad one.

    Args:
        name: The output.
        found: What the kernel made of it; floating-point numbers in float64.
        exact: The listing executed in float64.
        plain: The listing executed in float32 and rounded to the output's type once; with True,
            sums added from right to left. It is asked only where it may matter.
        dtype: The output's type where it is a floating-point number.
        always_plain: Whether the plain error counts even where the least tolerance suffices, so
            that it shows in the report.
        empty: Elements that no iteration has a part in: they are met exactly.
        nearby: The plain computation with roundings of some number; from `DRAWS` on that of the
            nest of the kernels; see `verify_nearby`.
        rounded: Where operands of products are rounded to the output's type, as matrix instructions
            want them: the plain computation with operands rounded in some way, that of a number.
            Where one term decides, nothing evens that out, and where terms cancel, what is left is
            off by more.
    """
    if found.shape != exact.shape:
        return OutputError(name, np.inf, 0.0, problem=f"the shape is {found.shape}")
    if exact.dtype.kind != "f":
        wrong = int(np.count_nonzero(found != exact))
        return OutputError(name, wrong / max(wrong, exact.size, 1), 0.0)
    if empty is not None and not np.array_equal(found[empty], exact[empty]):
        wrong = int(np.count_nonzero(found[empty] != exact[empty]))
        problem = f"{wrong} elements of rows masked throughout are not what no iterations give"
        return OutputError(name, np.inf, 0.0, problem=problem)
    asked = ~np.isnan(exact) & ~too_large(exact, dtype)
    error, problem = relative_error(found, exact, asked)
    least = LEAST_TOLERANCE[dtype]
    if not problem and error <= least and not always_plain:
        tolerance = least if np.any(exact[asked] != 0) else 0.0
        return OutputError(name, error, tolerance, int(np.count_nonzero(~asked)))
    usual = _filled(plain(False), exact, empty)
    asked &= fits_float32(usual, exact)
    error, problem = relative_error(found, exact, asked)
    own, _ = relative_error(usual, exact, asked & np.isfinite(exact))
    if not problem and error > max(least, 2 * own):
        other = _filled(plain(True), exact, empty)
        finite = asked & np.isfinite(exact) & np.isfinite(other)
        own = max(own, relative_error(other, exact, finite)[0])
    if not problem and error > max(least, 2 * own) and nearby is not None:
        own = max(own, plain_nearby(lambda n: _filled(nearby(n), exact, empty), exact, asked))
    if not problem and error > max(least, 2 * own) and nearby is not None:
        again = range(DRAWS, 2 * DRAWS)
        near = plain_nearby(lambda n: _filled(nearby(n), exact, empty), exact, asked, again)
        own = max(own, min(near, WORKED_OUT_TIMES * max(own, least / 2)))
    if not problem and error > max(least, 2 * own) and rounded is not None:
        own = max(own, least)
        if error > 2 * own:
            own = max(
                own,
                plain_nearby(
                    lambda n: _filled(rounded(n), exact, empty), exact, asked, range(ROUNDINGS)
                ),
            )
    tolerance = max(least, 2 * own) if np.any(exact[asked] != 0) else 0.0
    if not problem and error > tolerance:
        asked &= ~negligible(found, exact)
        error, problem = relative_error(found, exact, asked)
    if problem and nearby is not None and not np.any(exact[asked]):
        # x - y is 0 where both are the same number, and no kernel works them out in the same way.
        times = beside_roundings(found, nearby, asked)
        if times <= ROUNDING_TIMES:
            error, tolerance, problem = times, ROUNDING_TIMES, ""
    return OutputError(name, error, tolerance, int(np.count_nonzero(~asked)), problem)


def beside_roundings(found: Values, nearby: Callable[[int], Values], asked: Values) -> float:
    """Return how many times what is found of zeros is what roundings at random make of them."""
    difference = norm(found[asked])
    if not np.isfinite(difference):
        return np.inf
    others = (nearby(number)[asked] for number in range(DRAWS))
    moved = max((norm(each[np.isfinite(each)]) for each in others), default=0.0)
    return float(difference / moved) if moved else np.inf


def negligible(found: Values, exact: Values) -> Values:
    """Return which numbers are so small that their terms may have come out as 0.

    A GPU's own exp is 0 where its result is below 2^-126, and so is a product of small numbers.
    Where more is missing than such terms make, the number is a wrong one.
    """
    small = np.maximum(np.abs(found), np.abs(exact)) < NEGLIGIBLE
    near: Values = small & (np.abs(found - exact) < LOST) & (exact != 0)
    return near


def plain_nearby(
    nearby: Callable[[int], Values],
    exact: Values,
    asked: Values,
    draws: Iterable[int] = range(DRAWS),
) -> float:
    """Return the largest error of the plain computation with roundings at random.

    One beyond `MOST_ROUNDING` does not count: another element was the largest, or another branch
    was taken.
    """
    own = 0.0
    for number in draws:
        other = nearby(number)
        finite = asked & np.isfinite(exact) & np.isfinite(other)
        error = relative_error(other, exact, finite)[0]
        own = max(own, error if error <= MOST_ROUNDING else 0.0)
    return own


def _filled(plain: Values, exact: Values, empty: Values | None) -> Values:
    """Return a plain result with what no iterations give where rows are masked throughout."""
    return plain if empty is None else np.where(empty, exact, plain)


def too_large(exact: Values, dtype: str) -> Values:
    """Return which finite numbers may be rounded to an infinity of a type."""
    large: Values = np.isfinite(exact) & (np.abs(exact) >= LARGEST[dtype] * (1 - 2.0**-7))
    return large


def fits_float32(plain: Values, exact: Values) -> Values:
    """Return where the numbers that lead to a result fit into float32.

    They do not where the computation in float32 overflows, nor where what is infinite in float64,
    by an overflow there, is the difference of two infinities.

    Args:
        plain: The result in float32.
        exact: The result in float64.
    """
    fitting: Values = np.where(np.isinf(exact), ~np.isnan(plain), np.isfinite(plain))
    return fitting


def relative_error(found: Values, exact: Values, asked: Values) -> tuple[float, str]:
    """Return the relative error of the elements that are asked for, and what is wrong besides."""
    infinite = asked & np.isinf(exact)
    misplaced = int(np.count_nonzero(found[infinite] != exact[infinite]))
    if misplaced:
        return np.inf, f"{misplaced} of {int(infinite.sum())} infinities are not there"
    finite = asked & np.isfinite(exact)
    outside = int(np.count_nonzero(~np.isfinite(found[finite])))
    if outside:
        return np.inf, f"{outside} of {int(finite.sum())} finite elements are nan or infinite"
    if not finite.any():
        return 0.0, ""
    difference, whole = norm(found[finite] - exact[finite]), norm(exact[finite])
    if whole == 0:
        return (0.0, "") if difference == 0 else (np.inf, "0 is met exactly, or not at all")
    return float(difference / whole), ""


def norm(values: Values) -> float:
    """Return the Frobenius norm, without overflow."""
    scale = float(np.max(np.abs(values), initial=0.0))
    return 0.0 if scale == 0 else scale * float(np.linalg.norm(values / scale))
