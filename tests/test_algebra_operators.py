"""Combine operators: found from the step, proved, and right in numbers however a loop is cut."""

from __future__ import annotations

import random
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from looptrans.algebra.iterations.assembly import recurrence
from looptrans.algebra.operators.closed import closed_form
from looptrans.algebra.operators.finding import find_operator
from looptrans.algebra.operators.laws import laws, starts_empty
from looptrans.algebra.other_states.change_of_state import freed_of_division
from looptrans.algebra.positional.numbers import evaluate
from looptrans.executor.run import execute
from looptrans.ir.listing import value_text
from looptrans.ir.program import Program
from tests.algebra import (
    NORMALIZED,
    SPLITTABLE,
    UNNORMALIZED,
    WELFORD,
    Data,
    close,
    folded,
    found,
    joined,
    loop,
    operator_of,
    rows_of,
)
from tests.analysis import program, spec


def formulas(listing: Program, name: str = "j") -> list[str]:
    return [value_text(component.combine) for component in operator_of(listing, name).components]


EXPECTED = {
    "sum": ["a1 + b1"],
    "product": ["a1 * b1"],
    "maximum": ["max(a1, b1)"],
    "minimum": ["min(a1, b1)"],
    "several": ["a1 + b1", "max(a2, b2)", "min(a3, b3)"],
    "affine": ["a1 * b1", "b1 * a2 + b2"],
    "halved": ["a1 * b1", "b1 * a2 + b2"],
    "log-sum-exp": ["log(exp(a1) + exp(b1))"],
    "unnormalized": [
        "max(a1, b1)",
        "a2 * exp(a1 - c1) + b2 * exp(b1 - c1)",
        "a3 * exp(a1 - c1) + b3 * exp(b1 - c1)",
    ],
    "normalized": [
        "max(a1, b1)",
        "a2 * exp(a1 - c1) + b2 * exp(b1 - c1)",
        "a3 * a2 * exp(a1 - c1) / c2 + b3 * b2 * exp(b1 - c1) / c2",
    ],
    "log-sum-exp and mean": ["log(exp(a1) + exp(b1))", "a2 * exp(a1 - c1) + b2 * exp(b1 - c1)"],
    "welford": [
        "a1 + b1",
        "a2 * a1 / c1 + b2 * b1 / c1",
        "a3 + b3 + a1 * b1 * (a2 - b2) ** 2 / (a1 + b1)",
    ],
    "argmax": ["max(a1, b1)", "b2 if b1 > a1 else a2"],
    "viterbi": ["a1 + b1", "max(a2 + b1, b2)"],
    "norm": ["sqrt(a1 ** 2 + b1 ** 2)"],
    "decayed": ["max(a1, b1)", "a2 * b2", "b2 * (a3 * exp(a1 - c1)) + b3 * exp(b1 - c1)"],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_operator_is_the_one_a_person_would_write(name: str) -> None:
    assert formulas(SPLITTABLE[name]) == EXPECTED[name]


@pytest.mark.parametrize("name", SPLITTABLE)
def test_every_required_law_is_proved(name: str) -> None:
    finding = found(SPLITTABLE[name])
    assert finding.operator is not None
    decided = laws(finding.recurrence, finding.operator)
    required = {law.name: law.answer for law in decided if law.is_required}
    assert {"one iteration", "continuation", "associativity", "no iteration"} <= set(required)
    assert set(required.values()) == {"proved"}


def test_commutativity_is_decided_and_not_required() -> None:
    answers = {}
    for name in ("normalized", "welford", "affine", "argmax", "viterbi", "twice"):
        decided = {law.name: law.answer for law in found(SPLITTABLE[name]).laws}
        answers[name] = decided["commutativity"]
    assert answers == {
        "normalized": "proved",
        "welford": "proved",
        "affine": "refuted",
        "argmax": "refuted",
        "viterbi": "refuted",
        "twice": "refuted",
    }


def data_for(rng: random.Random, count: int) -> Data:
    return {
        "x": [rng.uniform(-3, 3) for _ in range(count)],
        "v": [rng.uniform(-3, 3) for _ in range(count)],
        "a": [rng.uniform(0.2, 2) for _ in range(count)],
    }


@pytest.mark.parametrize("name", SPLITTABLE)
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_a_loop_cut_anywhere_gives_what_the_executor_gives(name: str, parts: int) -> None:
    """The executor runs the listing whole; the operator joins the parts, empty ones too."""
    rng = random.Random(parts)
    listing = SPLITTABLE[name]
    finding = found(listing)
    operator = finding.operator
    assert operator is not None
    arrays = {array.name for array in listing.arrays} & {"x", "v", "a"}
    for count in (1, 2, 5, 9):
        data = data_for(rng, count)
        cuts = sorted(rng.randint(0, count) for _ in range(parts - 1))
        rows = rows_of(finding.recurrence, data, count)
        ends = [0, *cuts, count]
        whole = None
        for begin, end in pairwise(ends):
            part = folded(operator, rows[begin:end])
            whole = (
                part
                if whole is None
                else (whole if part is None else joined(operator, whole, part))
            )
        assert whole is not None
        point = {s.name: evaluate(s.initial, {}) for s in finding.recurrence.states}
        point |= {f"b{n}": x for n, x in enumerate(whole, 1)}
        inputs = {name: np.array(data[name]) for name in sorted(arrays)}
        expected = execute(listing, sizes={"N": count}, inputs=inputs)
        places = [component.state for component in operator.components]
        for state, formula in operator.act:
            array = finding.recurrence.state(state).access.array
            empty = starts_empty(finding.recurrence, operator)
            value = whole[places.index(state)] if empty else evaluate(formula, point)
            point["t" + state[1:]] = value
            if array in expected:
                assert close(value, float(expected[array])), (name, array)


def test_ascending_scores_do_not_overflow_in_the_joined_parts() -> None:
    """Scores up to 10^4: exponentials are taken of differences only, which double precision can."""
    finding = found(NORMALIZED)
    assert finding.operator is not None
    for component in finding.operator.components:
        text = value_text(component.combine)
        assert "exp(a1 - c1)" in text or "exp" not in text
    closed = closed_form(finding.recurrence, finding.operator)
    assert closed is not None
    assert closed.text("j").splitlines() == [
        "c1 = max_j(x1)",
        "c2 = sum_j(exp(x1 - c1))",
        "c3 = sum_j(x2 * exp(x1 - c1) / c2)",
    ]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("sum", ["c1 = sum_j(x1)"]),
        ("log-sum-exp", ["c1 = log(sum_j(exp(x1)))"]),
        ("norm", ["c1 = sqrt(sum_j(x1))"]),
        (
            "welford",
            ["c1 = sum_j(1.0)", "c2 = sum_j(x1 / c1)", "c3 = sum_j(x1 ** 2) - c1 * c2 ** 2"],
        ),
    ],
)
def test_closed_forms_of_a_block(name: str, lines: list[str]) -> None:
    finding = found(SPLITTABLE[name])
    assert finding.operator is not None
    closed = closed_form(finding.recurrence, finding.operator)
    assert closed is not None and closed.text("j").splitlines() == lines
    data = data_for(random.Random(1), 6)
    rows = rows_of(finding.recurrence, data, 6)
    whole = folded(finding.operator, rows)
    assert whole is not None
    block: dict[str, object] = {}
    for number, component in enumerate(closed.components, 1):
        terms = [evaluate(component.term, {**row, **block}) for row in rows]
        total = {"+": mpmath.fsum, "max": max, "min": min, "*": mpmath.fprod}[component.monoid](
            terms
        )
        block[f"c{number}"] = evaluate(component.value, {**block, f"y{number}": total})
        assert close(block[f"c{number}"], whole[number - 1])


