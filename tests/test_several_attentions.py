"""Attention several times in one listing: layer upon layer, or one that is repeated."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.adjoint.backward import backward  # noqa: E402
from looptrans.blocks.block_ir.ops import (  # noqa: E402
    TileLoop,
    has_products,
    most_dims,
    ops_in,
)
from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.listing import emitted  # noqa: E402
from tests.analysis import program  # noqa: E402
from tests.test_attention_strangers import compare, normal  # noqa: E402

# Each layer makes a row of its own under one name, and overwrites what the one before has made.
LAYER = """
    for s in range(S):
        m = -inf; z = 0.0
        new = zeros(E)
        for n in range(N):
            m = max(m, sum(H[s, e] * Y[n, e] for e in range(E)))
        for n in range(N):
            p = exp(sum(H[s, e] * Y[n, e] for e in range(E)) - m)
            z += p
            for e in range(E):
                new[e] += p * Y[n, e]
        for e in range(E):
            H[s, e] = new[e] / z
"""
LAYERS = f"""
def layers(X: Float[Array, "S E"], Y: Float[Array, "N E"]):
    H = zeros((S, E))
    for s in range(S):
        for e in range(E):
            H[s, e] = X[s, e]
{LAYER}
{LAYER}
    return H
"""
# What is retrieved asks again, a few times.
REPEATED = """
def retrieved(R: Float[Array, "S E"], Y: Float[Array, "N E"]):
    x = zeros((S, E))
    for s in range(S):
        for e in range(E):
            x[s, e] = R[s, e]
    for t in range(3):
        for s in range(S):
            m = -inf; z = 0.0
            for n in range(N):
                m = max(m, 0.5 * sum(x[s, e] * Y[n, e] for e in range(E)))
            new = zeros(E)
            for n in range(N):
                p = exp(0.5 * sum(x[s, e] * Y[n, e] for e in range(E)) - m)
                z += p
                for e in range(E):
                    new[e] += p * Y[n, e]
            for e in range(E):
                x[s, e] = new[e] / z
    return x
"""


def test_layers_that_use_the_same_names_are_one_pass_each() -> None:
    made = emitted_with_backward(program(LAYERS))
    (kernel,) = made.forward.kernels
    loops = [op for op in ops_in(kernel.body) if isinstance(op, TileLoop)]
    assert len(loops) == 4  # of full blocks and of the last one, for each layer
    assert not any("attains" in note for note in backward(program(LAYERS)).notes)

    def torch_(x: Any, y: Any) -> Any:
        for _ in range(2):
            x = torch.softmax(x @ y.mT, -1) @ y
        return x

    compare(LAYERS, torch_, normal((5, 4), (19, 4)), [])


def test_attention_that_is_repeated_is_one_pass_each_time() -> None:
    """Not a row of all scores, whose elements are looked for one by one."""
    (kernel,) = emitted(program(REPEATED)).blocks.kernels
    assert has_products(kernel.body) and most_dims(kernel.body) == 2

    def torch_(x: Any, y: Any) -> Any:
        for _ in range(3):
            x = torch.softmax(0.5 * x @ y.mT, -1) @ y
        return x

    compare(REPEATED, torch_, normal((5, 4), (19, 4)), [])
