"""The annotated placement: which loops a statement ends up in, and that all else is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from looptrans.frontend import load, parse
from looptrans.frontend.placement import annotated_placement
from looptrans.ir.diagnostic import ListingError
from looptrans.ir.listing import listing
from looptrans.ir.program import Assign, If, Loop, Node, Program
from looptrans.ir.source import Source
from looptrans.ir.walk import placed
from tests.oracle.nests import Nest, nests

SPECS = Path(__file__).parent.parent / "specs"


def program(text: str) -> Program:
    return parse(Source("t.py", text))


def moved(text: str) -> str:
    """The listing afterwards; it reads back as the same program."""
    after = annotated_placement(program(text))
    canonical = listing(after)
    assert program(canonical) == after
    assert annotated_placement(after) is after
    return canonical


def nest(*lines: str) -> str:
    """A nest over i, j and d with these statements inside."""
    head = ["for i in range(0, M):", "    for j in range(0, N):", "        for d in range(0, D):"]
    return "\n".join([*head, *(f"            {line}" for line in lines)]) + "\n"


def without_comments(body: tuple[Node, ...]) -> tuple[Node, ...]:
    plain: list[Node] = []
    for node in body:
        match node:
            case Loop():
                inner = without_comments(node.body)
                plain.append(replace(node, body=inner, comment="", leading=()))
            case If():
                raise AssertionError
            case _:
                plain.append(replace(node, comment="", leading=()))
    return tuple(plain)


def test_the_listing_as_printed_becomes_the_right_nest() -> None:
    right = load(str(SPECS / "flash_forward.py"))
    printed = load(str(SPECS / "flash_forward_as_printed.py"))
    after = annotated_placement(printed)
    loops = {place.label: [loop.variable for loop in place.loops] for place in placed(after)}
    assert loops["S1"] == ["i"]
    for label in ("S2", "S3", "S4", "S5", "S6", "S7", "S12", "S13"):
        assert loops[label] == ["i", "j"]
    for label in ("S8", "S9", "S10", "S11"):
        assert loops[label] == ["i", "j", "d"]

    def with_right_s10(body: tuple[Node, ...]) -> tuple[Node, ...]:
        tenth = next(place.node for place in placed(right) if place.label == "S10")
        assert isinstance(tenth, Assign)
        plain = replace(tenth, comment="", leading=())
        return tuple(
            replace(node, body=with_right_s10(node.body))
            if isinstance(node, Loop)
            else plain
            if isinstance(node, Assign) and node.label == "S10"
            else node
            for node in body
        )

    assert with_right_s10(without_comments(after.body)) == without_comments(right.body)
    spans = {place.label: place.node.span for place in placed(printed)}
    assert {place.label: place.node.span for place in placed(after)} == spans
    assert after.docstring == printed.docstring
    assert (after.arrays, after.parameters) == (printed.arrays, printed.parameters)


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.py")), ids=lambda path: path.stem)
def test_other_specs_stay_as_they_are(path: Path) -> None:
    before = load(str(path))
    after = annotated_placement(before)
    assert (after is before) == (path.stem != "flash_forward_as_printed")
    assert annotated_placement(after) is after


def test_without_claims_nothing_moves() -> None:
    before = program(nest("x = Q[i]  # S1: RAW on y, No self dependency", "A[i, j, d] = x"))
    assert annotated_placement(before) is before


def test_a_shallower_statement_splits_the_loop() -> None:
    assert moved(
        nest(
            "A[i, j, d] = 1.0",
            "x = Q[i]  # TLoop: i",
            "y = K[j]  # TLoop: j",
            "B[i, j, d] = 1.0",
            "z = Q[i]  # TLoop: i",
        )
    ) == (
        "for i in range(0, M):\n"
        "    for j in range(0, N):\n"
        "        for d in range(0, D):\n"
        "            A[i, j, d] = 1.0\n"
        "    x = Q[i]  # TLoop: i\n"
        "    for j in range(0, N):\n"
        "        y = K[j]  # TLoop: j\n"
        "        for d in range(0, D):\n"
        "            B[i, j, d] = 1.0\n"
        "    z = Q[i]  # TLoop: i\n"
    )


@pytest.mark.parametrize(
    ("statement", "loops"),
    [
        ("x = 1.0  # TLoop: ()", ""),
        ("x = 1.0  # TLoop: i", "i"),
        ("x = 1.0  # TLoop: (j, i)", "ij"),
        ("x = 1.0  # TLoop: d", "ijd"),
        ("x = 1.0  # Aggregation over j", "ij"),
        ("x = 1.0  # TLoop: d, Aggregation over i", "ijd"),
        ("x = 1.0  # TLoop: nosuch", "ijd"),
        ("x = Q[j]  # TLoop: i", "ij"),
        ("x = j * 2.0  # TLoop: i", "ij"),
        ("Q[d] = 1.0  # TLoop: i", "ijd"),
        ("x = sum(Q[e + j] for e in range(2))  # TLoop: i", "ij"),
        ("x = sum(Q[e] for e in range(j))  # TLoop: i", "ij"),
        ("x = sum(Q[e] for e in range(3) if e < j)  # TLoop: i", "ij"),
        ("x = 1.0 if j > 3 else 2.0  # TLoop: i", "ij"),
        ("x = 1.0 if Q[j] > 3.0 else 2.0  # TLoop: i", "ij"),
        ("x = where(j > 3, 1.0, 2.0)  # TLoop: i", "ij"),
        ("x = max(Q[i], Q[j])  # TLoop: i", "ij"),
        ("x = Q[0]  # No self dependency", "ijd"),
    ],
)
def test_down_to_the_deepest_loop_that_is_needed(statement: str, loops: str) -> None:
    after = annotated_placement(program(nest(statement)))
    assert "".join(loop.variable for loop in placed(after)[0].loops) == loops


def test_readers_of_an_aggregated_array_stay_in_the_loop() -> None:
    after = moved(
        nest("x = m[i]  # TLoop: i", "A[i, j, d] = x", "m[i] = x + 1.0  # Aggregation over j")
    )
    assert after.index("    x = m[i]") > after.index("for j")
    assert after.count("for j") == 1


def test_aggregation_ties_readers_in_that_very_loop_only() -> None:
    text = (
        "for i in range(0, M):\n    for j in range(0, N):\n"
        "        m[i] = 1.0  # Aggregation over j\n"
        "for i in range(0, M):\n    for j in range(0, N):\n        x[i] = m[i]  # TLoop: i\n"
    )
    assert "    x[i] = m[i]" in moved(text).splitlines()[4]


# Guards


def test_a_guard_goes_along() -> None:
    assert moved(
        nest("if i > 0:", "    x = Q[i]  # TLoop: i", "    A[i, j, d] = x", "B[i, j, d] = 2.0")
    ) == (
        "for i in range(0, M):\n"
        "    if i > 0:\n"
        "        x = Q[i]  # TLoop: i\n"
        "    for j in range(0, N):\n"
        "        for d in range(0, D):\n"
        "            if i > 0:\n"
        "                A[i, j, d] = x\n"
        "            B[i, j, d] = 2.0\n"
    )


def test_a_guard_that_needs_the_loop_holds_its_statements() -> None:
    text = nest("if i > j:", "    x = Q[i]  # TLoop: i", "    A[i, j, d] = x")
    after = annotated_placement(program(text))
    assert [len(place.loops) for place in placed(after)] == [2, 3]


def test_an_else_branch_by_itself_is_a_guard_of_its_own() -> None:
    assert moved(
        nest(
            "if i > 0:  # first",
            "    x = Q[i]  # TLoop: i",
            "else:  # second",
            "    A[i, j, d] = 1.0",
        )
    ) == (
        "for i in range(0, M):\n"
        "    if i > 0:  # first\n"
        "        x = Q[i]  # TLoop: i\n"
        "    for j in range(0, N):\n"
        "        for d in range(0, D):\n"
        "            if not i > 0:  # second\n"
        "                A[i, j, d] = 1.0\n"
    )


def test_both_branches_may_move_together() -> None:
    assert moved(
        nest("if i > 0:", "    x = Q[i]  # TLoop: i", "else:", "    x = 1.0  # TLoop: i")
    ) == (
        "for i in range(0, M):\n"
        "    if i > 0:\n"
        "        x = Q[i]  # TLoop: i\n"
        "    else:\n"
        "        x = 1.0  # TLoop: i\n"
    )


def test_an_empty_branch_stays() -> None:
    after = moved(
        nest("x = Q[i]  # TLoop: i", "if i > 0:", "    pass", "else:", "    A[i, j, d] = 1.0")
    )
    assert "if i > 0:\n                pass\n            else:\n" in after


def test_a_data_dependent_guard_stays_and_keeps_what_it_guards() -> None:
    text = (
        "for i in range(0, M):\n    for j in range(0, N):\n        if Q[i] > 0.0:\n"
        "            for d in range(0, D):\n                x[i] = 1.0  # TLoop: i\n"
        "                A[i, j, d] = x[i]\n        y[i] = 1.0  # TLoop: i\n"
    )
    after = annotated_placement(program(text))
    loops = {place.label: len(place.loops) for place in placed(after)}
    assert loops == {"G1": 2, "S1": 2, "S2": 3, "S3": 1}


def test_comments_stay_with_the_first_of_several_loops() -> None:
    text = (
        "for i in range(0, M):\n    # the keys\n    for j in range(0, N):  # inner\n"
        "        A[i, j] = 1.0\n        # a row\n        x = Q[i]  # TLoop: i\n"
        "        B[i, j] = x\n"
    )
    after = moved(text)
    assert after.count("# the keys") == after.count("# inner") == after.count("# a row") == 1
    assert after.index("# the keys") < after.index("# a row\n    x = Q[i]")


def test_parameters_come_in_the_order_of_the_new_text() -> None:
    text = "for i in range(0, M):\n    for j in range(0, N):\n        x[i + P] = 1.0  # TLoop: i\n"
    text += "        A[i, j] = 1.0\n"
    after = annotated_placement(program(text))
    assert [parameter.name for parameter in after.parameters] == ["M", "P", "N"]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(nests(data_guards=True, opaque=True), st.data())
def test_any_nest_keeps_its_statements_and_their_order(found: Nest, data: st.DataObject) -> None:
    try:
        before = program(found.source)
    except ListingError:
        reject()
    names = ["()", *{loop.variable for place in placed(before) for loop in place.loops}]

    def claimed(body: tuple[Node, ...]) -> tuple[Node, ...]:
        changed: list[Node] = []
        for node in body:
            match node:
                case Assign():
                    kind = data.draw(st.sampled_from(["", "TLoop: ", "Aggregation over "]))
                    name = data.draw(st.sampled_from(names))
                    changed.append(replace(node, comment=f"{kind}{name}" if kind else ""))
                case Loop():
                    changed.append(replace(node, body=claimed(node.body)))
                case If():
                    inside = replace(node, body=claimed(node.body), orelse=claimed(node.orelse))
                    changed.append(inside)
                case _:
                    changed.append(node)
        return tuple(changed)

    before = replace(before, body=claimed(before.body))
    after = annotated_placement(before)
    old, new = placed(before), placed(after)
    assert [place.label for place in old] == [place.label for place in new]
    for was, now in zip(old, new, strict=True):
        if isinstance(was.node, Assign):
            assert was.node is now.node
        variables = [loop.variable for loop in was.loops]
        assert variables[: len(now.loops)] == [loop.variable for loop in now.loops]
        assert len(was.conditions) == len(now.conditions)
