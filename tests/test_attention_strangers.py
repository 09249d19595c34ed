"""Attention as strangers write it: kernels beside hand-written torch in float64, both passes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

import looptrans  # noqa: E402
from looptrans.adjoint.backward import backward  # noqa: E402
from looptrans.adjoint.refusal import NotDifferentiated  # noqa: E402
from looptrans.adjoint.rewriting.first_terms import with_first_terms_inside  # noqa: E402
from looptrans.adjoint.rewriting.own_names import with_own_names  # noqa: E402
from looptrans.adjoint.rewriting.row_parts import with_parts_of_rows  # noqa: E402
from looptrans.blocks.block_ir.ops import (  # noqa: E402
    ElementLoop,
    TileLoop,
    has_products,
    most_dims,
    ops_in,
    products_in,
)
from looptrans.emit.backward import emitted_with_backward  # noqa: E402
from looptrans.emit.listing import emitted, lowered  # noqa: E402
from looptrans.executor import execute  # noqa: E402
from looptrans.ir.listing import listing  # noqa: E402
from tests.analysis import program  # noqa: E402


def normal(*shapes: tuple[int, ...]) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def compare(text: str, theirs: Callable[..., Any], given: list[Any], fixed: list[Any]) -> None:
    """Hold the outputs and gradients of a listing against those of torch in float64."""
    mine = [each.clone().requires_grad_() for each in given]
    wide = [each.double().requires_grad_() for each in given]
    found = looptrans.compile(text)(*mine, *fixed)
    expected = theirs(*wide, *fixed)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    (back,) = normal(tuple(expected.shape))
    found.backward(back)
    expected.backward(back.double())
    for one, other in zip(mine, wide, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-5)


# Keys are made in the loop over heads that also goes over the queries.
MADE_INSIDE = """
def inside(Q: Float[Array, "B H M E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"],
           g: Float[Array, "E"]):
    KN = zeros((B, H, N, E))
    O = zeros((B, H, M, D))
    for b in range(B):
        for h in range(H):
            for j in range(N):
                n = sqrt(sum(K[b, h, j, e] ** 2 for e in range(E)) / E + 1e-6)
                for e in range(E):
                    KN[b, h, j, e] = K[b, h, j, e] / n * g[e]
            for i in range(M):
                m = -inf
                for j in range(N):
                    m = max(m, Q[b, h, i] @ KN[b, h, j])
                l = 0.0
                for j in range(N):
                    l += exp(Q[b, h, i] @ KN[b, h, j] - m)
                for j in range(N):
                    for d in range(D):
                        O[b, h, i, d] += exp(Q[b, h, i] @ KN[b, h, j] - m) / l * V[b, h, j, d]
    return O
"""


def test_nests_that_stand_in_one_loop_over_heads_are_kernels_of_their_own() -> None:
    """A program for each head, or each batch, would do all rows of it alone."""
    given = program(MADE_INSIDE)
    for blocks in (emitted(given).blocks, emitted_with_backward(given).forward):
        keys, rows = blocks.kernels
        for kernel, axis in ((keys, "j"), (rows, "i")):
            assert kernel.grid[-1].name == axis and len(kernel.grid) == 3
    assert "O = tl.dot(" in emitted_with_backward(given).text

    def torch_(q: Any, k: Any, v: Any, g: Any) -> Any:
        k = k / torch.sqrt((k**2).mean(-1, keepdim=True) + 1e-6) * g
        return torch.softmax(q @ k.mT, -1) @ v

    compare(MADE_INSIDE, torch_, normal((2, 2, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3), (4,)), [])


# Scores are worked out in each of three passes, and overwritten where a key is hidden.
OVERWRITTEN = """
def hidden(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T D"],
           doc: Int[Array, "T"]):
    O = zeros((T, D))
    for i in range(T):
        m = -inf
        for j in range(T):
            SCORE
            m = max(m, s)
        l = 0.0
        for j in range(T):
            SCORE
            l += exp(s - m)
        for j in range(T):
            SCORE
            for d in range(D):
                O[i, d] += exp(s - m) / l * V[j, d]
    return O
