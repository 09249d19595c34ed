"""Forward kernels of listings written in other people's ways. Each was wrong, or refused, once."""

from __future__ import annotations

import importlib.util
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

import torch

import looptrans
from looptrans.algebra.free import freed
from looptrans.algebra.iterations.assembly import recurrence
from looptrans.blocks.block_ir.expr import Dot, walk
from looptrans.blocks.block_ir.ops import Branch, ElementLoop, TileLoop, exprs_of, ops_in
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.blocks.lower import lower
from looptrans.cli.main import main
from looptrans.derivation.derive import derive
from looptrans.derivation.joined.loops_as_sums import sum_loops
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted, lowered
from looptrans.emit.parameters import launcher_parameters
from looptrans.executor import execute, prepare
from looptrans.transforms.editing.tree import loop_paths
from looptrans.transforms.moved.anew import with_arrays_made_once
from tests.analysis import program
from tests.native import run_native

# What the second branch reads is not what the first one sets.
TWO_GREATEST = """
def two_greatest(X: Float[Array, "M N"]):
    first = full(M, -inf); second = full(M, -inf)
    for i in range(M):
        for j in range(N):
            if X[i, j] > first[i]:
                second[i] = first[i]
                first[i] = X[i, j]
            elif X[i, j] > second[i]:
                second[i] = X[i, j]
    return first, second
"""
# A row that either branch of a mask sets, looked at by the whole loop.
EITHER = """
def either(V: Float[Array, "N D"], W: Float[Array, "M D"]):
    O = zeros((M, D)); r = zeros(D)
    for i in range(M):
        for j in range(N):
            if j > i:
                for d in range(D):
                    r[d] = V[j, d] * W[i, d]
            else:
                for d in range(D):
                    r[d] = V[j, d]
            for d in range(D):
                O[i, d] = O[i, d] + r[d] * r[d]
    return O
"""
# Rows of which nothing is seen in the first block, under an if.
UNDER_IF = """
def under_if(q: Float[Array, "M E"], k: Float[Array, "N E"], v: Float[Array, "N D"],
             a: Int[Array, "M", "0:2"], b: Int[Array, "N", "0:2"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf; l = 0.0
        for j in range(N):
            s = -inf
            if a[i] == b[j] and j <= i:
                s = q[i] @ k[j]
            new = max(m, s)
            if new > -inf:
                w = exp(s - new)
                l = l * exp(m - new) + w
                for d in range(D):
                    O[i, d] = O[i, d] * exp(m - new) + w * v[j, d]
            m = new
        if l > 0.0:
            for d in range(D):
                O[i, d] = O[i, d] / l
    return O
"""
ROWS = """
def rows(q: Float[Array, "M E"], k: Float[Array, "N E"], v: Float[Array, "N D"]):
    O = zeros((M, D))
    {before}
    for i in range(M):
        {inside}
        m = -inf; l = 0.0
        for j in range(N):
            s[j] = q[i] @ k[j]
            m = max(m, s[j])
        for j in range(N):
            s[j] = exp(s[j] - m)
            l += s[j]
        for d in range(D):
            o[d] = 0.0
            for j in range(N):
                o[d] += s[j] / l * v[j, d]
        for d in range(D):
            O[i, d] = o[d]
    return O
"""
NEGATED = """
def negated(X: Float[Array, "M N"], G: Float[Array, "M N"]):
    Y = zeros((M, N))
    for i in range(M):
        for j in range(N):
            Y[i, j] = X[i, j] / (1.0 + exp(-G[i, j])) + (-X[i, j]) * (-G[i, j])
    return Y
"""
# Heads side by side in one dimension, as projections leave them.
MERGED = """
def merged(q: Float[Array, "M H*E"], k: Float[Array, "N H*E"], v: Float[Array, "N H*D"], H: int,
           E: Const, D: Const):
    O = zeros((M, H * D))
    for h in range({first}, H):
        for i in range(M):
            m = -inf; l = 0.0
            for j in range(N):
                m = max(m, sum(q[i, h * E + e] * k[j, h * E + e] for e in range(E)))
            for j in range(N):
                w = exp(sum(q[i, h * E + e] * k[j, h * E + e] for e in range(E)) - m)
                l += w
                for d in range({width}):
                    O[i, h * D + d] += w * v[j, h * D + d]
            for f in range({width}):
                O[i, h * D + f] /= l
    return O
"""
# As the backward pass of such heads has it: one loop touches the sum, inside the one it grows over.
MERGED_SUM = """
def merged_sum(v: Float[Array, "N H*E"], k: Float[Array, "N H*E"], g: Float[Array, "M H*E"]):
    A = zeros((M, H * E))
    for h in range(H):
        for i in range(M):
            for j in range(N):
                w = sum(v[j, h * E + e] * g[i, h * E + e] for e in range(E))
                for e in range(E):
                    A[i, h * E + e] += w * k[j, h * E + e]
    return A
"""
# Two results in one nest, one for each i and one for each j.
BOTH_WAYS = """
def both_ways(Q: Float[Array, "M E"], K: Float[Array, "N E"], lse: Float[Array, "M"]):
    A = zeros((M, E)); B = zeros((N, E))
    for i in range(M):
        for j in range(N):
            p = exp(Q[i] @ K[j] - lse[i])
            for e in range(E):
                A[i, e] += p * K[j, e]
                B[j, e] += p * Q[i, e]
    return A, B
"""
TABLE = """
def table(rate: float):
    T = zeros((5, 7))
    for i in range(5):
        for j in range(7):
            T[i, j] = rate * (j - i)
    return T
"""
# A second loop goes on with the maximum of a first one that is kept in other units.
GOES_ON = """
def goes_on(A: Float[Array, "P M"], S: Float[Array, "P M"], Q: Float[Array, "M E"],
            K: Float[Array, "N E"]):
    y = zeros(M)
    for i in range(M):
        m = -inf; l = 0.0
        for p in range(P):
            n = max(m, A[p, i])
            l = l * exp(m - n) + exp(A[p, i] - n) * S[p, i]
            m = n
        for j in range(N):
            n = max(m, Q[i] @ K[j])
            l = l * exp(m - n) + exp(Q[i] @ K[j] - n)
            m = n
        y[i] = l * exp(m - 1.0)
    return y
"""
WHOLE = """
def whole(a: Int[Array, "M N"], x: Float[Array, "M N"], t: float):
    s = zeros(M, dtype=int64); hi = zeros(M, dtype=int64); n = zeros(M, dtype=int32)
    last = full(M, -1, dtype=int32)
    for i in range(M):
        m = -1
        for j in range(N):
            s[i] += a[i, j]
            m = max(m, a[i, j])
            if x[i, j] > t:
                n[i] += 1
            last[i] = max(last[i], j if x[i, j] > t else -1)
        hi[i] = m
    return s, hi, n, last
"""
ONLINE = """
def online(q: Float[Array, "T E"], k: Float[Array, "T E"], v: Float[Array, "T D"]):
    y = zeros((T, D))
    for t in range(T):
        mx = -inf
        z = 0.0
        for u in range(t + 1):
            s = sum(q[t][e] * k[u][e] for e in range(E))
            new = {new}
            z *= exp(mx - new)
            z += exp(s - new)
            for d in range(D):
                y[t][d] *= exp(mx - new)
                y[t][d] += exp(s - new) * v[u][d]
            mx = new
        for d in range(D):
            y[t][d] /= z
    return y
"""
# Passes as one writes them on paper: sums, and a loop over the columns around the last of them.
ON_PAPER = """
def on_paper(q: Float[Array, "M E"], k: Float[Array, "N E"], v: Float[Array, "N D"]):
    O = zeros((M, D)); lse = zeros(M)
    for i in range(M):
        m = max(q[i] @ k[j] for j in range(N) if j <= i)
        l = sum(exp(q[i] @ k[j] - m) for j in range(N) if j <= i)
        lse[i] = m + log(l)
        for d in range(D):
            {last}
    return O, lse
"""
SUM = "O[i, d] = sum(exp(q[i] @ k[j] - m) * v[j, d] for j in range(N) if j <= i) / l"
LOOP = """a = 0.0
            for j in range(N):
                if j <= i:
                    a += exp(q[i] @ k[j] - m) * v[j, d]
            O[i, d] = a / l"""
