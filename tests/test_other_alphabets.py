"""Listings whose names are not in ASCII: kernels and operators are named in it."""

import re
from pathlib import Path

import pytest

from looptrans.cli.main import main
from looptrans.emit.backward import emitted_with_backward
from looptrans.emit.identifiers import in_ascii
from looptrans.emit.listing import emitted
from looptrans.runtime.inspecting.inspect import inspect
from looptrans.runtime.inspecting.job import Measurement
from looptrans.runtime.verifying.backward import verify_pass
from tests.analysis import program

LISTING = """
def größe(Ω: Float[Array, "N D"], λ: Float[Array, "N"], σ: float, Dämpfung: float):
    φ = zeros((N, D))
    for i in range(N):
        for j in range(N):
            w = exp(-σ * λ[j] * λ[j]) * Dämpfung * sum(Ω[i, e] * Ω[j, e] for e in range(D))
            for d in range(D):
                φ[i, d] = φ[i, d] + w * Ω[j, d]
    return φ
"""


def test_names_in_ascii() -> None:
    given = {"abc_1": "abc_1", "dλ_kernel": "dlamda_kernel", "größe": "grose", "字": "u5b57"}
    for name, expected in given.items():
        assert in_ascii(name) == expected


def test_both_passes_run_and_their_kernels_compile() -> None:
    listing = program(LISTING)
    made = emitted_with_backward(listing)
    names = re.findall(r"^def (\w+_kernel)\(", made.text, re.MULTILINE)
    assert len(names) >= 3
    assert all(len(line) <= 100 for line in made.text.splitlines())
    assert all(map(str.isascii, names))
    report = verify_pass(
        listing, "both", [{"N": 9, "D": 5, "σ": 0.3, "Dämpfung": 0.5}], ["float32"]
    )
    assert report.passed
    (kernel,) = inspect(emitted(listing), ["cuda:90"], "bfloat16", {"D": 64}, {}).kernels
    assert isinstance(kernel.result, Measurement), kernel.result


def test_names_are_read_as_python_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The micro sign of a keyboard is a letter mu in a name, and so it is wherever one is asked."""
    file = tmp_path / "nest.py"
    file.write_text(
        'def µs(A: Float[Array, "ﬁ M"]):\n    for µ in range(ﬁ):\n        for j in range(M):\n'
        "            A[µ, j] = A[µ, j] * 2.0  # S1: [SLoop: (µ, j), TLoop: (µ, j)]\n"
    )
    named = f"{file}::µs"
    assert main(["claims", named]) == 0
    assert main(["check", named, "reverse(µ)"]) == 0
    assert main(["deps", named, "--at", "ﬁ=2,M=2"]) == 0
    assert main(["run", named, "--sizes", "ﬁ=2,M=2"]) == 0
    assert main(["derive", named, "--to", "backward", "--wrt", "µ"]) == 2
    assert "--wrt: μ is no argument of μs" in capsys.readouterr().err


OF_OTHERS = """
def like(tl: Float[Array, "debug self"], grid: Float[Array, "_parts self"], _fitted: Float[Array, "_parts options"]):
    _Tuned = zeros((debug, options))
    for delta in range(debug):
        config = -inf
        for dlike in range(_parts):
            config = max(config, sum(tl[delta, e] * grid[dlike, e] for e in range(self)))
        params = 0.0
        for dlike in range(_parts):
            params += exp(sum(tl[delta, e] * grid[dlike, e] for e in range(self)) - config)
        for dlike in range(_parts):
            for d in range(options):
                _Tuned[delta, d] += (
                    exp(sum(tl[delta, e] * grid[dlike, e] for e in range(self)) - config)
                    / params
                    * _fitted[dlike, d]
                )
    return _Tuned
"""  # noqa: E501


def test_names_may_be_those_of_the_module_of_triton_and_of_what_is_derived() -> None:
    listing = program(OF_OTHERS)
    sizes = {"debug": 5, "self": 4, "_parts": 6, "options": 3}
    assert verify_pass(listing, "both", [sizes], ["float32"]).passed
    made = emitted_with_backward(listing)
    kernels = re.findall(r"^def \w+_kernel\((.*?)^\):", made.text, re.MULTILINE | re.DOTALL)
    assert len(kernels) >= 3
    for name in sizes:
        assert not any(re.search(rf"\b{name}\b", parameters) for parameters in kernels)
