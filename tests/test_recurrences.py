"""Loops that hand values on: their backward pass, and the kernels of both passes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.carried.states_kept import with_states_kept
from looptrans.adjoint.refusal import NotDifferentiated
from looptrans.blocks.lower import lower
from looptrans.cli.main import main
from looptrans.derivation.derive import derive
from looptrans.executor import execute, prepare
from looptrans.ir.listing import listing as text_of
from looptrans.ir.program import Program
from tests.analysis import program
from tests.test_adjoint_closed import gaps
from tests.test_adjoint_torch import gradients

CHOLESKY = """
def f(A: Float[Array, "N N"]):
    L = zeros((N, N))
    for j in range(N):
        L[j, j] = sqrt(A[j, j] - sum(L[j, k] * L[j, k] for k in range(j)))
        for i in range(j + 1, N):
            L[i, j] = (A[i, j] - sum(L[i, k] * L[j, k] for k in range(j))) / L[j, j]
    return L
"""
# Blocks of two widths over one array.
TWO_WIDTHS = """
def f(K: Float[Array, "N"]):
    O = zeros(N)
    S = 0.0
    for c in range(0, N, 4):
        for i in range(c, min(c + 4, N)):
            O[i] = K[i] * S
        S += sum(K[j] for j in range(c, min(c + 4, N)))
    for c in range(0, N, 3):
        for i in range(c, min(c + 3, N)):
            O[i] = O[i] * O[c]
    return O
"""

SIZES = {"T": 5, "B": 2, "D": 3, "E": 2, "N": 4, "M": 3}
ALL = """
### through an array
def f(A: Float[Array, "B T D"], X: Float[Array, "B T D"], h0: Float[Array, "B D"]):
    h = zeros((B, T + 1, D))
    for b in range(B):
        for d in range(D):
            h[b, 0, d] = h0[b, d]
        for t in range(T):
            for d in range(D):
                h[b, t + 1, d] = tanh(A[b, t, d] * h[b, t, d] + X[b, t, d])
    return h
### a sum of all so far, twice
def f(x: Float[Array, "N"], w: Float[Array, "N"]):
    P = zeros(N); run = 0.0; y = zeros(N)
    for i in range(0, N):
        if i == 0:
            P[i] = x[i]
        else:
            P[i] = P[i - 1] + x[i] * x[i]
        run += P[i] * w[i]
        y[i] = exp(0.1 * run)
    return y, P
### a sum of all so far, among scores
def f(Q: Float[Array, "B N E"], K: Float[Array, "B N E"], V: Float[Array, "B N D"],
      F: Float[Array, "B N"]):
    c = zeros((B, N)); O = zeros((B, N, D))
    for b in range(B):
        for t in range(N):
            c[b, t] = (c[b, t - 1] if t > 0 else 0.0) - log(1 + exp(-F[b, t]))
        for i in range(N):
            m = max(Q[b, i] @ K[b, j] + c[b, i] - c[b, j] for j in range(i + 1))
            l = sum(exp(Q[b, i] @ K[b, j] + c[b, i] - c[b, j] - m) for j in range(i + 1))
            for d in range(D):
                O[b, i, d] = sum(
                    exp(Q[b, i] @ K[b, j] + c[b, i] - c[b, j] - m) * V[b, j, d]
                    for j in range(i + 1)
                ) / l
    return O
### downwards, and what is read elsewhere
def f(A: Float[Array, "T"], X: Float[Array, "T"]):
    h = zeros(T + 1); y = zeros(T)
    for t in range(T - 1, -1, -1):
        h[t] = A[t] * h[t + 1] + X[t]
        y[t] = tanh(h[t]) * X[t]
    for t in range(T):
        y[t] = y[t] + h[t] * h[t + 1]
    return y
### a network with a gate and two states
def f(U: Float[Array, "D D"], W: Float[Array, "D D"], X: Float[Array, "T D"]):
    h = zeros((T + 1, D)); c = zeros(D)
    for t in range(T):
        for d in range(D):
            g = 1.0 / (1.0 + exp(-(sum(U[d, k] * h[t, k] for k in range(D)) + X[t, d])))
            c[d] = g * c[d] + (1.0 - g) * sum(W[d, k] * h[t, k] for k in range(D)) + X[t, d]
            h[t + 1, d] = g * tanh(c[d])
    return h
