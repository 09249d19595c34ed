"""The verbs show, run and explain: what they print, their exit status, and how they fail."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from looptrans.cli import main as cli
from looptrans.cli.main import main
from looptrans.executor import execute
from looptrans.executor.errors import EXECUTION_MISTAKES
from looptrans.frontend import load
from looptrans.frontend.mistakes import MISTAKES
from looptrans.ir.listing import listing
from looptrans.ir.verdict import CertificateKind

ROOT = Path(__file__).parent.parent
SPECS = ROOT / "specs"
FLASH = str(SPECS / "flash_forward.py")
MATMUL = str(SPECS / "matmul.py")
STENCIL = str(SPECS / "stencil.py")

Capture = pytest.CaptureFixture[str]


def command(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs the whole process."""
    return subprocess.run(
        [sys.executable, "-m", "looptrans", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def failure(capsys: Capture, *arguments: str) -> str:
    """The diagnostics of a command that must fail, with nothing on stdout."""
    assert main(list(arguments)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    return printed.err


def stdout(capsys: Capture, *arguments: str) -> str:
    assert main(list(arguments)) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


# show


def test_show_prints_the_canonical_listing(capsys: Capture) -> None:
    assert stdout(capsys, "show", FLASH) == listing(load(FLASH))


def test_show_reads_standard_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"for i in range(N):\n  x[i]=1.0\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert stdout(capsys, "show", "-") == "for i in range(0, N):\n    x[i] = 1.0\n"


def test_show_as_json(capsys: Capture) -> None:
    document = json.loads(stdout(capsys, "show", STENCIL, "--format", "json"))
    assert document["schema"] == "looptrans.show/1"
    assert document["program"] == "stencil"
    assert document["arrays"][0]["shape"] == ["N", "N"]
    (statement,) = document["statements"]
    assert statement["label"] == "S1"
    assert statement["loops"] == ["i", "j"]
    assert document["listing"] == listing(load(STENCIL))


def test_show_loads_nothing_heavy() -> None:
    heavy = ("islpy", "networkx", "numpy", "sympy", "torch", "triton")
    code = (
        "import sys\nfrom looptrans.cli.main import main\n"
        f"main(['show', {FLASH!r}])\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


# run


def test_run_prints_every_output(capsys: Capture) -> None:
    text = stdout(capsys, "run", FLASH, "--sizes", "M=2,N=3", "--sizes", "D=1,E=2")
    lines = text.splitlines()
    assert lines[0] == "flash_forward"
    assert lines[1].strip() == "M=2, E=2, N=3, D=1"
    heads = [line.split("  ")[:2] for line in lines if line[:2] in ("O ", "m ", "l ")]
    assert heads == [["O", "(2, 1) float64"], ["m", "(2) float64"], ["l", "(2) float64"]]
    assert text == stdout(capsys, "run", FLASH, "--sizes", "M=2,N=3,D=1,E=2")
    assert text != stdout(capsys, "run", FLASH, "--sizes", "M=2,N=3,D=1,E=2", "--seed", "1")


def test_run_reads_and_writes_archives(capsys: Capture, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape) for name, shape in MATMUL_SHAPES.items()}
    np.savez(tmp_path / "in.npz", **arrays)  # type: ignore[arg-type]  # arrays, and no options
    out = tmp_path / "out.npz"
    stdout(capsys, "run", MATMUL, "--inputs", str(tmp_path / "in.npz"), "--out", str(out))
    with np.load(out) as archive:
        assert archive.files == ["C"]
        assert np.array_equal(archive["C"], execute(load(MATMUL), inputs=arrays)["C"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npz", "out.npz"]


MATMUL_SHAPES = {"A": (2, 4), "B": (4, 3), "bias": (3,)}


def test_run_as_json(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text(
        "def f(x, eps):\n    for i in range(N):\n        x[i] = eps / 0.0 if i > 0 else inf - inf\n"
    )
    text = stdout(capsys, "run", str(path), "--sizes", "N=2,eps=1e-3", "--log", "--format", "json")
    assert json.loads(text) == {
        "schema": "looptrans.run/1",
        "program": "f",
        "parameters": {"N": 2, "eps": 0.001},
        "outputs": [{"name": "x", "shape": [2], "dtype": "float64", "values": ["nan", "inf"]}],
        "accesses": {"x": {"reads": 0, "writes": 2}},
    }


def test_run_counts_accesses(capsys: Capture) -> None:
    lines = stdout(capsys, "run", MATMUL, "--sizes", "M=2,N=3,K=4", "--log").splitlines()
    table = [line.split() for line in lines[lines.index("") :] if line.startswith("  ")]
    assert ["A", "24", "0"] in table
    assert ["acc", "30", "30"] in table
    assert ["C", "0", "6"] in table


def test_run_in_half_precision(capsys: Capture) -> None:
    assert "float16" in stdout(capsys, "run", MATMUL, "--dtype", "fp16")


@pytest.mark.parametrize("sizes", ["M=0", "N=0,K=0", "M=60,N=60,K=1", "M=1,N=1,K=1"])
def test_run_prints_arrays_of_any_size(capsys: Capture, sizes: str) -> None:
    assert len(stdout(capsys, "run", MATMUL, "--sizes", sizes).splitlines()) < 30


def test_run_prints_arrays_of_more_dimensions(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text(
        "def f():\n    y = zeros((2, 3, N))\n    for i in range(2):\n"
        "        y[i, 0, 0] = 1.0\n    return y\n"
    )
    assert "[1]" in stdout(capsys, "run", str(path), "--sizes", "N=2")
    assert "…" in stdout(capsys, "run", str(path), "--sizes", "N=500")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "Z=1"], "'Z' is given, and is no argument or size of matmul"),
        (["--sizes", "M=-1"], "extent of A is -1"),
        (["--sizes", "M=1,M=2"], "M as 1 and as 2"),
        (["--sizes", "M=1", "--sizes", "M=2"], "M as 1 and as 2"),
        (["--sizes", "M=inf"], "M is an integer"),
        (["--out", ""], "'' is no name of a file"),
        (["--sizes", "M=1.5"], "M is an integer"),
        (["--sizes", "M=100000000,K=100000"], "cells"),
        (["--sizes", "M"], "is not NAME=NUMBER"),
        (["--sizes", "M=x"], "is no number"),
        (["--seed", "-1"], "'-1' is no integer from 0 to 2**64 - 1"),
        (["--seed", "x"], "'x' is no integer"),
        (["--dtype", "bfloat16"], "invalid choice"),
        (["--inputs", "missing.npz"], "cannot read missing.npz: no such file"),
        (["--inputs", MATMUL], "cannot read"),
        (["--inputs", str(ROOT)], "is a directory"),
        (["--sizes", "M=1,N=1,K=1", "--out", "no/such/folder.npz"], "cannot write"),
        (["--sizes", "M=1,N=1,K=1", "--out", str(ROOT)], "cannot write"),
    ],
)
def test_run_refuses(capsys: Capture, arguments: list[str], message: str) -> None:
    assert message in failure(capsys, "run", MATMUL, *arguments)


@pytest.mark.parametrize("kind", ["pickle", "npy", "cut", "empty", "shape", "name"])
def test_run_refuses_a_bad_archive(capsys: Capture, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "in.npz"
    message = "error[E037]: cannot read"
    if kind == "pickle":
        np.savez(path, A=np.array([{}], dtype=object))
        message = "pickled objects"
    elif kind == "npy":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
        message = "one array without a name"
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "shape":
        np.savez(path, A=np.ones((2, 2)), B=np.ones((3, 3)))
        message = "K is 2 by dimension 1 of A, and 3 by dimension 0 of B"
    elif kind == "name":
        np.savez(path, Q=np.ones(2))
        message = "it takes M, K, N, A, B, bias"
    else:
        np.savez(path, A=np.ones((20, 20)))
        path.write_bytes(path.read_bytes()[:500])
    error = failure(capsys, "run", MATMUL, "--inputs", str(path))
    assert message in error
    assert "help:" in error


def test_a_statement_that_fails_is_shown(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "shift.py"
    path.write_text(
        'def f(x: Float[Array, "N"]):\n    for i in range(N):\n        x[i] = x[i - 1]  # S7: up\n'
    )
    error = failure(capsys, "run", str(path))
    assert error.splitlines() == [
        "error[E031]: x[-1] is outside the array: subscript 0 is -1, which is negative",
        f"  {path}:3:9 | x[i] = x[i - 1]  # S7: up",
        error.splitlines()[2],
        "  in S7 at i=0: x has the shape (4,)",
        "  help: change the bounds of the loop, or guard the access",
    ]
    assert set(error.splitlines()[2]) == {" ", "^"}


def test_a_failed_run_leaves_the_old_output(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    out.write_bytes(b"old")
    failure(capsys, "run", MATMUL, "--sizes", "Z=1", "--out", str(out))
    assert out.read_bytes() == b"old"


# explain


def test_explain_lists_every_code(capsys: Capture) -> None:
    codes = [line[:4] for line in stdout(capsys, "explain").splitlines()]
    assert codes == sorted(set(codes))
    assert {mistake.code for mistake in (*MISTAKES, *EXECUTION_MISTAKES)} <= set(codes)


@pytest.mark.parametrize("mistake", [*MISTAKES, *EXECUTION_MISTAKES])
def test_explain_says_what_a_code_means(capsys: Capture, mistake: type[Exception]) -> None:
    code, title = mistake.code, mistake.title  # type: ignore[attr-defined]  # all have them
    text = stdout(capsys, "explain", code.lower())
    assert text.startswith(f"{code}: {title}\n\n")
    assert len(text.splitlines()) > 2


def test_explain_says_what_a_certificate_shows(capsys: Capture) -> None:
    for kind in get_args(CertificateKind):
        text = stdout(capsys, "explain", kind)
        assert text.startswith(f"{kind}: ")
        assert len(text.splitlines()) > 2


def test_explain_of_an_unknown_code(capsys: Capture) -> None:
    error = failure(capsys, "explain", "E999")
    assert "there is no code 'E999'" in error
    assert "E001, E002" in error


# The command line as a whole


@pytest.mark.parametrize("verb", ["show", "run", "explain"])
def test_every_verb_has_help_with_examples(capsys: Capture, verb: str) -> None:
    text = stdout(capsys, verb, "--help")
    assert "examples:" in text
    assert f"looptrans {verb}" in text.partition("examples:")[2]


def test_help_and_version(capsys: Capture) -> None:
    text = stdout(capsys, "--help")
    assert "examples:" in text
    assert "exit status" in text
    assert stdout(capsys, "--version").startswith("looptrans ")


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["show"], ["show", "a", "b"], ["show", FLASH, "--what"]]
)
def test_usage_errors(capsys: Capture, arguments: list[str]) -> None:
    assert "usage:" in failure(capsys, *arguments)


@pytest.mark.parametrize("verb", ["show", "run"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("for i in range(N:\n", "error[E002]"),
        ("", "error[E004]"),
        ("while True:\n    x = 1\n", "error["),
        ("for i in range(N):\n    x[i * i] = 1.0\n", "error[E012]"),
    ],
)
def test_listing_errors(
    capsys: Capture, tmp_path: Path, verb: str, text: str, message: str
) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    assert message in failure(capsys, verb, str(path))


def test_a_missing_file(capsys: Capture) -> None:
    assert "error[E001]" in failure(capsys, "show", "nowhere.py")


def test_an_unexpected_exception_is_one_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(cli, "parser", broken)
    monkeypatch.delenv("LOOPTRANS_DEBUG", raising=False)
    error = failure(capsys, "show", FLASH)
    assert error.startswith("internal error: RuntimeError: two lines; please report")
    assert error.count("\n") == 1
    monkeypatch.setenv("LOOPTRANS_DEBUG", "1")
    with pytest.raises(RuntimeError):
        main(["show", FLASH])


def test_an_interrupt_ends_quietly(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parser", interrupted)
    assert main(["show", FLASH]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_goes_away_ends_quietly() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "looptrans", "show", FLASH],
            cwd=ROOT,
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write_end)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no disk that is always full")
def test_a_full_disk_is_no_internal_error() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "looptrans", "report", FLASH],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr.startswith("error: cannot write the output: no space left on device\n")
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (f"show {FLASH} >&-", 0),
        (f"check {STENCIL} 'interchange(i, j)' >&-", 1),
        (f"check {STENCIL} 'interchange(i, i)' 2>&-", 2),
        ("show - <&-", 2),
        ("recheck - <&-", 2),
        ("show - 0> /dev/null", 2),
    ],
)
def test_streams_that_are_closed(arguments: str, status: int) -> None:
    shell = f"exec {sys.executable} -m looptrans {arguments}"
    options: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True}
    done = subprocess.run(["sh", "-c", shell], check=False, **options)
    assert "internal error" not in done.stdout + done.stderr
    assert done.returncode == status


