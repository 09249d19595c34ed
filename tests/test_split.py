"""A loop in parts: kernels of parts and of their joining, and how many parts there are."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looptrans.blocks.block_ir.expr import Dot, walk
from looptrans.blocks.block_ir.ops import exprs_of, has_products, ops_in
from looptrans.blocks.block_ir.program import Kernel
from looptrans.cli.main import main
from looptrans.derivation.derive import derive, derive_two_nests
from looptrans.derivation.step import Goal
from looptrans.emit.listing import emitted
from looptrans.emit.refusal import Refused
from looptrans.emit.split import EmittedSplit, emitted_split
from looptrans.executor.run import execute
from looptrans.frontend import parse
from looptrans.ir.source import Source
from looptrans.variants import Options, compose
from tests.analysis import program, spec
from tests.renaming import name_map, renamed, same_words, stream, texts
from tests.visits import Block, visits

TOTAL = """\
def total(x: Float[Array, "N"]):
    s = 0.0
    for j in range(0, N):
        s = s + x[j] * x[j]
    return s
"""
LOGSUMEXP = """\
def rows(X: Float[Array, "M N"]):
    y = zeros(M)
    for i in range(0, M):
        m = -inf  # S1
        for j in range(0, N):
            m = max(m, X[i, j])  # S2
        l = 0.0  # S3
        for j in range(0, N):
            l = l + exp(X[i, j] - m)  # S4
        y[i] = m + log(l)  # S5
    return y
"""
WINDOW = """\
def window(X: Float[Array, "M N"], W: int):
    y = zeros(M)
    for i in range(0, M):
        for j in range(max(0, i - W), min(N, i + 1)):
            y[i] = y[i] + X[i, j]
    return y
"""
# It begins with something, which a part does not, and a part may see nothing for a while.
SINK = """\
def sink(X: Float[Array, "M N"], s: Float[Array, "M"], V: Float[Array, "N"]):
    o = zeros(M)
    for i in range(0, M):
        m = s[i]
        l = 1.0
        for j in range(0, N):
            t = X[i, j] if j > i else -inf
            n = max(m, t)
            l = l * exp(m - n) + exp(t - n)
            o[i] = o[i] * exp(m - n) + exp(t - n) * V[j]
            m = n
        o[i] = o[i] / l
    return o
"""
# Few queries at the end of a cache of keys, whose heads are shared, some of which have no keys.
DECODE = """\
def decode(
    Q: Float[Array, "H M E"], K: Float[Array, "G N E"], V: Float[Array, "G N D"],
    n: Int[Array, "H", "0:N+1"], scale: float,
):
    assert H == G * R
    O = zeros((H, M, D))
    lse = zeros((H, M), dtype=float32)
    for h in range(0, H):
        for i in range(0, M):
            m = -inf
            l = 0.0
            for j in range(0, n[h]):
                s = scale * sum(Q[h, i, e] * K[h // R, j, e] for e in range(0, E))
                if j <= n[h] - M + i:
                    old = m
                    m = max(m, s)
                    l = l * exp(old - m) + exp(s - m)
                    for d in range(0, D):
                        O[h, i, d] = O[h, i, d] * exp(old - m) + exp(s - m) * V[h // R, j, d]
            for d in range(0, D):
                O[h, i, d] = O[h, i, d] / l if l != 0.0 else 0.0
            lse[h, i] = m + log(l)
    return O, lse
"""
# Few queries of heads that share keys, written with groups, with one loop, with one head of keys.
SHARED = """\
def shared({arguments}, n: Int[Array, "B", "0:N+1"]):
    {given}
    O = zeros(({shape}, M, D))
    for b in range(0, B):
        for {outer}:
            for i in range(0, M):
                m = -inf
                l = 0.0
                for j in range(0, n[b]):
                    s = sum({query}, i, e] * {keys}, j, e] for e in range(0, E))
                    top = max(m, s)
                    l = l * exp(m - top) + exp(s - top)
                    for d in range(0, D):
                        {out} = {out} * exp(m - top) + exp(s - top) * {values}, j, d]
                    m = top
                for d in range(0, D):
                    {out} = {out} / l if l != 0.0 else 0.0
    return O
