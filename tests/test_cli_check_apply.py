"""check and apply: what they print, their exit status, and how they fail.

The steps here are made by hand, so that every verdict occurs; the transformations themselves are
asked further below.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import looptrans
from looptrans.cli.main import main
from looptrans.executor import execute_on, prepare
from looptrans.frontend import load, parse
from looptrans.ir.diagnostic import Mistake
from looptrans.ir.listing import listing
from looptrans.ir.program import Program
from looptrans.ir.source import Source
from looptrans.ir.step import Step
from looptrans.ir.verdict import Certificate, Verdict, Witness
from looptrans.transforms import script as scripts
from looptrans.transforms.catalogue import ENTRIES
from tests.test_reports_goldens import check_golden

ROOT = Path(__file__).parent.parent
STENCIL = str(ROOT / "specs" / "stencil.py")
FLASH = str(ROOT / "specs" / "flash_forward.py")
NAIVE = str(ROOT / "specs" / "attention_naive.py")
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

LEGAL = Verdict("legal", certificates=(Certificate("order", "nothing is reversed", "legal"),))
ILLEGAL = Verdict(
    "illegal",
    Witness("order", (("N", 2),), (("i", 0),), (("i", 1),)),
    source="S1",
    sink="S1",
    array="x",
    help="do something else",
)
UNKNOWN = Verdict("unknown", reason="the budget ran out")
BEFORE = "def f(x):\n    for i in range(0, N):\n        x[i] = 1.0\n"
AFTER = "def f(x):\n    for i in range(N - 1, -1, -1):\n        x[i] = 1.0\n"


def ran(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    """The exit status, standard output and standard error of a command."""
    status = main(list(arguments))
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert "internal error" not in printed.err
    return status, printed.out, printed.err


@pytest.fixture
def nest(tmp_path: Path) -> str:
    path = tmp_path / "nest.py"
    path.write_text(BEFORE)
    return str(path)


@pytest.fixture(autouse=True)
def by_hand(request: pytest.FixtureRequest, monkeypatch: Patch, tmp_path: Path) -> None:
    """Make `reverse` legal, `interchange` illegal and `parallelize` unknown, unless marked real."""
    if "real" in request.node.name:
        return
    made = tmp_path / "after.py"
    made.write_text(AFTER)
    verdicts = {"reverse": LEGAL, "interchange": ILLEGAL, "parallelize": UNKNOWN}

    def function_of(name: str) -> Callable[..., Step]:
        def transformed(program: Program, *arguments: Any) -> Step:
            text = f"{name}({', '.join(map(str, arguments))})"
            return Step(text, program, load(str(made)), verdicts[name], {})

        return transformed

    monkeypatch.setattr(scripts, "function_of", function_of)


# check


def test_check_prints_a_line_for_each_step(capsys: Capture, nest: str) -> None:
    status, out, err = ran(capsys, "check", nest, "reverse(i)", "reverse(i)")
    assert (status, err) == (0, "")
    assert out == "✓ reverse(i)  legal    order: nothing is reversed\n" * 2


@pytest.mark.parametrize(
    ("script", "status", "says"),
    [
        ("reverse(i)", 0, "✓ reverse(i)  legal"),
        ("interchange(i, j)", 1, "error[E051]: cannot interchange i and j"),
        ("parallelize(i)", 3, "unknown[E055]: cannot tell whether one may run i in parallel"),
        ("reverse(i); parallelize(i); interchange(i, j)", 3, "– interchange(i, j)  not tried"),
        ("reverse(i); interchange(i, j); parallelize(i)", 1, "– parallelize(i)     not tried"),
    ],
)
def test_the_exit_status_of_check(
    capsys: Capture, nest: str, script: str, status: int, says: str
) -> None:
    got, out, err = ran(capsys, "check", nest, script)
    assert (got, err) == (status, "")
    assert says in out


def test_check_as_json(capsys: Capture, nest: str) -> None:
    status, out, err = ran(capsys, "check", nest, "reverse(i);interchange(i,j)", "--format", "json")
    found = json.loads(out)
    assert (status, err) == (1, "")
    assert (found["schema"], found["verdict"]) == ("looptrans.check/1", "illegal")
    assert found["witness"]["kind"] == "order"
    assert [step["verdict"] for step in found["steps"]] == ["legal", "illegal"]


def test_transformations_may_stand_around_options(capsys: Capture, nest: str) -> None:
    for arguments in (
        [nest, "--format", "json", "reverse(i)", "interchange(i, j)"],
        ["--format", "json", nest, "reverse(i)", "interchange(i, j)"],
        [nest, "reverse(i)", "--format", "json", "interchange(i, j)"],
        [nest, "reverse(i)", "interchange(i, j)", "--format", "json"],
    ):
        status, out, _ = ran(capsys, "check", *arguments)
        names = [step["transformation"] for step in json.loads(out)["steps"]]
        assert (status, names) == (1, ["reverse(i)", "interchange(i, j)"])


def test_what_is_no_transformation_and_no_option_is_refused(capsys: Capture, nest: str) -> None:
    for verb, arguments in (
        ("check", [nest, "reverse(i)", "--format", "json", "oops"]),
        ("check", [nest, "reverse(i)", "--nope"]),
        ("show", [nest, "--format", "json", "reverse(i)"]),
    ):
        status, out, err = ran(capsys, verb, *arguments)
        assert (status, out) == (2, "")
        assert "unrecognized arguments" in err


@pytest.mark.parametrize("verb", ["check", "apply"])
@pytest.mark.parametrize(
    ("script", "code"),
    [("reverse(", "E040"), ("", "E040"), ("rev(i)", "E041"), ("reverse()", "E042")],
)
def test_scripts_that_are_not_understood(
    capsys: Capture, nest: str, verb: str, script: str, code: str
) -> None:
    status, out, err = ran(capsys, verb, nest, script)
    assert (status, out) == (2, "")
    assert err.startswith(f"error[{code}]: ")
    status, out, err = ran(capsys, verb, "nowhere.py", script)
    assert (status, out) == (2, "")
    assert err.startswith("error[E001]: ")


def test_colour_only_at_a_terminal(capsys: Capture, nest: str, monkeypatch: Patch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" not in ran(capsys, "check", nest, "interchange(i, j)")[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b[31m✗\x1b[0m" in ran(capsys, "check", nest, "interchange(i, j)")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in ran(capsys, "check", nest, "interchange(i, j)")[1]


@pytest.mark.parametrize("verb", ["check", "apply"])
def test_help_lists_every_transformation(capsys: Capture, verb: str) -> None:
    status, out, _ = ran(capsys, verb, "--help")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert status == 0
    for entry in ENTRIES:
        assert f"{entry.signature} {entry.summary}" in lines
    assert "Quote it" in out and '"$(cat FILE)"' in out
    assert max(map(len, out.splitlines())) <= 100


# apply


def test_apply_prints_the_nest_and_notes_aside(capsys: Capture, nest: str) -> None:
    status, out, err = ran(capsys, "apply", nest, "reverse(i)")
    assert (status, out) == (0, AFTER)
    assert err == "✓ reverse(i)  legal    order: nothing is reversed\n"


@pytest.mark.parametrize(("script", "status"), [("interchange(i, j)", 1), ("parallelize(i)", 3)])
def test_apply_prints_no_nest_that_is_not_legal(
    capsys: Capture, nest: str, tmp_path: Path, script: str, status: int
) -> None:
    got, out, err = ran(capsys, "apply", nest, "reverse(i)", script)
    assert (got, out) == (status, "")
    assert err.startswith("✓ reverse(i)") and ("[E051]" in err or "[E055]" in err)
    for more in (["--steps"], ["--diff"], ["-o", str(tmp_path / "out.py")]):
        assert ran(capsys, "apply", nest, "reverse(i)", script, *more)[:2] == (status, "")
    assert not (tmp_path / "out.py").exists()
    assert ran(capsys, "apply", nest, script, "--show-anyway")[:2] == (status, AFTER)


def test_apply_as_json(capsys: Capture, nest: str) -> None:
    status, out, err = ran(capsys, "apply", nest, "reverse(i)", "--format", "json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert (found["schema"], found["listing"]) == ("looptrans.apply/1", AFTER)
    status, out, err = ran(capsys, "apply", nest, "interchange(i, j)", "--format", "json")
    assert (status, err, json.loads(out)["listing"]) == (1, "", None)


def test_apply_shows_the_way(capsys: Capture, nest: str) -> None:
    _, out, _ = ran(capsys, "apply", nest, "reverse(i); reverse(i)", "--steps")
    assert out == f"# 1: reverse(i)\n{AFTER}\n# 2: reverse(i)\n{AFTER}"
    _, out, _ = ran(capsys, "apply", nest, "reverse(i)", "--diff")
    assert "-    for i in range(0, N):\n+    for i in range(N - 1, -1, -1):\n" in out


def test_apply_wants_a_transformation(capsys: Capture, nest: str) -> None:
    status, out, err = ran(capsys, "apply", nest)
    assert (status, out) == (2, "")
    assert "the following arguments are required: T" in err
    status, out, err = ran(capsys, "apply", nest, "reverse(i)", "--diff", "--steps")
    assert (status, out) == (2, "")


def test_apply_writes_a_file_whole_or_not_at_all(
    capsys: Capture, nest: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    out = tmp_path / "out.py"
    assert ran(capsys, "apply", nest, "reverse(i)", "-o", str(out))[:2] == (0, "")
    assert out.read_text() == AFTER
    assert out.stat().st_mode & 0o777 == 0o666 & ~_umask()
    # The listing itself may be the output; its permissions stay.
    os.chmod(nest, 0o600)
    assert ran(capsys, "apply", nest, "reverse(i)", "--output", nest)[0] == 0
    assert Path(nest).read_text() == AFTER
    assert Path(nest).stat().st_mode & 0o777 == 0o600

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", broken)
    status, _, err = ran(capsys, "apply", nest, "reverse(i)", "-o", str(out))
    assert status == 2
    assert "error[E060]: cannot write" in err and "no space left on device" in err
    assert out.read_text() == AFTER
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after.py", "nest.py", "out.py"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("target", ["missing/out.py", "."])
def test_files_that_cannot_be_written(
    capsys: Capture, nest: str, tmp_path: Path, target: str
) -> None:
    status, out, err = ran(capsys, "apply", nest, "reverse(i)", "-o", str(tmp_path / target))
    assert (status, out) == (2, "")
    assert "error[E060]: cannot write" in err


def test_an_empty_name_of_a_file_is_refused(capsys: Capture, nest: str) -> None:
    for verb in (["apply", nest, "reverse(i)"], ["derive", nest], ["emit", nest]):
        status, out, err = ran(capsys, *verb, "-o", "")
        assert (status, out) == (2, "")
        assert "'' is no name of a file" in err


def test_output_through_a_link_and_to_a_device(capsys: Capture, nest: str, tmp_path: Path) -> None:
    link, target = tmp_path / "link.py", tmp_path / "target.py"
    target.write_text("old")
    link.symlink_to(target)
    assert ran(capsys, "apply", nest, "reverse(i)", "-o", str(link))[0] == 0
    assert link.is_symlink() and target.read_text() == AFTER
    assert ran(capsys, "apply", nest, "reverse(i)", "-o", "/dev/null")[0] == 0
    assert Path("/dev/null").is_char_device()


def test_a_listing_from_standard_input(capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BEFORE.encode())))
    assert ran(capsys, "apply", "-", "reverse(i)")[:2] == (0, AFTER)


def kinds(of: type[Mistake]) -> set[type[Mistake]]:
    return {of}.union(*(kinds(each) for each in of.__subclasses__()))


def test_every_code_is_explained(capsys: Capture) -> None:
    for module in pkgutil.walk_packages(looptrans.__path__, "looptrans."):
        if module.name.split(".")[1] in {"frontend", "executor", "transforms", "emit", "cli"}:
            importlib.import_module(module.name)
    codes = [kind.code for kind in kinds(Mistake) - {Mistake}]
    explained = [line.split()[0] for line in ran(capsys, "explain")[1].splitlines()]
    assert explained == sorted(codes)
    for code in ("E040", "E041", "E042", *(f"E{n:03}" for n in range(50, 61))):
        status, out, _ = ran(capsys, "explain", code)
        assert (status, out[:5]) == (0, f"{code}:")
    assert "flow dependence" in ran(capsys, "explain", "E051")[1]


# The transformations themselves, end to end


def test_real_interchange_of_the_stencil_is_illegal(capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.chdir(ROOT)
    status, out, err = ran(capsys, "check", "specs/stencil.py", "interchange(i, j)")
    assert (status, err) == (1, "")
    check_golden("cli_check_stencil.txt", out)
    assert "distance (1, -1), direction (<, >)" in out
    assert "for example N=4: S1(1,2) writes A[1,2], which S1(2,1) reads" in out
    _, out, _ = ran(capsys, "check", STENCIL, "interchange(i, j)", "--format", "json")
    found = json.loads(out)
    assert found["witness"] == {
        "kind": "order",
        "parameters": {"N": 4},
        "source": {"i": 1, "j": 2},
        "sink": {"i": 2, "j": 1},
    }
    assert found["steps"][0]["dependence"]["distance"] == ["1", "-1"]


def test_real_interchange_after_a_skew_is_legal(capsys: Capture, monkeypatch: Patch) -> None:
    script = ["skew(j, i, 1)", "interchange(i, j)"]
    status, out, _ = ran(capsys, "check", STENCIL, *script)
    assert status == 0
    assert [line.split("  ")[0] for line in out.splitlines()] == [f"✓ {each}" for each in script]
    status, nest, _ = ran(capsys, "apply", STENCIL, "; ".join(script))
    assert status == 0
    # The nest reads back, and means the same.
    before, after = load(STENCIL), parse(Source("after.py", nest))
    assert listing(after) == nest
    inputs = prepare(before, {"N": 6}, seed=3)
    expected, actual = execute_on(before, inputs), execute_on(after, inputs)
    assert np.array_equal(expected["A"], actual["A"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(nest.encode())))
    status, out, err = ran(capsys, "run", "-", "--sizes", "N=4")
    assert (status, err) == (0, "")
    assert "A  (4, 4) float64" in out


def test_real_hoist_names_the_dependence_that_forbids_it(capsys: Capture) -> None:
    status, out, _ = ran(capsys, "check", FLASH, "hoist(S3, j)")
    assert status == 1
    assert "S12 → S3 on m" in out and "carried by j" in out
    assert ran(capsys, "check", FLASH, "promote(m, j)")[0] == 0


@pytest.mark.parametrize(
    ("path", "script", "code", "says"),
    [
        (STENCIL, "interchange(i, q)", "E044", "the loops are i, j"),
        (FLASH, "interchange(i, j)", "E047", "S1"),
        (FLASH, "hoist(S99, j)", "E046", "there is no statement S99"),
        (FLASH, "hoist(S2, d)", "E046", "S2 does not stand in the loop d"),
        (NAIVE, "interchange(i, j)", "E045", "say which: j@17, j@20, j@22"),
        (NAIVE, "fuse(j@17, j@18)", "E044", "there is no j loop on line 18"),
        (NAIVE, "interchange(j@S9, d)", "E046", "there is no statement S9"),
        (STENCIL, "skew(j, i, 0)", "E049", "factor"),
        (STENCIL, "skew(j, i, 1); interchange(i, k)", "E044", "there is no loop k"),
    ],
)
def test_real_arguments_that_do_not_fit(
    capsys: Capture, path: str, script: str, code: str, says: str
) -> None:
    for verb in ("check", "apply"):
        status, out, err = ran(capsys, verb, path, script)
        assert (status, out) == (2, "")
        assert err.startswith(f"error[{code}]: ")
        assert says in err and "\n  help: " in err and "^" in err


def test_real_names_that_mean_nothing_are_underlined_in_the_script(capsys: Capture) -> None:
    for script, wrong in (
        ("skew(j, i, 1); interchange(i, k)", "k"),
        ("interchange(i, j@77)", "j@77"),
        ("skew(j, i, 0)", "0"),
    ):
        _, _, err = ran(capsys, "check", STENCIL, script)
        place, carets = err.splitlines()[1:3]
        assert place.startswith("  <transformations>:1:")
        assert place[carets.index("^") :].startswith(wrong)
        assert carets.count("^") == len(wrong)


def test_real_parallel_listings_are_checked_for_races(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "sum.py"
    path.write_text("def total(a, s):\n    for i in parallel(0, N):\n        s[0] += a[i]\n")
    status, out, err = ran(capsys, "check", str(path))
    assert (status, err) == (1, "")
    assert "error[E052]: total has a race" in out
    assert "nothing orders the two: i=0 and i=1 may run in any order" in out
    _, out, _ = ran(capsys, "check", str(path), "--format", "json")
    found = json.loads(out)
    assert (found["verdict"], found["witness"]["kind"]) == ("illegal", "race")
    assert found["steps"][0]["transformation"] is None
    path.write_text("def fill(x):\n    for i in parallel(0, N):\n        x[i] = 1.0\n")
    assert ran(capsys, "check", str(path))[0] == 0
    path.write_text("def rows(n, y):\n    for i in parallel(0, n[0]):\n        y[0] += 1.0\n")
    status, out, _ = ran(capsys, "check", str(path))
    assert status == 1 and "for example n[0]=2: S1(0) writes y[0], which S1(1) reads" in out
    assert ran(capsys, "check", STENCIL)[0] == 0


def test_real_placement_is_heeded(capsys: Capture) -> None:
    printed = str(ROOT / "specs" / "flash_forward_as_printed.py")
    # As printed every statement stands in all three loops; annotated, S1 stands in i alone.
    assert ran(capsys, "check", printed, "interchange(j, d)")[0] == 1
    arguments = ["check", printed, "interchange(j, d)", "--placement", "annotated"]
    status, _, err = ran(capsys, *arguments)
    assert status == 2 and "error[E047]" in err


def test_check_loads_nothing_it_does_not_need(capsys: Capture) -> None:
    heavy = ("networkx", "numpy", "sympy", "torch", "triton")
    code = (
        "import sys\nfrom looptrans.cli.main import main\n"
        f"main(['check', {FLASH!r}, 'promote(m, j)'])\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_check_asks_for_a_listing_and_for_no_transformation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check"]) == 2
    assert capsys.readouterr().err.endswith("the following arguments are required: FILE\n")
    assert main(["apply"]) == 2
    assert capsys.readouterr().err.endswith("the following arguments are required: FILE, T\n")
