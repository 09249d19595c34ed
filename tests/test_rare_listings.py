"""Listings in which something rare decides: a mask of 0 under a maximum, numbers below 0, names set
twice, arrays that are looked at beyond the lengths of their rows. Each was wrong once.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.adjoint.backward import backward
from looptrans.adjoint.normalizing.named_tests import with_tests_put_in
from looptrans.cli.main import main
from looptrans.frontend.parse import load
from looptrans.ir.listing import listing
from tests.analysis import program, verdicts

ROWS = """
def f(X: Float[Array, "M N"]):
    O = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            s = X[i, j] if j < i else {mask}
            m = max(m, {value})
        O[i] = m
    return O
"""
PRODUCTS = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], {more}):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            x = sum(Q[i, e] * K[j, e] for e in range(0, E))
            {before}
            for d in range(0, D):
                O[i, d] = O[i, d] + {term} * V[j, d]
    return O
"""
PIECES = """
def f(X: Float[Array, "M R"], c: Float[Array, "F"]):
    Y = zeros((M, R))
    for i in range(0, M):
        for f in range(0, F):
            Y[i, f] = X[i, f] * c[f] - X[i, f + F]
            Y[i, f + F] = X[i, f + F] * c[f] + X[i, f]
        for r in range(2 * F, R):
            Y[i, r] = X[i, r]
    return Y
"""
GUARDED = """
def f(X: Float[Array, "M N"], Y: Float[Array, "M N"]):
    Z = ones((M, N)); O = zeros(M); P = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(0, N):
            if X[i, j] > 0.0:
                Z[i, j] = X[i, j]
                m = max(m, Y[i, j])
        l = 0.0
        for j in range(0, N):
            if Z[i, j] > 0.0:
                l = l + exp(Y[i, j] - m)
        O[i] = l
        P[i] = m
    return O, P
"""
TWO_ENDS = """
def f(X: Float[Array, "B M"], Y: Float[Array, "B M"], n: Int[Array, "B", "0:M+1"],
      p: Int[Array, "B", "0:M+1"]):
    O = zeros((B, M))
    for b in range(0, B):
        for i in range(0, n[b]):
            O[b, i] = X[b, i] * X[b, i]
        for i in range(0, p[b]):
            O[b, i] = O[b, i] + Y[b, i] * Y[b, i]
    return O
"""
WHOLE = """
def f(X: Float[Array, "B M M"], Y: Float[Array, "B M"], n: Int[Array, "B", "0:M+1"],
      p: Int[Array, "B", "0:M+1"]):
    T = zeros((B, M, M)); G = zeros(B); O = zeros((B, M))
    for b in range(0, B):
        for i in range(0, n[b]):
            for j in range(0, p[b]):
                T[b, i, j] = X[b, i, j] * X[b, i, j]
    for b in range(0, B):
        for i in range(0, M):
            for j in range(0, M):
                G[b] = G[b] + T[b, i, j]
    for b in range(0, B):
        for i in range(0, n[b]):
            O[b, i] = G[b] * Y[b, i]
    return O
"""
EMPTY_ROWS = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(0, M):
        l = 0.0
        for j in range(0, N):
            if j >= i - 3 and j <= i:
                l = l + abs(sum(Q[i, e] * K[j, e] for e in range(0, E)))
        for j in range(0, N):
            if j >= i - 3 and j <= i:
                for d in range(0, D):
                    O[i, d] = O[i, d] + sum(Q[i, e] * K[j, e] for e in range(0, E)) / l * V[j, d]
    return O
"""
EMPTY = """
def f(x: Float[Array, "N"], y: Float[Array, "N"], k: Bool[Array, "N"]):
    l = 0.0; o = 0.0
    for j in range(0, N):
        if k[j]:
            l = l + abs(x[j])
    for j in range(0, N):
        if k[j]:
            o = o + x[j] / l * y[j]
    return o
