"""Layers that a listing works out row by row: what a row is multiplied with as a whole is kept."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from looptrans.adjoint.backward import backward
from looptrans.blocks.block_ir.ops import TileLoop, has_products, ops_in
from looptrans.blocks.fitting.whole_rows import (
    multiplies_over_lanes,
    multiplies_whole_rows,
    stores_rows_of_products,
)
from looptrans.blocks.lower import lower
from looptrans.derivation.derive import derive
from looptrans.emit.listing import lowered
from looptrans.ir.listing import listing
from looptrans.runtime.verifying.verify import verify
from tests.analysis import program
from tests.test_adjoint_listings import check

MLP = """
def mlp(
    x: Float[Array, "N C"], W1: Float[Array, "C F"], W3: Float[Array, "C F"],
    W2: Float[Array, "F C"],
):
    t = zeros((N, F))
    y = zeros((N, C))
    for i in range(0, N):
        for f in range(0, F):
            a = sum(x[i, c] * W1[c, f] for c in range(0, C))
            b = sum(x[i, c] * W3[c, f] for c in range(0, C))
            t[i, f] = a / (1 + exp(-a)) * b
        for c in range(0, C):
            y[i, c] = x[i, c]
            for f in range(0, F):
                y[i, c] += t[i, f] * W2[f, c]
    return y
"""
NORMED = """
def normed(
    x: Float[Array, "N C"], Q: Float[Array, "N E"], K: Float[Array, "N E"],
    V: Float[Array, "N C"], g: Float[Array, "C"], b: Float[Array, "C"], eps: float,
):
    y = zeros((N, C))
    r = zeros((N, C))
    for i in range(0, N):
        m = -inf
        for j in range(0, N):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(0, E)) / sqrt(E))
        l = 0.0
        for j in range(0, N):
            p = exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) / sqrt(E) - m)
            l += p
            for c in range(0, C):
                r[i, c] += p * V[j, c]
        for c in range(0, C):
            r[i, c] = r[i, c] / l + x[i, c]
        mu = sum(r[i, c] for c in range(0, C)) / C
        var = sum((r[i, c] - mu) ** 2 for c in range(0, C)) / C
        for c in range(0, C):
            y[i, c] = (r[i, c] - mu) / sqrt(var + eps) * g[c] + b[c]
    return y
"""


def test_a_hidden_row_is_kept_though_one_loop_of_rows_holds_all() -> None:
    """How long rows are is not known: products of whole ones would have no room in registers."""
    found = backward(program(MLP))
    assert "t" in {saved.name for saved in found.saved}
    text = listing(found.program)
    assert "dt[i, f] = dt[i, f] + dy[i, c] * W2[f, c]" in text
    assert "sum(" not in text
    assert not any(map(multiplies_whole_rows, lowered(found.program, constant=True).kernels))
    check(program(MLP), found)


KEYS = """
def squared(
    Q: Float[Array, "B M E"], K: Float[Array, "B N E"], V: Float[Array, "B N D"]
):
    A = zeros((B, M, N))
    y = zeros((B, M, D))
    for b in range(0, B):
        for i in range(0, M):
            for j in range(0, N):
                A[b, i, j] = max(sum(Q[b, i, e] * K[b, j, e] for e in range(0, E)), 0.0) ** 2
            for d in range(0, D):
                for j in range(0, N):
                    y[b, i, d] += A[b, i, j] * V[b, j, d]
    return y
"""
MASKED = """
def masked(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    A = zeros((N, N))
    y = zeros((N, D))
    for i in range(0, N):
        for j in range(0, i + 1):
            A[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))
        for d in range(0, D):
            for j in range(0, i + 1):
                y[i, d] += A[i, j] * V[j, d]
    return y
"""


@pytest.mark.parametrize("text", [KEYS, MASKED])
def test_weights_of_keys_are_worked_out_again(text: str) -> None:
    """They are as many as pairs of rows; keys are those of a batch, or those a mask leaves."""
    found = backward(program(text))
    assert not found.saved
    large = {array.name for array in found.program.arrays if array.rank > 1}
    assert large == {"Q", "K", "V", "dy", "dQ", "dK", "dV"}


SCALED = """
def scaled(
    Q: Float[Array, "B M E"], K: Float[Array, "B N E"], V: Float[Array, "B N D"]
):
    A = zeros((B, M, N))
    y = zeros((B, M, D))
    for b in range(B):
        for i in range(M):
            for j in range(N):
                s = 0.0
                for e in range(E):
                    s += Q[b, i, e] * K[b, j, e]
                s = s / sqrt(E)
                A[b, i, j] = log(1.0 + exp(s))
            for d in range(D):
                y[b, i, d] = sum(A[b, i, j] * V[b, j, d] for j in range(N))
    return y
"""


def test_weights_of_sums_that_are_scaled_in_place_are_no_row_in_registers() -> None:
    (kernel,) = lowered(program(SCALED)).kernels
    assert has_products(kernel.body)
    assert not multiplies_whole_rows(kernel)
    assert any(isinstance(op, TileLoop) and op.dim.name == "j" for op in ops_in(kernel.body))


def test_the_gradient_of_a_sum_of_products_is_one_array() -> None:
    """What comes back through a norm is worked out once, and the maximum is seen to cancel."""
    found = backward(program(NORMED))
    text = listing(found.program)
    assert "m_at" not in text and "dm_term" in text
    assert "dr[i, c] = " in text
    assert "dP = sum(V[j, c] * dr[i, c] for c in range(0, C))" in text
    check(program(NORMED), found)


def test_sums_over_the_same_may_hang_on_less_than_their_whole() -> None:
    text = """
