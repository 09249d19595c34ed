"""Exponentials of a loop are powers of two where log2(e) goes with a number."""

from __future__ import annotations

import pytest

from looptrans.blocks.block_ir.arithmetic import LN2, LOG2E
from looptrans.blocks.block_ir.expr import Binary, Call, Dot, Name, dims_of, walk
from looptrans.blocks.block_ir.ops import Let, exprs_of, ops_in
from looptrans.blocks.block_ir.program import Kernel
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.listing import emitted
from tests.analysis import program, spec

TEXT = """
def f(X: Float[Array, "M N"], Y: Float[Array, "M"], T: Float[Array, "M N"], s: float):
    Z = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            S = {S}
            Z[i] = Z[i] + exp({exponent})
    return Z
"""


def calls(kernel: Kernel) -> list[str]:
    parts = [p for op in ops_in(kernel.body) for e in exprs_of(op) for p in walk(e)]
    return sorted({p.function for p in parts if isinstance(p, Call) and "exp" in p.function})


@pytest.mark.parametrize(
    ("value", "exponent", "function"),
    [
        ("X[i, j] * s", "S - Y[i]", "exp2"),
        ("X[i, j] / s", "S", "exp2"),
        ("X[i, j] * s - (i - j) * s", "S - Y[i]", "exp2"),
        # An element would have to be multiplied by log2(e) all the same.
        ("X[i, j]", "S - Y[i]", "exp"),
        ("X[i, j] * s + T[i, j]", "S", "exp"),
        ("X[i, j] * T[i, j]", "S", "exp"),
    ],
)
def test_which_function(value: str, exponent: str, function: str) -> None:
    (kernel,) = emitted(program(TEXT.format(S=value, exponent=exponent))).blocks.kernels
    assert calls(kernel) == [function]


BESIDE = """
def f(
    X: Float[Array, "M N"], Y: Float[Array, "M"], Q: Float[Array, "M E"], K: Float[Array, "N E"],
    V: Float[Array, "N D"], r: float
):
    Z = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E)) + tanh(X[i, j])
            for d in range(0, D):
                Z[i, d] = Z[i, d] + exp({exponent}) * V[j, d]
    return Z
"""


@pytest.mark.parametrize(
    ("exponent", "is_apart"),
    [
        ("s - Y[i]", True),
        # Both may be large and close to each other: their difference is exact.
        ("X[i, j] - Y[i]", False),
        # What is added may be the least float, and is to stay one.
        ("s + X[i, j] - Y[i]", False),
        ("s + X[i, j] * 3.0 - Y[i]", False),
        ("s - abs(X[i, j]) - Y[i]", False),
        ("(s + X[i, j]) / 3.0 - Y[i]", False),
        ("min(s, X[i, j]) - Y[i]", False),
        ("s * 0.5 + (1.0 - X[i, j]) * r - Y[i]", False),
        ("s * 0.5 + (i < j) * r - Y[i]", False),
        # Infinite two steps away, this is no mask; nor is what scores are multiplied with.
        ("s * 0.5 + (i - j) * r - Y[i]", True),
        ("s * r - Y[i]", True),
        ("r * tanh(s / r) - Y[i]", True),
        ("s", False),
        # What else is taken off may be as large as what was.
        ("s + X[i, j] - Y[i] - Y[i]", False),
        # A logarithm is not.
        ("s + X[i, j] - Y[i] - log(Y[i])", True),
    ],
)
def test_what_is_taken_off_a_score_is_multiplied_apart(exponent: str, is_apart: bool) -> None:
    """Beside products no exponential is left: else the difference is multiplied by log2(e)."""
    (kernel,) = emitted(program(BESIDE.format(exponent=exponent))).blocks.kernels
    assert calls(kernel) == ["exp2"]
    parts = [p for op in ops_in(kernel.body) for e in exprs_of(op) for p in walk(e)]
    powers = [p.arguments[0] for p in parts if isinstance(p, Call) and p.function == "exp2"]
    assert {isinstance(p, Binary) and p.op == "*" and p.right == LOG2E for p in powers} == {
        not is_apart
    }