"""
BY_SHARE = (
    """Q: Float[Array, "B H M E"], K: Float[Array, "B {G}N E"], V: Float[Array, "B {G}N D"]"""
)
SHARES = {
    "grouped": SHARED.format(
        arguments=BY_SHARE.format(G="G "),
        given="assert H == R * G",
        shape="B, H",
        outer="h in range(0, H)",
        query="Q[b, h",
        keys="K[b, h // R",
        values="V[b, h // R",
        out="O[b, h, i, d]",
    ),
    # What a row looks up of its own may be shared by other groups.
    "two groupings": SHARED.format(
        arguments=BY_SHARE.format(G="G ") + ', w: Float[Array, "T M"]',
        given="assert H == G * R; assert H == T * S",
        shape="B, H",
        outer="h in range(0, H)",
        query="w[h // S, i] * Q[b, h",
        keys="K[b, h // R",
        values="V[b, h // R",
        out="O[b, h, i, d]",
    ),
    "a quotient of sizes, and a number for each head": SHARED.format(
        arguments=BY_SHARE.format(G="G ") + ', slope: Float[Array, "H"], bias: Float[Array, "H N"]',
        given="# as many heads share each head of keys",
        shape="B, H",
        outer="h in range(0, H)",
        query="Q[b, h",
        keys="K[b, h // (H // G)",
        values="V[b, h // (H // G)",
        out="O[b, h, i, d]",
    ).replace("s = sum(", "s = bias[h, j] - slope[h] * j + sum("),
    "rows with bounds of their own": SHARED.format(
        arguments=BY_SHARE.format(G="G "),
        given="assert H == R * G",
        shape="B, H",
        outer="h in range(0, H)",
        query="Q[b, h",
        keys="K[b, h // R",
        values="V[b, h // R",
        out="O[b, h, i, d]",
    ).replace("range(0, n[b])", "range(max(0, n[b] - M + i - 5), min(N, n[b] - M + i + 1))"),
    "one head": SHARED.format(
        arguments=BY_SHARE.format(G=""),
        given="# one head of keys",
        shape="B, H",
        outer="h in range(0, H)",
        query="Q[b, h",
        keys="K[b",
        values="V[b",
        out="O[b, h, i, d]",
    ),
}


@cache
def split(text: str) -> EmittedSplit:
    return emitted_split(parse(Source("listing.py", text)))


def refusal(text: str) -> str:
    with pytest.raises(Refused) as caught:
        emitted_split(parse(Source("listing.py", text)))
    return str(caught.value)


# Numbers


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (TOTAL, {"N": 1100}),
        (LOGSUMEXP, {"M": 3, "N": 1100}),
        (WINDOW, {"M": 9, "N": 700, "W": 3}),
        (SINK, {"M": 9, "N": 600}),
    ],
    ids=["total", "logsumexp", "window", "sink"],
)
def test_any_number_of_parts_gives_what_the_listing_does(
    text: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64; also where parts have nothing to do, and where whole rows have not."""
    verifying = runtime("verifying.split")
    monkeypatch.setattr(verifying, "emitted_split", lambda program: split(text))
    monkeypatch.setattr(runtime("verifying.verify"), "KINDS", ("rising",))
    given = [{**sizes, "parts": parts} for parts in (1, 2, 3, 7)]
    small = [{**sizes, "N": length, "parts": 3} for length in (0, 1, 2)]
    report = verifying.verify_split(
        parse(Source("listing.py", text)), [*given, *small], ("float32",)
    )
    assert len(report.runs) == 7
    assert report.passed, [run for run in report.runs if not run.passed]


