"""Scores written down in whole phases, as NumPy code does, need no array of scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.blocks.block_ir.ops import TileLoop, has_products
from looptrans.derivation.derive import derive
from looptrans.derivation.joined.worked_out_again import results_worked_out_again, worked_out_again
from looptrans.derivation.saved import recheck, saved
from looptrans.derivation.step import NotDone
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import lowered
from looptrans.executor import execute, prepare
from looptrans.frontend import parse
from looptrans.ir.program import Loop, Program
from looptrans.ir.source import Source
from looptrans.ir.walk import nodes

PHASES = """
def f(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"],
      bias: Float[Array, "M N"], scale: float):
    S = zeros((H, M, N))
    for h in range(H):
        for i in range(M):
            for j in range(N):
                for e in range(E):
                    S[h, i, j] += Q[h, i, e] * K[h, j, e]
    for h in range(H):
        for i in range(M):
            for j in range(N):
                S[h, i, j] = S[h, i, j] * scale
                S[h, i, j] += bias[i, j]
    for h in range(H):
        for i in range(M):
            for j in range(N):
                if j > i + N - M:
                    S[h, i, j] = -inf
    O = zeros((H, M, D))
    for h in range(H):
        for i in range(M):
            m = -inf
            for j in range(N):
                m = max(m, S[h, i, j])
            l = 0.0
            for j in range(N):
                S[h, i, j] = exp(S[h, i, j] - m)
                l += S[h, i, j]
            for j in range(N):
                S[h, i, j] /= l
    for h in range(H):
        for i in range(M):
            for j in range(N):
                for d in range(D):
                    O[h, i, d] += S[h, i, j] * V[h, j, d]
    return O
"""
ARRAYS = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    S = zeros((M, N))
    for i in range(M):
        for j in range(N):
            S[i, j] = Q[i] @ K[j]
    m = full(M, -inf)
    for i in range(M):
        for j in range(N):
            m[i] = max(m[i], S[i, j])
    P = zeros((M, N))
    l = zeros(M)
    for i in range(M):
        for j in range(N):
            P[i, j] = exp(S[i, j] - m[i])
            l[i] += P[i, j]
    O = zeros((M, D))
    for i in range(M):
        for j in range(N):
            for d in range(D):
                O[i, d] += P[i, j] / l[i] * V[j, d]
    return O
"""
LAYERS = """
def f(X: Float[Array, "T C"], W: Float[Array, "C F"], U: Float[Array, "F C"]):
    A = zeros((T, F))
    Y = zeros((T, C))
    for t in range(T):
        for f in range(F):
            for c in range(C):
                A[t, f] += X[t, c] * W[c, f]
    for t in range(T):
        for f in range(F):
            A[t, f] = max(A[t, f], 0.0)
    for t in range(T):
        for c in range(C):
            for f in range(F):
                Y[t, c] += A[t, f] * U[f, c]
    return Y
"""
GRADIENTS = """
def f(Q: Float[Array, "H N E"], K: Float[Array, "G N E"], V: Float[Array, "G N D"],
      dO: Float[Array, "H N D"], lse: Float[Array, "H N"], delta: Float[Array, "H N"]):
    assert H == G * R
    dQ = zeros((H, N, E)); dK = zeros((G, N, E)); dV = zeros((G, N, D))
    for h in range(H):
        for j in range(N):
            for i in range(j, N):
                p = exp(sum(Q[h, i, e] * K[h // R, j, e] for e in range(E)) - lse[h, i])
                dp = sum(dO[h, i, d] * V[h // R, j, d] for d in range(D))
                ds = p * (dp - delta[h, i])
                for d in range(D):
                    dV[h // R, j, d] += p * dO[h, i, d]
                for e in range(E):
                    dK[h // R, j, e] += ds * Q[h, i, e]
                    dQ[h, i, e] += ds * K[h // R, j, e]
    return dQ, dK, dV
"""
ROW_OF_SCORES = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D)); s = zeros(N)
    for i in range(M):
        for j in range(i + 1):
            s[j] = 0.0
            for e in range(E):
                s[j] += Q[i, e] * K[j, e]
        m = max(s[j] for j in range(i + 1))
        l = sum(exp(s[j] - m) for j in range(i + 1))
        for j in range(i + 1):
            for d in range(D):
                O[i, d] += exp(s[j] - m) / l * V[j, d]
    return O
