"""Listings of a whole layer: projections, attention of several heads, the last projection."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from looptrans.adjoint.backward import backward
from looptrans.blocks.block_ir.expr import Dot, kind_of, walk
from looptrans.blocks.block_ir.ops import ElementLoop, Let, TileLoop, exprs_of, ops_in
from looptrans.blocks.block_ir.program import BlockProgram, Kernel
from looptrans.emit.listing import lowered
from looptrans.frontend import parse
from looptrans.ir.listing import listing
from looptrans.ir.source import Source
from looptrans.runtime.verifying.verify import verify

LAYER = """
def layer(X: Float[Array, "B T C"], Wq: Float[Array, "H E C"], Wk: Float[Array, "H E C"],
          Wv: Float[Array, "H D C"], Wo: Float[Array, "C H D"], a):
    q = zeros((B, H, T, E))
    k = zeros((B, H, T, E))
    v = zeros((B, H, T, D))
    y = zeros((B, H, T, D))
    Y = zeros((B, T, C))
    for b in range(0, B):
        for h in range(0, H):
            for t in range(0, T):
                for e in range(0, E):
                    q[b, h, t, e] = sum(X[b, t, c] * Wq[h, e, c] for c in range(0, C))
                    k[b, h, t, e] = sum(X[b, t, c] * Wk[h, e, c] for c in range(0, C))
                for d in range(0, D):
                    v[b, h, t, d] = sum(X[b, t, c] * Wv[h, d, c] for c in range(0, C))
    for b in range(0, B):
        for h in range(0, H):
            for t in range(0, T):
                m = -inf
                l = 0.0
                for j in range(0, t + 1):
                    s = a * sum(q[b, h, t, e] * k[b, h, j, e] for e in range(0, E))
                    top = max(m, s)
                    l = l * exp(m - top) + exp(s - top)
                    for d in range(0, D):
                        y[b, h, t, d] = y[b, h, t, d] * exp(m - top) + exp(s - top) * v[b, h, j, d]
                    m = top
                for d in range(0, D):
                    y[b, h, t, d] = y[b, h, t, d] / l
    for b in range(0, B):
        for t in range(0, T):
            for c in range(0, C):
                Y[b, t, c] = sum(
                    Wo[c, h, d] * y[b, h, t, d] for h in range(0, H) for d in range(0, D)
                )
    return Y
"""
LATENT = """
def latent(Q: Float[Array, "H M E"], Qr: Float[Array, "H M F"], X: Float[Array, "N L"],
           Kr: Float[Array, "N F"], Wk: Float[Array, "H E L"], Wv: Float[Array, "H D L"]):
    k = zeros((H, N, E))
    v = zeros((H, N, D))
    O = zeros((H, M, D))
    for h in range(0, H):
        for j in range(0, N):
            for e in range(0, E):
                k[h, j, e] = sum(Wk[h, e, c] * X[j, c] for c in range(0, L))
            for d in range(0, D):
                v[h, j, d] = sum(Wv[h, d, c] * X[j, c] for c in range(0, L))
    for h in range(0, H):
        for i in range(0, M):
            m = -inf
            l = 0.0
            for j in range(0, min(N, i + 1)):
                s = sum(Q[h, i, e] * k[h, j, e] for e in range(0, E))
                s = s + sum(Qr[h, i, f] * Kr[j, f] for f in range(0, F))
                top = max(m, s)
                l = l * exp(m - top) + exp(s - top)
                for d in range(0, D):
                    O[h, i, d] = O[h, i, d] * exp(m - top) + exp(s - top) * v[h, j, d]
                m = top
            for d in range(0, D):
                O[h, i, d] = O[h, i, d] / l
    return O
"""
CONVOLUTION = """
def convolution(X: Float[Array, "B T C"], W: Float[Array, "F K C"], c0: Float[Array, "F"]):
    Y = zeros((B, T - K + 1, F))
    for b in range(0, B):
        for t in range(0, T - K + 1):
            for f in range(0, F):
                Y[b, t, f] = c0[f] + sum(
                    X[b, t + k, c] * W[f, k, c] for k in range(0, K) for c in range(0, C)
                )
    return Y