def test_few_queries_of_a_long_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against torch in float64; a head without keys and a row that sees none are among them."""
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("LOOPTRANS_CACHE_DIR", str(tmp_path))
    runtime("running.device").prepare_device("cpu")
    made = split(DECODE)
    decode = runtime("verifying.verify").launcher_of(made.text, made.launcher, made.blocks).run
    H, G, M, N, E, D = 4, 2, 3, 70, 16, 8
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(s, generator=random) for s in ((H, M, E), (G, N, E), (G, N, D)))
    n = torch.tensor([70, 0, 2, 33])
    keys, values = (x.double().repeat_interleave(H // G, 0) for x in (k, v))
    scores = 0.3 * q.double() @ keys.mT
    last = (n[:, None] - M + torch.arange(M))[:, :, None]
    at = torch.arange(N)
    scores[(at > last) | (at >= n[:, None, None])] = -torch.inf
    lse = torch.logsumexp(scores, 2)
    wanted = torch.softmax(scores, 2).nan_to_num(0.0) @ values
    assert lse.isinf().sum() == M + 1
    for parts in (None, 1, 2, 3, 5):
        found = decode(q, k, v, n, 0.3, parts=parts)
        torch.testing.assert_close(found, (wanted.float(), lse.float()))


def runtime(name: str) -> Any:
    """Return a module of the runtime; it needs torch and triton."""
    pytest.importorskip("torch")
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed")
    return importlib.import_module(f"looptrans.runtime.{name}")


# Blocks


def of(kernel: Kernel, sizes: dict[str, int], blocks: dict[str, int]) -> dict[int, list[Block]]:
    """Return the blocks that all programs of each row visit, those of early parts first."""
    found: dict[int, list[Block]] = {}
    for visit in visits(kernel, sizes, blocks):
        found.setdefault(visit.places["i"].start, []).extend(visit.blocks)
    return found


@pytest.mark.parametrize("parts", [1, 2, 3, 50])
@pytest.mark.parametrize("width", [0, 5, 40])
def test_parts_share_the_blocks_that_there_are(parts: int, width: int) -> None:
    """Each is visited by one program, in order and masked as before, and none has many more."""
    made = split(WINDOW)
    sizes = {"M": 21, "N": 33, "W": width}
    blocks = {"BLOCK_I": 4, "BLOCK_J": 5}
    kernel = made.parts.kernels[0]
    whole = of(made.blocks.kernels[0], sizes, blocks)
    assert of(kernel, {**sizes, "parts": parts}, blocks) == whole
    for visit in visits(kernel, {**sizes, "parts": parts}, blocks):
        most = -(-len(whole[visit.places["i"].start]) // parts)
        assert len(visit.blocks) <= most


# One query of each sequence, or of each row that is packed; whose keys are in pages, or packed.
ONE = """\
def one({arguments}, scale: float{size}):
    {given}
    O = zeros(({rows}, H, D))
    for b in range(0, B):
        for h in range(0, H):
            {loop}m = -inf
            {indent}l = 0.0
            {indent}for j in range({begin}, {end}):
            {indent}    s = scale * sum(Q[{row}, h, e] * K[{key}, e] for e in range(0, E))
            {indent}    top = max(m, s)
            {indent}    l = l * exp(m - top) + exp(s - top)
            {indent}    for d in range(0, D):
            {indent}        O[{row}, h, d] = O[{row}, h, d] * exp(m - top)
            {indent}        O[{row}, h, d] += exp(s - top) * V[{key}, d]
            {indent}    m = top
            {indent}for d in range(0, D):
            {indent}    O[{row}, h, d] = O[{row}, h, d] / l if l != 0.0 else 0.0
    return O
