"""Halves of rows: rotary positions, with projections before and behind them."""

from __future__ import annotations

import os

os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from looptrans.adjoint.backward import backward
from looptrans.blocks.block_ir.ops import ElementLoop, has_products
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import lowered
from looptrans.emit.refusal import Refused
from looptrans.ir.listing import listing
from looptrans.runtime.verifying.backward import verify_backward
from looptrans.runtime.verifying.verify import verify
from tests.analysis import program
from tests.test_adjoint_listings import check

ROTATED = """
def rotated(
    x: Float[Array, "N C"], W: Float[Array, "C E"], cs: Float[Array, "N F"], sn: Float[Array, "N F"]
):
    assert E == 2 * F
    k = zeros((N, E))
    kr = zeros((N, E))
    for i in range(0, N):
        for e in range(0, E):
            for c in range(0, C):
                k[i, e] += x[i, c] * W[c, e]
    for i in range(0, N):
        for f in range(0, F):
            kr[i, f] = k[i, f] * cs[i, f] - k[i, F + f] * sn[i, f]
            kr[i, F + f] = k[i, F + f] * cs[i, f] + k[i, f] * sn[i, f]
    return kr
"""
LAYER = """
def layer(
    x: Float[Array, "N C"], Wq: Float[Array, "H C E"], Wk: Float[Array, "H C E"],
    Wv: Float[Array, "H C E"], Wo: Float[Array, "H E C"],
    cs: Float[Array, "N F"], sn: Float[Array, "N F"],
):
    assert E == 2 * F
    q = zeros((H, N, E))
    k = zeros((H, N, E))
    v = zeros((H, N, E))
    qr = zeros((H, N, E))
    kr = zeros((H, N, E))
    O = zeros((H, N, E))
    y = zeros((N, C))
    for h in range(0, H):
        for i in range(0, N):
            for e in range(0, E):
                for c in range(0, C):
                    q[h, i, e] += x[i, c] * Wq[h, c, e]
                    k[h, i, e] += x[i, c] * Wk[h, c, e]
                    v[h, i, e] += x[i, c] * Wv[h, c, e]
    for h in range(0, H):
        for i in range(0, N):
            for f in range(0, F):
                qr[h, i, f] = q[h, i, f] * cs[i, f] - q[h, i, f + F] * sn[i, f]
                qr[h, i, f + F] = q[h, i, f + F] * cs[i, f] + q[h, i, f] * sn[i, f]
                kr[h, i, f] = k[h, i, f] * cs[i, f] - k[h, i, f + F] * sn[i, f]
                kr[h, i, f + F] = k[h, i, f + F] * cs[i, f] + k[h, i, f] * sn[i, f]
    for h in range(0, H):
        for i in range(0, N):
            m = -inf
            l = 0.0
            for j in range(0, i + 1):
                s = sum(qr[h, i, e] * kr[h, j, e] for e in range(0, E)) / sqrt(E)
                top = max(m, s)
                l = l * exp(m - top) + exp(s - top)
                for e in range(0, E):
                    O[h, i, e] = O[h, i, e] * exp(m - top) + exp(s - top) * v[h, j, e]
                m = top
            for e in range(0, E):
                O[h, i, e] /= l
    for i in range(0, N):
        for c in range(0, C):
            for h in range(0, H):
                for e in range(0, E):
                    y[i, c] += O[h, i, e] * Wo[h, e, c]
    return y
"""


def test_halves_are_blocks_of_registers_of_their_own() -> None:
    """Both gradients are summed up in one kernel, each with one product a block."""
    made = emitted_with_backward(program(ROTATED))
    name, *_ = (k for k in made.backward_kernels if k.endswith("_dW_kernel"))
    code = made.text.partition(f"def {name}(")[2].partition("_config(")[0]
    loop = code.partition("# Full blocks.")[2].partition("# The last, partial block.")[0]
    assert loop.count("tl.dot(") == 2
    assert "(F + e2[None, :]) * stride_dW_1" in code.rpartition("tl.dot(")[2]
    assert verify_backward(
        program(ROTATED), [{"N": 19, "C": 7, "E": 12, "F": 6}], ["float32"]
    ).passed


