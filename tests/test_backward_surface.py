"""What the command line says about backward passes: listings, refusals and their remedies."""

from __future__ import annotations

from pathlib import Path

import pytest

from looptrans.adjoint.backward import backward
from looptrans.cli.main import main
from looptrans.emit.backward import emitted_backward
from looptrans.frontend import parse
from looptrans.ir.listing import listing
from looptrans.ir.named import unlabelled_in
from looptrans.ir.program import Assign
from looptrans.ir.source import Source
from looptrans.ir.walk import nodes

Capture = pytest.CaptureFixture[str]

SQUARE = """\
def square(X: Float[Array, "N"]):
    Y = zeros(N)
    for i in range(0, N):
        Y[i] = X[i] * X[i]
    return Y
"""
SHARES = """\
def shares(Q: Float[Array, "M E"], K: Float[Array, "N E"], V: Float[Array, "N"]):
    O = zeros(M)
    l = zeros(M)
    for i in range(0, M):
        for j in range(0, N):
            w = sum(Q[i, e] * K[j, e] for e in range(0, E)) + 0.5
            l[i] += w
            O[i] += w * V[j]
        O[i] = O[i] / l[i]
    return O
"""
SCAN = """\
def smooth(X: Float[Array, "N"], a):
    y = zeros(N)
    h = 0.0
    for i in range(0, N):
        h = a * h + X[i]
        y[i] = h
    return y
"""
SWEEP = """\
def sweep(X: Float[Array, "N"], T: int):
    h = zeros(N)
    for t in range(0, T):
        for i in range(1, N):
            h[i] = h[i - 1] * X[i] + h[i]
    return h
"""
IN_PLACE = """\
def half(X: Float[Array, "N"]):
    for i in range(0, N):
        X[i] = X[i] / 2.0
    return X
"""
COUNTS = """\
def counts(n: Int[Array, "B"]):
    t = zeros(B)
    for b in range(0, B):
        t[b] = n[b] * 2
    return t
"""
REFUSED = {
    "a sweep": (SWEEP, "S1 looks at h[i - 1] in between", "with sums, maxima and minima"),
    "in place": (IN_PLACE, "its first values are lost", "put the result into an array of its own"),
    "no floats": (COUNTS, "no argument of floating-point numbers", "gradients are of floating"),
    "no shape": (SQUARE.replace(': Float[Array, "N"]', ""), "how large X is", "write the shape"),
    "another way to write shapes": (
        SQUARE.replace(': Float[Array, "N"]', ': "f32[N]"'),
        'its annotation "f32[N]" names no shape',
        'X: Float[Array, "M"]',
    ),
}


def ran(capsys: Capture, path: Path, text: str, *arguments: str) -> tuple[int, str, str]:
    file = path / "listing.py"
    file.write_text(text)
    status = main([arguments[0], str(file), *arguments[1:]])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_backward_listing_is_shown_and_reads_back(tmp_path: Path, capsys: Capture) -> None:
    status, printed, _ = ran(capsys, tmp_path, SQUARE, "show", "--pass", "backward")
    assert status == 0
    assert "dX[i] = 2.0 * dY[i] * X[i]" in printed
    assert listing(parse(Source("<again>", printed))) == printed


def test_the_backward_pass_is_shown_in_blocks(tmp_path: Path, capsys: Capture) -> None:
    options = ("show", "--pass", "backward", "--stage", "blocks")
    status, printed, _ = ran(capsys, tmp_path, SQUARE, *options)
    assert status == 0
    assert "store dX[i] = " in printed


@pytest.mark.parametrize("which", REFUSED)
def test_a_refusal_names_reason_and_remedy(which: str, tmp_path: Path, capsys: Capture) -> None:
    text, reason, remedy = REFUSED[which]
    for verb in ("show", "emit"):
        status, printed, said = ran(capsys, tmp_path, text, verb, "--pass", "backward")
        assert (status, printed) == (1, "")
        assert said.startswith("error[E071]")
        why, _, help_ = said.partition("\n  help: ")
        assert reason in why
        assert remedy in help_
    status, printed, _ = ran(capsys, tmp_path, text, "derive", "--to", "backward")
    assert status == 3
    assert "Why there is none" in printed
    assert printed.endswith("unknown: no backward pass was found\n")


def test_a_form_that_there_is_not_is_refused(tmp_path: Path, capsys: Capture) -> None:
    options = ("emit", "--pass", "backward", "--form", "atomics")
    status, printed, said = ran(capsys, tmp_path, SQUARE, *options)
    assert (status, printed) == (1, "")
    assert "its backward pass has no form atomics: no sum is worked out in two nests" in said
    assert "leave --form out" in said


def test_a_label_is_told_only_where_the_listing_does_not_show_it() -> None:
    program = parse(Source("<scan>", SCAN.replace("X[i]\n", "X[i]  # S5: the state\n")))
    shown = [node.label for node in nodes(program.body) if isinstance(node, Assign)]
    assert unlabelled_in(f"{shown[2]}, S5, but not S12", program) == [f"{shown[2]} is y[i] = h"]


def test_an_array_handed_over_as_it_is_left_is_kept_in_float32() -> None:
    found = backward(parse(Source("<shares>", SHARES)))
    assert {each.name for each in found.saved} >= {"l"}
    kept = {made.array: made.dtype for made in emitted_backward(found).forward.made}
    assert kept["l"] == "float32"
    assert kept["O"] != "float32"