HERE = ROWS.format(before="pass_ = 0", inside="s = zeros(N); o = empty(D)")
REUSED = ROWS.format(before="s = empty(N); o = zeros(D)", inside="t = 0.0")
# A score that exceeds the maximum takes a branch of its own.
NEW_MAXIMUM = """
def new_maximum(q: Float[Array, "M E"], k: Float[Array, "N E"], v: Float[Array, "N D"]):
    o = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            x = sum(q[i, e] * k[j, e] for e in range(E))
{update}
        for d in range(D):
            o[i, d] = o[i, d] / l
    return o
"""
SCALED = """
            if x > m:
                a = exp(m - x)
                m = x
            else:
                a = 1.0
            p = exp(x - m)
            l = l * a + p
            for d in range(D):
                o[i, d] = o[i, d] * a + p * v[j, d]
"""
BOTH_SIDES = """
            if m >= x:
                l += exp(x - m)
                for d in range(D):
                    o[i, d] += exp(x - m) * v[j, d]
            else:
                l = l * exp(m - x) + 1
                for d in range(D):
                    o[i, d] = o[i, d] * exp(m - x) + v[j, d]
                m = x
"""
NO_ELSE = """
            if x > m:
                l *= exp(m - x)
                for d in range(D):
                    o[i, d] *= exp(m - x)
                m = x
            p = exp(x - m)
            l += p
            for d in range(D):
                o[i, d] += p * v[j, d]
"""
# Sums under guards of their own, beside a running maximum.
BESIDE = """
def beside(X: Float[Array, "T N"], y: Int[Array, "T"]):
    a = zeros(T); b = zeros(T); L = zeros(T)
    for t in range(T):
        m = -inf
        l = 0.0
        label = 0.0
        for v in range(N):
            z = 2.0 * X[t, v]
            new = max(m, z)
            l = l * exp(m - new) + exp(z - new)
            m = new
            if z > 0.0:
                a[t] += z
            b[t] = b[t] if v > y[t] else b[t] + z
            if v == y[t]:
                label = z
        L[t] = m + log(l) - label
    return a, b, L
"""
# Rows of scores that one loop makes, by way of a number or cell by cell, and others go over.
IN_A_ROW = """
def in_a_row(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        row = zeros(N)
        for j in range(N):
{made}
        top = -inf
        for j in range(N):
            top = max(top, row[j])
        total = 0.0
        for j in range(N):
            total += exp(row[j] - top)
        for j in range(N):
            for d in range(D):
                O[i, d] += exp(row[j] - top) / total * V[j, d]
    return O
"""
BY_NUMBER = """
            t = 0.0
            for e in range(E):
                t += Q[i, e] * K[j, e]
            row[j] = t * 0.5 if j <= i else -inf
"""
BY_CELL = """
            for e in range(E):
                row[j] += Q[i, e] * K[j, e]
"""


