"""Products with a short table that rows and columns look into: worked out for all of its rows."""

from __future__ import annotations

import os
from itertools import pairwise
from textwrap import indent
from typing import Any

import pytest

torch = pytest.importorskip("torch")
os.environ.setdefault("TRITON_INTERPRET", "1")

import looptrans  # noqa: E402
from looptrans.adjoint.backward import backward  # noqa: E402
from looptrans.adjoint.rewriting.tabulated import with_products_tabulated  # noqa: E402
from looptrans.blocks.block_ir.ops import has_products, most_dims, stored_blocks  # noqa: E402
from looptrans.derivation.derive import derive  # noqa: E402
from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.listing import lowered  # noqa: E402
from looptrans.ir.listing import listing  # noqa: E402
from tests.analysis import program  # noqa: E402
from tests.test_attention_strangers import compare, normal  # noqa: E402

ATTENTION = """
def relative(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"],
             TABLES, c: int, scale: float):
    O = zeros((B, H, M, D))
    for b in range(B):
        for h in range(H):
            for i in range(M):
                m = -inf
                l = 0.0
                o = zeros(D)
                for j in range(STOP):
                    SCORE
                    t = max(m, s)
                    l = l * exp(m - t) + exp(s - t)
                    for d in range(D):
                        o[d] = o[d] * exp(m - t) + exp(s - t) * V[b, h, j, d]
                    m = t
                for d in range(D):
                    O[b, h, i, d] = o[d] / l
    return O
"""
OF_ALL, OF_HEADS = 'R: Float[Array, "W E"]', 'R: Float[Array, "H W E"]'


def attention(score: str, tables: str = OF_ALL, stop: str = "N") -> str:
    """Return attention with a score: a statement, or several lines."""
    text = ATTENTION.replace("                    SCORE", indent(score, " " * 20))
    return text.replace("TABLES", tables).replace("STOP", stop)


KEY = "K[b, h, j, e]"
FAR = "R[min(max(j - i, -c), c) + c, e]"
SHORT = {
    "added": (f"s = scale * sum(Q[b, h, i, e] * ({KEY} + {FAR}) for e in range(E))", OF_ALL, "N"),
    "two sums": (
        f"s = scale * (sum(Q[b, h, i, e] * {KEY} for e in range(E)) "
        f"+ sum({FAR} * Q[b, h, i, e] for e in range(E)))",
        OF_ALL,
        "N",
    ),
    "a loop": (
        f"s = 0.0\nfor e in range(E):\n    s += Q[b, h, i, e] * ({KEY} + {FAR})\ns = s * scale",
        OF_ALL,
        "N",
    ),
    "of heads, up to the row": (
        f"s = scale * sum(Q[b, h, i, e] * ({KEY} - R[h, min(i - j, c), e]) for e in range(E))",
        OF_HEADS,
        "i + 1",
    ),
    "below only": (
        f"s = sum(Q[b, h, i, e] * ({KEY} + R[c + max(-c, j - i), e]) * scale for e in range(E))",
        OF_ALL,
        "i + 1",
    ),
    "with biases": (
        f"s = scale * sum((Q[b, h, i, e] + U[h, e]) * {KEY} "
        "+ (Q[b, h, i, e] + X[h, e]) * R[h, min(i - j, c), e] for e in range(E))",
        f'{OF_HEADS}, U: Float[Array, "H E"], X: Float[Array, "H E"]',
        "i + 1",
    ),
    "of columns": (
        f"s = scale * sum(Q[b, h, i, e] * {KEY} + {KEY} * R[h, max(min(j - i, c), -c) + c, e] "
        "for e in range(E))",
        OF_HEADS,
        "N",
    ),
}


@pytest.mark.parametrize("way", SHORT)
def test_products_with_a_short_table_are_worked_out_for_all_of_its_rows(way: str) -> None:
    listed = program(attention(*SHORT[way]))
    found = lowered(listed)
    assert len(found.kernels) == 2
    assert all(has_products(kernel.body) for kernel in found.kernels)
    assert all(most_dims(kernel.body) == 2 for kernel in found.kernels)
    seen = derive(listed, "fold").steps
    (step,) = (step for step in seen if step.kind == "tabulated")
    assert {c.verdict for c in step.certificates} == {"legal"}


