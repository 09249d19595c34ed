"""Listings as others write them, with what each leans on: masks by key, layouts, temporaries."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.adjoint.backward import backward  # noqa: E402
from looptrans.derivation.derive import derive  # noqa: E402
from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.listing import emitted  # noqa: E402
from looptrans.executor import execute  # noqa: E402
from looptrans.ir.listing import listing  # noqa: E402
from looptrans.runtime.running.load import load_module  # noqa: E402
from tests.analysis import program, spec  # noqa: E402

# Masked by key, under `if`; the score written out each time.
KEYED = program("""
def keyed(
    X: Float[Array, "M E"], Y: Float[Array, "N E"], Z: Float[Array, "N D"], keep: Bool[Array, "N"]
):
    out = zeros((M, D))
    for row in range(M):
        top = -inf
        for col in range(N):
            if keep[col]:
                top = max(top, sum(X[row, e] * Y[col, e] for e in range(E)))
        total = 0.0
        for col in range(N):
            if keep[col]:
                total = total + exp(sum(X[row, e] * Y[col, e] for e in range(E)) - top)
        for col in range(N):
            if keep[col]:
                for d in range(D):
                    p = exp(sum(X[row, e] * Y[col, e] for e in range(E)) - top) / total
                    out[row, d] = out[row, d] + p * Z[col, d]
    return out
