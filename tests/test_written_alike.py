"""Values and guards that are written in several ways in one listing."""

from __future__ import annotations

import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.rewriting.same_names import with_same_names
from looptrans.adjoint.rewriting.written_alike import with_values_alike
from looptrans.derivation.derive import derive
from looptrans.ir.listing import listing
from tests.analysis import program

ATTENTION = """
def attention(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"], a: float):
    O = zeros((N, D))
    for i in range(N):
        m = -inf
        for j in range(N):
            if i >= j:
                m = max(m, sum(Q[i, e] * K[j, e] for e in range(E)) * 0.125 - a * (i - j))
        l = 0.0
        for j in range(N):
            if {guard}:
                l += exp({score} - m)
        for j in range(N):
            if {guard}:
                for d in range(D):
                    O[i, d] += exp({score} - m) / l * V[j, d]
    return O
"""
SCORE = "sum(Q[i, e] * K[j, e] for e in range(E)) * 0.125 - a * (i - j)"


@pytest.mark.parametrize(
    ("guard", "score"),
    [
        ("not j > i", SCORE),
        ("i - j + 1 > 0", SCORE),
        ("j <= i", "0.125 * sum(K[j, t] * Q[i, t] for t in range(E)) - (i - j) * a"),
        ("i >= j", "sum(Q[i, e] * K[j, e] for e in range(E)) / 8 + a * (j - i)"),
        ("i >= j", "-(a * (i - j)) + sum(Q[i, e] * 0.125 * K[j, e] for e in range(E))"),
    ],
)
def test_passes_are_one_however_each_is_written(guard: str, score: str) -> None:
    listed = program(ATTENTION.format(guard=guard, score=score))
    found = derive(listed, "fold")
    passes = [len(step.arguments) for step in found.steps if step.kind == "one pass"]
    assert passes == [3]
    text = listing(backward(listed).program)
    assert "delta[i] = delta[i] + dO[i, d] * O[i, d]" in text


WINDOWED = """
def windowed(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"], w: int):
    O = zeros((N, D)); lse = zeros(N)
    for i in range(N):
        m = -inf
        l = 0.0
        for j in range(max(0, i - w), i + 1):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(E)))
        {head}
            p = exp(sum(Q[i, e] * K[k, e] for e in range(E)) - m)
            l += p
            for d in range(D):
                O[i, d] += p * V[k, d]
        for d in range(D):
            O[i, d] /= l
        lse[i] = m + log(l)
    return O, lse
"""


@pytest.mark.parametrize(
    ("head", "passes"),
    [
        ("for k in range(max(i - w, 0), i + 1):", [2]),
        ("for k in range(N):\n            if not i - w <= k <= i: continue", [2]),
        ("for k in range(N):\n            if k > i or k < i - w: continue", [2]),
        ("for k in range(i + 1):\n            if k + w < i: continue", [2]),
        (
            "for k in range(N):\n            if k > i: break\n            if k + w < i: continue",
            [2],
        ),
        ("for k in range(N):\n            if k > i and k < i - w: continue", []),
        ("for k in range(max(0, i - w + 1), i + 1):", []),
        ("for k in range(i - w, i + 1):", []),
    ],
)
def test_passes_are_one_whatever_says_their_iterations(head: str, passes: list[int]) -> None:
    listed = program(WINDOWED.format(head=head))
    found = derive(listed, "fold")
    assert [len(step.arguments) for step in found.steps if step.kind == "one pass"] == passes
    if passes:
        assert "delta[i] = delta[i] + dO[i, d] * O[i, d]" in listing(backward(listed).program)


@pytest.mark.parametrize(
    "score",
    [
        "sum(Q[i, f] * K[k, f] for f in range(E)) if seg[k] == seg[i] else -inf",
        "sum(Q[i, j] * K[k, j] for j in range(E)) if seg[i] == seg[k] else -inf",
    ],
)
def test_passes_are_one_whatever_loops_and_sums_count_by(score: str) -> None:
    """The second pass and the sum in it have names of their own, that of the first pass as well."""
    listed = program(f"""
def segments(Q: Float[Array, "M E"], K: Float[Array, "M E"], seg: Int[Array, "M"]):
    lse = zeros(M)
    for i in range(M):
        m = -inf
        for j in range(M):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(E)) if seg[i] == seg[j] else -inf)
        l = 0.0
        for k in range(M):
            l += exp(({score}) - m)
        lse[i] = m + log(l)
    return lse
""")
    steps = derive(listed, "fold").steps
    assert [len(step.arguments) for step in steps if step.kind == "one pass"] == [2]


def test_loops_that_share_a_row_count_by_one_name() -> None:
    listed = program("""
def onepass(X: Float[Array, "M N"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(N):
            n = max(m, X[i, j])
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - n)
            l = l * exp(m - n) + exp(X[i, j] - n)
            for x in range(D):
                O[i, x] += exp(X[i, j] - n) * V[j, x]
            m = n
        for y in range(D):
            O[i, y] = O[i, y] / l
    return O
""")
    found = derive(listed, "fold")
    assert "guard" in [step.kind for step in found.steps] and not found.notes


