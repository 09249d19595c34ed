"""Loops that carry the logarithm of a sum of powers: one pass in blocks, and gradients of it."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from looptrans.blocks.block_ir.ops import ElementLoop, TileLoop, has_products, ops_in
from looptrans.derivation.derive import derive
from looptrans.emit.listing import lowered
from looptrans.runtime.verifying.backward import verify_backward
from looptrans.runtime.verifying.verify import verify
from tests.analysis import program

RING = """
def ring(Q: Float[Array, "B M E"], K: Float[Array, "B N E"], V: Float[Array, "B N D"]{more}):
    O = zeros((B, M, D))
    for b in range(B):
        for i in range(M):
            L = {first}
            for j in range(min(N, i + 5)):
                s = sum(Q[b, i, e] * K[b, j, e] for e in range(E))
                {new}
                for d in range(D):
                    O[b, i, d] = O[b, i, d] * exp(L - new) + exp(s - new) * V[b, j, d]
                L = new
    return O
"""
BELOW = """top = max(L, s)
                new = top + log(exp(L - top) + exp(s - top))"""
APART = "new = max(s, L) + log(exp(-abs(L - s)) + 1.0)"
NARROW = "new = max(s, L) + log(1.0 + exp(min(L, s) - max(L, s)))"
CHOSEN = """if s > L:
                    new = s + log(1.0 + exp(L - s))
                else:
                    new = L + log(1.0 + exp(s - L))"""
SINK = ', sink: Float[Array, "B"]'


def ring(new: str, first: str = "-inf", more: str = "") -> str:
    return RING.format(new=new, first=first, more=more)


@pytest.mark.parametrize(
    "text",
    [
        ring(BELOW),
        ring(APART),
        ring(NARROW, "0.0"),
        ring(CHOSEN),
        ring(APART, "sink[b]", SINK),
    ],
)
def test_a_state_of_one_logarithm_is_one_pass_in_blocks(text: str) -> None:
    (kernel,) = lowered(program(text)).kernels
    assert has_products(kernel.body)
    assert not any(isinstance(op, ElementLoop) for op in ops_in(kernel.body))
    assert {op.dim.name for op in ops_in(kernel.body) if isinstance(op, TileLoop)} == {"j"}


def test_its_gradients_have_no_powers_that_are_too_large() -> None:
    """What the forward pass does not hand over is worked out below the largest, too."""
    sizes = [{"B": 2, "M": 5, "N": 7, "E": 3, "D": 2}]
    text = ring(APART, "sink[b]", SINK)
    assert verify(program(text), sizes, ["float32"]).passed
    assert verify_backward(program(text), sizes, ["float32"]).passed


def test_powers_that_may_be_too_large_stay_as_they_are_written() -> None:
    """log(exp(L) + exp(s)) is infinite where exp(s) is, and so is what runs."""
    text = ring("new = log(exp(L) + exp(s))")
    assert "logarithms" not in {step.kind for step in derive(program(text), "fold").steps}


LABELLED = """
def f(X: Float[Array, "N V"], y: Int[Array, "N", "0:V"]):
    loss = zeros(N)
    for n in range(N):
        lse = -inf
        own = 0.0
        for v in range(V):
            if v == y[n]:
                own = X[n, v]
            lse = max(lse, X[n, v]) + log(1 + exp(-abs(lse - X[n, v])))
        loss[n] = lse - own
    return loss
"""


def test_what_a_guard_picks_beside_it_is_no_obstacle() -> None:
    (kernel,) = lowered(program(LABELLED)).kernels
    assert not any(isinstance(op, ElementLoop) for op in ops_in(kernel.body))
