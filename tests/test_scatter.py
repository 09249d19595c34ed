"""Listings that add to cells which integer arrays choose: kernels, gradients, the order."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

import looptrans
from looptrans.cli.main import main
from looptrans.derivation.derive import derive
from looptrans.emit.listing import emitted
from looptrans.emit.refusal import Refused
from tests.analysis import program

N, D, B, K = 700, 5, 9, 3

HISTOGRAM = """
def f(x: Int[Array, "N"]):
    c = zeros(B, dtype=int32)
    for n in range(0, N):
        c[x[n]] += 1
    return c
"""
EMBEDDING = """
def f(x: Int[Array, "N"], dY: Float[Array, "N D"]):
    dE = zeros((B, D))
    for n in range(0, N):
        for d in range(0, D):
            dE[x[n], d] += dY[n, d]
    return dE
"""
COO = """
def f(row: Int[Array, "N"], col: Int[Array, "N"], v: Float[Array, "N"], x: Float[Array, "B"]):
    y = zeros(B)
    for k in range(0, N):
        y[row[k]] += v[k] * x[col[k]]
    return y
"""
TWO = """
def f(x: Int[Array, "N"], v: Float[Array, "N"]):
    c = zeros(B, dtype=int64)
    s = zeros(B)
    for n in range(0, N):
        c[x[n]] += 1
        s[x[n]] -= v[n]
    return c, s
"""
EXTREMA = """
def f(x: Int[Array, "N"], v: Float[Array, "N"]):
    low = full(B, inf)
    top = full(B, -inf)
    for n in range(0, N):
        low[x[n]] = min(low[x[n]], v[n])
        if v[n] > top[x[n]]:
            top[x[n]] = v[n]
    return low, top
"""
MASKED = """
def f(x: Int[Array, "N"], keep: Int[Array, "N"], A: Float[Array, "N K"], w: Float[Array, "K"]):
    c = zeros(B)
    t = 0.0
    for n in range(0, N):
        s = 0.0
        for k in range(0, K):
            s += A[n, k] * w[k]
        if keep[n] > 0:
            c[x[n]] += exp(s)
        t += s
    return c, t
"""
PRODUCTS = """
def f(x: Int[Array, "N"], A: Float[Array, "N K"], w: Float[Array, "K D"]):
    c = zeros((B, D))
    for n in range(0, N):
        for d in range(0, D):
            for k in range(0, K):
                c[x[n], d] += A[n, k] * w[k, d]
    return c
"""
MEANS = """
def f(x: Int[Array, "N"], v: Float[Array, "N"]):
    s = zeros(B)
    c = zeros(B)
    o = zeros(N)
    for n in range(0, N):
        s[x[n]] += v[n]
    for n in range(0, N):
        c[x[n]] += 1.0
    for n in range(0, N):
        o[n] = v[n] - s[x[n]] / c[x[n]]
    return o
"""
BATCHES = """
def f(x: Int[Array, "K N"], v: Float[Array, "K N"]):
    c = zeros((K, B))
    for b in range(0, K):
        for n in range(0, N):
            c[b, x[b, n]] += v[b, n]
    return c
"""
TRANSPOSED = """
def f(p: Int[Array, "K+1"], x: Int[Array, "N"], v: Float[Array, "N"], w: Float[Array, "K"]):
    y = zeros(B)
    for i in range(0, K):
        for n in range(p[i], p[i + 1]):
            y[x[n]] += v[n] * w[i]
    return y
"""
LENGTHS = """
def f(n: Int[Array, "K"], X: Float[Array, "K N"]):
    o = zeros(N)
    for i in range(0, K):
        for j in range(n[i]):
            if X[i, j] > 0.0:
                o[j] += X[i, j]
    return o
"""
# Each row is gone over twice, so the rows wait: the cells of the result stay in one block.
SHARES = """
def f(n: Int[Array, "K"], X: Float[Array, "K N"]):
    o = zeros(N)
    for i in range(0, K):
        s = 1.0
        for j in range(0, n[i]):
            s += X[i, j] * X[i, j]
        for j in range(0, n[i]):
            o[j] += X[i, j] / s
    return o
