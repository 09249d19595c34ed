"""Tables whose rows look at rows made before: triangular systems, and chunks of the delta rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import looptrans
from looptrans.adjoint.backward import backward
from looptrans.adjoint.carried.accumulating import are_apart
from looptrans.blocks.lower import lower
from looptrans.derivation.derive import derive
from looptrans.derivation.moves import made
from looptrans.derivation.step import NotDone
from looptrans.executor import execute, prepare
from looptrans.ir.affine import total
from looptrans.ir.condition import Relation
from looptrans.ir.index import Var
from looptrans.ir.value import Access
from tests.analysis import program
from tests.test_adjoint_closed import gaps
from tests.test_attention_strangers import compare, normal

# Each row takes away what it finds in those before.
SOLVE = """
def solve(A: Float[Array, "B 8 8"], b: Float[Array, "B 8 D"]):
    X = zeros((B, 8, D))
    for n in range(B):
        for i in range(8):
            for d in range(D):
                X[n, i, d] = b[n, i, d] - sum(A[n, i, j] * X[n, j, d] for j in range(i))
    return X
"""
# The same with a loop and a scalar, from the last row to the first, in a part of the columns.
UPWARD = """
def upward(A: Float[Array, "8 8"], b: Float[Array, "8 8"]):
    X = zeros((8, 8))
    for i in range(7, -1, -1):
        for d in range(i):
            acc = b[i, d]
            for j in range(i + 1, 8):
                acc -= A[i, j] * X[j, d]
            X[i, d] = acc / A[i, i]
    return X
