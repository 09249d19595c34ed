"""Which program comes after which: what programs share is read again while it is in the cache."""

import pytest

from looptrans.emit.listing import emitted
from looptrans.frontend import parse
from looptrans.ir.source import Source

LISTING = """
def scored(
    Q: Float[Array, "{axes} M E"],
    K: Float[Array, "{axes} N E"],
    T: Float[Array, "{table} M N"],
):
    y = zeros(({sizes}, M))
    for {first} in range(0, {First}):
        for {second} in range(0, {Second}):
            for i in range(0, M):
                for j in range(0, N):
                    y[{first}, {second}, i] += T[{places}i, j] * sum(
                        Q[{first}, {second}, i, e] * K[{first}, {second}, j, e] for e in range(0, E)
                    )
    return y
"""


def text(table: str, first: str = "b", second: str = "h") -> str:
    """Return the module of scores that are weighed by a table for each of some variables."""
    sizes = {first: first.upper(), second: second.upper()}
    listing = LISTING.format(
        axes=" ".join(sizes.values()),
        sizes=", ".join(sizes.values()),
        table=" ".join(sizes[each] for each in table),
        places="".join(f"{each}, " for each in table),
        first=first,
        second=second,
        First=sizes[first],
        Second=sizes[second],
    )
    return emitted(parse(Source("scored.py", listing))).text


@pytest.mark.parametrize(
    ("table", "slow", "fast"),
    [("h", "h", "b"), ("b", "b", "h"), ("bh", "b", "h")],
)
def test_what_shares_a_table_runs_next_to_each_other(table: str, slow: str, fast: str) -> None:
    """A table for each h is read by every b: all b of one h come before the next h."""
    made = text(table)
    assert f"{fast} = pid // blocks_i % {fast.upper()}" in made
    assert f"{slow} = pid // blocks_i // {fast.upper()}" in made


def test_names_decide_nothing() -> None:
    assert "v = pid // blocks_i % V" in text("w", "v", "w")
    assert "w = pid // blocks_i // V" in text("w", "v", "w")