"""
SIZES = {"B": 2, "T": 19, "C": 5, "H": 3, "E": 6, "D": 7, "M": 9, "N": 11, "F": 3, "L": 4, "K": 3}


def blocks_of(text: str) -> BlockProgram:
    return lowered(parse(Source("<test>", text)))


def dots(kernel: Kernel) -> list[Dot]:
    parts = (p for op in ops_in(kernel.body) for e in exprs_of(op) for p in walk(e))
    return [part for part in parts if isinstance(part, Dot)]


def rows(kernel: Kernel) -> list[str]:
    return [dim.name for dim in kernel.grid if dim.role == "rows"]


def test_projections_attention_and_the_last_projection_are_kernels_of_matrix_products() -> None:
    """A program does rows of one head, whatever loop of heads stands around."""
    project, attend, last = blocks_of(LAYER).kernels
    assert rows(project) == rows(attend) == ["t"] and rows(last) == ["t", "c"]
    for kernel in (project, attend, last):
        assert dots(kernel)
    # Of each head the last projection is a product, over blocks of its own.
    (heads,) = (op for op in last.body if isinstance(op, ElementLoop))
    assert any(isinstance(op, TileLoop) for op in heads.body)


def test_rows_are_tokens_wherever_heads_stand() -> None:
    """Heads that share keys stand between the tokens and the features, or behind causal bounds."""
    text = """
def f(q: Float[Array, "B T G R E"], kT: Float[Array, "B G E N"], v: Float[Array, "B N G D"]):
    O = zeros((B, T, G, R, D))
    for b in range(0, B):
        for t in range(0, T):
            for g in range(0, G):
                for r in range(0, R):
                    for j in range(0, N):
                        s = sum(q[b, t, g, r, e] * kT[b, g, e, j] for e in range(0, E))
                        for d in range(0, D):
                            O[b, t, g, r, d] += tanh(s) * v[b, j, g, d]
    return O
"""
    (kernel,) = blocks_of(text).kernels
    assert rows(kernel) == ["t"] and kernel.grid[-1].name == "t"
    found = backward(parse(Source("<test>", text))).program
    assert [rows(k) for k in blocks_of(listing(found)).kernels] == [["t"], ["j"]]
    assert "for r in range(0, R):\n                    for t in range(0, T):" in listing(found)
    text = """
def f(q: Float[Array, "T H E"], k: Float[Array, "T E"]):
    O = zeros((T, H, E))
    for t in range(0, T):
        for h in range(0, H):
            for j in range(max(0, t - 8), t + 1):
                s = sum(q[t, h, e] * k[j, e] for e in range(0, E))
                for e in range(0, E):
                    O[t, h, e] += tanh(s) * k[j, e]
    return O
"""
    assert [rows(k) for k in blocks_of(text).kernels] == [["t"]]


def test_what_keys_are_made_of_is_multiplied_once() -> None:
    """Not again for each block of queries; nor are keys that heads share a reason for rows of h."""
    project, attend = blocks_of(LATENT).kernels
    assert rows(project) == ["j"] and rows(attend) == ["i"]
    assert not {"X", "Wk"} & {a.name for a in attend.arrays}


def test_a_convolution_is_a_product_for_each_tap() -> None:
    (kernel,) = blocks_of(CONVOLUTION).kernels
    assert rows(kernel) == ["t", "f"] and dots(kernel)


@pytest.mark.parametrize("text", [LAYER, LATENT, CONVOLUTION])
def test_layers_give_the_numbers_of_their_listings(text: str) -> None:
    program = parse(Source("<test>", text))
    sizes = {p.name: SIZES[p.name] for p in program.parameters if p.kind == "size"}
    assert verify(program, [sizes], ["float32"]).passed


def text_of(text: str) -> str:
    return listing(backward(parse(Source("<test>", text))).program)


# The projections go over tokens first, attention over heads; the keys' gradients are read before
# the others' are ready, and the scale has one too.
TOKENS_FIRST = """
def tokens_first(X: Float[Array, "T C"], W: Float[Array, "3 C H E"], a: float):
    q = zeros((T, H, E)); k = zeros((T, H, E)); v = zeros((T, H, E)); O = zeros((T, H, E))
    for t in range(0, T):
        for h in range(0, H):
            for e in range(0, E):
                for c in range(0, C):
                    q[t, h, e] += X[t, c] * W[0, c, h, e]
                    k[t, h, e] += X[t, c] * W[1, c, h, e]
                    v[t, h, e] += X[t, c] * W[2, c, h, e]
    for h in range(0, H):
        for i in range(0, T):
            m = -inf
            l = 0.0
            for j in range(0, i + 1):
                m = max(m, a * sum(q[i, h, e] * k[j, h, e] for e in range(0, E)))
            for j in range(0, i + 1):
                p = exp(a * sum(q[i, h, e] * k[j, h, e] for e in range(0, E)) - m)
                l += p
                for e in range(0, E):
                    O[i, h, e] += p * v[j, h, e]
            for e in range(0, E):
                O[i, h, e] /= l
    return O
