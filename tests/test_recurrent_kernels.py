"""Gated networks, states that look further back, and rows whose elements look at each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from looptrans.adjoint.backward import backward
from looptrans.algebra.free import freed
from looptrans.blocks.block_ir.program import NotLowered
from looptrans.blocks.lower import lower
from looptrans.cli.main import main
from looptrans.derivation.derive import derive
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing as text_of
from looptrans.transforms.editing.tree import loop_paths
from tests.analysis import program
from tests.test_recurrences import assert_gradients

ALL = """
### LSTM
def lstm(X: Float[Array, "T 4 D"], U: Float[Array, "4 D D"], h0: Float[Array, "D"],
         c0: Float[Array, "D"]):
    Y = zeros((T, D)); h = zeros(D); c = zeros(D); new = zeros(D)
    for k in range(D):
        h[k] = h0[k]
        c[k] = c0[k]
    for t in range(T):
        for k in range(D):
            i = 1.0 / (1.0 + exp(-(X[t, 0, k] + sum(U[0, k, e] * h[e] for e in range(D)))))
            f = 1.0 / (1.0 + exp(-(X[t, 1, k] + sum(U[1, k, e] * h[e] for e in range(D)))))
            g = tanh(X[t, 2, k] + sum(U[2, k, e] * h[e] for e in range(D)))
            o = 1.0 / (1.0 + exp(-(X[t, 3, k] + sum(U[3, k, e] * h[e] for e in range(D)))))
            c[k] = f * c[k] + i * g
            new[k] = o * tanh(c[k])
        for k in range(D):
            h[k] = new[k]
            Y[t, k] = new[k]
    return Y
### LSTM of rows, with peepholes
def peephole(X: Float[Array, "B T 4 D"], U: Float[Array, "4 D D"], P: Float[Array, "3 D"]):
    h = zeros((B, T + 1, D)); c = zeros((B, T + 1, D))
    for b in range(B):
        for t in range(T):
            for k in range(D):
                i = 1.0 / (1.0 + exp(-(X[b, t, 0, k] + P[0, k] * c[b, t, k]
                                       + sum(U[0, k, e] * h[b, t, e] for e in range(D)))))
                f = 1.0 / (1.0 + exp(-(X[b, t, 1, k] + P[1, k] * c[b, t, k]
                                       + sum(U[1, k, e] * h[b, t, e] for e in range(D)))))
                g = tanh(X[b, t, 2, k] + sum(U[2, k, e] * h[b, t, e] for e in range(D)))
                c[b, t + 1, k] = f * c[b, t, k] + i * g
                o = 1.0 / (1.0 + exp(-(X[b, t, 3, k] + P[2, k] * c[b, t + 1, k]
                                       + sum(U[3, k, e] * h[b, t, e] for e in range(D)))))
                h[b, t + 1, k] = o * tanh(c[b, t + 1, k])
    return h
### GRU
def gru(X: Float[Array, "T D"], Z: Float[Array, "T D"], R: Float[Array, "T D"],
        Uz: Float[Array, "D D"], Ur: Float[Array, "D D"], Uh: Float[Array, "D D"]):
    h = zeros((T + 1, D))
    for t in range(T):
        for k in range(D):
            z = 1.0 / (1.0 + exp(-(Z[t, k] + sum(Uz[k, e] * h[t, e] for e in range(D)))))
            r = 1.0 / (1.0 + exp(-(R[t, k] + sum(Ur[k, e] * h[t, e] for e in range(D)))))
            n = tanh(X[t, k] + r * sum(Uh[k, e] * h[t, e] for e in range(D)))
            h[t + 1, k] = (1.0 - z) * n + z * h[t, k]
    return h
### gated linear attention, whose decays stand before the loop that needs them
def gated(q: Float[Array, "T D"], v: Float[Array, "T D"], g: Float[Array, "T D"],
          b: Float[Array, "T"]):
    o = zeros((T, D)); S = zeros((D, D))
    for t in range(T):
        a = exp(-b[t] * b[t])
        for e in range(D):
            f = a / (1.0 + exp(-g[t, e]))
            for d in range(D):
                S[e, d] = f * S[e, d] + q[t, e] * v[t, d]
                o[t, d] += q[t, e] * S[e, d]
    return o