def test_an_error_that_nobody_reads_keeps_its_status() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "looptrans", "show", "nowhere.py"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=write_end,
            text=True,
            check=False,
        )
    finally:
        os.close(write_end)
    assert done.returncode == 2


def test_output_that_the_terminal_cannot_encode() -> None:
    done = command("explain", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_function_of_standard_input_can_be_named(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def f(x):\n    for i in range(N):\n        x[i] = 1\n" * 2
    data = text.replace("def f", "def g", 1).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert stdout(capsys, "show", "-::g").startswith("def g(x):")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert "help: name one, -::g" in failure(capsys, "show", "-")


def test_a_device_or_a_pipe_is_not_replaced(capsys: Capture, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "is no regular file" in failure(capsys, "run", MATMUL, "--out", str(pipe))
    assert pipe.is_fifo()


def test_a_link_is_followed(capsys: Capture, tmp_path: Path) -> None:
    link, out = tmp_path / "link.npz", tmp_path / "out.npz"
    link.symlink_to(out)
    stdout(capsys, "run", MATMUL, "--out", str(link))
    assert link.is_symlink()
    assert out.is_file()


def test_made_up_sizes_leave_no_local_array_with_a_negative_extent(
    capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "conv.py"
    path.write_text(
        'def f(w: Float[Array, "R"], x: Float[Array, "H"]):\n    y = zeros(H - 3 * R + 1)\n'
        "    for i in range(H - 3 * R + 1):\n        y[i] = x[i] * w[0]\n    return y\n"
    )
    assert "R=4" in stdout(capsys, "run", str(path))
