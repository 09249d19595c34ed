"""Loops that constant bounds leave one iteration or none are none in kernels, nor in gradients."""

from __future__ import annotations

import numpy as np
import pytest

from looptrans.derivation.backward import derive_backward
from looptrans.emit.listing import lowered
from looptrans.executor import execute
from looptrans.ir.listing import listing as text_of
from looptrans.transforms.moved.known_iterations import with_known_iterations
from tests.analysis import program

LISTING = """
def f(x: Float[Array, "N"], w: Float[Array, "3"]):
    y = zeros(N)
    for k in range(N):
        for q in range({none}):
            y[k] = y[k] + 100.0
        for b in range({one}):
            y[k] = x[k] / 3 + y[k] * x[k] + b * w[b]
    return y
"""


@pytest.mark.parametrize(("none", "one"), [("0", "1"), ("3, 1", "2, 3"), ("0, 2, -1", "2, 0, -2")])
def test_such_loops_are_left_out(none: str, one: str) -> None:
    listing = program(LISTING.format(none=none, one=one))
    found = with_known_iterations(listing)
    assert found is not None and found.loops == ("q", "b")
    assert text_of(found.program).count("for ") == 1
    generator = np.random.default_rng(0)
    inputs = {"x": generator.standard_normal(5), "w": generator.standard_normal(3)}
    want = execute(listing, inputs=inputs)["y"]
    np.testing.assert_array_equal(execute(found.program, inputs=inputs)["y"], want)


def test_other_loops_stay() -> None:
    assert with_known_iterations(program(LISTING.format(none="N", one="2"))) is None
    assert (
        with_known_iterations(program("def f(x):\n    for i in range(0):\n        x[i] = 1"))
        is None
    )


def test_what_such_a_loop_sets_is_carried_by_none() -> None:
    listing = program(LISTING.format(none="0", one="1"))
    (kernel,) = lowered(listing).kernels
    assert [dim.name for dim in kernel.dims] == ["k"]
    assert derive_backward(listing).backward is not None
