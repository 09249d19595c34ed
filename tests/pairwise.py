"""Attention variants in which every pair of option values that can be had together occurs.

A covering array, found greedily among random legal combinations: the same one every time.
"""

from __future__ import annotations

import random
from dataclasses import fields
from functools import cache
from itertools import combinations
from typing import Any, TypeAlias

from looptrans.variants import GIVEN, Conflict, Options
from looptrans.variants.conflicts import require_legal

VALUES: dict[str, tuple[Any, ...]] = {
    "batch": (False, True),
    "heads": ("none", "equal", "grouped", "shared"),
    "layout": ("bhsd", "bshd", "qkv"),
    "weights": ("softmax", "sigmoid", "retention"),
    "differential": (False, True),
    "scale": (None, GIVEN),
    "softcap": (None, 2.0),
    "bias": (None, "MN", "HMN", "BN"),
    "relative": (False, True),
    "alibi": (None, "H"),
    "causal": (False, True),
    "window_left": (None, 2),
    "window_right": (None, GIVEN),
    "alignment": ("top_left", "bottom_right"),
    "prefix": (False, True),
    "documents": (False, True),
    "mask": (None, "BMN", "N"),
    "sinks": (False, True),
    "q_lengths": (False, True),
    "kv_lengths": (False, True),
    "dropout": (None,),
    "lse": (False, True),
}
"""The values of each option that are tried, the plainest first."""

TRIES = 400
POOL = 4000
PLAIN = 0.8
"""How often an option has its plainest value."""

MOST = 4
"""How many options at most have another one: many at once take long, and say little of pairs."""

Pair: TypeAlias = tuple[str, Any, str, Any]


def combination(values: dict[str, Any]) -> Options | None:
    """Return options, or None where they do not go together."""
    options = Options(**values)
    try:
        require_legal(options)
    except Conflict:
        return None
    return options


@cache
def pairs_of(options: Options) -> frozenset[Pair]:
    """Return the pairs of values that are not both the plainest."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return frozenset(
        (a, values[a], b, values[b])
        for a, b in combinations(VALUES, 2)
        if values[a] != VALUES[a][0] or values[b] != VALUES[b][0]
    )


def covering(seed: int = 0) -> tuple[list[Options], set[Pair]]:
    """Return combinations, and the pairs of values that occur in them; none other can be had."""
    chance = random.Random(seed)

    def drawn(fixed: dict[str, Any]) -> Options | None:
        values = {
            name: each[0] if chance.random() < PLAIN else chance.choice(each)
            for name, each in VALUES.items()
        }
        values |= fixed
        others = sum(values[name] != each[0] for name, each in VALUES.items())
        return combination(values) if others <= MOST else None

    pool = {found for _ in range(POOL) if (found := drawn({})) is not None}
    wanted = set[Pair]().union(*(pairs_of(each) for each in pool))
    for a, b in combinations(VALUES, 2):
        for first in VALUES[a]:
            for second in VALUES[b]:
                pair = (a, first, b, second)
                if (first, second) == (VALUES[a][0], VALUES[b][0]) or pair in wanted:
                    continue
                for _ in range(TRIES):
                    found = drawn({a: first, b: second})
                    if found is not None:
                        pool.add(found)
                        wanted |= pairs_of(found)
                        break
    # Each pair is a bit: what one more combination would add is counted thousands of times.
    bits = {pair: 1 << number for number, pair in enumerate(wanted)}
    candidates = {each: sum(bits[p] for p in pairs_of(each)) for each in sorted(pool, key=repr)}
    chosen, left = [], (1 << len(bits)) - 1
    while left:
        best = max(candidates, key=lambda each: (candidates[each] & left).bit_count())
        chosen.append(best)
        left &= ~candidates[best]
    return chosen, wanted
