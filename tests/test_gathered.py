"""Nests that add to cells between them, which go over the cells instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from looptrans.adjoint.rewriting.gathered import with_sums_gathered
from looptrans.blocks.block_ir.ops import ElementLoop, ops_in
from looptrans.emit.listing import emitted
from looptrans.emit.refusal import Refused
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing
from looptrans.reports.verify import verification_text
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.running.load import load_module
from looptrans.runtime.verifying.backward import verify_backward
from tests.analysis import program

prepare_device()  # parts of torch import triton too, and then it would not interpret
pytest.importorskip("triton")

POLYNOMIALS = """
def polynomials(a: Float[Array, "N"], b: Float[Array, "M"]):
    c = zeros(N + M)
    for i in range(0, N):
        for j in range(0, M):
            c[i + j] += a[i] * b[j]
    return c
"""
TRANSPOSED = """
def transposed(x: Float[Array, "B C L"], w: Float[Array, "C O K"]):
    y = zeros((B, O, 3 * L + K))
    for n in range(0, B):
        for o in range(0, O):
            for l in range(0, L):
                for k in range(0, K):
                    for c in range(0, C):
                        y[n, o, 3 * l + k] += x[n, c, l] * w[c, o, k]
    return y
"""
OVERLAPPED = """
def overlapped(F: Float[Array, "T W"], g: Float[Array, "W"]):
    y = zeros(T * 2 + W)
    for t in range(1, T):
        for u in range(0, W):
            if u != t:
                y[2 * t + u - 1] = y[2 * t + u - 1] + F[t, u] * g[u]
    return y
"""
SHEARED = """
def sheared(X: Float[Array, "M N"]):
    y = zeros((M, M + N))
    for i in range(0, M):
        for j in range(0, N):
            for k in range(0, i + 1):
                y[i, k + j] += X[k, j] * 0.5
    return y
"""
ALL = (POLYNOMIALS, TRANSPOSED, OVERLAPPED, SHEARED)
SIZES = {"N": 21, "M": 18, "B": 2, "C": 5, "L": 11, "O": 6, "K": 4, "T": 9, "W": 8}


@pytest.mark.parametrize("text", ALL)
def test_a_cell_gets_the_same_terms(text: str) -> None:
    before = program(text)
    found = with_sums_gathered(before)
    assert found is not None
    inputs = prepare(before)
    given: dict[str, Any] = {**inputs.arrays, **inputs.reals}
    sizes = dict(inputs.integers)
    for name, value in execute(before, sizes=sizes, inputs=given).items():
        got = execute(found.program, sizes=sizes, inputs=given)[name]
        np.testing.assert_allclose(got, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("text", ALL)
def test_both_passes_have_kernels_that_are_right(text: str) -> None:
    before = program(text)
    sizes = [{p.name: SIZES[p.name] for p in before.parameters}]
    report = verify_backward(before, sizes, ["float32", "float16"])
    assert report.runs and report.passed, verification_text(report)


def test_the_loop_that_moves_farthest_is_replaced() -> None:
    """There are few taps, and many places: what is left is a sum over taps."""
    found = with_sums_gathered(program(TRANSPOSED))
    assert found is not None and found.loop == "l"
    assert "for l_at in range(0, 3 * L + K):" in listing(found.program)
    made = emitted(program(TRANSPOSED))
    assert "tl.dot(" in made.text and "atomic" not in made.text
    loops = [op for kernel in made.blocks.kernels for op in ops_in(kernel.body)]
    assert [op.dim.name for op in loops if isinstance(op, ElementLoop)] == ["k"]


def test_what_is_added_beyond_the_array_is_no_less_an_error(tmp_path: Path) -> None:
    found = emitted(program(POLYNOMIALS.replace("zeros(N + M)", "zeros(N)")))
    path = tmp_path / "polynomials_cut_off.py"
    path.write_text(found.text, encoding="utf-8")
    module = load_module(path.stem, found.text, path)
    with pytest.raises(ValueError, match="c should have at least 6 elements along dimension 0"):
        module.polynomials(torch.ones(4), torch.ones(3))
    assert torch.equal(module.polynomials(torch.ones(4), torch.ones(1)), torch.ones(4))


@pytest.mark.parametrize(
    "old, new",
    [
        ("c[i + j] += a[i] * b[j]", "c[i + j] = c[i + j] * a[i] + b[j]"),
        ("c[i + j] += a[i] * b[j]", "c[i + j] += a[i] * c[j]"),
        ("c[i + j] += a[i] * b[j]", "c[i + j] += a[i]\n            c[0] = b[j]"),
    ],
)
def test_other_nests_stay(old: str, new: str) -> None:
    text = POLYNOMIALS.replace(old, new)
    assert text != POLYNOMIALS
    assert with_sums_gathered(program(text)) is None
    with pytest.raises(Refused):
        emitted(program(text))
