"""Casts and random numbers against known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from looptrans.executor import execute
from looptrans.executor.casts import FORMATS, rounded
from looptrans.executor.philox import philox, uniform
from tests.test_executor import program_of


def smallest_formats() -> list[tuple[str, list[float]]]:
    """Every finite number of the two 8-bit formats that is not negative, from their bits."""
    e5m2 = [2.0 ** max(e, 1) * ((e > 0) + m / 4) * 2.0**-15 for e in range(31) for m in range(4)]
    e4m3 = [2.0 ** max(e, 1) * ((e > 0) + m / 8) * 2.0**-7 for e in range(16) for m in range(8)]
    return [("float8_e5m2", e5m2), ("float8_e4m3", e4m3[:-1])]


@pytest.mark.parametrize(("name", "numbers"), smallest_formats())
def test_8_bit_casts_round_to_nearest_even(name: str, numbers: list[float]) -> None:
    target = FORMATS[name]
    assert numbers[-1] == target.largest
    for at, number in enumerate(numbers):
        assert rounded(number, target) == number
        assert rounded(-number, target) == -number
        if at:
            low = numbers[at - 1]
            middle = (low + number) / 2
            assert rounded(middle, target) == (low if at % 2 else number)
            assert rounded(math.nextafter(middle, math.inf), target) == number
            assert rounded(math.nextafter(middle, 0.0), target) == low


def test_casts_beyond_the_range() -> None:
    e4m3, e5m2, bf16 = FORMATS["float8_e4m3"], FORMATS["float8_e5m2"], FORMATS["bfloat16"]
    assert rounded(464.0, e4m3) == 448.0
    assert math.isnan(rounded(464.1, e4m3))
    assert math.isnan(rounded(-1e300, e4m3))
    assert math.isnan(rounded(math.inf, e4m3))
    assert rounded(61439.0, e5m2) == 57344.0
    assert rounded(-61440.0, e5m2) == -math.inf
    assert rounded(1.7e308, bf16) == math.inf
    assert math.isnan(rounded(math.nan, bf16))
    assert math.copysign(1.0, rounded(-1e-60, bf16)) == -1.0


@settings(max_examples=300, deadline=None)
@given(st.floats(width=32, allow_nan=False))
def test_bfloat16_is_the_upper_half_of_float32(value: float) -> None:
    bits = int(np.float32(value).view(np.uint32))
    if not math.isinf(value):
        bits += 0x7FFF + (bits >> 16 & 1)
    expected = np.uint32(bits & 0xFFFF0000).view(np.float32)
    assert rounded(value, FORMATS["bfloat16"]) == expected


CASTS = """
def f(x: Float[Array, "N"]):
    a = zeros(N)
    b = zeros(N)
    c = zeros(N)
    d = zeros(N)
    for i in range(N):
        a[i] = float8_e4m3(x[i])
        b[i] = bfloat16(x[i])
        c[i] = float16(x[i]) + stop_gradient(0.0)
        d[i] = int32(x[i]) + bool(x[i])
    return a, b, c, d
"""


def test_casts_in_a_listing() -> None:
    outputs = execute(program_of(CASTS), inputs={"x": [1.06, 300.7, -2.9, 0.0]})
    assert outputs["a"].tolist() == [1.0, 288.0, -3.0, 0.0]
    assert outputs["b"].tolist() == [1.0625, 300.0, -2.90625, 0.0]
    assert outputs["c"].tolist() == [1.0595703125, 300.75, -2.900390625, 0.0]
    assert outputs["d"].tolist() == [2.0, 301.0, -1.0, 0.0]


def test_philox_known_answers() -> None:
    """The vectors of Random123's kat_vectors for philox4x32-10."""
    ones = 0xFFFFFFFF
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox(pi, (0xA4093822, 0x299F31D0)) == (
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    )


def test_uniform_is_the_first_word_as_triton_maps_it() -> None:
    assert uniform(0) == np.float32(0x6627E8D5) * np.float32(4.6566127342e-10)
    word = philox((1, 2, 3, 0), (5, 7))[0]
    signed = word - (1 << 32) if word >> 31 else word
    positive = signed if signed >= 0 else -signed - 1
    expected = np.float32(positive) * np.float32(4.6566127342e-10)
    assert uniform(5 + (7 << 32), 1, 2, 3) == expected
    draws = [float(uniform(1, i)) for i in range(2000)]
    assert min(draws) >= 0.0
    assert max(draws) < 1.0
    assert abs(np.mean(draws) - 0.5) < 0.03


def test_uniform_in_a_listing() -> None:
    text = "def f(seed: Seed):\n    y = zeros((2, 3))\n    for i in range(2):\n"
    text += "        for j in range(3):\n            y[i, j] = uniform(seed, i, j)\n    return y\n"
    found = execute(program_of(text), inputs={"seed": 11})["y"]
    assert found.tolist() == [[float(uniform(11, i, j)) for j in range(3)] for i in range(2)]