### LSTM whose gates stand in one array
def gates(x: Float[Array, "T D"], W: Float[Array, "4 D D"], U: Float[Array, "4 D D"]):
    hs = zeros((T, D)); h = zeros(D); c = zeros(D); g = zeros((T, 4, D))
    for t in range(T):
        for a in range(4):
            for u in range(D):
                g[t, a, u] = (sum(W[a, u, i] * x[t, i] for i in range(D))
                              + sum(U[a, u, k] * h[k] for k in range(D)))
        for u in range(D):
            c[u] = c[u] / (1 + exp(-g[t, 0, u])) + tanh(g[t, 2, u]) / (1 + exp(-g[t, 1, u]))
            h[u] = tanh(c[u]) / (1 + exp(-g[t, 3, u]))
            hs[t, u] = h[u]
    return hs
### GRU whose gate stands before what it gates
def cho(x: Float[Array, "T D"], Wz: Float[Array, "D D"], Wr: Float[Array, "D D"],
        Uz: Float[Array, "D D"], Ur: Float[Array, "D D"], Uh: Float[Array, "D D"]):
    h = zeros((T + 1, D)); z = zeros((T, D)); r = zeros((T, D))
    for t in range(T):
        for a in range(D):
            z[t, a] = 1 / (1 + exp(-(sum(Wz[a, i] * x[t, i] for i in range(D))
                                     + sum(Uz[a, c] * h[t, c] for c in range(D)))))
            r[t, a] = 1 / (1 + exp(-(sum(Wr[a, i] * x[t, i] for i in range(D))
                                     + sum(Ur[a, c] * h[t, c] for c in range(D)))))
        for a in range(D):
            n = tanh(sum(Uh[a, c] * r[t, c] * h[t, c] for c in range(D)))
            h[t + 1, a] = (1 - z[t, a]) * h[t, a] + z[t, a] * n
    return h
### minimal gated unit, whose gate stands before what it gates
def mgu(X: Float[Array, "T D"], F: Float[Array, "T D"], Uf: Float[Array, "D D"],
        Uh: Float[Array, "D D"]):
    h = zeros((T + 1, D)); f = zeros((T, D))
    for t in range(T):
        for k in range(D):
            f[t, k] = 1.0 / (1.0 + exp(-(F[t, k] + sum(Uf[k, e] * h[t, e] for e in range(D)))))
        for k in range(D):
            n = tanh(X[t, k] + sum(Uh[k, e] * (f[t, e] * h[t, e]) for e in range(D)))
            h[t + 1, k] = (1.0 - f[t, k]) * h[t, k] + f[t, k] * n
    return h
### two layers in one loop
def layers(X: Float[Array, "T D"], W: Float[Array, "D D"], V: Float[Array, "D D"],
           U: Float[Array, "D D"]):
    h = zeros((T + 1, D)); g = zeros((T + 1, D))
    for t in range(T):
        for d in range(D):
            h[t + 1, d] = tanh(X[t, d] + sum(W[d, e] * h[t, e] for e in range(D)))
        for d in range(D):
            g[t + 1, d] = tanh(sum(V[d, e] * h[t + 1, e] for e in range(D))
                               + sum(U[d, e] * g[t, e] for e in range(D)))
    return g
### both ways
def both(X: Float[Array, "T D"], W: Float[Array, "D D"], V: Float[Array, "D D"]):
    f = zeros((T + 1, D)); b = zeros((T + 1, D)); y = zeros((T, D))
    for t in range(T):
        for d in range(D):
            f[t + 1, d] = tanh(X[t, d] + sum(W[d, e] * f[t, e] for e in range(D)))
    for t in range(T - 1, -1, -1):
        for d in range(D):
            b[t, d] = tanh(X[t, d] + sum(V[d, e] * b[t + 1, e] for e in range(D)))
    for t in range(T):
        for d in range(D):
            y[t, d] = f[t + 1, d] * b[t, d]
    return y
### two iterations back
def order2(a: Float[Array, "D"], b: Float[Array, "D"], x: Float[Array, "T D"]):
    h = zeros((T + 2, D))
    for t in range(2, T + 2):
        for d in range(D):
            h[t, d] = a[d] * h[t - 1, d] + b[d] * h[t - 2, d] + x[t - 2, d]
    return h