"""
ONE_HEAD_EACH = GRADIENTS.replace("h // R", "h").replace("G N", "H N").replace("G, N", "H, N")
ONE_HEAD_EACH = ONE_HEAD_EACH.replace("    assert H == G * R\n", "")
# Queries before heads, where maxima have heads before queries.
OTHER_ORDER = """
def f(Q: Float[Array, "M N H E"], K: Float[Array, "M N H E"], V: Float[Array, "M N H D"]):
    S = zeros((M, H, N, N)); P = zeros((M, H, N, N)); O = zeros((M, N, H, D))
    for b in range(M):
        for h in range(H):
            for i in range(N):
                for j in range(i + 1):
                    S[b, h, i, j] = sum(Q[b, i, h, e] * K[b, j, h, e] for e in range(E))
    for b in range(M):
        for h in range(H):
            for i in range(N):
                m = max(S[b, h, i, j] for j in range(i + 1))
                l = sum(exp(S[b, h, i, j] - m) for j in range(i + 1))
                for j in range(i + 1):
                    P[b, h, i, j] = exp(S[b, h, i, j] - m) / l
    for b in range(M):
        for i in range(N):
            for h in range(H):
                for d in range(D):
                    O[b, i, h, d] = sum(P[b, h, i, j] * V[b, j, h, d] for j in range(i + 1))
    return O
"""
SIZES = {"H": 4, "G": 2, "R": 2, "M": 3, "N": 4, "E": 2, "D": 3}


def program(text: str) -> Program:
    return parse(Source("a.py", text))


@pytest.mark.parametrize("text", [PHASES, ARRAYS, OTHER_ORDER])
def test_phases_over_whole_arrays_become_one_pass_without_them(text: str) -> None:
    before = program(text)
    step = worked_out_again(before)
    assert step.decision == "legal"
    assert not {array.name for array in step.after.arrays} & {"S", "P"}
    sizes = {p.name: SIZES[p.name] for p in before.parameters if p.is_integer}
    made = prepare(before, sizes, None, 0)
    inputs: dict[str, Any] = {**made.arrays, **made.reals}
    want = execute(before, sizes=sizes, inputs=inputs)
    got = execute(step.after, sizes=sizes, inputs=inputs)
    np.testing.assert_allclose(got["O"], want["O"], rtol=1e-12)
    folded = derive(before, "fold")
    last = folded.steps[-1].after
    over = [node for node in nodes(last.body) if isinstance(node, Loop) and node.variable == "j"]
    assert len(over) == 1


def test_two_products_one_after_the_other_keep_what_is_between_them() -> None:
    with pytest.raises(NotDone, match="gathered once"):
        worked_out_again(program(LAYERS))


def test_what_an_array_of_16_bits_rounds_stays_in_it() -> None:
    text = ARRAYS.replace("S = zeros((M, N))", "S = zeros((M, N), dtype=float16)")
    assert text != ARRAYS
    with pytest.raises(NotDone, match="S rounds"):
        worked_out_again(program(text))


def test_the_step_is_made_again_from_what_was_saved() -> None:
    assert recheck(saved(derive(program(ARRAYS), "fold"))) == ()


UNDER_TESTS = {
    "rows in turn": """
    S = zeros(N)
    for i in range(M):
        for j in range(N):
            if ok[i, j]:
                S[j] = sum(Q[i, e] * K[j, e] for e in range(E))
        m = max(S[j] for j in range(N) if ok[i, j])
        l = sum(exp(S[j] - m) for j in range(N) if ok[i, j])
        for j in range(N):
            if ok[i, j]:
                w = exp(S[j] - m) / l
                for d in range(D):
                    O[i, d] += w * V[j, d]
""",
    "sums one by one": """
    S = zeros((M, N))
    for i in range(M):
        m = -inf
        for j in range(N):
            if ok[i, j]:
                s = 0.0
                for e in range(E):
                    s += Q[i, e] * K[j, e]
                S[i, j] = s
        for j in range(N):
            if ok[i, j]:
                m = max(m, S[i, j])
        l = 0.0
        for j in range(N):
            if ok[i, j]:
                l += exp(S[i, j] - m)
        for d in range(D):
            O[i, d] = sum(exp(S[i, j] - m) * V[j, d] for j in range(N) if ok[i, j]) / l
