"""Dependent reductions made into one pass, or refused with numbers or with what forces two."""

from __future__ import annotations

import random

import mpmath
import numpy as np
import pytest

from looptrans.algebra.iterations.assembly import recurrence
from looptrans.algebra.operators.finding import find_operator
from looptrans.algebra.other_states.fusion import fuse
from looptrans.algebra.other_states.separable import Fusion
from looptrans.algebra.positional.numbers import evaluate
from looptrans.executor.run import execute
from looptrans.ir.listing import access_text, value_text
from looptrans.ir.program import Program
from tests.algebra import close, rows_of
from tests.analysis import program, spec


def passes(first: str, term: str, start: str = "0.0", word: str = "t = t + ") -> Program:
    """Return a loop that reduces m from x and one that reduces t from `term`."""
    end = ")" if "max" in word or "min" in word else ""
    return program(f"""
def f(x, v, N):
    m = {first}
    for j in range(N):
        m = {"max" if first == "-inf" else "min"}(m, x[j])
    t = {start}
    for k in range(N):
        {word}{term}{end}
    return m, t
""")


def loops_of(listing: Program) -> tuple[str, ...]:
    from looptrans.ir.walk import placed

    return tuple(f"{p.loops[-1].variable}@{p.label}" for p in placed(listing) if p.loops)


def fused(listing: Program) -> Fusion:
    return fuse(listing, loops_of(listing))


def test_the_naive_listing_becomes_the_corrected_recurrence() -> None:
    made = fuse(spec("attention_naive"), ("j@S1", "j@S3", "j@S4"))
    assert made.decision == "fused" and made.recurrence is not None
    corrected = recurrence(spec("flash_forward"), "j")
    assert [access_text(s.access) for s in made.recurrence.states] == ["m[i]", "l[i]", "O[i, d]"]
    from looptrans.algebra.normal_forms.normal import Assumptions, equality
    from looptrans.algebra.positional.numbers import Domain

    positive = Assumptions(Domain(positive=frozenset({"s2"})))
    for mine, theirs in zip(made.recurrence.states, corrected.states, strict=True):
        assert mine.initial == theirs.initial and mine.over == theirs.over
        assert equality(mine.update, theirs.update, positive).answer == "proved"
    assert [value_text(g.value) for g in made.recurrence.inputs] == [
        "sum(Q[i, e] * K[j, e] for e in range(0, E))",
        "V[j, d]",
    ]
    assert [(law.name, law.answer) for law in made.laws] == [
        ("separability", "proved"),
        ("moving", "proved"),
    ] * 2
    assert find_operator(made.recurrence).decision == "found"


def test_the_rescaling_is_found_from_the_terms() -> None:
    listing = passes("-inf", "exp((x[k] - m) * 2.0) * v[k]")
    made = fused(listing)
    assert made.recurrence is not None
    big = "max(s1, x1)"
    assert value_text(made.recurrence.states[1].update) == (
        f"s2 * exp(2.0 * s1 - 2.0 * {big}) + x2 * exp(2.0 * x1 - 2.0 * {big})"
    )


