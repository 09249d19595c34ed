"""Attention several times in one listing: layer upon layer, or one that is repeated."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

from looptrans.adjoint.backward import backward  # noqa: E402
from looptrans.adjoint.refusal import NotDifferentiated  # noqa: E402
from looptrans.adjoint.rewriting.own_names import with_own_names  # noqa: E402
from looptrans.adjoint.rewriting.repetitions import (  # noqa: E402
    with_repetitions_written_out,
)
from looptrans.adjoint.rewriting.webs import with_webs_named  # noqa: E402
from looptrans.blocks.block_ir.ops import (  # noqa: E402
    TileLoop,
    has_products,
    most_dims,
    ops_in,
)
from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.listing import emitted  # noqa: E402
from looptrans.emit.refusal import Refused  # noqa: E402
from looptrans.executor import execute  # noqa: E402
from looptrans.ir.listing import listing  # noqa: E402
from tests.analysis import program  # noqa: E402
from tests.test_attention_strangers import compare, normal  # noqa: E402

# Each layer makes a row of its own under one name, and overwrites what the one before has made.
LAYER = """
    for s in range(S):
        m = -inf; z = 0.0
        new = zeros(E)
        for n in range(N):
            m = max(m, sum(H[s, e] * Y[n, e] for e in range(E)))
        for n in range(N):
            p = exp(sum(H[s, e] * Y[n, e] for e in range(E)) - m)
            z += p
            for e in range(E):
                new[e] += p * Y[n, e]
        for e in range(E):
            H[s, e] = new[e] / z
"""
LAYERS = f"""
def layers(X: Float[Array, "S E"], Y: Float[Array, "N E"]):
    H = zeros((S, E))
    for s in range(S):
        for e in range(E):
            H[s, e] = X[s, e]
{LAYER}
{LAYER}
    return H
"""
# What is retrieved asks again, a few times.
REPEATED = """
def retrieved(R: Float[Array, "S E"], Y: Float[Array, "N E"]):
    x = zeros((S, E))
    for s in range(S):
        for e in range(E):
            x[s, e] = R[s, e]
    for t in range(3):
        for s in range(S):
            m = -inf; z = 0.0
            for n in range(N):
                m = max(m, 0.5 * sum(x[s, e] * Y[n, e] for e in range(E)))
            new = zeros(E)
            for n in range(N):
                p = exp(0.5 * sum(x[s, e] * Y[n, e] for e in range(E)) - m)
                z += p
                for e in range(E):
                    new[e] += p * Y[n, e]
            for e in range(E):
                x[s, e] = new[e] / z
    return x
"""


def test_layers_that_use_the_same_names_are_one_pass_each() -> None:
    made = emitted_with_backward(program(LAYERS))
    (kernel,) = made.forward.kernels
    loops = [op for op in ops_in(kernel.body) if isinstance(op, TileLoop)]
    assert len(loops) == 4  # of full blocks and of the last one, for each layer
    assert not any("attains" in note for note in backward(program(LAYERS)).notes)

    def torch_(x: Any, y: Any) -> Any:
        for _ in range(2):
            x = torch.softmax(x @ y.mT, -1) @ y
        return x

    compare(LAYERS, torch_, normal((5, 4), (19, 4)), [])


def test_attention_that_is_repeated_is_one_pass_each_time() -> None:
    """Not a row of all scores, whose elements are looked for one by one."""
    (kernel,) = emitted(program(REPEATED)).blocks.kernels
    assert has_products(kernel.body) and most_dims(kernel.body) == 2

    def torch_(x: Any, y: Any) -> Any:
        for _ in range(3):
            x = torch.softmax(0.5 * x @ y.mT, -1) @ y
        return x

    compare(REPEATED, torch_, normal((5, 4), (19, 4)), [])


def test_a_residual_is_handed_on_from_layer_to_layer() -> None:
    """What differs from the sum that was kept would differ in the exponent, and without limit."""
    text = REPEATED.replace("x[s, e] = new[e] / z", "x[s, e] = x[s, e] + new[e] / z")
    found = backward(program(text))
    assert {"x2", "x3"} <= {saved.name for saved in found.saved}
    assert found.steps[0].name == "write out the iterations of t"

    def torch_(x: Any, y: Any) -> Any:
        for _ in range(3):
            x = x + torch.softmax(0.5 * x @ y.mT, -1) @ y
        return x

    compare(text, torch_, normal((5, 4), (19, 4)), [])


def test_what_is_overwritten_is_handed_over_and_no_maximum_is_looked_for() -> None:
    text = REPEATED.replace("t in range(3)", "t in range(1, 4)")
    found = backward(program(text))
    assert not any("attains" in note for note in found.notes)
    assert {"x2", "x3"} <= {saved.name for saved in found.saved}
    assert len([saved for saved in found.saved if saved.name.startswith("lse")]) == 3


def test_rows_that_compete_have_kernels_and_gradients() -> None:
    """Slot attention: a softmax over the rows that ask, then a mean for each of them, repeated."""
    text = """