"""
SET_AGAIN = """s = Q[i] @ K[j]
            if doc[j] != doc[i] or j > i:
                s = -inf"""
CHOSEN = """if doc[j] == doc[i] and j <= i:
                s = Q[i] @ K[j]
            else:
                s = -inf"""


@pytest.mark.parametrize("score", [SET_AGAIN, CHOSEN])
def test_a_score_that_is_overwritten_in_each_pass_is_one_score(score: str) -> None:
    def torch_(q: Any, k: Any, v: Any, doc: Any) -> Any:
        seen = (doc[:, None] == doc) & torch.ones(9, 9, dtype=torch.bool).tril()
        return torch.softmax((q @ k.T).masked_fill(~seen, -float("inf")), -1) @ v

    text = OVERWRITTEN.replace("SCORE", score)
    compare(text, torch_, normal((9, 4), (9, 4), (9, 3)), [torch.arange(9) // 4])


# Pairs of neighbours are turned, row by row, in arrays that products read whole.
TURNED = """
def turned(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"],
           c: Float[Array, "M E//2"], s: Float[Array, "M E//2"]):
    assert E % 2 == 0
    R = zeros((M, E))
    O = zeros((M, D))
    for i in range(M):
        for f in range(E // 2):
            R[i, 2 * f] = Q[i, 2 * f] * c[i, f] - Q[i, 2 * f + 1] * s[i, f]
            R[i, 2 * f + 1] = Q[i, 2 * f] * s[i, f] + Q[i, 2 * f + 1] * c[i, f]
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, R[i] @ K[j])
        l = 0.0
        for j in range(N):
            l += exp(R[i] @ K[j] - m)
        for j in range(N):
            for d in range(D):
                O[i, d] += exp(R[i] @ K[j] - m) / l * V[j, d]
    return O
"""


def test_rows_written_in_pairs_may_be_read_whole() -> None:
    def torch_(q: Any, k: Any, v: Any, c: Any, s: Any) -> Any:
        a, b = q[:, 0::2], q[:, 1::2]
        turned = torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)
        return torch.softmax(turned @ k.T, -1) @ v

    compare(TURNED, torch_, normal((5, 6), (7, 6), (7, 3), (5, 3), (5, 3)), [])


def test_pairs_that_may_leave_a_cell_over_are_refused_with_the_contract() -> None:
    with pytest.raises(NotDifferentiated) as refused:
        backward(program(TURNED.replace("assert E % 2 == 0", "pass")))
    assert refused.value.remedy == "say that nothing is left over, with assert E % 2 == 0"


# The second pass takes off one number of each row, which is an output too.
ONE_NUMBER = """
def logarithm(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], g: float):
    O = zeros((M, D))
    lse = zeros(M, dtype=float32)
    for i in range(M):
        m, z = -inf, 0.0
        for j in range(N):
            x = Q[i] @ K[j] - g * abs(i - j)
            n = max(m, x)
            z = z * exp(m - n) + exp(x - n)
            m = n
        lse[i] = m + log(z)
        for j in range(N):
            x = Q[i] @ K[j] - g * abs(i - j)
            O[i] += exp(x - lse[i]) * V[j]
    return O, lse
"""


def test_weights_by_the_logarithm_of_their_sum_are_weights() -> None:
    """The gradients of both outputs meet in one difference, and each weight is worked out once."""
    text = listing(backward(program(ONE_NUMBER)).program)
    assert text.count("exp(") == 2 and text.count("* (dP") == 2
    assert "x = " not in text and "x_2 = " not in text
    q, k, v = (each.requires_grad_() for each in normal((5, 4), (7, 4), (7, 3)))
    wide = [each.detach().double().requires_grad_() for each in (q, k, v)]
    scores = wide[0] @ wide[1].T - 0.3 * abs(torch.arange(5)[:, None] - torch.arange(7))
    expected = torch.softmax(scores, -1) @ wide[2], torch.logsumexp(scores, -1)
    found = looptrans.compile(ONE_NUMBER)(q, k, v, 0.3)
    given = normal((5, 3), (5,))
    mine = torch.autograd.grad(found, (q, k, v), given)
    theirs = torch.autograd.grad(expected, wide, [each.double() for each in given])
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


# The maximum begins with the first score; a row of scores is overwritten where a key is padding.
FIRST_SCORE = """
def first(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"],
          pad: Bool[Array, "N"]):
    O = zeros((H, M, D))
    for h in range(H):
        for i in range(M):
            s = zeros(N)
            for j in range(N):
                s[j] = Q[h, i] @ K[h, j]
                if pad[j]:
                    s[j] = -1e9
            m = s[0]
            for j in range(1, N):
                m = max(m, s[j])
            l = 0.0
            for j in range(N):
                l += exp(s[j] - m)
            for d in range(D):
                acc = 0.0
                for j in range(N):
                    acc += exp(s[j] - m) * V[h, j, d]
                O[h, i, d] = acc / l
    return O