@pytest.mark.parametrize("made", [BY_NUMBER, BY_CELL], ids=["by number", "by cell"])
def test_a_row_of_scores_is_worked_out_again_and_not_kept(
    made: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = IN_A_ROW.format(made=made)
    (kernel,) = lowered(program(text)).kernels
    assert sum(isinstance(op, TileLoop) for op in ops_in(kernel.body)) <= 2
    path = tmp_path / "listing.py"
    path.write_text(text)
    status = main(["verify", str(path), "--dtype", "float32", "--sizes", "M=9,N=20,E=4,D=3"])
    assert status == 0, capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "sizes", "dtype"),
    [
        (BESIDE, "T=5,N=70", "float32"),
        (TWO_GREATEST, "M=3,N=9", "float32"),
        (UNDER_IF, "M=20,N=40,E=4,D=3", "float32"),
        (EITHER, "M=5,N=20,D=3", "float32"),
        (HERE, "M=5,N=20,E=4,D=3", "float32"),
        (REUSED, "M=5,N=20,E=4,D=3", "float32"),
        (NEGATED, "M=5,N=3", "float16"),
        (MERGED.format(first=1, width="D - 1"), "M=5,N=20,H=3,E=4,D=3", "float32"),
        (MERGED_SUM, "M=5,N=20,H=3,E=4", "float32"),
        (BOTH_WAYS, "M=5,N=20,E=3", "float32"),
        (TABLE, "rate=0.5", "float32"),
        (GOES_ON, "P=7,M=5,N=20,E=3", "float32"),
        (ON_PAPER.format(last=SUM), "M=21,N=21,E=4,D=3", "float32"),
        (ON_PAPER.format(last=LOOP), "M=5,N=21,E=4,D=3", "float32"),
        (ONLINE.format(new="s if s > mx else mx"), "T=20,E=3,D=2", "float32"),
        (NEW_MAXIMUM.format(update=SCALED), "M=5,N=20,E=3,D=2", "float32"),
    ],
    ids=[
        "sums beside",
        "branches",
        "under if",
        "either",
        "made in a loop",
        "used again",
        "negated",
        "merged heads",
        "merged sum",
        "both",
        "table",
        "goes on",
        "sums",
        "columns outside",
        "set twice",
        "new maximum",
    ],
)
def test_forward(
    text: str, sizes: str, dtype: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "listing.py"
    path.write_text(text)
    status = main(["verify", str(path), "--dtype", dtype, "--sizes", sizes])
    assert status == 0, capsys.readouterr()


def test_arrays_made_in_loops_are_made_once_where_nobody_sees_them() -> None:
    """What is made in a loop is made once; what is returned, or looked at outside, stays."""
    found = with_arrays_made_once(program(HERE))
    assert found is not None
    assert found.arrays == ("s", "o")
    for text in (HERE.replace("return O", "return O, s"), HERE.replace("empty(D)", "zeros(i)")):
        kept = with_arrays_made_once(program(text))
        assert kept is None or set(kept.arrays) < {"s", "o"}
    # Every iteration goes on from what the one before has left: it has no part of its own.
    carried = REUSED.replace("o[d] = 0.0", "o[d] = o[d] + 1.0")
    steps = derive(program(carried), "fold", own=True).steps
    assert not any("expand(o" in step.name for step in steps)


@pytest.mark.parametrize(("width", "free"), [("D", True), ("D + 1", False)])
def test_heads_in_one_dimension_are_free_where_their_parts_do_not_overlap(
    width: str, free: bool
) -> None:
    """The text shows it, so isl is not asked; where the parts overlap it shows nothing."""
    given = program(MERGED.format(first=0, width=width).replace("H*D", "H*D+1"))
    (heads, *_) = loop_paths(given)
    assert (freed(given, heads, ("m", "l", "w")) is not None) == free


@pytest.mark.parametrize("end", ["h * E + E", "(h + 1) * E", "E * (1 + h)"])
def test_heads_in_one_dimension_may_be_counted_where_they_are(end: str) -> None:
    """Every part is as long, so all of its elements fit a block, in both passes."""
    there, more = f"range(h * E, {end})", ("E: Const, D: Const", "E: int")
    text = MERGED.format(first=0, width="D").replace("H * D)", "H * E)").replace(*more)
    for old, new in (("H*D", "H*E"), ("range(E)", there), ("range(D)", there), ("h * D + d", "d"),
                     ("h * D + f", "f"), ("h * E + e", "e")):  # fmt: skip
        text = text.replace(old, new)
    listing = program(text)
    derivation = derive(listing, "fold")
    first = derivation.steps[0]
    assert first.kind == "parts from 0" and first.decision == "legal"
    made = lowered(listing)
    assert len(made.kernels) == 1
    assert not [op for op in ops_in(made.kernels[0].body) if isinstance(op, ElementLoop)]
    sizes = {"M": 3, "N": 4, "H": 2, "E": 3}
    inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
    have, want = (
        torch.from_numpy(execute(each, sizes=sizes, inputs=inputs)["O"])
        for each in (derivation.last, listing)
    )
    torch.testing.assert_close(have, want)
    gradients = emitted_with_backward(listing)
    assert gradients.text.count("tl.dot(") > 0


def test_a_number_that_is_given_is_not_divided_out() -> None:
    """With N = 0 no shape tells B; what is an extent as it is needs not be given."""
    flat = """
def flat(x: Float[Array, "B*N"], w: Float[Array, "N"], B: int, N: int):
    y = zeros(B)
    for b in range(B):
        for n in range(N):
            y[b] += x[b * N + n] * w[n]
    return y
"""
    assert launcher_parameters(lowered(program(flat))).names == ("x", "w", "B")


def test_a_listing_that_runs_for_nothing_only_is_not_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "listing.py"
    path.write_text("""
def beyond(x: Float[Array, "N"]):
    y = zeros(N)
    for i in range(N):
        y[i] = x[i + 1]
    return y
""")
    assert main(["verify", str(path), "--dtype", "float32"]) == 1
    assert re.search(r"x\[\d\] is outside the array", capsys.readouterr().out)


def test_integers_are_reduced_as_integers(tmp_path: Path) -> None:
    """Sums beyond what float32 holds are exact, and a state keeps one type, as a GPU wants it."""
    blocks = emitted(program(WHOLE))
    path = tmp_path / "whole.py"
    path.write_text(blocks.text)
    spec = importlib.util.spec_from_file_location("whole", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    a = torch.randint(1 << 40, 1 << 41, (3, 41))
    a[:, 5:] //= 1 << 16
    x = torch.randn(3, 41)
    found = module.whole(a, x, 0.25)
    over = x > 0.25
    last = torch.where(over, torch.arange(41), -1).amax(1).int()
    for one, other in zip(found, (a.sum(1), a.amax(1), over.sum(1).int(), last), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(module.whole(a[:, :0], x[:, :0], 0.25)[1], torch.full((3,), -1))
    lines = blocks.text[: blocks.text.index("def whole(")].splitlines()
    assert not [line for line in lines if line.strip().startswith(("s =", "n =")) and "32" in line]


def test_an_array_of_integers_that_rounds_is_no_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "listing.py"
    path.write_text(WHOLE.replace("s[i] += a[i, j]", "s[i] += x[i, j]"))
    status = main(["verify", str(path), "--dtype", "float32", "--sizes", "M=3,N=20"])
    assert status == 0, capsys.readouterr()


@pytest.mark.parametrize(
    "new", ["s if s > mx else mx", "mx if not s > mx else s", "where(s <= mx, mx, s)"]
)
def test_a_state_that_is_set_twice_in_an_iteration_is_one_pass(new: str) -> None:
    made = lowered(program(ONLINE.format(new=new)))
    assert len(made.kernels) == 1
    assert not [op for op in ops_in(made.kernels[0].body) if isinstance(op, ElementLoop)]


NOTHING_YET = SCALED.replace("p = exp(x - m)", "p = exp(x - m) if m > -inf else 0.0")


@pytest.mark.parametrize("update", [SCALED, BOTH_SIDES, NO_ELSE, NOTHING_YET])
def test_a_branch_on_a_new_maximum_is_a_maximum(update: str) -> None:
    made = lowered(program(NEW_MAXIMUM.format(update=update)))
    assert len(made.kernels) == 1
    assert not [op for op in ops_in(made.kernels[0].body) if isinstance(op, ElementLoop)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # A number where both are -inf, and not the old one; what is no choice of a maximum.
        ("p = exp(x - m)", "p = exp(x - m) if m > -inf else 1.0"),
        ("a = 1.0", "a = 2.0"),
        ("m = x", "m = x + 1.0"),
    ],
)
def test_a_branch_on_a_new_maximum_stays_where_it_says_more(old: str, new: str) -> None:
    listing = program(NEW_MAXIMUM.format(update=SCALED.replace(old, new)))
    assert "max(" not in recurrence(listing, "j").text()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            m = new\n", "                m = new\n"),
        (
            "            s = -inf\n            if a[i] == b[j] and j <= i:\n"
            "                s = q[i] @ k[j]\n",
            "            if a[i] == b[j]:\n                s = q[i] @ k[j]\n"
            "            else:\n                s = -inf\n",
        ),
    ],
)
def test_a_guard_that_waits_for_a_key_may_be_written_around_more_or_less(
    old: str, new: str
) -> None:
    assert old in UNDER_IF
    made = lowered(program(UNDER_IF.replace(old, new)))
    assert len(made.kernels) == 1
    assert not [op for op in ops_in(made.kernels[0].body) if isinstance(op, ElementLoop)]


@pytest.mark.parametrize("last", [SUM, LOOP, "for j in range(i + 1): O[i, d] += k[j, d] * v[j, d]"])
def test_passes_are_brought_side_by_side_where_they_become_one(last: str) -> None:
    steps = derive(program(ON_PAPER.format(last=last)), "fold").steps
    assert [len(step.arguments) for step in steps if step.kind == "one pass"] == (
        [2] if "+= k" in last else [3]
    )


def test_rows_that_several_results_are_made_of_are_one_pass() -> None:
    """What reads a number of each row beside the rows does not keep them apart."""
    text = """
def f(Q: Float[Array, "H N E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"]):
    O = zeros((H, N, D)); S = zeros((H, N, N)); L = zeros((H, N))
    for h in range(H):
        for i in range(N):
            for j in range(0, i + 1):
                S[h, i, j] = sum(Q[h, i, e] * K[h, j, e] for e in range(E))
            m = max(S[h, i, j] for j in range(0, i + 1))
            l = sum(exp(S[h, i, j] - m) for j in range(0, i + 1))
            L[h, i] = m + log(l)
            for d in range(D):
                O[h, i, d] = sum(exp(S[h, i, j] - m) * V[h, j, d] for j in range(0, i + 1)) / l
    return O, L
"""
    assert len(lowered(program(text)).kernels) == 1


