"""`looptrans run` on parallel listings: agreement of shuffled executions, and races."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from looptrans.cli.main import main

Capture = pytest.CaptureFixture[str]

SUM = """\
def total(a: Float[Array, "N"]):
    s = 0.0
    for i in parallel(0, N):
        s += a[i]
    return s
"""
ATOMIC = SUM.replace("        s +=", "        with atomic():\n            s +=")
TURNS = SUM.replace("        s +=", "        with atomic(turn=i):\n            s +=")
LOST = SUM.replace("        s += a[i]", "        private: t\n        t = s\n        s = t + a[i]")


def run(capsys: Capture, tmp_path: Path, text: str, *arguments: str) -> tuple[int, str]:
    (tmp_path / "sum.py").write_text(text)
    with contextlib.chdir(tmp_path):
        status = main(["run", "sum.py", *arguments])
    printed = capsys.readouterr()
    assert printed.err == ""
    return status, printed.out


def test_a_race_is_shown_when_the_numbers_come_out_right(capsys: Capture, tmp_path: Path) -> None:
    status, text = run(capsys, tmp_path, SUM, "--sizes", "N=2", "--dtype", "float16")
    assert status == 1
    head, _, shown = text.partition("\n\n5 of 5")
    assert head.startswith("total\n  N=2\n\ns  float16  ")
    assert "5 of 5" + shown == (
        "5 of 5 shuffled executions agree bit for bit\n"
        "\n"
        "error[E052]: race on s: S2(0) and S2(1) both write s, and nothing orders them\n"
        "  sum.py:4 | s += a[i]  # S2\n"
        "             ^\n"
        "  the iterations i=0 and i=1 of the parallel loop run in any order\n"
        "  help: make the update atomic (with atomic():), combine the updates in a tree (with\n"
        '    reduce("+"):), or let the iterations take turns (with atomic(turn=i):)\n'
    )


def test_a_listing_without_a_race(capsys: Capture, tmp_path: Path) -> None:
    status, text = run(capsys, tmp_path, TURNS, "--shuffles", "3")
    assert status == 0
    assert text.splitlines()[-2:] == [
        "3 of 3 shuffled executions agree bit for bit",
        "no race on these inputs",
    ]
    status, text = run(capsys, tmp_path, ATOMIC, "--sizes", "N=50", "--shuffles", "8")
    assert status == 0
    line = text.splitlines()[-2]
    assert line.startswith("8 of 8 shuffled executions agree up to rounding; the largest differen")
    assert line.endswith(", in s")
    status, text = run(capsys, tmp_path, TURNS, "--shuffles", "1")
    assert "1 of 1 shuffled execution agrees bit for bit" in text
    status, text = run(capsys, tmp_path, TURNS, "--shuffles", "0")
    assert status == 0
    assert "shuffled" not in text
    assert text.endswith("\n\nno race on these inputs\n")


def test_the_outputs_are_those_of_the_sequential_reading(capsys: Capture, tmp_path: Path) -> None:
    sequential = LOST.replace("parallel", "range")
    status, plain = run(capsys, tmp_path, sequential, "--sizes", "N=6", "--log")
    assert status == 0
    assert "shuffled" not in plain
    assert "race" not in plain
    status, text = run(capsys, tmp_path, LOST, "--sizes", "N=6", "--log")
    assert status == 1
    assert text.startswith(plain + "\n")
    out = tmp_path / "out.npz"
    run(capsys, tmp_path, LOST, "--sizes", "N=6", "--out", str(out))
    with np.load(out) as archive:
        assert f"{archive['s']:.6g}" in plain


def test_lost_updates_and_two_statements(capsys: Capture, tmp_path: Path) -> None:
    status, text = run(capsys, tmp_path, LOST, "--sizes", "N=6")
    assert status == 1
    assert "2 of 5 shuffled executions agree; the largest difference is 3.2, in s" in text
    assert (
        "error[E052]: race on s: S2(0) reads s and S3(1) writes it, and nothing orders them\n"
        "  sum.py:5 | t = s  # S2\n"
        "                 ^\n"
        "  sum.py:6 | s = t + a[i]  # S3\n"
        "             ^\n"
    ) in text
    assert text.count("error[E052]") == 2


@pytest.mark.parametrize(
    ("body", "remedy"),
    [
        ("t = a[i]\n        a[i] = t * t", "give each iteration of i its own t, with private: t"),
        ("a[i] = a[i + 1]", "use different cells, or let the iterations take turns"),
        ("b[i + 1] = 1.0\n        a[i] = b[i]", "put barrier() between S1 and S2, or let the"),
        ("b[i] = 1.0\n        a[i] = b[i + 1]", "let the iterations take turns, both in one block"),
        (
            'with reduce("+"):\n            b[0] += a[i]\n        a[i] = b[0]',
            "put barrier() between",
        ),
        ("with atomic():\n            b[0] += 1.0\n        a[i] = b[0]", "put S2 into an atomic"),
        ("b[0] = max(b[0], a[i])", 'in a tree (with reduce("max"):)'),
        ("b[0] = 1.0 - b[0]", "make the update atomic (with atomic():), or let the iterations"),
        (
            'with reduce("+"):\n            b[0] += 1.0\n        with reduce("*"):\n'
            "            b[0] *= 2.0",
            "reduce with one operator, or put barrier() between the two",
        ),
        (
            "for k in range(2):\n            b[k] = 1.0\n            a[i] = b[k]",
            "let the iterations take turns, both in one block",
        ),
    ],
)
def test_what_to_do_about_a_race(capsys: Capture, tmp_path: Path, body: str, remedy: str) -> None:
    text = f"def f(a, b):\n    for i in parallel(0, 4):\n        {body}\n"
    status, shown = run(capsys, tmp_path, text)
    assert status == 1
    helps = [" ".join(part.split()) for part in shown.split("help: ")[1:]]
    assert any(remedy in text for text in helps), helps


def test_many_races_are_not_all_shown(capsys: Capture, tmp_path: Path) -> None:
    lines = "".join(f"        b[{n}] = b[{n}] * 2.0\n" for n in range(11))
    text = f"def f(b):\n    for i in parallel(0, 4):\n{lines}"
    status, shown = run(capsys, tmp_path, text)
    assert status == 1
    assert shown.count("error[E052]") == 8
    assert shown.endswith("\n\nand 3 more races; --format json has all\n")
    document = json.loads(run(capsys, tmp_path, text, "--format", "json")[1])
    assert len(document["races"]) == 11


def test_parallel_runs_as_json(capsys: Capture, tmp_path: Path) -> None:
    status, text = run(capsys, tmp_path, SUM, "--sizes", "N=2", "--format", "json")
    assert status == 1
    document = json.loads(text)
    assert document["schema"] == "looptrans.run/1"
    assert document["shuffles"] == {
        "count": 5,
        "equal": 5,
        "agree": 5,
        "difference": 0.0,
        "failure": None,
    }
    assert document["races"] == [
        {
            "array": "s",
            "cell": [],
            "loop": "i",
            "first": {"statement": "S2", "iteration": {"i": 0}, "writes": True},
            "second": {"statement": "S2", "iteration": {"i": 1}, "writes": True},
        }
    ]
    status, text = run(capsys, tmp_path, TURNS, "--format", "json")
    assert status == 0
    assert json.loads(text)["races"] == []
    sequential = SUM.replace("parallel", "range")
    assert "races" not in json.loads(run(capsys, tmp_path, sequential, "--format", "json")[1])


def test_an_execution_that_fails_because_of_a_race(capsys: Capture, tmp_path: Path) -> None:
    text = """\