"""
IN_PAGES = ONE.format(
    arguments="""Q: Float[Array, "B H E"], K: Float[Array, "C P G E"],"""
    """ V: Float[Array, "C P G D"], page: Int[Array, "B L"], n: Int[Array, "B"]""",
    size=", P: Const",
    given="assert H == G * R",
    rows="B",
    loop="",
    indent="",
    begin="0",
    end="n[b]",
    row="b",
    key="page[b, j // P], j % P, h // R",
)
PACKED = ONE.format(
    arguments="""Q: Float[Array, "T H E"], K: Float[Array, "U G E"], V: Float[Array, "U G D"],"""
    """ cu: Int[Array, "B+1"], at: Int[Array, "B+1"]""",
    size="",
    given="assert H == G * R; assert all(cu[b] <= cu[b + 1] for b in range(0, B))",
    rows="T",
    loop="for i in range(cu[b], cu[b + 1]):\n                ",
    indent="    ",
    begin="at[b]",
    end="at[b + 1]",
    row="i",
    key="j, h % G",
)


@pytest.mark.parametrize("text", [IN_PAGES, PACKED], ids=["pages", "packed"])
def test_keys_of_sequences_whose_lengths_are_read(text: str) -> None:
    """Against torch in float64; the heads of a group are rows of matrix products."""
    torch = pytest.importorskip("torch")
    runtime("running.device").prepare_device("cpu")
    made = split(text)
    assert all("tl.dot(" in made.text.split("@triton.jit")[number] for number in (1, 2))
    run = runtime("verifying.verify").launcher_of(made.text, made.launcher, made.blocks).run
    H, G, E, D = 4, 2, 16, 8
    random = torch.Generator().manual_seed(0)
    keys, queries = [37, 0, 5], [2, 0, 3]
    share = torch.arange(H) // 2 if text == IN_PAGES else torch.arange(H) % G
    if text == IN_PAGES:
        k, v = (torch.randn(20, 4, G, x, generator=random) for x in (E, D))
        page = torch.randint(20, (3, 10), generator=random)
        whose = [0, 1, 2]
        q = torch.randn(3, H, E, generator=random)
        own = [tuple(x[page[b]].flatten(0, 1)[:n] for x in (k, v)) for b, n in enumerate(keys)]
        given = (q, k, v, page, torch.tensor(keys), 0.3)
    else:
        k, v = (torch.randn(42, G, x, generator=random) for x in (E, D))
        whose = [0, 0, 2, 2, 2]
        q = torch.randn(5, H, E, generator=random)
        own = [*zip(k.split(keys), v.split(keys), strict=True)]
        at, cu = (torch.tensor([0, *x]).cumsum(0) for x in (keys, queries))
        given = (q, k, v, cu, at, 0.3)
    wanted = torch.zeros(len(whose), H, D, dtype=torch.float64)
    for row, b in enumerate(whose):
        mine, its = (x.double()[:, share] for x in own[b])
        weights = torch.softmax(0.3 * torch.einsum("he,jhe->hj", q[row].double(), mine), 1)
        wanted[row] = torch.einsum("hj,jhd->hd", weights, its)
    for parts in (1, 3):
        torch.testing.assert_close(run(*given, parts=parts), wanted.float())


def test_programs_that_do_something_are_counted() -> None:
    """Packed rows need fewer than there might be; keys in pages are as many as pages hold."""
    assert "_parts(G * R * (triton.cdiv(T, 16) + B), U, " in split(PACKED).text
    assert "_parts(B * G * triton.cdiv(R, 16), L * P, " in split(IN_PAGES).text


@pytest.mark.parametrize("name", SHARES)
def test_rows_that_read_the_same_are_in_one_block(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = split(SHARES[name])
    kernel = made.parts.kernels[0]
    assert [dim.role for dim in kernel.grid][-1] == "rows"
    assert "h" not in [dim.name for dim in kernel.grid]
    verifying = runtime("verifying.split")
    monkeypatch.setattr(verifying, "emitted_split", lambda program: made)
    monkeypatch.setattr(runtime("verifying.verify"), "KINDS", ("rising",))
    usual = {"B": 2, "H": 6, "G": 2, "R": 3, "M": 7, "N": 40, "E": 16, "D": 16, "parts": 2}
    sizes = [usual, {**usual, "B": 1, "M": 1, "N": 3}]
    if name in ("grouped", "two groupings"):
        sizes.append({**usual, "B": 1, "H": 2, "R": 1, "M": 17})
    if name == "two groupings":
        sizes = [{**each, "T": each["H"] // 2, "S": 2} for each in sizes]
    if "quotient" in name:
        sizes = [{k: v for k, v in usual.items() if k != "R"}]
    if "bounds" in name:
        sizes = [usual]
    if name == "one head":
        sizes = [{k: v for k, v in each.items() if k not in "GR"} for each in sizes]
    report = verifying.verify_split(parse(Source("listing.py", SHARES[name])), sizes, ("float32",))
    assert report.passed, [run for run in report.runs if not run.passed]


def test_rows_with_bounds_of_their_own_share_a_block() -> None:
    """Not one with those of another head: the last block of each would be another one."""
    kernel = split(DECODE).parts.kernels[0]
    assert [dim.name for dim in kernel.grid if dim.role == "rows"] == ["i"]
    assert any(
        isinstance(part, Dot)
        for op in ops_in(kernel.body)
        for e in exprs_of(op)
        for part in walk(e)
    )


# What is derived


def test_the_two_nests_are_a_listing_and_mean_the_same() -> None:
    before = parse(Source("listing.py", LOGSUMEXP))
    after = derive_two_nests(before).derivation.last
    sizes = {"M": 4, "N": 11}
    wanted = execute(before, sizes=sizes)["y"]
    for parts in (1, 2, 5, 12):
        found = execute(after, sizes={**sizes, "parts": parts}, schedule=parts)["y"]
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_bounds_with_names_are_put_in() -> None:
    """Their statements stand in the loops around, and a part is to be a program of its own."""
    text = """\