# Weights that are gathered once, each row by keys of its own; and rows that two results are of.
ONCE = """
def once(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D)); A = zeros((N, N))
    for i in range(N):
        for j in range(i + 1):
            A[i, j] = 1.0 / (1.0 + exp(-sum(Q[i, e] * K[j, e] for e in range(E))))
        for d in range(D):
            O[i, d] = sum(A[i, j] * V[j, d] for j in range(i + 1))
    return O
"""
TWICE = """
def twice(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
          U: Float[Array, "N F"]):
    O = zeros((N, D)); R = zeros((N, F)); S = zeros((N, N))
    for i in range(N):
        for j in range(i + 1):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(E))
        m = max(S[i, j] for j in range(i + 1))
        l = sum(exp(S[i, j] - m) for j in range(i + 1))
        for d in range(D):
            O[i, d] = sum(exp(S[i, j] - m) * V[j, d] for j in range(i + 1)) / l
        for f in range(F):
            R[i, f] = sum(exp(S[i, j] - m) * U[j, f] for j in range(i + 1)) / l
    return O, R
"""


@pytest.mark.parametrize("text", [ONCE, TWICE])
def test_rows_of_keys_of_their_own_are_not_kept_in_memory(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(lowered(program(text)).kernels) == 1
    path = tmp_path / "listing.py"
    path.write_text(text)
    sizes = "N=70,E=4,D=3,F=5" if text is TWICE else "N=70,E=4,D=3"
    status = main(["verify", str(path), "--dtype", "float32", "--sizes", sizes])
    assert status == 0, capsys.readouterr()


# A score for each pair; weights for each pair; one row of scores that all rows use in turn.
PAIRS = """
def pairs(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
          ok: Bool[Array, "N N"]):
    O = zeros((N, D)); S = zeros((N, N)); L = zeros(N)
    for i in range(N):
        for j in range(N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(E)) if ok[i, j] else -inf
        m = max(S[i, j] for j in range(N))
        l = sum(exp(S[i, j] - m) for j in range(N))
        for d in range(D):
            O[i, d] = sum(exp(S[i, j] - m) * V[j, d] for j in range(N)) / l
        L[i] = m + log(l)
    return O, L
"""
WEIGHTS = """
def weights(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D)); P = zeros((N, N))
    for i in range(N):
        m = max(sum(Q[i, e] * K[j, e] for e in range(E)) for j in range(N))
        l = sum(exp(sum(Q[i, e] * K[j, e] for e in range(E)) - m) for j in range(N))
        for j in range(N):
            P[i, j] = exp(sum(Q[i, e] * K[j, e] for e in range(E)) - m) / l
        for d in range(D):
            for j in range(N):
                O[i, d] += P[i, j] * V[j, d]
    return O
"""
IN_TURN = """
def in_turn(Q: Float[Array, "H N E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"]):
    O = zeros((H, N, D)); S = zeros(N); L = zeros((H, N))
    for h in range(H):
        for i in range(N):
            for j in range(i + 1):
                S[j] = sum(Q[h, i, e] * K[h, j, e] for e in range(E)) * 0.125
            m = max(S[j] for j in range(i + 1))
            l = sum(exp(S[j] - m) for j in range(i + 1))
            for d in range(D):
                O[h, i, d] = sum(exp(S[j] - m) * V[h, j, d] for j in range(i + 1)) / l
            L[h, i] = m + log(l)
    return O, L
"""


@pytest.mark.parametrize("text", [PAIRS, WEIGHTS, IN_TURN])
def test_attention_of_as_many_keys_as_queries_is_four_kernels(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One forward, however its rows are kept; delta, then queries and keys each by their rows."""
    made = emitted_with_backward(program(text))
    assert len(made.forward.kernels) == 1
    assert [name.partition("_backward_")[2] for name in made.backward_kernels] == [
        "delta_kernel",
        "dQ_kernel",
        "dK_dV_kernel",
    ]
    path = tmp_path / "listing.py"
    path.write_text(text)
    sizes = "H=2,N=19,E=4,D=3" if "H" in text else "N=19,E=4,D=3"
    status = main(["verify", str(path), "--pass", "both", "--dtype", "float32", "--sizes", sizes])
    assert status == 0, capsys.readouterr()


def test_sums_stay_sums_where_no_pass_is_saved() -> None:
    text = """
def norm(x: Float[Array, "M N"]):
    y = zeros((M, N))
    for i in range(M):
        mu = sum(x[i, j] for j in range(N)) / N
        var = sum((x[i, j] - mu) * (x[i, j] - mu) for j in range(N)) / N
        for j in range(N):
            y[i, j] = (x[i, j] - mu) / sqrt(var + 1e-5)
    return y
"""
    assert {step.kind for step in derive(program(text), "fold").steps} == {"parallel"}


# Scores in a loop of their own, under one name in every pass, scaled where they are.
SCORES = """
            s = 0.0
            for e in range(E):
                x = q[i, e]
                s += x * k[j, e]
            s = s * 0.5"""
IN_LOOPS = f"""
def in_loops(q: Float[Array, "M E"], k: Float[Array, "N E"], v: Float[Array, "N D"]):
    O = zeros((M, D)); P = zeros((M, N))
    for i in range(M):
        m = -inf
        for j in range(N):{SCORES}
            m = max(m, s)
        l = 0.0
        for j in range(N):{SCORES}
            l += exp(s - m)
            for d in range(D):
                O[i, d] += exp(s - m) * v[j, d]
        for d in range(D):
            O[i, d] /= l
        LAST
    return O, P
"""
AGAIN = f"for j in range(N):{SCORES}\n            P[i, j] = exp(s - m) / l"
MASKED_SCORES = """
def masked(q: Float[Array, "M E"], k: Float[Array, "N E"], v: Float[Array, "N D"],
           b: Float[Array, "N"], c: float):
    o = zeros((M, D))
    for i in range(M):
        m = -inf; l = 0.0
        for j in range(N):
            if j <= i:
                x = 0.0
                for e in range(E):
                    x += q[i, e] * k[j, e]
                SCALED
                new = max(m, x)
                l = l * exp(m - new) + exp(x - new)
                for d in range(D):
                    o[i, d] = o[i, d] * exp(m - new) + exp(x - new) * v[j, d]
                m = new
        for d in range(D):
            o[i, d] = o[i, d] / l if l > 0 else 0.0
    return o
"""
# Two loops that add up under one name, the first with a temporary.
TWO_SUMS = """
def two_sums(x: Float[Array, "M N"], z: Float[Array, "M N"], col: Int[Array, "N", "0:N"]):
    y = zeros(M)
    for i in range(M):
        t = 1.0
        s = 0.0
        for j in range(N):
            TEMPORARY
        a = s
        s = 0.0
        for j in range(N):
            s = s + z[i, j]
        y[i] = a * s
    return y
"""


@pytest.mark.parametrize(("last", "passes"), [("l = 0.0", 1), (AGAIN, 2)])
def test_scores_in_loops_of_one_name_are_sums(last: str, passes: int) -> None:
    text = IN_LOOPS.replace("LAST", last)
    steps = derive(program(text), "fold").steps
    assert [len(step.arguments) for step in steps if step.kind == "one pass"] == [2]
    tiles = [op for op in lowered(program(text)).kernels[0].body if isinstance(op, TileLoop)]
    assert len(tiles) == 2 * passes  # whole blocks, and the last one
    inside = [op for tile in tiles for op in ops_in(tile.body) if isinstance(op, TileLoop)]
    assert not inside


# Two guards over an integer of the row, an else-branch that does what is to be done.
ROW_INTEGER = """
def window(q: Float[Array, "M E"], k: Float[Array, "N E"], v: Float[Array, "N E"], W: int):
    O = zeros((M, E))
    for i in range(M):
        c = i + N - M
        m = -inf
        for j in range(N):
            if j > c:
                pass
            else:
                if c - j < W:
                    m = max(m, q[i] @ k[j])
        z = 0.0
        for j in range(N):
            if j <= c:
                if c - j < W:
                    z = z + exp(q[i] @ k[j] - m)
                    for e in range(E):
                        O[i, e] += exp(q[i] @ k[j] - m) * v[j, e]
        O[i] = O[i] / z
    return O
"""


def test_guards_over_an_integer_of_the_row_are_bounds_of_one_pass() -> None:
    (kernel,) = lowered(program(ROW_INTEGER)).kernels
    tiles = [op for op in kernel.body if isinstance(op, TileLoop)]
    assert [op.kind for op in tiles] == ["boundary", "full", "boundary"]
    assert "j_stop = tl.minimum(N, i_last + N - M + 1)" in emitted(program(ROW_INTEGER)).text


@pytest.mark.parametrize(
    ("temporary", "sums"),
    [
        ("t = 2.0 * x[i, j]; s = s + t", 2),
        ("t = t + x[i, j]; s = s + t", 1),
        ("u = t; t = x[i, j]; s = s + u * t", 1),
        ("k = col[j]; s = s + x[i, k]", 1),
    ],
)
def test_a_temporary_that_another_iteration_has_left_is_no_part_of_a_sum(
    temporary: str, sums: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TWO_SUMS.replace("TEMPORARY", temporary)
    assert len(sum_loops(program(text))) == sums
    path = tmp_path / "listing.py"
    path.write_text(text)
    status = main(["verify", str(path), "--dtype", "float32", "--sizes", "M=3,N=5"])
    assert status == 0, capsys.readouterr()


@pytest.mark.parametrize("inside", ["x += Q[i, e] * K[j, e]", "x = Q[i, e] * K[j, e]"])
def test_what_is_read_behind_a_loop_is_no_temporary_of_its_sum(
    inside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """x is set before the loop, and what is read behind it is what the loop has left there."""
    text = f"""
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            n = 0.0
            x = 0.0
            for e in range(0, E):
                {inside}
                n += K[j, e] * K[j, e]
            for d in range(0, D):
                O[i, d] += x / sqrt(n + 1.0) * V[j, d]
    return O
"""
    assert not sum_loops(program(text))
    path = tmp_path / "listing.py"
    path.write_text(text)
    status = main(["verify", str(path), "--dtype", "float32", "--sizes", "M=3,N=5,E=4,D=2"])
    assert status == 0, capsys.readouterr()


@pytest.mark.parametrize("scaled", ["x *= c", "x = x * c; x = x + b[j]"])
def test_a_score_that_is_set_several_times_under_a_mask_is_one_pass(scaled: str) -> None:
    kernel = lowered(program(MASKED_SCORES.replace("SCALED", scaled))).kernels[0]
    tiles = [op for op in kernel.body if isinstance(op, TileLoop)]
    assert tiles
    for tile in tiles:
        found = [e for op in ops_in(tile.body) for e in exprs_of(op)]
        assert sum(isinstance(part, Dot) for e in found for part in walk(e)) >= 2


def test_a_maximum_may_be_waited_for_twice() -> None:
    text = """
def f(S: Float[Array, "M N"], seen: Bool[Array, "M"], ok: Bool[Array, "N"]):
    l = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(N):
            s = S[i, j] if ok[j] and seen[i] else -inf
            t = max(m, s)
            if t > -inf:
                if t > -inf:
                    l[i] = l[i] * exp(m - t) + exp(s - t)
            m = t
    return l
"""
    assert any(isinstance(op, TileLoop) for op in lowered(program(text)).kernels[0].body)


ROW_MASK = """
def masked_rows(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
                seen: Bool[Array, "M"], w: Float[Array, "M"], kept: Bool[Array, "N"]):
    O = zeros((M, D))
    S = zeros((M, N))
    for i in range(M):
        m = -inf
        for j in range(N):
            S[i, j] = sum(Q[i, e] * K[j, e] for e in range(E)) if TEST else -inf
            m = max(m, S[i, j])
        l = 0.0
        for j in range(N):
            l = l + exp(S[i, j] - m)
        for j in range(N):
            for d in range(D):
                O[i, d] = O[i, d] + exp(S[i, j] - m) / l * V[j, d]
    return O
"""


@pytest.mark.parametrize("tested", ["seen[i]", "w[i] > 0.0", "seen[i] and kept[j]"])
def test_a_row_that_sees_nothing_is_masked_as_its_scores_are(tested: str, tmp_path: Path) -> None:
    text = ROW_MASK.replace("TEST", tested)
    made = emitted(program(text))
    assert "if LATE" in made.text  # nothing waits for the output
    path = tmp_path / "listing.py"
    path.write_text(text)
    sizes = ["--sizes", "M=5,N=5,E=3,D=2"]
    assert main(["verify", str(path), "--dtype", "float32", *sizes]) == 0


@pytest.mark.parametrize(
    "listing",
    [
        "    y = zeros(N)\n    for i in range(N):\n        pass\n    for i in range(N):\n"
        "        for j in range(N):\n            pass\n        y[i] = 2.0 * x[i]\n    return y\n",
        "    y = zeros(N)\n    for i in range(N):\n        row = zeros(N)\n    for i in range(N):\n"
        "        if x[i] > 0.0:\n            pass\n        y[i] = x[i]\n    return y\n",
    ],
)
def test_loops_that_hold_nothing(
    listing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "listing.py"
    path.write_text(f'def f(x: Float[Array, "N"]):\n{listing}')
    assert main(["derive", str(path)]) == 0
    assert main(["verify", str(path), "--dtype", "float32", "--sizes", "N=5"]) == 0
    capsys.readouterr()


def test_a_listing_without_statements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "listing.py"
    path.write_text(
        "def f(N):\n    y = zeros(N)\n    for i in range(N):\n        pass\n    return y\n"
    )
    for verb in ("emit", "verify"):
        assert main([verb, str(path)]) == 1
        assert "there is no statement in it" in capsys.readouterr().err
    path.write_text("for i in range(N):\n    pass\n")
    assert main(["derive", str(path)]) == 3
    assert "There is no statement in it." in capsys.readouterr().out


@pytest.mark.parametrize("test", ["j < T and k[j] == i", "not (j >= T or k[j] != i)"])
def test_what_stands_behind_a_bound_is_read_within_it_only(test: str) -> None:
    text = emitted(
        program(f"""
def f(x: Float[Array, "N"], k: Int[Array, "T"]):
    y = zeros((M, N))
    for i in range(M):
        for j in range(N):
            y[i, j] = x[j] if {test} else 0.0
    return y
""")
    ).text
    loads = [line for line in text.splitlines() if "tl.load(k_ptr" in line]
    assert loads
    assert all("< T" in line or ">= T" in line for line in loads)


# What a guard leaves out of an array that is read again under the guard keeps its value.
LEFT_OUT = """
def left_out(X: Float[Array, "M N"], ok: Bool[Array, "M N"]{more}):
    {begun}
    s = zeros(M)
    for i in range(M):
        for j in range(N):
            if ok[i, j]:
                P[i, j] = exp(X[i, j])
                s[i] += P[i, j]
    return P, s
"""


@pytest.mark.parametrize(
    ("more", "begun"), [("", "P = full((M, N), 7.0)"), (', P: Float[Array, "M N"]', "")]
)
def test_what_a_guard_leaves_out_stays_what_it_was(more: str, begun: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(LEFT_OUT.format(more=more, begun=begun or "pass").replace("    pass\n", ""))
    assert main(["verify", str(path), "--sizes", "M=3,N=5", "--pass", "forward"]) == 0


# A guard that is the same for all that a program does is a branch: its loops are not gone into.
BRANCHES = """
def branches(X: Float[Array, "T N"], c: float, go: int):
    Y = zeros(N); W = zeros((T, N))
    for j in range(N):
        y = 1.0
        top = -inf
        if go > 2:
            for t in range(T):
                x = X[t, j] * c
                y = y + x
                W[t, j] = x
            for t in range(T):
                top = max(top, X[t, j] * y)
        Y[j] = y + (top if top > -inf else 0.0)
    return Y, W
"""


@pytest.mark.parametrize("go", [1, 5])
def test_a_guard_of_a_program_is_a_branch(go: int, tmp_path: Path) -> None:
    found = lowered(program(BRANCHES))
    branches = [op for k in found.kernels for op in ops_in(k.body) if isinstance(op, Branch)]
    (branch,) = branches
    assert any(isinstance(op, TileLoop | ElementLoop) for op in branch.body)
    # What a branch stores is not all of an array.
    assert {made.array: made.fill for made in found.made}["W"] == 0.0
    path = tmp_path / "a.py"
    path.write_text(BRANCHES)
    assert main(["verify", str(path), "--sizes", f"T=4,N=5,go={go}", "--pass", "forward"]) == 0


# A mask of the least float32: in units of log2(e) it would be an infinity, and rows of it empty.
LEAST = """
def least(X: Float[Array, "M N"], n: Int[Array, "M", "0:N+1"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, X[i, j] if j < n[i] else -3.4028235e38)
        l = 0.0
        for j in range(N):
            l += exp((X[i, j] if j < n[i] else -3.4028235e38) - m)
        for j in range(N):
            for d in range(D):
                O[i, d] += exp((X[i, j] if j < n[i] else -3.4028235e38) - m) / l * V[j, d]
    return O
"""


def test_rows_masked_with_the_least_number_are_means_of_all(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(LEAST)
    assert main(["verify", str(path), "--sizes", "M=9,N=5,D=2", "--pass", "forward"]) == 0


# The least float32, read from a mask that is added: times log2(e) it is -inf, and rows of it nan.
ADDED = """
def added(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
          B: Float[Array, "M N"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            s = Q[i] @ K[j] + B[i, j]
            n = max(m, s)
            l = l * exp(m - n) + exp(s - n)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - n) + exp(s - n) * V[j, d]
            m = n
        for d in range(D):
            O[i, d] /= l
    return O
"""


def test_masks_that_are_added_leave_means_in_both_passes() -> None:
    """Rows masked throughout have weights of 1 / N, in gradients too: a sum m + log(l) loses N."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, 4, generator=generator) for n in (9, 20, 20))
    mask = torch.randn(9, 20, generator=generator)
    for row, dtype in enumerate((torch.float32, torch.bfloat16, torch.float16)):
        mask[row] = torch.finfo(dtype).min
        mask[row + 3, ::2] = torch.finfo(dtype).min
    mask[6], mask[7], mask[8, ::3] = -1e9, 1e9, -float("inf")
    weights = torch.randn(9, 4, generator=generator)
    found = []
    computes: tuple[Any, ...] = (
        looptrans.compile(ADDED),
        lambda q, k, v, mask: torch.softmax(q @ k.T + mask, -1) @ v,
        lambda q, k, v, mask: looptrans.attention(q, k, v, mask, scale=1.0),
    )
    for compute in computes:
        given = [each.clone().requires_grad_() for each in (q, k, v, mask)]
        out = compute(*given)
        out.backward(weights)
        found.append([out, *(each.grad for each in given)])
    for one, other, third in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)
        torch.testing.assert_close(third, other, rtol=1e-5, atol=2e-6)


CHOSEN = """
def chosen(X: Float[Array, "M N"], W: Float[Array, "M N"]):
    lse = zeros(M)
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            m = max(m, W[i, j] * tanh(X[i, j]) if X[i, j] > 0.0 else -1e9)
        for j in range(N):
            l += exp((W[i, j] * tanh(X[i, j]) if X[i, j] > 0.0 else -1e9) - m)
        lse[i] = m + log(l)
    return lse
"""


def test_masks_of_literals_leave_means_in_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 20, generator=generator)
    x[1] = -1.0
    w = torch.randn(4, 20, generator=generator)
    found = []
    for compute in (
        looptrans.compile(CHOSEN),
        lambda x, w: torch.where(x > 0, w * x.tanh(), -1e9).logsumexp(-1),
    ):
        given = [each.clone().requires_grad_() for each in (x, w)]
        compute(*given).sum().backward()
        found.append([each.grad for each in given])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=2e-6)


# The same in other spellings: masks of ones and zeros times a number, of one side, after a scale.
SPELLED = """
def spelled(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
            B: Float[Array, "M N"], neg: float):
    O = zeros((M, D))
    S = zeros((M, N))
    for i in range(M):
        for j in range(N):
            S[i, j] = {score}
    for i in range(M):
        m = max(S[i, j] for j in range(N))
        l = sum(exp(S[i, j] - m) for j in range(N))
        for d in range(D):
            O[i, d] = sum(exp(S[i, j] - m) * V[j, d] for j in range(N)) / l
    return O
"""


@pytest.mark.parametrize(
    "score",
    [
        "Q[i] @ K[j] + B[i, j] * neg",
        "Q[i] @ K[j] * 0.5 + (1.0 - B[i, j]) * neg",
        "Q[i] @ K[j] * 0.5 + B[2, j] * neg",
        "Q[i] @ K[j] - abs(B[i, j] * neg)",
        "(Q[i] @ K[j] + B[i, j] * neg) / 1.0",
        "Q[i] @ K[j] + (B[i, j] > 0.0) * neg",
    ],
)
def test_masks_of_the_least_number_leave_means_however_they_are_written(score: str) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(n, 4, generator=generator) for n in (5, 20, 20))
    mask = (torch.rand(5, 20, generator=generator) < 0.5).float()
    mask[2] = 1.0
    bits = 1.0 - mask if "1.0 -" in score else mask
    least = torch.finfo(torch.float32).min
    out = looptrans.compile(SPELLED.format(score=score))(q, k, v, bits, least)
    scores = q @ k.T * (0.5 if "0.5" in score else 1.0)
    added = mask[2] if "B[2" in score else mask
    torch.testing.assert_close(out, torch.softmax(scores + added * least, -1) @ v)


