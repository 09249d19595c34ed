"""Passes over rows and columns are one pass over cells, and rows and columns where guards ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looptrans.blocks.block_ir.ops import has_products
from looptrans.cli.main import main
from looptrans.derivation.as_a_row.coalesced import coalesced
from looptrans.derivation.derive import derive, derive_two_nests
from looptrans.derivation.saved import recheck, saved
from looptrans.derivation.step import Derivation, NotDone
from looptrans.emit.listing import lowered
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing as text_of
from looptrans.ir.program import Program
from tests.analysis import program

HEAD = """
def f(Q: Float[Array, "Y X E"], K: Float[Array, "Y X E"], V: Float[Array, "Y X D"], R: int):
    O = zeros((Y, X, D))
    for y in range(Y):
        for x in range(X):
"""
SCORE = "sum(Q[y, x, e] * K[t, c, e] for e in range(E))"
PASSES = [
    ("m = -inf", f"m = max(m, {SCORE})"),
    ("l = 0.0", f"l += exp({SCORE} - m)"),
    ("", f"for d in range(D): O[y, x, d] += exp({SCORE} - m) / l * V[t, c, d]"),
]
ALL = ("range(Y)", "range(X)")
# Rows, columns and guard of each pass, and how the loops go over them in the end.
NESTS = [
    (*ALL, "", ("tc in range(0, Y * X)",)),
    (*ALL, "t * X + c <= y * X + x", ("tc in range(0, Y * X)",)),
    (
        *ALL,
        "abs(t - y) <= R and abs(c - x) <= R",
        ("t in range(max(0, y - R), min(Y, R + y + 1))", "c in range(max(0, x - R), "),
    ),
    (
        "range(max(0, y - R), min(Y, y + R + 1))",
        "range(max(0, x - R), min(X, x + R + 1))",
        "",
        ("t in range(max(0, y - R), min(Y, y + R + 1))", "c in range(max(0, x - R), min(X, "),
    ),
    ("range(y + 1)", "range(X)", "", ("t in range(0, min(Y, y + 1))", "c in range(0, X)")),
    (
        "range(y, Y)",
        "range(x + 1)",
        "",
        ("t in range(max(0, y), Y)", "c in range(0, min(X, x + 1)"),
    ),
    (*ALL, "t < y or (t == y and c <= x)", ("t in range(0, Y)", "c in range(0, X)")),
]


def grid(rows: str, columns: str, guard: str) -> Program:
    """Return a softmax over a grid in three passes."""
    lines = []
    for start, update in PASSES:
        lines += [start, f"for t in {rows}:", f"    for c in {columns}:"]
        lines += (
            [f"        if {guard}:", f"            {update}"] if guard else [f"        {update}"]
        )
    body = [" " * 12 + line for line in lines if line]
    return program(HEAD + "\n".join([*body, "    return O", ""]))


def agrees(before: Program, found: Derivation) -> None:
    """Require that a derivation is legal, proved again, and gives the same numbers."""
    assert all(step.decision == "legal" for step in found.steps)
    assert recheck(saved(found)) == ()
    for sizes in ((1, 1, 2, 1), (3, 2, 1, 1), (2, 5, 2, 3), (4, 3, 3, 0), (0, 3, 2, 1)):
        known = dict(zip(("Y", "X", "E", "R"), sizes, strict=True)) | {"D": 2, "T": 3}
        known = {p.name: known[p.name] for p in before.parameters if p.name in known}
        if "page" in before.arguments and not known["Y"]:
            continue  # no number is below it
        inputs: dict[str, Any] = dict(prepare(before, known, None, 1).arrays)
        want = execute(before, sizes=known, inputs=inputs)
        have = execute(found.last, sizes=known, inputs=inputs)
        for name, values in want.items():
            np.testing.assert_allclose(have[name], values, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("rows", "columns", "guard", "loops"), NESTS)
def test_passes_over_a_grid_are_one(
    rows: str, columns: str, guard: str, loops: tuple[str, ...]
) -> None:
    listing = grid(rows, columns, guard)
    found = derive(listing, "fold")
    kinds = [step.kind for step in found.steps]
    assert kinds[0] == "coalesced" and "one pass" in kinds
    assert ("grid" in kinds) == (len(loops) > 1)
    last = text_of(found.last)
    assert last.count("K[") == 1
    assert all(f"for {loop}" in last for loop in loops), last
    agrees(listing, found)


def test_sums_and_scores_in_memory_are_passes_as_well() -> None:
    """S is found by the number of a cell then, so that no pass asks where in the grid it is."""
    listing = program("""
def f(Q: Float[Array, "Y X E"], K: Float[Array, "Y X E"], V: Float[Array, "Y X D"],
      B: Float[Array, "Y X Y"]):
    S = zeros((Y, X, Y, X)); O = zeros((Y, X, D))
    for y in range(Y):
        for x in range(X):
            for t in range(Y):
                for c in range(X):
                    S[y, x, t, c] = sum(Q[y, x, e] * K[t, c, e] for e in range(E)) + B[y, x, t]
            m = max(S[y, x, t, c] for t in range(Y) for c in range(X))
            l = sum(exp(S[y, x, t, c] - m) for t in range(Y) for c in range(X))
            for d in range(D):
                O[y, x, d] = sum(
                    exp(S[y, x, t, c] - m) / l * V[t, c, d] for t in range(Y) for c in range(X)
                )
    return O
