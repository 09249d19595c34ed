"""What the verbs of the analysis refuse: options, sizes and contents that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from looptrans.analysis import api
from looptrans.analysis.budget import BudgetExceeded
from looptrans.cli.main import main
from looptrans.ir.facts import DependenceReport
from tests.test_cli_analysis import (
    FLASH,
    RAGGED,
    STENCIL,
    VERBS,
    Capture,
    Patch,
    failure,
    listing_file,
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["deps", FLASH, "--kinds", "flow,raw"], "'raw' is none of flow, anti, output"),
        (["deps", FLASH, "--basis", "both"], "invalid choice"),
        (["scc", FLASH, "--graph", "anti"], "invalid choice"),
        (["loops", FLASH, "--placement", "mine"], "invalid choice"),
        (["loops", FLASH, "--format", "svg"], "invalid choice"),
        (["claims", FLASH, "--budget", "0"], "no number of seconds"),
        (["claims", FLASH, "--budget", "soon"], "no number of seconds"),
        (["claims", FLASH, "--budget", "nan"], "no number of seconds"),
        (["deps", FLASH, "--at", "M"], "'M' is not NAME=INTEGER"),
        (["deps", FLASH, "--at", "M=x"], "'x' is no integer"),
        (["deps", FLASH, "--at", "M=1.5"], "'1.5' is no integer"),
        (["deps", FLASH, "--at", f"M={'9' * 5000}"], "is no integer"),
        (["deps", FLASH, "--at", f"M={2**63},N=3,E=1,D=1"], "has more than 64 bits"),
        (["deps", FLASH, "--at", f"M=2,N=[[{-(2**70)}]]"], "has more than 64 bits"),
        (["deps", FLASH, "--at", "M=2,N=3,E=-1,D=1"], "an extent of Q is -1"),
        (["deps", FLASH, "--at", "M=[1"], "do not match"),
        (["deps", FLASH, "--at", "M=1]"], "do not match"),
        (["deps", FLASH, "--at", "=1"], "is not NAME=INTEGER"),
        (["deps", FLASH, "--at", "M=2,N=3"], "--at does not say E, D"),
        (["deps", FLASH, "--at", "M=2,N=3,E=1,D=1,X=1"], "'X' is no size and no integer array"),
        (["deps", FLASH, "--at", "M=2,M=2,N=3,E=1,D=1"], "--at gives M twice"),
        (["deps", FLASH, "--at", "M=[2],N=3,E=1,D=1"], "M is a size, and --at gives a list"),
        (["deps", STENCIL, "--format", "svg"], "needs sizes"),
        (["deps", STENCIL, "--format", "svg", "--at", "N=0"], "no iteration at these sizes"),
        (["scc", "nowhere.py"], "error[E001]"),
        (["report"], "usage:"),
    ],
)
def test_refusals(capsys: Capture, arguments: list[str], message: str) -> None:
    assert message in failure(capsys, *arguments)


RECURRENCE = "    for i in range(1, N):\n        A[i] = A[i - 1]\n"


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            "A, N):\n    assert N > 5\n    assert N < 3",
            "no sizes satisfy assert N > 5; assert N < 3",
        ),
        ('A: Float[Array, "N-5"], x: Float[Array, "3-N"]):', "no sizes make every extent"),
    ],
)
@pytest.mark.parametrize("verb", [*VERBS, "check"])
def test_nothing_follows_from_what_contradicts_itself(
    capsys: Capture, tmp_path: Path, verb: str, head: str, message: str
) -> None:
    file = listing_file(tmp_path, f"def f({head}\n{RECURRENCE}")
    more = ["parallelize(i)"] if verb == "check" else ["--budget", "9"]  # in a process of its own
    text = failure(capsys, verb, file, *more)
    assert f"error[E020]: {message}" in text
    assert "help: " in text


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("n=[1]", "dimension 0 of n is 1, and should be 2"),
        ("n=3", "n has 1 dimension"),
        ("n=[[1],[2]]", "n has 1 dimension"),
        ("page=[[0,1],[0]]", "page has 2 dimensions"),
        ("page=[[0,1],1]", "page has 2 dimensions"),
        ("page=[[0,1],[0,7]]", "page[1, 1] is 7, outside the declared range 0:4"),
        ("Y=[[0,1],[0,1]]", "'Y' is no size and no integer array of ragged"),
        ("n=[1,x]", "'x' is no integer"),
    ],
)
def test_contents_that_do_not_fit(
    capsys: Capture, tmp_path: Path, contents: str, message: str
) -> None:
    path = listing_file(tmp_path, RAGGED)
    assert message in failure(capsys, "deps", path, "--at", f"B=2,K=2,P=4,{contents}")


def test_a_range_without_integers_at_these_sizes(capsys: Capture, tmp_path: Path) -> None:
    text = 'def f(col: Int[Array, "N", "0:R"], y: Float[Array, "R"]):\n'
    text += "    for p in range(N):\n        y[col[p]] = 1.0\n"
    path = listing_file(tmp_path, text)
    told = failure(capsys, "deps", path, "--at", "N=1,R=0,col=[0]")
    assert "outside the declared range 0:0" in told
    assert "help: at these sizes no integer lies in it; choose other sizes" in told
    told = failure(capsys, "deps", path, "--at", "N=1,R=3,col=[5]")
    assert "help: give numbers from 0 to 2" in told


def test_contents_that_break_a_contract(capsys: Capture, tmp_path: Path) -> None:
    text = 'def f(cu: Int[Array, "B+1"], y):\n    assert B % 2 == 0\n'
    text += "    assert all(cu[b] <= cu[b + 1] for b in range(B))\n"
    text += "    for b in range(B):\n        y[cu[b]] = 1.0\n"
    path = listing_file(tmp_path, text)
    assert "violate the contract" in failure(capsys, "deps", path, "--at", "B=2,cu=[0,2,1]")
    assert "violate the contract" in failure(capsys, "deps", path, "--at", "B=3")
    assert main(["deps", path, "--at", "B=2,cu=[0,1,1]"]) == 0
    assert main(["deps", path, "--at", "B=2"]) == 0


@pytest.mark.parametrize("size", [0, -2])
def test_sizes_that_divide(capsys: Capture, tmp_path: Path, size: int) -> None:
    text = "def f(A, N, P):\n    for i in range(N):\n        A[i // P] = A[i % P]\n"
    message = failure(capsys, "deps", listing_file(tmp_path, text), "--at", f"N=3,P={size}")
    assert f"P is {size}, and an index is divided by it" in message
    assert "help:" in message


def test_sizes_whose_quotient_divides(capsys: Capture, tmp_path: Path) -> None:
    text = (
        'def f(K: Float[Array, "G"], n: Int[Array, "G"], Q):\n    x = 0.0\n'
        "    for h in range(H):\n        if n[h // (H // G)] > 2:\n"
        "            x = x + K[h // (H // G)]\n        Q[h] = x\n"
    )
    path = listing_file(tmp_path, text)
    assert "H // G is 0, and an index is divided by it" in failure(
        capsys, "deps", path, "--at", "H=2,G=3"
    )
    assert main(["deps", path]) == 0
    assert "not known" not in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "text", ["for i in range(N:\n", "", "for i in range(N):\n    x[i * i] = 1.0\n"]
)
def test_listing_errors(capsys: Capture, tmp_path: Path, verb: str, text: str) -> None:
    assert "error[E" in failure(capsys, verb, listing_file(tmp_path, text))


def test_points_that_take_too_long(capsys: Capture, monkeypatch: Patch) -> None:
    def slow(*_: object, **__: object) -> None:
        raise BudgetExceeded("out of time")

    monkeypatch.setattr(api, "iteration_points", slow)
    arguments = ["deps", STENCIL, "--at", "N=4", "--format", "svg"]
    assert "out of time" in failure(capsys, *arguments, status=3)


def test_no_picture_is_drawn_of_dependences_that_are_not_known(
    capsys: Capture, monkeypatch: Patch
) -> None:
    # Without arrows it would say that there are none, and the points may take as long again.
    def asked(*_: object, **__: object) -> None:
        raise AssertionError

    unknown = DependenceReport("stencil", ("N",), (), (), unknown="out of time")
    monkeypatch.setattr(api, "dependences", lambda *_, **__: unknown)
    monkeypatch.setattr(api, "iteration_points", asked)
    arguments = ["deps", STENCIL, "--at", "N=4", "--format", "svg"]
    assert failure(capsys, *arguments, status=3).count("out of time") == 1
