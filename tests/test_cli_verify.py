"""`looptrans verify` from end to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pages import said

os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is first imported

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None, reason="needs torch and triton"
)

ROOT = Path(__file__).parent.parent


def test_a_listing_passes_in_a_process_of_its_own() -> None:
    sizes = ["--sizes", "M=33,N=17,K=5", "--sizes", "M=2,N=3,K=0"]
    options = [*sizes, "--dtype", "fp32,float16", "--format", "json"]
    command = [sys.executable, "-m", "looptrans", "verify", "specs/matmul.py", *options]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
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
    status, printed, errors = said(["verify", str(ROOT / "specs/stencil.py")])
    assert (status, printed) == (1, "")
    assert "S1" in errors
    assert "internal error" not in errors


def test_what_needs_a_gpu_is_unknown_where_there_is_none() -> None:
    command = ["verify", str(ROOT / "specs/matmul.py"), "--dtype", "bfloat16", "--device", "cpu"]
    status, printed, errors = said(command)
    assert (status, printed) == (3, "")
    assert "it needs a GPU" in errors


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
    status, printed, errors = said(["verify", str(ROOT / "specs/matmul.py"), *arguments])
    assert (status, printed) == (2, "")
    assert message in errors
