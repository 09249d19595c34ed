"""Loops that are free, outside of those that carry something, whatever order they stand in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from looptrans.adjoint.backward import backward
from looptrans.adjoint.rewriting.inner_sums import with_inner_sums
from looptrans.adjoint.rewriting.order import (
    with_loops_outward,
    with_numbers_inward,
    with_numbers_to_rows,
)
from looptrans.adjoint.rewriting.simpler import ORDER, simpler
from looptrans.derivation.derive import derive
from looptrans.emit.listing import lowered
from looptrans.executor import execute, prepare
from looptrans.ir.program import Loop, Program
from looptrans.ir.walk import nodes
from tests.analysis import program
from tests.test_adjoint_torch import gradients

HEAD = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D)); m = full(M, -inf); l = zeros(M); s = zeros(M); n = zeros(M)
"""
TAIL = """
    for i in range(M):
        for d in range(D):
            O[i, d] = O[i, d] / l[i]
    return O
"""
ONE_LOOP = """
    for j in range(N):
        for i in range(M):
            s[i] = Q[i] @ K[j]
            n[i] = max(m[i], s[i])
            l[i] = l[i] * exp(m[i] - n[i]) + exp(s[i] - n[i])
            for d in range(D):
                O[i, d] = O[i, d] * exp(m[i] - n[i]) + exp(s[i] - n[i]) * V[j, d]
            m[i] = n[i]
"""
ONE_EACH = """
    for j in range(N):
        for i in range(M): s[i] = Q[i] @ K[j]
        for r in range(M): n[r] = max(m[r], s[r])
        for i in range(M):
            l[i] = l[i] * exp(m[i] - n[i]) + exp(s[i] - n[i])
        for i in range(M):
            for d in range(D):
                O[i, d] = O[i, d] * exp(m[i] - n[i]) + exp(s[i] - n[i]) * V[j, d]
        for i in range(M): m[i] = n[i]
"""
IN_TILES = """
    for j0 in range(0, N, 4):
        for i0 in range(0, M, 2):
            for i in range(i0, min(i0 + 2, M)):
                for j in range(j0, min(j0 + 4, N)):
                    s[i] = Q[i] @ K[j]
                    n[i] = max(m[i], s[i])
                    l[i] = l[i] * exp(m[i] - n[i]) + exp(s[i] - n[i])
                    for d in range(D):
                        O[i, d] = O[i, d] * exp(m[i] - n[i]) + exp(s[i] - n[i]) * V[j, d]
                    m[i] = n[i]
"""


@pytest.mark.parametrize("passes", [ONE_LOOP, ONE_EACH, IN_TILES])
def test_rows_that_keys_are_outside_of_go_outward(passes: str) -> None:
    listing = program(HEAD + passes.strip("\n") + TAIL)
    found = derive(listing, "fold")
    assert found.decision == "legal"
    assert any(step.kind == "loops outward" for step in found.steps)
    (nest,) = (node for node in found.last.body if isinstance(node, Loop))
    assert (nest.variable, nest.execution) == ("i", "parallel")
    assert [n.variable for n in nodes(nest.body) if isinstance(n, Loop)] == ["j", "d", "d"]
    inputs: dict[str, Any] = dict(prepare(listing, {"M": 3, "N": 5}, None, 1).arrays)
    want = execute(listing, inputs=inputs)["O"]
    np.testing.assert_allclose(execute(found.last, inputs=inputs)["O"], want, atol=1e-12)


@pytest.mark.parametrize(
    "body",
    [
        # The row before has to be there.
        "m[i] = max(m[i], Q[i, 0] * K[j, 0]) + (m[i - 1] if i > 0 else 0.0)",
        # The next key needs what a later row has left.
        "m[i] = m[M - 1 - i] + Q[i, 0] * K[j, 0]",
    ],
)
def test_rows_that_hang_together_stay(body: str) -> None:
    text = f"    for j in range(N):\n        for i in range(M):\n            {body}\n    return m\n"
    found = derive(program(HEAD + text), "fold")
    assert all(step.kind != "loops outward" for step in found.steps)


