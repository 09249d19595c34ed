"""Derivations: structure, numbers against NumPy, and what is said where nothing can be done."""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import pytest

from looptrans.derivation.derive import derive
from looptrans.derivation.forms.one_target import with_one_target
from looptrans.derivation.joined.apart import branching
from looptrans.derivation.joined.made_one import made_one_by_text
from looptrans.derivation.moves import made
from looptrans.derivation.step import Derivation, Goal, NotDone
from looptrans.derivation.work import loop_name
from looptrans.emit.listing import emitted
from looptrans.emit.refusal import Refused
from looptrans.executor import RaceLog, execute
from looptrans.frontend import parse
from looptrans.ir.listing import listing
from looptrans.ir.program import Assign, Loop, Program
from looptrans.ir.source import Source
from looptrans.ir.walk import loops, placed
from looptrans.transforms.editing.tree import loop_paths
from looptrans.transforms.script import apply_all
from tests.analysis import program, spec
from tests.derivations import (
    ATTENTIONS,
    BIAS,
    LOGSUMEXP,
    RENAMED,
    attention_inputs,
    run,
    scored,
    softmax_mean,
)
from tests.same_nest import same_nest

# All cases of what a few show.
ALL = "LOOPTRANS_TEST_ALL" in os.environ
REALS = {"cap": 5.0, "t": 0.7}


@lru_cache(maxsize=32)
def derived(name: str, goal: Goal = "forward", count: int = 3) -> Derivation:
    given = ATTENTIONS[name][0] if name in ATTENTIONS else spec(name)
    return derive(given, goal, block=count, parts=count)


def loop_named(what: Program, variable: str) -> list[Loop]:
    return [loop for loop in loops(what) if loop.variable == variable]


def test_three_passes_become_the_corrected_listing() -> None:
    step = derived("attention_naive").steps[0]
    assert step.name == "one pass instead of 3: m[i], l[i] and O[i, d] move together"
    assert same_nest(step.after, spec("flash_forward")) == ""


def test_the_comparison_of_nests_sees_a_missing_rescaling() -> None:
    text = listing(derived("attention_naive").steps[0].after)
    wrong = text.replace("l[i] * exp(m[i] - m_ij) + ", "l[i] + ")
    assert wrong != text
    found = same_nest(parse(Source("t.py", wrong)), spec("flash_forward"))
    assert "exp" in found


def test_the_printed_listing_is_not_what_is_derived() -> None:
    assert same_nest(derived("attention_naive").steps[0].after, spec("flash_forward_as_printed"))


def test_the_forward_derivation_ends_in_blocks_with_i_and_d_parallel() -> None:
    found = derived("attention_naive")
    assert found.decision == "legal" and found.notes == ()
    assert [step.kind for step in found.steps] == [
        "one pass",
        "contraction",
        "guard",
        "change of state",
        "blocks",
        "parallel",
    ]
    assert [loop.execution for loop in loop_named(found.last, "i")] == ["parallel"]
    assert {loop.execution for loop in loop_named(found.last, "d")} == {"parallel"}
    assert {loop.execution for loop in loop_named(found.last, "j0")} == {"sequential"}
    assert "S = zeros" not in listing(found.last)


def test_every_step_starts_where_the_one_before_ended_and_is_shown() -> None:
    goals: tuple[Goal, ...] = ("forward", "split")
    for goal in goals:
        found = derived("attention_naive", goal)
        before = found.program
        for step in found.steps:
            assert step.before == before
            assert step.certificates and step.decision == "legal"
            assert all(c.verdict == "legal" for c in step.certificates)
            before = step.after
        assert before == found.last


