"""Operations that are off by a rounding, at random: stochastic arithmetic.

Another order of the terms of a sum, a product and a sum that are rounded once together, or a GPU's
own exp give numbers next to those that a listing has when it is executed in float32. What comes out
where every operation may be off shows what no kernel can be blamed for: exp(s - m) with m = s is 1
only where both were rounded alike.

What is compared is another matter: `j * 0.1 <= i * 0.1` holds at j = i for who works out both in
the same way, as kernels do. So numbers that only roundings tell apart are equal there.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from looptrans.ir.value import Binary, Call, Value

_ARITHMETIC: Final = frozenset(("+", "-", "*", "/", "**", "@"))
_FUNCTIONS: Final = frozenset(("exp", "exp2", "log", "log2", "sqrt", "tanh", "sin", "cos"))
_LAST_PLACE: Final = 2.0**-23
_NEARLY: Final = 2.0**-16


def is_rounded(value: Value) -> bool:
    """Tell whether a value is made by an operation whose result is rounded."""
    match value:
        case Binary(op, _, _):
            return op in _ARITHMETIC
        case Call(function, _):
            return function in _FUNCTIONS
        case _:
            return False


def roundings(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return what numbers in float32 are multiplied by: half of them by 1, the others beside it.

    Args:
        random: What it is drawn from.
        shape: The shape of the numbers.
    """
    drawn = random.integers(0, 4, shape, dtype=np.int8)
    places = (drawn == 0).astype(np.float32) - (drawn == 1).astype(np.float32)
    return np.asarray(1 + places * np.float32(_LAST_PLACE), dtype=np.float32)


def nearly_equal(one: Any, other: Any) -> Any:
    """Return where finite numbers differ by no more than a hundred roundings or so."""
    return np.isfinite(other) & (np.abs(one - other) <= _NEARLY * np.abs(other))
