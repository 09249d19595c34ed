"""What is made on the way: a name for what each pass makes, and no rounding before the end."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import numpy as np
import pytest

from looptrans.derivation.derive import derive
from looptrans.derivation.forms.versions import overwritten, versions
from looptrans.derivation.step import NotDone
from looptrans.executor import execute
from looptrans.ir.listing import listing
from tests.analysis import program

SOFTMAX = """
def softmax(X: Float[Array, "M N"]):
    Y = zeros((M, N))
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            m = max(m, X[i, j])
        l = 0.0
        for j in range(0, N):
            Y[i, j] = exp(X[i, j] - m)
            l += Y[i, j]
        for j in range(0, N):
            Y[i, j] /= l
    return Y
"""
WEIGHTS = """
def weights(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    W = zeros((M, N))
    O = zeros((M, D))
    for i in range(0, M):
        m = -inf
        for j in range(0, min(N, i + N - M + 1)):
            for e in range(0, E):
                W[i, j] = W[i, j] + Q[i, e] * K[j, e]
            m = max(m, W[i, j])
        l = 0.0
        for j in range(0, min(N, i + N - M + 1)):
            W[i, j] = exp(W[i, j] - m)
            l = l + W[i, j]
        for j in range(0, min(N, i + N - M + 1)):
            W[i, j] = W[i, j] / l
            for d in range(0, D):
                O[i, d] = O[i, d] + W[i, j] * V[j, d]
    return O, W
"""
# What the last pass makes is not all that is seen at the end, or not what is read behind it.
TWO = """
def f(X: Float[Array, "M N"]):
    A = {made}((M, N))
    s = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            {first}
        for j in {over}:
            {second}
        for j in range(0, N):
            s[i] = s[i] + A[i, j]
    return s{more}
"""


def test_each_pass_has_a_name_for_what_it_makes() -> None:
    step = versions(program(WEIGHTS), "W")
    text = listing(step.after)
    assert "W1[i, j] = W1[i, j] + Q[i, e] * K[j, e]" in text
    assert "W2[i, j] = exp(W1[i, j] - m)" in text
    assert "W[i, j] = W2[i, j] / l" in text
    assert step.decision == "legal"


def test_scores_that_become_weights_in_place_are_one_pass() -> None:
    """What each pass makes of the row is worked out again: no row of weights is kept."""
    written = WEIGHTS.replace("return O, W", "return O").replace("N - M + ", "")
    row = "W[i, j] = sum(Q[i, e] * K[j, e] for e in range(0, E))"
    written = re.sub(r"for e in range\(0, E\):\n.*", row, written, count=1)
    before = program(written)
    found = derive(before, "fold")
    assert all(step.decision == "legal" for step in found.steps)
    text = listing(found.last)
    assert text.count("for j in") == 1 and "W" not in text
    inputs = {name: np.random.default_rng(5).standard_normal((4, 3)) for name in "QKV"}
    want = execute(before, inputs=inputs)["O"]
    np.testing.assert_allclose(execute(found.last, inputs=inputs)["O"], want, rtol=1e-12)


@pytest.mark.parametrize(
    ("made", "first", "over", "second", "more", "legal"),
    [
        ("zeros", "A[i, j] = X[i, j]", "range(0, N)", "A[i, j] = A[i, j] * 2.0", "", True),
        ("ones", "A[i, j] += X[i, j]", "range(0, N)", "A[i, j] = A[i, j] * 2.0", ", A", True),
        ("zeros", "A[i, j] = X[i, j]", "range(1, N)", "A[i, j] = A[i, j] * 2.0", "", False),
        ("zeros", "A[i, j] = X[i, j]", "range(1, N)", "A[i, j] = A[i, j - 1]", "", False),
        ("zeros", "A[i, j] = X[i, j]", "range(0, N)", "A[i, j] = A[i, N - 1 - j]", "", False),
        ("zeros", "A[i, j] = X[i, j]", "range(0, j)", "A[i, j] = A[i, j] + 1.0", ", A", False),
    ],
)
def test_only_where_each_read_gets_what_it_got_before(
    made: str, first: str, over: str, second: str, more: str, legal: bool
) -> None:
    over = over.replace("j)", "i)")
    text = TWO.format(made=made, first=first, over=over, second=second, more=more)
    before = program(text)
    assert list(overwritten(before)) == ["A"]
    if not legal:
        with pytest.raises(NotDone, match="a name for each pass"):
            versions(before, "A")
    after = derive(before, "fold").steps[-1].after
    sizes = {"M": 5, "N": 4}
    one, other = execute(before, sizes=sizes), execute(after, sizes=sizes)
    for name in ("s", "A") if more else ("s",):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-12)


def test_what_adds_up_over_passes_keeps_its_name() -> None:
    divided = "        for d in range(0, D):\n            O[i, d] = O[i, d] / l\n"
    text = WEIGHTS.replace("W[i, j] / l", "W[i, j]").replace("    return", divided + "    return")
    assert list(overwritten(program(text))) == ["W"]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_what_is_made_on_the_way_is_not_rounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scores stored where weights belong would be rounded to 16 bits before they are exponents."""
    pytest.importorskip("torch")
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported
    from looptrans.cli.main import main
    from looptrans.emit.listing import emitted

    assert len(emitted(program(SOFTMAX)).blocks.kernels) == 1
    file = tmp_path / "weights.py"
    file.write_text(WEIGHTS)
    sizes = "M=33,N=40,E=16,D=8"
    assert main(["verify", str(file), "--pass", "both", "--sizes", sizes]) == 0
    capsys.readouterr()


def test_a_result_that_another_kernel_reads_is_rounded_at_the_end() -> None:
    """A mean in 16 bits would move all that it is taken off."""
    pytest.importorskip("torch")
    from looptrans.emit.listing import emitted

    text = emitted(
        program("""
def f(X: Float[Array, "N C"]):
    Y = zeros((N, C))
    mean = zeros(C)
    for c in range(0, C):
        for n in range(0, N):
            mean[c] += X[n, c] / N
    for n in range(0, N):
        for c in range(0, C):
            Y[n, c] = X[n, c] - mean[C - 1 - c]
    return Y, mean
""")
    ).text
    assert "return Y, mean_rounded.copy_(mean)" in text


def test_a_table_that_two_rows_keep_has_a_kernel_still() -> None:
    """Its rows begin alike, and are told apart all the same."""
    pytest.importorskip("torch")
    from looptrans.emit.listing import emitted

    table = """
def table(s: Float[Array, "B M N"], gap: float):
    H = zeros((B, M + 1, N + 1))
    for b in range(0, B):
        for i in range(1, M + 1):
            for j in range(1, N + 1):
                H[b, i, j] = max(H[b, i - 1, j - 1] + s[b, i - 1, j - 1], H[b, i, j - 1] - gap, 0.0)
    return H
"""
    assert len(emitted(program(table)).blocks.kernels) == 1


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("returned", ["y, h", "h, y"])
def test_a_result_that_a_product_reads_is_rounded_at_the_end(
    returned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its operands then are float32 numbers, whatever the inputs are."""
    pytest.importorskip("torch")
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported
    from looptrans.cli.main import main

    file = tmp_path / "layers.py"
    file.write_text(f"""
def layers(x: Float[Array, "M K"], w: Float[Array, "K N"], u: Float[Array, "N D"]):
    h = zeros((M, N))
    y = zeros((M, D))
    for i in range(M):
        for j in range(N):
            s = sum(x[i, k] * w[k, j] for k in range(K))
            h[i, j] = max(s, 0.0)
    for i in range(M):
        for d in range(D):
            y[i, d] = sum(h[i, j] * u[j, d] for j in range(N))
    return {returned}
""")
    sizes = "M=33,N=40,K=16,D=8"
    assert main(["verify", str(file), "--pass", "both", "--sizes", sizes]) == 0
    capsys.readouterr()