def slots(X: Float[Array, "N E"], R: Float[Array, "S E"]):
    s = zeros((S, E))
    for k in range(S):
        for e in range(E):
            s[k, e] = R[k, e]
    for t in range(2):
        A = zeros((N, S)); c = zeros(S)
        for n in range(N):
            m = -inf; z = 0.0
            for k in range(S):
                m = max(m, sum(s[k, e] * X[n, e] for e in range(E)))
            for k in range(S):
                z += exp(sum(s[k, e] * X[n, e] for e in range(E)) - m)
            for k in range(S):
                A[n, k] = exp(sum(s[k, e] * X[n, e] for e in range(E)) - m) / z
        for n in range(N):
            for k in range(S):
                c[k] += A[n, k]
        for k in range(S):
            for e in range(E):
                s[k, e] = sum(A[n, k] / c[k] * X[n, e] for n in range(N))
    return s
"""

    def torch_(x: Any, s: Any) -> Any:
        for _ in range(2):
            a = torch.softmax(x @ s.mT, -1)
            s = (a / a.sum(0)).mT @ x
        return s

    compare(text, torch_, normal((19, 4), (3, 4)), [])


TWICE = """
def f(X: Float[Array, "M E"], Y: Float[Array, "M E"]):
    x = zeros((M, E))
    for i in range(M):
        for e in range(E):
            x[i, e] = X[i, e]
    for i in {rows}:
        for e in range(E):
            x[i, e] = x[i, e] * Y[i, e]
    return x
"""


def test_each_web_of_an_array_has_a_name() -> None:
    whole = with_webs_named(program(TWICE.format(rows="range(M)")))
    assert whole is not None and whole.names == ("x1",)
    assert "x[i, e] = x1[i, e] * Y[i, e]" in listing(whole.program)
    # A row that is not overwritten is what the first nest has made.
    assert with_webs_named(program(TWICE.format(rows="range(1, M)"))) is None
    # Sums go on from what they have.
    added = TWICE.format(rows="range(M)").replace("x[i, e] * Y", "x[i - i, e] * Y")
    assert with_webs_named(program(added)) is None


@pytest.mark.parametrize(
    ("loops", "found"),
    [
        ("t in range(3)", "t"),
        ("t in range(9)", None),  # many
        ("t in range(T)", None),
        ("t in range(2, -1, -1)", "t"),
    ],
)
def test_few_iterations_that_hand_something_on_are_written_out(
    loops: str, found: str | None
) -> None:
    text = f"""
def f(X: Float[Array, "M"], T: int):
    x = zeros(M)
    for {loops}:
        for i in range(M):
            x[i] = x[i] * X[i] + t
    return x
"""
    seen = with_repetitions_written_out(program(text))
    assert (seen.loops if seen else None) == ((found,) if found else None)
    if seen is not None:
        inputs = {"X": np.array([0.5, -2.0]), "T": np.array(3)}
        want = execute(program(text), inputs=inputs)["x"]
        np.testing.assert_array_equal(execute(seen.program, inputs=inputs)["x"], want)
    summed = text.replace("x[i] * X[i] + t", "x[i] + X[i] * t")
    assert with_repetitions_written_out(program(summed)) is None


def test_rows_that_are_added_to_others_are_handed_over() -> None:
    """What attention gathers is not gathered again to learn what its gradient sums to."""
    text = """
def with_residual(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
                  X: Float[Array, "M D"]):
    Y = zeros((M, D))
    for i in range(M):
        o = zeros(D)
        m = -inf; l = 0.0
        for j in range(N):
            m = max(m, Q[i] @ K[j])
        for j in range(N):
            p = exp(Q[i] @ K[j] - m)
            l += p
            for d in range(D):
                o[d] += p * V[j, d]
        for d in range(D):
            Y[i, d] = X[i, d] + o[d] / l
    return Y
