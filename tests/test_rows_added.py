"""Rows that an iteration adds up from all of a state: each of their cells is a sum over it."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

import looptrans  # noqa: E402
from looptrans.derivation.derive import derive  # noqa: E402
from looptrans.emit.listing import emitted, lowered  # noqa: E402
from tests.analysis import program  # noqa: E402
from tests.test_attention_strangers import compare, normal  # noqa: E402

# Causal linear attention, its normalizer beside it: a number for which all of z has to be there.
NORMALIZED = """
def normalized(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T D"]):
    S = zeros((E, D))
    z = zeros(E)
    O = zeros((T, D))
    for t in range(T):
        den = 0.0
        for e in range(E):
            z[e] += exp(K[t, e])
            den += exp(Q[t, e]) * z[e]
            for d in range(D):
                S[e, d] += exp(K[t, e]) * V[t, d]
                O[t, d] += exp(Q[t, e]) * S[e, d]
        for d in range(D):
            O[t, d] /= den
    return O
"""
APART = """
            for d in range(D):
                S[e, d] += exp(K[t, e]) * V[t, d]
        for e in range(E):
            p = exp(Q[t, e])
            for d in range(D):
                O[t, d] += p * S[e, d]
"""
TOGETHER = """
            for d in range(D):
                S[e, d] += exp(K[t, e]) * V[t, d]
                O[t, d] += exp(Q[t, e]) * S[e, d]
"""

# Gated slot attention: a softmax over slots, the cells of a state.
SLOTS = """
def slots(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T D"],
          A: Float[Array, "T S"]):
    Ks = zeros((S, E))
    Vs = zeros((S, D))
    O = zeros((T, D))
    for t in range(T):
        for s in range(S):
            a = 1.0 / (1.0 + exp(-A[t, s]))
            for e in range(E):
                Ks[s, e] = a * Ks[s, e] + (1.0 - a) * K[t, e]
            for d in range(D):
                Vs[s, d] = a * Vs[s, d] + (1.0 - a) * V[t, d]
        m = -inf
        for s in range(S):
            m = max(m, sum(Ks[s, e] * Q[t, e] for e in range(E)))
        l = 0.0
        for s in range(S):
            l += exp(sum(Ks[s, e] * Q[t, e] for e in range(E)) - m)
        for s in range(S):
            for d in range(D):
                O[t, d] += exp(sum(Ks[s, e] * Q[t, e] for e in range(E)) - m) / l * Vs[s, d]
    return O
"""


@pytest.mark.parametrize("text", [NORMALIZED, NORMALIZED.replace(TOGETHER, APART)])
def test_a_row_added_up_from_a_state_is_a_sum_for_each_cell(text: str) -> None:
    """In blocks of what is summed over, each element of the state would be looked for by itself."""
    (kernel,) = lowered(program(text)).kernels
    assert not any(dim.role == "tile" for dim in kernel.dims)
    assert {dim.name for dim in kernel.dims if dim.role == "lanes"} == {"e", "d"}


def test_a_normalizer_beside_linear_attention_is_that_of_its_weights() -> None:
    q, k, v = normal((5, 4), (5, 4), (5, 3))
    weights = (q.double().exp() @ k.double().exp().T).tril()
    expected = weights @ v.double() / weights.sum(-1, keepdim=True)
    torch.testing.assert_close(
        looptrans.compile(NORMALIZED)(q, k, v).double(), expected, rtol=1e-5, atol=1e-5
    )


def test_a_softmax_over_the_cells_of_a_state_is_a_kernel_with_gradients() -> None:
    def torch_(q: Any, k: Any, v: Any, a: Any) -> Any:
        keys, values = torch.zeros(5, 4), torch.zeros(5, 3)
        rows = []
        for t in range(4):
            gate = torch.sigmoid(a[t])[:, None]
            keys = gate * keys + (1 - gate) * k[t]
            values = gate * values + (1 - gate) * v[t]
            rows.append(torch.softmax(keys @ q[t], 0) @ values)
        return torch.stack(rows)

    assert len(emitted(program(SLOTS)).blocks.kernels) == 1
    compare(SLOTS, torch_, normal((4, 4), (4, 4), (4, 3), (4, 5)), [])


# All of x is in registers: so is what is summed over where y is made, and n goes in blocks.
HOPS = """
def hops(x0: Float[Array, "E"], Y: Float[Array, "N E"], R: Const):
    x = zeros(E)
    z = zeros(E)
    for e in range(E):
        x[e] = x0[e]
    for t in range(R):
        for e in range(E):
            z[e] = 0.0
        for n in range(N):
            for e in range(E):
                z[e] += tanh(sum(x[f] * Y[n, f] for f in range(E))) * Y[n, e]
        for e in range(E):
            x[e] = z[e]
    return x
"""


def test_rows_added_over_what_no_state_has_cells_for_stay_in_blocks() -> None:
    steps = derive(program(HOPS), "fold").steps
    assert not any("interchange" in str(step.arguments) for step in steps)


# How much all queries look at each key is added to, and looked at by nobody.
LOOKED_AT = """
def looked_at(P: Float[Array, "M N"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    A = zeros(N)
    for i in range(M):
        for j in range(N):
            A[j] += P[i, j]
            for d in range(D):
                O[i, d] += P[i, j] * V[j, d]
    return O, A
"""


def test_what_is_only_added_to_is_no_state_that_rows_are_made_of() -> None:
    """All of it in one block would leave one program to go over all rows."""
    assert all(kernel.grid for kernel in lowered(program(LOOKED_AT)).kernels)


# Besides a softmax attention, how much all queries look at each key.
IMPORTANCE = """
def importance(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    A = zeros(N)
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, Q[i] @ K[j])
        l = 0.0
        for j in range(N):
            l += exp(Q[i] @ K[j] - m)
        for j in range(N):
            p = exp(Q[i] @ K[j] - m) / l
            A[j] += p
            for d in range(D):
                O[i, d] += p * V[j, d]
    return O, A
"""


def test_attention_stays_one_pass_where_its_weights_are_added_up_by_columns_too() -> None:
    q, k, v = normal((5, 4), (7, 4), (7, 3))
    assert len(lowered(program(IMPORTANCE)).kernels) == 2
    weights = torch.softmax(q.double() @ k.double().T, -1)
    found = looptrans.compile(IMPORTANCE)(q, k, v)
    for mine, theirs in zip(found, (weights @ v.double(), weights.sum(0)), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-5)