# Truth values that are added are 1 and 0, as in Python; a bit and a bit would be no bit.
SIGNS = """
def signs(A: Float[Array, "M N"], C: Int[Array, "M N"]):
    O = zeros((M, N))
    for i in range(M):
        for j in range(N):
            s = (C[i, j] > 0) - (C[i, j] < 0)
            O[i, j] = A[i, j] * s + ((A[i, j] > 0) + (C[i, j] > 1)) - max(i < j, C[i, j] > 0)
    return O
"""


def test_truth_values_are_numbers_where_they_are_added() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(3, 9, generator=generator)
    c = torch.randint(-2, 3, (3, 9), generator=generator)
    upper = torch.ones(3, 9).triu(1).bool()
    expected = a * c.sign() + (a > 0).int() + (c > 1).int() - (upper | (c > 0)).int()
    torch.testing.assert_close(looptrans.compile(SIGNS)(a, c), expected)


# Below -88 the exponential of the logistic function is infinite, and its derivative a number.
GATED = """
def gated(A: Float[Array, "N"], B: Float[Array, "N"]):
    O = zeros(N); P = zeros(N)
    for i in range(N):
        O[i] = A[i] / (1 + exp(-A[i])) * B[i]
        g = 1.0 / (1.0 + exp(-B[i]))
        P[i] = g * g
    return O, P
"""


