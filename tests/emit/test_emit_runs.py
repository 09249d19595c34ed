import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRITON = all(importlib.util.find_spec(name) is not None for name in ("torch", "triton"))
# Relative Frobenius errors: two units of float32, the rounding of one store in float16.
MOST = {"float32": 5e-7, "float16": 5e-4}


@pytest.mark.skipif(not TRITON, reason="needs torch and triton")
def test_emitted_modules_compute_what_the_listing_says_and_refuse_what_does_not_fit() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.emit.interpreted"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    findings = json.loads(done.stdout)
    kinds = {name.split()[0] for name, _ in findings}
    assert {"matmul", "softmax", "attention", "awkward", "recurrence", "functions"} <= kinds
    wrong = [(name, error) for name, error in findings if not error <= MOST.get(name[-7:], 0.0)]
    assert wrong == []


@pytest.mark.skipif(not TRITON, reason="needs torch and triton")
def test_on_hopper_full_loops_have_no_masks_and_products_are_wgmma() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.emit.compiled"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"},
    )
    found = json.loads(done.stdout)
    # K and V in the full loop are read without a mask, in the boundary loop with one; Q has one.
    assert found["attention 64"]["masked loads in loops"] == [[False, False], [True, True]]
    assert found["attention 64"]["wgmma"]
    # True float32: no matrix instruction has it.
    assert not found["attention 64 fp32"]["wgmma"]