def f(X: Float[Array, "H M N"], Z: Float[Array, "G N"], W: int):
    assert H % G == 0
    y = zeros((H, M))
    for h in range(H):
        g = h // (H // G)
        for i in range(M):
            at = i + N - M
            lo = max(0, at - W)
            hi = min(N, at + 1)
            for j in range(lo, hi):
                y[h, i] = y[h, i] + X[h, i, j] * Z[g, j]
    return y
"""
    before = parse(Source("listing.py", text))
    after = derive_two_nests(before).derivation.last
    sizes = {"H": 4, "G": 2, "M": 3, "N": 11, "W": 6}
    wanted = execute(before, sizes=sizes)["y"]
    found = execute(after, sizes={**sizes, "parts": 3}, schedule=1)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


LAST = """\
def last(X: Float[Array, "M N"]):
    best = zeros(M, dtype=int64)
    for i in range(0, M):
        m = -inf
        a = {first}
        for j in range(0, N):
            if X[i, j] >= m:
                m = X[i, j]
                a = j
        best[i] = a
    return best
"""


def test_an_empty_part_says_nothing_of_the_last_maximum() -> None:
    """Where all are -inf, it is the last of them that the listing finds, and no start of a part."""
    before = parse(Source("listing.py", LAST.format(first=-1)))
    after = derive_two_nests(before).derivation.last
    inputs = {"X": np.full((1, 3), -np.inf)}
    for parts in (1, 2, 5):
        found = execute(after, inputs=inputs, sizes={"M": 1, "N": 3, "parts": parts})["best"]
        np.testing.assert_array_equal(found, [2])
    assert "of a part without iterations cannot be told from" in refusal(LAST.format(first=0))


MEANS = """\
def means(X: Float[Array, "M N"], B: Bool[Array, "M N"]):
    mu = zeros(M)
    m2 = zeros(M)
    for i in range(0, M):
        n = 0.0
        for j in range(0, N):
            if B[i, j]:
                n = n + 1.0
                delta = X[i, j] - mu[i]
                mu[i] = mu[i] + delta / n
                m2[i] = m2[i] + delta * (X[i, j] - mu[i])
    return mu, m2
"""
SUMMED = """\
def summed(X: Float[Array, "M N"], B: Bool[Array, "M N"]):
    g = full(M, -inf)
    for i in range(0, M):
        for j in range(0, N):
            if B[i, j]:
                t = max(g[i], X[i, j])
                g[i] = t + log(exp(g[i] - t) + exp(X[i, j] - t))
    return g