### a delay alone
def f(x: Float[Array, "B N"], a: float, b: float):
    y = zeros((B, N))
    for i in range(B):
        last = 0.0
        for t in range(N):
            y[i, t] = a * x[i, t] + b * last
            last = x[i, t]
    return y
### delays of what comes in and what goes out, one way and back
def f(x: Float[Array, "B N"], a: float, b: float, c: float):
    u = zeros((B, N)); y = zeros((B, N))
    for i in range(B):
        x1 = 0.0; u1 = 0.0; u2 = 0.0
        for t in range(N):
            u[i, t] = a * x[i, t] + b * x1 + c * u1 - 0.5 * u2
            x1 = x[i, t]; u2 = u1; u1 = u[i, t]
    for i in range(B):
        x1 = 0.0; y1 = 0.0
        for t in range(N - 1, -1, -1):
            y[i, t] = a * x1 + c * y1 + u[i, t]
            x1 = x[i, t]; y1 = y[i, t]
    return y
### a number that is held until the next one
def f(x: Float[Array, "N"], g: Float[Array, "N"]):
    y = zeros(N)
    held = 0.0
    for t in range(N):
        if t % 2 == 1:
            held = x[t]
        y[t] = g[t] * held
    return y
### a row that is held while a gate is shut
def f(X: Float[Array, "T D"], g: Float[Array, "T"]):
    y = zeros((T, D)); held = zeros(D)
    for t in range(T - 1, -1, -1):
        for d in range(D):
            if g[t] > 0.0:
                held[d] = X[t, d]
            y[t, d] = held[d] * g[t]
    return y
### two iterations back
def f(a: Float[Array, "T"], b: Float[Array, "T"]):
    x = zeros(T)
    for t in range(T):
        x[t] = a[t] * (x[t - 1] if t >= 1 else 0.0) + b[t] * (x[t - 2] if t >= 2 else 1.0)
    return x
### a triangular system
def f(L: Float[Array, "N N"], b: Float[Array, "N"]):
    x = zeros(N)
    for i in range(N):
        x[i] = (b[i] - sum(L[i, j] * x[j] for j in range(i))) / (2.0 + L[i, i] ** 2)
    return x
### a table
def f(A: Float[Array, "M N"]):
    D = zeros((M + 1, N + 1))
    for i in range(M):
        for j in range(N):
            D[i + 1, j + 1] = A[i, j] - log(exp(-D[i, j + 1]) + exp(-D[i + 1, j]) + exp(-D[i, j]))
    return D
### the delta rule
def f(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T D"],
      beta: Float[Array, "T"]):
    S = zeros((T + 1, E, D)); O = zeros((T, D)); u = zeros((T, D))
    for t in range(T):
        for d in range(D):
            u[t, d] = beta[t] * (V[t, d] - sum(K[t, e] * S[t, e, d] for e in range(E)))
        for e in range(E):
            for d in range(D):
                S[t + 1, e, d] = S[t, e, d] + K[t, e] * u[t, d]
        for d in range(D):
            O[t, d] = sum(Q[t, e] * S[t + 1, e, d] for e in range(E))
    return O
### the delta rule, in a state
def f(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T D"],
      beta: Float[Array, "T"]):
    S = zeros((E, D)); O = zeros((T, D)); u = zeros((T, D))
    for t in range(T):
        for d in range(D):
            u[t, d] = beta[t] * (V[t, d] - sum(K[t, e] * S[e, d] for e in range(E)))
        for e in range(E):
            for d in range(D):
                S[e, d] = S[e, d] + K[t, e] * u[t, d]
        for d in range(D):
            O[t, d] = sum(Q[t, e] * S[e, d] for e in range(E))
    return O
### what is left in the end, read by all
def f(A: Float[Array, "T"]):
    h = ones(T + 1); y = zeros(T)
    for t in range(T):
        h[t + 1] = h[t] * A[t]
    for t in range(T):
        y[t] = A[t] * h[T]
    return y