def test_gates_have_derivatives_wherever_they_have_values() -> None:
    a, b = (torch.tensor(x, requires_grad=True) for x in ([-95.0, -20, 1, 95], [3.0, -99, 9, -30]))
    wanted = torch.nn.functional.silu(a.double()) * b, torch.sigmoid(b.double()) ** 2
    found = looptrans.compile(GATED)(a, b)
    for out, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(out, expected.float())
    gradients = [torch.autograd.grad([o.sum() for o in each], (a, b)) for each in (found, wanted)]
    torch.testing.assert_close(*gradients)


# Outputs that no iteration reads, and that an iteration may leave as an earlier one set them.
LEFT_ALONE = """
def left_alone(X: Float[Array, "M N"], C: Float[Array, "M N"]):
    last = zeros(M, dtype=int); twice = zeros(M); chosen = full(M, 3.0); inner = full(M, 7.0)
    for i in range(M):
        for j in range(N):
            if X[i, j] > 1.0:
                last[i] = j
            elif X[i, j] < -1.0:
                last[i] = -j
            if C[i, j] > 0.0:
                twice[i] = X[i, j]
                twice[i] = twice[i] * 2
            if C[i, j] > 1.0:
                chosen[i] = X[i, j]
            elif X[i, j] > 0.5:
                chosen[i] = 1.0
            for k in range(j, 4):
                inner[i] = X[i, j]
                inner[i] = C[i, k]
    return last, twice, chosen, inner
"""