SQUARE = """
def f(Q: Float[Array, "M E"], K: Float[Array, "M E"], V: Float[Array, "M D"]):
    O = zeros((M, D)); m = full(M, -inf); l = zeros(M)
"""
STEP = """
x = Q[i] @ K[j]
n = max(m[i], x)
l[i] = l[i] * exp(m[i] - n) + exp(x - n)
for d in range(D): O[i, d] = O[i, d] * exp(m[i] - n) + exp(x - n) * V[j, d]
m[i] = n
"""
TRIANGLES = {
    "rows from the key on": ("for j in range(M):", "for i in range(j, M):"),
    "keys under a guard": ("for j in range(M):", "for i in range(M):", "if j <= i:"),
    "a block of keys, the rows from its start on": (
        "for j0 in range(0, M, 4):",
        "for i in range(j0, M):",
        "for j in range(j0, min(j0 + 4, i + 1)):",
    ),
    "blocks of both, those that see nothing left out": (
        "for j0 in range(0, M, 4):",
        "for i0 in range(0, M, 2):",
        "if j0 <= i0 + 1:",
        "for i in range(i0, min(i0 + 2, M)):",
        "for j in range(j0, min(j0 + 4, i + 1)):",
    ),
    "blocks of keys inside, up to the row": (
        "for i in range(M):",
        "for j0 in range(0, M, 4):",
        "if j0 <= i:",
        "for j in range(j0, min(j0 + 4, i + 1)):",
    ),
}


@pytest.mark.parametrize("nest", TRIANGLES.values(), ids=TRIANGLES)
def test_rows_go_outward_where_how_many_there_are_hangs_on_the_key(nest: tuple[str, ...]) -> None:
    lines = [f"{'  ' * depth}{line}" for depth, line in enumerate(nest, 2)]
    lines += [f"{'  ' * (len(nest) + 2)}{line}" for line in STEP.strip().splitlines()]
    listing = program(SQUARE + "\n".join(lines) + TAIL)
    plain = _simplest(listing)
    rows = next(node for node in plain.body if isinstance(node, Loop))
    inside = [n for n in nodes((rows,)) if isinstance(n, Loop)]
    assert [n.variable for n in inside] == ["i", "j", "d"]
    _same(listing, plain, ({"M": 7, "E": 2, "D": 1}, {"M": 1}, {"M": 4}))


GUARDED = {
    "what a range reads": """
def f(X: Float[Array, "T N"], n: Int[Array, "B", "1:N"]):
    O = zeros(T)
    for t in range(T):
        if t < B:
            for j in range(0, min(n[t], B - t, N)): O[t] = O[t] + X[t, j]
    return O
""",
    "what an end would read": """
def f(X: Float[Array, "T N"], n: Int[Array, "B", "1:N"]):
    O = zeros(T)
    for b in range(T):
        for t in range(0, N, 4):
            if b < B and t < n[b]:
                for j in range(t, min(t + 4, N)): O[b] = O[b] + X[b, j]
    return O
""",
}


@pytest.mark.parametrize("text", GUARDED.values(), ids=GUARDED)
def test_a_guard_stays_that_keeps_what_is_read_inside_its_array(text: str) -> None:
    listing = program(text)
    _same(listing, _simplest(listing), ({"T": 5, "N": 9, "B": 2},))


DOWNWARDS = """
def f(W: Float[Array, "M M"], Q: Float[Array, "M"]):
    l = zeros(M)
    for j in range(M):
        for i in range(M - 1, j - 1, -1):
            l[i] = l[i] * 0.5 + W[i, j] * Q[j]
    return l
"""


def test_rows_that_are_gone_over_downwards_to_the_key_are_all_there() -> None:
    listing = program(DOWNWARDS)
    for last in (_simplest(listing), derive(listing, "fold").last):
        _same(listing, last, ({"M": 5}, {"M": 1}))


HANDED = """
def f(Q: Float[Array, "M"], K: Float[Array, "N"]):
    m = full(M, -inf)
    for j in range(N):
        for i in range(M): x = Q[i] * K[j]
        for i in range(M): m[i] = max(m[i], x)
    return m
"""