### a network of rows
def f(W: Float[Array, "D D"], X: Float[Array, "B T D"], h0: Float[Array, "B D"]):
    h = zeros((B, T + 1, D))
    for b in range(B):
        for d in range(D):
            h[b, 0, d] = h0[b, d]
        for t in range(T):
            for d in range(D):
                h[b, t + 1, d] = tanh(sum(W[d, e] * h[b, t, e] for e in range(D)) + X[b, t, d])
    return h
### attention to a matrix that fades
def f(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T D"],
      g: Float[Array, "T"]):
    S = zeros((E, D)); O = zeros((T, D))
    for t in range(T):
        for e in range(E):
            for d in range(D):
                S[e, d] = g[t] * S[e, d] + K[t, e] * V[t, d]
        for d in range(D):
            O[t, d] = sum(Q[t, e] * S[e, d] for e in range(E))
    return O
### a scan whose sum stands in the same loop
def f(A: Float[Array, "D N"], L: Float[Array, "T D"], X: Float[Array, "T D"],
      K: Float[Array, "T N"], C: Float[Array, "T N"]):
    Y = zeros((T, D)); h = zeros((D, N))
    for t in range(T):
        for d in range(D):
            for n in range(N):
                new = exp(L[t, d] * A[d, n]) * h[d, n] + L[t, d] * K[t, n] * X[t, d]
                h[d, n] = new
                Y[t, d] += C[t, n] * new
    return Y
### steps of a descent, whose last state is the result
def f(G: Float[Array, "T D"], w0: Float[Array, "D"], lr: float, mu: float):
    w = zeros(D); m = zeros(D)
    for d in range(D):
        w[d] = w0[d]
    for t in range(T):
        for d in range(D):
            m[d] = mu * m[d] + G[t, d] * w[d]
            w[d] = w[d] - lr * m[d]
    return w
### a mean that is moved under a guard only
def f(X: Float[Array, "T D"], ok: Int[Array, "T", "0:2"], a: float):
    Y = zeros((T, D)); h = zeros(D)
    for t in range(T):
        for d in range(D):
            if ok[t] == 1:
                h[d] = (1.0 - a) * h[d] + a * X[t, d]
            Y[t, d] = h[d] * X[t, d]
    return Y
### a mean whose start is corrected by a power of the step
def f(G: Float[Array, "T D"], w0: Float[Array, "D"], lr: float, b: float):
    w = zeros(D)
    for d in range(D):
        w[d] = w0[d]
        m = 0.0
        for t in range(T):
            m = b * m + (1 - b) * G[t, d]
            w[d] = w[d] - lr * m / (1 - b ** (t + 1))
    return w
### the delta rule with a decay before it
def f(Q: Float[Array, "B T E"], K: Float[Array, "B T E"], V: Float[Array, "B T D"],
      beta: Float[Array, "B T"], g: Float[Array, "B T"]):
    O = zeros((B, T, D)); S = zeros((B, D, E))
    for b in range(B):
        for t in range(T):
            for d in range(D):
                for e in range(E):
                    S[b, d, e] *= exp(-abs(g[b, t]))
            for d in range(D):
                u = V[b, t, d]
                for e in range(E):
                    u -= S[b, d, e] * K[b, t, e]
                for e in range(E):
                    S[b, d, e] += beta[b, t] * u * K[b, t, e]
                O[b, t, d] = sum(S[b, d, e] * Q[b, t, e] for e in range(E))
    return O
### attention in chunks, to a matrix that fades from one to the next
def f(Q: Float[Array, "B T E"], K: Float[Array, "B T E"], V: Float[Array, "B T D"], g: float):
    R = zeros((E, D)); O = zeros((B, T, D))
    for b in range(B):
        for i in range(T):
            for d in range(D):
                cross = 0.0
                for e in range(E):
                    cross += Q[b, i, e] * R[e, d]
                O[b, i, d] = g ** (i + 1) * cross
        for e in range(E):
            for d in range(D):
                acc = 0.0
                for j in range(T):
                    acc += g ** (T - 1 - j) * K[b, j, e] * V[b, j, d]
                R[e, d] = g ** T * R[e, d] + acc
    return O