def test_affine_pairs_have_no_closed_form_in_sums() -> None:
    finding = found(SPLITTABLE["affine"])
    assert finding.operator is not None
    assert closed_form(finding.recurrence, finding.operator) is None


# The search follows the step.


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (("exp(", "exp2("), "a2 * exp2(a1 - c1) + b2 * exp2(b1 - c1)"),
        (("- t)", "- t) / 3.0)"), "a2 * exp((a1 - c1) / 3.0) + b2 * exp((b1 - c1) / 3.0)"),
        (("- t)", "- t) * 0.5)"), "a2 * exp((a1 - c1) / 2.0) + b2 * exp((b1 - c1) / 2.0)"),
    ],
)
def test_another_base_or_temperature(change: tuple[str, str], wanted: str) -> None:
    old, new = change
    step = ["t = max(m, x[j])", "l = l * exp(m - t) + exp(x[j] - t)", "m = t"]
    changed = [line.replace(old, new) for line in step]
    changed = (
        [line.replace("exp(m", "exp((m").replace("exp(x", "exp((x") for line in changed]
        if ("/" in new or "*" in new)
        else changed
    )
    assert formulas(loop(["m = -inf", "l = 0.0"], changed, "m, l"))[1] == wanted


def test_a_minimum_in_place_of_a_maximum() -> None:
    step = ["t = min(m, x[j])", "l = l * exp(t - m) + exp(t - x[j])", "m = t"]
    assert formulas(loop(["m = inf", "l = 0.0"], step, "m, l")) == [
        "min(a1, b1)",
        "a2 * exp(c1 - a1) + b2 * exp(c1 - b1)",
    ]


