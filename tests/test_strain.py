"""How many registers a kernel is likely to need, and the blocks that are chosen for it."""

from __future__ import annotations

import pytest

from looptrans.blocks.block_ir.program import Config, Kernel
from looptrans.blocks.fitting.strain import strain, strains_of
from looptrans.blocks.passes.described import without_described
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import lowered
from looptrans.variants import Options, compose
from tests.analysis import program

LANES = {"BLOCK_E": 128, "BLOCK_D": 128}
# Of 64 x 32 elements each of 256 threads has 8, and of the sums of 64 rows 32.
BLOCK, SUM = 8, 32


def gradient(options: Options, name: str = "dK_dV") -> Kernel:
    """Return a kernel of the backward pass of a composed variant."""
    found = emitted_with_backward(program(compose(options).text))
    called = f"attention_backward_{name}_kernel"
    kernels = dict(zip(found.backward_kernels, found.backward.kernels, strict=True))
    return kernels[called]


def registers(options: Options, name: str = "dK_dV") -> float:
    """Return what blocks of 64 rows and 32 iterations would need."""
    kernel = without_described(gradient(options, name))
    sides = zip(kernel.narrow.default.blocks, (64, 32), strict=True)
    return strain(strains_of(kernel.body), Config(dict(sides), 8, 3), LANES)


# The sums are dK and dV, the blocks the scores and dP; the row maximum, the logarithm of the row's
# sum and delta are loaded in the loop.
PLAIN = 0.75 * 2 * SUM + 2 * 2 * BLOCK


def test_what_a_plain_gradient_needs() -> None:
    assert PLAIN < registers(Options()) <= PLAIN + 4


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (Options(bias="HMN"), 2 * BLOCK),
        (Options(causal=True), BLOCK),
        # Places of its elements are numbers too.
        (Options(relative=True), 2 * 2 * BLOCK),
        # An integer is read before the loop.
        (Options(kv_lengths=True), 5),
        # A loop over the heads that share keys.
        (Options(heads="grouped"), 14),
        (Options(dropout="philox"), 6.5 * BLOCK),
    ],
    ids=["bias", "causal", "relative", "lengths", "grouped", "drawn"],
)
def test_what_an_option_adds(options: Options, more: float) -> None:
    added = registers(options) - registers(Options())
    assert more <= added <= more + 3


def test_what_a_second_pair_of_scores_adds() -> None:
    added = registers(Options(differential=True), "dK_dV_dK2") - registers(Options())
    assert 0.75 * SUM + 2 * BLOCK <= added <= 0.75 * SUM + 2 * BLOCK + 3


def test_blocks_are_the_smaller_the_more_a_thread_would_need() -> None:
    chosen = [
        tuple(without_described(gradient(options)).narrow.default.blocks.values())
        for options in (
            Options(),
            Options(bias="HMN"),
            Options(causal=True, heads="grouped", bias="BHMN", alibi="BH"),
            Options(pages=True, relative=True, alibi="H", dropout="philox"),
        )
    ]
    assert chosen[:2] == [(64, 32), (64, 32)]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[-1] < chosen[-2] < chosen[0]


def test_sums_that_wait_for_their_turn_are_held() -> None:
    # One program sums over keys, then over others, and multiplies both in the end.
    text = """
def f(A: Float[Array, "M N"], B: Float[Array, "N D"], C: Float[Array, "M K"],
      E: Float[Array, "K D"]):
    O = zeros((M, D)); p = zeros((M, D)); q = zeros((M, D))
    for i in range(M):
        for d in range(D):
            for j in range(N):
                p[i, d] += A[i, j] * B[j, d]
            for k in range(K):
                q[i, d] += C[i, k] * E[k, d]
            O[i, d] = p[i, d] * q[i, d]
    return O
"""
    (kernel,) = lowered(program(text)).kernels
    loops = strains_of(kernel.body)
    assert {sum(each == 0.75 for _, each in loop.blocks) for loop in loops} == {2}
