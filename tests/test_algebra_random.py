"""Random steps: whatever operator is called proved gives the loop's numbers, however it is cut."""

from __future__ import annotations

import random

import mpmath
import pytest

from looptrans.algebra.iterations.assembly import recurrence
from looptrans.algebra.iterations.edges import NoRecurrence
from looptrans.algebra.operators.finding import find_operator
from looptrans.algebra.positional.numbers import NoNumber, Number, evaluate
from looptrans.ir.listing import value_text
from tests.algebra import folded, joined, loop

ROUNDS = 48


def step_of(rng: random.Random) -> list[str]:
    """Return a loop body that updates m and then l, near to forms that can be split."""
    first = rng.choice(
        [
            "t = max(m, x[j])",
            "t = min(m, x[j])",
            "t = m + x[j]",
            "t = max(m + a[j], x[j])",
            "t = m * a[j] + x[j]",
            "t = max(m, x[j]) + 1.0",
            "t = log(exp(m) + exp(x[j]))",
            "t = x[j] if x[j] > m else m",
            "t = abs(m) + x[j]",
        ]
    )
    scale = rng.choice(["1.0", "2.0", "-1.0", "0.5"])
    old = rng.choice(["m - t", "m", "t - m", "0.0 * m"])
    new = rng.choice(["x[j] - t", "x[j]", "v[j] - t", "t"])
    second = rng.choice(
        [
            f"l = l * exp(({old}) * {scale}) + exp(({new}) * {scale})",
            f"l = l * exp(({old}) * {scale}) + v[j] * exp(({new}) * {scale})",
            f"l = l + {new}",
            f"l = max(l + ({old}), v[j] + ({new}))",
            "l = l + m * x[j]",
            "l = v[j] if x[j] > m else l",
            "l = v[j] if x[j] >= m else l + v[j]",
            "l = l * a[j] + t",
        ]
    )
    return [first, second, "m = t"]


@pytest.mark.parametrize("seed", range(4))
def test_what_is_called_proved_is_right_in_numbers(seed: int) -> None:
    rng = random.Random(seed)
    counts = {"found": 0, "refused": 0, "unknown": 0}
    for _ in range(ROUNDS // 4):
        body = step_of(rng)
        start = rng.choice(["0.0", "-inf", "1.0"])
        try:
            step = recurrence(loop([f"m = {start}", "l = 0.0"], body, "m, l"), "j")
        except NoRecurrence:
            continue
        finding = find_operator(step)
        counts[finding.decision] += 1
        if finding.operator is None:
            assert finding.tried or finding.refusal
            continue
        operator, step = finding.operator, finding.recurrence
        for _ in range(6):
            rows = [
                {given.name: mpmath.mpf(rng.uniform(-2, 2)) for given in step.inputs}
                for _ in range(6)
            ]
            state = {s.name: mpmath.mpf(rng.uniform(-2, 2)) for s in step.states}
            for number in operator.positive + operator.nonnegative:
                name = operator.components[number - 1].state
                if name is not None:
                    state[name] = abs(state[name]) + 1
            cut = sorted(rng.sample(range(1, 6), 2))
            try:
                after = state
                for row in rows:
                    point = {**after, **row}
                    after = {s.name: evaluate(s.update, point) for s in step.states}
                a, b = folded(operator, rows[: cut[0]]), folded(operator, rows[cut[0] : cut[1]])
                whole = joined(operator, a, joined(operator, b, folded(operator, rows[cut[1] :])))
                point = {**state, **{f"b{n}": x for n, x in enumerate(whole, 1)}}
                found: dict[str, Number] = {}
                for name, formula in operator.act:
                    point["t" + name[1:]] = found[name] = evaluate(formula, point)
            except NoNumber:
                continue
            for name, value in after.items():
                gap = abs(found[name] - value)
                assert gap <= 1e-6 * (1 + abs(value)), (body, value_text(operator.act[-1][1]))
    assert sum(counts.values()) >= 8 and counts["found"] >= 1
