"""Cells of local arrays that are found by numbers only are scalars."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.derivation.backward import derive_backward
from looptrans.derivation.derive import derive
from looptrans.emit.listing import lowered
from looptrans.executor import execute
from looptrans.ir.listing import listing as text_of
from looptrans.transforms.moved.one_cell import with_single_cells_as_scalars
from tests.analysis import program

ROWS = """
def f(S: Float[Array, "M N"], V: Float[Array, "N"]):
    O = zeros(M); m = full(1, {fill}); l = {made}
    for i in range(M):
        {first}
        for j in range(N): m[0] = max(m[0], S[i, j])
        l[0, 0] = 0.0
        for j in range(N): l[0, 0] += exp(S[i, j] - m[0])
        for j in range(N): O[i] += exp(S[i, j] - m[0]) / l[0, 0] * V[j]
    return O{more}
"""
OWN = {"fill": "-inf", "made": "empty((1, 1))", "first": "m[0] = -inf", "more": ""}
ALL = {**OWN, "fill": "0.5", "first": "O[i] = 0.0"}


@pytest.mark.parametrize("parts", [OWN, ALL])
def test_a_cell_is_a_scalar(parts: dict[str, str]) -> None:
    listing = program(ROWS.format(**parts))
    found = with_single_cells_as_scalars(listing)
    assert found is not None and set(found.arrays) == {"m", "l"}
    text = text_of(found.program)
    assert "[0" not in text and text.count("m = 0.5") == (parts is ALL)
    inputs = {"S": np.random.default_rng(0).standard_normal((3, 4)), "V": np.arange(4.0)}
    want = execute(listing, inputs=inputs)["O"]
    np.testing.assert_array_equal(execute(found.program, inputs=inputs)["O"], want)


def test_passes_with_a_cell_are_one() -> None:
    found = derive(program(ROWS.format(**OWN)), "fold")
    assert [step.kind for step in found.steps][:2] == ["single cells", "one pass"]
    assert text_of(found.last).count("for j in") == 1


def test_a_state_in_two_cells_is_one_pass_with_blocks() -> None:
    listing = program("""
def f(S: Float[Array, "M N"], V: Float[Array, "N"]):
    O = zeros(M); state = zeros(2)
    for i in range(M):
        state[0], state[1] = -inf, 0.0
        for j in range(N):
            old, state[0] = state[0], max(state[0], S[i, j])
            state[1] = state[1] * exp(old - state[0]) + exp(S[i, j] - state[0])
            O[i] = O[i] * exp(old - state[0]) + exp(S[i, j] - state[0]) * V[j]
        O[i] /= state[1]
    return O
""")
    found = with_single_cells_as_scalars(listing)
    assert found is not None and "state_1 = state_1 * exp(old - state_0)" in text_of(found.program)
    inputs = {"S": np.random.default_rng(0).standard_normal((3, 4)), "V": np.arange(4.0)}
    want = execute(listing, inputs=inputs)["O"]
    np.testing.assert_array_equal(execute(found.program, inputs=inputs)["O"], want)
    (kernel,) = lowered(listing).kernels
    assert [dim.role for dim in kernel.dims] == ["rows", "tile"]
    back = derive_backward(listing).backward
    assert back is not None and "log_state_1[i]" in text_of(back.program)


@pytest.mark.parametrize(
    "changed",
    [
        {"more": ", m, l"},  # returned
        {"fill": "-inf, dtype=float16", "made": "zeros((1, 1), dtype=float32)"},  # rounded
    ],
)
def test_other_cells_stay(changed: dict[str, str]) -> None:
    assert with_single_cells_as_scalars(program(ROWS.format(**{**OWN, **changed}))) is None