def test_algebraic_steps_hold_the_complete_laws_of_an_operator() -> None:
    for step in derived("attention_naive").steps:
        laws = [law.name for law in step.laws]
        if step.kind in ("one pass", "guard", "change of state", "blocks"):
            assert "reading again" in laws
        if step.operator is not None:
            required = [law.name for law in step.operator.laws if law.is_required]
            assert required[:6] == [
                "one iteration",
                "continuation",
                "associativity",
                "no iteration",
                "first iteration",
                "signs",
            ]


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        (name, goal)
        for name in ATTENTIONS
        for goal in ("forward", "split")
        if goal == "forward" or ALL or name in ("plain", "causal")
    ],
)
def test_variants_give_softmax_attention(name: str, goal: Goal) -> None:
    given, scores = ATTENTIONS[name]
    found = derived(name, goal)
    assert found.decision == "legal", found.notes
    inputs = attention_inputs(1)
    inputs["B"] = np.random.default_rng(2).standard_normal((3, 7))
    reals = {k: v for k, v in REALS.items() if k in given.arguments}
    expected = softmax_mean(scores(inputs), inputs["V"])
    for step in found.steps:
        (result,) = run(step.after, inputs, sizes=reals)
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12, err_msg=step.name)


def test_names_of_the_listing_do_not_matter() -> None:
    found = derive(RENAMED, block=3)
    assert found.decision == "legal" and found.steps[-1].kind == "parallel"
    inputs = attention_inputs(3)
    given = {"a": inputs["Q"], "b": inputs["K"], "w": inputs["V"]}
    (result,) = execute(found.last, inputs=given).values()
    expected = softmax_mean(inputs["Q"] @ inputs["K"].T, inputs["V"])
    np.testing.assert_allclose(result, expected, rtol=1e-12)


SCORES = {
    "normal": np.random.default_rng(4).standard_normal((4, 9)),
    "single -inf": np.where(
        np.random.default_rng(5).random((4, 9)) < 0.4,
        -np.inf,
        np.random.default_rng(6).standard_normal((4, 9)),
    ),
    "rows of -inf": np.where(np.arange(4)[:, None] % 2 == 0, -np.inf, np.ones((4, 9))),
    "ascending": np.broadcast_to(np.linspace(-1e4, 1e4, 9), (4, 9)).copy(),
    "-inf at first": np.where(np.arange(9)[None] < 5, -np.inf, np.ones((4, 9))),
    "none": np.zeros((4, 0)),
    "fewer than parts": np.random.default_rng(7).standard_normal((4, 2)),
}


@pytest.mark.parametrize(
    ("goal", "count"),
    [
        (goal, count)
        for goal in ("forward", "split")
        for count in (1, 2, 3, 7)
        if ALL or (goal, count) in (("forward", 1), ("forward", 3), ("split", 1), ("split", 2))
    ],
)
def test_parts_and_blocks_give_what_the_whole_gives(goal: Goal, count: int) -> None:
    found = derived("bias", goal, count)
    assert found.decision == "legal"
    for name, scores in SCORES.items():
        inputs = scored(scores)
        expected = softmax_mean(scores, inputs["V"])
        (result,) = run(found.last, inputs)
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12, err_msg=name)
        (listed,) = run(BIAS, inputs)
        known = ~np.isnan(listed)
        np.testing.assert_allclose(result[known], listed[known], rtol=1e-9, atol=1e-12)


def test_rows_of_minus_infinity_are_nan_in_the_listing_and_nothing_in_the_derived_nest() -> None:
    inputs = scored(SCORES["rows of -inf"])
    (listed,) = run(BIAS, inputs)
    assert np.isnan(listed[0]).all()
    (result,) = run(derived("bias", "split", 3).last, inputs)
    assert (result[0] == 0.0).all()


@pytest.mark.parametrize("goal", ["forward", "split"])
def test_the_parallel_loops_give_the_same_in_any_order(goal: Goal) -> None:
    last = derived("attention_naive", goal).last
    inputs = attention_inputs(8, rows=3, columns=5)
    expected = softmax_mean(inputs["Q"] @ inputs["K"].T, inputs["V"])
    for seed in (1, 2):
        races = RaceLog()
        (result,) = run(last, inputs, schedule=seed, races=races)
        np.testing.assert_allclose(result, expected, rtol=1e-12)
        assert not races.races