### two iterations back, one number
def filtered(a: float, b: float, x: Float[Array, "T"]):
    h = zeros(T)
    for t in range(T):
        h[t] = a * (h[t - 1] if t >= 1 else 0.0) + b * (h[t - 2] if t >= 2 else 0.0) + x[t]
    return h
### hidden states
def hmm(A: Float[Array, "D D"], E: Float[Array, "T D"], p: Float[Array, "D"]):
    a = zeros((T, D))
    for s in range(D):
        a[0, s] = p[s] + E[0, s]
    for t in range(1, T):
        for s in range(D):
            m = max(a[t - 1, r] + A[r, s] for r in range(D))
            a[t, s] = m + log(sum(exp(a[t - 1, r] + A[r, s] - m) for r in range(D))) + E[t, s]
    return a
### how likely what hidden states show is
def seen(A: Float[Array, "D D"], E: Float[Array, "T D"], p: Float[Array, "D"]):
    a = zeros((T, D)); ll = zeros(1)
    for s in range(D):
        a[0, s] = p[s] + E[0, s]
    for t in range(1, T):
        for s in range(D):
            m = -inf
            for r in range(D):
                m = max(m, a[t - 1, r] + A[r, s])
            l = 0.0
            for r in range(D):
                l = l + exp(a[t - 1, r] + A[r, s] - m)
            a[t, s] = m + log(l) + E[t, s]
    top = -inf
    for s in range(D):
        top = max(top, a[T - 1, s])
    ll[0] = top + log(sum(exp(a[T - 1, s] - top) for s in range(D)))
    return ll
### labels along time
def ctc(P: Float[Array, "T N"], label: Int[Array, "D", "0:N"]):
    a = full((T, D), -1000.0)
    for s in range(min(2, D)):
        a[0, s] = P[0, label[s]]
    for t in range(1, T):
        for s in range(D):
            x = a[t - 1, s]
            y = a[t - 1, s - 1] if s >= 1 else -1000.0
            z = -1000.0
            if s >= 2 and label[s] != 0 and label[s] != label[s - 2]:
                z = a[t - 1, s - 2]
            m = max(x, y, z)
            a[t, s] = m + log(exp(x - m) + exp(y - m) + exp(z - m)) + P[t, label[s]]
    return a
### neighbours of a row that is one longer than the steps
def chain(E: Float[Array, "T D"], skip: Float[Array, "D"]):
    a = full((T + 1, D), -1000.0)
    a[0, 0] = 0.0
    for t in range(T):
        for s in range(D):
            x = a[t, s]
            y = a[t, s - 1] if s >= 1 else -1000.0
            z = a[t, s - 2] + skip[s] if s >= 2 else -1000.0
            m = max(x, y, z)
            a[t + 1, s] = m + log(exp(x - m) + exp(y - m) + exp(z - m)) + E[t, s]
    return a
### a wave between two walls
def wave(c: Float[Array, "D"], u0: Float[Array, "D"]):
    u = zeros((T + 2, D))
    for i in range(D):
        u[0, i] = u0[i]
        u[1, i] = u0[i]
    for t in range(2, T + 2):
        for i in range(1, D - 1):
            u[t, i] = (2.0 * u[t - 1, i] - u[t - 2, i]
                       + c[i] * (u[t - 1, i - 1] - 2.0 * u[t - 1, i] + u[t - 1, i + 1]))
    return u
### weights that decay along one sequence
def decaying(v: Float[Array, "T"], g: Float[Array, "T"], f: Float[Array, "T"]):
    F = zeros(T); h = zeros(T)
    run = 0.0
    for t in range(T):
        run += f[t]
        F[t] = run
    for t in range(T):
        m = -inf
        for s in range(t + 1):
            m = max(m, F[t] - F[s] + g[s])
        for s in range(t + 1):
            h[t] += exp(F[t] - F[s] + g[s] - m) * v[s]
    return h
### paths through a table, every cell of which is set one after the other
def paths(X: Float[Array, "T D"]):
    R = zeros((T, D))
    for t in range(T):
        for s in range(D):
            if t == 0 and s == 0:
                R[t, s] = X[t, s]
            elif t == 0:
                R[t, s] = R[t, s - 1] + X[t, s]
            elif s == 0:
                R[t, s] = R[t - 1, s] + X[t, s]
            else:
                R[t, s] = min(R[t - 1, s], R[t, s - 1], R[t - 1, s - 1]) + X[t, s]
    return R