"""


def test_a_maximum_that_begins_with_the_first_score_is_that_of_one_pass() -> None:
    made = emitted_with_backward(program(FIRST_SCORE))
    assert len(made.forward.kernels) == 1
    assert [dim.name for dim in made.forward.kernels[0].grid] == ["h", "i"]
    (kernel,) = emitted(program(FIRST_SCORE)).blocks.kernels
    assert len([op for op in kernel.body if isinstance(op, TileLoop) and op.body]) == 2

    def torch_(q: Any, k: Any, v: Any, pad: Any) -> Any:
        return torch.softmax((q @ k.mT).masked_fill(pad, -1e9), -1) @ v

    given = normal((2, 5, 4), (2, 7, 4), (2, 7, 3))
    compare(FIRST_SCORE, torch_, given, [torch.arange(7) % 3 == 0])
    compare(FIRST_SCORE, torch_, normal((1, 2, 3), (1, 1, 3), (1, 1, 2)), [torch.tensor([True])])


@pytest.mark.parametrize(
    ("start", "first", "stop", "done"),
    [
        ("1", "X[i, 0]", "N", True),
        ("1", "X[i, 0]", "min(N, i + 1)", True),
        ("i + 1", "X[i, i]", "N", True),
        ("1", "X[i, 0]", "N - 1", False),  # X[i, 0] may be there where no j below N - 1 is
        ("2", "X[i, 0]", "N", False),
        ("1", "X[i, 1]", "N", False),
        ("1", "X[0, 0]", "N", False),
    ],
)
def test_a_fold_begins_with_nothing_where_its_first_term_is_one_more(
    start: str, first: str, stop: str, done: bool
) -> None:
    text = f"""
def f(X: Float[Array, "M N"]):
    y = zeros(M)
    for i in range(M):
        t = {first}
        for j in range({start}, {stop}):
            x = X[i, j]
            t = min(t, x)
        y[i] = t
    return y
"""
    given = program(text)
    found = with_first_terms_inside(given)
    assert (found is not None) == done
    if found is not None:
        x = np.random.default_rng(0).normal(size=(4, 6))
        one, other = (execute(p, inputs={"X": x}) for p in (given, found.program))
        np.testing.assert_array_equal(one["y"], other["y"])


def test_a_kernel_of_one_program_has_no_rows_to_be_late_with() -> None:
    text = """
def features(K: Float[Array, "N E"], V: Float[Array, "N D"], W: Float[Array, "F E"]):
    y = zeros((F, D))
    z = zeros(F)
    for j in range(N):
        n = sum(K[j, e] * K[j, e] for e in range(E))
        for f in range(F):
            a = exp(sum(W[f, e] * K[j, e] for e in range(E)) - n)
            z[f] += a
            for d in range(D):
                y[f, d] += a * V[j, d]
    return y, z
