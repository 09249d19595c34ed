"""Zeros that sums of products begin with, which a compiler must not know where loops are skipped.

That no kernel waits for each matrix instruction is tested with compiled code.
"""

from __future__ import annotations

import re

import pytest

from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.variants import Options, compose
from tests.analysis import program


def begun(options: Options) -> list[str]:
    """Return how the sums of both passes begin that do not begin with constants."""
    text = emitted_with_backward(program(compose(options).text)).text
    return re.findall(r"^ +(\w+ = _hidden_zeros\(.*\))", text, re.MULTILINE)


@pytest.mark.parametrize("options", [Options(), Options(causal=True), Options(bias="BN")])
def test_sums_beside_vectors_begin_with_constants(options: Options) -> None:
    assert begun(options) == []


@pytest.mark.parametrize(
    "options",
    [Options(bias="HMN"), Options(dropout="philox"), Options(alibi="H"), Options(mask="MN")],
    ids=["loaded", "drawn", "worked out", "mask"],
)
def test_sums_beside_blocks_do_not(options: Options) -> None:
    # Two sums of a kernel are not known to be one: they have numbers.
    assert begun(options) == [
        "O = _hidden_zeros(BLOCK_I, BLOCK_D, 0, M)",
        "dQ = _hidden_zeros(BLOCK_I, BLOCK_E, 0, M)",
        "dK = _hidden_zeros(BLOCK_J, BLOCK_E, 0, N)",
        "dV = _hidden_zeros(BLOCK_J, BLOCK_D, 1, N)",
    ]


def test_a_single_loop_has_none() -> None:
    text = emitted(
        program("""
def f(A: Float[Array, "M 64"], B: Float[Array, "64 N"], C: Float[Array, "M N"]):
    D = zeros((M, N))
    for i in range(M):
        for j in range(N):
            D[i, j] = C[i, j] * sum(A[i, k] * B[k, j] for k in range(64))
    return D
""")
    ).text
    assert "tl.dot(" in text and "_hidden_zeros" not in text


COLUMNS = """
def attention(Q: Float[Array, "M E"], K: Float[Array, "E N"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        m = max(sum(Q[i, e] * K[e, j] for e in range(E)) for j in range(N))
        l = sum(exp(sum(Q[i, e] * K[e, j] for e in range(E)) - m) for j in range(N))
        for d in range(D):
            O[i, d] = sum(
                exp(sum(Q[i, e] * K[e, j] for e in range(E)) - m) * V[j, d] for j in range(N)
            ) / l
    return O
"""


def test_sums_beside_keys_that_are_columns_do_not() -> None:
    text = emitted(program(COLUMNS)).text
    assert "O_sum = _hidden_zeros(BLOCK_I, BLOCK_D, 0, M)" in text
    rows = COLUMNS.replace('K: Float[Array, "E N"]', 'K: Float[Array, "N E"]')
    assert "_hidden_zeros(" not in emitted(program(rows.replace("K[e, j]", "K[j, e]"))).text