def test_the_backward_pass_has_products_too_and_nothing_more_is_handed_over() -> None:
    listed = program(attention(*SHORT["added"]))
    found = backward(listed)
    assert [saved.name for saved in found.saved] == ["lse", "O"]
    kernels = emitted_with_backward(listed).backward.kernels
    for gradient in ("dK", "dR"):
        (kernel,) = (k for k in kernels if gradient in stored_blocks(k.body))
        assert most_dims(kernel.body) == 2
        assert has_products(kernel.body)


LONG = {
    "no end": "R[j - i + M - 1, e]",
    "ends where the loop does": "R[min(max(j - i, 1 - M), N - 1) + M - 1, e]",
    "from below only": "R[max(j - i, -c) + c, e]",
    "a row of keys": "K[b, h, min(i + j, N - 1), e]",
}


@pytest.mark.parametrize("far", LONG.values(), ids=LONG)
def test_a_table_as_long_as_rows_is_not_multiplied_as_a_whole(far: str) -> None:
    score = f"s = scale * sum(Q[b, h, i, e] * ({KEY} + {far}) for e in range(E))"
    assert with_products_tabulated(program(attention(score))) is None


def test_a_table_has_no_more_rows_than_are_looked_up() -> None:
    score, _, stop = SHORT["added"]
    of_all_pairs = program(attention(score, 'R: Float[Array, "M+N E"]', stop))
    assert with_products_tabulated(of_all_pairs) is None


def test_what_changes_meanwhile_is_not_worked_out_ahead() -> None:
    text = """
def moved(Q: Float[Array, "M E"], R: Float[Array, "W E"], c: int):
    Y = zeros((M, M))
    for i in range(M):
        for j in range(M):
            Y[i, j] = sum(Q[i, e] * R[min(max(j - i, -c), c) + c, e] for e in range(E))
        for e in range(E):
            Q[i, e] = Q[i, e] * 2.0
    return Y
"""
    assert with_products_tabulated(program(text)) is None


UNSURE = {
    "rows that another array may not have": (
        "sum((Q[i, e] + U[i, e]) * FAR for e in range(E))",
        "",
    ),
    "rows that are asked for": (
        "sum(Q[start[i] + i, e] * FAR for e in range(E)) if i < n else 0.0",
        'start: Int[Array, "M", "0:M"], n: int, ',
    ),
}


@pytest.mark.parametrize("way", UNSURE)
def test_products_are_not_made_of_rows_that_may_not_be_there(way: str) -> None:
    value, given = UNSURE[way]
    text = f"""
def unsure(Q: Float[Array, "H E"], U: Float[Array, "M E"], R: Float[Array, "W E"], {given}c: int):
    Y = zeros((M, N))
    for i in range(M):
        for j in range(N):
            Y[i, j] = {value.replace("FAR", "R[min(max(j - i, -c), c) + c, e]")}
    return Y
"""
    assert with_products_tabulated(program(text)) is None


# Two rows of Y read one row of Q.
SHARED = """
def shared(Q: Float[Array, "M E"], U: Float[Array, "H E"], R: Float[Array, "H W E"], c: int):
    Y = zeros((H, N))
    for i in range(H):
        for j in range(N):
            Y[i, j] = VALUE
    return Y
"""
FAR_OF_ROWS = "R[i, min(max(j - i, -c), c) + c, e]"
ROWS = {
    "that others share": f"sum(Q[i // 2, e] * {FAR_OF_ROWS} for e in range(E))",
    "added to shared ones": f"sum((Q[i // 2, e] + U[i, e]) * {FAR_OF_ROWS} for e in range(E))",
    "that the number of a row is added to": (
        f"sum((Q[i // 2, e] + i) * {FAR_OF_ROWS} for e in range(E))"
    ),
}


@pytest.mark.parametrize("way", ROWS)
def test_rows_that_read_one_row_have_products_of_their_own(way: str) -> None:
    made = with_products_tabulated(program(SHARED.replace("VALUE", ROWS[way])))
    assert made is not None
    assert "Q_R[i, w] = " in listing(made.program)


