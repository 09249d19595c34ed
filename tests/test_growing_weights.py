"""Weights that may grow beyond 16 bits are not rounded to them in a backward pass either."""

from typing import Any, cast

import numpy as np
import pytest

from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.functions import HELPERS
from looptrans.emit.listing import emitted
from looptrans.runtime.inspecting.inspect import inspect
from looptrans.runtime.inspecting.job import Measurement
from looptrans.runtime.running.device import prepare_device
from looptrans.runtime.verifying.backward import verify_backward, verify_pass
from tests.analysis import program

LISTING = """
def fading(A: Float[Array, "M E"], C: Float[Array, "N E"], W: Float[Array, "N D"], speed: float):
    y = zeros((M, D))
    for i in range(0, M):
        for j in range(0, min(N, i + 1)):
            w = exp({exponent}) * sum(A[i, e] * C[j, e] for e in range(0, E))
            for d in range(0, D):
                y[i, d] += w * W[j, d]
    return y
"""


@pytest.mark.parametrize("exponent", ["-speed * (i - j)", "(j - i) * speed"])
def test_a_decay_that_is_growth(exponent: str) -> None:
    """exp(0.5 * 25) is 2.7e5, and float16 ends at 65504."""
    listing = program(LISTING.format(exponent=exponent))
    sizes = {"M": 45, "N": 45, "E": 16, "D": 16, "speed": -0.5}
    report = verify_backward(listing, [sizes], ["float16"])
    assert report.passed, [out for run in report.runs for out in run.outputs if not out.passed]


GATED = """
def gated(
    A: Float[Array, "M E"], C: Float[Array, "M E"], c: Float32[Array, "M"], W: Float[Array, "M D"]
):
    y = zeros((M, D))
    for i in range(0, M):
        for j in range(0, i + 1):
            w = exp(c[i] - c[j]) * sum(A[i, e] * C[j, e] for e in range(0, E))
            for d in range(0, D):
                y[i, d] += w * W[j, d]
    return y
"""


def test_what_a_given_float32_array_says_of_decay_may_be_growth() -> None:
    """Unlike the logarithm of a sum that the forward pass hands over, taken off its terms."""
    found = emitted_with_backward(program(GATED))
    text = found.text[found.text.index("def gated_backward_dA_kernel") :]
    assert ".to(C_ptr.dtype.element_ty)" not in text
    assert ".to(A_ptr.dtype.element_ty)" not in text


@pytest.mark.parametrize(("dtype", "parts"), [("float16", 2), ("bfloat16", 1)])
def test_growing_weights_meet_float16_in_two_parts(dtype: str, parts: int) -> None:
    """TF32 has 11 bits: where large terms cancel, outputs were off by 6 % and infinite."""
    made = emitted(program(LISTING.format(exponent="-speed * (i - j)")))
    (each,) = inspect(made, ["cuda:90"], dtype, {"E": 64, "D": 64}, {}).kernels
    assert isinstance(each.result, Measurement), each.result
    assert each.result.code is not None
    for loop in each.result.code.loops:
        counts = [number for name, number in loop.matrix.items() if "TF32" in name]
        # 64 of the rows of a block at once, and 8 of the 64 that are summed.
        assert sum(counts) % parts == 0 and sum(counts) >= 4 * parts, loop.matrix
    assert not each.result.unset


def cut(operand: Any) -> Any:
    """Return an operand of a product as matrix units take it: of float32 TF32's 11 bits."""
    data = operand.data
    if data.dtype == np.float32:
        data = (data.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return type(operand)(data, operand.dtype)


@pytest.mark.parametrize(("split", "right"), [(True, True), (False, False)])
def test_float16_needs_both_parts_on_matrix_units(
    split: bool, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter multiplies float32 as such; here it cuts operands as TF32 does."""
    prepare_device()
    from triton.runtime.interpreter import InterpreterBuilder

    dot = InterpreterBuilder.create_dot

    def rough(self: Any, left: Any, other: Any, *rest: Any) -> Any:
        return dot(self, cut(left), cut(other), *rest)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", rough)
    if not split:
        once = HELPERS["_dot_widened"].replace("kind == tl.bfloat16", "kind != tl.float32")
        monkeypatch.setitem(cast(dict[str, str], HELPERS), "_dot_widened", once)
    listing = program(LISTING.format(exponent="-speed * (i - j)"))
    sizes = {"M": 60, "N": 60, "E": 16, "D": 16, "speed": -0.15}
    report = verify_pass(listing, "both", [sizes], ["float16"])
    assert report.passed == right, report


BETWEEN = """
def hidden(x: Float[Array, "B K"], w: Float[Array, "K H"], u: Float[Array, "H N"]):
    h = zeros((B, H))
    y = zeros((B, N))
    for b in range(B):
        for c in range(H):
            h[b, c] = max(sum(x[b, k] * w[k, c] for k in range(K)), 0.0)
        for n in range(N):
            y[b, n] = sum(h[b, c] * u[c, n] for c in range(H))
    return y
"""


def test_what_another_kernel_left_in_float32_is_in_no_pairs() -> None:
    text = emitted(program(BETWEEN)).text
    assert "_dot_widened" not in text and "_PAIRS" not in text
    assert '"ieee" if u_ptr.dtype.element_ty == tl.float32 else None' in text


ACTIVATION = """
def layers(X: Float[Array, "M K"], A: Float[Array, "K N"], C: Float[Array, "N D"]):
    y = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            s = sum(X[i, k] * A[k, j] for k in range(0, K))
            p = {value}
            for d in range(0, D):
                y[i, d] += p * C[j, d]
    return y
"""


def in_float32(value: str) -> int:
    """Return how many products of the backward module have an operand that is not rounded."""
    return (
        emitted_with_backward(program(ACTIVATION.format(value=value))).text.count("_dot_widened(")
        - 1
    )


def test_a_power_that_another_one_bounds_is_no_growth() -> None:
    rounded = in_float32("max(s, 0.0) * s")
    for value in ("s / (1.0 + exp(-s))", "log(1.0 + exp(s))", "max(s, 0.0) ** 2"):
        assert in_float32(value) == rounded, value


# Weights without a maximum taken off: what is divided is a mean, what is not is as small as they.
KERNEL = """
def smoothed(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    o = zeros((M, D))
    for i in range(0, M):
        l = 0.0
        acc = zeros(D)
        for j in range(0, N):
            w = exp(-sum(abs(Q[i, e] - K[j, e]) for e in range(0, E)))
            l += w
            for d in range(0, D):
                acc[d] += w * V[j, d]
        for d in range(0, D):
            o[i, d] = acc[d]{divided}
    return o
"""


def test_weights_that_may_all_be_close_to_0_are_not_rounded_where_they_are_divided() -> None:
    """exp(-23) is 1e-10, and float16 begins at 6e-8: outputs were 0."""
    listing = program(KERNEL.format(divided=" / l"))
    report = verify_pass(listing, "both", [{"M": 9, "N": 5, "E": 20, "D": 3}], ["float16"])
    assert report.passed, report
    assert "w.to(V_ptr.dtype.element_ty)" in emitted(program(KERNEL.format(divided=""))).text