def test_every_other_cell_is_a_slice() -> None:
    """Pairs that lie side by side are rotated as halves are."""
    text = ROTATED.replace("F + f]", "2 * f + 1]").replace(", f] * cs", ", 2 * f] * cs")
    text = text.replace("k[i, f] * sn", "k[i, 2 * f] * sn").replace("kr[i, f]", "kr[i, 2 * f]")
    made = emitted_with_backward(program(text))
    name, *_ = (k for k in made.backward_kernels if k.endswith("_dW_kernel"))
    code = made.text.partition(f"def {name}(")[2].partition("_config(")[0]
    assert "(2 * e1[None, :] + 1) * stride_dW_1" in code
    assert [each.fill for each in made.backward.made if each.array == "dW"] == [None]
    sizes = {"N": 19, "C": 7, "E": 12, "F": 6}
    assert verify_backward(program(text), [sizes], ["float32"]).passed


def test_segments_that_leave_cells_out_leave_zeros() -> None:
    """Registers of segments store theirs; what is in none of them is what it was."""
    text = """
def gap(x: Float[Array, "N C"], W: Float[Array, "C F"]):
    y = zeros((N, 3 * F))
    for i in range(0, N):
        for f in range(0, F):
            for c in range(0, C):
                y[i, f] += x[i, c] * W[c, f]
                y[i, 2 * F + f] += x[i, c] * W[c, f] * W[c, f]
    return y
"""
    (made,) = lowered(program(text)).made
    assert made.fill == 0.0
    assert verify(program(text), [{"N": 5, "C": 4, "F": 3}], ["float32"]).passed


@pytest.mark.parametrize("start", ["F - 1", "G"])
def test_segments_that_may_meet_are_one_array(start: str) -> None:
    """Of the cell F - 1, or where G may be less than F, each would have a sum of its own."""
    text = f"""
def met(x: Float[Array, "N C"], W: Float[Array, "C F"], v: Float[Array, "G"]):
    y = zeros((N, F + F + G))
    for i in range(0, N):
        for f in range(0, F):
            for c in range(0, C):
                y[i, f] += x[i, c] * W[c, f]
                y[i, {start} + f] += x[i, c] * W[c, f]
    return y
"""
    with pytest.raises(Refused):
        lowered(program(text))


@pytest.mark.parametrize(
    ("extent", "first", "second"),
    [
        ("E", "y[i, f]", "y[i, F + f] if F + f < E"),
        ("E", "y[i, 2 * f] if 2 * f < E", "y[i, 2 * f + 1] if 2 * f + 1 < E"),
        ("2 * F", "y[i, f - 1] if 1 <= f", "y[i, F + f]"),
    ],
)
def test_segments_whose_guards_keep_them_inside_are_one_array(
    extent: str, first: str, second: str
) -> None:
    """A slice would be stored as a whole, what is beside the array as well."""
    lines = ""
    for cell, _, guard in (each.partition(" if ") for each in (first, second)):
        lines += f"                if {guard or '0 <= f'}:\n"
        lines += f"                    {cell} += x[i, c] * W[c, f]\n"
    text = f"""
def guarded(x: Float[Array, "N C"], W: Float[Array, "C F"], u: Float[Array, "E"]):
    y = ones((N, {extent}))
    for i in range(0, N):
        for f in range(0, F):
            for c in range(0, C):
{lines}    return y
"""
    with pytest.raises(Refused):
        lowered(program(text))


def test_segments_with_guards_are_slices_where_they_are_inside() -> None:
    text = """
def guarded(x: Float[Array, "N C"], W: Float[Array, "C F"], u: Float[Array, "E"]):
    assert E == 2 * F
    y = ones((N, E))
    for i in range(0, N):
        for f in range(1, F):
            for c in range(0, C):
                if f < i:
                    y[i, f] += x[i, c] * W[c, f]
                    y[i, F + f - 1] += x[i, c] * W[c, f]
    return y
"""
    sizes = [{"N": 5, "C": 4, "F": 3, "E": 6}, {"N": 5, "C": 4, "F": 0, "E": 0}]
    assert verify(program(text), sizes, ["float32"]).passed