def test_logsumexp_goes_in_one_pass() -> None:
    found = derive(LOGSUMEXP, block=4)
    assert [step.kind for step in found.steps] == ["one pass", "guard", "blocks"]
    x = np.array([-np.inf, 3.0, 1e4, -5.0, 2.0, 1e4])
    (result,) = execute(found.last, inputs={"x": x}).values()
    assert result == pytest.approx(1e4 + np.log(2.0))


def test_cross_entropy_goes_in_one_pass() -> None:
    found = derived("softmax_cross_entropy")
    assert found.decision == "legal" and found.steps[0].kind == "one pass"
    x = np.random.default_rng(9).standard_normal((3, 8))
    y = np.array([1, 7, 0])
    (result,) = execute(found.last, inputs={"X": x, "y": y}).values()
    expected = np.log(np.exp(x).sum(1)) - x[np.arange(3), y]
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_a_second_pass_is_said_with_the_dependence_that_forces_it() -> None:
    for name, edge in (("rmsnorm", "S3 → S4"), ("softmax", "S4 → S3")):
        found = derived(name)
        assert found.decision == "legal"
        assert any(edge in note and "second pass is needed" in note for note in found.notes)
        x = np.random.default_rng(10).standard_normal((2, 7))
        inputs = {"X": x, "w": np.ones(7)}
        (result,) = run(found.last, inputs, sizes={"eps": 0.1} if name == "rmsnorm" else {})
        expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
        if name == "rmsnorm":
            expected = x / np.sqrt((x * x).mean(1, keepdims=True) + 0.1)
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_a_variance_around_a_running_mean_is_not_taken_for_separable() -> None:
    found = derived("layernorm")
    why = "Two passes over j stay: the terms of t are not separable"
    assert any(why in note for note in found.notes)
    # Whoever has kernels emitted is told as well.
    kernels = emitted(spec("layernorm"))
    assert any(why in note for note in kernels.blocks.notes)
    assert f"#   - {why}" in kernels.text


def test_a_step_that_cannot_be_split_is_refuted() -> None:
    sine = program(
        "def f(x, N):\n    h = 0.0\n    for j in range(N):\n"
        "        h = sin(h) + x[j]\n    return h\n"
    )
    found = derive(sine, "split", parts=3)
    assert found.decision == "illegal" and not found.steps
    assert "cannot be split" in found.notes[0]


def test_a_scan_is_no_fold() -> None:
    found = derived("prefix_sum", "split")
    assert found.decision == "unknown"
    assert "scan" in found.notes[0]


def test_a_listing_without_a_recurrence_is_left_alone() -> None:
    twice = program(
        "def f(x: Float[Array, 'N'], y: Float[Array, 'N']):\n"
        "    for j in range(N):\n        y[j] = 2.0 * x[j]\n"
    )
    found = derive(twice, "split")
    assert found.decision == "unknown" and not found.steps and found.notes


def test_parts_that_need_more_than_the_state_are_said_to() -> None:
    filter_ = program(
        "def f(x: Float[Array, 'N'], a: Float[Array, 'N']):\n    h = 0.0\n"
        "    for i in range(0, N):\n        h = a[i] * h + x[i]\n    return h\n"
    )
    found = derive(filter_, "split")
    assert found.decision == "unknown"
    assert "only by more numbers than h" in found.notes[0]


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("one pass", ()),
        ("one pass", ("j@S1", 3)),
        ("parts", ("j", True)),
        ("eval", ("1",)),
        ("transformation", ("parallelize(j@S1)",)),
        ("transformation", ("no such thing",)),
        ("contraction", ("m",)),
    ],
)
def test_moves_refuse_what_does_not_fit(kind: str, arguments: tuple[str | int, ...]) -> None:
    with pytest.raises(NotDone):
        made(kind, spec("attention_naive"), arguments)


JOINED = """
def f(X: Float[Array, "M N"], y: Float[Array, "M"]):
    z = zeros(M)
    w = zeros(M)
{start}    for i in range(0, M):
        t = {first}
        z[i] = t * t
    for i in range(0, M):
        w[i] = {second}
    return z, w
"""


