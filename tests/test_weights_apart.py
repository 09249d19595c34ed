"""Differences of weights that are summed up in one pass, each with its own maximum and sum."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.rewriting.weights_apart import with_weights_apart
from looptrans.derivation.derive import derive
from looptrans.emit.listing import emitted
from looptrans.executor import execute
from looptrans.ir.listing import listing
from looptrans.reports.verify import verification_text
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.verifying.backward import verify_backward
from tests.analysis import program

prepare_device()  # parts of torch import triton too, and then it would not interpret
pytest.importorskip("triton")

HEAD = """
def less(
    A: Float[Array, "M E"], B: Float[Array, "M E"], K: Float[Array, "N E"], L: Float[Array, "N E"],
    V: Float[Array, "N D"], c: float, keep: Bool[Array, "M N"],
):
    S = zeros((M, N))
    T = zeros((M, N))
    P = zeros((M, N))
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        k = -inf
        for j in range(0, N):
            S[i, j] = sum(A[i, e] * K[j, e] for e in range(0, E))
            T[i, j] = sum(B[i, e] * L[j, e] for e in range(0, E))
            m = max(m, S[i, j])
            k = max(k, T[i, j])
        l = 0.0
        n = 0.0
        for j in range(0, N):
            l += exp(S[i, j] - m)
            n += exp(T[i, j] - k)
"""
SCALARS = """
        for j in range(0, N):
            p = exp(S[i, j] - m) / l - c * exp(T[i, j] - k) / n
            for d in range(0, D):
                O[i, d] += p * V[j, d]
    return O
"""
ARRAYS = """
        for j in range(0, N):
            P[i, j] = exp(S[i, j] - m) / l
        for j in range(0, N):
            w = c * exp(T[i, j] - k) / n
            P[i, j] = -w + P[i, j]
        for d in range(0, D):
            for j in range(0, N):
                O[i, d] += P[i, j] * V[j, d]
    return O
"""
TABLE = """
        for j in range(0, N):
            P[i, j] = exp(S[i, j] - m) / l - exp(T[i, j] - k) / n * c
        for d in range(0, D):
            o = 0.0
            for j in range(0, N):
                o += V[j, d] * (P[i, j] if keep[i, j] else 0.0)
            O[i, d] = o
    return O
"""
IN_PLACE = """
        for j in range(0, N):
            S[i, j] = exp(S[i, j] - m)
            T[i, j] = exp(T[i, j] - k)
        for j in range(0, N):
            p = S[i, j] / l - c * T[i, j] / n
            for d in range(0, D):
                O[i, d] += p * V[j, d]  # S17: the weighted mean
    return O
"""
OWN_ROW = """
        acc = zeros(D)
        for j in range(0, N):
            p = exp(S[i, j] - m) / l - c * exp(T[i, j] - k) / n
            for d in range(0, D):
                acc[d] += p * V[j, d]
        for d in range(0, D):
            O[i, d] = 2.0 * acc[d]
    return O
"""
SIZES = {"M": 19, "N": 37, "E": 5, "D": 6, "c": 0.3}


@pytest.mark.parametrize(
    "body",
    [SCALARS, TABLE, IN_PLACE, OWN_ROW],
    ids=["scalars", "table", "in place", "a row of its own"],
)
def test_a_difference_of_weights_is_one_pass(body: str) -> None:
    before = program(HEAD + body)
    found = with_weights_apart(before)
    assert found is not None and len(found.others) == 1
    random = np.random.default_rng(0)
    shapes = {"A": (3, 4), "B": (3, 4), "K": (5, 4), "L": (5, 4), "V": (5, 2)}
    inputs: dict[str, Any] = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    inputs |= {"c": 0.3, "keep": random.random((3, 5)) < 0.7}
    for name, value in execute(before, inputs=inputs).items():
        np.testing.assert_allclose(execute(found.program, inputs=inputs)[name], value, rtol=1e-12)
    assert derive(before).decision == "legal"
    made = emitted(before)
    assert any(re.match("one pass instead of [36]", step) for step in made.blocks.steps)
    assert len(made.blocks.kernels) == 1
    assert (
        "V_jd.to(tl.float32)" not in made.text
    )  # the weights are at most 1, and rounded to 16 bits


def test_both_passes_of_it_are_right() -> None:
    report = verify_backward(program(HEAD + TABLE), [SIZES], ["float32", "float16"])
    assert report.runs and report.passed, verification_text(report)


@pytest.mark.parametrize(
    "term",
    [
        "(S[i, j] - m) * V[j, d] - (T[i, j] - k)",  # no weights: what cancels would be left over
        "exp(S[i, j] - m) / l * (V[j, d] - n)",  # one of them is no weight
        "exp(S[i, j] - m) / l - exp(T[i, j] - m) / l",  # they wait for the same
        "exp(S[i, j] - m) / l - exp(S[i, j] + T[i, j] - m - k)",  # they wait for one in common
    ],
)
def test_other_differences_stay(term: str) -> None:
    body = f"""
        for j in range(0, N):
            for d in range(0, D):
                O[i, d] += {term}
    return O
"""
    assert with_weights_apart(program(HEAD + body)) is None


def test_what_was_the_number_of_another_row_is_not_put_in() -> None:
    """In a nest of their own rows are behind all of them, and m is the maximum of the last one."""
    rows = "    for i in range(0, M):\n"
    text = HEAD + TABLE.replace("        for d in range", f"{rows}        for d in range")
    assert with_weights_apart(program(text)) is None
    # With arrays of them each row has its own.
    created = "".join(f"    {name} = zeros(M)\n" for name in "mkln")
    text = re.sub(r"\b([mkln])\b(?! in)", r"\1[i]", text).replace(rows, created + rows, 1)
    found = with_weights_apart(program(text))
    assert found is not None and found.others == ("o2",)


def test_what_changes_in_between_is_not_put_in() -> None:
    found = with_weights_apart(program(HEAD + SCALARS))
    assert found is not None and "O2" in listing(found.program)
    between = SCALARS.replace("            for d", "            l = l + 1.0\n            for d")
    assert with_weights_apart(program(HEAD + between)) is None
    assert with_weights_apart(program(HEAD + ARRAYS)) is None  # P is set twice