### paths under a border, whose gradients are set one after the other
def bordered(X: Float[Array, "T D"], g: float):
    R = full((T + 1, D + 1), 9.0)
    R[0, 0] = 0.0
    for t in range(1, T + 1):
        for s in range(1, D + 1):
            a = exp(-R[t - 1, s - 1]) + exp(-R[t - 1, s]) + exp(-R[t, s - 1])
            R[t, s] = X[t - 1, s - 1] * g - log(a)
    return R
"""
LISTINGS = dict(part.split("\n", 1) for part in ALL.split("### ")[1:])

FORWARD = """
### most likely states
def viterbi(A: Float[Array, "D D"], E: Float[Array, "T D"], p: Float[Array, "D"]):
    v = zeros((T, D)); back = zeros((T, D), dtype=int32)
    for s in range(D):
        v[0, s] = p[s] + E[0, s]
    for t in range(1, T):
        for s in range(D):
            m = -inf
            k = 0
            for r in range(D):
                if v[t - 1, r] + A[r, s] > m:
                    m = v[t - 1, r] + A[r, s]
                    k = r
            v[t, s] = m + E[t, s]
            back[t, s] = k
    return v, back
### heat in two rows that take turns
def heat(u0: Float[Array, "D"], c: float, T: int):
    u = zeros(D); v = zeros(D)
    for i in range(D):
        u[i] = u0[i]
    for t in range(T):
        for i in range(1, D - 1):
            v[i] = u[i] + c * (u[i - 1] - 2.0 * u[i] + u[i + 1])
        for i in range(1, D - 1):
            u[i] = v[i]
    return u
### what an iteration does not set is as it was created
def part(W: Float[Array, "D D"], x: Float[Array, "D"]):
    h = zeros((T + 1, D))
    for d in range(D):
        h[0, d] = x[d]
    for t in range(T):
        for d in range(1, D):
            h[t + 1, d] = tanh(sum(W[d, e] * h[t, e] for e in range(D)))
    return h
### cells beside the row, and one that is set alone
def padded(E: Float[Array, "T D"], w: float):
    a = full((T + 1, D + 2), 0.5)
    a[0, 2] = 1.5
    for t in range(T):
        for s in range(D):
            a[t + 1, s + 2] = tanh(a[t, s + 2] + w * a[t, s + 1] + a[t, s]) + E[t, s]
    return a
### sums so far, in an array made for each column
def sums(X: Float[Array, "T D"]):
    Y = zeros((T, D))
    for d in range(D):
        s = zeros(T)
        for t in range(T):
            s[t] = X[t, d] + (s[t - 1] if t >= 1 else 0.0)
        for i in range(T):
            Y[i, d] = s[i] * 2.0
    return Y
### sums from the end, which a loop of programs has set
def suffixes(a: Float[Array, "T+1"]):
    y = zeros(T + 1)
    for t in range(T + 1):
        y[t] = a[t] ** 2
    for t in range(T - 1, -1, -1):
        y[t] = y[t] + y[t + 1]
    return y
### the best of the last states
def best(A: Float[Array, "D D"], E: Float[Array, "T D"], p: Float[Array, "D"]):
    v = zeros((T, D))
    for s in range(D):
        v[0, s] = p[s] + E[0, s]
    for t in range(1, T):
        for s in range(D):
            m = -inf
            for r in range(D):
                m = max(m, v[t - 1, r] + A[r, s])
            v[t, s] = m + E[t, s]
    score = max(v[T - 1, s] for s in range(D))
    return score
