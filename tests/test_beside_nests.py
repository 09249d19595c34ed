"""Numbers that are worked out beside a nest, before it or behind it, and what kernels make of them.

Each was once a kernel more than it takes, or sums that cancel.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.adjoint.backward import backward
from looptrans.cli.main import main
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import lowered
from looptrans.emit.refusal import Refused
from looptrans.ir.listing import listing
from looptrans.runtime.verifying.verify import verify
from tests.analysis import program

# What keys have gathered stands in the loops of the heads, before the rows.
GATED = """
def gated(
    Q: Float[Array, "H T D"],
    K: Float[Array, "H T D"],
    V: Float[Array, "H T D"],
    f: Float[Array, "H T"],
):
    c = zeros((H, T)); O = zeros((H, T, D))
    for h in range(H):
        run = 0.0
        for t in range(T):
            run += f[h, t]
            c[h, t] = run
        for i in range(T):
            m = -inf
            for j in range(i + 1):
                m = max(m, sum(Q[h, i, d] * K[h, j, d] for d in range(D)) + c[h, i] - c[h, j])
            l = 0.0
            for j in range(i + 1):
                s = sum(Q[h, i, d] * K[h, j, d] for d in range(D)) + c[h, i] - c[h, j]
                l += exp(s - m)
            for j in range(i + 1):
                s = sum(Q[h, i, d] * K[h, j, d] for d in range(D)) + c[h, i] - c[h, j]
                for d in range(D):
                    O[h, i, d] += exp(s - m) / l * V[h, j, d]
    return O
"""


def test_a_nest_that_waits_for_another_one_stays_one_kernel() -> None:
    """Rows divide by their sums in registers: nothing of theirs goes through memory."""
    found = lowered(program(GATED))
    assert [made.array for made in found.made] == ["c", "O"]
    assert len(found.kernels) == 2


WARM = """
def scaled(
    Q: Float[Array, "N D"],
    K: Float[Array, "M D"],
    V: Float[Array, "M D"],
    tau: float,
    sink: float,
):
    root = 1.0 / sqrt(D)
    scale = root * exp(tau)
    m = full(N, sink); O = zeros((N, D))
    for i in range(N):
        for j in range(M):
            m[i] = max(m[i], scale * sum(Q[i, d] * K[j, d] for d in range(D)))
        l = exp(sink - m[i])
        for j in range(M):
            l += exp(scale * sum(Q[i, d] * K[j, d] for d in range(D)) - m[i])
        for j in range(M):
            w = exp(scale * sum(Q[i, d] * K[j, d] for d in range(D)) - m[i]) / l
            for d in range(D):
                O[i, d] += w * V[j, d]
    return O
"""


def test_numbers_of_given_numbers_are_worked_out_where_they_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No kernel makes them for another one; what an array is filled with may be one, too."""
    made = emitted_with_backward(program(WARM))
    assert len(made.forward.kernels) == 1
    assert not {"root", "scale"} & {each.array for each in made.forward.made}
    path = tmp_path / "listing.py"
    path.write_text(WARM)
    sizes = "N=7,M=5,D=3"
    status = main(["verify", str(path), "--pass", "both", "--dtype", "float32", "--sizes", sizes])
    assert status == 0, capsys.readouterr()


# The weighted mean of one memory and that of another one, mixed by a gate of the row.
MIXED = """
def mixed(
    q: Float[Array, "N D"],
    k: Float[Array, "M D"],
    v: Float[Array, "M D"],
    u: Float[Array, "P D"],
    w: Float[Array, "P D"],
    gate: Float[Array, "N"],
):
    o = zeros((N, D))
    for n in range(N):
        a = zeros(D); c = zeros(D)
        m = -inf
        for j in range(M):
            m = max(m, q[n] @ k[j])
        l = 0.0
        for j in range(M):
            l += exp(q[n] @ k[j] - m)
            for d in range(D):
                a[d] += exp(q[n] @ k[j] - m) * v[j, d]
        t = -inf
        for j in range(P):
            t = max(t, q[n] @ u[j])
        z = 0.0
        for j in range(P):
            z += exp(q[n] @ u[j] - t)
            for d in range(D):
                c[d] += exp(q[n] @ u[j] - t) * w[j, d]
        for d in range(D):
            o[n, d] = gate[n] * a[d] / l + (1.0 - gate[n]) * c[d] / z
    return o
"""


def test_a_factor_of_a_mean_is_no_sum_of_its_own() -> None:
    """One sum for each of the two means; what sums of weights would get besides cancels."""
    text = listing(backward(program(MIXED)).program)
    sums = [line for line in text.splitlines() if "zeros(N, dtype" in line]
    assert len(sums) == 2, text


def test_a_number_of_a_sequence_is_put_at_each_of_its_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
def spread(x: Float[Array, "B"], w: Float[Array, "L D"], at: Int[Array, "B+1", "0:L+1"]):
    assert all(at[b] <= at[b + 1] for b in range(B))
    y = zeros(L)
    for b in range(B):
        t = exp(x[b])
        for l in range(at[b], at[b + 1]):
            y[l] = t
    for b in range(B):
        for l in range(at[b], at[b + 1]):
            for d in range(D):
                y[l] += w[l, d] * x[b]
    return y
"""
    path = tmp_path / "listing.py"
    path.write_text(text)
    status = main(["verify", str(path), "--dtype", "float32", "--sizes", "B=5,L=23,D=6"])
    assert status == 0, capsys.readouterr()


def test_a_loop_that_holds_nothing_is_beside_no_nest() -> None:
    text = """
def nothing(A: Float[Array, "N"]):
    B = zeros(N)
    for i in range(N):
        B[i] = A[i] * A[i]
    for i in range(N):
        pass
    return B
"""
    assert "dA[i] =" in listing(backward(program(text)).program)


def test_a_maximum_of_masked_scores_is_taken_for_one_of_something() -> None:
    """Its gradient goes nowhere where no score counts: -m + (m if l > 0 else 0) is nothing."""
    text = """
def entropy(S: Float[Array, "B N"], mask: Bool[Array, "B N"]):
    H = zeros(B)
    for b in range(B):
        m = -inf; l = 0.0; u = 0.0
        for n in range(N):
            if mask[b, n]:
                m = max(m, S[b, n])
        for n in range(N):
            if mask[b, n]:
                l += exp(S[b, n] - m)
                u += (S[b, n] - m) * exp(S[b, n] - m)
        H[b] = log(l) - u / l
    return H
"""
    found = backward(program(text))
    assert "ties" not in listing(found.program)
    assert not found.notes


@pytest.mark.parametrize("number", ["min(i, M - 1)", "i // 2"])
def test_a_number_of_a_row_says_what_a_sum_leaves_out(number: str) -> None:
    """The rows of a block have one each: the sum goes as far as the last of them does."""
    text = f"""
def before(x: Float[Array, "N M"], y: Float[Array, "M"]):
    z = zeros(N)
    for i in range(0, N):
        c = {number}
        z[i] = sum(x[i, k] * y[k] for k in range(0, M) if k < c)
    return z
"""
    assert verify(program(text), [{"N": 5, "M": 4}, {"N": 3, "M": 6}], ["float32"]).passed


def test_what_fills_an_array_is_no_number_worked_out_before() -> None:
    text = """
def filled(x: Float[Array, "N C"], t: float):
    u = x[0, 0] * t
    y = full((N, C), u)
    for i in range(0, N):
        for c in range(0, C):
            y[i, c] += x[i, c]
    return y
"""
    with pytest.raises(Refused, match=r"S2 makes an array where it stands, full\(\(N, C\), u\)"):
        lowered(program(text))