### a number that is set in three steps
def f(x: Float[Array, "T"], a: Float[Array, "T"], b: Float[Array, "T"]):
    h = 0.0
    y = zeros(T)
    for t in range(T):
        h *= tanh(a[t])
        h += x[t] * h
        h = h + b[t] if x[t] > 0.0 else h - b[t]
        y[t] = h * h
    return y
### sums of steps so far, and factors that are steps too
def f(X: Float[Array, "T M"], dt: Float[Array, "T M"], A: Float[Array, "M"],
      B: Float[Array, "T N"], C: Float[Array, "T N"]):
    Y = zeros((T, M)); s = zeros((M, T))
    for h in range(M):
        for t in range(T):
            s[h, t] = dt[t, h] * A[h] + (s[h, t - 1] if t >= 1 else 0.0)
        for i in range(T):
            for j in range(i + 1):
                g = exp(s[h, i] - s[h, j]) * sum(C[i, n] * B[j, n] for n in range(N)) * dt[j, h]
                Y[i, h] += g * X[j, h]
    return Y
### chunks of rows, by the state before them and among themselves
def f(Q: Float[Array, "M*N E"], K: Float[Array, "M*N E"], V: Float[Array, "M*N D"],
      a: Float[Array, "M*N"]):
    S = zeros((M + 1, D, E)); O = zeros((M * N, D)); s = zeros(M * N)
    for c in range(M):
        for r in range(N):
            s[c * N + r] = sum(a[c * N + t] for t in range(r + 1))
    for c in range(M):
        for r in range(N):
            for d in range(D):
                O[c * N + r, d] = exp(s[c * N + r]) * sum(
                    Q[c * N + r, e] * S[c, d, e] for e in range(E)
                )
            for t in range(r + 1):
                for d in range(D):
                    O[c * N + r, d] += (Q[c * N + r] @ K[c * N + t]) * V[c * N + t, d]
        for d in range(D):
            for e in range(E):
                S[c + 1, d, e] = exp(s[c * N + N - 1]) * S[c, d, e] + sum(
                    K[c * N + r, e] * V[c * N + r, d] for r in range(N)
                )
    return O
### a mean by weights beside their largest so far, over a floor
def f(Q: Float[Array, "B T D"], K: Float[Array, "B T D"],
      a: Float[Array, "B T"], F: Float[Array, "B T"]):
    Y = zeros((B, T, D)); n = zeros((B, D))
    for b in range(B):
        m = 0.0
        for t in range(T):
            top = max(F[b, t] + m, a[b, t])
            p = exp(F[b, t] + m - top)
            w = exp(a[b, t] - top)
            for d in range(D):
                n[b, d] = p * n[b, d] + w * K[b, t, d]
            m = top
            den = max(abs(sum(n[b, d] * Q[b, t, d] for d in range(D))), exp(-m))
            for d in range(D):
                Y[b, t, d] = n[b, d] / den
    return Y
