"""A number of each head is worked out in its rows, which are blocks of a grid then."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from looptrans.cli.main import main
from looptrans.derivation import derive as derivation
from looptrans.derivation.derive import derive
from looptrans.ir.listing import listing
from tests.analysis import program

HEADS = """
def heads(
    Q: Float[Array, "H N E"],
    K: Float[Array, "H N E"],
    V: Float[Array, "H N E"],
    w: Float[Array, "H E"],
):
    O = zeros((H, N, E))
    for h in range(0, H):
        slope = NUMBER
        for i in range(0, N):
            m = -inf; l = 0.0
            for j in range(0, i + 1):
                m = max(m, sum(Q[h, i, e] * K[h, j, e] for e in range(0, E)) - slope * (i - j))
            for j in range(0, i + 1):
                l += exp(sum(Q[h, i, e] * K[h, j, e] for e in range(0, E)) - slope * (i - j) - m)
            for j in range(0, i + 1):
                s = sum(Q[h, i, e] * K[h, j, e] for e in range(0, E)) - slope * (i - j)
                for e in range(0, E):
                    O[h, i, e] += exp(s - m) / l * V[h, j, e]
    return O
"""
ROWS = """
def rows(X: Float[Array, "N E"], Y: Float[Array, "N E"]):
    for i in range(0, N):
        top = sum(X[i, e] for e in range(0, E))
        for e in range(0, E):
            Y[i, e] = X[i, e] * top
"""
NUMBERS = ("exp2(-8.0 * (h + 1) / H)", "exp(sum(w[h, e] for e in range(0, E)))")


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("goal", ["fold", "forward"])
def test_nothing_stands_between_heads_and_their_rows(number: str, goal: str) -> None:
    """The number moves, and both loops are parallel, one directly in the other."""
    found = derive(program(HEADS.replace("NUMBER", number)), goal)  # type: ignore[arg-type]
    lines = [line.strip() for line in listing(found.steps[-1].after).splitlines()]
    heads = next(n for n, line in enumerate(lines) if line.startswith("for h in parallel"))
    inside = [line for line in lines[heads + 1 :] if not line.startswith("private")]
    assert inside[0].startswith("for i in parallel")
    assert inside[1].startswith("slope =")


def test_what_is_as_much_work_as_a_row_stays() -> None:
    """A sum over the row is not made anew for each of its elements."""
    found = derive(program(ROWS), "fold")
    lines = [line.strip() for line in listing(found.steps[-1].after).splitlines()]
    top = next(n for n, line in enumerate(lines) if line.startswith("top ="))
    assert lines[top + 1].startswith("for e in parallel")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_no_block_is_full_where_there_is_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all rows are in one block, there may be none: then no block of keys is full to all."""
    monkeypatch.setattr(derivation, "_to_rows", lambda work: False)
    path = tmp_path / "heads.py"
    path.write_text(HEADS.replace("NUMBER", NUMBERS[0]))
    assert main(["emit", str(path)]) == 0
    text = capsys.readouterr().out
    assert "tl.minimum(tl.min(tl.where(i < N, i + 1, 1073741824), axis=0), j_stop" in text
