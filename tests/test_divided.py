"""Weights by the logarithm of their sum: one pass, where the sum is still what it was."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.adjoint.rewriting.divided import with_weights_divided
from looptrans.derivation.derive import derive
from looptrans.executor import execute
from tests.analysis import program

IN_ONE_NEST = """
def f(X: Float[Array, "M N"], V: Float[Array, "N D"]):
    O = zeros((M, D)); L = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, X[i, j])
        l = 0.0
        for j in range(N):
            l += exp(X[i, j] - m)
        {L} = m + log(l)
        {between}
        for j in range(N):
            p = exp(X[i, j] - {L})
            for d in range(D):
                O[i, d] += p * V[j, d]
    return O, L
"""
IN_NESTS = """
def f(X: Float[Array, "M N"], V: Float[Array, "N D"]):
    m = full(M, -inf); l = {start}; L = zeros(M); O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            m[i] = max(m[i], X[i, j])
    for i in range(M):
        for j in range(N):
            l[i] += {term}
    for i in range({rows}):
        L[i] = log(l[i]) + m[i]
    {between}
    for r in range(M):
        for j in range(N):
            for d in range(D):
                O[r, d] += exp(X[r, j] - L[r]) * V[j, d]
    return O, L
"""
SUMMED = """
def f(X: Float[Array, "M N"], V: Float[Array, "N D"]):
    O = zeros((M, D)); L = zeros(M)
    for i in range(M):
        m = max(X[i, j] for j in range(N))
        {L} = m + log(sum(exp(X[i, j] - m) for j in range(N)))
        {between}
        for d in range(D):
            O[i, d] = sum(exp(X[i, j] - {L}) * V[j, d] for j in range(N))
    return O, L
"""
NESTS = {"start": "zeros(M)", "term": "exp(X[i, j] - m[i])", "rows": "M", "between": ""}


@pytest.mark.parametrize(
    "text",
    [
        IN_ONE_NEST.format(L="lse", between="L[i] = lse"),
        IN_ONE_NEST.format(L="L[i]", between=""),
        IN_NESTS.format(**NESTS),
        SUMMED.format(L="lse", between="L[i] = lse"),
        SUMMED.format(L="L[i]", between=""),
    ],
)
def test_the_weights_are_divided_and_all_is_one_pass(text: str) -> None:
    given = program(text)
    found = with_weights_divided(given)
    assert found is not None
    assert found.sums in (("l",), ("L_sum",), ("lse_sum",))
    rng = np.random.default_rng(0)
    inputs = {"X": rng.normal(size=(4, 5)), "V": rng.normal(size=(5, 2))}
    for other in (found.program, derive(given, "fold").last):
        for name, value in execute(given, inputs=inputs).items():
            np.testing.assert_allclose(execute(other, inputs=inputs)[name], value, rtol=1e-12)
    (step,) = [s for s in derive(given, "fold").steps if s.kind == "one pass"]
    assert step.name.startswith("one pass instead of 3")


@pytest.mark.parametrize(
    "text",
    [
        # The maximum, or the sum, is another one by then.
        IN_ONE_NEST.format(L="L[i]", between="m = 0.0"),
        IN_ONE_NEST.format(L="L[i]", between="l = 2.0 * l"),
        IN_NESTS.format(**NESTS | {"between": "m[0] = 1.0"}),
        # It is not what is taken off everywhere.
        IN_ONE_NEST.format(L="L[i]", between="L[i] = 1.0"),
        SUMMED.format(L="L[i]", between="m = 0.0"),
        IN_NESTS.format(**NESTS | {"rows": "M - 1"}),
        # It may be no sum of exponentials: where it is negative there is no logarithm.
        IN_NESTS.format(**NESTS | {"start": "full(M, -3.0)"}),
        IN_NESTS.format(**NESTS | {"term": "X[i, j]"}),
    ],
)
def test_weights_stay_where_it_may_be_another_sum(text: str) -> None:
    assert with_weights_divided(program(text)) is None