"""


@pytest.mark.parametrize(("text", "scores"), [(LAYER, 2), (LATENT, 3), (TOKENS_FIRST, 2)])
def test_gradients_read_what_a_nest_made_whole(text: str, scores: int) -> None:
    """No product stands inside a score; scores come in two nests, as attention's do."""
    found = text_of(text)
    assert found.count("= exp(") == scores and "k: Float32" in found
    assert " sum(sum(" not in found and "* sum(" not in found
    assert "delta[" in found


def test_scores_in_memory_are_worked_out_again() -> None:
    """Though nests of their own make them whole, and weights of them."""
    found = text_of("""
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    P = zeros((M, N))
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))
    for i in range(0, M):
        for j in range(0, N):
            m[i] = max(m[i], S[i, j])
        for j in range(0, N):
            l[i] = l[i] + exp(S[i, j] - m[i])
    for i in range(0, M):
        for j in range(0, N):
            P[i, j] = exp(S[i, j] - m[i]) / l[i]
    for i in range(0, M):
        for d in range(0, D):
            O[i, d] = sum(P[i, j] * V[j, d] for j in range(0, N))
    return O
""")
    assert "lse: Float32" in found and "M N" not in found and "(M, N)" not in found


SUMS = {
    "the same sum at two places, where others hold": """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    U = zeros((M, N))
    t = zeros((M, N))
    for i in range(0, M):
        for j in range(0, N):
            t[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))
        for j in range(0, N):
            U[i, j] = t[i, j] if j < 1 else t[i, j] - t[i, j - 1]
    return U
""",
    "a sum inside of a sum": """
def f(Q: Float[Array, "H M E"], X: Float[Array, "M C"], W: Float[Array, "H E C"]):
    S = zeros((H, M, M))
    for h in range(0, H):
        for i in range(0, M):
            for j in range(0, i + 1):
                S[h, i, j] = sum(
                    Q[h, i, e] * sum(X[j, c] * W[h, e, c] for c in range(0, C))
                    for e in range(0, E)
                )
    return S
""",
    "as many rows as a batch has": """
def f(X: Float[Array, "B N C"], W: Float[Array, "F N C"], n: Int[Array, "B", "0:N+1"]):
    Y = zeros((B, F))
    for b in range(0, B):
        for f in range(0, F):
            for k in range(0, n[b]):
                for c in range(0, C):
                    Y[b, f] = Y[b, f] + X[b, k, c] * W[f, k, c]
    return Y
""",
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_give_the_numbers_of_their_listings(name: str) -> None:
    program = parse(Source("<test>", SUMS[name]))
    sizes = {p.name: SIZES[p.name] for p in program.parameters if p.kind == "size"}
    assert verify(program, [sizes], ["float32"]).passed


def test_integers_are_added_as_integers() -> None:
    (kernel,) = blocks_of("""
def f(A: Int[Array, "M H D"], B: Int[Array, "N H D"]):
    C = zeros((M, N), dtype=int)
    for i in range(0, M):
        for j in range(0, N):
            C[i, j] = sum(A[i, h, d] * B[j, h, d] for h in range(0, H) for d in range(0, D))
    return C
""").kernels
    carried = {op.name: kind_of(op.value) for op in ops_in(kernel.body) if isinstance(op, Let)}
    assert carried and set(carried.values()) == {"int"}