"""
IN_BLOCKS = """
def in_blocks(A: Float[Array, "N 4"], b: Float[Array, "N D"]):
    X = zeros((N, D))
    for c in range((N + 3) // 4):
        for i in range(4):
            if 4 * c + i < N:
                for d in range(D):
                    X[4 * c + i, d] = b[4 * c + i, d] - sum(
                        A[4 * c + i, j] * X[4 * c + j, d] for j in range(i)
                    )
    return X
"""
DELTA = """
def delta(K: Float[Array, "N E"], V: Float[Array, "N D"], beta: Float[Array, "N"]):
    O = zeros((N, D))
    U = zeros((N, D))
    S = zeros((E, D))
    for c in range(0, N, 4):
        for i in range(c, min(c + 4, N)):
            for d in range(D):
                U[i, d] = beta[i] * (V[i, d] - sum(K[i, e] * S[e, d] for e in range(E)) - sum(
                    sum(K[i, e] * K[j, e] for e in range(E)) * U[j, d] for j in range(c, i)))
        for i in range(c, min(c + 4, N)):
            for d in range(D):
                O[i, d] = sum(K[i, e] * S[e, d] for e in range(E))
        for e in range(E):
            for d in range(D):
                S[e, d] += sum(K[j, e] * U[j, d] for j in range(c, min(c + 4, N)))
    return O
"""
# What is read of K is inside where the sum has anything, and that hangs on i alone.
ASKED_INSIDE = """
def asked_inside(K: Float[Array, "N E"], Z: Float[Array, "C 4 D"]):
    assert 4 * C >= N
    X = zeros((C, 4, D))
    for c in range(C):
        for j in range(3, -1, -1):
            for d in range(D):
                X[c, j, d] = Z[c, j, d] + sum(
                    sum(K[4 * c + i, e] * K[4 * c + j, e] for e in range(E)) * X[c, i, d]
                    for i in range(4) if j < i and 4 * c + i < N
                )
    return X
"""
# A part of G is looked at along its rows and in one of them, and is a side of a matrix product.
BY_ROWS_TOO = """
def by_rows_too(a: Float[Array, "N E"], V: Float[Array, "N D"]):
    G = zeros((N, E))
    U = zeros((N, D))
    S = zeros((E, D))
    for c in range(N // 4):
        for i in range(4):
            for e in range(E):
                G[4 * c + i, e] = sum(a[4 * c + j, e] for j in range(i + 1))
        for i in range(4):
            for d in range(D):
                U[4 * c + i, d] = V[4 * c + i, d] - sum(
                    G[4 * c + i, e] * S[e, d] for e in range(E)
                ) - sum(G[4 * c + i, 0] * U[4 * c + j, d] for j in range(i))
        for e in range(E):
            for d in range(D):
                S[e, d] += sum(G[4 * c + j, e] * U[4 * c + j, d] for j in range(4))
    return S
"""


def test_a_triangular_system_is_one_kernel_and_its_gradients_are_right() -> None:
    def theirs(a: torch.Tensor, b: torch.Tensor) -> Any:
        whole = torch.tril(a, -1) + torch.eye(8, dtype=a.dtype)
        return torch.linalg.solve_triangular(whole, b, upper=False, unitriangular=True)

    assert len(lower(derive(program(SOLVE), "fold")).kernels) == 1
    compare(SOLVE, theirs, normal((3, 8, 8), (3, 8, 5)), [])


@pytest.mark.parametrize("text", [UPWARD, IN_BLOCKS, ASKED_INSIDE, BY_ROWS_TOO])
def test_tables_from_below_in_part_and_in_blocks_have_a_kernel(text: str) -> None:
    given = program(text)
    sizes = {"N": 10, "D": 3, "E": 2, "C": 3}
    sizes = {p.name: sizes[p.name] for p in given.parameters}
    inputs = prepare(given, sizes, None, 1).arrays
    tensors = [torch.from_numpy(inputs[name]).float() for name in given.arguments]
    (expected,) = execute(given, sizes=sizes, inputs=inputs).values()
    found = looptrans.compile(text)(*tensors)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-4)


def test_chunks_of_the_delta_rule_are_one_kernel_that_keeps_no_more_than_a_chunk() -> None:
    (kernel,) = lower(derive(program(DELTA), "fold")).kernels
    assert [dim.name for dim in kernel.grid] == ["d"]
    assert set(kernel.constants) == {"E"}  # a row of S, and no row of N


def test_tables_that_each_head_makes_anew_are_kept_whole() -> None:
    of_heads = """
def of_heads(A: Float[Array, "H N 4"], V: Float[Array, "H N D"]):
    O = zeros((H, N, D))
    for h in range(H):
        U = zeros((N, D))
        s = zeros(D)
        for c in range(0, N, 4):
            for i in range(c, min(c + 4, N)):
                for d in range(D):
                    U[i, d] = V[h, i, d] - s[d] - sum(A[h, i, j - c] * U[j, d] for j in range(c, i))
            for d in range(D):
                s[d] += sum(U[j, d] for j in range(c, min(c + 4, N)))
                for i in range(c, min(c + 4, N)):
                    O[h, i, d] = U[i, d] * s[d]
    return O
"""
    assert any(step.kind == "row by row" for step in derive(program(of_heads), "fold").steps)


def test_chunks_of_the_delta_rule_have_gradients() -> None:
    found = backward(program(DELTA))
    for rows in (3, 4, 10):
        assert max(gaps(found, 2, {"N": rows, "E": 2, "D": 3})) < 1e-9


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SOLVE, "row by row"),
        (IN_BLOCKS, "row by row"),
        (
            # Iterations wait for each other, and each goes over its part twice.
            """
def twice(b: Float[Array, "C 4"]):
    X = ones((C, 4))
    s = 0.0
    for r in range(2):
        for c in range(C):
            for i in range(4):
                X[c, i] = b[c, i] + 0.5 * X[c, i] + s * sum(X[c, j] for j in range(4))
            for i in range(4):
                s = 0.1 * s + X[c, i]
    return X
""",
            "own part",
        ),
        (
            """
def begins_anew(b: Float[Array, "N"]):
    U = full(N, 2.0)
    Y = zeros(N)
    s = 0.0
    for c in range(N // 4):
        for i in range(4):
            U[4 * c + i] = b[4 * c + i] + s * sum(U[4 * c + j] for j in range(4))
        for i in range(4):
            Y[4 * c + i] = sum(U[4 * c + j] for j in range(i + 1))
        s = U[4 * c] - 1.0
    return Y
""",
            "own part",
        ),
        (
            # Each cell is set once, and the last row of a part is the first one of another.
            """
def common_rows(b: Float[Array, "C"]):
    U = zeros(3 * C + 4)
    s = 0.0
    for c in range(C - 1, -1, -1):
        for i in range(4):
            if i < 3:
                U[3 * c + i] = b[c] + s + 0.1 * sum(U[3 * c + j] for j in range(4))
        s = 0.1 * U[3 * c + 1]
    return U
""",
            "own part",
        ),
        (
            # Each cell is set once, and read in iterations of an outer loop that do not set it.
            """
def set_at_first(b: Float[Array, "C"]):
    X = zeros((C, 4))
    s = 1.0
    for r in range(2):
        for c in range(C):
            for i in range(4):
                if r == 0:
                    X[c, i] = b[c] + 0.1 * s + 0.1 * sum(X[c, j] for j in range(i))
            s = 0.5 * s + 0.1 * sum(X[c, i] for i in range(4))
    return s
""",
            "own part",
        ),
    ],
)
def test_each_step_leaves_the_values_what_they_were(text: str, kind: str) -> None:
    given = program(text)
    name = "U" if "U = " in text else "X"
    after = made(kind, given, (name,)).after
    assert after != given
    sizes = {"N": 10, "B": 2, "D": 3, "C": 3}
    sizes = {p.name: sizes[p.name] for p in given.parameters}
    inputs = prepare(given, sizes, None, 3).arrays
    before, then = (execute(each, sizes=sizes, inputs=inputs) for each in (given, after))
    for result, value in before.items():
        np.testing.assert_allclose(then[result], value, rtol=1e-12)


@pytest.mark.parametrize(
    "target",
    [
        "X[c + d, i, d]",  # a part has cells of others
        "X[c, i + d, d]",
        "X[c, i, d] = X[c - 1, 3 - i, d]",  # an iteration looks at the part of another one
    ],
)
def test_a_part_is_kept_only_where_it_is_an_iteration_s_alone(target: str) -> None:
    cell, _, value = target.partition(" = ")
    given = program(f"""
def own(b: Float[Array, "N"], X0: Float[Array, "N"]):
    X = zeros((N + 9, 9, 3))
    s = 0.0
    for c in range(1, N):
        for i in range(4):
            for d in range(3):
                {cell} = {value or "s"} + sum(X[c, j, d] for j in range(i))
        s = 0.5 * s + b[c]
    return X
""")
    with pytest.raises(NotDone):
        made("own part", given, ("X",))


def test_conditions_tell_cells_apart() -> None:
    one, other = (Access("X", (Var(name),)) for name in "ij")
    i, j = Var("i"), Var("j")
    assert are_apart(one, other, Relation("<", i, j))
    assert are_apart(one, other, Relation("!=", j, i))
    assert are_apart(one, other, Relation(">=", i, total(j, 1)))
    assert are_apart(one, other, Relation("==", i, total(j, 2)))
    assert not are_apart(one, other, Relation("<=", i, j))
    assert not are_apart(one, other, Relation("<", i, total(j, 1)))
    assert not are_apart(one, other, Relation("==", i, j))
    assert not are_apart(one, other)


def test_a_guard_that_looks_at_what_the_iteration_before_has_left_makes_no_sum() -> None:
    text = """
def asked(x: Float[Array, "N"], v: Float[Array, "N D"]):
    Z = zeros((N, D))
    s = 0.5
    for k in range(N):
        for i in range(k):
            if {} > 0:
                s = x[i]
                for d in range(D):
                    Z[k, d] += s * v[i, d]
    return Z
"""
    made("loop as sum", program(text.format("x[i]")), ("S3",))
    with pytest.raises(NotDone):
        made("loop as sum", program(text.format("s")), ("S3",))