"""
    found = backward(program(text))
    assert "o" in {saved.name for saved in found.saved}
    assert "o[i, d]" not in listing(found.program).replace("dY[i, d] * o[i, d]", "")

    def torch_(q: Any, k: Any, v: Any, x: Any) -> Any:
        return x + torch.softmax(q @ k.mT, -1) @ v

    compare(text, torch_, normal((5, 4), (19, 4), (19, 3), (5, 3)), [])


WEIGHTED = """
def stack(X: Float[Array, "S E"], W: Float[Array, "2 E F"]):
    x = zeros((S, E))
    for s in range(S):
        for e in range(E):
            x[s, e] = X[s, e]
    for t in range({layers}):
        q = zeros((S, F)); o = zeros((S, F))
        for s in range(S):
            for f in range(F):
                q[s, f] = sum(x[s, e] * W[t, e, f] for e in range(E))
        for i in range(S):
            m = -inf; l = 0.0
            for j in range(i + 1):
                m = max(m, sum(q[i, f] * q[j, f] for f in range(F)))
            for j in range(i + 1):
                p = exp(sum(q[i, f] * q[j, f] for f in range(F)) - m)
                l += p
                for f in range(F):
                    o[i, f] += p * q[j, f]
            for e in range(E):
                x[i, e] += sum(o[i, f] / l * W[t, e, f] for f in range(F))
    return x
"""


def test_layers_with_weights_of_their_own_are_a_kernel_for_each_nest() -> None:
    made = emitted_with_backward(program(WEIGHTED.format(layers=2)))
    assert len(made.forward.kernels) <= 5
    # A loop of one iteration makes its arrays once.
    assert backward(program(WEIGHTED.format(layers=1))).gradients == {"X": "dX", "W": "dW"}


def test_layers_with_weights_of_their_own_are_those_of_torch() -> None:
    def torch_(x: Any, w: Any) -> Any:
        for t in range(2):
            q = x @ w[t]
            mask = torch.ones(len(x), len(x), dtype=torch.bool).tril()
            scores = (q @ q.mT).masked_fill(~mask, -torch.inf)
            x = x + torch.softmax(scores, -1) @ q @ w[t].mT
        return x

    given = [0.5 * a for a in normal((9, 4), (2, 4, 3))]
    compare(WEIGHTED.format(layers=2), torch_, given, [])


RECURRENCE = """
def f(R: Float[Array, "E"], W: Float[Array, "4 E E"]):
    h = zeros(E)
    for e in range(E):
        h[e] = R[e]
    for t in range(4):
        g = zeros(E)
        for e in range(E):
            g[e] = tanh(sum(W[t, e, c] * h[c] for c in range(E)))
        for e in range(E):
            h[e] = g[e]
    return h
"""
STENCIL = """
def f(R: Float[Array, "N"]):
    x = zeros(N); y = zeros(N)
    for n in range(N):
        x[n] = R[n]
    for t in range(4):
        for n in range(1, N - 1):
            y[n] = tanh(x[n - 1] + x[n + 1])
        for n in range(1, N - 1):
            x[n] = y[n]
    return x
"""


def test_iterations_are_written_out_only_where_that_is_no_more_work() -> None:
    found = backward(program(RECURRENCE))
    assert not any(step.name.startswith("write out") for step in found.steps)
    assert "h_kept" in {saved.name for saved in found.saved}
    with pytest.raises(NotDifferentiated):  # each iteration would work all before it out again
        backward(program(STENCIL))


MADE_AGAIN = """
def f(A: Float[Array, "M N"], k: Int[Array, "M", "0:M"]):
    S = zeros((M, N)); y = zeros(M)
    for i in range(M):
        for j in range(N):
            S[i, j] = exp(A[i, j])
    for i in range(M):
        y[i] = sum(S[i, j] for j in range(N))
    S = {made}
    for i in range(M):
        for j in range(N):
            S[k[i], j] = A[i, j] * y[i] + S[i, j]
    return S
"""


def test_what_stands_behind_an_array_made_again_keeps_its_label() -> None:
    with pytest.raises(Refused) as refused:
        emitted(program(MADE_AGAIN.format(made="zeros((M, N))")))
    assert "S[k[i], j] = A" in str(refused.value) and "S4 reads S[i, j]" in str(refused.value)


def test_an_array_made_again_from_what_it_held_or_in_a_loop_keeps_its_name() -> None:
    assert with_own_names(program(MADE_AGAIN.format(made="ones((M, N))"))) is not None
    assert with_own_names(program(MADE_AGAIN.format(made="full((M, N), S[0, 0])"))) is None
    inside = "zeros((M, N))\n    for i in range(M):\n        S = zeros((M, N))"
    assert with_own_names(program(MADE_AGAIN.format(made=inside))) is None


def test_layers_over_lengths_that_data_say_hand_over_what_they_made() -> None:
    text = """