STEPS = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], B: Float[Array, "N"], c: float):
    Z = zeros(M)
    for i in range(0, M):
        m = -inf; l = 0.0
        for j in range(0, N):
            dot = sum(Q[i, e] * K[j, e] for e in range(0, E))
            capped = c * tanh(dot / c)
            S = capped + tanh(B[j])
            new = max(m, S)
            l = l * exp(m - new) + exp(S - new)
            m = new
        Z[i] = l + l * m
    return Z
"""


def test_scores_made_in_several_statements_keep_their_maximum_in_units_of_log2e() -> None:
    (kernel,) = emitted(program(STEPS)).blocks.kernels
    assert calls(kernel) == ["exp2"]
    # And without a product among the statements it stays exact.
    text = STEPS.replace("sum(Q[i, e] * K[j, e] for e in range(0, E))", "Q[i, 0] * K[j, 0]")
    (kernel,) = emitted(program(text)).blocks.kernels
    assert "exp" in calls(kernel)


PASSES = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N"], T: Float[Array, "N"]):
    Z = zeros(M)
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E)) + tanh(T[j])
            t = max(m, s)
            l = l * exp(m - t) + exp(s - t)
            m = t
        lse = m + log(1.0 + l)
        for j in range(0, N):
            w = exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) + tanh(T[j]) - {taken})
            if w > 0.001:
                Z[i] = Z[i] + w * V[j]
    return Z
"""


@pytest.mark.parametrize("taken", ["m", "lse"])
def test_a_maximum_in_units_of_log2e_stays_in_them_for_the_next_loop(taken: str) -> None:
    """Back and forth it would be rounded twice, and the largest score be off by as much."""
    (kernel,) = emitted(program(PASSES.format(taken=taken))).blocks.kernels
    assert calls(kernel) == ["exp2"]
    names = {op.name for op in ops_in(kernel.body) if isinstance(op, Let)}
    assert f"{taken}_log2" in names
    # Nothing is brought back to natural units.
    lets = [op for op in ops_in(kernel.body) if isinstance(op, Let)]
    assert not any(part == LN2 for let in lets for part in walk(let.value))


STORED = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "M"]):
    P = zeros((M, N))
    for i in range(0, M):
        m = -inf
        l = 0.0
        for j in range(0, N):
            s = sum(Q[i, e] * K[j, e] for e in range(0, E))
            t = max(m, s)
            l = l * exp(m - t) + exp(s - t)
            m = t
        lse = {lse}
        for j in range(0, N):
            P[i, j] = exp(sum(Q[i, e] * K[j, e] for e in range(0, E)) - lse)
    return P
"""


@pytest.mark.parametrize(
    ("lse", "is_asked"),
    [
        ("m + log(1.0 + l)", False),
        ("m + log(l) if m > -inf else 0.0", True),
        ("max(m, V[i]) + log(l)", False),
        ("m - 2.0 * m", True),
    ],
)
def test_what_is_made_of_that_maximum_stays_in_its_units(lse: str, is_asked: bool) -> None:
    """In sums, choices and maxima; conditions and products ask for it in natural units."""
    (kernel,) = emitted(program(STORED.format(lse=lse))).blocks.kernels
    assert calls(kernel) == ["exp2"]
    (twin,) = (o for o in ops_in(kernel.body) if isinstance(o, Let) and o.name == "lse_log2")
    names = {part.name for part in walk(twin.value) if isinstance(part, Name)}
    assert "m_log2" in names
    assert ("m" in names) == is_asked


CHOSEN = """
def f(X: Float[Array, "N F"], W: Float[Array, "E F"], pick: Int[Array, "N", "0:E"]):
    g = zeros(N)
    for n in range(0, N):
        m = -inf
        z = 0.0
        for e in range(0, E):
            s = sum(X[n, f] * W[e, f] for f in range(0, F))
            t = max(m, s)
            z = z * exp(m - t) + exp(s - t)
            m = t
        g[n] = exp(sum(X[n, f] * W[pick[n], f] for f in range(0, F)) - m) / z
    return g