def test_a_scale_that_is_a_parameter() -> None:
    step = ["t = max(m, x[j])", "l = l * exp((m - t) * g) + exp((x[j] - t) * g)", "m = t"]
    listing = loop(["m = -inf", "l = 0.0"], step, "m, l", ", g: float")
    assert formulas(listing)[1] == "a2 * exp(p1 * (a1 - c1)) + b2 * exp(p1 * (b1 - c1))"
    first = {law.name: law for law in found(listing).laws}["first iteration"]
    assert first.assumptions == ("p1 is positive",)


def test_a_sum_of_something_else_and_other_names() -> None:
    text = """
def zzz(alpha, beta, T, count):
    total = 0.0
    biggest = -inf
    for q in range(0, count):
        new = max(alpha[q] * T[q], biggest)
        total = exp(alpha[q] * T[q] - new) * beta[q] * beta[q] + exp(biggest - new) * total
        biggest = new
    return total
"""
    assert (
        formulas(program(text), "q")
        == [
            "max(a1, b1)",
            "a2 * exp(a1 - c1) + b2 * exp(b1 - c1)",
        ]
        or formulas(program(text), "q")
        == [
            "max(a1, b1)",
            "a2 * exp(a1 - c1) + b2 * exp(b1 - c1)",
        ][::-1]
    )


def test_a_running_maximum_of_what_a_running_maximum_shifts() -> None:
    step = ["t = max(m, x[j])", "u = max(u + (m - t), v[j] - t)", "m = t"]
    assert formulas(loop(["m = -inf", "u = -inf"], step, "m, u")) == [
        "max(a1, b1)",
        "max(a2 + (a1 - c1), b2 + (b1 - c1))",
    ]


def test_the_corrected_listing_and_the_prefix_sum() -> None:
    assert formulas(spec("flash_forward")) == EXPECTED["normalized"]
    assert formulas(spec("prefix_sum"), "i") == ["a1 * b1", "b1 * a2 + b2"]
    assert [value_text(v) for v in operator_of(spec("prefix_sum"), "i").unit] == [
        "0.0 if x1 else 1.0",
        "x2",
    ]


def test_an_initial_value_that_is_no_identity_enters_by_a_law_of_its_own() -> None:
    finding = found(loop(["h = 5.0"], ["h = h + x[j]"], "h"))
    names = [law.name for law in finding.laws]
    assert "start" in names and "first iteration" not in names
    sink = loop(
        ["m = 2.0", "l = 1.0"],
        ["t = max(m, x[j])", "l = l * exp(m - t) + exp(x[j] - t)", "m = t"],
        "m, l",
    )
    finding = found(sink)
    assert finding.decision == "found"
    assert {law.name: law.answer for law in finding.laws}["start"] == "proved"