"""


@pytest.mark.parametrize("text", [MEANS, SUMMED])
def test_an_empty_part_joined_to_nothing_is_nothing(text: str) -> None:
    """The weighted mean of two parts without weight is no 0 / 0: it is where the loop begins."""
    before = parse(Source("listing.py", text))
    after = derive_two_nests(before).derivation.last
    seen = np.array([[False] * 6, [False] * 4 + [True] * 2, [True] + [False] * 5, [True] * 6])
    inputs = {"X": np.random.default_rng(0).normal(size=(4, 6)), "B": seen}
    sizes = {"M": 4, "N": 6}
    expected = execute(before, inputs=inputs, sizes=sizes)
    for parts in (1, 2, 3, 7):
        found = execute(after, inputs=inputs, sizes=sizes | {"parts": parts})
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-12)


def test_a_part_may_begin_with_what_changes_nothing_in_between() -> None:
    """A score of -inf behind a finite one: alone at the start of a part it would leave nan."""
    before = parse(Source("listing.py", SUMMED))
    after = derive_two_nests(before).derivation.last
    x = np.array([[0.5, 1.0, -np.inf, -np.inf, -np.inf, 2.0]])
    inputs = {"X": x, "B": np.full((1, 6), True)}
    expected = np.log(np.sum(np.exp(x[np.isfinite(x)])))
    for parts in (1, 2, 3, 6):
        found = execute(after, inputs=inputs, sizes={"M": 1, "N": 6, "parts": parts})["g"]
        np.testing.assert_allclose(found, [expected], rtol=1e-12)


def test_a_minimum_of_what_is_turned_round_is_a_maximum() -> None:
    """A score of -inf is neutral where the state holds the least of the scores' negatives."""
    text = """\
def rows(X: Float[Array, "M N"]):
    y = zeros(M)
    for i in range(0, M):
        m = inf
        l = 0.0
        for j in range(0, N):
            t = min(m, -X[i, j])
            l = l * exp(t - m) + exp(X[i, j] + t)
            m = t
        y[i] = log(l) - m
    return y
"""
    before = parse(Source("listing.py", text))
    after = derive_two_nests(before).derivation.last
    x = np.array([[0.5, -np.inf, -np.inf, 1.0], [-np.inf, -np.inf, -np.inf, 2.0]])
    for parts in (1, 2, 4):
        sizes = {"M": 2, "N": 4, "parts": parts}
        (found,) = execute(after, inputs={"X": x}, sizes=sizes).values()
        np.testing.assert_allclose(found, np.log(np.exp(x).sum(axis=1)), rtol=1e-12)


def test_a_block_that_is_left_out_joined_to_nothing_is_nothing() -> None:
    """The mean begins at 1.0 here, where no iteration puts anything in its place."""
    text = MEANS.replace("mu = zeros(M)", "mu = ones(M)")
    text = text.replace("m2[i] = m2[i] + delta * (X[i, j] - mu[i])", "m2[i] = m2[i] + X[i, j]")
    before = parse(Source("listing.py", text))
    derived = derive(before, "forward", block=2)
    assert any(step.kind == "blocks" for step in derived.steps)
    seen = np.array([[False] * 6, [False] * 4 + [True] * 2])
    inputs = {"X": np.random.default_rng(0).normal(size=(2, 6)), "B": seen}
    expected, found = (
        execute(each, inputs=inputs, sizes={"M": 2, "N": 6}) for each in (before, derived.last)
    )
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12)


def test_parts_of_a_length_are_joined() -> None:
    """The root of the square of a length is that length: it is never negative."""
    text = """\
def length(X: Float[Array, "M N"]):
    s = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            s[i] = sqrt(s[i] * s[i] + X[i, j] * X[i, j])
    return s
"""
    derived = derive_two_nests(parse(Source("listing.py", text))).derivation
    assert derived.decision == "legal"


