"""Products of variables and sizes: arrays laid out by hand, and what is left open."""

from __future__ import annotations

import pytest

from looptrans.analysis import api
from looptrans.transforms.steps.parallelize import parallelize
from looptrans.transforms.steps.reverse import reverse
from tests.analysis import lines, program, verdicts
from tests.oracle.compare import compare

NESTS = {
    "three digits, written in three ways": """
def f(B, H, W, X, Y):
    for b in range(B):
        for h in range(H):
            for w in range(1, W):
                X[(b * H + h) * W + w] = X[b * H * W + h * W + w - 1] + Y[b * W + w]
                Y[b * W + w] = X[b * (H * W) + W * h + w] * 0.5
""",
    "downwards, in steps, under guards, beyond the row": """
def f(B, H, W, X, Y):
    for h in range(0, H, 2):
        for w in range(W - 1, -1, -1):
            if w > h:
                X[h * W + w] = X[h * W + w - 1] * 0.5
            X[h * W + W - 1] = X[(h + 1) * W + w]
            Y[h * B + w] = Y[h * B] + 1.0
""",
    "numbers of rows, and two rows in one": """
def f(B, H, W, X, Y):
    for h in range(H):
        for w in range(2 * W):
            X[h * (2 * W) + w] = X[2 * h * W] + 1.0
        Y[h * 3 * B + 2 * B] = Y[3 * h * B] + sum(Y[h * 3 * B + b] for b in range(B))
""",
}


@pytest.mark.parametrize("text", NESTS.values(), ids=NESTS)
def test_cells_laid_out_by_hand_are_followed_exactly(text: str) -> None:
    for b, h, w in ((2, 3, 2), (1, 2, 3), (3, 1, 1)):
        compare(text, {"B": b, "H": h, "W": w}, {}, frozenset())
    for found in api.dependences(program(text)).dependences:
        if found.array == "X" and "(h + 1) * W" not in text:
            assert found.witness is not None and not found.may


def test_what_is_in_another_row_is_another_cell() -> None:
    text = NESTS["three digits, written in three ways"]
    assert verdicts(text)["b"].memory.decision == "parallel"
    assert verdicts(text)["h"].memory.because.startswith("flow S2 → S1 on Y")
    assert parallelize(program(text), "b").verdict.decision == "legal"
    once = """
def f(B, H, W, X):
    for b in range(B):
        for h in range(H):
            for w in range(W):
                X[(b * H + h) * W + w] = X[b * H * W + h * W]
"""
    assert lines(once, "anti") == []
    assert {line.split()[5] for line in lines(once)} == {"(=,=,<)"}
    # W is the length of a loop here: where there is a cell, it is at least 1.
    step = parallelize(program(once), "b")
    assert (step.verdict.decision, step.verdict.assumptions) == ("legal", ())


def test_a_size_may_be_a_digit_too() -> None:
    """Which plane it is need not be a loop's to say: t is 0 in the other one."""
    text = """
def f(N, P, t, X):
    for b in range(1, N):
        for p in range(1, P):
            X[b * P + p + t * P * N] = X[b * P - P + p] * 0.5 + X[b * P + p - 1 - 2 * t * N * P]
"""
    for n, p, t in ((3, 3, 1), (2, 4, 2), (3, 2, 0)):
        compare(text, {"N": n, "P": p, "t": t}, {}, frozenset())
    assert reverse(program(text), "p").verdict.decision == "illegal"  # where t is 0
    apart = text.replace("    for b", "    assert t >= 1\n    for b")
    assert parallelize(program(apart), "b").verdict.decision == "legal"


def test_an_example_occurs_or_the_answer_is_unknown() -> None:
    """Sums that are no digits are followed as far as the facts about products reach."""
    text = """
def f(H, W, X):
    for h in range(H):
        for w in range({}):
            X[h * W + w] = 2.0 * X[h * W + w] + 1.0
"""
    verdict = parallelize(program(text.format("W + 1")), "h").verdict
    assert verdict.decision == "illegal" and verdict.witness is not None
    sizes = dict(verdict.witness.parameters)
    (h, w), (k, v) = (
        tuple(dict(end).values()) for end in (verdict.witness.source, verdict.witness.sink)
    )
    assert h != k and h * sizes["W"] + w == k * sizes["W"] + v and v <= sizes["W"] >= w
    assert reverse(program(text.format("W + 1")), "h").verdict.decision == "illegal"
    # What is read lies behind what is written, t rows of rows further on: never in it.
    far = """
def f(N, P: Const, t, X):
    for b in range(N):
        for p in range(P):
            X[b * P + p + t * P * N + t] = X[b * P + p] + 1.0
"""
    verdict = parallelize(program(far), "b").verdict
    assert (verdict.decision, verdict.witness) == ("unknown", None)
    assert (
        verdict.reason == "multiples of N, P, t are not followed, and small sizes give no example"
    )
    found = api.dependences(program(far)).dependences
    assert found and all(d.may for d in found if d.witness is None)
    assert verdicts(far)["b"].memory.decision == "unknown"
