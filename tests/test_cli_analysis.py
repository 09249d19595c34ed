"""The verbs deps, ddg, scc, loops, claims and report: what they print, and their exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from looptrans.analysis import api
from looptrans.analysis.budget import BudgetExceeded, sharing, within_budget
from looptrans.cli import analysis as verbs
from looptrans.cli.main import main
from looptrans.frontend import load
from looptrans.frontend.placement import annotated_placement
from looptrans.ir.facts import ClaimFact, ComponentReport, DependenceReport
from looptrans.ir.listing import listing
from looptrans.reports.style import columns
from tests.analysis import BASIC

ROOT = Path(__file__).parent.parent
FLASH = str(ROOT / "specs" / "flash_forward.py")
PRINTED = str(ROOT / "specs" / "flash_forward_as_printed.py")
STENCIL = str(ROOT / "specs" / "stencil.py")
MATMUL = str(ROOT / "specs" / "matmul.py")
VERBS = ("deps", "ddg", "scc", "loops", "claims", "report")

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def stdout(capsys: Capture, *arguments: str, status: int = 0) -> str:
    assert main(list(arguments)) == status
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def document(capsys: Capture, *arguments: str, status: int = 0) -> Any:
    return json.loads(stdout(capsys, *arguments, "--format", "json", status=status))


def failure(capsys: Capture, *arguments: str, status: int = 2) -> str:
    assert main(list(arguments)) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert "internal error" not in printed.err
    return printed.err


def listing_file(folder: Path, text: str) -> str:
    path = folder / "nest.py"
    path.write_text(text)
    return str(path)


RAGGED = (
    'def ragged(T, Y, n: Int[Array, "B"], page: Int[Array, "B K", "0:P"], K):\n'
    "    for b in range(B):\n        for j in range(n[b]):\n            T[j] = Y[b, j]\n"
    "        for j in range(K):\n            Y[b, j] = T[page[b, j]]\n"
)


# The JSON contract


def test_deps_as_json(capsys: Capture) -> None:
    found = document(capsys, "deps", FLASH)
    assert list(found)[:5] == ["schema", "program", "parameters", "statements", "dependences"]
    assert found["schema"] == "looptrans.deps/1"
    assert found["parameters"] == ["M", "E", "N", "D"]
    assert found["statements"][2] == {
        "label": "S3",
        "text": "m_i = m[i]",
        "line": 18,
        "loops": ["i", "j"],
    }
    keys = ["kind", "basis", "may", "source", "sink", "array", "loops", "distance", "direction"]
    for dependence in found["dependences"]:
        assert list(dependence)[:11] == [*keys, "carried_by", "witness"]
        witness = dependence["witness"]
        assert list(witness)[:4] == ["kind", "parameters", "source", "sink"]
        assert "instances" not in dependence
    (carried,) = (
        each
        for each in found["dependences"]
        if (each["source"], each["sink"], each["basis"]) == ("S12", "S3", "value")
        and each["kind"] == "flow"
    )
    assert carried["distance"] == ["0", "1"]
    assert carried["direction"] == ["=", "<"]
    assert carried["carried_by"] == "j"
    assert carried["witness"]["source"] == {"i": 0, "j": 0}
    assert carried["witness"]["sink"] == {"i": 0, "j": 1}


def test_deps_at_sizes_lists_instances(capsys: Capture) -> None:
    found = document(capsys, "deps", STENCIL, "--at", "N=4", "--basis", "value", "--kinds", "flow")
    (dependence,) = found["dependences"]
    assert dependence["instances"] == [[[1, 2], [2, 1]], [[2, 2], [3, 1]]]


def test_deps_without_sizes_lists_instances_and_draws_them(capsys: Capture, tmp_path: Path) -> None:
    path = listing_file(tmp_path, "for i in range(3):\n    A[i + 1] = A[i]\n")
    found = document(capsys, "deps", path, "--at", "", "--basis", "value")
    assert [each["instances"] for each in found["dependences"]] == [[[[0], [1]], [[1], [2]]]]
    assert stdout(capsys, "deps", path, "--format", "svg").startswith("<svg ")


def test_deps_at_contents_of_an_array(capsys: Capture, tmp_path: Path) -> None:
    path = listing_file(tmp_path, RAGGED)

    def pairs(at: str) -> int:
        found = document(capsys, "deps", path, "--basis", "value", "--kinds", "flow", "--at", at)
        pairs = (
            pair
            for each in found["dependences"]
            if (each["source"], each["sink"]) == ("S1", "S2")
            for pair in each["instances"]
        )
        return len({json.dumps(pair) for pair in pairs})

    sizes = "B=2,K=2,P=9,page=[[0,1],[0,1]]"
    assert pairs(f"{sizes},n=[2,2]") == 4
    assert pairs(f"{sizes},n=[0,1]") == 1


def test_basis_and_kinds_select(capsys: Capture) -> None:
    def sorts(*arguments: str) -> set[tuple[str, str]]:
        found = document(capsys, "deps", FLASH, *arguments)
        return {(each["basis"], each["kind"]) for each in found["dependences"]}

    assert {"value", "memory"} == {basis for basis, _ in sorts()}
    assert {"value"} == {basis for basis, _ in sorts("--basis", "value")}
    assert {"flow", "anti", "output"} == {kind for _, kind in sorts("--basis", "memory")}
    asked = sorts("--basis", "memory", "--kinds", "output, anti")
    assert asked == {("memory", "anti"), ("memory", "output")}
    assert sorts("--basis", "all") == sorts()


def test_scc_as_json(capsys: Capture) -> None:
    found = document(capsys, "scc", FLASH)
    assert list(found) == ["schema", "graph", "sccs"]
    assert (found["schema"], found["graph"]) == ("looptrans.scc/1", "flow")
    cycles = [each for each in found["sccs"] if len(each["statements"]) > 1]
    assert cycles == [
        {"statements": ["S3", "S6", "S12"], "carried_by": ["j"]},
        {"statements": ["S4", "S7", "S13"], "carried_by": ["j"]},
        {"statements": ["S8", "S10", "S11"], "carried_by": ["j"]},
    ]
    everything = document(capsys, "scc", FLASH, "--graph", "all")
    assert everything["graph"] == "all"
    assert len(everything["sccs"]) == 1


def test_ddg_as_json(capsys: Capture) -> None:
    found = document(capsys, "ddg", FLASH)
    assert list(found)[:6] == ["schema", "program", "nodes", "edges", "graph", "sccs"]
    assert {(edge["kind"], edge["basis"]) for edge in found["edges"]} == {("flow", "value")}
    everything = document(capsys, "ddg", FLASH, "--graph", "all")
    assert {edge["kind"] for edge in everything["edges"]} == {"flow", "anti", "output"}
    anti = document(capsys, "ddg", FLASH, "--graph", "all", "--kinds", "anti", "--basis", "memory")
    assert {(edge["kind"], edge["basis"]) for edge in anti["edges"]} == {("anti", "memory")}


def test_loops_as_json(capsys: Capture) -> None:
    found = document(capsys, "loops", FLASH)
    assert list(found) == ["schema", "loops"]
    assert found["schema"] == "looptrans.loops/1"
    assert [each["loop"] for each in found["loops"]] == ["i", "j", "d"]
    assert [each["line"] for each in found["loops"]] == [14, 16, 23]
    for each in found["loops"]:
        assert list(each) == ["loop", "line", "flow", "memory"]
        for verdict in (each["flow"], each["memory"]):
            assert list(verdict)[:4] == ["verdict", "names", "operators", "witness"]
    verdicts = {each["loop"]: each for each in found["loops"]}
    assert verdicts["i"]["flow"]["verdict"] == verdicts["d"]["flow"]["verdict"] == "parallel"
    assert verdicts["i"]["memory"]["verdict"] == "privatize"
    assert verdicts["d"]["memory"]["names"] == ["o_id", "v_jd", "o_ijd"]
    assert verdicts["j"]["flow"]["verdict"] in {"sequential", "reduction"}


def test_claims_as_json(capsys: Capture) -> None:
    found = document(capsys, "claims", PRINTED, status=1)
    assert list(found) == ["schema", "program", "claims"]
    assert found["schema"] == "looptrans.claims/1"
    for claim in found["claims"]:
        assert list(claim)[:5] == ["statement", "line", "claim", "verdict", "fact"]
    refuted = {(c["statement"], c["claim"]) for c in found["claims"] if c["verdict"] == "refuted"}
    assert ("S7", "SLoop: j for l_i") in refuted
    assert {("S3", "TLoop: i"), ("S4", "TLoop: i")} <= refuted


def test_report_as_json(capsys: Capture) -> None:
    found = document(capsys, "report", FLASH)
    assert list(found) == ["schema", "program", "deps", "scc", "loops", "claims"]
    assert found["schema"] == "looptrans.report/1"
    assert [each["graph"] for each in found["scc"]] == ["flow", "all"]
    assert found["deps"] == document(capsys, "deps", FLASH)
    assert found["loops"] == document(capsys, "loops", FLASH)
    assert found["claims"] == document(capsys, "claims", FLASH)


# Formats, options and exit status


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["deps", FLASH], "flash_forward: "),
        (["deps", STENCIL, "--at", "N=4", "--format", "svg"], "<svg "),
        (["ddg", FLASH], "Dependence graph of flash_forward"),
        (["ddg", FLASH, "--format", "mermaid"], "%%|flowchart|---"),
        (["ddg", FLASH, "--format", "dot"], "digraph "),
        (["ddg", FLASH, "--format", "svg"], "<svg "),
        (["ddg", FLASH, "--graph", "all", "--format", "svg"], "<svg "),
        (["scc", FLASH], "7 strongly connected components"),
        (["loops", FLASH], "flash_forward: 3 loops"),
        (["claims", FLASH], "flash_forward: claims"),
        (["report", FLASH], "flash_forward\n"),
    ],
)
def test_every_format(capsys: Capture, arguments: list[str], start: str) -> None:
    text = stdout(capsys, *arguments)
    assert any(text.startswith(each) for each in start.split("|"))
    assert text.endswith("\n")
    assert "\x1b" not in text


@pytest.mark.parametrize("verb", VERBS)
def test_placement(capsys: Capture, verb: str) -> None:
    status = 1 if verb in {"claims", "report"} else 0
    literal = stdout(capsys, verb, PRINTED, status=status)
    assert literal == stdout(capsys, verb, PRINTED, "--placement", "literal", status=status)
    assert literal != stdout(capsys, verb, PRINTED, "--placement", "annotated", status=status)


def test_placement_frees_the_inner_loop(capsys: Capture) -> None:
    def inner(*arguments: str) -> str:
        found = document(capsys, "loops", PRINTED, *arguments)["loops"]
        return str(next(each["flow"]["verdict"] for each in found if each["loop"] == "d"))

    assert inner() not in {"parallel", "privatize"}
    assert inner("--placement", "annotated") == "parallel"


def test_show_in_either_placement(capsys: Capture) -> None:
    printed = load(PRINTED)
    assert stdout(capsys, "show", PRINTED) == listing(printed)
    annotated = stdout(capsys, "show", PRINTED, "--placement", "annotated")
    assert annotated == listing(annotated_placement(printed))
    found = document(capsys, "show", PRINTED, "--placement", "annotated")
    assert found["statements"][0]["loops"] == ["i"]


@pytest.mark.parametrize("path", BASIC, ids=lambda p: p.stem)
@pytest.mark.parametrize("placement", ["literal", "annotated"])
def test_annotations_pass_the_check(
    capsys: Capture, tmp_path: Path, path: Path, placement: str
) -> None:
    text = stdout(capsys, "show", str(path), "--annotate", "--placement", placement)
    assert "TLoop" in text
    again = listing_file(tmp_path, text)
    found = document(capsys, "claims", again)
    assert found["claims"]
    assert {claim["verdict"] for claim in found["claims"]} == {"holds"}
    assert stdout(capsys, "show", again, "--annotate") == text


def test_standard_input(capsys: Capture) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "looptrans", "scc", "-"],
        input=Path(FLASH).read_text(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == stdout(capsys, "scc", FLASH)


def test_colour_is_for_terminals_only(capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b[" in stdout(capsys, "scc", FLASH)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in stdout(capsys, "scc", FLASH)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert "\x1b[" not in stdout(capsys, "scc", FLASH)


@pytest.mark.parametrize("verb", VERBS)
def test_a_budget_that_runs_out_is_unknown(capsys: Capture, verb: str) -> None:
    assert main([verb, FLASH, "--budget", "1e-6"]) == 3
    printed = capsys.readouterr()
    assert "budget" in printed.out
    document = main([verb, FLASH, "--budget", "1e-6", "--format", "json"])
    printed = capsys.readouterr()
    assert document == 3
    assert "budget" in json.dumps(json.loads(printed.out))


@pytest.mark.parametrize("transformation", [[], ["reverse(i)"], ["promote(m, j)"]])
def test_a_budget_of_check_that_runs_out_is_unknown(
    capsys: Capture, transformation: list[str]
) -> None:
    assert main(["check", FLASH, *transformation, "--budget", "1e-6"]) == 3
    assert "the budget of 1e-06 s ran out" in capsys.readouterr().out


def test_works_that_share_a_budget_take_it_together() -> None:
    spent = []
    with sharing(0.3):
        for _ in range(3):
            try:
                spent.append(within_budget(_busy, 60.0))
            except BudgetExceeded as error:
                assert str(error) == "the budget of 0.3 s ran out"
    assert len(spent) <= 1
    assert within_budget(_busy, 60.0)


def _busy() -> bool:
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    return True


def test_a_report_without_the_list_of_dependences_has_the_rest(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["report", FLASH, "--format", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    monkeypatch.setattr(api, "FOR_ALL", -1.0)
    assert main(["report", FLASH, "--format", "json"]) == 3
    printed = capsys.readouterr().out
    found = json.loads(printed)
    assert found["loops"] == whole["loops"] and found["scc"] == whole["scc"]
    assert found["deps"] != whole["deps"]
    assert "the budget of 30 s ran out" in printed


def test_a_budget_that_runs_out_before_anything_is_drawn(capsys: Capture) -> None:
    assert main(["ddg", FLASH, "--budget", "1e-6", "--format", "dot"]) == 3
    printed = capsys.readouterr()
    assert printed.out.startswith("digraph ")
    assert "incomplete: the budget" in printed.err
    arguments = ["deps", STENCIL, "--at", "N=4", "--format", "svg", "--budget", "1e-6"]
    assert "budget" in failure(capsys, *arguments, status=3)
    assert "budget" in failure(capsys, "show", FLASH, "--annotate", "--budget", "1e-6", status=3)


def test_refuted_outranks_unknown(capsys: Capture, monkeypatch: Patch) -> None:
    facts = [ClaimFact("S1", 1, "TLoop: i", each, "") for each in ("holds", "unknown", "refuted")]
    for number, status in ((1, 0), (2, 3), (3, 1)):
        monkeypatch.setattr(api, "claims", lambda *_, given=number, **__: tuple(facts[:given]))
        assert main(["claims", FLASH]) == status
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("format", ["text", "json"])
def test_warnings_go_to_stderr(capsys: Capture, monkeypatch: Patch, format: str) -> None:
    report = DependenceReport("f", (), (), (), warnings=("look\x1b here",))
    monkeypatch.setattr(api, "dependences", lambda *_, **__: report)
    assert main(["deps", FLASH, "--format", format]) == 0
    printed = capsys.readouterr()
    assert printed.err == "warning: look\\x1b here\n"
    assert ("here" in printed.out) == (format == "json")


def test_components_that_are_incomplete(capsys: Capture, monkeypatch: Patch) -> None:
    components = ComponentReport("flow", (), "too large")
    monkeypatch.setattr(api, "components", lambda *_, **__: components)
    assert main(["ddg", FLASH]) == 3
    assert "incomplete: too large" in capsys.readouterr().out
    assert main(["scc", FLASH]) == 3


def test_an_error_of_the_renderer_is_no_error_of_the_user(
    capsys: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.delenv("LOOPTRANS_DEBUG", raising=False)
    monkeypatch.setattr(verbs, "style", lambda: int("x"))
    assert main(["scc", FLASH]) == 2
    assert "internal error" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples(capsys: Capture, verb: str) -> None:
    text = stdout(capsys, verb, "--help")
    examples = text.partition("examples:")[2]
    assert examples.count(f"looptrans {verb} ") >= 2


# Whole processes


# Text and JSON of every verb, every format of a graph, and what other listings have besides.
PRINTOUTS = [
    *((verb, FLASH, "--format", form) for verb in VERBS for form in ("text", "json")),
    *(("ddg", FLASH, "--format", form) for form in ("mermaid", "dot", "svg")),
    ("claims", PRINTED),
    ("loops", PRINTED),
    ("report", MATMUL),
]
RUN = """\
import contextlib, io, json, sys
from looptrans.cli.main import main
found = []
for arguments in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main(arguments)
    found.append([status, out.getvalue()])