"""
    (kernel,) = emitted(program(text)).blocks.kernels
    assert kernel.grid == ()


POWERS = """
def powers(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((M, D))
    for i in range(M):
        m = -inf
        for j in range(N):
            m = max(m, Q[i] @ K[j])
        l = 0.0
        for j in range(N):
            l += 2.0 ** (1.4426950408889634 * (Q[i] @ K[j] - m))
        for d in range(D):
            o = 0.0
            for j in range(N):
                o += 2 ** (1.4426950408889634 * (Q[i] @ K[j] - m)) * V[j, d]
            O[i, d] = o / l
    return O
"""


def test_powers_of_two_are_exponentials_and_change_no_unit_of_a_gradient() -> None:
    given = program(POWERS)
    (kernel,) = emitted(given).blocks.kernels
    assert len([op for op in kernel.body if isinstance(op, TileLoop) and op.body]) == 2
    text = listing(backward(given).program)
    # log2(e) * log(2) is 1: written as a quotient of whole numbers both would be beyond 1e31.
    assert "e+" not in text and text.count("* (dP") == 2
    compare(
        POWERS, lambda q, k, v: torch.softmax(q @ k.T, -1) @ v, normal((5, 4), (7, 4), (7, 3)), []
    )


BASE_2 = """
def sums(Q: Float[Array, "M E"], K: Float[Array, "N E"], W: int):
    lse = zeros(M)
    for i in range(M):
        m = -inf
        l = 0.0
        for j in range(max(0, i - W), min(N, i + 1)):
            s = sum(Q[i, e] * K[j, e] for e in range(E)){unit}
            n = max(m, s)
            l = l * exp2({moved}) + exp2({own})
            m = n
        lse[i] = {end}
    return lse
"""
LOG2_E = {
    "in each power": ("", "(m - n) * 1.4426950408889634", "1.44269504 * (s - n)", "m + log(l)"),
    "in the score": (" * 1.44269504", "m - n", "s - n", "m * 0.69314718 + log(l)"),
    "and divided by": (" * 1.44269504", "m - n", "s - n", "(m + log2(l)) / 1.44269504"),
}


@pytest.mark.parametrize("way", LOG2_E)
def test_exponentials_to_the_base_of_2_leave_no_digits_behind(way: str) -> None:
    unit, moved, own, end = LOG2_E[way]
    found = backward(program(BASE_2.format(unit=unit, moved=moved, own=own, end=end)))
    assert len(found.saved) == 1, "which score is the largest is no matter"
    assert "e-" not in listing(found.program)


def test_a_literal_is_no_quotient_of_whole_numbers() -> None:
    powers = "1.3712345 * (m - n)", "1.3712345 * (s - n)"
    text = BASE_2.format(unit="", moved=powers[0], own=powers[1], end="1.3712345 * m + log2(l)")
    back = listing(backward(program(text)).program)
    assert "exp2(1.3712345 * " in back
    assert "2742469" not in back


def test_a_row_that_shares_nothing_is_a_program_of_its_own() -> None:
    text = """
def decode(q: Float[Array, "B H E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"]):
    O = zeros((B, H, D))
    for b in range(B):
        for h in range(H):
            m = -inf
            for j in range(N):
                m = max(m, q[b, h] @ K[b, h, j])
            l = 0.0
            for j in range(N):
                l += exp(q[b, h] @ K[b, h, j] - m)
            for j in range(N):
                for d in range(D):
                    O[b, h, d] += exp(q[b, h] @ K[b, h, j] - m) / l * V[b, h, j, d]
    return O
"""
    (kernel,) = emitted(program(text)).blocks.kernels
    for choice in (kernel.narrow, kernel.wide):
        assert choice.default.blocks == {"BLOCK_H": 1, "BLOCK_J": 64}
        assert choice.default in choice.tuned
        assert max(c.blocks["BLOCK_H"] * c.blocks["BLOCK_J"] for c in choice.tuned) == 128


# What all rows add to: the largest score of a head, a penalty, in the passes or behind them.
IN_COMMON = """
def common(Q: Float[Array, "H M E"], K: Float[Array, "H N E"], V: Float[Array, "H N D"]):
    O = zeros((H, M, D))
    {made}
    for h in range(H):
        for i in range(M):
            m = -inf
            l = 0.0
            for j in range(N):
                s = Q[h, i] @ K[h, j]
                {inside}
                n = max(m, s)
                l = l * exp(m - n) + exp(s - n)
                for d in range(D):
                    O[h, i, d] = O[h, i, d] * exp(m - n) + exp(s - n) * V[h, j, d]
                m = n
            {behind}
            for d in range(D):
                O[h, i, d] = O[h, i, d] / l
    return O, c
"""


@pytest.mark.parametrize(
    ("made", "inside", "behind", "meant"),
    [
        ("c = full(H, -inf)", "c[h] = max(c[h], s)", "", lambda s: s.amax((1, 2))),
        ("c = zeros(H)", "c[h] += s * s", "", lambda s: s.square().sum((1, 2))),
        (
            "c = zeros(H)",
            "",
            "c[h] += (m + log(l)) ** 2",
            lambda s: s.logsumexp(-1).square().sum(1),
        ),
        ("c = 0.0", "", "c += (m + log(l)) ** 2", lambda s: s.logsumexp(-1).square().sum()),
    ],
)
def test_what_all_rows_add_to_leaves_them_free(
    made: str, inside: str, behind: str, meant: Callable[..., Any]
) -> None:
    text = IN_COMMON.format(made=made, inside=inside or "pass", behind=behind or "pass")
    text = "\n".join(line for line in text.splitlines() if line.strip() != "pass")
    given = program(text)
    for blocks in (emitted(given).blocks, emitted_with_backward(given).forward):
        rows, joined = blocks.kernels
        assert [dim.name for dim in rows.grid] == ["h", "i"]
        assert [dim.name for dim in joined.grid] == ([] if made == "c = 0.0" else ["h"])
    q, k, v = (each.requires_grad_() for each in normal((2, 5, 4), (2, 7, 4), (2, 7, 3)))
    wide = [each.detach().double().requires_grad_() for each in (q, k, v)]
    scores = wide[0] @ wide[1].mT
    expected = torch.softmax(scores, -1) @ wide[2], meant(scores)
    found = looptrans.compile(text)(q, k, v)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
    # A maximum over everything receives no gradient.
    count = 1 if "max" in inside else 2
    back = normal((2, 5, 3), tuple(expected[1].shape))[:count]
    mine = torch.autograd.grad(found[:count], (q, k, v), back)
    theirs = torch.autograd.grad(expected[:count], wide, [each.double() for each in back])
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


def test_a_sum_of_a_row_is_no_part_of_one() -> None:
    """An array of parts would be one of all scores."""
    given = program("""
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    S = zeros((M, N))
    y = zeros(M)
    for i in range(M):
        for j in range(N):
            for e in range(E):
                S[i, j] += Q[i, e] * K[j, e]
            y[i] += 1.0
    return S, y
""")
    assert with_parts_of_rows(given) is None


# Gates are added up before the keys are gone over, and handed over to the backward pass.
FORGETTING = """
def forgetting(Q: Float[Array, "T E"], K: Float[Array, "T E"], V: Float[Array, "T D"],
               f: Float[Array, "T"]):
    c = zeros(T)
    for t in range(T):
        c[t] = (c[t - 1] if t > 0 else 0.0) - log(1.0 + exp(-f[t]))
    O = zeros((T, D))
    for i in range(T):
        m = -inf
        l = 0.0
        for j in range(i + 1):
            s = Q[i] @ K[j] + c[i] - c[j]
            n = max(m, s)
            l = l * exp(m - n) + exp(s - n)
            for d in range(D):
                O[i, d] = O[i, d] * exp(m - n) + exp(s - n) * V[j, d]
            m = n
        for d in range(D):
            O[i, d] /= l
    return O
"""


def test_what_time_hands_over_has_one_type_in_both_passes() -> None:
    """It is kept in float32; where it was an argument already, half precision was refused."""
    given = [each.half().requires_grad_() for each in normal((7, 4), (7, 4), (7, 3), (7,))]
    looptrans.compile(FORGETTING)(*given).sum().backward()
    q, k, v, f = wide = [each.detach().double().requires_grad_() for each in given]
    c = torch.nn.functional.logsigmoid(f).cumsum(0)
    seen = torch.ones(7, 7, dtype=torch.bool).tril()
    scores = (q @ k.T + c[:, None] - c).masked_fill(~seen, -float("inf"))
    (torch.softmax(scores, -1) @ v).sum().backward()
    for one, other in zip(given, wide, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=2e-2, atol=1e-2)


BOTH_WAYS = """
def both_ways(A: Float[Array, "N E"], T: Float[Array, "N E"], s: float):
    loss = 0.0
    for i in range(N):
        m = -inf
        l = 0.0
        for j in range(N):
            x = s * (A[i] @ T[j])
            t = max(m, x)
            l = l * exp(m - t) + exp(x - t)
            m = t
        loss += (m + log(l) - s * (A[i] @ T[i])) / N
    for j in range(N):
        m = -inf
        l = 0.0
        for i in range(N):
            x = s * (A[i] @ T[j])
            t = max(m, x)
            l = l * exp(m - t) + exp(x - t)
            m = t
        loss += (m + log(l) - s * (A[j] @ T[j])) / N
    return loss
"""


def test_names_that_two_nests_use_for_rows_of_their_own() -> None:
    """What was kept for each i had no place where the other nest kept it for each j."""

    def torch_(a: Any, t: Any, s: float) -> Any:
        x, own = s * a @ t.T, torch.arange(len(a))
        return torch.nn.functional.cross_entropy(x, own) + torch.nn.functional.cross_entropy(
            x.T, own
        )

    compare(BOTH_WAYS, torch_, normal((19, 5), (19, 5)), [0.7])


LOOKED_UP = """
def looked_up(X: Float[Array, "M N"], g: Int[Array, "M", "0:N"], h: Int[Array, "N", "0:M"]):
    A = zeros(M); B = zeros(N)
    for i in range(M):
        p = g[i]
        A[i] = X[i, p]
    for j in range(N):
        p = h[j]
        B[j] = X[p, j]
    return A, B
"""


def test_a_name_that_stands_in_a_subscript_keeps_it() -> None:
    """Subscripts are not renamed: the second loop would have read what the first one left."""
    assert with_own_names(program(LOOKED_UP)) is None
    assert with_own_names(program(BOTH_WAYS)) is not None


MADE_TWICE = """
def made_twice(X: Float[Array, "M N"], Y: Float[Array, "M N"]):
    A = zeros(M); B = zeros(N)
    for i in range(M):
        w = zeros(N)
        for j in range(N):
            w[j] = X[i, j] * 2
        for j in range(N):
            A[i] += w[j] * Y[i, j]
    for j in range(N):
        w = zeros(M)
        for i in range(M):
            w[i] = X[i, j] * 3
        for i in range(M):
            B[j] += w[i] * Y[i, j] * A[i]
    return B
"""


def test_rows_of_two_lengths_under_one_name() -> None:
    def torch_(x: Any, y: Any) -> Any:
        return 3 * ((x * y) * (2 * x * y).sum(1, keepdim=True)).sum(0)

    compare(MADE_TWICE, torch_, normal((5, 7), (5, 7)), [])


EXPERTS = """
def experts(X: Float[Array, "T D"], W1: Float[Array, "P D F"], W2: Float[Array, "P F D"],
            g: Float[Array, "T 2"], e: Int[Array, "T 2", "0:P"]):
    Y = zeros((T, D))
    for t in range(T):
        for k in range(2):
            for f in range(F):
                u = sum(X[t, d] * W1[e[t, k], d, f] for d in range(D))
                a = u / (1 + exp(-u))
                for d in range(D):
                    Y[t, d] += g[t, k] * a * W2[e[t, k], f, d]
    return Y
"""


def test_two_experts_for_each_token() -> None:
    """A sum that was written as one kept a row of weights in registers, which it could not."""

    def torch_(x: Any, w1: Any, w2: Any, g: Any, e: Any) -> Any:
        u = torch.einsum("td,tkdf->tkf", x, w1[e])
        return torch.einsum("tk,tkf,tkfd->td", g, torch.nn.functional.silu(u), w2[e])

    chosen = torch.tensor([[0, 1], [2, 2], [1, 0]])
    compare(EXPERTS, torch_, normal((3, 5), (3, 5, 18), (3, 18, 5), (3, 2)), [chosen])


DECAYS = """
def decays(X: Float[Array, "T H P"], A: Float[Array, "T H"], L: Float[Array, "T N"],
           C: Float[Array, "T N"]):
    c = zeros((T, H)); Y = zeros((T, H, P))
    for h in range(H):
        run = 0.0
        for t in range(T):
            run -= A[t, h] ** 2
            c[t, h] = run
    for h in range(H):
        for i in range(T):
            for j in range(i + 1):
                g = sum(C[i, n] * L[j, n] for n in range(N)) * exp(c[i, h] - c[j, h])
                for p in range(P):
                    Y[i, h, p] += g * X[j, h, p]
    return Y
"""
NESTED = """
def nested(X: Float[Array, "T H P"], c: Float[Array, "T H"], G: Float[Array, "T H P"],
           L: Float[Array, "T N"]):
    dC = zeros((T, N))
    for i in range(T):
        for j in range(i + 1):
            dg = sum(
                exp(c[i, h] - c[j, h]) * sum(G[i, h, p] * X[j, h, p] for p in range(P))
                for h in range(H)
            )
            for n in range(N):
                dC[i, n] += dg * L[j, n]
    return dC
"""


def test_decays_of_heads_are_worked_out_for_each_head() -> None:
    """A block of all heads and columns was larger than Triton's largest."""
    found = emitted_with_backward(program(DECAYS))
    for blocks in (found.forward, found.backward):
        assert most_dims(op for kernel in blocks.kernels for op in kernel.body) == 2

    def torch_(x: Any, a: Any, ell: Any, c: Any) -> Any:
        s = (-(a**2)).cumsum(0).T
        weights = (c @ ell.T) * torch.exp(s[:, :, None] - s[:, None, :])
        return torch.einsum("hij,jhp->ihp", torch.tril(weights), x)

    compare(DECAYS, torch_, normal((9, 3, 5), (9, 3), (9, 4), (9, 4)), [])


def test_a_sum_of_sums_is_a_loop_with_products() -> None:
    (kernel,) = emitted(program(NESTED)).blocks.kernels
    assert most_dims(kernel.body) == 2 and has_products(kernel.body)

    def torch_(x: Any, c: Any, g: Any, ell: Any) -> Any:
        weights = torch.exp(c[:, None] - c[None]) * torch.einsum("ihp,jhp->ijh", g, x)
        return torch.tril(weights.sum(-1)) @ ell

    compare(NESTED, torch_, normal((9, 3, 5), (9, 3), (9, 3, 5), (9, 4)), [])


# Windows of P rows and columns: a bias for how far apart two places are, and a mask that is added
# where they are of different regions.
SHIFTED = """
def shifted(QKV: Float[Array, "W T 3 H D"], table: Float[Array, "H 2*P-1 2*P-1"],
            region: Int[Array, "W T"], P: Const):
    O = zeros((W, T, H, D))
    S = zeros((T, T))
    for w in range(W):
        for h in range(H):
            for i in range(T):
                for j in range(T):
                    S[i, j] = sum(QKV[w, i, 0, h, d] * QKV[w, j, 1, h, d] for d in range(D)) / sqrt(D)
                    S[i, j] += table[h, i // P - j // P + P - 1, i % P - j % P + P - 1]
                    if region[w, i] != region[w, j]:
                        S[i, j] += -100.0
                m = max(S[i, j] for j in range(T))
                l = sum(exp(S[i, j] - m) for j in range(T))
                for d in range(D):
                    O[w, i, h, d] = sum(exp(S[i, j] - m) * QKV[w, j, 2, h, d] for j in range(T)) / l
    return O
"""  # noqa: E501


def test_a_bias_may_be_looked_up_by_rows_and_columns_of_a_window() -> None:
    """What is known of quotients by a size would take the analysis minutes; not all is asked."""
    text = listing(backward(program(SHIFTED)).program)
    assert " or not " not in text  # every score is worked out, whatever its region

    side = 2
    region = torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]])

    def torch_(qkv: Any, table: Any, region: Any, side: int) -> Any:
        q, k, v = (qkv[:, :, n].transpose(1, 2) for n in range(3))
        place = torch.arange(side * side)
        down = place[:, None] // side - place[None, :] // side + side - 1
        along = place[:, None] % side - place[None, :] % side + side - 1
        far = region[:, None, :, None] != region[:, None, None, :]
        score = q @ k.mT / q.shape[-1] ** 0.5 + table[:, down, along] - 100.0 * far
        return (torch.softmax(score, -1) @ v).transpose(1, 2)

    compare(SHIFTED, torch_, normal((2, 4, 3, 2, 3), (2, 3, 3)), [region, side])