"""
LISTINGS = dict(part.split("\n", 1) for part in ALL.split("### ")[1:])


def assert_gradients(listing: Program) -> None:
    """Compare what a backward listing computes with autograd over the statements, in float64."""
    found = backward(listing)
    assert all(step.decision == "legal" for step in found.steps)
    sizes = {p.name: SIZES[p.name] for p in listing.parameters if p.is_integer}
    made = prepare(listing, sizes, None, 1)
    inputs: dict[str, Any] = {**made.arrays, **made.reals}
    forward = execute(found.forward, sizes=sizes, inputs=inputs)
    for output, value in execute(listing, sizes=sizes, inputs=inputs).items():
        np.testing.assert_array_equal(forward[output], value)
    random = np.random.default_rng(2)
    incoming = {of: random.standard_normal(forward[of].shape) for of in found.of}
    given = {**inputs, **{found.incoming[of]: g for of, g in incoming.items()}}
    given |= {saved.name: forward[saved.name] for saved in found.saved}
    got = execute(found.program, sizes=sizes, inputs=given)
    want = gradients(listing, sizes, inputs, incoming)
    assert set(want) == set(found.gradients)
    for of, gradient in found.gradients.items():
        np.testing.assert_allclose(got[gradient], want[of], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", LISTINGS)
def test_gradients_through_time_are_those_of_autograd(name: str) -> None:
    assert_gradients(program(LISTINGS[name]))


def test_a_matrix_that_is_taken_apart_column_by_column_has_gradients() -> None:
    """Ranges of sums name each other; its columns wait for each other, and so do their rows."""
    found = backward(program(CHOLESKY))
    some = np.random.default_rng(5).standard_normal((5, 5))
    assert max(gaps(found, 1, {"N": 5}, A=some @ some.T + 5.0 * np.eye(5))) < 1e-12


def test_what_several_ways_lead_to_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two steps may be done in either order: without this, ways double with each step."""
    module = importlib.import_module("looptrans.adjoint.backward")
    found = module._of_any
    tried = []

    def of_any(listing: Program, *asked: tuple[str, ...] | None) -> object:
        tried.append(listing)
        return found(listing, *asked)

    monkeypatch.setattr(module, "_of_any", of_any)
    listing = program(TWO_WIDTHS)
    refusals = []
    for _ in range(2):
        with pytest.raises(NotDifferentiated) as refused:
            module._backward(listing, None, None)
        refusals.append(refused.value)
    assert len(tried) == len(set(tried))
    assert refusals[0].reason == refusals[1].reason
    assert refusals[0] is not refusals[1]
    with pytest.raises(NotDifferentiated):
        backward(listing)
    assert not module._found.cache_info().currsize


def test_gradients_are_handed_on_in_states() -> None:
    """Also where the first iteration sets nothing, or contents of an array decide what is set."""

    def states(listing: Program) -> list[tuple[object, ...]]:
        return [s.arguments for s in derive(listing, "fold").steps if s.kind == "state"]

    descent = backward(program(LISTINGS["steps of a descent, whose last state is the result"]))
    assert sorted(states(descent.program)) == [("dm_kept_before",), ("dw_kept_before",)]
    guarded = backward(program(LISTINGS["a mean that is moved under a guard only"]))
    assert states(guarded.forward) == [("h_kept",)]
    assert states(guarded.program) == [("dh_kept_before",)]
    # What is left as it was created where ok says so is not what the iteration before has set, and
    # what follows reads it in the same iteration.
    text = """
def f(X: Float[Array, "T D"], ok: Int[Array, "T", "0:2"]):
    h = zeros((T + 1, D)); Y = zeros((T, D))
    for t in range(T):
        for d in range(D):
            if ok[t] == 1:
                h[t + 1, d] = tanh(0.5 * h[t, d] + X[t, d])
            Y[t, d] = h[t + 1, d] * X[t, d]
    return Y
"""
    assert states(program(text)) == []


def test_chunks_of_rows_stay_chunks() -> None:
    """No row is looked for in each of them, and states are handed on beside products of sizes."""
    found = backward(
        program(LISTINGS["chunks of rows, by the state before them and among themselves"])
    )
    assert "range(0, M * N)" not in text_of(found.program)
    assert "dQ[c * N + r, t] = dQ[c * N + r, t] + " in text_of(found.program)
    steps = derive(found.forward, "fold").steps
    assert [s.arguments for s in steps if s.kind == "state"] == [("S",)]


def test_the_last_row_of_each_chunk_is_not_looked_for() -> None:
    text = """
def f(X: Float[Array, "T D"], w: Float[Array, "D"], L: Const):
    assert T == C * L
    y = zeros(C)
    for c in range(C):
        y[c] = sum(X[c * L + L - 1, d] * w[d] for d in range(D))
    return y
"""
    found = text_of(backward(program(text)).program)
    assert "range(0, T)" not in found
    assert "dX[c * L + l, d] = dy[c] * w[d]" in found