def f(a: Float[Array, "N"]):
    s = 1.0
    for i in parallel(0, N):
        private: t
        if s > 0.5:
            t = a[i]
        s = 0.0
        a[i] = t
        s = 1.0
"""
    status, shown = run(capsys, tmp_path, text, "--shuffles", "9")
    assert status == 1
    assert "one fails: 't' is read before its iteration has set it" in shown
    assert "race on s" in shown


def test_a_private_name_that_is_not_set(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "early.py"
    path.write_text(
        'def f(a: Float[Array, "N"]):\n    for i in parallel(0, N):\n        private: t\n'
        "        if i > 0:\n            t = a[i]\n        a[i] = t  # S7: here\n"
    )
    assert main(["run", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "error[E032]: 't' is read before its iteration has set it",
        f"  {path}:6:9 | a[i] = t  # S7: here",
        printed.err.splitlines()[2],
        "  in S7 at i=0: t is private to each iteration of the loop i and starts without a value",
        "  help: set it earlier in the same iteration, or do not make t private",
    ]


def test_a_piped_listing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TURNS.encode())))
    assert main(["run", "-", "--shuffles", "2"]) == 0
    assert "2 of 2 shuffled executions agree bit for bit" in capsys.readouterr().out


@pytest.mark.parametrize("count", ["-1", "x", "1.5", "1000000"])
def test_a_number_of_shuffles_that_is_none(capsys: Capture, count: str) -> None:
    assert main(["run", "specs/matmul.py", "--shuffles", count]) == 2
    assert "is no integer from 0 to 999999" in capsys.readouterr().err


def test_help_says_what_happens_to_parallel_loops(capsys: Capture) -> None:
    assert main(["run", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--shuffles N" in text
    assert "are a race, whatever the numbers are" in text