def test_what_the_last_row_leaves_to_all_is_not_taken_for_each_row_s_own() -> None:
    listing = program(HANDED)
    assert with_loops_outward(listing) is None
    _same(listing, derive(listing, "fold").last, ({"M": 3, "N": 4},))


FIRST = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D)); l = zeros(M); m = full(M, -inf)
    for t in range(0, N, 8):
        for i in range(M):
            n = -inf
            for j in range(t, min(t + 8, N)): n = max(n, Q[i] @ K[j])
            p = 0.0
            for j in range(t, min(t + 8, N)): p += exp(Q[i] @ K[j] - n)
            k = max(m[i], n)
            q = exp(m[i] - k) * l[i] + exp(n - k) * p
            for d in range(D):
                r = 0.0
                for j in range(t, min(t + 8, N)): r += exp(Q[i] @ K[j] - n) * V[j, d]
                O[i, d] = (l[i] * exp(m[i] - k) * O[i, d] + exp(n - k) * r) / q
            l[i] = q
            m[i] = k
    return O
"""


def test_blocks_of_keys_outside_of_rows_have_the_backward_pass_of_rows() -> None:
    found = backward(program(FIRST))
    assert [saved.name for saved in found.saved] == ["lse", "O"]
    assert [step.name for step in found.steps[:3]] == [
        "write what is the same in the same words",
        "run i outside of t",
        "make t and j one loop, each element a block of its own",
    ]


def _simplest(listing: Program) -> Program:
    while (found := simpler(listing, ORDER)) is not None:
        listing = found.program
    return listing


def _same(listing: Program, other: Program, cases: tuple[dict[str, int], ...]) -> None:
    for sizes in cases:
        inputs: dict[str, Any] = dict(prepare(listing, sizes, None, 1).arrays)
        want = execute(listing, inputs=inputs)
        have = execute(other, inputs=inputs)
        for name, array in want.items():
            np.testing.assert_allclose(have[name], array, atol=1e-12)


PRODUCT = """
def f(A: Float[Array, "M K"], B: Float[Array, "K N"]):
    C = zeros((M, N))
    for k in range(K):
        for i in range(M):
            for j in range(N):
                C[i, j] += A[i, k] * B[k, j]
    for i in range(M):
        for j in range(N):
            C[i, j] = max(C[i, j], 0.0)
    return C
"""


def test_the_sum_of_a_product_goes_inside() -> None:
    found = derive(program(PRODUCT), "fold")
    assert found.decision == "legal"
    nest, _ = (node for node in found.last.body if isinstance(node, Loop))
    loops = [n for n in nodes((nest,)) if isinstance(n, Loop)]
    assert [(n.variable, n.execution) for n in loops] == [
        ("i", "parallel"),
        ("j", "parallel"),
        ("k", "sequential"),
    ]


BETWEEN = """
def f(Q: Float[Array, "E"], K: Float[Array, "C P E"], w: Float[Array, "T"],
      page: Int[Array, "T", "0:C"]):
    m = -inf; l = 0.0; o = 0.0
    for t in range(T):
        u = w[t] * w[t]
        v = u + 1.0
        for r in range(P):
            s = v * (Q @ K[page[t], r])
            n = max(m, s)
            l = l * exp(m - n) + exp(s - n)
            o = o * exp(m - n) + exp(s - n) * s
            m = n
    y = zeros(1)
    y[0] = o / l
    return y
"""


def test_a_number_between_two_loops_of_one_fold_is_worked_out_inside() -> None:
    listing = program(BETWEEN)
    plain = with_numbers_inward(listing)
    assert plain is not None and plain.names == ("u", "v")
    _same(listing, plain.program, ({"T": 3, "P": 4, "C": 2, "E": 2},))
    found = backward(listing)
    assert {*found.gradients} == {"Q", "K", "w"}
    assert with_numbers_inward(program(BETWEEN.replace("o = o *", "v = v + 1.0; o = o *"))) is None


OWN_SUMS = """
def f(x: Float[Array, "B M N"], c: Float[Array, "M"]):
    y = zeros((B, M, N))
    for b in range(B):
        HEAD
            for j in range(N):
                for k in range(N):
                    y[b, i, j] += x[b, i, k] * VALUE
    return y
