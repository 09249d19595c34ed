"""Loops over blocks and inside of them, made one: the same iterations, in the same order."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.derivation.backward import derive_backward
from looptrans.derivation.derive import derive
from looptrans.derivation.saved import recheck, saved
from looptrans.executor import execute, prepare
from looptrans.executor.errors import SubscriptOutside
from looptrans.ir.listing import index_text
from looptrans.ir.listing import listing as text_of
from looptrans.ir.program import Loop, Program
from looptrans.ir.walk import nodes, placed
from looptrans.transforms.moved.anew import with_arrays_made_once
from looptrans.transforms.moved.outward import with_block_rows_outward
from looptrans.transforms.over_blocks.whole_loops import with_whole_loops
from tests.analysis import program
from tests.test_adjoint_closed import gaps

LISTING = """
def f(X: Float[Array, "N"], Z: Float[Array, "T*S"], T: int, S: Const, M: int):
    assert M <= N
    Y = zeros(N); c = 0.0
    for t in {blocks}:
        for j in {block}:
            {body}
    return Y, c
"""
ADDS = "c += c + X[j]"
# The blocks, a block, what is done in it, and the range of the one loop; None where it is two.
NESTS = [
    ("range(0, N, 4)", "range(t, min(t + 4, N))", "Y[j] = X[j]; c += c + X[j]", "range(0, N)"),
    ("range(0, N, 4)", "range(t, t + 4)", ADDS, None),
    ("range(0, 4 * T, 4)", "range(t, t + 4)", ADDS, "range(0, 4 * T)"),
    ("range(0, N, 4)", "range(t, min(t + 4, M))", ADDS, None),
    ("range(0, N, 4)", "range(t, min(t + 3, N))", ADDS, None),
    ("range(0, N, 2)", "range(2 * t, min(2 * t + 4, N))", ADDS, None),
    ("range(T)", "range(t * 4, min(t * 4 + 4, N))", ADDS, "range(0, min(4 * T, N))"),
    ("range((N + 3) // 4)", "range(t * 4, min((t + 1) * 4, N))", ADDS, "range(0, N)"),
    (
        "range(N // 4)",
        "range(t * 4, min((t + 1) * 4, N))",
        ADDS,
        "range(0, min(4 * (N // 4), N))",
    ),
    (
        "range((min(M, N) + S - 1) // S)",
        "range(t * S, min(t * S + S, N, M))",
        ADDS,
        "range(0, min(N, M))",
    ),
    ("range(T)", "range(t * S, (t + 1) * S)", "c += c + Z[j]", "range(0, T * S)"),
    ("range(T)", "range(t * S, (t + 1) * S)", "c += c + Z[j] * t", None),
    ("range(T)", "range(S)", "c += c + Z[t * S + j]", "range(0, T * S)"),
    ("range(T)", "range(S)", "c += c + Z[j * T + t]", None),
    ("range(T)", "range(S)", "c += c + Z[t * S + j] * j", None),
    (
        "range(T)",
        "range(S)",
        "if t * S + j < N and X[t * S + j] > 0: c += c + X[t * S + j]",
        "range(0, min(T * S, N))",
    ),
    ("range(0, N, 4)", "range(4)", "if t + j < N: c += c + X[t + j]", "range(0, N)"),
    ("range(0, N, 4)", "range(3)", "if t + j < N: c += c + X[t + j]", None),
    ("range(T, 0, -1)", "range(t * S - S, t * S)", "c += c + Z[j]", None),
]


@pytest.mark.parametrize(("blocks", "block", "body", "whole"), NESTS)
def test_blocks_that_follow_each_other_are_one_loop(
    blocks: str, block: str, body: str, whole: str | None
) -> None:
    listing = program(LISTING.format(blocks=blocks, block=block, body=body))
    found = with_whole_loops(listing)
    if whole is None:
        assert found is None
        return
    assert found is not None
    assert [line for line in text_of(found.program).splitlines() if "for " in line] == [
        f"    for j in {whole}:"
    ]
    for n, m, (t, s) in product(range(9), (0, 3, 8), ((1, 3), (3, 2), (0, 2))):
        sizes = {"N": n, "T": t, "S": s, "M": min(m, n)}
        try:
            inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
            want = execute(listing, sizes=sizes, inputs=inputs)
        except SubscriptOutside:
            continue  # more blocks than rows
        np.testing.assert_equal(execute(found.program, sizes=sizes, inputs=inputs), want)


HEAD = """
def f(Q: Float[Array, "M E"], K: Float[Array, "{keys} E"], V: Float[Array, "{keys} D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf; l = 0.0
"""
STEP = """
                {place}
                s = Q[i] @ K[{j}]
                n = max(m, s)
                l = l * exp(m - n) + exp(s - n)
                for d in range(D):
                    O[i, d] = O[i, d] * exp(m - n) + exp(s - n) * V[{j}, d]
                m = n
        for d in range(D):
            O[i, d] /= l
    return O
"""


def attention(loops: tuple[str, str], place: str, j: str, keys: str) -> Program:
    """Return an online softmax over two loops."""
    first, second = loops
    nest = f"        for {first}:\n            for {second}:"
    text = HEAD.format(keys=keys) + nest + STEP.format(place=place, j=j)
    return program("\n".join(line for line in text.splitlines() if line.strip()) + "\n")


@pytest.mark.parametrize(
    ("loops", "place", "keys"),
    [
        (("j0 in range(0, N, 3)", "j in range(j0, min(j0 + 3, N))"), "", "N"),
        (("t in range(B)", "u in range(2)"), "j = t * 2 + u", "2*B"),
    ],
)
def test_an_online_softmax_in_blocks_is_one_over_all_keys(
    loops: tuple[str, str], place: str, keys: str
) -> None:
    listing = attention(loops, place, "j", keys)
    found = backward(listing)
    assert all(step.decision == "legal" for step in found.steps)
    assert {saved.name for saved in found.saved} == {"O", "lse"}
    assert max(gaps(found, 0)) < 1e-10
    assert derive(listing).steps[0].kind == "whole loops"


@pytest.mark.parametrize(
    "loops",
    [
        ("a in range(B)", "b in range(H)"),
        ("a in range(i % 2, B)", "b in range(0, min(a + 1, H))"),
        ("a in range(B - 1, -1, -1)", "b in range(H)"),
    ],
)
def test_two_loops_that_carry_one_state_are_one_fold(loops: tuple[str, str]) -> None:
    """Where keys stand on a grid, no single loop goes over them."""
    found = backward(attention(loops, "", "a, b", "B H"))
    assert all(step.decision == "legal" for step in found.steps)
    assert max(gaps(found, 0)) < 1e-10


def test_what_the_outer_loop_hands_on_besides_is_no_fold() -> None:
    """W[b] is what the row of keys before has left there."""
    listing = attention(("a in range(B)", "b in range(H)"), "", "a, b", "B H")
    text = text_of(listing).replace("O = zeros((M, D))", "O = zeros((M, D))\n    W = zeros(H)")
    text = text.replace("m = n\n", "m = n\n                W[b] = s\n")
    with pytest.raises(NotDifferentiated):
        backward(program(text.replace("@ K[a, b]", "@ K[a, b] + W[b]")))


MERGED = """
def f(P: Float[Array, "M N"], V: Float[Array, "N H*D"], G: Float[Array, "M H*D"], H: int, D: Const):
    O = zeros((M, H * D)); Y = zeros((M, H * D))
    for i in range(M):
        for h in range(H):
            for d in range(D):
                {first}
        for h in range(H):
            for d in range(D):
                Y[i, h * D + d] = O[i, h * D + d] * G[i, h * D + d]
    return Y
"""


def test_a_place_in_a_block_stays_one_where_other_loops_keep_it() -> None:
    """Which cell of O a loop over heads and one over all columns mean could not be compared."""
    columns = "for j in range(N): O[i, h * D + d] += P[i, j] * V[j, h * D + d]"
    kept = program(MERGED.format(first=columns.replace("P[i, j]", "h * P[i, j]")))
    assert with_whole_loops(kept) is None
    assert max(gaps(backward(kept), 0)) < 1e-10
    found = with_whole_loops(program(MERGED.format(first=columns)))
    assert found is not None and len(found.joined) == 2


PRODUCT = """
def f(A: Float[Array, "M E"], B: Float[Array, "E N"]):
    C = zeros((M, N))
    for it in range(0, M, 4):
        for jt in range(0, N, 4):
{tile}
    return C
"""
FROM_THE_START = [
    "acc = zeros((4, 4))",
    "for kt in range(0, E, 2):",
    "    for ii in range(4):",
    "        for jj in range(4):",
    "            for kk in range(2):",
    "                if it + ii < M and jt + jj < N and kt + kk < E:",
    "                    acc[ii, jj] += A[it + ii, kt + kk] * B[kt + kk, jt + jj]",
    "for r in range(4):",
    "    for c in range(4):",
    "        if it + r < M and jt + c < N:",
    "            C[it + r, jt + c] = max(acc[r, c], 0.0)",
]
IN_PLACE = [
    "acc = zeros((4, 4))",
    "for kt in range(0, E, 2):",
    "    for i in range(it, min(it + 4, M)):",
    "        for j in range(jt, min(jt + 4, N)):",
    "            for k in range(kt, min(kt + 2, E)):",
    "                acc[i - it, j - jt] += A[i, k] * B[k, j]",
    "for i in range(it, min(it + 4, M)):",
    "    for j in range(jt, min(jt + 4, N)):",
    "        C[i, j] = max(acc[i - it, j - jt], 0.0)",
]
PER_ELEMENT = [
    "for i in range(it, min(it + 4, M)):",
    "    for j in range(jt, min(jt + 4, N)):",
    "        acc = 0.0",
    "        for k in range(E):",
    "            acc += A[i, k] * B[k, j]",
    "        C[i, j] = max(acc, 0.0)",
]


@pytest.mark.parametrize("tile", [FROM_THE_START, IN_PLACE, PER_ELEMENT])
def test_a_matrix_product_in_tiles_is_one_over_all_of_it(tile: list[str]) -> None:
    listing = program(PRODUCT.format(tile="\n".join(" " * 12 + line for line in tile)))
    found = derive(listing, "fold")
    assert found.decision == "legal"
    plain = next(step.after for step in found.steps if step.kind == "whole loops")
    assert [len(place.loops) for place in placed(plain)][-2:] == [3, 2]
    inputs: dict[str, Any] = dict(prepare(listing, {"M": 5, "N": 6, "E": 3}, None, 1).arrays)
    np.testing.assert_allclose(
        execute(plain, inputs=inputs)["C"], np.maximum(inputs["A"] @ inputs["B"], 0), atol=1e-12
    )
    assert max(gaps(backward(plain), 0)) < 1e-10
    assert text_of(backward(listing).program) == text_of(backward(plain).program)


def test_tiles_that_wait_for_each_other_stay_tiles() -> None:
    """C[i, j] needs C[i + 1, j - 4], which another row of an earlier tile has made."""
    tile = [
        "for i in range(it, min(it + 4, M)):",
        "    for j in range(jt, min(jt + 4, N)):",
        "        C[i, j] = A[i, 0] + (C[i + 1, j - 4] if i + 1 < M and j >= 4 else 0.0)",
    ]
    listing = program(PRODUCT.format(tile="\n".join(" " * 12 + line for line in tile)))
    found = with_block_rows_outward(listing)
    assert found is None or ("i", ("jt",)) not in found.moved
    plain = listing if found is None else found.program
    inputs: dict[str, Any] = dict(prepare(listing, {"M": 5, "N": 6, "E": 3}, None, 1).arrays)
    np.testing.assert_equal(execute(plain, inputs=inputs), execute(listing, inputs=inputs))


SYMBOLIC = """
def f(A: Float[Array, "M E"], B: Float[Array, "E N"], BM: Const, BN: Const, BK: Const):
    C = zeros((M, N))
    for it in range((M + BM - 1) // BM):
        for jt in range((N + BN - 1) // BN):
            acc = zeros((BM, BN))
            for kt in range((E + BK - 1) // BK):
                for i in range(BM):
                    for j in range(BN):
                        for k in range(BK):
                            if it * BM + i < M and jt * BN + j < N and kt * BK + k < E:
                                acc[i, j] += (
                                    A[it * BM + i, kt * BK + k] * B[kt * BK + k, jt * BN + j]
                                )
            for i in range(BM):
                for j in range(BN):
                    if it * BM + i < M and jt * BN + j < N:
                        C[it * BM + i, jt * BN + j] = acc[i, j]
    return C
"""


def test_tiles_may_be_of_any_size() -> None:
    listing = program(SYMBOLIC)
    found = derive(listing, "fold")
    plain = next(step.after for step in found.steps if step.kind == "whole loops")
    ranges = [line.strip() for line in text_of(plain).splitlines() if "for " in line]
    assert ranges == ["for i in range(0, M):", "for j in range(0, N):", "for k in range(0, E):"]
    sizes = {"M": 5, "N": 6, "E": 3, "BM": 2, "BN": 4, "BK": 2}
    inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
    want = execute(listing, sizes=sizes, inputs=inputs)["C"]
    np.testing.assert_allclose(execute(plain, sizes=sizes, inputs=inputs)["C"], want, atol=1e-12)


@pytest.mark.parametrize(
    ("end", "guard", "range_"),
    [
        ("t + 4", "if j <= i: ", "range(0, i + 1)"),
        ("min(t + 4, M)", "if j <= i: ", "range(0, min(M, i + 1))"),
        ("min(t + 4, N)", "", "range(0, min(4 * (i // 4) + 4, N))"),
        ("min(t + 3, N)", "if j <= i: ", "range(0, min(4 * (i // 4) + 3, N))"),
    ],
)
def test_where_a_block_ends_is_said_by_the_row(end: str, guard: str, range_: str) -> None:
    text = f"""
def f(X: Float[Array, "N"], M: int):
    assert M <= N
    y = 0.0
    for t in range(0, N, 4):
        for i in range(t, min(t + 4, N)):
            for j in range(0, {end}):
                {guard}y = 0.5 * y + X[i] * X[j]
    return y
"""
    listing = program(text)
    found = with_whole_loops(listing)
    assert found is not None
    assert [line.strip() for line in text_of(found.program).splitlines() if "for " in line] == [
        "for i in range(0, N):",
        f"for j in {range_}:",
    ]
    for n, m in product(range(10), (0, 3, 8)):
        sizes = {"N": n, "M": min(m, n)}
        try:
            inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
            want = execute(listing, sizes=sizes, inputs=inputs)
        except SubscriptOutside:
            continue
        np.testing.assert_equal(execute(found.program, sizes=sizes, inputs=inputs), want)


@pytest.mark.parametrize(
    ("rows", "keys", "block", "range_"),
    [
        (
            "(N + 3) // 4",
            "(min(N, 4 * t + 4) + 1) // 2",
            "min(i + 1, 2 * u + 2)",
            "range(0, i + 1)",
        ),
        ("(N + 3) // 4", "2 * t + 2", "min(i + 1, 2 * u + 2)", "range(0, i + 1)"),
        (
            "(N + 3) // 4",
            "2 * t + 1",
            "min(i + 1, 2 * u + 2)",
            "range(0, min(4 * (i // 4) + 2, i + 1))",
        ),
        ("N // 4", "2 * t + 2", "min(i + 1, 2 * u + 2)", "range(0, i + 1)"),
    ],
)
def test_blocks_that_are_counted_say_where_keys_end(
    rows: str, keys: str, block: str, range_: str
) -> None:
    text = f"""
def f(X: Float[Array, "N"]):
    y = 0.0
    for t in range({rows}):
        for i in range(4 * t, min(N, 4 * t + 4)):
            for u in range({keys}):
                for j in range(2 * u, {block}):
                    y = 0.5 * y + X[i] * X[j]
    return y
"""
    listing = program(text)
    found = with_whole_loops(listing)
    assert found is not None
    ranges = [line.strip() for line in text_of(found.program).splitlines() if "for " in line]
    assert ranges[1:] == [f"for j in {range_}:"]
    for n in range(14):
        inputs: dict[str, Any] = dict(prepare(listing, {"N": n}, None, 1).arrays)
        want = execute(listing, sizes={"N": n}, inputs=inputs)
        np.testing.assert_equal(execute(found.program, sizes={"N": n}, inputs=inputs), want)


@pytest.mark.parametrize(
    ("contract", "is_one"),
    [("W > 0", True), ("1 <= W", True), ("W >= 0", False), ("W < 4", False), ("W <= N", False)],
)
def test_blocks_are_as_wide_as_a_contract_says(contract: str, is_one: bool) -> None:
    text = f"""
def f(X: Float[Array, "N"], W: int):
    assert {contract}
    y = 0.0
    for t in range((N + W - 1) // W):
        for i in range(t * W, min(N, t * W + W)):
            for j in range(0, min(N, t * W + W)):
                y = 0.5 * y + X[i] * X[j]
    return y
"""
    listing = program(text)
    found = with_whole_loops(listing)
    assert (found is not None) == is_one
    if found is None:
        return
    assert found.certificate.assumptions == (f"assert {contract}",)
    assert "for j in range(0, min(N, i // W * W + W)):" in text_of(found.program)
    for n, width in product(range(8), (1, 2, 3, 9)):
        sizes = {"N": n, "W": width}
        inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
        want = execute(listing, sizes=sizes, inputs=inputs)
        np.testing.assert_equal(execute(found.program, sizes=sizes, inputs=inputs), want)


def test_a_block_that_a_statement_asks_for_stays() -> None:
    text = """
def f(X: Float[Array, "N"]):
    Y = zeros(N)
    for t in range(0, N, 4):
        for i in range(t, min(t + 4, N)):
            Y[i] = X[t]
    return Y
"""
    assert with_whole_loops(program(text)) is None


@pytest.mark.parametrize("blocks", ["t in range(lo, N, 4)", "t in range(i - 3, i + 1, 4)"])
def test_tiles_that_may_begin_below_0_have_numbers(blocks: str) -> None:
    text = f"""
def f(X: Float[Array, "N"], lo: int):
    Y = zeros(N)
    for i in range(N):
        for {blocks}:
            s = zeros(4)
            for j in range(max(t, 0), min(t + 4, N)):
                s[j - t] = X[j]
                Y[j] += s[j - t]
    return Y
"""
    assert with_arrays_made_once(program(text), tiles=True) is None


def test_a_saved_backward_pass_of_blocks_is_proved_again() -> None:
    text = """
def f(X: Float[Array, "M"]):
    Y = zeros(M)
    for t in range(0, M, 4):
        for i in range(t, min(t + 4, M)):
            Y[i] = X[i] * X[i]
    return Y
"""
    found = derive_backward(program(text))
    assert found.steps[0].kind == "whole loops"
    assert recheck(saved(found)) == ()


def test_arrays_of_tiles_end_where_the_rows_do() -> None:
    """A gradient goes over all cells of an array, and others have none beyond the rows."""
    found = backward(
        program("""
def f(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N"]):
    O = zeros(N)
    for i0 in range(0, N, 64):
        o = zeros(64); m = full(64, -inf); l = zeros(64)
        for i in range(i0, min(i0 + 64, N)):
            for j in range(N):
                n = max(m[i - i0], Q[i] @ K[j])
                p = exp(Q[i] @ K[j] - n)
                l[i - i0] = l[i - i0] * exp(m[i - i0] - n) + p
                o[i - i0] = o[i - i0] * exp(m[i - i0] - n) + p * V[j]
                m[i - i0] = n
        for i in range(i0, min(i0 + 64, N)):
            O[i] = o[i - i0] / l[i - i0]
    return O
""")
    )
    assert [each.name for each in found.saved] == ["lse", "O"]
    ends = {index_text(n.range.stop) for n in nodes(found.program.body) if isinstance(n, Loop)}
    assert ends <= {"N", "E"}