def test_a_score_of_minus_infinity_changes_nothing() -> None:
    masked = {
        name: [law.statement for law in found(listing).laws if law.name == "masked iteration"]
        for name, listing in SPLITTABLE.items()
    }
    only = "step(s, x) = s where x1 is -inf and s is not ⊥"
    assert masked["normalized"] == masked["unnormalized"] == masked["log-sum-exp"] == [only]
    assert masked["sum"] == masked["product"] == masked["welford"] == []


def test_no_iteration_is_a_case_of_its_own_only_where_it_must_be() -> None:
    guarded = {name: operator_of(listing).guarded for name, listing in SPLITTABLE.items()}
    assert guarded["normalized"] and guarded["unnormalized"] and guarded["welford"]
    assert not any(guarded[name] for name in ("sum", "maximum", "product", "affine", "viterbi"))


# Recurrences that no operator on their state can split.

REFUSED = {
    "sin": loop(["h = 0.0"], ["h = sin(h) + x[j]"], "h"),
    "S10 as printed": loop(
        ["m = -inf", "l = 0.0", "o = 0.0"],
        [
            "t = max(m, x[j])",
            "n = l * exp(m - t) + exp(x[j] - t)",
            "o = o * l / n + exp(x[j] - t) * v[j] / n",
            "m = t",
            "l = n",
        ],
        "m, l, o",
    ),
    "no rescaling": loop(
        ["m = -inf", "l = 0.0"],
        ["t = max(m, x[j])", "l = l + exp(x[j] - t)", "m = t"],
        "m, l",
    ),
    "square": loop(["h = 0.0"], ["h = h * h + x[j]"], "h"),
    "tanh": loop(["h = 0.0"], ["h = tanh(h + x[j])"], "h"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_two_inputs_that_reach_one_state_and_part(name: str) -> None:
    listing = REFUSED[name]
    finding = found(listing)
    assert finding.decision == "refused" and finding.tried
    numbers = finding.refusal
    assert numbers is not None
    step = recurrence(listing, "j")
    with mpmath.workdps(50):
        start = {k: mpmath.mpf(v) for k, v in numbers.start}
        parts = [
            [{k: mpmath.mpf(v) for k, v in row} for row in rows]
            for rows in (numbers.first, numbers.second)
        ]
        front = {k: mpmath.mpf(v) for k, v in numbers.front}

        def run(rows: list[dict[str, object]]) -> dict[str, object]:
            state: dict[str, object] = dict(start)
            for row in rows:
                point = {**state, **row}
                state = {s.name: evaluate(s.update, point) for s in step.states}
            return state

        one, other = run(parts[0]), run(parts[1])
        assert all(close(one[k], other[k]) for k in one)
        behind = [run([front, *part]) for part in parts]
        assert any(not close(behind[0][k], behind[1][k]) for k in one)


@pytest.mark.parametrize(
    "step",
    [
        "s = abs(s) + x[j] * x[j]",
        "s = s + where(s >= 0.0, abs(x[j]), s * s)",
        "s = s + x[j] if x[j] * x[j] >= 0.0 else 2.0 * s * s",
        "s = abs(s) + x[j] * x[j] if j >= 0 else 1.0 - s",
    ],
)
def test_numbers_that_no_input_has_refute_nothing(step: str) -> None:
    """These are sums of what is never negative: an input of -1 would say they cannot be split."""
    assert found(loop(["s = 0.0"], [step], "s")).decision != "refused"


def test_integers_are_refuted_with_integers() -> None:
    """Of zeros and ones the square is the number itself; 0.5 is no integer."""
    head = "def f(n: Int[Array, 'N']):\n    s = 0\n    for j in range(N):\n        s = "
    parity, halves = (
        found(program(f"{head}{step}\n    return s\n"))
        for step in ("(s * s + n[j]) % 2", "(s + n[j]) // 2")
    )
    assert parity.decision == "unknown"
    assert halves.refusal is not None
    rows = (*halves.refusal.first, *halves.refusal.second, halves.refusal.front)
    assert all(float(value).is_integer() for row in rows for _, value in row)


def test_what_begins_as_false_is_read_back() -> None:
    """And not refused for a condition on indices, of which there is none."""
    finding = found(loop(["s = False"], ["s = s or x[j] > 0.0"], "s"))
    assert finding.tried and not any("indices" in reason for reason in finding.tried)


NATURAL = "    assert all(n[j] >= 0 for j in range(N))\n"


@pytest.mark.parametrize(
    ("arguments", "stated", "step"),
    [
        ("n: Int[Array, 'N', '0:5']", "", "abs(s) + n[j]"),
        ("n: Int[Array, 'N', '0:N']", "", "abs(s) + n[j]"),
        ("n: Int[Array, 'N']", NATURAL, "abs(s) + n[j]"),
        (
            "x: Float[Array, 'N'], b: Bool[Array, '1']",
            "",
            "s + x[j] + (b[0] * b[0] - b[0]) * s * s",
        ),
        ("x: Float[Array, 'N']", "", "s + x[j] + (sum(1.0 for e in range(4)) - 4.0) * s * s"),
        ("x: Float[Array, 'N']", "", "s + x[j] + (sum(1.0 for e in range(N)) - N) * s * s"),
    ],
)
def test_numbers_that_the_listing_rules_out_refute_nothing(
    arguments: str, stated: str, step: str
) -> None:
    text = f"def f({arguments}):\n{stated}    s = 0\n    for j in range(N):\n        s = {step}\n"
    assert found(program(f"{text}    return s\n")).decision != "refused"


def test_affine_is_not_taken_for_a_sum() -> None:
    operator = operator_of(SPLITTABLE["halved"])
    assert operator.is_extended
    assert [value_text(v) for v in operator.unit] == ["1.0 / 2.0", "x1 / 2.0"]


# The change of state.


def test_the_division_moves_to_the_end() -> None:
    (change,) = freed_of_division(recurrence(spec("flash_forward"), "j"))
    assert change.state == "s3" and value_text(change.factor) == "s2"
    update = value_text(change.recurrence.state("s3").update)
    assert update == "s3 * exp(s1 - max(s1, x1)) + x2 * exp(x1 - max(s1, x1))"
    assert value_text(change.readout) == "s3 / s2"
    assert change.proof.answer == "proved"
    assert value_text(change.recurrence.state("s3").initial) == "0.0"
    finding = find_operator(change.recurrence)
    assert finding.operator is not None
    combined = [value_text(c.combine) for c in finding.operator.components]
    assert combined == EXPECTED["unnormalized"]


def test_a_mean_becomes_a_sum_and_what_divides_by_nothing_stays() -> None:
    step = ["n = n + 1.0", "mu = mu + (x[j] - mu) / n"]
    mean = loop(["n = 0.0", "mu = 0.0"], step, "mu")
    (change,) = freed_of_division(recurrence(mean, "j"))
    assert value_text(change.recurrence.state("s2").update) == "s2 + x1"
    assert freed_of_division(recurrence(UNNORMALIZED, "j")) == ()


@pytest.mark.parametrize("reader", ["q + x[j] - mu", "max(q, x[j] - mu)", "q + (x[j] - mu) ** 2"])
def test_a_mean_that_another_state_looks_at_stays_a_mean(reader: str) -> None:
    looked_at = loop(
        ["n = 0.0", "mu = 0.0", "q = 0.0"],
        ["n = n + 1.0", f"q = {reader}", "mu = mu + (x[j] - mu) / n"],
        "q, mu",
    )
    assert freed_of_division(recurrence(looked_at, "j")) == ()
    assert freed_of_division(recurrence(WELFORD, "j")) == ()


def test_a_search_for_numbers_that_leads_nowhere_leaves_it_open() -> None:
    """Volume rendering that ends once little light is left."""
    cut = loop(
        ["w = 1.0", "o = 0.0"],
        ["if w > 0.1:", "    o = o + w * a[j] * x[j]", "    w = w * (1 - a[j])"],
        "w, o",
    )
    assert found(cut).decision == "unknown"
