"""`looptrans emit`: what is printed, written, compared and refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from looptrans.blocks.block_ir.program import BlockProgram, NotLowered, Rounding
from looptrans.blocks.lower import lower
from looptrans.cli.main import main
from looptrans.derivation.step import Derivation
from looptrans.emit import listing as emission
from looptrans.emit.listing import emitted
from looptrans.frontend import load

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

ROOT = Path(__file__).resolve().parent.parent
TOTAL = """\
def total(x: Float[Array, "M N"]):
    t = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            t[i] = t[i] + x[i, j]  # S7: all of a row
    return t
"""
MEAN = TOTAL.replace("total", "mean").replace("x[i, j]", "x[i, j] / N")


@pytest.fixture
def total(tmp_path: Path) -> str:
    path = tmp_path / "listing.py"
    path.write_text(TOTAL)
    return str(path)


@pytest.fixture
def no_kernels(monkeypatch: Patch) -> None:
    """Let nothing called `total` be run in blocks."""

    def refusing(derivation: Derivation, *, rounded: Rounding | None = None) -> BlockProgram:
        if derivation.program.name == "total":
            raise NotLowered("S7 looks at what a later row has left", "S7")
        return lower(derivation, rounded=rounded)

    monkeypatch.setattr(emission, "lower", refusing)


def ran(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    status = main(["emit", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_a_module_is_printed_without_torch(total: str) -> None:
    """What is printed is what compiles; it is made where torch and triton cannot be imported."""
    code = (
        "import sys\nfrom looptrans.cli.main import main\n"
        "sys.modules['torch'] = sys.modules['triton'] = None\n"
        f"sys.exit(main(['emit', {total!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == emitted(load(total)).text
    compile(done.stdout, "total.py", "exec")


def test_modules_are_written_under_their_names(capsys: Capture, tmp_path: Path, total: str) -> None:
    (tmp_path / "mean.py").write_text(f"class Of:\n    {MEAN.replace(chr(10), chr(10) + '    ')}")
    folder = tmp_path / "new" / "kernels"
    status, out, _ = ran(capsys, total, f"{tmp_path / 'mean.py'}::Of.mean", "-o", str(folder))
    assert status == 0
    assert out == f"{folder / 'total.py'}\n{folder / 'Of_mean.py'}\n"
    assert sorted(path.name for path in folder.iterdir()) == ["Of_mean.py", "total.py"]
    assert (folder / "total.py").read_text() == emitted(load(total)).text


def test_check_compares_and_writes_nothing(capsys: Capture, tmp_path: Path, total: str) -> None:
    folder = tmp_path / "kernels"
    path = folder / "total.py"
    check = (total, "--check", "-o", str(folder))
    remedy = f"looptrans emit FILE -o {folder} writes it\n"
    assert ran(capsys, *check)[:2] == (1, f"{path} is missing; {remedy}")
    assert not folder.exists()

    ran(capsys, total, "-o", str(folder))
    assert ran(capsys, *check)[:2] == (0, "")
    text = path.read_text()
    for other in (text + "\n", text[:-1], ""):
        path.write_text(other)
        differs = f"{path} differs from what its listing gives; {remedy}"
        assert ran(capsys, *check)[:2] == (1, differs)
        assert path.read_text() == other


def test_check_without_files_looks_at_all_of_the_shelf(
    capsys: Capture, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ran(capsys, "--check")[0] == 2
    Path("specs").mkdir()
    Path("specs", "total.py").write_text(TOTAL)
    assert ran(capsys, "--check")[0] == 1
    assert ran(capsys, "specs/total.py", "-o", "generated")[0] == 0
    assert ran(capsys, "--check", "--pass", "forward")[:2] == (0, "")
    status, out, _ = ran(capsys, "--check")
    assert (status, out.split(";")[0]) == (1, "generated/total_backward.py is missing")
    assert ran(capsys, "specs/total.py", "--pass", "backward", "-o", "generated")[0] == 0
    assert ran(capsys, "--check")[:2] == (0, "")
    Path("generated", "old.py").write_text("")
    status, out, _ = ran(capsys, "--check")
    assert (status, out) == (1, "generated/old.py belongs to no listing in specs/; remove it\n")
    assert ran(capsys, "--check", "specs/total.py")[0] == 0


@pytest.mark.usefixtures("no_kernels")
def test_a_refusal_names_statement_and_reason(capsys: Capture, tmp_path: Path, total: str) -> None:
    folder = tmp_path / "kernels"
    for arguments in ((), ("-o", str(folder))):
        status, out, err = ran(capsys, total, *arguments)
        assert (status, out) == (1, "")
        lines = err.splitlines()
        assert lines[0] == "error[E070]: cannot emit total"
        assert lines[1].endswith("listing.py:5:13 | t[i] = t[i] + x[i, j]  # S7: all of a row")
        assert set(lines[2]) == {" ", "^"}
        assert lines[3] == "  S7 looks at what a later row has left"
        assert not folder.exists()

    assert ran(capsys, total, "--check", "-o", str(folder))[:2] == (0, "")
    folder.mkdir()
    (folder / "total.py").write_text("")
    status, out, _ = ran(capsys, total, "--check", "-o", str(folder))
    assert status == 1
    assert out == f"{folder / 'total.py'} is there, but its listing is refused; remove it\n"


@pytest.mark.usefixtures("no_kernels")
def test_a_refusal_leaves_the_other_listings_alone(
    capsys: Capture, tmp_path: Path, total: str
) -> None:
    (tmp_path / "mean.py").write_text(MEAN)
    folder = tmp_path / "kernels"
    status, _, err = ran(capsys, total, str(tmp_path / "mean.py"), "-o", str(folder))
    assert status == 1
    assert "cannot emit total" in err
    assert [path.name for path in folder.iterdir()] == ["mean.py"]


def test_a_listing_with_mistakes_stops_everything(
    capsys: Capture, tmp_path: Path, total: str
) -> None:
    (tmp_path / "wrong.py").write_text(TOTAL.replace("x[i, j]", "x[i * j, j]"))
    folder = tmp_path / "kernels"
    status, out, err = ran(capsys, total, str(tmp_path / "wrong.py"), "-o", str(folder))
    assert (status, out) == (2, "")
    assert "error[E012]" in err
    assert not folder.exists()


def test_usage(capsys: Capture, tmp_path: Path, total: str) -> None:
    assert ran(capsys)[0] == 2
    (tmp_path / "again.py").write_text(TOTAL)
    status, out, err = ran(capsys, total, str(tmp_path / "again.py"))
    assert (status, out) == (2, "")
    assert err == "error: 2 listings are called total; emit them apart\n"
    status, out, err = ran(capsys, total, "-o", str(tmp_path / "again.py"))
    assert (status, out) == (2, "")
    assert "error[E060]: cannot write" in err
    assert "help: name a folder that may be written" in err
    assert (tmp_path / "again.py").read_text() == TOTAL


def test_a_file_is_written_whole_or_not_at_all(
    capsys: Capture, monkeypatch: Patch, tmp_path: Path, total: str
) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "total.py").write_text("what was there")

    def fails(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", fails)
    status, out, err = ran(capsys, total, "-o", str(folder))
    assert (status, out) == (2, "")
    assert "no room" in err
    assert [path.name for path in folder.iterdir()] == ["total.py"]
    assert (folder / "total.py").read_text() == "what was there"


def test_a_listing_whose_iterations_race_is_refused(capsys: Capture, tmp_path: Path) -> None:
    file, folder = tmp_path / "listing.py", tmp_path / "kernels"
    head = 'def f(x: Float[Array, "N"]):\n    y = zeros(N)\n    for i in parallel(0, N):\n'
    file.write_text(head + "        y[i // 2] = x[i]\n    return y\n")
    status, out, err = ran(capsys, str(file), "-o", str(folder))
    assert (status, out) == (1, "")
    assert "listing.py:4:9 | y[i // 2] = x[i]" in err
    assert "two iterations of S1 race on y\n  help: let each iteration have cells of its own" in err
    assert not folder.exists()
    file.write_text(head + "        y[i] = x[i]\n    return y\n")
    assert ran(capsys, str(file), "-o", str(folder))[0] == 0


def test_a_listing_that_makes_nothing_is_refused(capsys: Capture, tmp_path: Path) -> None:
    file, folder = tmp_path / "listing.py", tmp_path / "kernels"
    text = 'def f(x: Float[Array, "N"]):\n    y = zeros(N)\n    for i in range(0, N):\n'
    file.write_text(text + "        y[i] = x[i]\n")
    status, out, err = ran(capsys, str(file), "-o", str(folder))
    assert (status, out) == (1, "")
    assert "nothing is returned, and no argument is written\n  help: return what it makes" in err
    assert not folder.exists()
