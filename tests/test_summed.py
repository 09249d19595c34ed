"""Loops that only add up are sums in the reference that kernels are compared with."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.executor import execute
from looptrans.ir.listing import listing
from looptrans.runtime.executed.summed import with_loops_summed
from tests.analysis import program

LOSS = """
def f(a: Float[Array, "N D"], b: Float[Array, "N D"], delta: float):
    t = 0.0
    u = 0.0
    for n in range(0, N):
        for d in range(0, D):
            {first}
            s = abs(e)
            t += 0.5 * e * e if s <= delta else delta * (s - 0.5 * delta)
            {last}
    return {results}
"""


@pytest.mark.parametrize(
    ("first", "last", "results", "summed"),
    [
        ("e = a[n, d] - b[n, d]", "u += s", "t, u", True),
        # Somebody looks at the last one, or one is read before it is set.
        ("e = a[n, d] - b[n, d]", "u += s", "t, u, e", False),
        ("e = a[n, d] - b[n, d]", "u += u * s", "t, u", False),
        ("e = a[n, d] - t", "u += s", "t, u", False),
    ],
)
def test_what_has_a_name_in_the_loop_is_put_in(
    first: str, last: str, results: str, summed: bool
) -> None:
    text = LOSS.format(first=first, last=last, results=results)
    text = text.replace("    u = 0.0\n", "    u = 0.0\n    e = 0.0\n") if "e" in results else text
    before = program(text)
    after = with_loops_summed(before)
    assert ("for d in range(0, D):" not in listing(after)) == summed
    one, other = execute(before), execute(after)
    for name in results.split(", "):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12)