@pytest.mark.parametrize(
    ("first", "term", "start", "word"),
    [
        ("-inf", "exp(x[k] - m)", "0.0", "t = t + "),
        ("-inf", "exp2((x[k] - m) * 3.0) * v[k]", "0.0", "t = t + "),
        ("inf", "v[k] * exp(m - x[k])", "0.0", "t = t + "),
        ("inf", "v[k] / (1.0 + m * m)", "0.0", "t = t + "),
        ("-inf", "v[k] - m", "-inf", "t = max(t, "),
        ("-inf", "v[k] + 2.0 * m", "inf", "t = min(t, "),
    ],
)
def test_one_pass_gives_what_the_passes_give(first: str, term: str, start: str, word: str) -> None:
    listing = passes(first, term, start, word)
    made = fused(listing)
    assert made.decision == "fused" and made.recurrence is not None, made.reason
    rng = random.Random(3)
    data = {name: [rng.uniform(-2, 2) for _ in range(7)] for name in ("x", "v")}
    arrays = {array.name for array in listing.arrays} & set(data)
    expected = execute(
        listing, sizes={"N": 7}, inputs={name: np.array(data[name]) for name in sorted(arrays)}
    )
    point = {s.name: evaluate(s.initial, {}) for s in made.recurrence.states}
    for number, row in enumerate(rows_of(made.recurrence, data, 7)):
        here = {**point, **row}
        if number == 0:
            # Nothing is moved from an empty prefix.
            here["s1"] = mpmath.mpf(row["x1"])
            here["s2"] = mpmath.mpf(0) if start == "0.0" else mpmath.mpf(start)
        point = {s.name: evaluate(s.update, here) for s in made.recurrence.states}
    assert close(point["s1"], float(expected["m"]))
    assert close(point["s2"], float(expected["t"]))


@pytest.mark.parametrize(
    ("term", "word", "start"),
    [
        ("(x[k] - m) ** 2", "t = t + ", "0.0"),
        ("(v[k] - m)", "t = t + ", "0.0"),
        ("exp(x[k] * m)", "t = t + ", "0.0"),
        ("max(v[k], m)", "t = t + ", "0.0"),
        ("v[k] * m", "t = max(t, ", "-inf"),
        ("log(1.0 + exp(x[k] - m))", "t = t + ", "0.0"),
    ],
)
def test_what_is_not_separable_is_refused_with_numbers(term: str, word: str, start: str) -> None:
    made = fused(passes("-inf", term, start, word))
    assert made.decision == "refused"
    assert "not separable" in made.reason
    (law,) = made.laws
    (equation,) = law.equations
    assert equation.proof.answer == "refuted" and equation.proof.numbers
    point = {name: mpmath.mpf(text) for name, text in equation.proof.numbers}
    assert not close(evaluate(equation.left, point), evaluate(equation.right, point))


@pytest.mark.parametrize(
    ("name", "loops", "why"),
    [
        (
            "rmsnorm",
            ("j@S2", "j@S4"),
            "S4 writes a value for each j from s, which is known only after the last one, "
            "through S3 → S4: a second pass is needed",
        ),
        (
            "softmax",
            ("j@S1", "j@S2", "j@S3"),
            "S3 writes a value for each j from m[i], which is known only after the last one, "
            "through S2 → S3: a second pass is needed",
        ),
        ("layernorm", ("j@S2", "j@S5"), "the terms of t are not separable"),
    ],
)
def test_nests_that_need_two_passes_say_so(name: str, loops: tuple[str, ...], why: str) -> None:
    made = fuse(spec(name), loops)
    assert made.decision == "refused" and made.reason == why


def test_cross_entropy_needs_one_pass_over_the_row() -> None:
    made = fuse(spec("softmax_cross_entropy"), ("v@S2", "v@S4"))
    assert made.recurrence is not None
    assert [access_text(s.access) for s in made.recurrence.states] == ["m", "l"]


ATTENTION = """
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N D"], B, T: float):
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    O = zeros((M, D))
    for i in range(0, M):
        for j in range(0, N):
            S[i, j] = SCORE
            m[i] = max(m[i], S[i, j])
        for j in range(0, N):
            l[i] = l[i] + exp(S[i, j] - m[i])
        for j in range(0, N):
            for d in range(0, D):
                O[i, d] = O[i, d] + exp(S[i, j] - m[i]) / l[i] * V[j, d]
    return O
"""


