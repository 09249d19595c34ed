"""Loops that are free, outside of those that carry something, whatever order they stand in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.derivation.derive import derive
from looptrans.executor import execute, prepare
from looptrans.ir.program import Loop
from looptrans.ir.walk import nodes
from tests.analysis import program

HEAD = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D)); m = full(M, -inf); l = zeros(M); s = zeros(M); n = zeros(M)
"""
TAIL = """
    for i in range(M):
        for d in range(D):
            O[i, d] = O[i, d] / l[i]
    return O
"""
ONE_LOOP = """
    for j in range(N):
        for i in range(M):
            s[i] = Q[i] @ K[j]
            n[i] = max(m[i], s[i])
            l[i] = l[i] * exp(m[i] - n[i]) + exp(s[i] - n[i])
            for d in range(D):
                O[i, d] = O[i, d] * exp(m[i] - n[i]) + exp(s[i] - n[i]) * V[j, d]
            m[i] = n[i]
"""
ONE_EACH = """
    for j in range(N):
        for i in range(M): s[i] = Q[i] @ K[j]
        for r in range(M): n[r] = max(m[r], s[r])
        for i in range(M):
            l[i] = l[i] * exp(m[i] - n[i]) + exp(s[i] - n[i])
        for i in range(M):
            for d in range(D):
                O[i, d] = O[i, d] * exp(m[i] - n[i]) + exp(s[i] - n[i]) * V[j, d]
        for i in range(M): m[i] = n[i]
"""
IN_TILES = """
    for j0 in range(0, N, 4):
        for i0 in range(0, M, 2):
            for i in range(i0, min(i0 + 2, M)):
                for j in range(j0, min(j0 + 4, N)):
                    s[i] = Q[i] @ K[j]
                    n[i] = max(m[i], s[i])
                    l[i] = l[i] * exp(m[i] - n[i]) + exp(s[i] - n[i])
                    for d in range(D):
                        O[i, d] = O[i, d] * exp(m[i] - n[i]) + exp(s[i] - n[i]) * V[j, d]
                    m[i] = n[i]
"""


@pytest.mark.parametrize("passes", [ONE_LOOP, ONE_EACH, IN_TILES])
def test_rows_that_keys_are_outside_of_go_outward(passes: str) -> None:
    listing = program(HEAD + passes.strip("\n") + TAIL)
    found = derive(listing, "fold")
    assert found.decision == "legal"
    assert any(step.kind == "loop outward" for step in found.steps)
    (nest,) = (node for node in found.last.body if isinstance(node, Loop))
    assert (nest.variable, nest.execution) == ("i", "parallel")
    assert [n.variable for n in nodes(nest.body) if isinstance(n, Loop)] == ["j", "d", "d"]
    inputs: dict[str, Any] = dict(prepare(listing, {"M": 3, "N": 5}, None, 1).arrays)
    want = execute(listing, inputs=inputs)["O"]
    np.testing.assert_allclose(execute(found.last, inputs=inputs)["O"], want, atol=1e-12)


@pytest.mark.parametrize(
    "body",
    [
        # The row before has to be there.
        "m[i] = max(m[i], Q[i, 0] * K[j, 0]) + (m[i - 1] if i > 0 else 0.0)",
        # The next key needs what a later row has left.
        "m[i] = m[M - 1 - i] + Q[i, 0] * K[j, 0]",
    ],
)
def test_rows_that_hang_together_stay(body: str) -> None:
    text = f"    for j in range(N):\n        for i in range(M):\n            {body}\n    return m\n"
    found = derive(program(HEAD + text), "fold")
    assert all(step.kind != "loop outward" for step in found.steps)


PRODUCT = """
def f(A: Float[Array, "M K"], B: Float[Array, "K N"]):
    C = zeros((M, N))
    for k in range(K):
        for i in range(M):
            for j in range(N):
                C[i, j] += A[i, k] * B[k, j]
    for i in range(M):
        for j in range(N):
            C[i, j] = max(C[i, j], 0.0)
    return C
"""


def test_the_sum_of_a_product_goes_inside() -> None:
    found = derive(program(PRODUCT), "fold")
    assert found.decision == "legal"
    nest, _ = (node for node in found.last.body if isinstance(node, Loop))
    loops = [n for n in nodes((nest,)) if isinstance(n, Loop)]
    assert [(n.variable, n.execution) for n in loops] == [
        ("i", "parallel"),
        ("j", "parallel"),
        ("k", "sequential"),
    ]
