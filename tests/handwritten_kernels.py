# mypy: ignore-errors
"""Kernels written by hand, to measure the measuring; read as text and never imported by a test."""

import triton
import triton.language as tl


@triton.jit
def attention(
    q,
    k,
    v,
    o,
    M,
    N,
    scale,
    stride_q,
    stride_k,
    stride_v,
    stride_o,
    D: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_J: tl.constexpr,
):
    i = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    d = tl.arange(0, D)
    rows = i[:, None] < M
    query = tl.load(q + i[:, None] * stride_q + d[None, :], mask=rows, other=0.0)
    factor = scale * 1.4426950408889634
    m = tl.full([BLOCK_I], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_I], tl.float32)
    acc = tl.zeros([BLOCK_I, D], tl.float32)
    for first in range(0, N // BLOCK_J * BLOCK_J, BLOCK_J):
        j = first + tl.arange(0, BLOCK_J)
        key = tl.load(k + j[:, None] * stride_k + d[None, :])
        score = tl.dot(query, key.T)
        above = tl.maximum(m, tl.max(score, 1) * factor)
        p = tl.exp2(score * factor - above[:, None])
        alpha = tl.exp2(m - above)
        total = total * alpha + tl.sum(p, 1)
        value = tl.load(v + j[:, None] * stride_v + d[None, :])
        acc = tl.dot(p.to(v.dtype.element_ty), value, acc * alpha[:, None])
        m = above
    tl.store(o + i[:, None] * stride_o + d[None, :], acc / total[:, None], mask=rows)


@triton.jit
def reciprocals(x, y, N, BLOCK: tl.constexpr):
    for first in range(0, N, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tl.store(y + at, 1.0 / tl.load(x + at, mask=at < N, other=1.0), mask=at < N)