@pytest.mark.parametrize(
    "score",
    [
        "30.0 * tanh((Q[i] @ K[j]) / 30.0) + 0.0 * B[i, j]",
        "Q[i] @ K[j] + B[i, j]",
        "(Q[i] @ K[j]) * T + 0.0 * B[i, j]",
        "Q[i] @ K[j] + B[i, j] if j <= i else -inf",
    ],
)
def test_variants_of_attention_fuse(score: str) -> None:
    made = fuse(program(ATTENTION.replace("SCORE", score)), ("j@S1", "j@S3", "j@S4"))
    assert made.decision == "fused" and made.recurrence is not None, made.reason
    finding = find_operator(made.recurrence)
    assert finding.operator is not None
    assert [value_text(c.combine) for c in finding.operator.components] == [
        "max(a1, b1)",
        "a2 * exp(a1 - c1) + b2 * exp(b1 - c1)",
        "a3 * a2 * exp(a1 - c1) / c2 + b3 * b2 * exp(b1 - c1) / c2",
    ]


def test_loops_that_do_not_wait_share_a_pass_as_they_are() -> None:
    listing = program("""
def f(x, v, N):
    m = -inf
    for j in range(N):
        m = max(m, x[j])
    t = 0.0
    for k in range(N):
        t = t + v[k] * v[k]
    return m, t
""")
    made = fused(listing)
    assert made.recurrence is not None and made.laws == ()
    assert [value_text(s.update) for s in made.recurrence.states] == ["max(s1, x1)", "s2 + x2"]


@pytest.mark.parametrize(
    ("middle", "stop", "why"),
    [
        ("t = 0.0", "N - 1", "does not follow with the same range"),
        ("t = 0.0\n    x[0] = 9.0", "N", "may read x from"),
    ],
)
def test_other_ranges_and_writes_in_between_are_not_fused(middle: str, stop: str, why: str) -> None:
    listing = program(f"""
def f(x, v, N):
    m = -inf
    for j in range(N):
        x[j] = v[j]
        m = max(m, x[j])
    {middle}
    for k in range({stop}):
        t = t + exp(x[k] - m)
    return m, t
""")
    made = fuse(listing, ("j", "k"))
    assert made.decision == "unknown" and why in made.reason


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("y[j] = x[j]", "t = t + exp(y[N - 1 - k] - m)", "not known before the loop is done"),
        ("acc = x[j]", "acc = v[k] + y[k] * y[k]\n        t = t + exp(acc - m)", ""),
        ("y[j] = x[j]", "t = t + exp(x[k] - m) * y[k]", ""),
        ("y[0] = x[j]", "t = t + exp(x[k] - m) * y[0]", "not clear for every prefix that"),
    ],
)
def test_only_what_the_iteration_already_has_is_used(first: str, second: str, why: str) -> None:
    listing = program(f"""
def f(x, v, y, N):
    m = -inf
    t = 0.0
    for j in range(N):
        {first}
        m = max(m, x[j])
    for k in range(N):
        {second}
    return m, t
""")
    made = fuse(listing, ("j", "k"))
    assert (made.decision == "fused") == (not why)
    assert why in made.reason


def test_scores_that_an_inner_loop_makes_are_one_input() -> None:
    listing = program("""
def f(Q: Float[Array, "M E"], K: Float[Array, "N E"]):
    S = zeros((M, N))
    m = full(M, -inf)
    l = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            for e in range(0, E):
                S[i, j] = S[i, j] + Q[i, e] * K[j, e]
            m[i] = max(m[i], S[i, j])
        for j in range(0, N):
            l[i] = l[i] + exp(S[i, j] - m[i])
    return m, l
""")
    made = fuse(listing, ("j@S2", "j@S3"))
    assert made.recurrence is not None, made.reason
    assert [value_text(g.value) for g in made.recurrence.inputs] == ["S[i, j]"]


def test_a_sum_that_starts_from_two_terms_is_refused_with_the_reason() -> None:
    made = fused(
        program("""
def f(x, a, b, N):
    m = max(a, b)
    for j in range(N):
        m = max(m, x[j])
    t = exp(a - m) + exp(b - m)
    for k in range(N):
        t = t + exp(x[k] - m)
    return m, t
""")
    )
    assert made.decision == "refused"
    assert "starts from" in made.reason
