"""Loops read as recurrences: what is carried, from what, by what step."""

from __future__ import annotations

import pytest

from looptrans.algebra.iterations.assembly import recurrence
from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.algebra.iterations.recurrence import Recurrence
from looptrans.ir.listing import access_text, condition_text, value_text
from tests.algebra import ARGMAX, loop
from tests.analysis import program, spec


def shape(step: Recurrence) -> list[str]:
    return [
        f"{s.name} = {access_text(s.access)} from {value_text(s.initial)}: {value_text(s.update)}"
        for s in step.states
    ]


def test_the_corrected_listing_has_the_state_m_l_o() -> None:
    step = recurrence(spec("flash_forward"), "j")
    big = "max(s1, x1)"
    total = f"s2 * exp(s1 - {big}) + exp(x1 - {big})"
    assert shape(step) == [
        f"s1 = m[i] from -inf: {big}",
        f"s2 = l[i] from 0.0: {total}",
        f"s3 = O[i, d] from 0.0: s3 * s2 * exp(s1 - {big}) / ({total}) "
        f"+ exp(x1 - {big}) * x2 / ({total})",
    ]
    assert [value_text(given.value) for given in step.inputs] == ["q_i @ K[j]", "V[j, d]"]
    assert [s.over for s in step.states] == [(), (), ("d",)]
    assert [s.read_after for s in step.states] == [("return",)] * 3
    assert [s.statements for s in step.states] == [("S12",), ("S13",), ("S11",)]
    assert step.components == (("S3", "S6", "S12"), ("S4", "S7", "S13"), ("S8", "S10", "S11"))
    assert not step.is_scan


def test_names_of_the_listing_do_not_matter() -> None:
    text = """
def g(s1, p1, x1: float, n):
    b = -inf
    q = 0.0
    for k in range(n):
        z = max(b, s1[k] * x1)
        q = q * exp(b - z) + p1[k] * exp(s1[k] * x1 - z)
        b = z
    return b, q
"""
    step = recurrence(program(text), "k")
    assert [s.name for s in step.states] == ["s1", "s2"]
    assert shape(step)[0] == "s1 = b from -inf: max(s1, x1)"
    assert [value_text(g.value) for g in step.inputs] == ["s1[k] * x1", "p1[k]"]


def test_the_naive_listing_has_three_plain_reductions() -> None:
    naive = spec("attention_naive")
    assert shape(recurrence(naive, "j@S1")) == ["s1 = m[i] from -inf: max(s1, x1)"]
    assert shape(recurrence(naive, "j@S3")) == ["s1 = l[i] from 0.0: s1 + exp(x1)"]
    assert shape(recurrence(naive, "j@S4")) == ["s1 = O[i, d] from 0.0: s1 + x1"]
    assert recurrence(naive, "j@S3").states[0].read_after == ("S4",)


def test_the_literal_reading_of_the_printed_listing_is_no_recurrence_of_j() -> None:
    with pytest.raises(NoRecurrence, match="the loop d inside carries values of the state"):
        recurrence(spec("flash_forward_as_printed"), "j")


def test_a_prefix_sum_is_a_scan_over_a_moving_cell() -> None:
    step = recurrence(spec("prefix_sum"), "i")
    assert shape(step) == ["s1 = P[i - 1] from 0.0: x2 if x1 else s1 + x2"]
    assert step.inputs[0].is_truth
    assert step.is_scan and step.read_inside == ("S1", "S2")


def test_a_reader_inside_makes_a_scan_and_one_behind_does_not() -> None:
    inside = loop(["s = 0.0"], ["s = s + x[j]", "v[j] = s * s"], "s")
    assert recurrence(inside, "j").read_inside == ("S3",)
    assert not recurrence(loop(["s = 0.0"], ["s = s + x[j]"], "s"), "j").is_scan