"""
FORWARD_ONLY = dict(part.split("\n", 1) for part in FORWARD.split("### ")[1:])


@pytest.mark.parametrize("name", LISTINGS)
def test_gradients_are_those_of_autograd(name: str) -> None:
    assert_gradients(program(LISTINGS[name]))


# The largest; what they round in 16 bits the others do too.
IN_FLOAT32 = (
    "LSTM",
    "LSTM of rows, with peepholes",
    "GRU",
    "LSTM whose gates stand in one array",
    "GRU whose gate stands before what it gates",
    "paths through a table, every cell of which is set one after the other",
    "paths under a border, whose gradients are set one after the other",
)


@pytest.mark.parametrize("name", LISTINGS)
def test_kernels_of_both_passes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "listing.py"
    file.write_text(LISTINGS[name])
    given = {p.name for p in program(LISTINGS[name]).parameters}
    sizes = [f"{size}={value}" for size, value in (("B", 2), ("T", 3), ("D", 5)) if size in given]
    types = ["--dtype", "fp32"] if name in IN_FLOAT32 else []
    assert main(["verify", str(file), "--pass", "both", "--sizes", ",".join(sizes), *types]) == 0
    assert "all right" in capsys.readouterr().out


@pytest.mark.parametrize("name", FORWARD_ONLY)
def test_kernels_of_the_forward_pass(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "listing.py"
    file.write_text(FORWARD_ONLY[name])
    given = {p.name for p in program(FORWARD_ONLY[name]).parameters}
    sizes = [f"{size}={value}" for size, value in (("T", 3), ("D", 5)) if size in given]
    assert main(["verify", str(file), "--sizes", ",".join(sizes)]) == 0
    assert "all right" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*LISTINGS, *FORWARD_ONLY])
def test_what_is_derived_means_the_same(name: str) -> None:
    """Rows that are a block are as long as they were, and nobody reads beside them."""
    listing = program({**LISTINGS, **FORWARD_ONLY}[name])
    for length in (1, 2, 5):
        sizes = {p.name: length for p in listing.parameters if p.is_integer}
        made = prepare(listing, sizes, None, 3)
        inputs: dict[str, Any] = {**made.arrays, **made.reals}
        last = derive(listing, "fold").last
        want = execute(listing, sizes=sizes, inputs=inputs)
        for output, value in execute(last, sizes=sizes, inputs=inputs).items():
            assert abs(value - want[output]).max() < 1e-9


def test_what_is_free_stands_beside_the_loop() -> None:
    """Products with what was kept are made for all iterations at once, though it has one more."""
    text = text_of(backward(program(LISTINGS["GRU"])).program)
    before, _ = text.split(", -1, -1):")
    for gate in ("z_sum", "r_sum", "n_sum"):
        assert f"{gate} = zeros((T, D), dtype=float32)" in before
    assert text.count("Uz[k, e] * h[t, e]") == 1


def test_what_adds_up_to_a_row_is_a_sum_over_a_row() -> None:
    """Each sum on its own, where one loop adds to several rows, or adds whole rows."""
    layers = text_of(
        derive(backward(program(LISTINGS["two layers in one loop"])).program, "fold").last
    )
    assert "dh_before_next[e] = dh_before_next[e] + sum(dh_before_state[d] * " in layers
    assert "dg_before_next[e] = sum((dg[x + 1, d] + dg_before_state[d]) * " in layers
    hidden = derive(backward(program(LISTINGS["hidden states"])).program, "fold")
    assert "da_before_state[r] = sum(da_3_sum_2[s] * " in text_of(hidden.last)


def test_a_state_for_each_iteration_that_is_looked_at() -> None:
    text = text_of(derive(program(LISTINGS["two iterations back"]), "fold").last)
    assert "a[d] * h_state[d] + b[d] * h_state_2[d] + x[t - 2, d]" in text
    assert text.index("h_state_2[d] = h_state[d]") < text.index("h_state[d] = h_next_d")


def test_other_lanes_are_found_by_a_sum_and_a_lane_of_its_own_is_not() -> None:
    heat = derive(program(FORWARD_ONLY["heat in two rows that take turns"]), "fold")
    kinds = [(s.kind, s.arguments) for s in heat.steps if s.kind in ("whole rows", "looked up")]
    assert kinds == [("whole rows", ("u",)), ("whole rows", ("v",)), ("looked up", ("u",))]
    text = text_of(heat.last)
    assert "sum(u[e] for e in range(0, D) if e == i - 1) - 2.0 * u[i] + sum(" in text
    assert "if i >= 1 and i < D - 1:" in text


def test_what_a_loop_has_set_is_read_by_the_kernel_behind_it() -> None:
    """Loops that no program shares are kernels of their own where one hands an array to another."""
    found = backward(program(LISTINGS["two iterations back, one number"])).program
    kernels = lower(derive(found, "fold")).kernels
    assert len(kernels) == 2
    assert [a.access for a in kernels[0].arrays if a.name == "dh_before"] == ["out"]
    assert [a.access for a in kernels[1].arrays if a.name == "dh_before"] == ["in"]


CHUNKS = """
def chunks(Q: Float[Array, "N D"], K: Float[Array, "N D"], V: Float[Array, "N"]):
    assert N == T * 4
    S = zeros(D); y = zeros(N)
    for t in range(T):
        for i in range(4):
            y[t * 4 + i] = sum(Q[t * 4 + i, d] * S[d] for d in range(D))
            for j in range(i + 1):
                s = sum(Q[t * 4 + i, d] * K[t * 4 + j, d] for d in range(D))
                y[t * 4 + i] += s * V[t * 4 + j]
        for j in range(4):
            for d in range(D):
                S[d] += K[t * 4 + j, d] * V[t * 4 + j]
    return y