"""


def _at(x: torch.Tensor, v: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=v.dtype).index_add(0, x.long(), v)


def _made() -> dict[str, tuple[str, list[torch.Tensor], Callable[..., Any]]]:
    """Return listings with inputs, and what they compute by torch."""
    draw = torch.Generator().manual_seed(0)

    def floats(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    def whole(*shape: int) -> torch.Tensor:
        return torch.randint(0, B, shape, generator=draw, dtype=torch.int32)

    def means(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return v - (_at(x, v, B) / _at(x, torch.ones_like(v), B))[x.long()]

    def masked(
        x: torch.Tensor, keep: torch.Tensor, a: torch.Tensor, w: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return _at(x, (keep > 0) * (a @ w).exp(), B), (a @ w).sum()

    def batches(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.stack([_at(*each, B) for each in zip(x, v, strict=True)])

    def extrema(x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ends = torch.full((B,), torch.inf, dtype=v.dtype), x.long(), v
        return ends[0].scatter_reduce(0, *ends[1:], "amin"), (-ends[0]).scatter_reduce(
            0, *ends[1:], "amax"
        )

    starts = torch.tensor([0, 130, 130, N], dtype=torch.int32)
    rows = torch.repeat_interleave(torch.arange(K), starts.diff())
    counts = torch.tensor([3, 0, 600], dtype=torch.int32)
    inside = torch.arange(N)[None] < counts[:, None]

    def shares(n: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x = torch.where(inside, x, 0.0)
        return (x / (1.0 + (x * x).sum(1, keepdim=True))).sum(0)

    return {
        "histogram": (HISTOGRAM, [whole(N)], lambda x: torch.bincount(x, minlength=B).int()),
        "embedding": (EMBEDDING, [whole(N), floats(N, D)], lambda x, v: _at(x, v, B, D)),
        "coo": (
            COO,
            [whole(N), whole(N), floats(N), floats(B)],
            lambda r, c, v, x: _at(r, v * x[c.long()], B),
        ),
        "two": (
            TWO,
            [whole(N), floats(N)],
            lambda x, v: (torch.bincount(x, minlength=B), -_at(x, v, B)),
        ),
        "extrema": (EXTREMA, [whole(N), floats(N)], extrema),
        "masked": (MASKED, [whole(N), whole(N) % 2, floats(N, K), floats(K)], masked),
        "products": (
            PRODUCTS,
            [whole(N), floats(N, K), floats(K, D)],
            lambda x, a, w: _at(x, a @ w, B, D),
        ),
        "means": (MEANS, [whole(N), floats(N)], means),
        "batches": (BATCHES, [whole(K, N), floats(K, N)], batches),
        "transposed": (
            TRANSPOSED,
            [starts, whole(N), floats(N), floats(K)],
            lambda p, x, v, w: _at(x, v * w[rows], B),
        ),
        "lengths": (
            LENGTHS,
            [counts, floats(K, N)],
            lambda n, x: torch.where(inside, x, 0.0).relu().sum(0),
        ),
        "shares": (SHARES, [counts, floats(K, N)], shares),
    }


MADE = _made()


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOPTRANS_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("name", MADE)
def test_what_is_scattered_is_what_torch_scatters(name: str) -> None:
    text, tensors, reference = MADE[name]
    sizes = {} if name in ("coo", "lengths", "shares") else {"B": B}
    given = [_asked(t) for t in tensors]
    found = _several(looptrans.compile(text)(*given, **sizes))
    exact = [_asked(t.detach().double()) if t.requires_grad else t for t in given]
    expected = _several(reference(*exact))
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.is_floating_point() == theirs.is_floating_point()
        _require_close(mine, theirs)
    if name == "two":
        return  # its counts are integers
    for of in (found, expected):
        seeds = [torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view_as(o) for o in of]
        if of[0].requires_grad:
            torch.autograd.backward(of, seeds)
    for mine, theirs in zip(given, exact, strict=True):
        if mine.requires_grad:
            _require_close(mine.grad, theirs.grad)


def _asked(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone().requires_grad_(tensor.is_floating_point())


def _several(found: Any) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def _require_close(mine: Any, theirs: Any) -> None:
    expected = theirs.detach().numpy()
    np.testing.assert_allclose(mine.detach().numpy(), expected, rtol=2e-5, atol=2e-5)


def test_an_output_that_is_given_is_added_up_in_float32_and_rounded_once() -> None:
    text, (x, dy), reference = MADE["embedding"]
    dy = dy.half()
    out = torch.full((B, D), torch.nan, dtype=torch.float16)
    found = looptrans.compile(text)(x, dy, B, out=out)
    assert found is out
    assert torch.equal(out, reference(x, dy.float()).half())


@pytest.mark.parametrize(
    ("name", "ordered"), [("histogram", True), ("extrema", True), ("embedding", False)]
)
def test_what_is_said_of_the_order(name: str, ordered: bool) -> None:
    listing = program(MADE[name][0])
    derivation = derive(listing, "fold")
    (step,) = (s for s in derivation.steps if s.kind == "scatter")
    assert step.decision == "legal"
    assert ordered == all("no fixed order" not in c.law for c in step.certificates)
    assert ordered == ("two runs may differ in the last" not in emitted(listing).text)


@pytest.mark.parametrize("name", ["extrema", "two", "embedding"])
def test_it_compiles_for_a_gpu_in_16_bits(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "listing.py"
    path.write_text(MADE[name][0])
    assert main(["inspect", str(path), "--target", "cuda:90", "--format", "json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert [kernel["spills"] for kernel in kernels] == [0] * len(kernels) != []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            HISTOGRAM.replace("+= 1", "+= 0.5"),
            "what is added to the integers of c is no integer",
        ),
        (
            """