# Keys are gone over from the last one down, in loops or in sums.
DOWNWARDS = {
    "loops": """
def downwards(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D))
    for i in range(N):
        m = -inf
        for j in range(i, -1, STEP):
            m = max(m, Q[i] @ K[j])
        l = 0.0
        for j in range(i, -1, STEP):
            l += exp(Q[i] @ K[j] - m)
        for j in range(i, -1, STEP):
            for d in range(D):
                O[i, d] += exp(Q[i] @ K[j] - m) / l * V[j, d]
    return O
""",
    "sums": """
def downwards(Q: Float[Array, "N E"], K: Float[Array, "N E"], V: Float[Array, "N D"]):
    O = zeros((N, D))
    for i in range(N):
        m = max(Q[i] @ K[j] for j in range(i, -1, STEP))
        l = sum(exp(Q[i] @ K[j] - m) for j in range(i, -1, STEP))
        for d in range(D):
            O[i, d] = sum(exp(Q[i] @ K[j] - m) * V[j, d] for j in range(i, -1, STEP)) / l
    return O
""",
}


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("written", DOWNWARDS)
def test_weights_of_keys_gone_over_downwards_have_gradients(written: str, step: int) -> None:
    """They were 0 throughout: an end at -1 was taken for how many keys there are."""

    def torch_(q: Any, k: Any, v: Any) -> Any:
        apart = torch.arange(11)[:, None] - torch.arange(11)
        seen = (apart >= 0) & (apart % step == 0)
        return torch.softmax((q @ k.T).masked_fill(~seen, -float("inf")), -1) @ v

    text = DOWNWARDS[written].replace("STEP", str(-step))
    compare(text, torch_, normal((11, 4), (11, 4), (11, 3)), [])