""")
# Rows made of length 1 in the loop that reads them; heads in groups, behind the positions.
NORMED = program("""
def normed(Q: Float[Array, "M H E"], K: Float[Array, "N G E"], V: Float[Array, "N G D"]):
    assert H == G * R
    O = zeros((M, H, D))
    for h in range(H):
        for i in range(M):
            a = 1.0 / sqrt(sum(Q[i, h, e] ** 2 for e in range(E)) + 0.01)
            m = -inf
            for j in range(min(N, i + 1)):
                b = 1.0 / sqrt(sum(K[j, h // R, e] ** 2 for e in range(E)) + 0.01)
                m = max(m, a * b * sum(Q[i, h, e] * K[j, h // R, e] for e in range(E)))
            l = 0.0
            for j in range(min(N, i + 1)):
                b = 1.0 / sqrt(sum(K[j, h // R, e] ** 2 for e in range(E)) + 0.01)
                l = l + exp(a * b * sum(Q[i, h, e] * K[j, h // R, e] for e in range(E)) - m)
            for j in range(min(N, i + 1)):
                b = 1.0 / sqrt(sum(K[j, h // R, e] ** 2 for e in range(E)) + 0.01)
                w = exp(a * b * sum(Q[i, h, e] * K[j, h // R, e] for e in range(E)) - m)
                for d in range(D):
                    O[i, h, d] = O[i, h, d] + w / l * V[j, h // R, d]
    return O
""")
# Online, a window, and a sum over the variable of the loop that the weight is put into.
ONLINE = program("""
def online(
    q: Float[Array, "T C"], k: Float[Array, "T C"], v: Float[Array, "T C"], W: int, cap: float
):
    acc = zeros((T, C))
    out = zeros((T, C))
    for i in range(T):
        m = -inf
        l = 0.0
        for j in range(max(0, i - W), i + 1):
            z = cap * tanh(sum(q[i, c] * k[j, c] for c in range(C)) / cap)
            new = max(m, z)
            old = exp(m - new)
            w = exp(z - new)
            l = l * old + w
            for c in range(C):
                acc[i, c] = acc[i, c] * old + w * v[j, c]
            m = new
        for c in range(C):
            out[i, c] = acc[i, c] / l
    return out
""")
TWICE = program("""
def twice(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    A = zeros((M, E))
    B = zeros((N, E))
    for i in range(M):
        s = 0.0
        for e in range(E):
            s += Q[i, e] * Q[i, e]
        for e in range(E):
            A[i, e] = Q[i, e] / s
    for j in range(N):
        s = 0.0
        for e in range(E):
            s += K[j, e] * K[j, e]
        for e in range(E):
            B[j, e] = K[j, e] / s
    return A, B
""")


def test_passes_under_a_condition_on_data_are_one_and_what_is_masked_costs_nothing(
    tmp_path: Path,
) -> None:
    made = emitted_with_backward(KEYED)
    assert [k.name for k in made.forward.kernels] == ["keyed_kernel"]
    assert "dZ = tl.dot(" in made.text and "dY = tl.dot(" in made.text
    keyed = load_module("unusual_keyed", made.text, tmp_path / "keyed.py").keyed
    torch.manual_seed(0)
    # Scores near -700: with a masked key taken as 0, its exponential would be infinite.
    q = torch.full((5, 8), 10.0) + torch.randn(5, 8)
    k = torch.full((37, 8), -9.0) + 0.1 * torch.randn(37, 8)
    v = torch.randn(37, 8)
    keep = torch.arange(37) % 2 == 0
    for tensor in (q, k, v):
        tensor.requires_grad_()
    found = keyed(q, k, v, keep)
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    scores = (wide[0] @ wide[1].T).masked_fill(~keep, -float("inf"))
    expected = torch.softmax(scores, 1) @ wide[2]
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)
    given = torch.randn(5, 8)
    mine = torch.autograd.grad(found, (q, k, v), given)
    theirs = torch.autograd.grad(expected, wide, given.double())
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2e-3, atol=2e-3)


def test_rows_normalized_on_the_way_and_groups_in_any_layout(tmp_path: Path) -> None:
    made = emitted_with_backward(NORMED)
    text = listing(made.found.program)
    assert text.count("delta = zeros") == 1 and "m_kept" not in text
    module = load_module("unusual_normed", made.text, tmp_path / "normed.py")
    torch.manual_seed(1)
    q, k, v = torch.randn(6, 4, 8), torch.randn(7, 2, 8), torch.randn(7, 2, 8)
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    n = [t / torch.sqrt((t**2).sum(-1, keepdim=True) + 0.01) for t in wide[:2]]
    scores = torch.einsum("ihe,jhe->hij", n[0], n[1].repeat_interleave(2, 1))
    mask = torch.arange(6)[:, None] >= torch.arange(7)
    weights = torch.softmax(scores.masked_fill(~mask, -float("inf")), -1)
    expected = torch.einsum("hij,jhd->ihd", weights, wide[2].repeat_interleave(2, 1))
    given = torch.randn(6, 4, 8)
    theirs = torch.autograd.grad(expected, wide, given.double())
    out, *more = module.normed_forward(q, k, v)
    saved = [each.name for each in made.found.saved if not each.is_output]
    by_name = dict(zip(saved, more, strict=True)) | {"O": out, "dO": given}
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    for wanted in (("dQ", "dK", "dV"), ("dV",)):
        found = module.normed_backward(q, k, v, **by_name, wanted=wanted)
        for name, mine, other in zip(("dQ", "dK", "dV"), found, theirs, strict=True):
            assert (mine is None) == (name not in wanted)
            if mine is not None:
                torch.testing.assert_close(mine.double(), other, rtol=1e-4, atol=1e-5)


def test_the_adjoint_of_a_bounded_score_is_one_product() -> None:
    text = listing(backward(ONLINE).program)
    slopes = [line for line in text.splitlines() if "1.0 - tanh" in line]
    assert len(slopes) == 2
    # Nothing but factors: no difference of sums that nearly cancel.
    assert all("(1.0 - tanh(" in line and line.count(" - ") == 1 for line in slopes)
    assert "_tanh_slope(" in emitted_with_backward(ONLINE).text


def test_a_temporary_of_two_nests_belongs_to_each() -> None:
    assert len(emitted(TWICE).blocks.kernels) == 2


def test_a_loop_whose_range_is_read_is_cut_where_it_goes_at_most() -> None:
    given = spec("attention_lengths")
    found = derive(given, "split", parts=3)
    assert found.decision == "legal"
    rng = np.random.default_rng(0)
    inputs = {n: rng.normal(size=(2, 1, 5, 2)) for n in "QKV"} | {"n_kv": np.array([5, 2])}
    whole = execute(given, inputs=inputs, sizes={"scale": 0.7})
    parts = execute(found.last, inputs=inputs, sizes={"scale": 0.7})
    for output in given.outputs:
        np.testing.assert_allclose(parts[output], whole[output], rtol=1e-9, atol=1e-12)


def test_many_temporaries_each_read_twice_are_looked_at_once() -> None:
    """Put in where they are read, the last of them would have more parts than there is time for."""
    lines = ["v0 = X[i, j]"]
    lines += [f"v{n} = v{n - 1} * 1.5 - v{max(0, n - 3)} * 0.25" for n in range(1, 90)]
    body = "\n".join(f"            {line}" for line in lines)
    text = f"""\
def mixed(X: Float[Array, "M N"]):
    Z = zeros((M, N))
    for i in range(0, M):
        for j in range(0, N):
{body}
            Z[i, j] = v89
    return Z
"""
    assert derive(program(text), "fold").decision == "legal"