def f(x: Int[Array, "N"]):
    c = zeros(B, dtype=int32)
    y = zeros(N, dtype=int32)
    for n in range(0, N):
        c[x[n]] += 1
        y[n] = c[x[n]]
    return y
""",
            "in another iteration, and no loop over its cells is parallel",
        ),
        (
            """
def f(c: Float[Array, "B"], x: Int[Array, "N"], v: Float[Array, "N"]):
    for n in range(0, N):
        c[x[n]] += v[n]
""",
            "declare it as Float32[Array, …]",
        ),
        (
            """
def f(n: Int[Array, "K"], X: Float[Array, "K N"]):
    o = zeros(2 * N)
    for i in range(0, K):
        s = 0.0
        for j in range(0, n[i]):
            s += X[i, j]
        for j in range(0, n[i]):
            o[2 * j] += X[i, j] / s
    return o
""",
            "for j in range(0, N): if j < n[i]",
        ),
    ],
)
def test_what_cannot_be_scattered_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        emitted(program(text))
    assert reason in " ".join(str(refused.value).split())


def test_a_float32_argument_is_added_to_in_place() -> None:
    text = """
def f(c: Float32[Array, "B"], x: Int[Array, "N"], v: Float[Array, "N"]):
    for n in range(0, N):
        c[x[n]] += v[n]
"""
    _, (x, v), _ = MADE["two"]
    c = torch.ones(B)
    looptrans.compile(text)(c, x, v)
    _require_close(c, 1 + _at(x, v.double(), B))


def test_rows_of_padded_lists_are_not_looked_up_beyond_their_ends() -> None:
    text = """
def f(a: Int[Array, "M"], b: Int[Array, "M"], col: Int[Array, "K"], x: Float[Array, "N"]):
    y = zeros(M)
    for i in range(0, M):
        for k in range(a[i], b[i]):
            y[i] += x[col[k]]
    return y
"""
    # Rows 1 and 3 have nothing, beyond what there is; what no row has says where nothing is.
    begin, end = ([0, 10**3, 40, -(10**3)], [8, 10**3, 48, -(10**3)])
    col = torch.full((64,), 10**8, dtype=torch.int32)
    col[:8] = col[40:48] = torch.arange(8, dtype=torch.int32)
    x = torch.arange(8.0)
    ends = [torch.tensor(each, dtype=torch.int32) for each in (begin, end)]
    assert looptrans.compile(text)(*ends, col, x).tolist() == [28, 0, 28, 0]


def test_gradients_that_are_all_zero_are_zeros() -> None:
    text = """
def f(X: Float[Array, "N"]):
    Y = zeros(N)
    for i in range(0, N):
        Y[i] = 1.0 if X[i] > 0.5 else 0.0
    return Y
"""
    x = torch.randn(N).requires_grad_()
    looptrans.compile(text)(x).sum().backward()
    _require_close(x.grad, torch.zeros(N))


@pytest.mark.parametrize(
    "counted", ["c[x[n]] += 1", "c[x[n]] = c[x[n]] + (1 if keep[n] > 0 else 0)"]
)
def test_integers_that_are_counted_beside_have_no_gradient_and_stop_none(counted: str) -> None:
    text = f"""
def f(x: Int[Array, "N"], keep: Int[Array, "N"], v: Float[Array, "N"]):
    c = zeros(B, dtype=int32)
    s = zeros(B)
    for n in range(0, N):
        {counted}
        s[x[n]] += v[n] * v[n]
    return c, s
"""
    _, (x, v), _ = MADE["two"]
    keep = x % 2
    v = _asked(v)
    counts, sums = looptrans.compile(text)(x, keep, v, B)
    assert not counts.requires_grad
    sums.sum().backward()
    _require_close(v.grad, 2 * v)


def test_means_by_integers_that_the_listing_counts_have_gradients() -> None:
    text = """
def f(x: Int[Array, "N"], v: Float[Array, "N"]):
    s = zeros(B)
    c = zeros(B, dtype=int32)
    o = zeros(B)
    for n in range(0, N):
        s[x[n]] += v[n] * v[n]
        c[x[n]] += 1
    for i in range(0, B):
        if c[i] > 0:
            o[i] = s[i] / c[i]
    return o
"""
    _, (x, v), _ = MADE["two"]
    v = _asked(v)
    looptrans.compile(text)(x, v, B).sum().backward()
    counts = torch.bincount(x, minlength=B)
    _require_close(v.grad, 2 * v.double() / counts[x.long()])
