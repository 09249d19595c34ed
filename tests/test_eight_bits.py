"""Arguments of eight bits: tensors of that type, exact in matrix products of 16 bits."""

from __future__ import annotations

import importlib.util
import os

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported
pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

import torch

import looptrans
from looptrans.adjoint.backward import backward
from looptrans.blocks.block_ir.expr import Binary, Cast, Dot, walk
from looptrans.blocks.block_ir.ops import exprs_of, ops_in
from looptrans.blocks.lower import lower
from looptrans.derivation.derive import derive
from looptrans.emit.listing import emitted
from tests.analysis import program

EIGHT_BITS = """
def eight(
    Q: Float[Array, "M E"], K: Int8[Array, "N E"], k: Float[Array, "N"], V: UInt8[Array, "N D"]
):
    O = zeros((M, D)); c = zeros(N, dtype=int)
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            s = sum(Q[i, e] * K[j, e] for e in range(E)) * k[j]
            n = max(m, s)
            l = l * exp(m - n) + exp(s - n)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - n) + exp(s - n) * (V[j, d] - 128)
            m = n
        for d in range(D):
            O[i, d] = O[i, d] / l
    for j in range(N):
        c[j] = K[j, 0] + K[j, 1] * K[j, 2] - V[j, 0]
    return O, c
"""


def test_integers_of_eight_bits() -> None:
    """They are multiplied as what they are, in 16 bits where the other side has no more."""
    torch.manual_seed(0)
    Q, k = torch.randn(5, 16, requires_grad=True), (torch.rand(70) / 100).requires_grad_()
    K = torch.randint(-128, 128, (70, 16), dtype=torch.int8)
    V = torch.randint(0, 256, (70, 16), dtype=torch.uint8)
    eight = looptrans.compile(EIGHT_BITS)
    found, counts = eight(Q, K, k, V)
    weights = torch.softmax((Q.double() @ K.double().T) * k, 1)
    wanted = weights @ (V.double() - 128)
    assert torch.allclose(found.double(), wanted, rtol=1e-4, atol=1e-3)
    given = torch.randn(5, 16)
    pairs = zip(
        torch.autograd.grad(found, [Q, k], given),
        torch.autograd.grad(wanted, [Q, k], given.double()),
        strict=True,
    )
    for one, other in pairs:
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))
    wide = K.long()
    assert torch.equal(counts, wide[:, 0] + wide[:, 1] * wide[:, 2] - V.long()[:, 0])
    with pytest.raises(ValueError, match=r"K should be torch.int8, and is torch.int64"):
        eight(Q, K.long(), k, V)


SCALED = """
def scaled(
    Q: Float[Array, "M E"], K: Float8e4m3fn[Array, "N E"], k: Float[Array, "N"],
    V: Float8e5m2[Array, "N D"], v: Float[Array, "N"]
):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            s = sum(Q[i, e] * K[j, e] for e in range(E)) * k[j]
            n = max(m, s)
            l = l * exp(m - n) + exp(s - n)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - n) + exp(s - n) * V[j, d] * v[j]
            m = n
        for d in range(D):
            O[i, d] = O[i, d] / l
    return O
"""


def test_numbers_of_eight_bits_with_scales() -> None:
    """Scales have gradients, and what has so few bits none."""
    torch.manual_seed(0)
    Q, k, v = (torch.rand(shape, requires_grad=True) for shape in ((5, 16), (70,), (70,)))
    K = torch.randn(70, 16).to(torch.float8_e4m3fn)
    V = torch.randn(70, 16).to(torch.float8_e5m2)
    assert [*backward(program(SCALED)).gradients] == ["Q", "k", "v"]
    found = looptrans.compile(SCALED)(Q, K, k, V, v)
    wanted = torch.softmax((Q @ K.float().T) * k, 1) @ (V.float() * v[:, None])
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)
    given = torch.randn(5, 16)
    for one, other in zip(
        torch.autograd.grad(found, [Q, k, v], given),
        torch.autograd.grad(wanted, [Q, k, v], given),
        strict=True,
    ):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("text", [EIGHT_BITS, SCALED], ids=["integers", "numbers"])
def test_eight_bits_are_no_more_in_a_matrix_product(text: str) -> None:
    kernel = lower(derive(program(text), "fold")).kernels[0]
    every = [part for op in ops_in(kernel.body) for e in exprs_of(op) for part in walk(e)]
    first = next(part for part in every if isinstance(part, Dot))
    assert isinstance(first.right, Cast) and first.right.like == "Q"


NIBBLES = """
def nibbles(Q: Float[Array, "M E"], K: UInt8[Array, "N E//2"]):
    S = zeros((M, N))
    for i in range(M):
        for j in range(N):
            S[i, j] = sum(
                Q[i, e] * (K[j, e // 2] // (1 if e % 2 == 0 else 16) % 16 - 8) for e in range(E)
            )
    return S
"""


def test_two_numbers_in_one_byte() -> None:
    """Quotients and remainders of what is not negative need no correction, and few bits."""
    torch.manual_seed(0)
    (kernel,) = lower(derive(program(NIBBLES), "fold")).kernels
    every = [part for op in ops_in(kernel.body) for e in exprs_of(op) for part in walk(e)]
    (product,) = dict.fromkeys(part for part in every if isinstance(part, Dot))
    assert isinstance(product.right, Cast) and product.right.like == "Q"
    assert not any(isinstance(part, Binary) and part.op == "!=" for part in every)
    Q, K = torch.randn(5, 16), torch.randint(0, 256, (20, 8), dtype=torch.uint8)
    unpacked = torch.stack([K % 16, K // 16], 2).reshape(20, 16).double() - 8
    found = looptrans.compile(NIBBLES)(Q, K)
    assert torch.allclose(found.double(), Q.double() @ unpacked.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stated", ["UInt8[Array, 'N']", "\"UInt8[Array, 'N']\""])
def test_what_is_not_read_has_its_type_too(stated: str) -> None:
    text = f"""
def unread(x: Float[Array, "N"], u: {stated}):
    y = zeros(N)
    for i in range(N):
        y[i] = x[i]
    return y
"""
    x = torch.rand(3)
    assert torch.equal(looptrans.compile(text)(x, torch.zeros(3, dtype=torch.uint8)), x)


@pytest.mark.parametrize("kind", ["Float", "Float32"])
def test_weights_times_scales_stay_in_the_matrix_units(kind: str) -> None:
    """A weight times a small scale is below what float16 has: it is multiplied as it is."""
    text = SCALED.replace("v: Float[", f"v: {kind}[")
    assert "_dot_widened(" in str(emitted(program(text)).text)