def test_outputs_that_an_iteration_may_leave_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    x, c = (torch.randn(9, 7, generator=generator) for _ in range(2))
    last, twice = torch.zeros(9, dtype=torch.int64), torch.zeros(9)
    chosen, inner = torch.full((9,), 3.0), torch.full((9,), 7.0)
    for i in range(9):
        for j in range(7):
            if abs(x[i, j]) > 1:
                last[i] = j if x[i, j] > 0 else -j
            if c[i, j] > 0:
                twice[i] = 2 * x[i, j]
            if c[i, j] > 1:
                chosen[i] = x[i, j]
            elif x[i, j] > 0.5:
                chosen[i] = 1.0
        inner[i] = c[i, 3]
    found = looptrans.compile(LEFT_ALONE)(x, c)
    for one, other in zip(found, (last, twice, chosen, inner), strict=True):
        torch.testing.assert_close(one, other, check_dtype=False)


# A row that is kept is set for every key, whatever guard its other statements stand under.
KEPT_ROW = """
def kept_row(V: Float[Array, "N D"], C: Float[Array, "M N"]):
    e = full((M, D), 2.0); s = -inf
    for i in range(M):
        for j in range(N):
            for d in range(D):
                e[i, d] = V[j, d]
                if j <= i:
                    e[i, d] = e[i, d] + C[i, j]
                if V[j, d] > 0:
                    s = max(s, C[i, j])
    return e, s
"""
# The rows of a value that is used at once are not those of what had its name before.
SAME_NAME = """
def same_name(V: Float[Array, "N D"], C: Float[Array, "M N"]):
    e = full((M, D), 2.0)
    for i in range(M):
        for j in range(N):
            for d in range(D):
                if i == j:
                    t = C[i, j]
                    e[i, d] = t * t
                else:
                    t = max(abs(C[i, j]), V[j, d])
                    e[i, d] = t * t
        for j in range(N):
            for d in range(D):
                if d > j:
                    t = j * 1.0 * C[i, j]
                    e[i, d] = t * t
    return e
"""
# A row that is kept, and that an iteration around its loop may leave alone, is not begun there.
KEPT_UNDER_GUARD = """
def kept_under_guard(X: Float[Array, "M N"], D: int):
    s = -inf; e = full((M, D), 2.0)
    for i in range(M):
        for j in range(N):
            for d in range(D):
                if X[i, j] > 0.3:
                    e[i, d] = X[i, j]
                    e[i, d] = e[i, d] + 1.5
                    s = max(s, 1.5)
    return s, e
"""


def test_a_row_that_is_kept_is_set_beside_a_guard() -> None:
    generator = torch.Generator().manual_seed(1)
    v, c = (torch.randn(5, n, generator=generator) for n in (3, 5))
    e, s = looptrans.compile(KEPT_ROW)(v, c)
    last = torch.tensor([0.0, 0, 0, 0, 1])
    torch.testing.assert_close(e, v[4] + (last * c[:, 4])[:, None])
    seen = (v > 0).any(1)
    torch.testing.assert_close(s, c[:, seen].max())


def test_a_name_whose_rows_change() -> None:
    generator = torch.Generator().manual_seed(2)
    v, c = (torch.randn(5, n, generator=generator) for n in (3, 5))
    expected = torch.where(torch.tensor([i == 4 for i in range(5)])[:, None], c[:, 4:], 0)
    others = torch.maximum(c[:, 4:].abs(), v[4])
    expected = torch.where(torch.arange(5)[:, None] == 4, expected, others).square()
    for d in range(1, 3):
        expected[:, d] = ((d - 1) * c[:, d - 1]).square()
    torch.testing.assert_close(looptrans.compile(SAME_NAME)(v, c), expected)


@pytest.mark.parametrize(("rows", "columns", "width"), [(3, 4, 5), (65, 9, 20), (4, 0, 3)])
def test_a_row_that_iterations_may_leave_alone_is_not_begun_in_each(
    rows: int, columns: int, width: int
) -> None:
    X = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    s, e = looptrans.compile(KEPT_UNDER_GUARD)(X, width)
    expected = torch.full((rows, width), 2.0)
    for i, j in (X > 0.3).nonzero():
        expected[i] = X[i, j] + 1.5
    torch.testing.assert_close(e, expected)
    assert s == (1.5 if (X > 0.3).any() else -math.inf)


# A cell that is read before it is written has what it was created with.
AHEAD = """
def ahead(b: Float[Array, "N"]):
    new = zeros(N); seen = zeros(N)
    for j in range(N):
        new[j] = 2.0 * b[j]
        seen[j] = {read}
    return seen
"""


@pytest.mark.parametrize("read", ["new[j + 1] if j < N - 1 else 0.0", "new[N - 1 - j]"])
def test_cells_that_are_read_before_they_are_written(read: str) -> None:
    with pytest.raises(NotLowered, match=r"S2 reads new\[.*, which S1 writes as new\[j\]"):
        looptrans.compile(AHEAD.format(read=read))


