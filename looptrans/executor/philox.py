"""Philox4x32-10, the counter-based random function behind `uniform(seed, i, j, k)`.

J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import numpy as np

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
# 2**-31 as Triton writes it; the product stays below 1 in float32.
_SCALE = np.float32(4.6566127342e-10)

Words = tuple[int, int, int, int]


def philox(counter: Words, key: tuple[int, int]) -> Words:
    """Return the four 32-bit output words of Philox4x32-10."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second & _WORD,
            (first >> 32) ^ c3 ^ k1,
            first & _WORD,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, i: int = 0, j: int = 0, k: int = 0) -> np.float32:
    """Return a number in [0, 1): the first word at counter (i, j, k, 0), key = seed.

    The word becomes a float as in Triton's `tl.rand`: as a signed integer x, -x - 1 where it is
    negative, times 2**-31 in float32.
    """
    counter = (i & _WORD, j & _WORD, k & _WORD, 0)
    word = philox(counter, (seed & _WORD, (seed >> 32) & _WORD))[0]
    positive = word if word < 1 << 31 else _WORD - word
    scaled: np.float32 = np.float32(positive) * _SCALE
    return scaled
