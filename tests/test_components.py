"""Strongly connected components, their order, and the loops that carry their cycles."""

from __future__ import annotations

from typing import Literal

import pytest

from looptrans.analysis import api
from tests.analysis import BASIC, program, report, spec

Graph = Literal["flow", "all"]
SINGLE = {"S1", "S2", "S5", "S9"}


def components(text: str, graph: Graph = "flow") -> list[tuple[str, str]]:
    found = api.components(program(text), graph=graph).components
    return [(" ".join(c.statements), " ".join(c.carried_by)) for c in found]


def test_flash_forward_has_three_cycles_carried_by_j() -> None:
    found = api.components(spec("flash_forward")).components
    cycles = {c.statements: c.carried_by for c in found if len(c.statements) > 1}
    assert cycles == {
        ("S3", "S6", "S12"): ("j",),
        ("S4", "S7", "S13"): ("j",),
        ("S8", "S10", "S11"): ("j",),
    }
    single = {c.statements[0] for c in found if len(c.statements) == 1}
    assert single == SINGLE and all(not c.carried_by for c in found if len(c.statements) == 1)


def test_scalar_temporaries_tie_all_thirteen_statements() -> None:
    found = api.components(spec("flash_forward_as_printed"), graph="all").components
    assert [len(c.statements) for c in found] == [13]


def test_a_statement_that_depends_on_itself_is_carried() -> None:
    assert components("for i in range(N):\n    A[i] = A[i - 1]\n") == [("S1", "i")]
    assert components("for i in range(N):\n    A[i] = A[i + 1]\n") == [("S1", "")]
    assert components("for i in range(N):\n    A[i] = A[i + 1]\n", "all") == [("S1", "i")]


def test_condensation_order_runs_against_the_text_where_the_flow_does() -> None:
    text = "for i in range(N):\n    B[i] = A[i - 1]\n    A[i] = x[i]\n"
    assert components(text) == [("S2", ""), ("S1", "")]


def test_a_cycle_over_two_loops_names_both() -> None:
    text = (
        "for i in range(N):\n    for j in range(M):\n        A[i, j] = A[i - 1, j] + A[i, j - 1]\n"
    )
    assert components(text) == [("S1", "i j")]


def test_a_cycle_through_two_loops_of_one_name() -> None:
    text = (
        "for t in range(T):\n    for i in range(N):\n        A[i] = B[i]\n"
        "    for i in range(N):\n        B[i] = A[i]\n"
    )
    assert components(text) == [("S1 S2", "t")]


@pytest.mark.parametrize("graph", ["flow", "all"])
@pytest.mark.parametrize("path", BASIC, ids=lambda path: path.stem)
def test_every_statement_once_and_edges_forward(path: object, graph: Graph) -> None:
    given = spec(getattr(path, "stem", ""))
    found = api.components(given, graph=graph)
    place = {label: k for k, c in enumerate(found.components) for label in c.statements}
    facts = report(given)
    assert sorted(place) == sorted(s.label for s in facts.statements)
    for d in facts.dependences:
        if graph == "all" or d.basis == "value":
            assert place[d.source] <= place[d.sink]
