"""Arrays that a listing asks for in 16 bits, which kernels hand to each other."""

from __future__ import annotations

import os
import re

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from looptrans.runtime.inspecting.inspect import forward_module, inspect
from looptrans.runtime.inspecting.job import Refusal
from looptrans.runtime.verifying.backward import verify_backward
from looptrans.runtime.verifying.verify import verify
from tests.analysis import program

HIDDEN = """
def hidden(x: Float[Array, "N C"], W: Float[Array, "C E"], U: Float[Array, "E F"]):
    h = zeros((N, E), dtype={kind})
    y = zeros((N, F))
    for i in range(0, N):
        for e in range(0, E):
            for c in range(0, C):
                h[i, e] += x[i, c] * W[c, e]
    for i in range(0, N):
        for f in range(0, F):
            for e in range(0, E):
                y[i, f] += h[i, e] * U[e, f]
    return y
"""
PROJECTED = """
def projected(
    x: Float[Array, "N C"], Wq: Float[Array, "C E"], Wk: Float[Array, "C E"],
    Wv: Float[Array, "C E"],
):
    q = zeros((N, E), dtype=float16)
    k = zeros((N, E), dtype=float16)
    v = zeros((N, E), dtype=float16)
    O = zeros((N, E))
    for i in range(0, N):
        for e in range(0, E):
            for c in range(0, C):
                q[i, e] += x[i, c] * Wq[c, e]
                k[i, e] += x[i, c] * Wk[c, e]
                v[i, e] += x[i, c] * Wv[c, e]
    for i in range(0, N):
        m = -inf
        l = 0.0
        for j in range(0, i + 1):
            s = sum(q[i, e] * k[j, e] for e in range(0, E)) / sqrt(E)
            mn = max(m, s)
            l = l * exp(m - mn) + exp(s - mn)
            for e in range(0, E):
                O[i, e] = O[i, e] * exp(m - mn) + exp(s - mn) * v[j, e]
            m = mn
        for e in range(0, E):
            O[i, e] /= l
    return O
"""
SIZES = [{"N": 19, "C": 7, "E": 12, "F": 5}]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_beside_an_input_they_are_multiplied_in_its_type(dtype: str) -> None:
    text = HIDDEN.format(kind="float16")
    assert verify(program(text), SIZES, [dtype]).passed
    assert verify_backward(program(text), SIZES, [dtype]).passed


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("float16", "bfloat16"), ("bfloat16", "float16"), ("float16", "float32")],
)
def test_such_kernels_compile(kind: str, dtype: str) -> None:
    module = forward_module(emitted(program(HIDDEN.format(kind=kind))))
    found = inspect(module, ["cuda:90"], dtype, {}, {})
    assert found.kernels
    assert not any(isinstance(each.result, Refusal) for each in found.kernels)


def test_products_of_two_stay_in_16_bits_in_both_passes() -> None:
    """They are handed to the backward pass as they are; only sums are in float32."""
    made = emitted_with_backward(program(PROJECTED))
    loads = re.findall(r"\b([qkv]_\w+) = tl\.load\(", made.text)
    assert {name[0] for name in loads} == set("qkv")
    assert not re.search(r"\b[qkv]_\w+\.to\(tl\.float32\)", made.text)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_verify_allows_for_their_rounding_alone(dtype: str) -> None:
    sizes = [{"N": 19, "C": 7, "E": 12}]
    assert verify(program(PROJECTED), sizes, [dtype]).passed
    assert verify_backward(program(PROJECTED), sizes, [dtype]).passed


@pytest.mark.parametrize("kind", ["float16", None])
def test_products_of_what_is_handed_on_in_float32_have_a_note(kind: str | None) -> None:
    text = PROJECTED if kind else PROJECTED.replace(", dtype=float16", "")
    notes = [note for note in emitted(program(text)).blocks.notes if "float32" in note]
    if kind:
        assert notes == []
    else:
        (note,) = notes
        assert note.startswith("q, k and v go from kernel to kernel in float32")