def mixed(x: Float[Array, "N E"], b: Float[Array, "E"], s: Float[Array, "N"]):
    z = zeros(N)
    y = zeros(N)
    for i in range(0, N):
        z[i] = s[i] * s[i] + 1.0
    for i in range(0, N):
        for e in range(0, E):
            y[i] += exp(z[i]) * b[e] + exp(z[i]) * x[i, e]
    return y
"""
    found = backward(program(text))
    assert "dz_sum[i] = dz_sum[i] + (b[e] + x[i, e])" in listing(found.program)
    check(program(text), found)


DIVIDED = """
def normed(x: Float[Array, "N K"], W: Float[Array, "K M"], r: Float[Array, "N M"]):
    y = zeros((N, M))
    for i in range(N):
        ss = 0.0
        for j in range(M):
            y[i, j] = sum(x[i, k] * W[k, j] for k in range(K)) + r[i, j]
            ss += y[i, j] * y[i, j]
        for j in range(M):
            y[i, j] = y[i, j] / sqrt(ss / M + 1e-6)
    return y
"""


def test_a_product_that_is_normed_is_stored_not_worked_out_twice() -> None:
    """Its kernel goes over k in blocks: rows of weights may be long."""
    kernels = lowered(program(DIVIDED)).kernels
    assert not any(map(multiplies_over_lanes, kernels))
    assert sum(has_products(kernel.body) for kernel in kernels) == 1
    assert verify(program(DIVIDED), [{"N": 19, "K": 37, "M": 21}], ["float32", "float16"]).passed


WEIGHTS = """
def attention(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"]):
    O = zeros((H, M, D))
    P = zeros((H, M, N))
    for h in range(H):
        for i in range(M):
            m = max(sum(Q[h, i, e] * K[h, j, e] for e in range(E)) for j in range(N))
            l = sum(exp(sum(Q[h, i, e] * K[h, j, e] for e in range(E)) - m) for j in range(N))
            for j in range(N):
                P[h, i, j] = exp(sum(Q[h, i, e] * K[h, j, e] for e in range(E)) - m) / l
            for d in range(D):
                O[h, i, d] = sum(P[h, i, j] * V[h, j, d] for j in range(N))
    return O, P
"""


def test_weights_that_are_returned_are_no_row_in_registers() -> None:
    """Any number of keys: what rows hand to the next kernel is a number each, no large table."""
    kernels = lowered(program(WEIGHTS)).kernels
    assert len(kernels) == 3
    assert all(has_products(kernel.body) for kernel in kernels)
    assert not any(map(multiplies_over_lanes, kernels[2:]))
    assert not any(map(multiplies_whole_rows, kernels))
    sizes = [{"H": 2, "M": 5, "N": 37, "E": 3, "D": 4}]
    assert verify(program(WEIGHTS), sizes, ["float32", "float16"]).passed


SCORES = """
def scored(
    Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
    mask: Bool[Array, "M N"],
):
    S = zeros((M, N))
    O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(E)) if mask[i, j] else -inf
        m = max(S[i, j] for j in range(N))
        l = sum(exp(S[i, j] - m) for j in range(N))
        for d in range(D):
            O[i, d] = sum(exp(S[i, j] - m) * V[j, d] for j in range(N)) / l
    return O, S
"""


def test_scores_that_are_returned_are_no_row_in_registers_either() -> None:
    found = backward(program(SCORES))
    assert any(map(stores_rows_of_products, lower(derive(found.program, "fold")).kernels))
    kernels = lowered(found.program).kernels
    assert not any(map(stores_rows_of_products, kernels))
    assert not any(map(multiplies_whole_rows, kernels))
    check(program(SCORES), found)


# Rows are divided by their sums and columns by theirs, in turn, as transport plans are found.
IN_TURN = """
def transport(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    u = zeros(M)
    w = zeros(N)
    for t in range(2):
        for i in range(M):
            m = -inf
            for j in range(N):
                m = max(m, Q[i] @ K[j] - w[j])
            l = 0.0
            for j in range(N):
                l += exp(Q[i] @ K[j] - w[j] - m)
            u[i] = m + log(l)
        for j in range(N):
            m = -inf
            for i in range(M):
                m = max(m, Q[i] @ K[j] - u[i])
            l = 0.0
            for i in range(M):
                l += exp(Q[i] @ K[j] - u[i] - m)
            w[j] = m + log(l)
    return u, w
"""

# Slots compete for what is seen, several times; each batch has slots of its own.
SLOTS = """
def slots(x: Float[Array, "B S E"], K: Float[Array, "B N E"]):
    q = zeros((B, S, E))
    u = zeros((B, S, E))
    for b in range(B):
        for s in range(S):
            for e in range(E):
                q[b, s, e] = x[b, s, e]
        for t in range(2):
            for s in range(S):
                for e in range(E):
                    u[b, s, e] = 0.0
            for n in range(N):
                m = -inf
                for s in range(S):
                    m = max(m, K[b, n] @ q[b, s])
                l = 0.0
                for s in range(S):
                    l += exp(K[b, n] @ q[b, s] - m)
                for s in range(S):
                    for e in range(E):
                        u[b, s, e] += exp(K[b, n] @ q[b, s] - m) / l * K[b, n, e]
            for s in range(S):
                for e in range(E):
                    q[b, s, e] = u[b, s, e]
    return q
"""


@pytest.mark.parametrize("text", [IN_TURN, SLOTS])
def test_rows_of_a_few_rounds_are_in_programs_of_their_own(text: str) -> None:
    """In one kernel over the rounds one program would do all rows of each."""
    for kernel in lowered(program(text)).kernels:
        assert has_products(kernel.body) and any(dim.role == "rows" for dim in kernel.grid)
        assert not any(dim.role == "element" for dim in kernel.dims)
