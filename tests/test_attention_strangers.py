"""Attention as strangers write it: kernels beside hand-written torch in float64, both passes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

import looptrans  # noqa: E402
from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.listing import emitted  # noqa: E402
from tests.analysis import program  # noqa: E402


def normal(*shapes: tuple[int, ...]) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator) for shape in shapes]


def compare(text: str, theirs: Callable[..., Any], given: list[Any], fixed: list[Any]) -> None:
    """Hold the outputs and gradients of a listing against those of torch in float64."""
    mine = [each.clone().requires_grad_() for each in given]
    wide = [each.double().requires_grad_() for each in given]
    found = looptrans.compile(text)(*mine, *fixed)
    expected = theirs(*wide, *fixed)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    (back,) = normal(tuple(expected.shape))
    found.backward(back)
    expected.backward(back.double())
    for one, other in zip(mine, wide, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-5)


# Keys are made in the loop over heads that also goes over the queries.
MADE_INSIDE = """
def inside(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"],
           g: Float[Array, "E"]):
    KN = zeros((B, H, N, E))
    O = zeros((B, H, M, D))
    for b in range(B):
        for h in range(H):
            for j in range(N):
                n = sqrt(sum(K[b, h, j, e] ** 2 for e in range(E)) / E + 1e-6)
                for e in range(E):
                    KN[b, h, j, e] = K[b, h, j, e] / n * g[e]
            for i in range(M):
                m = -inf
                for j in range(N):
                    m = max(m, Q[b, h, i] @ KN[b, h, j])
                l = 0.0
                for j in range(N):
                    l += exp(Q[b, h, i] @ KN[b, h, j] - m)
                for j in range(N):
                    for d in range(D):
                        O[b, h, i, d] += exp(Q[b, h, i] @ KN[b, h, j] - m) / l * V[b, h, j, d]
    return O
"""


def test_nests_that_stand_in_one_loop_over_heads_are_kernels_of_their_own() -> None:
    """A program for each head, or each batch, would do all rows of it alone."""
    given = program(MADE_INSIDE)
    for blocks in (emitted(given).blocks, emitted_with_backward(given).forward):
        keys, rows = blocks.kernels
        for kernel, axis in ((keys, "j"), (rows, "i")):
            assert kernel.grid[-1].name == axis and len(kernel.grid) == 3
    assert "O = tl.dot(" in emitted_with_backward(given).text

    def torch_(q: Any, k: Any, v: Any, g: Any) -> Any:
        k = k / torch.sqrt((k**2).mean(-1, keepdim=True) + 1e-6) * g
        return torch.softmax(q @ k.mT, -1) @ v

    compare(MADE_INSIDE, torch_, normal((2, 2, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3), (4,)), [])


# Scores are worked out in each of three passes, and overwritten where a key is hidden.
OVERWRITTEN = """
def hidden(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T D"],
           doc: Int[Array, "T"]):
    O = zeros((T, D))
    for i in range(T):
        m = -inf
        for j in range(T):
            SCORE
            m = max(m, s)
        l = 0.0
        for j in range(T):
            SCORE
            l += exp(s - m)
        for j in range(T):
            SCORE
            for d in range(D):
                O[i, d] += exp(s - m) / l * V[j, d]
    return O
"""
SET_AGAIN = """s = Q[i] @ K[j]
            if doc[j] != doc[i] or j > i:
                s = -inf"""
CHOSEN = """if doc[j] == doc[i] and j <= i:
                s = Q[i] @ K[j]
            else:
                s = -inf"""


@pytest.mark.parametrize("score", [SET_AGAIN, CHOSEN])
def test_a_score_that_is_overwritten_in_each_pass_is_one_score(score: str) -> None:
    def torch_(q: Any, k: Any, v: Any, doc: Any) -> Any:
        seen = (doc[:, None] == doc) & torch.ones(9, 9, dtype=torch.bool).tril()
        return torch.softmax((q @ k.T).masked_fill(~seen, -float("inf")), -1) @ v

    text = OVERWRITTEN.replace("SCORE", score)
    compare(text, torch_, normal((9, 4), (9, 4), (9, 3)), [torch.arange(9) // 4])
