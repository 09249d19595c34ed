"""Steps judged by the stages that they change: what stands before and behind says no more."""

from __future__ import annotations

import pytest

from looptrans.analysis.legality import equivalence
from looptrans.analysis.legality.stages import Stages, changed_stages
from looptrans.ir.program import Program
from looptrans.transforms.script import apply_all
from tests.steps import agrees, read

AROUND = """
def f(x: Float[Array, "N M"], n: Int[Array, "N", "0:M+1"], z: Float[Array, "N M"], c: float):
    a = zeros((N, M))
    b = zeros((N, M))
    y = zeros((N, M))
    for i in range(N):
        for j in range(M):
            a[i, j] = x[i, j] * c
{stages}
    for i in range(N):
        for j in range(n[i]):
            y[i, j] = y[i, j] + {seen}
    return y
"""


def program(stages: str, seen: str = "b[i, j]") -> Program:
    inside = "\n".join("    " + line for line in stages.strip("\n").splitlines())
    return read(AROUND.format(stages=inside, seen=seen))


FORWARD = """
for p in range(N):
    for q in range(M):
        b[p, q] = a[p, q] + 1.0
for r in range(N):
    for s in range(M):
        z[r, s] = b[r, s] * b[r, 0]
"""
BACKWARD = FORWARD.replace("b[r, 0]", "b[N - 1 - r, s]")


def stages_of(script: str, stages: str, seen: str = "b[i, j]") -> Stages | None:
    before = program(stages, seen)
    step = apply_all(before, script)[-1]
    return changed_stages(before, step.after, step.images)


def test_only_the_stages_that_change_are_judged() -> None:
    found = stages_of("fuse(p, r)", FORWARD)
    assert found is not None
    assert [len(found.before.body), len(found.after.body)] == [2, 1]
    # What the stage behind reads is seen afterwards, what the one before sets comes from outside.
    assert {found.before.array(name).role for name in "ab"} == {"input"}


def test_what_only_these_stages_touch_stays_theirs() -> None:
    found = stages_of("fuse(p, r)", FORWARD, seen="a[i, j]")
    assert found is not None
    assert [len(found.before.body), len(found.after.body)] == [3, 2]
    assert found.before.array("b").role == "local"


@pytest.mark.parametrize("seen", ["a[i, j]", "b[i, j]"])
@pytest.mark.parametrize(
    ("script", "stages", "decision"),
    [
        ("fuse(p, r)", FORWARD, "legal"),
        ("fuse(p, r)", BACKWARD, "illegal"),
        ("interchange(p, q)", FORWARD, "legal"),
        ("reverse(r)", BACKWARD, "legal"),
        ("parallelize(p)", FORWARD, "legal"),
        ("parallelize(r)", BACKWARD, "legal"),
        ("parallelize(p)", BACKWARD.replace("b[p, q] =", "b[p, q] = b[0, q] +"), "illegal"),
    ],
)
def test_the_verdict_is_that_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, script: str, stages: str, decision: str, seen: str
) -> None:
    step = apply_all(program(stages, seen), script)[-1]
    assert step.verdict.decision == decision
    assert decision != "legal" or agrees(step)
    found = equivalence.order_verdict(step.before, step.after, step.images)
    monkeypatch.setattr(equivalence, "changed_stages", lambda *_: None)
    whole = equivalence.order_verdict(step.before, step.after, step.images)
    assert (found.decision, found.witness) == (whole.decision, whole.witness)


def test_what_nobody_reads_may_change() -> None:
    """The stages alone leave another value; that of the whole program is not seen."""
    stages = """
for p in range(N):
    for q in range(M):
        b[0, q] = a[p, q]
"""
    step = apply_all(program(stages, "x[i, j]"), "reverse(p)")[-1]
    assert step.verdict.decision == "legal"
    assert agrees(step)


def test_stages_that_create_an_array_anew_are_judged_with_all() -> None:
    created = """
for p in range(N):
    b = zeros((N, M))
    for q in range(M):
        b[p, q] = a[p, q]
"""
    assert stages_of("parallelize(q)", created) is None