IN_TWO_LOOPS = """
def learned(qc: Float[Array, "M C"], qr: Float[Array, "M R"], kc: Float[Array, "N C"],
            kr: Float[Array, "N R"], v: Float[Array, "N D"], tau: Float[Array, "1"]):
    out = zeros((M, D))
    for i in range(M):
        mx = -inf
        for j in range(N):
            if j - i <= N - M:
                s1 = 0.0
                for c in range(C):
                    s1 = s1 + qc[i, c] * kc[j, c]
                for r in range(R):
                    s1 = s1 + qr[i, r] * kr[j, r]
                mx = max(mx, s1 * exp(tau[0]))
        den = 0.0
        for j in range(N):
            if j - i <= N - M:
                s2 = 0.0
                for c in range(C):
                    s2 = s2 + qc[i, c] * kc[j, c]
                for r in range(R):
                    s2 = s2 + qr[i, r] * kr[j, r]
                w = exp(s2 * exp(tau[0]) - mx)
                den = den + w
                for d in range(D):
                    out[i, d] = out[i, d] + w * v[j, d]
        for d in range(D):
            out[i, d] = out[i, d] / den if den > 0.0 else 0.0
    return out
"""


def test_scores_added_up_in_loops_of_each_pass_are_one_score() -> None:
    text = str(emitted(program(IN_TWO_LOOPS)).text)
    # Two products of a score and one of its weight, before and behind the mask's edge.
    assert text.count("tl.dot(q") == 4
    kernel = text[text.index("_kernel(") :]
    assert kernel.count("tl.dot(") + kernel.count("_dot_widened(") == 6

    def theirs(qc: Any, qr: Any, kc: Any, kr: Any, v: Any, tau: Any) -> Any:
        scores = (qc @ kc.T + qr @ kr.T) * tau.exp()
        seen = torch.tril(torch.ones(scores.shape, dtype=torch.bool), 17 - 13)
        return torch.softmax(scores.masked_fill(~seen, float("-inf")), 1) @ v

    compare(IN_TWO_LOOPS, theirs, normal((13, 8), (13, 4), (17, 8), (17, 4), (17, 6), (1,)), [])