"""


@pytest.mark.parametrize(
    ("head", "value"),
    [
        ("g = sum(c[i] for i in range(M))\n        for i in range(M):", "g"),
        ("if sum(c[i] for i in range(M)) != 0.0:\n          for i in range(M):", "2.0"),
    ],
)
def test_a_sum_that_goes_into_a_loop_keeps_a_variable_of_its_own(head: str, value: str) -> None:
    listing = program(OWN_SUMS.replace("HEAD", head).replace("VALUE", value))
    found = with_numbers_to_rows(listing)
    assert found is not None
    _same(listing, found.program, ({"B": 2, "M": 3, "N": 2}, {"B": 1, "M": 1, "N": 2}))


# The loop over e adds up y and keeps S of each e: what all of t has is of d.
IN_STEPS = """
def f(q: Float[Array, "T E"], k: Float[Array, "T E"], v: Float[Array, "T D"], g: Float[Array, "T"]):
    S = zeros((E, D))
    y = zeros((T, D))
    c = 1.0
    for t in range(T):
        c = max(c * g[t], 0.5)
        for e in range(E):
            for d in range(D):
                S[e, d] = c * S[e, d] + k[t, e] * v[t, d]
                y[t, d] += q[t, e] * S[e, d]
    return y
"""


@pytest.mark.parametrize("kept", ["c * S[e, d]", "S[e, d]"])
def test_columns_of_a_state_go_outside_of_the_rows_that_are_added_up(kept: str) -> None:
    listing = program(IN_STEPS.replace("c * S[e, d]", kept))
    found = with_loops_outward(listing)
    assert found is not None
    assert found.moved == (("d", ("e",)),)
    _same(listing, found.program, ({"T": 3, "E": 2, "D": 3}, {"T": 1, "E": 0, "D": 2}))
    assert len(lowered(listing).kernels) == 1


def test_rows_stay_where_all_of_them_are_added_to_one_number() -> None:
    step = "S[e, d] = c * S[e, d] + k[t, e] * v[t, d]"
    text = IN_STEPS.replace(step, "pass").replace("q[t, e] * S[e, d]", "q[t, e] * c")
    assert with_loops_outward(program(text)) is None


# Values are worked out in the loop over keys, each element in a loop of its own.
PROJECTED = """
def pooled(q: Float[Array, "E"], X: Float[Array, "N E"], W: Float[Array, "E D"]):
    O = zeros(D)
    m = -inf
    l = 0.0
    for j in range(N):
        s = sum(q[e] * X[j, e] for e in range(E))
        new = max(m, s)
        w = exp(s - new)
        r = exp(m - new)
        l = l * r + w
        for d in range(D):
            v = 0.0
            for e in range(E):
                v += X[j, e] * W[e, d]
            O[d] = O[d] * r + w * v
        m = new
    for d in range(D):
        O[d] /= l
    return O
"""


def test_a_number_that_an_inner_loop_adds_up_is_a_sum_where_it_stands() -> None:
    listed = program(PROJECTED)
    found = with_inner_sums(listed)
    assert found is not None
    assert found.names == ("v",)
    assert with_inner_sums(found.program) is None
    back = backward(listed)
    assert any(step.name == "write v as sums" for step in back.steps)
    random = np.random.default_rng(0)
    sizes = {"E": 2, "N": 3, "D": 4}
    arrays: dict[str, Any] = {
        "q": random.standard_normal(2),
        "X": random.standard_normal((3, 2)),
        "W": random.standard_normal((2, 4)),
    }
    incoming = {"O": random.standard_normal(4)}
    forward = execute(back.forward, sizes=sizes, inputs=arrays)
    given = {**arrays, back.incoming["O"]: incoming["O"]}
    given |= {saved.name: forward[saved.name] for saved in back.saved}
    got = execute(back.program, sizes=sizes, inputs=given)
    for of, want in gradients(listed, sizes, arrays, incoming).items():
        np.testing.assert_allclose(got[back.gradients[of]], want, atol=1e-12)