def test_states_are_kept_where_there_is_room() -> None:
    """A state for each query and key is more than attention has room for."""
    text = LISTINGS["attention to a matrix that fades"]
    kept = with_states_kept(program(text))
    assert kept is not None
    assert kept.note == "States are kept for every iteration: S_kept (T+1, E, D)."
    rows = """
def f(X: Float[Array, "M D"], Y: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            for d in range(D):
                O[i, d] = tanh(O[i, d] + X[i, d] * Y[j, d])
    return O
"""
    assert with_states_kept(program(rows)) is None
    with pytest.raises(NotDifferentiated, match="carried from one iteration of j") as refused:
        backward(program(rows))
    assert "for every iteration would take an array (M, D, N+1), and no" in refused.value.reason
    assert "return what O is in every iteration" in refused.value.remedy


def test_what_may_not_run_or_is_of_another_row_is_not_kept() -> None:
    """Numbers behind the loop are those before it then, which no statement would put there."""
    guarded = """
def f(A: Float[Array, "T D"], x: Float[Array, "D"]):
    h = zeros(D); z = zeros((T, D))
    for d in range(D):
        h[d] = x[d]
    if x[0] < 9.0:
        for t in range(T):
            for d in range(D):
                h[d] = tanh(A[t, d] * h[d]) + 0.3
    for d in range(D):
        z[0, d] = h[d] * h[d]
    return z
"""
    other = """
def f(A: Float[Array, "B T"]):
    h = ones(B); z = zeros((B, T))
    for b in range(B):
        for t in range(T):
            h[b] = sin(A[b, t] * h[b]) + 0.3
            if A[b, t] > 9.0:
                z[b, t] = h[B - 1 - b] * A[b, t]
    return z
"""
    short = """
def f(A: Float[Array, "T"]):
    Y = zeros(T)
    h = 0.5
    for t in range(T - 3, -1, -1):
        h = sin(A[t] * h) + 0.3
        Y[t] = h * h
    return Y
"""
    for text in (guarded, other, short):
        assert with_states_kept(program(text)) is None


def test_elements_that_look_at_each_other_are_no_state() -> None:
    """`h[d - 1]` is read after this iteration has set it: not what it was before."""
    text = """
def f(X: Float[Array, "T D"]):
    h = zeros(D)
    for t in range(T):
        for d in range(1, D):
            h[d] = tanh(h[d] + h[d - 1] * X[t, d])
    return h
"""
    assert with_states_kept(program(text)) is None


def test_what_is_handed_on_stays_in_a_state() -> None:
    found = derive(program(LISTINGS["through an array"]), "fold")
    assert [step.arguments for step in found.steps if step.kind == "state"] == [("h",)]
    assert " = tanh(A[b, t, d] * h_state" in text_of(found.last)
    network = text_of(
        derive(program(LISTINGS["a network with a gate and two states"]), "fold").last
    )
    assert "h_next[d] = g * tanh(c[d])" in network
    assert "h_state[d1] = h_next[d1]" in network


def test_what_is_handed_on_stays_in_a_state_beside_cells_that_are_looked_up() -> None:
    text = """
def f(x: Float[Array, "T"], level: Int[Array, "T", "0:L"], w: Float[Array, "T"]):
    h = zeros(T)
    y = zeros(L)
    for i in range(T):
        y[level[i]] += w[i]
    for t in range(T - 2, -1, -1):
        h[t] = h[t + 1] + x[t + 1]
    return h, y
"""
    assert "state" in {step.kind for step in derive(program(text), "fold").steps}


def test_a_state_starts_from_what_a_loop_around_has_written() -> None:
    """Where that repeats over the same cells, the first iteration finds more than zeros."""
    text = """
def f(X: Float[Array, "R T D"]):
    h = zeros((T + 1, D)); y = zeros((R, T, D))
    for r in range(R):
        for t in range(r, T):
            for d in range(D):
                h[t + 1, d] = 0.5 * h[t, d] + X[r, t, d]
                y[r, t, d] = h[t + 1, d]
    return y
"""
    assert "h_state[d] = h[r, d]" in text_of(derive(program(text), "fold").last)