@pytest.mark.parametrize("goal", ["split", "forward"])
def test_rows_that_add_up_have_parts_and_blocks_as_their_elements_do(goal: Goal) -> None:
    text = """\
def pooled(X: Float[Array, "N E"], u: Float[Array, "E"]):
    y = zeros(E)
    l = 0.0
    for n in range(0, N):
        y += exp(X[n] @ u) * X[n]
        l += exp(X[n] @ u)
    y = y / l
    return y
"""
    derived = derive(parse(Source("listing.py", text)), goal, block=4, parts=3)
    assert derived.decision == "legal" and not derived.notes
    X, u = np.random.default_rng(0).normal(size=(11, 5)), np.linspace(-1.0, 1.0, 5)
    found = execute(derived.last, inputs={"X": X, "u": u}, sizes={"N": 11, "E": 5})["y"]
    weights = np.exp(X @ u)
    np.testing.assert_allclose(found, weights @ X / weights.sum(), rtol=1e-12)


def test_a_length_that_begins_below_0_is_no_root_of_a_square_before_the_first_iteration() -> None:
    """Parts of zeros leave what parts without iterations leave, and in the listing they count."""
    text = """\
def length(X: Float[Array, "M N"], B: Bool[Array, "M N"]):
    s = full(M, -2.0)
    for i in range(0, M):
        for j in range(0, N):
            if B[i, j]:
                s[i] = sqrt(s[i] * s[i] + X[i, j] * X[i, j])
    return s
"""
    assert "is joined to what is another number then" in refusal(text)


def test_a_maximum_of_integers_begins_with_the_least() -> None:
    text = """\
def most(X: Int[Array, "M N"]):
    y = zeros(M, dtype=int64)
    for i in range(0, M):
        top = X[i, 0]
        for j in range(0, N):
            top = max(top, X[i, j])
        y[i] = top
    return y
"""
    after = derive_two_nests(parse(Source("listing.py", text))).derivation.last
    inputs = {"X": np.array([[-(2**63), -(2**63)], [-5, -7]])}
    found = execute(after, inputs=inputs, sizes={"M": 2, "N": 2, "parts": 3})["y"]
    np.testing.assert_array_equal(found, [-(2**63), -5])


def test_names_change_names_only() -> None:
    changed = renamed(LOGSUMEXP, "reversed")
    before, after = stream(split(changed.before).text), stream(split(changed.after).text)
    words = {**changed.names, **name_map(before, after)}
    for mine, yours in zip(texts(before), texts(after), strict=True):
        assert same_words(mine, yours, words), (mine, yours)


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (
            LOGSUMEXP.replace("max(m, X[i, j])", "0.5 * m * m + X[i, j]").replace("-inf", "0.5"),
            [
                "cannot be split: from m = 0.5, the inputs [X[i, j] = ",
                "both lead to m =",
                "leave --split out",
            ],
        ),
        (
            "def seen(x: Float[Array, 'M N']):\n"
            "    y = zeros(M); z = zeros((M, N))\n"
            "    for i in range(0, M):\n"
            "        for j in range(0, N):\n"
            "            y[i] = y[i] + x[i, j]\n"
            "            z[i, j] = y[i]\n"
            "    return z\n",
            ["it is a scan and no fold"],
        ),
        (
            "def ragged(x: Float[Array, 'M N'], n: Int[Array, 'M']):\n"
            "    y = zeros(M)\n"
            "    for i in range(0, M):\n"
            "        for j in range(0, n[i]):\n"
            "            if j < N:\n"
            "                y[i] = y[i] + x[i, j]\n"
            "    return y\n",
            ["it is not known how far j runs at most: n[i] has no declared range"],
        ),
    ],
    ids=["no operator", "scan", "no bound"],
)
def test_what_has_no_parts_is_refused(text: str, reasons: list[str]) -> None:
    said = refusal(text)
    for reason in reasons:
        assert reason in said


# The launcher


def chosen(text: str) -> Callable[[int, int, int], int]:
    """Return the function of a module that chooses the number of parts."""
    start = text.index("def _parts(")
    own = text[start : text.index("\n\n\n", start)]
    found: dict[str, Any] = {}
    exec(own, found)  # plain arithmetic
    return found["_parts"]  # type: ignore[no-any-return]


