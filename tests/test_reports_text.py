"""What the text reports say, how wide they are, and their goldens."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from looptrans.ir.facts import ClaimFact, Component, ComponentReport, LoopFacts, LoopVerdict
from looptrans.reports import (
    Style,
    render_claims,
    render_components,
    render_dependences,
    render_graph,
    render_loops,
    render_report,
)
from looptrans.reports.style import columns, printable, wrap
from looptrans.reports.words import joined_directions
from tests.test_reports_goldens import check_golden
from tests.test_reports_samples import (
    CARRIED,
    FLASH_ALL,
    FLASH_CLAIMS,
    FLASH_COMPONENTS,
    FLASH_LOOPS,
    HOSTILE,
    HOSTILE_COMPONENTS,
    HOSTILE_TEXT,
    STENCIL,
    STENCIL_COMPONENTS,
    flash_report,
)

FULL = flash_report(("flow", "anti", "output"))
HOSTILE_LOOPS = (
    LoopFacts(
        "i" * 120, 1, LoopVerdict("unknown", reason=HOSTILE_TEXT * 3), LoopVerdict("parallel")
    ),
    LoopFacts(
        "j",
        2,
        LoopVerdict("reduction", ("t",), ("+", "max"), ("s",), CARRIED, assumptions=("a" * 300,)),
        LoopVerdict("sequential", witness=CARRIED, because="x" * 200),
    ),
)
HOSTILE_CLAIMS = (
    ClaimFact("L" * 50, 1, HOSTILE_TEXT * 2, "refuted", HOSTILE_TEXT * 2, CARRIED),
    ClaimFact("S1", 12345, "x" * 300, "unknown", "y" * 300),
)

TEXTS: dict[str, Callable[[Style], str]] = {
    "deps_flow": lambda style: render_dependences(flash_report(), style=style),
    "deps_all": lambda style: render_dependences(FULL, style=style),
    "deps_at": lambda style: render_dependences(flash_report(at=True), style=style),
    "deps_hostile": lambda style: render_dependences(HOSTILE, style=style),
    "ddg_flow": lambda style: render_graph(flash_report(), FLASH_COMPONENTS, style=style),
    "ddg_all": lambda style: render_graph(FULL, FLASH_ALL, style=style),
    "ddg_hostile": lambda style: render_graph(HOSTILE, HOSTILE_COMPONENTS, style=style),
    "scc": lambda style: render_components(FLASH_COMPONENTS, style=style),
    "scc_all": lambda style: render_components(FLASH_ALL, style=style),
    "scc_hostile": lambda style: render_components(
        ComponentReport("all", (Component(("x" * 90, "y" * 90), ("i" * 90,)),), "z" * 200),
        style=style,
    ),
    "loops": lambda style: render_loops("flash_forward", FLASH_LOOPS, style=style),
    "loops_hostile": lambda style: render_loops("p" * 200, HOSTILE_LOOPS, style=style),
    "claims": lambda style: render_claims("flash_forward", FLASH_CLAIMS, style=style),
    "claims_hostile": lambda style: render_claims("p", HOSTILE_CLAIMS, style=style),
    "report": lambda style: render_report(
        flash_report(), [FLASH_COMPONENTS], FLASH_LOOPS, FLASH_CLAIMS, style=style
    ),
    "report_hostile": lambda style: render_report(
        HOSTILE, [HOSTILE_COMPONENTS], HOSTILE_LOOPS, HOSTILE_CLAIMS, style=style
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_lines_fit_in_100_columns_without_trailing_spaces(name: str) -> None:
    text = TEXTS[name](Style())
    assert text.endswith("\n") and not text.endswith("\n\n")
    for line in text.splitlines():
        assert columns(line) <= 100, line
        assert line == line.rstrip()
        assert line.isprintable(), line


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_stable_and_colour_adds_nothing_but_escapes(name: str) -> None:
    plain = TEXTS[name](Style())
    assert TEXTS[name](Style()) == plain
    coloured = TEXTS[name](Style(colour=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "deps_all"])
def test_text_golden(name: str) -> None:
    check_golden(f"reports_{name}.txt", TEXTS[name](Style()))


def test_a_dependence_is_the_line_of_the_design() -> None:
    lines = render_dependences(flash_report()).splitlines()
    line = next(line for line in lines if line.startswith("S12 → S3 "))
    wanted = "S12 → S3 flow m (=,<) distance (0,1) carried by j e.g. M=1 N=2: (0,0) → (0,1)"
    assert " ".join(line.split()) == wanted


def test_the_columns_of_a_group_are_aligned() -> None:
    lines = [line for line in render_dependences(FULL).splitlines() if " output " in line]
    short = [line for line in lines if "distance (" in line and "(=,=" not in line]
    assert len({line.index(" output ") for line in short}) == 1


def test_groups_count_their_dependences() -> None:
    text = render_dependences(FULL)
    for basis, kind, heading in (
        ("value", "flow", "Flow by value"),
        ("memory", "anti", "Anti in memory"),
        ("memory", "output", "Output in memory"),
    ):
        number = sum(d.basis == basis and d.kind == kind for d in FULL.dependences)
        assert re.search(rf"^{heading}.*: {number}$", text, re.MULTILINE)


def test_may_sets_contracts_warnings_and_gaps_are_shown() -> None:
    text = render_dependences(HOSTILE)
    assert "flow (may)" in text
    assert "distances { [x] : x > 0" in text
    assert "all(cu[b] <= cu[b + 1] for b in range(B))" in text
    assert "line 3: the subscript i - 1 of a is negative at i=0" in text
    assert "The answer is incomplete: the budget of 30 s ran out" in text


def test_what_is_not_known_is_not_called_none() -> None:
    text = render_dependences(replace(HOSTILE, dependences=()))
    assert "not known" in text
    assert "incomplete" in text
    assert "No statement instance" not in text
    text = render_components(ComponentReport("flow", (), "the budget of 30 s ran out"))
    assert "not known" in text
    assert "0 strongly" not in text


def test_instances_are_listed_up_to_a_limit() -> None:
    text = render_dependences(STENCIL)
    assert "instances (1) (1,2)→(2,1)" in text
    one = STENCIL.dependences[0]
    many = replace(one, instances=tuple(((0, k), (1, k)) for k in range(50)))
    assert "and 38 more" in render_dependences(replace(STENCIL, dependences=(many,)))


def test_none_is_a_sentence() -> None:
    text = render_dependences(replace(STENCIL, dependences=()))
    assert "No statement instance depends on another" in text
    text = render_dependences(replace(STENCIL, dependences=(), selected=True))
    assert "no dependence of the sort that was asked for" in text


def test_two_loops_of_one_name_are_told_apart_by_line() -> None:
    one = STENCIL.dependences[0]
    report = replace(STENCIL, dependences=(one, replace(one, carried_line=20)))
    text = render_dependences(report)
    assert "carried by i@10" in text and "carried by i@20" in text


def test_the_graph_lists_every_edge_once_and_boxes_the_cycles() -> None:
    text = render_graph(FULL, FLASH_COMPONENTS)
    pairs = {(d.source, d.sink, d.kind) for d in FULL.dependences}
    assert len(re.findall(r"(?:──|╌╌|┈┈|━━|╍╍|┉┉)▶", text.split("\n", 2)[2])) == len(pairs)
    assert text.count("╭─ cycle carried by j ") == 3 == text.count("╰")


def test_components_keep_their_order() -> None:
    lines = render_components(FLASH_COMPONENTS).splitlines()
    assert [line.split("{")[1].split("}")[0] for line in lines[1:]] == [
        ", ".join(component.statements) for component in FLASH_COMPONENTS.components
    ]
    assert lines[4].endswith("cycle carried by j")


def test_loop_verdicts_in_words() -> None:
    text = render_loops("flash_forward", FLASH_LOOPS)
    assert "for example M=1 N=2: (0,0) → (0,1)" in text
    assert "a reduction over max and + into m and l, once k_j" in text
    assert "assuming H == G * R" in text
    twice = render_loops("p", (FLASH_LOOPS[0], replace(FLASH_LOOPS[0], line=40)))
    assert "loop i@13, line 13" in twice and "loop i@40, line 40" in twice


def test_claims_are_marked_and_counted() -> None:
    text = render_claims("flash_forward", FLASH_CLAIMS)
    marks = [line.strip()[0] for line in text.splitlines() if " line " in line]
    assert marks == ["✓", "✓", "✗", "?"]
    assert "      S12 writes m[i] in every iteration of j.\n" in text
    assert text.endswith("\n4 claims: 2 hold, 1 refuted, 1 unknown\n")
    assert render_claims("p", ()).endswith("no claims\n")
    assert render_claims("p", FLASH_CLAIMS[:1]).endswith("1 claim: 1 holds\n")


def test_the_report_has_all_parts_in_order() -> None:
    text = TEXTS["report"](Style())
    parts = ("parameters", "S13 ", "Strongly", "Loops", "Dependences", "Claims", "4 claims")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    bare = replace(STENCIL, statements=(), dependences=())
    assert "no loops" in render_report(bare, [STENCIL_COMPONENTS], (), ())


def test_control_characters_never_reach_a_terminal() -> None:
    assert printable("a\x1b[31m\x00\n\tb\u202e") == "a\\x1b[31m\\x00  b\\u202e"


def test_wrapping_breaks_wide_words() -> None:
    assert wrap("漢漢漢 ab", 4) == ["漢漢", "漢", "ab"]


def test_directions_are_joined_without_saying_more() -> None:
    assert joined_directions([("=", "<"), ("<", "<"), ("<", "="), ("<", ">")]) == ("(=,<)", "(<,*)")
    assert joined_directions([("=", "<"), ("=", "=")]) == ("(=,≤)",)
    assert joined_directions([("<", ">"), ("=", "<")]) == ("(=,<)", "(<,>)")
    assert joined_directions([("=", "<"), ("<", "*")]) == ("(=,<)", "(<,*)")
    assert joined_directions([()]) == ("()",)