json.dump(found, sys.stdout)
"""


def printed(seed: str, commands: list[tuple[str, ...]]) -> list[tuple[int, str]]:
    """Run commands in a new process, whose sets come in an order of their own."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(commands),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    assert done.stderr == ""
    return [(status, text) for status, text in json.loads(done.stdout)]


def test_output_fits_and_is_the_same_every_time() -> None:
    first = printed("1", PRINTOUTS)
    assert first[::2] == printed("2", PRINTOUTS[::2])
    for (verb, _, *form), (status, text) in zip(PRINTOUTS, first, strict=True):
        assert text
        assert status == (1 if (verb, _) == ("claims", PRINTED) else 0)
        if form in ([], ["--format", "text"]):
            assert all(columns(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("verb", ["deps", "report"])
def test_nothing_heavy_is_loaded(verb: str) -> None:
    heavy = ("sympy", "torch", "triton")
    code = (
        "import os, sys\n"
        "from looptrans.analysis import budget\n"
        "from looptrans.cli.main import main\n"
        "real = budget.pickle.dumps\n"
        "def shown(result):\n"
        f"    print([n for n in {heavy!r} if n in sys.modules], file=sys.stderr, flush=True)\n"
        "    return real(result)\n"
        "budget.pickle.dumps = shown\n"  # in the process that does the work, when it is done
        f"main([{verb!r}, {FLASH!r}])\n"
        f"print([n for n in {heavy!r} if n in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n[]\n"


@pytest.mark.parametrize(
    "command",
    [
        ["deps"],
        ["scc"],
        ["loops"],
        ["claims"],
        ["report"],
        ["ddg"],
        ["check", "reverse(i)"],
        ["check", "parallelize(i)", "--format", "json"],
        ["apply", "reverse(i)"],
    ],
)
def test_a_subscript_that_may_be_negative_is_pointed_out(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # NumPy counts from the end there: the reversed loop would then give other values.
    listing = tmp_path / "mirror.py"
    listing.write_text("def mirror(x, N):\n    for i in range(0, N):\n        x[-i] = x[i]\n")
    verb, *arguments = command
    assert main([verb, str(listing), *arguments]) == 0
    said = capsys.readouterr().err
    assert said.count("warning: subscript 1 of x in S1, -i, may be negative, for example ") == 1
    assert "N=2 i=1; NumPy would count from the end" in said


@pytest.mark.parametrize("name", ["flash_forward", "attention_gqa", "attention_ragged"])
def test_the_text_counts_what_the_document_lists(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # The text shows no example of a dependence in memory, so it looks for none.
    listing = str(ROOT / "specs" / f"{name}.py")
    assert main(["report", listing, "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["deps"]["dependences"]
    assert all(each["witness"] for each in listed)
    assert main(["report", listing]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for kind in ("flow", "anti", "output"):
        number = sum(e["basis"] == "memory" and e["kind"] == kind for e in listed)
        assert f"{number} {kind} in memory" in text
    free = sum(each["carried_by"] is None for each in listed)
    assert f"{free} independent of any loop" in text