# Rows of sequences may overlap: what hangs on the sequence, too, is not theirs alone.
OVERLAPPING = """
def overlapping(Q: Float[Array, "T E"], R: Float[Array, "B W E"], n: Int[Array, "B", "0:T"],
                start: Int[Array, "B", "0:T"], c: int, N: int):
    Y = zeros((B, T, N))
    for b in range(B):
        for i in range(n[b]):
            for j in range(N):
                Y[b, i, j] = sum(
                    Q[start[b] + i, e] * R[b, min(max(j - i, -c), c) + c, e] for e in range(E)
                )
    return Y
"""


def test_rows_of_two_sequences_have_no_product_in_common() -> None:
    assert with_products_tabulated(program(OVERLAPPING)) is None


HIDDEN = {
    "loops that are empty": ("", "i, N", "U[i, e]"),
    "a size": ("if N > 5:\n                ", "N", "U[5, e]"),
}


@pytest.mark.parametrize("way", HIDDEN)
def test_what_is_asked_may_mention_no_row(way: str) -> None:
    asked, inside, read = HIDDEN[way]
    text = f"""
def hidden(Q: Float[Array, "M E"], U: Float[Array, "N E"], R: Float[Array, "W E"], c: int):
    Y = zeros((M, N))
    for i in range(M):
        for j in range({inside}):
            {asked}Y[i, j] = sum((Q[i, e] + {read}) * {FAR} for e in range(E))
    return Y
"""
    assert with_products_tabulated(program(text)) is None


LARGE = {
    "rows of its own": (
        "for j in range(n):\n            Y[i] += "
        "sum(Q[i, e] * Q[min(max(j - i, 0), c), e] for e in range(E))"
    ),
    "as many as a sum goes over": (
        f"Y[i] = sum(sum(Q[i, e] * {FAR} for e in range(E)) for j in range(W))"
    ),
}


@pytest.mark.parametrize("way", LARGE)
def test_a_table_is_not_as_large_as_the_pairs(way: str) -> None:
    text = f"""
def large(Q: Float[Array, "M E"], R: Float[Array, "W E"], c: int, n: int):
    Y = zeros(M)
    for i in range(n):
        {LARGE[way]}
    return Y
"""
    assert with_products_tabulated(program(text)) is None


def test_a_table_that_is_too_short_is_refused_by_its_own_name() -> None:
    refuse_a_short_table(SHORT["added"], grad=False)


def refuse_a_short_table(score: tuple[str, str, str], *, grad: bool) -> None:
    """Call attention with a table of too few rows."""
    found = looptrans.compile(attention(*score))
    q, k, v, r = normal((1, 1, 5, 4), (1, 1, 9, 4), (1, 1, 9, 3), (3, 4))
    with pytest.raises(ValueError, match="R should have at least 5 elements along dimension 0"):
        found(q.requires_grad_(grad), k, v, r, 2, 1.0)


# Heads share tables, and sequences are packed, one behind the other.
PACKED = """
def packed(Q: Float[Array, "T G*S E"], K: Float[Array, "T G E"], V: Float[Array, "T G D"],
           R: Float[Array, "G W E"], cu: Int[Array, "B+1", "0:T+1"], c: int, S: int):
    assert all(cu[b] <= cu[b + 1] for b in range(B))
    O = zeros((T, G * S, D))
    for b in range(B):
        for h in range(G * S):
            for i in range(cu[b + 1] - cu[b]):
                m = -inf
                l = 0.0
                o = zeros(D)
                for j in range(cu[b + 1] - cu[b]):
                    s = sum(
                        Q[cu[b] + i, h, e]
                        * (K[cu[b] + j, h // S, e] + R[h // S, min(max(j - i, -c), c) + c, e])
                        for e in range(E)
                    )
                    t = max(m, s)
                    l = l * exp(m - t) + exp(s - t)
                    for d in range(D):
                        o[d] = o[d] * exp(m - t) + exp(s - t) * V[cu[b] + j, h // S, d]
                    m = t
                for d in range(D):
                    O[cu[b] + i, h, d] = o[d] / l
    return O
"""