def test_cells_that_an_earlier_iteration_has_written() -> None:
    b = torch.randn(5, generator=torch.Generator().manual_seed(3))
    found = looptrans.compile(AHEAD.format(read="new[j - 1] if j > 0 else 0.0"))(b)
    torch.testing.assert_close(found, torch.cat([torch.zeros(1), 2 * b[:-1]]))


# Rows of numbers that steps have made are as long as their loops, steps of 2 or not.
MADE_ROWS = """
def made_rows(X: Float[Array, "M N"], S: Float[Array, "M M"], c: float):
    o = zeros(M); p = zeros((M, N))
    for k in range(M - 2, -1, -2):
        a = 1.0
        for j in range(N):
            t = S[k, k] * X[k, j % 2]
            a = a * X[k, j]
            if X[k, j] > 0:
                p[k, j] = -X[k, j]
        e = S[k, k]
        for j in range(N):
            a = a * j * 0.25
            if k > 0:
                e = e * tanh(-a * sin(X[k, j])) + S[k, k]
        o[k] = min(e, p[k, 1]) * c
    return o, p
"""


def test_rows_that_steps_have_made_for_loops_with_strides() -> None:
    generator = torch.Generator().manual_seed(4)
    x, s = torch.randn(5, 4, generator=generator), torch.randn(5, 5, generator=generator)
    found = looptrans.compile(MADE_ROWS)(x, s, 0.5)
    expected = run_native(MADE_ROWS, None, X=x.double().numpy(), S=s.double().numpy(), c=0.5)
    for one, other in zip(found, expected.values(), strict=True):
        torch.testing.assert_close(one, torch.tensor(other), check_dtype=False)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("o[i] += o[0] * X[i, j]", r"S1 reads o\[0\], which S1 writes as o\[i\]"),
        ("o[i] = o[i] + o[i // 2]", r"S1 reads o\[i // 2\], which S1 writes as o\[i\]"),
    ],
)
def test_a_refusal_is_about_the_cell_that_is_in_the_way(statement: str, reason: str) -> None:
    text = f"""
def elsewhere(X: Float[Array, "M N"]):
    o = zeros(M)
    for i in range(M):
        for j in range(N):
            {statement}
    return o
"""
    with pytest.raises(NotLowered, match=reason):
        looptrans.compile(text)


def test_a_guard_may_ask_for_a_product_of_rows() -> None:
    text = """
def seen(W: Float[Array, "M E"], V: Float[Array, "N E"], X: Float[Array, "M N"]):
    o = zeros(M)
    for i in range(M):
        for j in range(N):
            if W[i] @ V[j] > 0.5:
                o[i] += X[i, j]
    return o
"""
    generator = torch.Generator().manual_seed(5)
    w, v, x = (torch.randn(*shape, generator=generator) for shape in ((5, 3), (4, 3), (5, 4)))
    expected = torch.where(w @ v.T > 0.5, x, 0).sum(1)
    torch.testing.assert_close(looptrans.compile(text)(w, v, x), expected)


# Sums and maxima over variables that do not count up by 1, with conditions and several at once.
STEPPED = """
def stepped(X: Float[Array, "M N"], w: Float[Array, "N"]):
    mean = zeros(M); Y = zeros(M); Z = zeros(M)
    for i in range(M):
        mean[i] = sum(X[i, j] for j in range(N - 1, -1, -1)) / N
        Y[i] = sum(X[i, j] * w[k] for j in range(1, N, 3) if w[j] > 0.0
                   for k in range(j, -1, -1) if k != i)
        Z[i] = max(X[i, j] + w[j] for j in range(N - 1, 0, -2) if j % 3 != 1)
    return mean, Y, Z
"""


def test_sums_in_steps_count_up_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "listing.py"
    file.write_text(STEPPED)
    sizes = ["--sizes", "M=5,N=12", "--sizes", "M=2,N=150"]
    assert main(["verify", str(file), *sizes, "--dtype", "float32"]) == 0
    assert "all right" in capsys.readouterr().out


# Keys in parts that are joined; what the joining loop keeps is of no use to another kernel.
IN_PARTS = """
def in_parts(q: Float[Array, "H E"], K: Float[Array, "P C E"], V: Float[Array, "P C D"]):
    m = full((H, P), -inf); l = zeros((H, P)); A = zeros((H, P, D)); O = zeros((H, D))
    for h in range(H):
        for p in range(P):
            for c in range(C):
                m[h, p] = max(m[h, p], sum(q[h, e] * K[p, c, e] for e in range(E)))
            for c in range(C):
                w = exp(sum(q[h, e] * K[p, c, e] for e in range(E)) - m[h, p])
                l[h, p] += w
                for d in range(D):
                    A[h, p, d] += w * V[p, c, d]
        top = -inf
        for p in range(P):
            top = max(top, m[h, p])
        total = 0.0
        for p in range(P):
            total += l[h, p] * exp(m[h, p] - top)
        for d in range(D):
            O[h, d] = sum(A[h, p, d] * exp(m[h, p] - top) for p in range(P)) / total
    return O
"""


def test_a_loop_is_cut_where_it_may_be_if_not_everywhere() -> None:
    found = derive(program(IN_PARTS), "fold", nests="apart")
    assert len(lower(found).kernels) == 2
    assert any(note.endswith("in another order.") for note in found.notes)


# Nothing says how many steps there are of all batches: the new row has one place, and is set anew.
STEPS = """
def steps(x: Float[Array, "B T S"], w: Float[Array, "S S"], n: Int[Array, "B"]):
    y = zeros((B, S))
    for b in range(B):
        a = ones(S)
        for t in range(n[b]):
            new = MADE
            for s in range(S):
                for p in range(S):
                    new[s] += a[p] * w[p, s]
            for s in range(S):
                a[s] = tanh(new[s] + x[b, t, s])
        for s in range(S):
            y[b, s] = a[s]
    return y
"""


@pytest.mark.parametrize(("made", "first"), [("zeros(S)", 0.0), ("full(S, 0.5)", 0.5)])
def test_rows_made_in_steps_of_which_the_number_is_read_are_set_anew(
    made: str, first: float
) -> None:
    text = STEPS.replace("MADE", made)
    found = with_arrays_made_once(program(text))
    assert found is not None
    assert found.arrays == ("a", "new")
    x, w = torch.randn(3, 4, 5), torch.randn(5, 5)
    n = torch.tensor([4, 0, 2], dtype=torch.int32)
    a = torch.ones(3, 5, dtype=torch.float64)
    for t in range(4):
        moved = torch.tanh(a @ w.double() + first + x[:, t].double())
        a = torch.where((t < n)[:, None], moved, a)
    torch.testing.assert_close(looptrans.compile(text)(x, w, n).double(), a, rtol=1e-5, atol=1e-5)


def test_nests_under_one_guard_are_kernels_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
def scan(A: Float[Array, "C"], B: Float[Array, "P C"], T: int):
    O = zeros((P, C)); R = zeros((C, P))
    if T > 0:
        for p in range(P):
            s = 0.0
            for x in range(C):
                s = s * A[x] + B[p, x]
                O[p, x] = s
    if T > 0:
        for c in range(C):
            for p in range(P):
                R[c, p] = 2.0 * O[p, C - 1 - c]
    return O, R
"""
    assert len(lowered(program(text)).kernels) == 2
    path = tmp_path / "listing.py"
    path.write_text(text)
    for guard in ("T=0", "T=1"):
        assert main(["verify", str(path), "--sizes", f"P=5,C=19,{guard}"]) == 0, capsys.readouterr()
