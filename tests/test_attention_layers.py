"""Listings of a whole layer: projections, attention of several heads, the last projection."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from looptrans.blocks.expr import Dot, walk
from looptrans.blocks.ops import ElementLoop, TileLoop, exprs_of, ops_in
from looptrans.blocks.program import BlockProgram, Kernel
from looptrans.emit.listing import lowered
from looptrans.frontend import parse
from looptrans.ir.source import Source
from looptrans.runtime.verify import verify

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