def test_what_a_loop_of_halves_does_besides_stays_whole() -> None:
    """The values and the output have nothing to do with halves: their products go over heads."""
    found = backward(program(LAYER))
    assert {"v", "lse", "q0", "q1"} <= {saved.name for saved in found.saved}
    assert "v[h, i, e] += x[i, c] * Wv[h, c, e]" in listing(found.forward)
    text = listing(found.program)
    assert "dv[h, j, e1]" in text or "dv[h, i, e1]" in text


def test_what_halves_give_the_input_is_one_sum() -> None:
    """Each half of a weight is multiplied once, and the sums go over one head's half inside."""
    found = backward(program(LAYER))
    lines = [each for each in listing(found.program).splitlines() if "dx[i, c] = " in each]
    (line,) = (each for each in lines if "Wk[" in each)
    for weight in ("Wq[h, c, F + e2]", "Wq[h, c, e2]", "Wk[h, c, F + e2]", "Wk[h, c, e2]"):
        assert line.count(weight) == 1


def test_the_layer_has_the_gradients_of_its_listing() -> None:
    check(program(LAYER), backward(program(LAYER)))


def test_attention_before_a_projection_is_divided_where_it_is_alone() -> None:
    """The gradient of the output is stored, not once more divided by the sums of its rows."""
    text = LAYER.replace("qr[h, i, e] * kr[h, j, e]", "q[h, i, e] * k[h, j, e]")
    nest = "    for h in range(0, H):\n        for i in range(0, N):\n"
    rotated = text.split(nest)[2]
    assert "qr[h, i, f + F]" in rotated
    found = backward(program(text.replace(nest + rotated, "")))
    assert "l_kept" not in {saved.name for saved in found.saved}
    assert "dO_2" not in listing(found.program)


@pytest.mark.parametrize(("first", "second"), [("e", "h"), ("h", "e")])
def test_a_product_sums_over_what_lies_in_rows(first: str, second: str) -> None:
    """Over the features of a head, not over heads, in whichever order the listing has the loops."""
    text = f"""
def proj(O: Float[Array, "H N E"], W: Float[Array, "H E C"]):
    y = zeros((N, C))
    for i in range(0, N):
        for c in range(0, C):
            for {first} in range(0, {first.upper()}):
                for {second} in range(0, {second.upper()}):
                    y[i, c] += O[h, i, e] * W[h, e, c]
    return y
"""
    (kernel,) = lowered(program(text)).kernels
    (heads,) = (op for op in kernel.body if isinstance(op, ElementLoop))
    assert heads.dim.name == "h"
    assert verify(program(text), [{"H": 3, "N": 5, "E": 4, "C": 7}], ["float32"]).passed


def test_taps_are_not_summed_over_inside() -> None:
    """A window moves with the row: with its loop inside there would be no matrix product."""
    text = """
def conv(x: Float[Array, "C N"], w: Float[Array, "O C 3"]):
    y = zeros((O, N - 2))
    for o in range(0, O):
        for i in range(0, N - 2):
            for c in range(0, C):
                for t in range(0, 3):
                    y[o, i] += x[c, i + t] * w[o, c, t]
    return y
"""
    (kernel,) = lowered(program(text)).kernels
    assert has_products(kernel.body)
    assert verify(program(text), [{"O": 5, "C": 4, "N": 9}], ["float32"]).passed


def test_what_halves_of_rows_give_is_worked_out_again() -> None:
    """A row of F numbers is no smaller than one of 2 * F: only a dimension less is kept."""
    text = """
def gated(h: Float[Array, "N 2*F"]):
    y = zeros((N, F))
    for i in range(0, N):
        for f in range(0, F):
            u = h[i, f] + 0.25 * h[i, f] * h[i, f]
            y[i, f] = tanh(u) * h[i, F + f]
    return y
"""
    assert backward(program(text)).saved == ()
    sizes = {"N": 5, "F": 3}
    assert verify_backward(program(text), [sizes], ["float32"]).passed
