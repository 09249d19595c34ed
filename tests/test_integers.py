"""Integers of a kernel are those of the listing, also where 32 bits do not hold them."""

from __future__ import annotations

import importlib.util
import os
from textwrap import dedent

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported
pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

import torch

import looptrans
from looptrans.blocks.block_ir.expr import Cast, walk
from looptrans.blocks.block_ir.ops import exprs_of, ops_in
from looptrans.blocks.lower import lower
from looptrans.derivation.derive import derive
from tests.analysis import program

FAR = """
def far(x: Float[Array, "M N"], a: Int[Array, "M"], c: Int):
    y = zeros((M, N)); n = zeros((M, N), dtype=int)
    for i in range(M):
        for j in range(N):
            {}
    return y, n
"""
STATEMENTS = {
    "y[i, j] = x[i, j] * (a[i] * a[i])": "product of values",
    "y[i, j] = exp(-1e-10 * (a[i] + j) ** 2)": "square",
    "y[i, j] = x[i, j] + (a[i] + j) ** 3 / 1e12": "third power",
    "y[i, j] = 1.0 if a[i] * a[i] > 5 * c * (c + j) else x[i, j]": "comparison",
    "n[i, j] = (a[i] * (c + j)) % 1009": "rest",
    "n[i, j] = (a[i] * 2654435761 + j) % 1024": "hash",
    "n[i, j] = max(a[i] * a[i], 3000000000 + j)": "number beyond 32 bits",
    "n[i, j] = min((c + j) * (c - j) - a[i] * a[i], 7)": "difference of products",
    "y[i, j] = x[i, j] * ((c + j) * (c + j) - c * c)": "small difference of large ones",
    "y[i, j] = x[i, j] * (a[i] < 3000000000 - j)": "compared with one beyond 32 bits",
    "n[i, j] = min(a[i], 3000000000)": "the smaller of one and one beyond 32 bits",
    "n[i, j] = -1 if j > 2 else 3000000000": "a choice of one beyond 32 bits",
    "n[i, j] = 1000003 * a[i]": "number times a value",
    "n[i, j] = 1000 * c * c": "multiple of an argument",
    "y[i, j] = x[i, j] * (30000 * c)": "large multiple of an argument",
    "y[i, j] = x[i, (a[i] * 1000003 + j) % 5]": "subscript",
    "k = (a[i] * 1000003 + j) % 5\n            y[i, j] = x[i, k] * k": "subscript with a name",
    "for k in range(a[i] * 1000003 % 5):\n                y[i, j] += x[i, k]": "end of a loop",
}


def wanted(statement: str, x: torch.Tensor, a: torch.Tensor, c: int) -> list[torch.Tensor]:
    """Return what Python makes of a statement, whose integers have no end."""
    y = torch.zeros(x.shape, dtype=torch.float64)
    n = torch.zeros(x.shape, dtype=torch.int64)
    held = [int(value) for value in a]
    names = {"x": x.double(), "a": held, "c": c, "y": y, "n": n, "exp": math_exp}
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            exec(dedent(" " * 12 + statement), names | {"i": i, "j": j})
    return [y, n]


def math_exp(value: float) -> float:
    return float(torch.exp(torch.tensor(float(value), dtype=torch.float64)))


@pytest.mark.parametrize("statement", STATEMENTS, ids=STATEMENTS.get)
def test_integers_have_no_end(statement: str) -> None:
    x = torch.rand(3, 5) + 0.5
    a = torch.tensor([100_000, -70_001, 46_341], dtype=torch.int32)
    far = looptrans.compile(FAR.format(statement))
    for found, expected in zip(far(x, a, 90_000), wanted(statement, x, a, 90_000), strict=True):
        assert torch.allclose(found.double(), expected.double(), rtol=1e-5, atol=1e-5)


SET_AGAIN = """
def again(X: Int[Array, "N"], a: Int[Array, "N"]):
    n = zeros(N, dtype=int)
    for i in range(N):
        X[i] = X[i] // 3 + 1
        k = a[i]
        k = k // 2 + k % 3
        n[i] = k
    return X, n
"""


def test_what_is_set_again_keeps_its_bits() -> None:
    """In place, and under a name that is set twice: 64 where the tensor has them."""
    held = torch.tensor([2**40 + 3, -(2**41) - 1, 2**28 + 7])
    found, counts = looptrans.compile(SET_AGAIN)(held.clone(), held)
    assert torch.equal(found, held // 3 + 1) and torch.equal(counts, held // 2 + held % 3)


def test_the_largest_of_arguments_beyond_32_bits() -> None:
    far = looptrans.compile(FAR.format("n[i, j] = max(k - c for k in range(N))"))
    _, n = far(torch.rand(3, 5), torch.zeros(3, dtype=torch.int32), 5_000_000_000)
    assert torch.equal(n, torch.full((3, 5), 4 - 5_000_000_000))


def test_places_stay_in_32_bits() -> None:
    text = FAR.format("y[i, j] = x[i, j] * (2 * i - j) if i // 4 >= 3 * j else 0.0")
    (kernel,) = lower(derive(program(text), "fold")).kernels
    every = [part for op in ops_in(kernel.body) for e in exprs_of(op) for part in walk(e)]
    assert not [part for part in every if isinstance(part, Cast) and part.to == "int64"]