def test_parts_fill_the_gpu_and_no_more() -> None:
    parts = chosen(split(DECODE).text)
    assert parts(1, 100_000, 132) == 264  # two programs on each multiprocessor
    assert parts(8, 100_000, 132) == 33
    assert parts(133, 100_000, 132) == 1  # two parts would not all run at once
    assert parts(1, 1000, 132) == 3  # 256 iterations each, at least
    assert parts(1, 255, 132) == parts(1, 0, 132) == parts(0, 0, 1) == 1
    assert chosen(split(TOTAL).text)(1, 10**6, 132) == 10**6 // 2048


def test_the_launcher_runs_the_kernels_without_parts_where_one_will_do() -> None:
    text = split(DECODE).text
    assert "parts = _parts(G * R * triton.cdiv(M, 16), N, _processors(Q.device))" in text
    assert "return decode(Q, K, V, n, scale, out=out, tune=tune, check=check)" in text


def test_compile_takes_parts_and_has_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("LOOPTRANS_CACHE_DIR", str(tmp_path))
    compiled = runtime("compile").compile_listing(LOGSUMEXP, split=True)
    x = torch.randn(3, 600, generator=torch.Generator().manual_seed(0))
    for parts in (None, 2):
        torch.testing.assert_close(compiled(x, parts=parts), torch.logsumexp(x, 1))
    for wrong in (0, 1.5):
        with pytest.raises(ValueError, match="parts should be"):
            compiled(x, parts=wrong)
    x.requires_grad_()
    compiled(x, parts=2).sum().backward()
    torch.testing.assert_close(x.grad, torch.softmax(x.detach(), 1))


# The command line


def test_what_is_asked_of_both_passes_has_no_parts(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("emit", "verify", "inspect"):
        assert main([verb, "specs/matmul.py", "--split", "--pass", "both"]) == 2
        assert "--split is about the forward pass" in capsys.readouterr().err
    assert main(["verify", "specs/matmul.py", "--split", "--sizes", "M=2,parts=0"]) == 2
    assert "parts=0 is no number of parts" in capsys.readouterr().err


def test_a_loop_that_one_program_has_alone_is_said_to_have_parts() -> None:
    text = """
def mean(x: Float[Array, "N"]):
    m = 0.0
    for i in range(N):
        m += x[i] / N
    return m
"""
    listed = program(text)
    (note,) = emitted(listed).blocks.notes
    assert note.startswith("one program goes over all of i; emit --split")
    assert not emitted_split(listed).blocks.notes
    assert not emitted(spec("prefix_sum")).blocks.notes  # each sum is looked at


def test_cells_with_a_guard_each_have_parts() -> None:
    """Of k-means: which centre is the nearest is asked for each, by sums over what S has too."""
    listed = program("""
def f(X: Float[Array, "N D"], C: Float[Array, "K D"]):
    S = zeros((K, D)); count = zeros(K)
    for n in range(N):
        least = min(sum((X[n, d] - C[k, d]) ** 2 for d in range(D)) for k in range(K))
        for k in range(K):
            if sum((X[n, d] - C[k, d]) ** 2 for d in range(D)) <= least:
                count[k] += 1.0
                for d in range(D):
                    S[k, d] += X[n, d]
    return S, count
""")
    sizes = {"N": 7, "K": 3, "D": 2}
    wanted = execute(listed, sizes=sizes)
    found = execute(derive_two_nests(listed).derivation.last, sizes={**sizes, "parts": 3})
    for name in listed.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-12)


@pytest.mark.parametrize("kv_lengths", [False, True])
def test_all_keys_in_pages_have_parts_as_those_of_a_length_do(kv_lengths: bool) -> None:
    options = Options(pages=True, heads="none", kv_lengths=kv_lengths)
    made = emitted_split(program(compose(options).text))
    products = [has_products(kernel.body) for kernel in made.parts.kernels]
    assert made.loop == "j" and products == [True, False]