def test_rows_of_packed_sequences_look_into_tables_that_heads_share() -> None:
    def theirs(q: Any, k: Any, v: Any, r: Any, cu: Any, c: int, count: int) -> Any:
        found = []
        for first, last in pairwise(cu.tolist()):
            at = torch.arange(last - first)
            keys, values = (x[first:last].repeat_interleave(count, 1) for x in (k, v))
            rows = r[:, (at[None] - at[:, None]).clamp(-c, c) + c].repeat_interleave(count, 0)
            scores = torch.einsum("ihe,jhe->hij", q[first:last], keys)
            scores = scores + torch.einsum("ihe,hije->hij", q[first:last], rows)
            found.append(torch.einsum("hij,jhd->ihd", torch.softmax(scores, 2), values))
        return torch.cat(found)

    found = lowered(program(PACKED))
    assert len(found.kernels) == 2
    assert all(most_dims(kernel.body) == 2 for kernel in found.kernels)
    cu = torch.tensor([0, 4, 4, 9], dtype=torch.int32)
    shapes = (9, 4, 4), (9, 2, 4), (9, 2, 3), (2, 5, 4)
    compare(PACKED, theirs, normal(*shapes), [cu, 2, 2])


def far_keys(q: Any, r: Any, at: Any) -> Any:
    """Return what each query is multiplied with a row of a table, at the places of pairs."""
    return torch.einsum("bhie,ije->bhij", q, r[at])


def test_gradients_are_those_of_torch_keys_looked_up() -> None:
    def theirs(q: Any, k: Any, v: Any, r: Any, c: int, scale: float) -> Any:
        i, j = torch.arange(q.shape[2]), torch.arange(k.shape[2])
        scores = q @ k.mT + far_keys(q, r, (j[None] - i[:, None]).clamp(-c, c) + c)
        return torch.softmax(scale * scores, 3) @ v

    shapes = (2, 2, 5, 4), (2, 2, 19, 4), (2, 2, 19, 3), (7, 4)
    compare(attention(*SHORT["a loop"]), theirs, normal(*shapes), [3, 0.7])
    refuse_a_short_table(SHORT["a loop"], grad=True)


def test_gradients_are_those_of_torch_with_biases_and_heads() -> None:
    def theirs(q: Any, k: Any, v: Any, r: Any, u: Any, x: Any, c: int, scale: float) -> Any:
        at = torch.arange(q.shape[2])
        behind = at[:, None] - at[None]
        rows = r[:, behind.clamp(0, c)]
        scores = (q + u[:, None]) @ k.mT
        scores = scores + torch.einsum("bhie,hije->bhij", q + x[:, None], rows)
        return torch.softmax((scale * scores).masked_fill(behind < 0, -torch.inf), 3) @ v

    shapes = (2, 2, 9, 4), (2, 2, 9, 4), (2, 2, 9, 3), (2, 4, 4), (2, 4), (2, 4)
    compare(attention(*SHORT["with biases"]), theirs, normal(*shapes), [3, 0.7])


# The table is the reader's own, and as long as the rows: what it is told to hold, it holds.
OWN_TABLE = """
def own(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
        R: Float[Array, "M+N E"]):
    T = zeros((M, M + N))
    O = zeros((M, D))
    for i in range(M):
        for w in range(M + N):
            T[i, w] = sum(Q[i, e] * R[w, e] for e in range(E))
    for i in range(M):
        m = max(sum(Q[i, e] * K[j, e] for e in range(E)) + T[i, j - i + M] for j in range(N))
        l = 0.0
        for j in range(N):
            p = exp(sum(Q[i, e] * K[j, e] for e in range(E)) + T[i, j - i + M] - m)
            l += p
            for d in range(D):
                O[i, d] += p * V[j, d]
        for d in range(D):
            O[i, d] /= l
    return O
"""


def test_a_table_that_the_listing_makes_stays_one() -> None:
    def theirs(q: Any, k: Any, v: Any, r: Any) -> Any:
        i, j = torch.arange(q.shape[0]), torch.arange(k.shape[0])
        far = torch.gather(q @ r.mT, 1, j[None] - i[:, None] + q.shape[0])
        return torch.softmax(q @ k.mT + far, 1) @ v

    found = lowered(program(OWN_TABLE))
    assert all(most_dims(kernel.body) == 2 for kernel in found.kernels)
    compare(OWN_TABLE, theirs, normal((5, 4), (9, 4), (9, 3), (14, 4)), [])


