"""Loops whose step is a size: they count blocks of it."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.emit.backward import emitted_with_backward
from looptrans.executor import ExecutionError, execute
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from tests.analysis import program

BLOCKS = """
def sums(X: Float[Array, "N"], first: int, B: Const):
    Y = zeros(N); c = zeros(1)
    for i0 in range(START, N, B):  # blocks
        c[0] = c[0] + 1.0
        for i in range(i0, min(i0 + B, N)):
            Y[i] = Y[i] + X[i0] * X[i]
    return Y, c
"""


@pytest.mark.parametrize("start", ["0", "first", "first + 1"])
@pytest.mark.parametrize("block", [1, 3, 20])
def test_blocks_are_those_of_the_range(start: str, block: int) -> None:
    x = np.arange(11.0)
    found = program(BLOCKS.replace("START", start))
    sizes = {"N": 11, "first": 2, "B": block}
    made = execute(found, sizes=sizes, inputs={"X": x})
    wanted, count = np.zeros(11), 0.0
    for i0 in range(eval(start, {"first": 2}), 11, block):
        count += 1.0
        for i in range(i0, min(i0 + block, 11)):
            wanted[i] += x[i0] * x[i]
    assert made["c"][0] == count
    np.testing.assert_allclose(made["Y"], wanted)
    assert program(listing(found)) == found


def test_a_step_below_1_is_refused_when_it_is_given() -> None:
    found = program(BLOCKS.replace("START", "0"))
    with pytest.raises(ExecutionError, match="B >= 1"):
        execute(found, sizes={"N": 4, "first": 0, "B": 0}, inputs={"X": np.ones(4)})


def test_a_listing_in_steps_is_the_one_that_counts_blocks() -> None:
    steps = """
def f(X: Float[Array, "N"], B: Const):
    s = 0.0
    # blocks
    for j0 in range(0, N, B):  # of B
        for j in range(j0, min(j0 + B, N)):
            s += X[j]
    return s
"""
    blocks = """
def f(X: Float[Array, "N"], B: Const):
    assert B >= 1
    s = 0.0
    # blocks
    for j0 in range((N + B - 1) // B):  # of B
        for j in range(j0 * B, min(j0 * B + B, N)):
            s += X[j]
    return s
"""
    assert listing(program(steps)) == listing(program(blocks))


def test_a_sum_may_be_in_steps_and_a_size_of_an_array_a_step() -> None:
    text = """
def f(X: Float[Array, "N"], W: Float[Array, "B"]):
    s = sum(X[i] * W[i - i0] for i0 in range(0, N, B) for i in range(i0, min(i0 + B, N)) if i0 < 6)
    Y = zeros(N)
    for i in range(1, N, B):
        Y[i] = s
    return Y
"""
    x, w = np.arange(8.0), np.array([2.0, 3.0, 5.0])
    found = execute(program(text), sizes={"N": 8, "B": 3}, inputs={"X": x, "W": w})["Y"]
    total = sum(x[i] * w[i % 3] for i in range(6))
    np.testing.assert_allclose(found, [0, total, 0, 0, total, 0, 0, total])


@pytest.mark.parametrize("step", ["-B", "2 * B", "X[0]"])
def test_other_steps_are_refused_at_their_place(step: str) -> None:
    text = f"""
def f(X: Float[Array, "N"], B: Const):
    for i in range(0, N, {step}):
        X[i] = 0.0
"""
    with pytest.raises(ListingError) as refused:
        program(text)
    (mistake,) = refused.value.mistakes
    assert mistake.code == "E010" and mistake.span is not None and mistake.span.line == 3


@pytest.mark.parametrize(
    ("step", "behind", "code", "line"),
    [
        ("a", "X[0] = 1.0", "E012", 3),
        ("X", "X[0] = 1.0", "E010", 3),
        ("B", "X[i] = 1.0", "E014", 5),
    ],
)
def test_what_is_no_size_and_a_variable_behind_its_loop_are_refused(
    step: str, behind: str, code: str, line: int
) -> None:
    text = f"""
def f(X: Float[Array, "N"], a: float, B: Const):
    for i in range(0, N, {step}):
        X[i] = 0.0
    {behind}
"""
    with pytest.raises(ListingError) as refused:
        program(text)
    assert any(
        mistake.span is not None and (mistake.code, mistake.span.line) == (code, line)
        for mistake in refused.value.mistakes
    )


# The algorithm as the paper has it, with rows and keys in blocks of any size.
FLASH = """
def flash(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
          BR: Const, BC: Const):
    O = zeros((M, D))
    for i0 in range(0, M, BR):
        m = full(BR, -inf); l = zeros(BR); acc = zeros((BR, D))
        for j0 in range(0, N, BC):
            S = zeros((BR, BC))
            for i in range(i0, min(i0 + BR, M)):
                for j in range(j0, min(j0 + BC, N)):
                    S[i - i0, j - j0] = Q[i] @ K[j]
            for i in range(i0, min(i0 + BR, M)):
                mn = m[i - i0]
                for j in range(j0, min(j0 + BC, N)):
                    mn = max(mn, S[i - i0, j - j0])
                c = exp(m[i - i0] - mn)
                l[i - i0] = l[i - i0] * c
                for d in range(D):
                    acc[i - i0, d] = acc[i - i0, d] * c
                for j in range(j0, min(j0 + BC, N)):
                    p = exp(S[i - i0, j - j0] - mn)
                    l[i - i0] += p
                    for d in range(D):
                        acc[i - i0, d] += p * V[j, d]
                m[i - i0] = mn
        for i in range(i0, min(i0 + BR, M)):
            for d in range(D):
                O[i, d] = acc[i - i0, d] / l[i - i0]
    return O
"""


def test_blocks_of_the_paper_are_the_four_kernels_of_attention() -> None:
    made = emitted_with_backward(program(FLASH))
    (kernel,) = made.forward.kernels
    assert [dim.name for dim in kernel.grid] == ["i"]
    assert [name.partition("_backward_")[2] for name in made.backward_kernels] == [
        "delta_kernel",
        "dQ_kernel",
        "dK_dV_kernel",
    ]