def test_loops_that_share_nothing_keep_their_names() -> None:
    listed = program("""
def rows(X: Float[Array, "N"], Y: Float[Array, "N"]):
    a = zeros((2, N)); b = zeros((2, N))
    for t in range(2):
        for i in range(N):
            a[t, i] = X[i] + t
        for j in range(N):
            b[t, j] = Y[j] + t
    return a, b
""")
    assert with_same_names(listed) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x[i] * y[i] + 1.0", "x[i] * y[i] - 1.0"),
        ("x[i] / y[i]", "y[i] / x[i]"),
        ("x[i] - y[i]", "x[i] + y[i]"),
        ("sum(x[k] for k in range(i))", "sum(x[k] for k in range(N))"),
        ("x[i] * 0.0", "y[i] * 0.0"),
        ("n[i] / 2", "n[i] / 2.0"),
        ("x[i] if i > 0 else y[i]", "x[i] if i >= 0 else y[i]"),
    ],
)
def test_what_is_not_the_same_stays(one: str, other: str) -> None:
    text = f"""
def f(x: Float[Array, "N"], y: Float[Array, "N"], n: Int[Array, "N"]):
    a = zeros(N); b = zeros(N)
    for i in range(N):
        a[i] = {one}
        b[i] = {other}
    return a, b
"""
    assert with_values_alike(program(text)) is None


def test_what_is_the_other_way_round_has_a_sign() -> None:
    text = """
def f(x: Float[Array, "N"], y: Float[Array, "N"]):
    a = zeros(N); b = zeros(N)
    for i in range(N):
        a[i] = exp(x[i] - y[i])
        b[i] = exp(-x[i] + y[i])
    return a, b
"""
    found = with_values_alike(program(text))
    assert found is not None
    assert "b[i] = exp(-(x[i] - y[i]))" in listing(found.program)


@pytest.mark.parametrize("before", ["for e in range(E)", "for j in range(N)"])
def test_a_sum_before_the_passes_leaves_them_one(before: str) -> None:
    """What is added up first, over keys or not, waits for nothing; the others wait for it."""
    text = ATTENTION.format(guard="i >= j", score=SCORE).replace("a * (i - j)", "q")
    name = before.split()[1]
    first = (
        f"q = 0.0\n        {before}:\n            q += Q[i, {name if name == 'e' else 0}] ** 2\n"
    )
    listed = program(text.replace("        m = -inf\n", f"        {first}        m = -inf\n"))
    found = derive(listed, "fold")
    assert [len(s.arguments) for s in found.steps if s.kind == "one pass"] == [3]


def test_nests_whose_loops_stand_in_another_order_join_the_passes() -> None:
    text = """
def turned(Q: Float[Array, "H N E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"]):
    O = zeros((N, H, D)); m = full((H, N), -inf); l = zeros((H, N))
    for h in range(H):
        for i in range(N):
            for j in range(N):
                m[h, i] = max(m[h, i], sum(Q[h, i, e] * K[h, j, e] for e in range(E)))
    for h in range(H):
        for i in range(N):
            for j in range(N):
                l[h, i] += exp(sum(Q[h, i, e] * K[h, j, e] for e in range(E)) - m[h, i])
    for i in range(N):
        for h in range(H):
            for j in range(N):
                w = exp(sum(Q[h, i, e] * K[h, j, e] for e in range(E)) - m[h, i]) / l[h, i]
                for d in range(D):
                    O[i, h, d] += w * V[h, j, d]
    return O
"""
    found = derive(program(text), "fold")
    assert [len(s.arguments) for s in found.steps if s.kind == "one pass"] == [3]


def test_sums_in_the_guards_of_sums_are_told_apart() -> None:
    """The variable of an inner sum is not that of the one around it."""
    text = """
def picked(x: Float[Array, "N C"], y: Float[Array, "N C"]):
    z = zeros(N); w = zeros(N)
    for i in range(N):
        z[i] = sum(x[i, j] for j in range(C) if sum(y[i, k] * x[i, j] for k in range(C)) > 0.0)
    for i in range(N):
        w[i] = sum(x[i, j] for j in range(C) if sum(y[i, k] * x[i, k] for k in range(C)) > 0.0)
    return z, w
"""
    assert with_values_alike(program(text)) is None


def test_what_an_inner_loop_is_called_keeps_no_passes_apart() -> None:
    """Keys are gone over by j first; j then counts the columns of the output, inside of k."""
    text = """
def named(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, sum(Q[i, e] * K[j, e] for e in range(E)))
        l = 0.0
        for k in range(N):
            l += exp(sum(Q[i, e] * K[k, e] for e in range(E)) - m)
        for k in range(N):
            p = exp(sum(Q[i, e] * K[k, e] for e in range(E)) - m) / l
            for j in range(D):
                O[i, j] += p * V[k, j]
    return O
"""
    found = derive(program(text), "fold")
    assert [len(s.arguments) for s in found.steps if s.kind == "one pass"] == [3]