"""
INFINITE = """
def f(P: Float[Array, "M N"], C: Float[Array, "M"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            if j >= i - 3 and j <= i:
                for d in range(0, D):
                    O[i, d] = O[i, d] + P[i, j] * log(C[i] * C[i] * 0.0) * V[j, d]
    return O
"""
GUARDED_ROWS = """
def f(S: Float[Array, "M N"], V: Float[Array, "N D"], t: Float[Array, "M"], w: Float[Array, "M"]):
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            if w[i] > 0.0:
                for d in range(0, D):
                    O[i, d] = O[i, d] + S[i, j] / exp(t[i]) * V[j, d]
    return O
"""
COLUMNS = """
def f(X: Float[Array, "M F 2"], c: Float[Array, "M F"]):
    q = zeros((M, F, 2)); Y = zeros((M, M))
    for i in range(0, M):
        for f in range(0, F):
            q[i, f, 0] = X[i, f, 0] * c[i, f] - X[i, f, 1]
            q[i, f, 1] = X[i, f, 0] + X[i, f, 1] * c[i, f]
    for i in range(0, M):
        for j in range(0, M):
            Y[i, j] = sum(q[i, f, 0] * q[j, f, 0] for f in range(0, F)) + sum(
                q[i, f, 1] * q[j, f, 1] for f in range(0, F))
    return Y
"""
MADE = """
def f(X: Float[Array, "M N"]):
    O = zeros(M)
    for i in range(0, M):
        y = zeros(N)
        for j in range(0, N):
            y[j] = y[j] + X[i, j] * X[i, j]
        for j in range(0, N):
            O[i] = O[i] + y[j] * y[j]
    return O
"""
MASKED_ROWS = """
def f(Y: Float[Array, "M N"], X: Float[Array, "M N"], c: Bool[Array, "M N"]):
    O = zeros(M)
    for i in range(0, M):
        m = -inf; l = 0.0
        for j in range(0, N):
            m = max(m, Y[i, j] if c[i, j] else -inf)
        for j in range(0, N):
            l = l + exp((Y[i, j] if c[i, j] else -inf) - m)
        for j in range(0, N):
            if c[i, j]:
                O[i] = O[i] + exp(Y[i, j] - m) / l * X[i, j]
    return O
"""
BANKS = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], U: Float[Array, "L E"], V: Float[Array, "N"],
      W: Float[Array, "L"], t: float):
    O = zeros(M)
    for i in range(0, M):
        m = t
        for j in range(0, N):
            m = max(m, Q[i] @ K[j])
        for j in range(0, L):
            m = max(m, Q[i] @ U[j])
        l = exp(t - m)
        for j in range(0, N):
            l = l + exp(Q[i] @ K[j] - m)
        for j in range(0, L):
            l = l + exp(Q[i] @ U[j] - m)
        for j in range(0, N):
            O[i] = O[i] + exp(Q[i] @ K[j] - m) / l * V[j]
        for j in range(0, L):
            O[i] = O[i] + exp(Q[i] @ U[j] - m) / l * W[j]
    return O
"""
ONE_MORE = """
def f(Q: Float[Array, "M"], K: Float[Array, "N"], V: Float[Array, "N"]):
    O = zeros(M)
    for i in range(0, M):
        m = 0.0
        for j in range(0, N):
            m = max(m, 2.0 * Q[i] * K[j])
        l = 0.0
        for j in range(0, N):
            l = l + exp(2.0 * Q[i] * K[j] - m)
        total = exp(-m) + l
        for j in range(0, N):
            O[i] = O[i] + exp(2.0 * Q[i] * K[j] - m) / total * V[j]
    return O
"""
SHARED = """
def f(Q: Float[Array, "M"], K: Float[Array, "N"], U: Float[Array, "N"], V: Float[Array, "N"],
      W: Float[Array, "N"]):
    O = zeros(M); share = zeros(M)
    for i in range(0, M):
        m = -inf; a = 0.0; b = 0.0
        for j in range(0, N):
            m = max(m, max(Q[i] * K[j], Q[i] * U[j]))
        for j in range(0, N):
            a = a + exp(Q[i] * K[j] - m)
            b = b + exp(Q[i] * U[j] - m)
        share[i] = a / (a + b)
        for j in range(0, N):
            O[i] = O[i] + (exp(Q[i] * K[j] - m) * V[j] + exp(Q[i] * U[j] - m) * W[j]) / (a + b)
    return O, share
"""
START = """
def f(X: Float[Array, "M N"], s: Float[Array, "M"]):
    A = zeros(M); O = zeros(M)
    for i in range(0, M):
        m = s[i]
        for j in range(0, N):
            m = max(m, X[i, j])
        l = exp(s[i] - m)
        A[i] = l
        for j in range(0, N):
            l = l + exp(X[i, j] - m)
        O[i] = l
    return A, O
"""
DIGITS = """
def f(X: Float[Array, "G*R M"], Y: Float[Array, "G M"]):
    Z = zeros((G * R, M))
    for g in range(0, G):
        for r in range(0, R):
            for i in range(0, M):
                Z[g * R + r, i] = X[g * R + r, i] * Y[g, i]
    return Z
"""
NEGATIVE = "M=40,E=4,N=50,D=4,A=-5"
# Two sums of exponentials divide, each with a maximum of its own size.
TWO_RATES = """
def f(X: Float[Array, "M N"], V: Float[Array, "N"]):
    O = zeros(M)
    for i in range(M):
        m = max(X[i, j] for j in range(N))
        a = sum(exp(X[i, j] - m) for j in range(N))
        b = sum(exp(2.0 * X[i, j] - 2.0 * m) for j in range(N))
        for j in range(N):
            O[i] = O[i] + exp(X[i, j] - m) / (a + b) * V[j]
    return O
"""
# Integers beyond 32 bits: numbers, products of positions, what is chosen, what is carried.
LONG = """
def f(x: Float[Array, "M N"], a: Int[Array, "M N", "0:99"]):
    s = zeros(M, dtype=int64); t = full(M, -1, dtype=int64); u = zeros(M, dtype=int64)
    v = zeros(M, dtype=int64)
    for i in range(M):
        h = 0
        for j in range(N):
            s[i] += 200000000
            t[i] = max(t[i], j * j * 1000000)
            u[i] = u[i] + (3000000000 if x[i, j] > 0.0 else 1)
            h = h * 31 + a[i, j] if j < 12 else h
        v[i] = h
    return s, t, u, v
"""
# A sum of floats goes into an array of integers, which rounds it once.
ROUNDED = """
def f(x: Float[Array, "M N"]):
    n = zeros(M, dtype=int64); O = zeros(M)
    for i in range(M):
        m = max(x[i, j] for j in range(N))
        l = sum(exp(x[i, j] - m) for j in range(N))
        n[i] = sum(3.0 * exp(x[i, j] - m) for j in range(N))
        O[i] = m + log(l)
    return n, O
"""
# Two digits in a local array that the backward pass works out again as a number.
HALVES = """
def f(X: Float[Array, "2*N"]):
    Y = zeros(2 * N); z = zeros(N)
    for i in range(N):
        Y[i] = X[i] * X[N + i]
        Y[N + i] = X[i]
    for i in range(N):
        z[i] = sum(Y[i] * Y[N + i] * X[k] for k in range(N))
    return z
"""
# How many there are is worked out of where they begin, and divides.
HOW_MANY = """
def f(X: Float[Array, "M N"]):
    Y = zeros((M, N))
    for i in range(M):
        for t in range(N):
            lo = max(0, t - 3)
            n = t + 1 - lo
            Y[i, t] = sqrt(sum((X[i, u] - X[i, t]) ** 2 for u in range(lo, t + 1)) / n + 0.5)
    return Y
"""
# Digits of what is handed over and of gradients stay apart where those of a local are joined.
NUMBERED = """
def f(X: Float[Array, "B T V"]):
    part = zeros(B * T, dtype=float32); loss = 0.0
    for b in range(B):
        for t in range(T):
            m = -inf; s = 0.0
            for v in range(V):
                m = max(m, X[b, t, v])
            for v in range(V):
                s += exp(X[b, t, v] - m)
            part[b * T + t] = m + log(s)
    for n in range(B * T):
        loss += part[n]
    return loss
"""
# Guards inside the loop are what keeps the rows in the array.
MORE_ROWS = """
def f(A: Float[Array, "M N"], P: int):
    y = zeros(M)
    for i in range(0, P):
        for j in range(0, N):
            if i < M:
                y[i] += A[i, j]
    return y
"""


def products(term: str, more: str = "s: float", before: str = "pass_ = x") -> str:
    return PRODUCTS.format(term=term, more=more, before=before.replace("; ", "\n            "))


@pytest.mark.parametrize(
    ("text", "sizes", "passes"),
    [
        (ROWS.format(mask="0.0", value="s"), "M=30,N=40", "forward"),
        (ROWS.format(mask="-inf", value="exp(s)"), "M=30,N=40", "forward"),
        (products("u * x", before="t = tanh(x); x = x + 3.0; u = 1.0 - t ** 2"), "", "forward"),
        (products("y * x * c", before="c = 0.5; y = c / s if j <= i else 0.0; c = c + 1.0"), "",
         "forward"),
        (products("(x if j >= A and j <= i or j == i + 9 else 0.0)", "A: int"), NEGATIVE, "both"),
        (products("(x if j <= i + A % 3 else 0.0)", "A: int"), NEGATIVE, "forward"),
        (GUARDED, "M=5,N=7", "forward"),
        (TWO_ENDS, "B=3,M=6", "both"),
        (WHOLE, "B=3,M=6", "both"),
        (EMPTY_ROWS, "M=40,N=9,E=3,D=2", "both"),
        (EMPTY, "N=1", "both"),
        (INFINITE, "M=40,N=9,D=2", "forward"),
        (MASKED_ROWS, "M=9,N=1", "both"),
        (GUARDED_ROWS, "M=20,N=37,D=3", "forward"),
        (MADE, "M=5,N=7", "both"),
        (COLUMNS, "M=5,F=3", "forward"),
        (ONE_MORE, "M=9,N=7", "both"),
        (START, "M=5,N=7", "forward"),
        (DIGITS, "G=2,R=3,M=5", "both"),
        (SHARED, "M=9,N=7", "both"),
        (TWO_RATES, "M=5,N=9", "both"),
        (LONG, "M=3,N=50", "forward"),
        (ROUNDED, "M=3,N=20", "forward"),
        (MORE_ROWS, "M=5,N=7,P=40", "forward"),
        (PIECES, "M=3,R=7,F=2", "both"),
        (HOW_MANY, "M=2,N=9", "both"),
        (NUMBERED, "B=2,T=3,V=5", "both"),
    ],
    ids=["max of 0", "max of exp", "tanh", "set twice", "window", "remainder", "guarded",
         "two ends", "whole", "empty rows", "empty", "infinite", "masked rows", "guarded rows",
         "made", "columns", "one more", "start", "digits", "shared", "two rates", "long",
         "rounded", "more rows", "pieces", "how many", "numbered"],
)  # fmt: skip
def test_what_was_wrong_once(
    text: str, sizes: str, passes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "listing.py"
    path.write_text(text)
    at = ["--sizes", sizes or "M=33,N=40,E=4,D=5"]
    status = main(["verify", str(path), "--pass", passes, "--dtype", "float32", *at])
    assert status == 0, capsys.readouterr()


def test_all_that_divides_gives_the_weights_their_one_saved_number(tmp_path: Path) -> None:
    """The sum of one bank alone may be 0 where the greatest score is in the other."""
    path = tmp_path / "listing.py"
    path.write_text(BANKS)
    found = backward(load(str(path)))
    assert [saved.name for saved in found.saved if saved.name.startswith(("l", "m"))] == ["lse"]


def test_sequences_are_apart_only_where_no_end_falls() -> None:
    """`cu[1] > cu[2]` is allowed: sequence 2 may lie in the room of sequence 0."""
    apart = """
def f(X: Float[Array, "T"], cu: Int[Array, "B+1", "0:T+1"], n: Int[Array, "B", "-4:T+1"]):
    assert all(cu[b] <= cu[b + 1] for b in range(0, {}))
    assert all(cu[b] + n[b] <= cu[b + 1] for b in range(0, B))
    Y = zeros(T)
    for b in range(0, B):
        for i in range(cu[b], cu[b] + n[b]):
            Y[i] = X[i] * b
    return Y
"""
    found = [verdicts(apart.format(end))["b"].memory.decision for end in ("B", "1")]
    assert found[0] == "parallel"
    assert found[1] != "parallel"


def test_digits_of_what_is_worked_out_again(tmp_path: Path) -> None:
    path = tmp_path / "listing.py"
    path.write_text(HALVES)
    assert backward(load(str(path))).gradients == {"X": "dX"}


def test_a_sum_that_only_some_rows_have_stays_under_its_condition(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "listing.py"
    path.write_text("""
def f(x: Float[Array, "M N"]):
    O = zeros(M)
    for i in range(M):
        m = max(x[i, j] for j in range(N))
        l = sum(exp(x[i + 1, j] - m) for j in range(N)) if i < M - 1 else 0.0
        O[i] = m + l
    return O
""")
    assert main(["derive", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "write the sum" not in shown
    assert shown.count("sum(exp(x[i + 1, j] - m) for j in range(0, N)) if i < M - 1 else 0.0") > 0


def test_a_row_of_its_own_where_a_loop_runs_one_by_one(tmp_path: Path) -> None:
    """What is left of a stick is no fold, and how often it is broken depends on the row."""
    path = tmp_path / "f.py"
    path.write_text("""
def f(Q: Float[Array, "M E"], K: Float[Array, "M E"], V: Float[Array, "M E"]):
    O = zeros((M, E))
    for i in range(0, M):
        rest = 0.0
        for u in range(0, i):
            z = sum(Q[i, e] * K[i - 1 - u, e] for e in range(0, E))
            for e in range(0, E):
                O[i, e] = O[i, e] + exp(min(z, 0.0) + rest) * V[i - 1 - u, e]
            rest = rest - max(z, 0.0) - log(1.0 + exp(-abs(z)))
    return O
""")
    assert main(["verify", str(path), "--sizes", "M=5,E=3", "--dtype", "float32"]) == 0


@pytest.mark.parametrize(("second", "status"), [("2 * f + 1", 0), ("2 * f + 2", 1)])
def test_an_array_is_written_in_pieces_where_no_cell_is_written_twice(
    second: str, status: int, tmp_path: Path
) -> None:
    path = tmp_path / "listing.py"
    path.write_text(f"""
def f(X: Float[Array, "F"]):
    Y = zeros(2 * F + 2)
    for f in range(F):
        Y[2 * f] = X[f]
        Y[{second}] = -X[f]
    return Y
""")
    assert main(["emit", str(path), "-o", str(tmp_path)]) == status


# A rotation of neighbours written into arrays, which a product then reads whole.
NEIGHBOURS = """
def f(q: Float[Array, "T E"], k: Float[Array, "T E"], c: Float[Array, "T F"]):
    assert E == 2 * F
    rq = empty((T, E)); rk = zeros((T, E)); S = zeros((T, T))
    for t in range(T):
        for f in range(F):
            rq[t, 2 * f] = q[t, 2 * f] * c[t, f] - q[t, 2 * f + 1]
            rq[t, 2 * f + 1] = q[t, 2 * f + 1] * c[t, f] + q[t, 2 * f]
            rk[t, 2 * f] = k[t, 2 * f] * c[t, f] - k[t, 2 * f + 1]
            rk[t, 2 * f + 1] = k[t, 2 * f + 1] * c[t, f] + k[t, 2 * f]
    for t in range(T):
        for u in range(T):
            S[t, u] = tanh(sum(rq[t, f] * rk[u, f] for f in range(E)))
    return S
"""


def test_what_neighbours_are_written_into_is_read_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "listing.py"
    path.write_text(NEIGHBOURS)
    text = listing(backward(load(str(path))).program)
    assert "for f in range(0, E):" in text
    assert "drq = zeros((T, E)" in text
    status = main(["verify", str(path), "--dtype", "float32", "--sizes", "T=5,E=6,F=3"])
    assert status == 0, capsys.readouterr()


@pytest.mark.parametrize(
    "score",
    [
        "s = tanh(w[i, u]) if u < P or c[i, u - P] else -inf",
        "ok = u < P or c[i, u - P]\n            s = tanh(w[i, u]) if ok else -inf",
    ],
)
def test_what_is_read_behind_an_or_says_nothing_of_the_rest(
    score: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name for the test is set again in each loop."""
    path = tmp_path / "f.py"
    path.write_text(f"""
def f(w: Float[Array, "M P+N"], c: Bool[Array, "M N"], P: int):
    y = zeros(M)
    for i in range(M):
        l = 1.0
        for u in range(P + N):
            {score}
            l = l + exp(s)
        for u in range(P + N):
            {score}
            y[i] += exp(s) / l * w[i, u]
    return y
""")
    command = ["verify", str(path), "--pass", "backward", "--dtype", "float32"]
    assert main([*command, "--sizes", "M=2,P=2,N=3"]) == 0, capsys.readouterr()


def test_a_name_for_a_test_that_is_set_again_is_told_apart() -> None:
    """An iteration before, or a guard, may have set it."""
    text = listing(
        with_tests_put_in(
            program("""
def f(x: Float[Array, "M N"], a: Bool[Array, "N"], b: Bool[Array, "M"]):
    y = zeros(M)
    for i in range(M):
        ok = b[i]
        y[i] = x[i, 0] if ok else 1.0
        for j in range(N):
            y[i] += x[i, j] if ok else 2.0
            ok = a[j]
            y[i] += x[i, j] if ok else 3.0
            if b[i]:
                ok = i < j
            y[i] += x[i, j] if ok else 4.0
        y[i] += x[i, 0] if ok else 5.0
    return y
""")
        )
    )
    assert "x[i, 0] if b[i] else 1.0" in text
    assert "x[i, j] if a[j] else 3.0" in text
    for kept in ("x[i, j] if ok else 2.0", "x[i, j] if ok else 4.0", "x[i, 0] if ok else 5.0"):
        assert kept in text


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        # All exponentials may be rounded to 0, and so may their sum.
        ("y[i] = a / (l + 0.001)", "M=3,N=5"),
        # What 1 - exp(-w) leaves is 0, and its power has a slope.
        ("y[i] = a + (1.0 - exp(0.0 * l)) ** (h * h)", "M=2,N=3"),
        # To the power of 0 it is 1.
        ("y[i] = sum(v[k] * (x[i] - x[0]) ** k for k in range(N))", "M=2,N=3"),
    ],
)
def test_nothing_is_divided_by_what_is_0(
    body: str, sizes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.py"
    path.write_text(f"""
def f(x: Float[Array, "M"], c: Float[Array, "N"], v: Float[Array, "N"], h: float):
    y = zeros(M)
    for i in range(M):
        l = 0.0
        a = 0.0
        for j in range(N):
            w = exp(-1000.0 * (x[i] - c[j]) ** 2)
            l += w
            a += w * v[j]
        {body}
    return y
""")
    command = ["verify", str(path), "--pass", "backward", "--dtype", "float32"]
    assert main([*command, "--sizes", sizes]) == 0, capsys.readouterr()


def test_a_truth_value_of_one_iteration_is_read_in_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.py"
    path.write_text("""
def f(x: Float[Array, "M N"], a: Bool[Array, "N"], b: Bool[Array, "M"]):
    y = zeros(M)
    for i in range(M):
        ok = b[i]
        for j in range(N):
            y[i] += x[i, j] ** 2 if ok else 0.5 * x[i, j]
            ok = a[j]
    return y
""")
    command = ["verify", str(path), "--dtype", "float32", "--sizes", "M=3,N=5"]
    assert main(command) == 0, capsys.readouterr()


def test_an_operand_that_is_rounded_is_a_rounding_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a single term: nothing evens out there."""
    path = tmp_path / "f.py"
    path.write_text("""
def f(S: Float[Array, "R C"], V: Float[Array, "C D"]):
    Z = zeros((R, D))
    for r in range(R):
        l = exp(0.0)
        for c in range(C):
            l = l + exp(S[r, c])
        for c in range(C):
            for d in range(D):
                Z[r, d] = Z[r, d] + exp(S[r, c]) / l * V[c, d]
    return Z
""")
    for seed in range(4):
        command = ["verify", str(path), "--pass", "both", "--dtype", "float16"]
        assert main([*command, "--seed", str(seed), "--sizes", "R=1,C=1,D=1"]) == 0, (
            capsys.readouterr()
        )


def test_what_is_left_of_rounded_operands_is_off_by_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One weight less another: a rounding of either may be much of what is left."""
    assert main(["variant", "--differential", "--sinks"]) == 0
    path = tmp_path / "f.py"
    path.write_text(capsys.readouterr().out)
    for seed in (0, 2, 3):
        command = ["verify", str(path), "--dtype", "float16", "--seed", str(seed)]
        assert main([*command, "--sizes", "B=1,H=1,M=1,E=1,N=1,D=1"]) == 0, capsys.readouterr()