"""


def test_a_row_outside_loops_is_compared_with_the_maximum_in_its_units() -> None:
    """The largest score has the weight 1 / z, however large it is."""
    (kernel,) = emitted(program(CHOSEN)).blocks.kernels
    assert calls(kernel) == ["exp2"]
    lets = [op for op in ops_in(kernel.body) if isinstance(op, Let)]
    assert not any(part == LN2 for let in lets for part in walk(let.value))


@pytest.mark.parametrize("name", ["attention_causal", "attention_gqa", "attention_lengths"])
def test_weights_of_the_backward_pass(name: str) -> None:
    """Also where the loop over blocks stands in one over heads, or in rows whose end is read."""
    kernels = emitted_with_backward(spec(name)).backward.kernels
    of_products = [
        kernel
        for kernel in kernels
        if any(
            isinstance(p, Dot) for op in ops_in(kernel.body) for e in exprs_of(op) for p in walk(e)
        )
    ]
    assert len(of_products) == 2
    assert [calls(kernel) for kernel in of_products] == [["exp2"], ["exp2"]]


def test_a_row_is_asked_once_whether_it_sees_anything() -> None:
    text = emitted_with_backward(spec("attention_alibi")).text
    body = text[text.index("def attention_alibi_backward_dQ_kernel(") :]
    before, loop = body.split("for j_first in", 1)
    assert 'lse_i_seen = tl.where(lse_i.to(tl.float32) > float("-inf")' in before
    assert "lse_i_seen * 1.4426950408889634)[:, None]" in loop
    assert "-inf" not in loop[: loop.index("for j_first in")]


def test_where_a_mask_is_added_the_maximum_and_the_logarithm_are_kept_apart() -> None:
    """No row is asked: where it sees nothing they are 0 and infinity."""
    text = emitted_with_backward(spec("attention_bias")).text
    forward, backward = text.split("def attention_bias_backward_dQ_kernel(")
    assert "tl.where(l > 0, m, 0.0)" in forward or "tl.where(l > 0.0, m, 0.0)" in forward
    assert "tl.log(l)" in forward
    loop = backward[backward.index("for j_first in") :]
    assert "(S - top_i.to(tl.float32)[:, None]) * 1.4426950408889634" in loop
    assert "- (log_l_i.to(tl.float32) * 1.4426950408889634)[:, None]" in loop
    assert "-inf" not in loop[: loop.index("dK_dV_kernel(")]


ENTROPY = """
def entropy(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    U = zeros(M)
    for i in range(0, M):
        m = max(Q[i] @ K[j] for j in range(0, N))
        l = sum(exp(Q[i] @ K[j] - m) for j in range(0, N))
        for j in range(0, N):
            p = exp(Q[i] @ K[j] - m) / l
            U[i] -= p * (Q[i] @ K[j] - m - log(l))
    return U
"""


def test_a_maximum_that_is_taken_off_scores_themselves_stays_exact() -> None:
    """It is one of them: their difference is 0, which units of log2(e) and back would not leave."""
    (kernel,) = emitted(program(ENTROPY)).blocks.kernels
    lets = [op for op in ops_in(kernel.body) if isinstance(op, Let)]
    assert not any(part == LN2 for let in lets for part in walk(let.value))
    # Both loops, in full blocks and in partial ones, have the same exponents for the same score.
    powers = [p for op in lets for e in exprs_of(op) for p in walk(e) if isinstance(p, Call)]
    taken = [p.arguments[0] for p in powers if p.function == "exp2" and len(dims_of(p)) == 2]
    assert len(taken) == 4
    assert all(isinstance(each, Binary) and each.op == "-" for each in taken)


NESTED = """
def learned(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
            t: Float[Array, "M"]):
    O = zeros((M, D))
    for i in range(0, M):
        m = max(exp(t[i]) * (Q[i] @ K[j]) for j in range(0, N))
        l = sum(exp(exp(t[i]) * (Q[i] @ K[j]) - m) for j in range(0, N))
        for j in range(0, N):
            for d in range(0, D):
                O[i, d] += exp(exp(t[i]) * (Q[i] @ K[j]) - m) / l * V[j, d]
    return O
"""


def test_an_exponential_in_an_exponent_is_the_one_beside_it() -> None:
    """Scores of 1e16 that were rounded in two ways would be far apart."""
    (kernel,) = emitted(program(NESTED)).blocks.kernels
    assert calls(kernel) == ["exp2"]