# Keys and what is looked up for a pair of rows, the same for all heads (Shaw et al., 2018).
RELATIVE = """
def relative(Q: Float[Array, "B H N E"], K: Float[Array, "B H N E"], V: Float[Array, "B H N D"],
             R: Float[Array, "2*W+1 E"], W: Const):
    S = zeros((B, H, N, N))
    O = zeros((B, H, N, D))
    for b in range(B):
        for h in range(H):
            for i in range(N):
                m = -inf
                for j in range(N):
                    S[b, h, i, j] = SCORE
                    m = max(m, S[b, h, i, j])
                l = 0.0
                for j in range(N):
                    l += exp(S[b, h, i, j] - m)
                for d in range(D):
                    O[b, h, i, d] = sum(exp(S[b, h, i, j] - m) * V[b, h, j, d] for j in range(N))
                    O[b, h, i, d] /= l
    return O
"""
KEY, FAR = "K[b, h, j, e]", "R[j - i + W, e]"
RELATIVES = (
    f"sum(Q[b, h, i, e] * ({KEY} + {FAR}) for e in range(E))",
    f"sum(Q[b, h, i, e] * {KEY} for e in range(E)) + sum(Q[b, h, i, e] * {FAR} for e in range(E))",
)


@pytest.mark.parametrize("score", RELATIVES)
def test_keys_are_multiplied_with_rows_beside_what_is_looked_up_for_pairs(score: str) -> None:
    """Heads are no rows, though what is looked up would be a product then: keys have none then."""
    (kernel,) = lowered(program(RELATIVE.replace("SCORE", score))).kernels
    assert [dim.name for dim in kernel.grid if dim.role == "rows"] == ["i"]
    loop = next(op for op in kernel.body if isinstance(op, TileLoop))
    assert sum(1 for _ in products_in((loop,))) == 2  # and with values