@pytest.mark.parametrize(
    ("start", "first", "second", "told"),
    [
        ("", "y[i]", "z[i] + y[i]", True),
        ("    t = 0.0\n", "y[i]", "z[i] + t", False),  # the last t
        ("", "y[i]", "z[M - 1 - i]", False),  # what a later iteration sets
        ("    t = 0.0\n", "y[i] + t", "z[i]", False),  # the t of the iteration before
    ],
)
def test_the_text_tells_which_loops_may_be_one(
    start: str, first: str, second: str, told: bool
) -> None:
    before = program(JOINED.format(start=start, first=first, second=second))
    one, *_, other = [loop_name(path.loop) for path in loop_paths(before)]
    made = made_one_by_text(before, f"fuse({one}, {other})")
    assert (made is not None) == told
    if made is not None:
        (step,) = apply_all(before, f"fuse({one}, {other})")
        assert step.verdict.decision == "legal" and listing(step.after) == listing(made[0])


def test_a_scalar_that_every_loop_sets_for_itself_is_not_handed_on() -> None:
    rows = """
def f(X: Float[Array, "H M"], Y: Float[Array, "H N"]):
    A = zeros((H, M))
    B = zeros((H, N))
    for h in range(0, H):
        u = X[h, 0]
        for i in range(0, M):
            r = exp(X[h, i]) + u
            A[h, i] = r * r
        for j in range(0, N):
            r = exp(Y[h, j]) - u
            B[h, j] = r * r
    return A, B
"""
    (each,) = branching(program(rows))
    assert each.locals == ("u",)


@pytest.mark.parametrize("keys", ["min(N, i + 1)", "i + 1"])
def test_a_key_that_is_hidden_counts_for_nothing_where_it_is_the_only_one(keys: str) -> None:
    """As in a window that is wider, l and y stay what they are; c is a number and is added to."""
    text = f"""\
def own(X: Float[Array, "N"], V: Float[Array, "N"], seen: Bool[Array, "N"]):
    y = zeros(M)
    c = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(i, {keys}):
            s = X[j] if seen[j] else -inf
            m = max(m, s)
        l = 0.0
        for j in range(i, {keys}):
            l += exp((X[j] if seen[j] else -inf) - m)
            c[i] += X[j]
        for j in range(i, {keys}):
            p = exp((X[j] if seen[j] else -inf) - m) / l
            y[i] += p * V[j]
    return y, c
"""
    after = derive(parse(Source("own.py", text)), "fold").last
    assert "for j" not in listing(after)
    x, v = np.array([3.0, 700.0, -1.0]), np.array([5.0, 6.0, 7.0])
    given = {"X": x, "V": v, "seen": np.array([True, False, True])}
    got = execute(after, sizes={"M": 3}, inputs=given)
    np.testing.assert_array_equal(got["y"], [5.0, 0.0, 7.0])
    np.testing.assert_array_equal(got["c"], x)


def test_what_a_loop_says_of_its_variable_holds_for_no_other_loop_of_that_name() -> None:
    """Where i is below 0 the loop inside runs not once, and there is no Z[i]."""
    text = """
def f(X: Float[Array, "N"], Z: Float[Array, "5"]):
    s = zeros(9)
    m = zeros(N)
    for i in range(-4, 5):
        for j in range(max(0, i), min(5, i + 1)):
            s[i + 4] = s[i + 4] + Z[j]
    for i in range(N):
        m[i] = X[i]
    return s, m
"""
    assert "if 0 <= i" in listing(derive(parse(Source("f.py", text)), "fold").last)


def test_a_loop_that_runs_at_most_once_is_a_guard() -> None:
    """It carries nothing, and is no fold; a window of no keys but its own is one."""
    text = """\
def own(X: Float[Array, "M N"]):
    y = zeros(M)
    for i in range(0, M):
        m = -inf
        for j in range(max(0, i - 0), min(N, i + 1)):
            m = max(m, X[i, j])
        y[i] = m
    return y
"""
    before = parse(Source("own.py", text))
    after = derive(before, "fold").last
    assert "if i < N:" in listing(after)
    assert "for j" not in listing(after)
    sizes = {"M": 5, "N": 3}
    np.testing.assert_array_equal(
        execute(after, sizes=sizes)["y"], execute(before, sizes=sizes)["y"]
    )