""")
    found = derive(listing, "fold")
    assert [step.kind for step in found.steps].count("one pass") == 1
    (first,) = (step for step in found.steps if step.kind == "coalesced")
    assert "S[y, x, tc]" in text_of(first.after)
    assert "S = zeros((Y, X, Y * X))" in text_of(first.after)
    agrees(listing, found)


def test_three_loops_are_one() -> None:
    listing = program("""
def f(Q: Float[Array, "R E"], K: Float[Array, "Y X D E"]):
    L = zeros(R)
    for r in range(R):
        m = -inf
        for t in range(Y):
            for c in range(X):
                for z in range(D):
                    m = max(m, Q[r] @ K[t, c, z])
        l = 0.0
        for t in range(Y):
            for c in range(X):
                for z in range(D):
                    l += exp(Q[r] @ K[t, c, z] - m)
        L[r] = m + log(l)
    return L
""")
    found = derive(listing, "fold")
    assert [step.kind for step in found.steps][:2] == ["coalesced", "coalesced"]
    assert "for t_cz in range(0, Y * (X * D))" in text_of(found.last)
    agrees(listing, found)


@pytest.mark.parametrize(
    "body",
    [
        # No pass waits for another: a window that slides over an image, and the sum of squares.
        "Y[h] = sum(A[h + r, s] * B[r, s] for r in range(R) for s in range(C))\n"
        "        Z[h] = sum(A[h + r, s] * A[h + r, s] for r in range(R) for s in range(C))",
        # Each row has its own maximum.
        "for r in range(R):\n"
        "            m = max(A[h + r, s] for s in range(C))\n"
        "            Y[h] += sum(exp(A[h + r, s] - m) for s in range(C))",
    ],
)
def test_loops_stay_two_where_no_pass_waits(body: str) -> None:
    listing = program(f"""
def f(A: Float[Array, "N C"], B: Float[Array, "R C"]):
    Y = zeros(N - R + 1); Z = zeros(N - R + 1)
    for h in range(N - R + 1):
        {body}
    return Y, Z
""")
    assert not any(step.kind == "coalesced" for step in derive(listing, "fold").steps)


def test_loops_stay_two_where_their_number_may_be_negative() -> None:
    """-2 times -3 is 6, and there are no iterations at all."""
    listing = program("""
def f(x: Float[Array, "N"], T: int, C: int):
    m = max(x[t * C + c] for t in range(T) for c in range(C))
    l = sum(exp(x[t * C + c] - m) for t in range(T) for c in range(C))
    r = m + log(l)
    return r
""")
    assert not any(step.kind == "coalesced" for step in derive(listing, "fold").steps)


def test_parts_are_of_cells() -> None:
    found = derive_two_nests(grid(*ALL, ""))
    kinds = [step.kind for step in found.derivation.steps]
    assert kinds[0] == "coalesced" and kinds[-2:] == ["two nests", "parallel"]
    assert "grid" not in kinds and "digits" not in kinds


@pytest.mark.parametrize("number", [0, 3])
def test_kernels_of_one_pass_over_a_grid(tmp_path: Path, number: int) -> None:
    file = tmp_path / "grid.py"
    file.write_text(text_of(grid(*NESTS[number][:3])))
    sizes = ["--sizes", "Y=3,X=18,E=4,D=4,R=1", "--dtype", "float32"]
    assert main(["verify", str(file), *sizes]) == 0


PAGED = """
def f(Q: Float[Array, "R E"], K: Float[Array, "Y X E"], V: Float[Array, "Y X D"],
      page: Int[Array, "R T", "0:Y"], n: Int[Array, "R"]):
    O = zeros((R, D))
    for r in range(R):
        m = -inf; l = 0.0
        for t in range(T):
            where = page[r, t]
            for c in range(X):
                if t * X + c < n[r]:
                    m = max(m, Q[r] @ K[where, c])
        for t in range(T):
            where = page[r, t]
            for c in range(X):
                if t * X + c < n[r]:
                    w = exp(Q[r] @ K[where, c] - m)
                    l += w
                    for d in range(D): O[r, d] += w * V[where, c, d]
        for d in range(D): O[r, d] /= {divisor}
    return O
"""


def test_scalars_between_the_loops_are_set_for_each_cell() -> None:
    listing = program(PAGED.format(divisor="l"))
    found = derive(listing, "fold")
    assert found.steps[0].kind == "coalesced"
    last = text_of(found.last)
    assert "where = page[r, tc // X]" in last and "if tc < n[r]" in last
    agrees(listing, found)


def test_rows_that_an_array_tells_are_those_of_a_grid() -> None:
    """Blocks of keys, a list for each query: three passes over pairs of loops had no products."""
    listing = program("""