""",
}


@pytest.mark.parametrize("way", sorted(UNDER_TESTS))
def test_scores_that_are_there_where_a_given_test_holds_are_one_pass_over_keys(way: str) -> None:
    text = f"""
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
      ok: Bool[Array, "M N"]):
    O = zeros((M, D))
{UNDER_TESTS[way]}
    return O
"""
    made = emitted_with_backward(parse(Source("<listing>", text)))
    (kernel,) = made.forward.kernels
    assert has_products(kernel.body)
    assert [has_products(kernel.body) for kernel in made.backward.kernels] == [False, True, True]


TWO_LAYERS = {
    "rows in one nest": """
    for i in range(M):
        for k in range(F):
            A[i, k] = max(sum(X[i, e] * W[k, e] for e in range(E)), 0.0)
        for c in range(C):
            Y[i, c] = sum(A[i, k] * U[c, k] for k in range(F))
""",
    "two nests": """
    for i in range(M):
        for k in range(F):
            A[i, k] = max(sum(X[i, e] * W[k, e] for e in range(E)), 0.0)
    for i in range(M):
        for c in range(C):
            Y[i, c] = sum(A[i, k] * U[c, k] for k in range(F))
""",
    "a row in turn": """
    for i in range(M):
        for k in range(F):
            t = 0.0
            for e in range(E):
                t += X[i, e] * W[k, e]
            A[k] = max(t, 0.0)
        for c in range(C):
            for k in range(F):
                Y[i, c] += A[k] * U[c, k]
""",
}


@pytest.mark.parametrize("way", sorted(TWO_LAYERS))
def test_two_layers_are_two_products_with_what_is_between_them_in_memory(way: str) -> None:
    shape = "F" if "turn" in way else "(M, F)"
    text = f"""
def f(X: Float[Array, "M E"], W: Float[Array, "F E"], U: Float[Array, "C F"]):
    Y = zeros((M, C))
    A = zeros({shape})
{TWO_LAYERS[way]}
    return Y
"""
    kernels = lowered(parse(Source("<listing>", text))).kernels
    assert [has_products(kernel.body) for kernel in kernels] == [True, True]
    assert all(dim.role != "lanes" for kernel in kernels for dim in kernel.dims)


def test_weights_of_keys_that_one_head_has_are_no_table_in_memory() -> None:
    text = """
