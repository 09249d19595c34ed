"""Casts: a value rounded to a narrower format, to nearest, ties to even."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating-point format.

    Attributes:
        fraction_bits: The number of bits after the leading one.
        least_exponent: The exponent of the smallest normal number.
        largest: The largest finite number.
        overflow: What stands for everything beyond it (with the sign of the value).
    """

    fraction_bits: int
    least_exponent: int
    largest: float
    overflow: float


FORMATS = {
    "bfloat16": Format(7, -126, (2 - 2.0**-7) * 2.0**127, math.inf),
    "float8_e5m2": Format(2, -14, 57344.0, math.inf),
    # OCP E4M3 without infinities ("fn"): beyond the range there is only nan, as torch casts.
    "float8_e4m3": Format(3, -6, 448.0, math.nan),
}


def rounded(value: float, target: Format) -> float:
    """Round once, from any float up to 64 bits, to the nearest number of a format.

    The step between neighbours is a power of two, so scaling by it is exact and Python's `round`
    (half to even) does the rounding, for subnormal numbers too.
    """
    if math.isnan(value) or value == 0.0:
        return value
    if abs(value) >= 2 * target.largest:
        return math.copysign(target.overflow, value)
    exponent = max(math.frexp(value)[1] - 1, target.least_exponent)
    step = exponent - target.fraction_bits
    result = math.ldexp(round(math.ldexp(value, -step)), step)
    if abs(result) > target.largest:
        result = target.overflow
    return math.copysign(result, value)
