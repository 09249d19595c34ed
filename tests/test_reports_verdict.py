"""What is said about a transformation: legal with what it leans on, or a diagnosis."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from looptrans.ir.step import Step
from looptrans.ir.verdict import Seen, Verdict, Witness
from looptrans.reports import Style, render_applied, render_verdict
from looptrans.reports.style import columns
from looptrans.reports.verdict_place import marked_statements
from tests import verdict_samples as samples
from tests.test_reports_goldens import check_golden
from tests.verdict_samples import at, dependence, step, text

LEGAL = (samples.SKEWED, samples.INTERCHANGED)
NOT_LEGAL = {
    "order": samples.REVERSED,
    "anti": samples.OVERWRITTEN,
    "output": samples.LAST_WRITE,
    "storage": samples.STALE,
    "final": samples.LEFT_BEHIND,
    "race": samples.RACED,
    "numbers": samples.UNEQUAL,
    "lost": samples.LOST,
    "unknown": samples.UNDECIDED,
}


def carets(of: Step) -> list[str]:
    """The parts of the statements that are underlined."""
    return [each.text[start:end] for each in marked_statements(of) for start, end in each.marks]


def test_every_verdict_reads_as_the_golden_says() -> None:
    parts = [render_verdict(LEGAL), render_verdict((samples.ROUNDING,))]
    parts += [render_verdict((each,)) for each in NOT_LEGAL.values()]
    parts.append(render_verdict((samples.SKEWED, samples.REVERSED), untried=["reverse(i)"]))
    check_golden("reports_verdicts.txt", "\n".join(parts))


def test_colours() -> None:
    check_golden(
        "reports_verdict_colour.txt", render_verdict((samples.STALE,), "text", Style(True))
    )


def test_the_model_of_the_style_guide() -> None:
    assert render_verdict((samples.REVERSED,)).splitlines()[2:] == [
        "error[E051]: cannot interchange i and j",
        "  specs/stencil.py:12 | A[i, j] = A[i - 1, j + 1]  # S1",
        "                        ^^^^^^^   ^^^^^^^^^^^^^^^",
        "  flow dependence S1 → S1 on A, distance (1, -1), direction (<, >), carried by i",
        "  for example N=4: S1(1,2) writes A[1,2], which S1(2,1) reads;",
        "    interchanged, the read would come first",
        "  help: skew j by i first, or distribute the statements",
    ]


@pytest.mark.parametrize("kind", NOT_LEGAL)
def test_no_line_is_wider_than_a_page(kind: str) -> None:
    assert all(columns(line) <= 100 for line in render_verdict((NOT_LEGAL[kind],)).splitlines())


def test_the_access_that_meets_the_other_is_marked_and_no_other_one() -> None:
    assert carets(samples.OVERWRITTEN) == ["x[i]", "x[i - 1]"]
    assert carets(samples.STALE) == ["m[i]", "m[i]"]
    assert carets(samples.RACED) == ["s[0]", "s[0]"]
    # `y[0] += …` does not write out its read.
    assert samples.LAST_WRITE.verdict.dependence is not None
    read = replace(samples.LAST_WRITE.verdict.dependence, kind="flow")
    verdict = replace(samples.LAST_WRITE.verdict, dependence=read)
    assert carets(step("reverse(i)", samples.SHIFT, verdict)) == ["y[0]"]


@pytest.mark.parametrize(
    ("statement", "kind", "cell", "expected"),
    [
        ("x[i + 1] = x[i] + x[i - 1]", "flow", (2,), ["x[i + 1]", "x[i]"]),
        ("x[i + 1] = x[i] + x[i - 1]", "flow", (3,), ["x[i + 1]", "x[i]", "x[i - 1]"]),
        ("x[i + 1] = xx[i] + x[i // 2 + 1]", "flow", (2,), ["x[i + 1]", "x[i // 2 + 1]"]),
        ("x[i + 1] = sum(x[k] for k in range(i))", "flow", (2,), ["x[i + 1]", "x[k]"]),
        ("x[p[i]] = x[min(i, N)]", "flow", (2,), ["x[p[i]]", "x[min(i, N)]"]),
        ("s = s + x[i]", "flow", (), ["s", "s"]),
        ("t[i + 1], x[i + 1] = x[i], 1.0 if x[i] == 2.0 else 0.0", "flow", (2,), None),
    ],
)
def test_marks_in_many_statements(
    statement: str, kind: Any, cell: tuple[int, ...], expected: list[str] | None
) -> None:
    listing = (
        f'def f(x, xx, t, p: Int[Array, "N"], s):\n    for i in range(N):\n        {statement}\n'
    )
    array = "s" if statement.startswith("s ") else "x"
    verdict = Verdict(
        "illegal",
        Witness("order", at(N=4), at(i=1), at(i=2), (("p[1]", 2),)),
        source="S1",
        sink="S1",
        array=array,
        cell=cell,
        dependence=dependence(kind, "S1", "S1", array, ("i",), ("1",), ("<",), ("i", 2)),
    )
    found = carets(step("reverse(i)", text(listing), verdict))
    assert found == (expected or ["x[i + 1]", "x[i]", "x[i]"])


def test_a_row_and_a_condition_are_marked() -> None:
    program = text(
        'def f(T: Float[Array, "N M"], u: Float[Array, "N M"]):\n    for i in range(1, N):\n'
        "        if T[i, 0] > 0.0:\n            u[i] = T[i - 1]\n            T[:] = u\n"
    )
    verdict = Verdict(
        "illegal",
        Witness("order", at(N=3), at(i=1), at(i=2)),
        source="G1",
        sink="S2",
        array="T",
        dependence=dependence("anti", "G1", "S2", "T", ("i",), ("1",), ("<",), ("i", 2)),
    )
    shown = render_verdict((step("reverse(i)", program, verdict),))
    assert "nest.py:3 | if T[i, 0] > 0.0  # G1\n                 ^^^^^^^\n" in shown
    assert "nest.py:5 | T[:] = u  # S2\n              ^^^^\n" in shown


def test_a_long_statement_is_shown_around_its_marks() -> None:
    terms = " + ".join(f"y[i + {n}]" for n in range(40))
    program = text(f"def f(x, y):\n    for i in range(1, N):\n        x[i] = {terms} + x[i - 1]\n")
    verdict = Verdict(
        "illegal",
        Witness("order", at(N=3), at(i=1), at(i=2)),
        source="S1",
        sink="S1",
        array="x",
        cell=(1,),
        dependence=dependence("flow", "S1", "S1", "x", ("i",), ("1",), ("<",), ("i", 2)),
    )
    lines = render_verdict((step("reverse(i)", program, verdict),)).splitlines()
    assert all(columns(line) <= 130 for line in lines)
    shown = next(number for number, line in enumerate(lines) if "# S1" in line)
    assert "…" in lines[shown]
    start = lines[shown + 1].index("^")
    assert lines[shown][start:].startswith("x[i]")


def test_wide_names_and_terminal_escapes() -> None:
    program = text(
        "def f(漢):\n    for i in range(1, N):\n        漢[i] = 漢[i - 1]\n", "a\x1b[31m.py"
    )
    verdict = Verdict(
        "illegal",
        Witness("order", at(N=3), at(i=1), at(i=2)),
        reason="because\x1b[2J\nof this",
        source="S1",
        sink="S1",
        array="漢",
        cell=(1,),
        dependence=dependence("flow", "S1", "S1", "漢", ("i",), ("1",), ("<",), ("i", 2)),
        help="x\x07",
    )
    shown = render_verdict((step("reverse(i)", program, verdict),), untried=["\x1b[1m"])
    assert all(character.isprintable() or character == "\n" for character in shown)
    line, under = next(
        pair
        for pair in zip(shown.splitlines(), shown.splitlines()[1:], strict=False)
        if "# S1" in pair[0]
    )
    assert columns(line[: line.index("漢")]) == under.index("^")
    assert under.strip() == "^^^^^   ^^^^^^^^^"


def test_steps_of_other_names_and_a_listing_that_is_checked_itself() -> None:
    other = replace(samples.REVERSED, name="my own rewrite")
    assert "error[E051]: cannot apply my own rewrite" in render_verdict((other,))
    assert "; afterwards, the read would come first" in render_verdict((other,)).replace(
        "\n   ", ""
    )
    raced = replace(samples.RACED, name="")
    assert "✗ total  illegal\n\nerror[E052]: total has a race\n" in render_verdict((raced,))
    fine = step("", samples.SUM, Verdict("legal", reason="nothing races"))
    assert render_verdict((fine,)) == "✓ total  legal    nothing races\n"
    doubt = step("", samples.SUM, Verdict("unknown", reason="the budget ran out"))
    assert "cannot tell whether total has a race" in render_verdict((doubt,))


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("permute(k, i, j)", "permute the loops to k, i and j"),
        ("tile(i, j, 32, 16)", "tile i and j"),
        ("skew(j, i, -1)", "skew j by i"),
        ("distribute(j, S3, S4)", "distribute j"),
        ("privatize(i)", "make locals private to each iteration of i"),
        ("privatize(i, a, b)", "make a and b private to each iteration of i"),
        ("expand(acc, i, j)", "expand acc over i and j"),
        ("fuse(j@18, j@21)", "fuse j@18 and j@21"),
        ("split(k, 64, max)", "split k into partial results"),
    ],
)
def test_what_one_cannot_do(name: str, phrase: str) -> None:
    refused = replace(samples.LOST, name=name)
    assert f"error[E050]: cannot {phrase}\n" in render_verdict((refused,))


def test_a_loop_is_named_with_its_line_where_another_has_its_name() -> None:
    listing = "def f(x):\n" + "    for i in range(1, N):\n        x[i] = x[i - 1]\n" * 2
    program = text(listing)
    carried = dependence("flow", "S2", "S2", "x", ("i",), ("1",), ("<",), ("i", 4))
    verdict = Verdict("illegal", source="S2", sink="S2", array="x", dependence=carried)
    assert "carried by i@4" in render_verdict((step("reverse(i@4)", program, verdict),))


# JSON


def document(*steps: Step) -> Any:
    shown = render_verdict(steps, "json")
    assert shown.startswith('{\n  "schema": "looptrans.check/1"') and shown.endswith("}\n")
    return json.loads(shown)


def test_check_as_json() -> None:
    found = document(samples.SKEWED, samples.REVERSED)
    assert list(found) == ["schema", "verdict", "witness", "steps"]
    assert found["verdict"] == "illegal"
    assert found["witness"] == {
        "kind": "order",
        "parameters": {"N": 4},
        "source": {"i": 1, "j": 2},
        "sink": {"i": 2, "j": 1},
    }
    first, second = found["steps"]
    assert (first["transformation"], first["verdict"], first["witness"]) == (
        "skew(j, i, 1)",
        "legal",
        None,
    )
    assert first["certificates"] == [
        {
            "kind": "order",
            "law": "every dependence still runs forward",
            "verdict": "legal",
            "reason": "isl",
            "assumptions": [],
        }
    ]
    assert second["witness"] == found["witness"]
    assert (second["source"], second["sink"], second["array"], second["cell"]) == (
        "S1",
        "S1",
        "A",
        [1, 2],
    )
    assert second["dependence"]["distance"] == ["1", "-1"]
    assert second["dependence"]["carried_by"] == "i"
    assert second["help"] == "skew j by i first, or distribute the statements"
    keys = ["transformation", "verdict", "reason", "witness", "source", "sink", "array", "cell"]
    keys += ["dependence", "now", "help", "certificates", "assumptions"]
    assert list(first) == list(second) == keys


def test_what_a_read_would_see_is_in_the_json() -> None:
    assert document(samples.STALE)["steps"][0]["now"] == {"statement": None, "iteration": {}}
    (final,) = document(samples.LEFT_BEHIND)["steps"]
    assert (final["source"], final["sink"]) == ("S1", None)
    unchanged = replace(samples.STALE.verdict, now=Seen("S12", at(i=0, j=1)))
    (other,) = document(step("hoist(S3, j)", samples.FLASH, unchanged))["steps"]
    assert other["now"] == {"statement": "S12", "iteration": {"i": 0, "j": 1}}


def test_legal_and_unknown_as_json() -> None:
    found = document(*LEGAL)
    assert (found["verdict"], found["witness"]) == ("legal", None)
    found = document(samples.SKEWED, samples.UNDECIDED)
    assert (found["verdict"], found["witness"]) == ("unknown", None)
    assert found["steps"][1]["reason"] == "the budget of 30 s ran out"
    assert found["steps"][1]["assumptions"] == ["assert all(p[i] >= 0 for i in range(N))"]
    assert document(samples.ROUNDING)["steps"][0]["assumptions"] == ["assert N >= 1"]
    assert document(replace(samples.RACED, name=""))["steps"][0]["transformation"] is None


# The nest afterwards


def rewritten(name: str, before: str, after: str) -> Step:
    return Step(name, text(before), text(after), Verdict("legal"), {})


ONE = "def f(x):\n    for i in range(0, N):\n        x[i] = 1.0  # S1\n"
TWO = "def f(x):\n    for i in range(N - 1, -1, -1):\n        x[i] = 1.0  # S1\n"


def test_the_nest_after_the_last_step_after_each_and_what_changes() -> None:
    steps = (rewritten("reverse(i)", ONE, TWO), rewritten("reverse(i)", TWO, ONE))
    assert render_applied(steps) == ONE
    assert render_applied(steps, shown="steps") == f"# 1: reverse(i)\n{TWO}\n# 2: reverse(i)\n{ONE}"
    changes = render_applied(steps[:1], shown="diff").splitlines()
    assert changes[:2] == ["--- f", "+++ reverse(i)"]
    assert "-    for i in range(0, N):" in changes
    assert "+    for i in range(N - 1, -1, -1):" in changes
    coloured = render_applied(steps[:1], style=Style(True), shown="diff")
    assert "\x1b[32m+    for i in range(N - 1, -1, -1):\x1b[0m" in coloured


def test_no_nest_where_a_step_is_not_legal_unless_it_is_wanted() -> None:
    assert render_applied((samples.REVERSED,)) == ""
    assert render_applied((samples.REVERSED,), anyway=True).startswith("def stencil(")
    found = json.loads(render_applied((samples.REVERSED,), "json", shown="steps"))
    assert (found["schema"], found["listing"]) == ("looptrans.apply/1", None)
    assert found["steps"][0]["listing"] is None
    found = json.loads(render_applied((samples.REVERSED,), "json", anyway=True))
    assert found["listing"].startswith("def stencil(")
    assert "listing" not in found["steps"][0]
    found = json.loads(render_applied((samples.SKEWED,), "json", shown="steps"))
    assert found["listing"] == found["steps"][0]["listing"]
    assert found["verdict"] == "legal"
