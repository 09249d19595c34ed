"""Totals that rows add to: each row keeps its part, so that no program goes over all of them."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.cli.main import main
from looptrans.derivation.derive import derive
from looptrans.derivation.handed_on.by_rows import by_rows, nests_with_totals
from looptrans.derivation.step import NotDone
from looptrans.executor import execute
from looptrans.ir.listing import listing
from looptrans.ir.program import Loop
from tests.analysis import program

SQUARES = """
def f(X: Float[Array, "B M N"], Y: Float[Array, "B M N"]):
    loss = 0.0
    for b in range(B):
        for i in range(M):
            for j in range(N):
                loss += (X[b, i, j] - Y[b, i, j]) ** 2
    loss = loss / (B * M * N)
    return loss
"""
ENTROPY = """
def f(X: Float[Array, "M V"], y: Int[Array, "M", "0:V"]):
    loss = 0.0
    for t in range(M):
        m = -inf
        for v in range(V):
            m = max(m, X[t, v])
        s = 0.0
        for v in range(V):
            s += exp(X[t, v] - m)
        loss += m + log(s) - X[t, y[t]]
    return loss
"""
# Two totals, a count among them, under a guard; the sum of a row is a value.
GUARDED = """
def f(X: Float[Array, "M N"], w: Float[Array, "N"], c: Bool[Array, "M"]):
    total = 0.0; seen = 0; top = -inf
    for i in range(M):
        s = sum(X[i, j] * w[j] for j in range(N))
        top = max(top, s)
        if c[i]:
            total += s
            seen += 1
            total -= w[0] if N > 1 else 0.0
    return total, seen, top
"""
# Pairs of rows, of which there may be more than there is room for.
PAIRS = """
def f(X: Float[Array, "M E"], Y: Float[Array, "N E"], gamma: float):
    total = 0.0
    for i in range(M):
        for j in range(N):
            d = 0.0
            for e in range(E):
                d += (X[i, e] - Y[j, e]) ** 2
            total += exp(-gamma * d)
    return total
"""
# A maximum over everything, and what is made with it.
WHOLE = """
def f(X: Float[Array, "M N"]):
    m = -inf; l = 0.0
    Y = zeros((M, N))
    for i in range(M):
        for j in range(N):
            m = max(m, X[i, j])
    for i in range(M):
        for j in range(N):
            l += exp(X[i, j] - m)
    for i in range(M):
        for j in range(N):
            Y[i, j] = exp(X[i, j] - m) / l
    return Y
"""


@pytest.mark.parametrize(
    ("text", "sizes", "passes", "count"),
    [
        (SQUARES, "B=2,M=3,N=5", "both", 1),
        (ENTROPY, "M=7,V=5", "both", 1),
        (PAIRS, "M=7,N=5,E=3", "both", 1),
        (GUARDED, "M=6,N=4", "forward", 1),
        (WHOLE, "M=5,N=7", "forward", 2),
    ],
    ids=["squares", "entropy", "pairs", "guarded", "whole"],
)
def test_each_row_keeps_what_it_adds(
    text: str,
    sizes: str,
    passes: str,
    count: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "listing.py"
    path.write_text(text)
    assert main(["emit", str(path), "-o", str(tmp_path)]) == 0
    assert "one iteration at a time" not in capsys.readouterr().err
    assert main(["verify", str(path), "--pass", passes, "--sizes", sizes]) == 0

    listed = program(text)
    found = derive(listed, "fold")
    assert sum(step.kind == "by rows" for step in found.steps) == count
    for seed in range(3):
        given = {name: int(n) for name, n in (each.split("=") for each in sizes.split(","))}
        expected = execute(listed, sizes=given, seed=seed)
        last = execute(found.last, sizes=given, seed=seed, schedule=seed)
        for name in listed.outputs:
            np.testing.assert_allclose(last[name], expected[name], rtol=1e-12)


def test_rows_are_counted_through_and_their_parts_added_up() -> None:
    (step,) = [s for s in derive(program(SQUARES), "fold").steps if s.kind == "by rows"]
    text = listing(step.after)
    assert "loss_part = zeros(B * M)" in text
    assert "loss_part[b * M + i] += (X[b, i, j] - Y[b, i, j]) ** 2" in text
    assert "for n in range(0, B * M):\n        loss = loss + loss_part[n]" in text
    assert {c.kind for c in step.certificates} == {"storage", "algebra", "rounding"}


def test_pairs_of_rows_are_no_rows_unless_there_is_room() -> None:
    def parts(text: str) -> str:
        (step,) = [s for s in derive(program(text), "fold").steps if s.kind == "by rows"]
        return listing(step.after)

    assert "total_part = zeros(M)" in parts(PAIRS)
    weighted = PAIRS.replace("gamma: float", 'gamma: float, W: Float[Array, "M N"]')
    weighted = weighted.replace("total += exp", "total += W[i, j] * exp")
    assert "total_part = zeros(M * N)" in parts(weighted)


@pytest.mark.parametrize(
    "body",
    [
        "s = s + x[i]; y[i] = s + sum(X[i, j] for j in range(N))",  # a row sees those before
        "s = s + sum(X[i, j] for j in range(N)) * s",
        "s = max(s + 1.0, sum(X[i, j] for j in range(N)))",
        "s = s + sum(X[i, j] for j in range(N)) if s > 0.0 else s",
        "s = s + x[i]",  # there is no loop and no sum in a row
    ],
)
def test_rows_that_look_at_what_is_gathered_are_left_as_they_are(body: str) -> None:
    listed = program(f"""
def f(X: Float[Array, "M N"], x: Float[Array, "M"]):
    y = zeros(M); s = 0.0
    for i in range(M):
        {body}
    return s, y
""")
    assert list(nests_with_totals(listed)) == []
    with pytest.raises(NotDone, match="no rows that gather"):
        by_rows(listed, "i")


def test_rows_that_wait_for_each_other_for_another_reason_stay_together() -> None:
    listed = program("""
def f(X: Float[Array, "M N"]):
    s = 0.0; h = zeros(N)
    for i in range(M):
        for j in range(N):
            h[j] = 0.5 * h[j] + X[i, j]
        for j in range(N):
            s = s + h[j]
    return s
""")
    assert len(list(nests_with_totals(listed))) == 1
    with pytest.raises(NotDone, match="hand something else to each other"):
        by_rows(listed, "i")


def test_parts_are_added_up_apart_from_rows_that_another_pass_waits_for() -> None:
    """As in one softmax of all elements: in their loop rows would wait for each other."""
    listed = program("""
def f(X: Float[Array, "M N"]):
    top = -inf; total = 0.0
    for i in range(M):
        for j in range(N):
            top = max(top, X[i, j])
    for i in range(M):
        for j in range(N):
            total += exp(X[i, j] - top)
    return top, total
""")
    found = derive(listed, "fold")
    assert not any("over n" in note for note in found.notes)  # a loop that no one wrote
    over_elements = [
        node
        for node in found.last.body
        if isinstance(node, Loop) and any(isinstance(inner, Loop) for inner in node.body)
    ]
    assert [loop.execution for loop in over_elements] == ["parallel", "parallel"]
