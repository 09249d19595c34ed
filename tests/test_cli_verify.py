"""`looptrans verify` from end to end, each command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# Not imported here: that would decide for this process whether kernels are interpreted.
pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None, reason="needs torch and triton"
)

ROOT = Path(__file__).parent.parent


def looptrans(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "looptrans", "verify", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_listing_passes() -> None:
    sizes = ["--sizes", "M=33,N=17,K=5", "--sizes", "M=2,N=3,K=0"]
    done = looptrans("specs/matmul.py", *sizes, "--dtype", "fp32,float16", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["schema"] == "looptrans.verify/1"
    assert (document["passed"], document["pass"]) == (True, "forward")
    (output,) = document["outputs"]
    assert output["name"] == "C"
    assert 0 < output["error"] <= output["tolerance"]
    assert output["norm"] == "relative Frobenius"
    assert {(run["sizes"]["M"], run["dtype"], run["inputs"]) for run in document["runs"]} == {
        (size, dtype, kind)
        for size in (33, 2)
        for dtype in ("float32", "float16")
        for kind in ("normal", "x10", "rising")
    }


def test_a_listing_without_kernels_is_refused() -> None:
    done = looptrans("specs/stencil.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "S1" in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "float8"], "'float8' is none of float32, float16, bfloat16"),
        (["--sizes", "Z=3"], "'Z' is given"),
        (["--pass", "sideways"], "invalid choice: 'sideways'"),
        (["--of", "C"], "--of and --form are about a backward pass"),
        (["--pass", "backward", "--of", "Z"], "matmul has no output Z"),
        (["--device", "cuda:99"], "cuda:99"),
    ],
)
def test_a_mistake_in_the_command(arguments: list[str], message: str) -> None:
    done = looptrans("specs/matmul.py", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