def test_rows_that_were_tried_and_given_up_leave_no_notes_behind() -> None:
    """With rows g each i would have products of its own; with rows j of one g none has."""
    found = lowered(
        program("""
def weighted(Q: Float[Array, "H G N E"], K: Float[Array, "H N E"], R: Float[Array, "2*N E"]):
    Y = zeros((H, G, N, E))
    for h in range(H):
        for g in range(G):
            for j in range(N):
                for i in range(N):
                    p = sum(Q[h, g, i, e] * (K[h, j, e] + R[N + j - i, e]) for e in range(E))
                    for e in range(E):
                        Y[h, g, j, e] += tanh(p) * Q[h, g, i, e]
    return Y
""")
    )
    assert not any(isinstance(op, ElementLoop) for op in ops_in(found.kernels[0].body))
    assert found.notes == ()


def test_looked_up_keys_have_the_gradients_of_torch() -> None:
    def theirs(q: Any, k: Any, v: Any, r: Any, w: int) -> Any:
        at = torch.arange(q.shape[2])
        far = r[at[None, :] - at[:, None] + w]
        scores = q @ k.mT + torch.einsum("bhie,ije->bhij", q, far)
        return torch.softmax(scores, 3) @ v

    shapes = (2, 2, 19, 4), (2, 2, 19, 4), (2, 2, 19, 3), (37, 4)
    text = RELATIVE.replace("SCORE", RELATIVES[0])
    compare(text, theirs, normal(*shapes), [18])
    kernels = emitted_with_backward(program(text)).backward.kernels
    (kernel,) = (kernel for kernel in kernels if "dK" in kernel.name)
    assert [dim.name for dim in kernel.grid if dim.role == "rows"] == ["j"]