def test_what_a_row_adds_up_stands_beside_it() -> None:
    """The row is one block then, and the loop over its own is not brought outside of time."""
    text = """
def f(A: Float[Array, "D N"], X: Float[Array, "T D"], C: Float[Array, "T N"]):
    Y = zeros((T, D)); h = zeros((D, N))
    for t in range(T):
        for d in range(D):
            for n in range(N):
                h[d, n] = A[d, n] * h[d, n] + X[t, d]
            for n in range(N):
                Y[t, d] += C[t, n] * h[d, n]
    return Y
"""
    found = text_of(derive(program(text), "fold").last)
    assert "Y[t, d] = sum(C[t, n] * h[d, n] for n in range(0, N))" in found
    assert found.index("for t in range") < found.index("for n in parallel")
    mixed = derive(program(LISTINGS["a scan whose sum stands in the same loop"]), "fold")
    assert [s.arguments for s in mixed.steps if s.kind == "loop as sum"] == [("S3",)]
    assert "for n in parallel" in text_of(mixed.last)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("through an array", "B=2,T=5,D=17"),
        ("attention to a matrix that fades", "T=4,E=3,D=5"),
        ("the delta rule, in a state", "T=3,E=3,D=5"),
        ("a network of rows", "B=2,T=3,D=5"),
        ("a scan whose sum stands in the same loop", "T=3,D=3,N=5"),
        ("a mean whose start is corrected by a power of the step", "T=5,D=7"),
        ("the delta rule with a decay before it", "B=2,T=3,D=5,E=3"),
        ("attention in chunks, to a matrix that fades from one to the next", "B=3,T=2,D=5,E=3"),
    ],
)
def test_kernels_of_recurrences(
    name: str, sizes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "listing.py"
    file.write_text(LISTINGS[name])
    assert main(["verify", str(file), "--pass", "both", "--sizes", sizes]) == 0
    assert "all right" in capsys.readouterr().out


def test_lanes_are_those_of_the_cells_whatever_loops_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two loops go over x at once, and a sum beside one: each has lanes of its own.

    Going backwards, u is set under a guard only, and has no row for the last iteration.
    """
    file = tmp_path / "listing.py"
    file.write_text("""
def f(X: Float[Array, "T D"], A: Float[Array, "D D"], g: Float[Array, "T D"]):
    C = zeros((D, D)); x = zeros(D); r = zeros(D); u = zeros((T, D))
    for t in range(T - 1, -1, -1):
        for d in range(D):
            x[d] = 0.5 * x[d] + X[t, d]
        for k in range(D):
            if t > 0:
                u[t - 1, k] = g[t, k]
            r[k] = 0.3 * r[k] + sum(A[k, e] * x[e] for e in range(D))
            r[k] = r[k] + (u[t - 1, k] if t > 0 else 0.0)
        for k in range(D):
            for d in range(D):
                C[k, d] = 0.5 * C[k, d] + x[k] * x[d] + r[d]
    return C, r, u
""")
    assert main(["verify", str(file), "--sizes", "T=3,D=5"]) == 0
    assert "all right" in capsys.readouterr().out


def test_a_guard_of_sizes_is_asked_in_each_program() -> None:
    """Under it the loops would be run by one program alone."""
    text = """
def f(X: Float[Array, "B D"], T: int):
    Y = zeros((B, D))
    if T > 1:
        for b in range(B):
            for d in range(D):
                Y[b, d] = X[b, d] * 2.0
    return Y
"""
    (kernel,) = lower(derive(program(text), "fold")).kernels
    assert [dim.name for dim in kernel.grid] == ["b", "d"]


def test_what_was_tried_is_said_in_the_names_of_the_listing() -> None:
    text = """
def f(q: Float[Array, "M"], k: Float[Array, "N"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        acc = 0.0
        for j in range(N - 1, -1, -2):
            z = q[i] * k[j]
            s = log(1.0 + exp(z))
            a = exp(z - s + acc)
            acc = acc - s
            for d in range(D):
                O[i, d] += a * V[j, d]
    return O
"""
    with pytest.raises(NotDifferentiated) as refused:
        backward(program(text))
    assert "O[i, d]: it is not the greater or the smaller" in str(refused.value)
    assert "k[j] cannot be read off" in str(refused.value)
    assert "s2" not in str(refused.value)
    assert "x1" not in str(refused.value)