def f(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"]):
    O = zeros((H, M, D))
    P = zeros((H, M, N))
    for h in range(H):
        for i in range(M):
            for j in range(N):
                P[h, i, j] = 1.0 / (1.0 + exp(-sum(Q[h, i, e] * K[h, j, e] for e in range(E))))
            for d in range(D):
                O[h, i, d] = sum(P[h, i, j] * V[h, j, d] for j in range(N))
    return O
"""
    blocks = lowered(parse(Source("<listing>", text)))
    (kernel,) = blocks.kernels
    assert {dim.name: dim.role for dim in kernel.dims}["j"] == "tile"
    assert [made.array for made in blocks.made] == ["O"]


def test_a_normalized_row_for_a_layer_is_kept_in_memory_beside_no_other_kernel() -> None:
    text = """
def f(X: Float[Array, "M N"], W: Float[Array, "F N"]):
    Y = zeros((M, N))
    Z = zeros((M, F))
    for i in range(M):
        m = max(X[i, n] for n in range(N))
        l = sum(exp(X[i, n] - m) for n in range(N))
        for n in range(N):
            Y[i, n] = exp(X[i, n] - m) / l
        for k in range(F):
            Z[i, k] = sum(Y[i, n] * W[k, n] for n in range(N))
    return Z
"""
    kernels = lowered(parse(Source("<listing>", text))).kernels
    assert [has_products(kernel.body) for kernel in kernels] == [False, False, True]


def test_a_logit_read_by_its_label_leaves_the_row_a_pass() -> None:
    text = """
def f(X: Float[Array, "M E"], W: Float[Array, "N E"], y: Int[Array, "M", "0:N"]):
    loss = zeros(M)
    z = zeros(N)
    for i in range(M):
        for v in range(N):
            z[v] = sum(X[i, e] * W[v, e] for e in range(E))
        m = max(z[v] for v in range(N))
        l = sum(exp(z[v] - m) for v in range(N))
        loss[i] = m + log(l) - z[y[i]]
    return loss
"""
    (kernel,) = lowered(parse(Source("<listing>", text))).kernels
    assert {dim.name: dim.role for dim in kernel.dims}["v"] == "tile"


def test_gradients_of_two_layers_are_products_of_blocks() -> None:
    text = """
def f(X: Float[Array, "M E"], W: Float[Array, "F E"], G: Float[Array, "F E"],
      U: Float[Array, "C F"]):
    A = zeros((M, F))
    Y = zeros((M, C))
    for i in range(M):
        for k in range(F):
            t = sum(X[i, e] * W[k, e] for e in range(E))
            A[i, k] = t / (1.0 + exp(-t)) * sum(X[i, e] * G[k, e] for e in range(E))
    for i in range(M):
        for c in range(C):
            Y[i, c] = sum(A[i, k] * U[c, k] for k in range(F))
    return Y
"""
    kernels = emitted_with_backward(parse(Source("<listing>", text))).backward.kernels
    assert all(dim.role != "lanes" for kernel in kernels for dim in kernel.dims)
    (plain,) = (kernel for kernel in kernels if not has_products(kernel.body))
    assert not any(isinstance(op, TileLoop) for op in plain.body)


@pytest.mark.parametrize("text", [GRADIENTS, ONE_HEAD_EACH])
def test_gradients_that_share_weights_are_gathered_each_in_its_own_rows(text: str) -> None:
    before = program(text)
    step = results_worked_out_again(before)
    assert step.decision == "legal"
    sizes = {p.name: SIZES[p.name] for p in before.parameters if p.is_integer}
    inputs = prepare(before, sizes, None, 0).arrays
    want = execute(before, sizes=sizes, inputs=inputs)
    got = execute(step.after, sizes=sizes, inputs=inputs)
    for name in ("dQ", "dK", "dV"):
        np.testing.assert_allclose(got[name], want[name], rtol=1e-10)
    found = lowered(before)
    assert {each.array for each in found.made} == {"dQ", "dK", "dV"}
    assert [kernel.name for kernel in found.kernels] == ["f_dQ_kernel", "f_dK_dV_kernel"]
    assert all(has_products(kernel.body) for kernel in found.kernels)
    assert recheck(saved(derive(before, "fold", nests="results again"))) == ()


def test_a_row_of_scores_that_is_used_again_is_of_products() -> None:
    (kernel,) = lowered(program(ROW_OF_SCORES)).kernels
    tiles = [op for op in kernel.body if isinstance(op, TileLoop)]
    assert [sum(has_products((op,)) for op in tile.body) for tile in tiles] == [2, 2]


PROJECTED = """
def f(X: Float[Array, "T C"], A: Float[Array, "C H E"], B: Float[Array, "C H E"],
      W: Float[Array, "C H E"]):
    Q = zeros((T, H, E)); K = zeros((T, H, E)); V = zeros((T, H, E)); O = zeros((T, H, E))
    for t in range(T):
        for h in range(H):
            for e in range(E):
                Q[t, h, e] = sum(X[t, c] * A[c, h, e] for c in range(C)) / sqrt(E)
                K[t, h, e] = sum(X[t, c] * B[c, h, e] for c in range(C))
                V[t, h, e] = max(sum(X[t, c] * W[c, h, e] for c in range(C)), 0.0)
    for h in range(H):
        for i in range(T):
            m = -inf
            for j in range(i + 1):
                m = max(m, Q[i, h] @ K[j, h])
            l = 0.0
            for j in range(i + 1):
                l += exp(Q[i, h] @ K[j, h] - m)
            for j in range(i + 1):
                for e in range(E):
                    O[i, h, e] += exp(Q[i, h] @ K[j, h] - m) / l * V[j, h, e]
    return O
"""


def test_a_sum_is_stored_as_what_alone_is_made_of_it() -> None:
    """Worked out again from stored sums, queries had a pass for m and l and another one for O."""
    projected, rows = lowered(parse(Source("<test>", PROJECTED))).kernels
    assert [a.name for a in projected.arrays if a.access == "out"] == ["Q", "K", "V"]
    assert [a.name for a in rows.arrays if a.access == "out"] == ["O"]