# Made in the loop over heads that the queries are in, term by term.
OWN_IN_HEADS = """
def own(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"],
        R: Float[Array, "M+N E"]):
    T = zeros((H, M, M + N))
    O = zeros((H, M, D))
    for h in range(H):
        for i in range(M):
            for w in range(M + N):
                for e in range(E):
                    T[h, i, w] += Q[h, i, e] * R[w, e]
        for i in range(M):
            m = -inf
            l = 0.0
            for j in range(N):
                s = T[h, i, j - i + M]
                for e in range(E):
                    s += Q[h, i, e] * K[h, j, e]
                t = max(m, s)
                l = l * exp(m - t) + exp(s - t)
                for d in range(D):
                    O[h, i, d] = O[h, i, d] * exp(m - t) + exp(s - t) * V[h, j, d]
                m = t
            for d in range(D):
                O[h, i, d] /= l
    return O
"""


def test_a_table_that_a_loop_over_heads_makes_is_kept_in_both_passes() -> None:
    def theirs(q: Any, k: Any, v: Any, r: Any) -> Any:
        i, j = torch.arange(q.shape[1]), torch.arange(k.shape[1])
        at = (j[None] - i[:, None] + q.shape[1]).expand(q.shape[0], -1, -1)
        return torch.softmax(q @ k.mT + torch.gather(q @ r.mT, 2, at), 2) @ v

    listed = program(OWN_IN_HEADS)
    assert all(most_dims(kernel.body) == 2 for kernel in lowered(listed).kernels)
    kernels = emitted_with_backward(listed).backward.kernels
    for gradient in ("dK", "dR"):
        (kernel,) = (k for k in kernels if gradient in stored_blocks(k.body))
        assert most_dims(kernel.body) == 2
    compare(OWN_IN_HEADS, theirs, normal((2, 5, 4), (2, 9, 4), (2, 9, 3), (14, 4)), [])


NAIVE = """
def naive(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"],
          R: Float[Array, "2*C+1 E"], C: Const):
    S = zeros((H, M, N))
    P = zeros((H, M, N))
    O = zeros((H, M, D))
    for h in range(H):
        for i in range(M):
            for j in range(N):
                S[h, i, j] = sum(Q[h, i, e] * K[h, j, e] for e in range(E))
                S[h, i, j] += sum(Q[h, i, e] * R[min(max(j - i, -C), C) + C, e] for e in range(E))
    for h in range(H):
        for i in range(M):
            m = max(S[h, i, j] for j in range(N))
            z = sum(exp(S[h, i, j] - m) for j in range(N))
            for j in range(N):
                P[h, i, j] = exp(S[h, i, j] - m) / z
    for h in range(H):
        for i in range(M):
            for d in range(D):
                O[h, i, d] = sum(P[h, i, j] * V[h, j, d] for j in range(N))
    return O
"""


def test_scores_in_memory_are_worked_out_again_and_the_table_is_not() -> None:
    found = lowered(program(NAIVE))
    assert len(found.kernels) == 2
    assert all(most_dims(kernel.body) == 2 for kernel in found.kernels)


SCALED = """
def scaled(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], scale: float):
    O = zeros((M, D))
    for i in range(M):
        m = max(sum(Q[i, e] * scale * K[j, e] for e in range(E)) for j in range(N))
        l = 0.0
        for j in range(N):
            p = exp(sum(Q[i, e] * scale * K[j, e] for e in range(E)) - m)
            l += p
            for d in range(D):
                O[i, d] += p * V[j, d]
        for d in range(D):
            O[i, d] /= l
    return O
"""


def test_a_scale_inside_of_a_sum_has_a_part_for_each_row_and_not_for_each_pair() -> None:
    text = listing(backward(program(SCALED)).program)
    assert "dscale_part = zeros(M, dtype=float32)" in text
    assert "zeros((M, N)" not in text