def test_a_guard_that_data_decide_is_a_choice() -> None:
    step = recurrence(ARGMAX, "j")
    assert shape(step) == [
        "s1 = m from -inf: x1 if x1 > s1 else s1",
        "s2 = k from 0: x2 if x1 > s1 else s2",
    ]
    assert [value_text(g.value) for g in step.inputs] == ["x[j]", "j"]


def test_a_guard_around_every_update_is_a_condition_of_the_iteration() -> None:
    masked = program("""
def f(x, n, N):
    s = 0.0
    t = 1.0
    for j in range(N):
        if j < n:
            s = s + x[j]
            t = t * x[j]
    return s, t
""")
    step = recurrence(masked, "j")
    assert step.condition is not None and condition_text(step.condition) == "j < n"
    assert [value_text(s.update) for s in step.states] == ["s1 + x1", "s2 * x1"]


def test_what_inner_loops_make_is_an_input() -> None:
    text = """
def f(x, y, M, N):
    for i in range(M):
        s = 0.0
        for j in range(N):
            acc = 0.0
            for e in range(N):
                acc = acc + x[i, e] * y[e, j]
            s = s + acc
        x[i, 0] = s
"""
    step = recurrence(program(text), "j")
    assert shape(step) == ["s1 = s from 0.0: s1 + x1"]
    assert value_text(step.inputs[0].value) == "acc"
    assert step.states[0].read_after == ("S5",)


def test_a_state_that_is_not_reset_starts_from_what_it_holds() -> None:
    text = """
def f(x, M, N):
    s = 0.0
    for i in range(M):
        for j in range(N):
            s = s + x[i, j]
    return s
"""
    assert shape(recurrence(program(text), "j")) == ["s1 = s from s: s1 + x1"]


def test_what_a_later_statement_leaves_for_the_next_row_is_the_first_value() -> None:
    text = """
def f(x, M, N):
    m = -inf
    for i in range(M):
        for j in range(N):
            m = max(m, x[i, j])
        m = 5.0
    return m
"""
    assert shape(recurrence(program(text), "j")) == ["s1 = m from m: max(s1, x1)"]


def test_whole_rows_are_vector_state() -> None:
    text = """
def f(O: Float[Array, "M D"], V: Float[Array, "N D"], p, M, N, g: float):
    for i in range(M):
        for j in range(N):
            O[i] = O[i] * g + p[i, j] * V[j]
"""
    step = recurrence(program(text), "j")
    assert shape(step) == ["s1 = O[i] from O[i]: s1 * p1 + x1"]
    assert step.states[0].over == (":",)
    assert value_text(step.parameters[0].value) == "g"


def test_related_inputs_are_taken_apart_until_nothing_is_shared() -> None:
    both = loop(["m = -inf", "l = 0.0"], ["m = max(m, x[j])", "l = l + 2.0 * x[j]"], "m, l")
    step = recurrence(both, "j")
    assert [value_text(g.value) for g in step.inputs] == ["x[j]"]
    assert value_text(step.states[1].update) == "s2 + 2.0 * x1"


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("def f(x, N):\n    for j in range(N):\n        x[j] = 2.0 * x[j]\n", "j", "no value"),
        (
            "def f(x, N):\n    for j in range(2, N):\n        x[j] = x[j - 1] + x[j - 2]\n",
            "j",
            "not from the same place",
        ),
        (
            "def f(x, p: Int[Array, 'N'], N):\n    for j in range(N):\n"
            "        x[p[j]] = x[j] + 1.0\n",
            "j",
            "not from the same place",
        ),
        ("def f(x, N):\n    for j in range(N):\n        x[0] = x[0] + x[j]\n", "k", "no loop k"),
        (
            "def f(x, M, N):\n    s = 0.0\n    for j in range(N):\n        for e in range(M):\n"
            "            s = s + x[j, e]\n    return s\n",
            "j",
            "the loop e inside",
        ),
    ],
)
def test_what_is_no_recurrence_says_why(text: str, name: str, why: str) -> None:
    with pytest.raises(NoRecurrence, match=why):
        recurrence(program(text), name)