def test_a_loop_that_sets_only_a_number_that_nothing_reads_is_left_out() -> None:
    """Two loops that were made one held nothing any more, and had no name to be found by."""
    text = """
def f(A: Float[Array, "N"], B: Float[Array, "N"]):
    for l in range(1, N):
        for i in range(0, N):
            a = i
    A[0] += 2.0
    for i in range(1, N):
        B[i] = A[i] * A[0]
    return A, B
"""
    found = derive(program(text), "forward")
    assert found.decision == "legal"
    after = found.steps[-1].after
    inputs = {"A": np.arange(4.0), "B": np.zeros(4)}
    expected = execute(program(text), inputs=inputs, sizes={"N": 4})
    for name, values in execute(after, inputs=inputs, sizes={"N": 4}).items():
        np.testing.assert_array_equal(values, expected[name])


def test_what_a_block_keeps_of_a_row_has_no_less_than_no_elements() -> None:
    text = """
def f(A: Float[Array, "N+2"], x: Float[Array, "N"]):
    y = 0.0
    for j in range(0, N):
        y = y + x[j]
        for k in range(0, N - 1):
            A[k] = min(A[k], x[j] * k)
    return A, y
"""
    after = derive(program(text), "forward").steps[-1].after
    assert "A_b = empty(max(0, N - 1))" in listing(after)
    inputs = {"A": np.arange(2.0), "x": np.zeros(0)}
    assert execute(after, inputs=inputs, sizes={"N": 0})["y"] == 0.0


ONLINE = """
def f(X: Float[Array, "M N"], v: Float[Array, "N"]):
    O, L = zeros(M), full(M, -inf)
    for i in range(M):
        m, l, a = -inf, 0.0, 0.0
        for j in range(N):
            {}
        O[i], L[i] = a / l, m + log(l)
    return O, L
"""
STEPS = [
    "t = max(m, X[i, j]); m, l, a = t, l * exp(m - t) + exp(X[i, j] - t), "
    "a * exp(m - t) + exp(X[i, j] - t) * v[j]",
    "m, l, a = max(m, X[i, j]), l * exp(m - max(m, X[i, j])) + exp(X[i, j] - max(m, X[i, j])), "
    "a * exp(m - max(m, X[i, j])) + exp(X[i, j] - max(m, X[i, j])) * v[j]",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_state_may_be_set_by_one_statement(step: str) -> None:
    given = program(ONLINE.format(step))
    assert not emitted(given).blocks.notes
    found = derive(given, "fold")
    assert all(len(p.node.targets) == 1 for p in placed(found.program) if type(p.node) is Assign)
    rng = np.random.default_rng(0)
    inputs = {"X": rng.normal(size=(3, 70)), "v": rng.normal(size=70)}
    sizes = {"M": 3, "N": 70}
    mine, own = (execute(p, sizes=sizes, inputs=inputs) for p in (found.program, given))
    for name in ("O", "L"):
        np.testing.assert_allclose(mine[name], own[name])


def test_a_swap_stays_one_statement() -> None:
    given = program("def f(A, N):\n  for i in range(N): A[i, 0], A[i, 1] = A[i, 1], A[i, 0]\n")
    assert with_one_target(given) == given


def test_a_refusal_behind_a_statement_of_two_cells_names_its_own_place() -> None:
    text = """
def f(X: Float[Array, "N"], W: Float[Array, "N"]):
    O = zeros(N)
    P = zeros(N)
    for i in range(1, N):
        a, b = X[i], W[i]
        P[i] = a * P[i - 1] + b
        for k in range(i):
            O[k] = O[k] + P[i - k] * O[N - 1 - k]
    return O, P
"""
    with pytest.raises(Refused) as refused:
        emitted(program(text))
    assert refused.value.label == "S2"
    assert "| P[i] = a * P[i - 1] + b" in str(refused.value)
