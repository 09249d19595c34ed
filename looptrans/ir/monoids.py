"""What numbers may be joined by in any grouping, and what is there before the first of them.

operator    of a listing's elements    identity
+           sum                        0
*                                      1
max         max                        -inf
min         min                        inf
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, Literal, TypeAlias, get_args

Monoid: TypeAlias = Literal["+", "*", "max", "min"]
Folding: TypeAlias = Literal["sum", "max", "min"]
MONOIDS: Final[tuple[Monoid, ...]] = get_args(Monoid)

IDENTITIES: Final[Mapping[str, float]] = {"+": 0.0, "*": 1.0, "max": -inf, "min": inf}
"""The number that changes nothing, by operator."""

MONOID_OF: Final[Mapping[Folding, Monoid]] = {"sum": "+", "max": "max", "min": "min"}
FOLDING_OF: Final[Mapping[str, Folding]] = {MONOID_OF[name]: name for name in MONOID_OF}

OF_NOTHING: Final[Mapping[str, float]] = {n: IDENTITIES[op] for n, op in MONOID_OF.items()}
"""What a sum, a maximum and a minimum of no elements are, by the name a listing calls them."""