def refined(Q: Float[Array, "B M E"], K: Float[Array, "B N E"], n: Int[Array, "B", "0:N+1"]):
    x = zeros((B, M, E))
    for b in range(B):
        for i in range(M):
            for e in range(E):
                x[b, i, e] = Q[b, i, e]
    for t in range(2):
        for b in range(B):
            for i in range(M):
                m = -inf; l = 0.0
                o = zeros(E)
                for j in range(N):
                    if j >= n[b]: break
                    s = sum(x[b, i, e] * K[b, j, e] for e in range(E))
                    new = max(m, s)
                    l = l * exp(m - new) + exp(s - new)
                    for e in range(E):
                        o[e] = o[e] * exp(m - new) + exp(s - new) * K[b, j, e]
                    m = new
                for e in range(E):
                    x[b, i, e] = o[e] / l if l > 0.0 else 0.0
    return x
"""
    found = backward(program(text))
    assert not any("attains" in note for note in found.notes)
    assert "x2" in {saved.name for saved in found.saved}

    def torch_(x: Any, k: Any, n: Any) -> Any:
        for _ in range(2):
            mask = (torch.arange(k.shape[1]) < n[:, None])[:, None]
            scores = (x @ k.mT).masked_fill(~mask, -torch.inf)
            x = torch.nan_to_num(torch.softmax(scores, -1).masked_fill(~mask, 0.0)) @ k
        return x

    lengths = torch.tensor([5, 9], dtype=torch.int32)
    compare(text, torch_, normal((2, 3, 4), (2, 9, 4)), [lengths])


def test_what_data_say_may_stay_keeps_its_name() -> None:
    text = TWICE.format(rows="range(M)").replace('"M E"]):', '"M E"], n: Int[Array, "M"]):')
    text = text.replace("x[i, e] = x[i, e] * Y", "if n[i] > 0: x[i, e] = x[i, e] * Y")
    assert with_webs_named(program(text)) is None


def test_a_sum_inside_of_another_one_over_the_same_has_another_form() -> None:
    """Rows joined by elements would ask for a loop over keys inside of one over the same keys."""
    text = """
def refine(Q: Float[Array, "B M E"], K: Float[Array, "B N E"], V: Float[Array, "B N E"],
           n: Int[Array, "B", "0:N+1"], G: Float[Array, "3 E"]):
    x = zeros((B, M, E))
    for b in range(B):
        for i in range(M):
            for e in range(E):
                x[b, i, e] = Q[b, i, e]
    for t in range(3):
        for b in range(B):
            for i in range(M):
                m = -inf; l = 0.0
                o = zeros(E)
                for j in range(N):
                    if j >= n[b]: break
                    s = 0.3 * sum(x[b, i, e] * K[b, j, e] for e in range(E))
                    mn = max(m, s)
                    l = l * exp(m - mn) + exp(s - mn)
                    for e in range(E):
                        o[e] = o[e] * exp(m - mn) + exp(s - mn) * V[b, j, e]
                    m = mn
                for e in range(E):
                    x[b, i, e] += G[t, e] * (o[e] / l if l > 0.0 else 0.0)
    return x
"""
    made = emitted_with_backward(program(text))
    assert all(has_products(kernel.body) for kernel in made.backward.kernels if "dK" in kernel.name)


PARTS = """
def parts(Q: Float[Array, "M D"], K: Float[Array, "N D"], V: Float[Array, "N E"], S: Const,
          L: Const):
    assert N == S * L
    O = zeros((M, E))
    m = full((M, S), -inf); l = zeros((M, S)); P = zeros((M, S, E))
    for i in range(M):
        for s in range(S):
            for j in range(s * L, (s + 1) * L):
                x = 0.0
                for d in range(D):
                    x += Q[i, d] * K[j, d]
                n = max(m[i, s], x)
                l[i, s] = l[i, s] * exp(m[i, s] - n) + exp(x - n)
                for e in range(E):
                    P[i, s, e] = P[i, s, e] * exp(m[i, s] - n) + exp(x - n) * V[j, e]
                m[i, s] = n
    for i in range(M):
        top = -inf
        for s in range(S):
            top = max(top, m[i, s])
        total = 0.0
        for s in range(S):
            total += l[i, s] * exp(m[i, s] - top)
        for e in range(E):
            for s in range(S):
                O[i, e] += P[i, s, e] * exp(m[i, s] - top)
            O[i, e] /= total
    return O
"""


def test_parts_whose_maxima_are_all_far_below_0_are_joined() -> None:
    """exp(0 - top) is infinite where there is no part: what is read there is no 0."""

    def attention(Q: Any, K: Any, V: Any, length: int) -> Any:
        return (Q @ K.T).softmax(1) @ V

    q, k, v = normal((3, 4), (6, 4), (6, 5))
    compare(PARTS, attention, [q.abs() * 9, -k.abs() * 9, v], [2])