"""


def test_a_state_that_a_loop_adds_to_is_set_once_in_an_iteration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "listing.py"
    file.write_text(CHUNKS)
    sizes = ["--sizes", "N=12,T=3,D=5", "--dtype", "fp32"]
    assert main(["verify", str(file), "--pass", "both", *sizes]) == 0
    assert "all right" in capsys.readouterr().out


def test_cells_of_chunks_that_overlap_are_not_of_one_iteration() -> None:
    lower(derive(program(CHUNKS), "fold"))
    with pytest.raises(NotLowered, match="the value would have to wait in memory"):
        lower(derive(program(CHUNKS.replace("y[t * 4 + i]", "y[t * 3 + i]")), "fold"))


def test_so_it_is_with_chunks_of_any_length() -> None:
    text = CHUNKS.replace("4", "C")
    lower(derive(program(text), "fold"))
    for other in ("range(C + 1)", "range(-1, C)", "range(2 * C)"):
        with pytest.raises(NotLowered, match="the value would have to wait in memory"):
            lower(derive(program(text.replace("i in range(C)", f"i in {other}")), "fold"))


SLOTS = """
def slots(k: Float[Array, "T D"], v: Float[Array, "T D"], a: Float[Array, "T M"]):
    o = zeros((T, D)); s = zeros((T, M)); K = zeros((M, D)); V = zeros((M, D))
    for t in range(T):
        for m in range(M):
            f = 1.0 / (1.0 + exp(-a[t, m]))
            for d in range(D):
                K[m, d] = f * K[m, d] + k[t, d]
            s[t, m] = sum(k[t, d] * K[m, d] for d in range(D))
    for t in range(T):
        for m in range(M):
            f = 1.0 / (1.0 + exp(-a[t, m]))
            for d in range(D):
                V[m, d] = f * V[m, d] + v[t, d]
                o[t, d] += s[t, m] * V[m, d]
    return o
"""


def test_loops_may_use_one_name_for_numbers_of_their_own() -> None:
    """As in a recurrence over keys and one over values, with the same decay."""
    kernels = lower(derive(program(SLOTS), "fold")).kernels
    assert [[a.name for a in kernel.arrays if a.access == "out"] for kernel in kernels] == [
        ["s"],
        ["o"],
    ]


def test_a_number_that_the_next_loop_looks_at_is_nobodys_own() -> None:
    kept = SLOTS.replace("            f = ", "            f += ", 2).replace("f += ", "f = ", 1)
    kept = kept.replace("K = zeros", "f = 0.0; K = zeros")
    own = program(SLOTS), program(kept)
    free = [[freed(p, path) is not None for path in loop_paths(p)] for p in own]
    assert free == [
        [False, True, True, False, False, True],
        [False, False, True, False, False, True],
    ]


def test_one_recurrence_goes_forward_and_another_one_backward() -> None:
    """As in a network that reads a sequence from both ends: each has its own way back."""
    both = program(
        """
def both(x: Float[Array, "T D"], f: Float[Array, "T D"], g: Float[Array, "T D"]):
    y = zeros((T, D))
    for d in range(D):
        h = 0.0
        for t in range(T):
            h = f[t, d] * h + x[t, d]
            y[t, d] = h
    for d in range(D):
        h = 0.0
        for t in range(T - 1, -1, -1):
            h = g[t, d] * h + x[t, d]
            y[t, d] += h
    return y
"""
    )
    assert_gradients(both)
    text = text_of(backward(both).program)
    assert text.count("in range(T, -1, -1):") == text.count("in range(0, T + 1):") == 1