def f(Q: Float[Array, "Y E"], K: Float[Array, "X*R E"], V: Float[Array, "X*R D"],
      ptr: Int[Array, "Y+1", "0:T+1"], col: Int[Array, "T", "0:X"], R: Const):
    O = zeros((Y, D))
    for y in range(Y):
        m = -inf; l = 0.0
        for z in range(ptr[y], ptr[y + 1]):
            for c in range(R):
                m = max(m, Q[y] @ K[col[z] * R + c])
        for z in range(ptr[y], ptr[y + 1]):
            for c in range(R):
                l += exp(Q[y] @ K[col[z] * R + c] - m)
        for z in range(ptr[y], ptr[y + 1]):
            for c in range(R):
                for d in range(D):
                    O[y, d] += exp(Q[y] @ K[col[z] * R + c] - m) / l * V[col[z] * R + c, d]
    return O
""")
    found = derive(listing, "fold")
    assert [step.kind for step in found.steps][:2] == ["coalesced", "one pass"]
    assert "for zc in range(ptr[y] * R, ptr[y + 1] * R):" in text_of(found.last)
    agrees(listing, found)


def test_loops_stay_two_where_a_scalar_between_them_is_read_later() -> None:
    """Where X is 0 it is set all the same."""
    listing = program(PAGED.format(divisor="(l + where)"))
    assert not any(step.kind == "coalesced" for step in derive(listing, "fold").steps)


def test_one_pass_that_divides_by_what_it_carries_is_over_cells() -> None:
    listing = program("""
def f(Q: Float[Array, "R E"], K: Float[Array, "Y X E"], V: Float[Array, "Y X D"]):
    O = zeros((R, D))
    for r in range(R):
        m = -inf; l = 0.0
        for t in range(Y):
            for c in range(X):
                s = Q[r] @ K[t, c]
                n = max(m, s)
                k = l * exp(m - n) + exp(s - n)
                for d in range(D):
                    O[r, d] = (O[r, d] * l * exp(m - n) + exp(s - n) * V[t, c, d]) / k
                m = n
                l = k
    return O
""")
    found = derive(listing, "fold")
    kinds = [step.kind for step in found.steps]
    assert kinds[:2] == ["coalesced", "guarded change of state"]
    agrees(listing, found)


@pytest.mark.parametrize(
    ("start", "between", "columns", "update", "behind"),
    [
        ("", "k = q[t]", "range(X)", "k = k * 0.5", ""),  # set again for each column
        ("k = 0.0", "k = k + q[t]", "range(X)", "", ""),  # one row hangs on those before
        ("k = 1.0", "k = 2.0", "range(X)", "", "+ k"),  # read behind, where it may not be set
        ("", "k = page[t]", "range(min(X, k + 1))", "", ""),  # asked before it is set
    ],
)
def test_loops_stay_two_where_a_cell_would_do_what_a_row_does(
    start: str, between: str, columns: str, update: str, behind: str
) -> None:
    nests = [
        [
            start,
            "for t in range(Y):",
            f"    {between}",
            f"    for c in {columns}:",
            f"        {update}",
            f"        {each}",
        ]
        for each in ("m = max(m, x[r, t, c] * k)", "l += exp(x[r, t, c] * k - m)")
    ]
    lines = ["m = -1.0", "l = 0.0", *nests[0], *nests[1], f"L[r] = m + log(1.0 + l) {behind}"]
    body = "\n".join(" " * 8 + line for line in lines if line.strip())
    listing = program(f"""
def f(x: Float[Array, "R Y X"], q: Float[Array, "Y"], page: Int[Array, "Y"]):
    L = zeros(R)
    for r in range(R):
{body}
    return L
""")
    with pytest.raises(NotDone):
        coalesced(listing, 1)


def test_queries_of_a_grid_are_rows_of_one_loop_where_tables_have_both() -> None:
    """Positions of rows and of columns, of which each would have the other loop for its rows."""
    text = """
def f(Q: Float[Array, "B Y X E"], K: Float[Array, "B Y X E"],
      V: Float[Array, "B Y X E"], H: Float[Array, "2*Y-1 E"],
      W: Float[Array, "2*X-1 E"]):
    O = zeros((B, Y, X, E))
    for b in range(B):
        for y in range(Y):
            for x in range(X):
                m = -inf
                for t in range(Y):
                    for c in range(X):
                        s = (sum(Q[b, y, x, e] * K[b, t, c, e] for e in range(E))
                             + sum(Q[b, y, x, e] * H[y - t + Y - 1, e] for e in range(E))
                             + sum(Q[b, y, x, e] * W[x - c + X - 1, e] for e in range(E)))
                        n = max(m, s)
                        for e in range(E):
                            O[b, y, x, e] *= exp(m - n)
                            O[b, y, x, e] += exp(s - n) * V[b, t, c, e]
                        m = n
    return O
"""
    (kernel,) = lowered(program(text)).kernels
    assert [dim.name for dim in kernel.grid if dim.role == "rows"] == ["x"]
    assert has_products(kernel.body)
