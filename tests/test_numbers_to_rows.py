"""A number of each head is worked out in its rows, which are blocks of a grid then."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from looptrans.cli.main import main
from looptrans.derivation import derive as derivation
from looptrans.derivation.derive import derive
from looptrans.emit import listing as emission
from looptrans.emit.listing import lowered
from looptrans.ir.listing import listing
from looptrans.runtime.verifying.backward import verify_pass
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
    monkeypatch.setattr(emission, "_with_numbers_in_memory", lambda *given: None)
    path = tmp_path / "heads.py"
    path.write_text(HEADS.replace("NUMBER", NUMBERS[0]))
    assert main(["emit", str(path)]) == 0
    text = capsys.readouterr().out
    assert "tl.minimum(tl.min(tl.where(i < N, i + 1, 1073741824), axis=0), j_stop" in text


GUARDED = """
def guarded(Q: Float[Array, "B H N E"], K: Float[Array, "B H N E"], on: Bool[Array, "B"],
            n: Int[Array, "B", "0:H+1"]):
    O = zeros((B, H, N, E))
    for b in range(0, B):
        if on[b]:
            for h in RANGE:
                for i in range(0, N):
                    for j in range(0, N):
                        s = sum(Q[b, h, i, e] * K[b, h, j, e] for e in range(0, E))
                        for e in range(0, E):
                            O[b, h, i, e] += s * K[b, h, j, e]
    return O
"""


@pytest.mark.parametrize(("heads", "moves"), [("range(0, H)", True), ("range(0, n[b])", False)])
def test_a_guard_between_free_loops_is_asked_inside(heads: str, moves: bool) -> None:
    """But not where the loop has an end that only the guard may allow to be read."""
    text = listing(derive(program(GUARDED.replace("RANGE", heads)), "fold").steps[-1].after)
    lines = [line.strip() for line in text.splitlines() if "private" not in line]
    batch = next(n for n, line in enumerate(lines) if line.startswith("for b in parallel"))
    begun = [line.partition(" in ")[0] for line in lines[batch + 1 : batch + 4]]
    assert begun == (["for h", "for i", "if on[b]:"] if moves else ["if on[b]:", "for h", "for i"])


TOPS = """
def tops(Q: Float[Array, "H N E"], K: Float[Array, "H N E"], V: Float[Array, "H N E"]):
    O = zeros((H, N, E)); t = zeros(H)
    for h in range(0, H):
        top = -inf
        for j in range(0, N):
            top = max(top, sum(K[h, j, e] for e in range(0, E)))
        for i in range(0, N):
            for j in range(0, N):
                s = sum(Q[h, i, e] * K[h, j, e] for e in range(0, E)) - top
                for e in range(0, E):
                    O[h, i, e] += s * V[h, j, e]
        t[h] = top
    return RESULTS
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize("results", ["O", "O, t"])
def test_a_number_of_all_keys_is_handed_to_the_rows_in_memory(results: str) -> None:
    """Or one program would do all rows of a head, as the first loop is not to be done for each."""
    found = lowered(program(TOPS.replace("RESULTS", results)))
    rows = [[dim.name for dim in k.grid if dim.role == "rows"] for k in found.kernels]
    assert "i" in {name for each in rows for name in each}
    sizes = [{"H": 2, "N": 19, "E": 16}, {"H": 2, "N": 1, "E": 3}]
    assert verify_pass(program(TOPS.replace("RESULTS", results)), "both", sizes, ["float32"]).passed
