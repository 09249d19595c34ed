"""Flow that is kept from one program to the next, and what must be the same in both for that."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from looptrans.analysis import api, kept_flow
from looptrans.ir.facts import Dependence, DependenceReport
from looptrans.ir.program import Program
from tests.steps import read

INTEGERS = """
def f(n: Int[Array, "N", "{}"], x: Float[Array, "N"], y: Float[Array, "N"], a: Float[Array, "2*N"]):
    for i in range(N):
        a[n[i]] = x[i]
    for j in range(N):
        y[j] = a[j + N]
"""
OTHER_EXTENT = """
def f({}x, y, a, N, M):
    for i in range(M):
        a[i] = x[i]
    for i in range(N):
        a[i] = x[i] + 1.0
    for j in range(M):
        y[j] = a[j]
"""
GUARDED = """
def f(x, y, z, N):
    s = 0.0
    for i in range(N):
        if x[i] > 0.0:
            s = y[i]
        {}[i] = 0.0
        if x[i] > 0.0:
            z[i] = s
"""
ROWS = """
def f(x: Float[Array, "N M"], z: Float[Array, "N {}"], y: Float[Array, "N M"]):
    for i in range(N):
        u = z[i]
        t = x[i]
        t = u + u
        for j in range(M):
            y[i, j] = t[j]
"""


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    kept_flow._known.clear()
    kept_flow.flow_of.cache_clear()
    yield


def asked(text: str) -> tuple[Dependence, ...]:
    report = api.dependences(read(text), bases=("value",), kinds=("flow",), witnesses=False)
    return report.dependences


@pytest.mark.parametrize(
    ("text", "one", "other"),
    [
        pytest.param(INTEGERS, "0:N", "N:2*N", id="what integers lie between"),
        pytest.param(OTHER_EXTENT, 'w: Float[Array, "N-M"], ', "", id="an extent of another array"),
        pytest.param(GUARDED, "y", "x", id="what writes the data of guards"),
        pytest.param(ROWS, "M", "K", id="how long the rows are that a row is made of"),
    ],
)
def test_programs_with_another_flow_do_not_share_it(text: str, one: str, other: str) -> None:
    first, second = text.format(one), text.format(other)
    assert kept_flow.flow_of(read(first)).dependences == asked(first)
    assert kept_flow.flow_of(read(second)).dependences == asked(second)


def test_what_does_not_touch_an_array_leaves_its_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_flow.flow_of(read(GUARDED.format("y")))
    asked_about: list[str] = []
    found = api.dependences

    def noted(program: Program, *, arrays: Collection[str], **_: object) -> DependenceReport:
        asked_about.extend(arrays)
        return found(program, bases=("value",), kinds=("flow",), arrays=arrays, witnesses=False)

    monkeypatch.setattr(api, "dependences", noted)
    kept_flow.flow_of(read(GUARDED.format("w").replace("z, N", "z, w, N")))
    assert asked_about == ["w"]
